//! Two connections that have become a WebSocket: bytes both ways, whatever they mean.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use router_ebpf::framing::Framing;
use tokio::sync::futures::Notified;

use super::Relay;
use crate::gateway::failure::Broken;
use crate::{
    engine::{Conn, Copier, CopyError, HandoverPoint, Output, Step},
    fleet::Instance,
};

/// How long one side may be silent once the other has closed. Between WebSockets both close within a
/// round trip (RFC 6455 section 7.1.1).
const CLOSING_IDLE: Duration = Duration::from_secs(10);

/// The two directions of a tunnel.
pub(in crate::gateway) struct Tunnel {
    /// From the client to the instance.
    pub(in crate::gateway) request: Copier,
    /// From the instance to the client.
    pub(in crate::gateway) response: Copier,
    request_ended: bool,
    response_ended: bool,
    /// Which direction comes first.
    turn: bool,
}

impl Tunnel {
    /// A tunnel that begins with `response`'s bytes to the client.
    pub(in crate::gateway) fn new(response: bytes::Bytes) -> Self {
        let until_close = || Copier::new(Framing::until_close(), Output::Verbatim);
        let mut tunnel = Self {
            request: until_close(),
            response: until_close(),
            request_ended: false,
            response_ended: false,
            turn: false,
        };
        tunnel.response.push(response);
        tunnel
    }
}

impl Relay<'_> {
    /// Carries bytes both ways until both sides have closed. One that closes its sending side has that
    /// passed on, and still gets what the other sends. `moved` is called whenever bytes may have moved.
    pub(in crate::gateway) async fn tunnel(
        &mut self,
        client: &mut Conn,
        instance: &Instance,
        tunnel: &mut Tunnel,
        mut moved: impl FnMut(&Tunnel),
    ) -> Result<(), Broken> {
        let mut next = pin!(instance.alarm().next());
        self.instance.restart();
        // What the client has sent ahead is in its input, and what it sends is read here from now on.
        self.watch.pause();
        self.answering = true;
        poll_fn(|cx| {
            let step = self.poll_tunnel(cx, client, tunnel);
            moved(tunnel);
            match step {
                Poll::Pending => self.poll_silence(cx, instance, &mut next, tunnel).map(Err),
                ready => ready,
            }
        })
        .await
    }

    fn poll_tunnel(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        tunnel: &mut Tunnel,
    ) -> Poll<Result<(), Broken>> {
        // A side that sends without a pause uses up what one poll may do, so the other comes first next time.
        tunnel.turn = !tunnel.turn;
        if tunnel.turn {
            self.poll_request(cx, client, tunnel)?;
            self.poll_response(cx, client, tunnel)?;
        } else {
            self.poll_response(cx, client, tunnel)?;
            self.poll_request(cx, client, tunnel)?;
        }
        match tunnel.request_ended && tunnel.response_ended {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Moves what the client sends. Nothing to tell is `Ok`.
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        tunnel: &mut Tunnel,
    ) -> Result<(), Broken> {
        if tunnel.request_ended {
            return Ok(());
        }
        let to = &mut self.upstream.stream;
        match tunnel.request.poll(cx, client, to, HandoverPoint::Never) {
            Poll::Pending | Poll::Ready(Ok(Step::Drained)) => Ok(()),
            Poll::Ready(Ok(Step::Complete)) => {
                tunnel.request_ended = true;
                // A failure means that the connection is gone, which the other direction finds.
                let _ = self.upstream.stream.shutdown_write();
                Ok(())
            }
            // It reads no more, but it may have said why.
            Poll::Ready(Err(CopyError::TargetGone(_))) => {
                tunnel.request_ended = true;
                Ok(())
            }
            Poll::Ready(Err(_)) => Err(Broken::ClientGone),
        }
    }

    /// Moves what the instance sends. Nothing to tell is `Ok`.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        tunnel: &mut Tunnel,
    ) -> Result<(), Broken> {
        if tunnel.response_ended {
            return Ok(());
        }
        let to = &mut client.stream;
        match tunnel.response.poll(cx, &mut self.upstream, to, HandoverPoint::Never) {
            Poll::Pending | Poll::Ready(Ok(Step::Drained)) => Ok(()),
            Poll::Ready(Ok(Step::Complete)) => {
                tunnel.response_ended = true;
                let _ = client.stream.shutdown_write();
                Ok(())
            }
            Poll::Ready(Err(CopyError::SourceBroken(error))) => Err(Broken::Upstream(error)),
            Poll::Ready(Err(_)) => Err(Broken::ClientGone),
        }
    }

    /// What ends a tunnel in which nothing moves.
    fn poll_silence<'i>(
        &mut self,
        cx: &mut Context<'_>,
        instance: &'i Instance,
        next: &mut Pin<&mut Notified<'i>>,
        tunnel: &Tunnel,
    ) -> Poll<Broken> {
        self.instance.poll(cx, instance, next);
        let limit = self.instance.pause_limit(self.config);
        let closing = tunnel.request_ended || tunnel.response_ended;
        let limit = if closing { limit.min(CLOSING_IDLE) } else { limit };
        if self.timer.limit() != limit {
            self.timer.restart(limit);
        }
        let progress = tunnel.request.progress().max(tunnel.response.progress());
        ready!(self.timer.poll(cx, progress));
        Poll::Ready(self.paused_for_too_long())
    }
}
