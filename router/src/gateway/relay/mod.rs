//! One exchange's two connections while bytes move between them.
//!
//! Both directions and the watch for the client's hang-up are polled by the one task of the client
//! connection: no task per direction, no channel, no lock.

mod body;
mod client_watch;
mod hand_over;
mod head;
mod idle_timer;
mod instance_watch;
mod tunnel;

use std::{
    io,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

pub(super) use self::tunnel::Tunnel;
use self::{client_watch::ClientWatch, idle_timer::IdleTimer, instance_watch::InstanceWatch};
use super::{context::WorkerContext, failure::Broken};
use crate::{
    config::Config,
    engine::{Attempts, Conn, Copier, CopyError, Step},
    fleet::{Instance, InstanceId},
    net::unacknowledged,
};

/// The request direction.
pub(super) struct Sending {
    pub(super) copier: Copier,
    /// Why no more of it can be sent; the instance may still answer.
    broken: Option<io::Error>,
    /// When no more of it was to be sent.
    done: Option<Instant>,
    attempts: Attempts,
}

impl Sending {
    pub(super) fn new(copier: Copier) -> Self {
        Self { copier, broken: None, done: None, attempts: Attempts::default() }
    }

    /// Whether the instance has been sent the whole request.
    pub(super) fn is_complete(&self) -> bool {
        self.done.is_some() && self.broken.is_none()
    }

    /// How long ago the request had been sent; nothing if an answer has come before its end.
    pub(super) fn elapsed(&self) -> Duration {
        self.done.map(|done| done.elapsed()).unwrap_or_default()
    }
}

/// Two connections with a request on its way.
pub(super) struct Relay<'a> {
    worker: &'a WorkerContext,
    config: &'a Config,
    pub(super) upstream: Conn,
    pub(super) sending: Sending,
    watch: ClientWatch,
    instance: InstanceWatch,
    timer: IdleTimer,
    /// Bytes that may still come of the request's body.
    body_limit: u64,
    /// Bytes of the request's body that the kernel carried.
    pub(super) kernel_request_bytes: u64,
    /// Bytes of the response's body that the kernel carried.
    pub(super) kernel_response_bytes: u64,
    /// Whether a byte of the response's body has come.
    pub(super) answering: bool,
    /// Whether the request asks for a WebSocket, which the response may make of the connection.
    pub(super) upgrade: bool,
    /// Whether the response was to be handed over, whatever became of that.
    pub(super) response_due: bool,
    /// Stream bytes of the instance's connection before this exchange: read, and written.
    before: (u64, u64),
    /// The instance that keeps the response, if that is to be noted.
    keeper: Option<InstanceId>,
}

/// What [`Relay::poll_sending`] came to.
enum Sent {
    /// Sent, or as far as it will go.
    Finished,
    /// At rest, and worth handing over.
    HandOver,
}

impl<'a> Relay<'a> {
    pub(super) fn new(
        worker: &'a WorkerContext,
        config: &'a Config,
        instance: &Instance,
        upstream: Conn,
        sending: Sending,
        body_limit: u64,
    ) -> Self {
        let timer = IdleTimer::new(config.timeouts.first_byte);
        let before = (upstream.stream.bytes_read(), upstream.stream.bytes_written());
        Self {
            worker,
            config,
            upstream,
            sending,
            watch: ClientWatch::default(),
            instance: InstanceWatch::new(instance),
            timer,
            body_limit,
            kernel_request_bytes: 0,
            kernel_response_bytes: 0,
            answering: false,
            upgrade: false,
            response_due: false,
            before,
            keeper: None,
        }
    }

    /// Whether the instance's kernel has acknowledged a byte of the request. Holds for a connection that
    /// has broken as well.
    ///
    /// A body may be handed over before that: its source would be ahead of every later attempt. What the
    /// kernel then carries is gone from here, and is not sent again.
    pub(super) fn is_acknowledged(&self) -> bool {
        let written = self.upstream.stream.bytes_written() - self.before.1;
        written > 0
            && !unacknowledged(&self.upstream.stream).is_ok_and(|waiting| waiting >= written)
    }

    /// Whether the instance has sent anything back.
    pub(super) fn is_answered(&self) -> bool {
        self.upstream.stream.bytes_read() > self.before.0
    }

    /// Whether what was sent of the request can be sent again: nothing of it came from the client
    /// meanwhile, or all of that was kept.
    pub(super) fn holds_request(&self) -> bool {
        let copier = &self.sending.copier;
        self.kernel_request_bytes == 0 && (copier.bytes() == 0 || copier.kept().is_some())
    }

    /// Keeps the request no longer than until the first acknowledgement: a stale connection has none.
    /// Until then no more is kept than the connection's send buffer takes, for more is not read.
    fn forget_if_acknowledged(&mut self) {
        if self.sending.copier.kept().is_some() && self.is_acknowledged() {
            self.sending.copier.forget();
        }
    }

    /// Moves the request on. Never ready while there is nothing to tell.
    fn poll_sending(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
    ) -> Poll<Result<Sent, Broken>> {
        if self.sending.done.is_some() {
            return Poll::Pending;
        }
        self.forget_if_acknowledged();
        let sending = &mut self.sending;
        let hand_over = self.worker.hand_over(self.config, None, &sending.copier, sending.attempts);
        sending.copier.limit(self.body_limit.saturating_sub(self.kernel_request_bytes));
        let step = ready!(sending.copier.poll(cx, client, &mut self.upstream.stream, hand_over));
        match step {
            Ok(Step::Complete) => {
                sending.done = Some(Instant::now());
                Poll::Ready(Ok(Sent::Finished))
            }
            Ok(Step::Drained) => Poll::Ready(Ok(Sent::HandOver)),
            // The instance takes no more, but it may have said why: the response decides.
            Err(CopyError::TargetGone(error)) => {
                sending.done = Some(Instant::now());
                sending.broken = Some(error);
                Poll::Ready(Ok(Sent::Finished))
            }
            Err(CopyError::SourceClosed | CopyError::SourceBroken(_)) => {
                Poll::Ready(Err(Broken::ClientGone))
            }
            Err(CopyError::TooLong) => Poll::Ready(Err(Broken::TooLarge)),
            Err(error @ CopyError::Malformed(_)) => Poll::Ready(Err(Broken::BadRequest(error))),
        }
    }
}
