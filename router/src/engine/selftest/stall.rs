//! A target that does not read, under sockmap.

use std::time::Duration;

use router_ebpf::framing::Framing;
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{
    IDLE,
    connections::fill,
    data::{compare, expect, payload},
    pair::Pair,
};
use crate::engine::{
    Handover, KernelEngine,
    outcome::{HandoverEnd, HandoverOutcome, TakeBack},
};

impl Pair {
    /// The kernel stops at the limit of the backlog, and what it holds then arrives.
    pub(super) async fn stall(&mut self, engine: &KernelEngine) -> Result<(), String> {
        // More than both socket buffers and the limit hold.
        let body = payload(16 * 1024 * 1024);
        let mut framing = Framing::length(body.len() as u64);
        let Self { from, to, source, target } = self;
        // Small buffers keep the step short.
        let _ = socket2::SockRef::from(&to.stream).set_send_buffer_size(64 * 1024);
        let _ = socket2::SockRef::from(&from.stream).set_recv_buffer_size(64 * 1024);
        let _ = socket2::SockRef::from(&*target).set_recv_buffer_size(64 * 1024);
        let mut handover = Box::pin(engine.hand_over(Handover::new(from, to, &mut framing, IDLE)));
        let mut outcome = None;
        let mut sent = 0;
        let mut got = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        while outcome.is_none() {
            // It may end early, if what was redirected fits into the target's send queue.
            let mut filling = Box::pin(fill_up(source, &body, &mut sent));
            let filled = loop {
                tokio::select! {
                    // The hand-over begins first.
                    biased;
                    end = &mut handover, if outcome.is_none() => outcome = Some(end),
                    filled = &mut filling => break filled,
                }
            };
            drop(filling);
            filled?;
            // What the kernel holds arrives once the target reads. If that is all, the kernel had not come to
            // its limit yet, on a busy machine: once more.
            let all = |outcome: Option<HandoverOutcome>| {
                outcome.map_or(sent as u64, |outcome| outcome.bytes)
            };
            while (got.len() as u64) < all(outcome) {
                tokio::select! {
                    end = &mut handover, if outcome.is_none() => outcome = Some(end),
                    n = target.read(&mut buffer) => {
                        got.extend_from_slice(&buffer[..n.map_err(|error| error.to_string())?]);
                    }
                }
            }
        }
        drop(handover);
        let outcome = outcome.expect("the loop's condition");
        expect(&outcome, HandoverEnd::TakenBack(TakeBack::Backlog), outcome.bytes)?;
        compare(&got, &body[..outcome.bytes as usize])?;
        // The rest waits for user space.
        let rest = &body[got.len()..sent];
        fill(from, rest.len()).await?;
        compare(&from.input, rest)?;
        from.input.clear();
        Ok(())
    }
}

/// Sends of `body` what is behind `sent`, until there is no more room: the kernel has stopped taking.
async fn fill_up(source: &mut TcpStream, body: &[u8], sent: &mut usize) -> Result<(), String> {
    let mut quiet = 0;
    while quiet < 4 && *sent < body.len() {
        match source.try_write(&body[*sent..]) {
            Ok(n) => (*sent, quiet) = (*sent + n, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                quiet += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    if *sent == body.len() {
        return Err("the kernel took 16 MiB for a target that reads nothing".to_owned());
    }
    Ok(())
}
