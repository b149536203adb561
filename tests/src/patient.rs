//! An instance whose health can be set.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use crate::{Gate, Upstream, message::response_with};

/// An instance whose answers to health checks and to requests can be set.
#[derive(Debug)]
pub struct Patient {
    /// The instance.
    pub upstream: Upstream,
    health: Arc<AtomicU16>,
    answer: Arc<AtomicU16>,
    slow: Gate,
}

/// The status that stands for a health page that does not answer.
const SILENT: u16 = 0;

impl Patient {
    /// One that answers everything with 200.
    pub fn new() -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), &[])
    }

    /// One that sends these fields with each answer to a request.
    pub fn with_fields(fields: &'static [(&'static str, &'static str)]) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), fields)
    }

    /// One at an address of the test's choice.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn at(address: SocketAddr, fields: &'static [(&'static str, &'static str)]) -> Self {
        let (health, answer) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200)));
        let slow = Gate::new();
        let upstream = Upstream::answering_at(address, {
            let (health, answer, slow) = (health.clone(), answer.clone(), slow.clone());
            move |request| {
                if request.target() != "/health" {
                    return response_with(answer.load(Ordering::SeqCst), fields, "");
                }
                let status = health.load(Ordering::SeqCst);
                if status == SILENT {
                    slow.wait();
                }
                response_with(if status == SILENT { 200 } else { status }, &[], "")
            }
        });
        Self { upstream, health, answer, slow }
    }

    /// Sets the status of its health page.
    pub fn set_health(&self, status: u16) {
        self.health.store(status, Ordering::SeqCst);
    }

    /// Makes its health page silent; its requests are answered all the same.
    pub fn silence_health(&self) {
        self.set_health(SILENT);
    }

    /// Sets the status of its answers to requests.
    pub fn set_answer(&self, status: u16) {
        self.answer.store(status, Ordering::SeqCst);
    }

    /// Requests that it has had, without health checks.
    pub fn served(&self) -> usize {
        self.upstream.requests().iter().filter(|request| request.target() != "/health").count()
    }

    /// Health checks that it has had.
    pub fn checked(&self) -> usize {
        self.upstream.requests().len() - self.served()
    }
}

impl Default for Patient {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        // Its threads end.
        self.slow.open();
    }
}
