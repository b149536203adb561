//! The read phase: from a client's bytes to the head of its next request.

mod identity;
mod proxied;

use std::{future::poll_fn, net::IpAddr, time::Duration};

use bytes::Bytes;

pub(super) use self::{identity::Identity, proxied::source};
use super::context::WorkerContext;
use crate::{
    engine::Conn,
    http::{self, Failure, RequestHead, head::Fields},
    net::READ_BUFFER_BYTES,
    shared::Phase,
};

/// How long the first request of a new connection may take to come once the process drains.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// What the read phase makes: a request whose head passed every check of HTTP/1.1, and whose body
/// has not been looked at.
pub(super) struct Request {
    pub(super) head: RequestHead,
    /// The bytes of the head. They share memory with what was read behind them.
    raw: Bytes,
    pub(super) identity: Identity,
}

impl Request {
    pub(super) fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The target's path, nothing decoded. Heads with other bytes than visible ASCII in their target
    /// have been refused, so it is text.
    pub(super) fn path(&self) -> &str {
        std::str::from_utf8(self.head.path(&self.raw)).unwrap_or_default()
    }

    pub(super) fn query(&self) -> Option<&[u8]> {
        self.head.query(&self.raw)
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        self.head.headers(&self.raw)
    }

    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.header(&self.raw, name)
    }

    /// Gives up the bytes of the head: no header can be read any more. An answer may stream for
    /// minutes, and must not keep in memory what was read with the head, such as a long prompt.
    pub(super) fn release(&mut self) {
        self.raw = Bytes::new();
    }
}

/// Why no request came.
pub(super) enum NoRequest {
    /// The client closed, or was idle for too long between requests.
    Over,
    /// The client's bytes are answered with an error.
    Rejected(Failure),
}

/// Reads until a whole request head has come, and takes it off the input.
pub(super) async fn read(
    worker: &WorkerContext,
    client: &mut Conn,
    peer: IpAddr,
) -> Result<Request, NoRequest> {
    let fleet = worker.fleet();
    let config = fleet.config();
    let limits = config.head_limits();
    if client.input.is_empty() {
        wait_for_request(worker, client, config.timeouts.client_idle).await?;
    }
    let read = async {
        let mut seen = 0;
        loop {
            match http::parse_request_from(&client.input, &mut seen, &limits) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) => {}
                Err(reject) => return Err(NoRequest::Rejected(reject.into())),
            }
            let room = limits.head_bytes.saturating_add(READ_BUFFER_BYTES);
            match poll_fn(|cx| client.poll_fill(cx, room)).await {
                Ok(0) | Err(_) => return Err(NoRequest::Over),
                Ok(_) => {}
            }
        }
    };
    let head = match tokio::time::timeout(config.timeouts.head, read).await {
        Ok(result) => result?,
        Err(_) => return Err(NoRequest::Rejected(head_timeout(config.timeouts.head))),
    };
    let raw = client.input.split_to(head.len).freeze();
    let identity = Identity::of(config, &mut worker.rng.borrow_mut(), &head, &raw, peer);
    Ok(Request { head, raw, identity })
}

fn head_timeout(limit: Duration) -> Failure {
    Failure {
        status: 408,
        reason: "head_timeout",
        message: format!("The request's head did not arrive within {limit:?} (`timeouts.head`).")
            .into(),
        retry_after: None,
    }
}

/// Waits for a request's first byte. An idle connection is closed when the process drains, though not before the first
/// request of one that has just been made had time to come.
async fn wait_for_request(
    worker: &WorkerContext,
    client: &mut Conn,
    idle: Duration,
) -> Result<(), NoRequest> {
    let mut phase = worker.phase();
    let is_new = client.stream.bytes_read() == 0;
    let drained = async {
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
        if is_new {
            tokio::time::sleep(FIRST_REQUEST).await;
        }
    };
    tokio::select! {
        biased;
        read = poll_fn(|cx| client.poll_fill(cx, READ_BUFFER_BYTES)) => return match read {
            Ok(0) | Err(_) => Err(NoRequest::Over),
            Ok(_) => Ok(()),
        },
        () = drained => {}
        () = tokio::time::sleep(idle) => {}
    }
    // What has come by now is not left unanswered, whatever the event loop has heard of it.
    match client.try_fill(READ_BUFFER_BYTES).is_ok_and(|n| n > 0) {
        true => Ok(()),
        false => Err(NoRequest::Over),
    }
}
