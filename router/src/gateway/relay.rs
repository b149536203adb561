//! One exchange's two connections while bytes move between them.
//!
//! Both directions and the watch for the client's hang-up are polled by the one task of the client
//! connection: no task per direction, no channel, no lock.

use std::{
    future::{Future as _, poll_fn},
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::time::Sleep;

use crate::{
    config::Config,
    engine::{
        Attempts, Carrier, CarryError, Copier, HandOver, Lengths, Steering, Step, sockmap::SteerEnd,
    },
    http::{Limits, Method, ResponseError, ResponseHead, parse_response},
    metrics::Direction,
    net::{Conn, Watched},
    routing::Ticket,
};

use super::{failure::Failed, worker::Worker};

/// Bytes of later requests that are read ahead while a response is under way.
const PIPELINE_LIMIT: usize = 64 * 1024;

/// A wait that starts again whenever bytes move, at the price of one timer entry per idle period
/// instead of one per chunk.
struct IdleTimer {
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
}

impl IdleTimer {
    fn new(limit: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(limit)), limit }
    }

    fn restart(&mut self, limit: Duration) {
        self.limit = limit;
        self.sleep.as_mut().reset(tokio::time::Instant::now() + limit);
    }

    /// Ready once nothing has moved for the limit since `progress`.
    fn poll(&mut self, cx: &mut Context<'_>, progress: Instant) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            let due = progress + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(due.into());
        }
    }
}

/// Notices that the client left, while nothing is expected from it.
#[derive(Default)]
struct ClientWatch {
    /// Set once nothing more may be read: the read-ahead is full, or the client has closed its
    /// sending side and still gets its answer.
    watched: Option<Watched>,
    half_closed: bool,
}

impl ClientWatch {
    fn poll_gone(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        worker: &Worker,
        config: &Config,
    ) -> Poll<()> {
        loop {
            if let Some(watched) = &self.watched {
                return if config.half_closed_clients {
                    watched.poll_broken(cx)
                } else {
                    watched.poll(cx).map(|_| ())
                };
            }
            if client.input.len() < PIPELINE_LIMIT && !self.half_closed {
                match ready!(client.poll_fill(cx, PIPELINE_LIMIT)) {
                    Ok(0) if config.half_closed_clients => self.half_closed = true,
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(_) => {}
                }
            } else {
                match worker.hangups.watch(&client.stream) {
                    Ok(watched) => self.watched = Some(watched),
                    Err(_) => return Poll::Ready(()),
                }
            }
        }
    }
}

/// The request direction.
pub(super) struct Sending {
    pub(super) copier: Copier,
    /// Why no more of it can be sent; the instance may still answer.
    broken: Option<io::Error>,
    done: bool,
    attempts: Attempts,
}

impl Sending {
    pub(super) fn new(copier: Copier) -> Self {
        Self { copier, broken: None, done: false, attempts: Attempts::default() }
    }

    /// Whether the instance has been sent the whole request.
    pub(super) fn is_complete(&self) -> bool {
        self.done && self.broken.is_none()
    }
}

/// Two connections with a request on its way.
pub(super) struct Relay<'a> {
    worker: &'a Worker,
    config: &'a Config,
    client: &'a mut Conn,
    pub(super) upstream: Conn,
    pub(super) sending: Sending,
    watch: ClientWatch,
    timer: IdleTimer,
    /// Bytes that may still come of the request's body.
    body_limit: u64,
    /// Bytes of the request's body that the kernel carried.
    pub(super) steered_request: u64,
    /// Bytes of the response's body that the kernel carried.
    pub(super) steered_response: u64,
    /// Whether the response was to be handed over, whatever became of that.
    pub(super) response_due: bool,
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
        worker: &'a Worker,
        config: &'a Config,
        client: &'a mut Conn,
        upstream: Conn,
        sending: Sending,
        read_ahead: usize,
    ) -> Self {
        let timer = IdleTimer::new(config.timeouts.first_byte);
        let body_limit = config.limits.body_bytes.saturating_sub(read_ahead as u64);
        Self {
            worker,
            config,
            client,
            upstream,
            sending,
            watch: ClientWatch::default(),
            timer,
            body_limit,
            steered_request: 0,
            steered_response: 0,
            response_due: false,
        }
    }

    /// Moves the request on. Never ready while there is nothing to tell.
    fn poll_sending(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sent, Failed>> {
        if self.sending.done {
            return Poll::Pending;
        }
        let sending = &mut self.sending;
        let hand_over = self.worker.hand_over(self.config, None, &sending.copier, sending.attempts);
        sending.copier.limit(self.body_limit.saturating_sub(self.steered_request));
        let step =
            ready!(sending.copier.poll(cx, self.client, &mut self.upstream.stream, hand_over));
        match step {
            Ok(Step::Complete) => {
                sending.done = true;
                Poll::Ready(Ok(Sent::Finished))
            }
            Ok(Step::Drained) => Poll::Ready(Ok(Sent::HandOver)),
            // The instance takes no more, but it may have said why: the response decides.
            Err(CarryError::TargetGone(error)) => {
                sending.done = true;
                sending.broken = Some(error);
                Poll::Ready(Ok(Sent::Finished))
            }
            Err(CarryError::SourceClosed | CarryError::SourceBroken(_)) => {
                Poll::Ready(Err(Failed::ClientGone))
            }
            Err(CarryError::TooLong) => Poll::Ready(Err(Failed::TooLarge)),
            Err(error @ CarryError::Malformed(_)) => Poll::Ready(Err(Failed::BadRequest(error))),
        }
    }

    /// Sends the request and waits for the head of the response, which stays at the front of the
    /// upstream's input.
    pub(super) async fn response_head(
        &mut self,
        method: Method,
        limits: &Limits,
    ) -> Result<ResponseHead, Failed> {
        loop {
            let step = poll_fn(|cx| self.poll_head(cx, method, limits)).await?;
            match step {
                HeadStep::Head(head) => return Ok(head),
                HeadStep::HandOver => self.steer_request().await?,
            }
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        method: Method,
        limits: &Limits,
    ) -> Poll<Result<HeadStep, Failed>> {
        loop {
            match self.poll_sending(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(Sent::HandOver)) => return Poll::Ready(Ok(HeadStep::HandOver)),
                Poll::Ready(Ok(Sent::Finished)) => {
                    self.timer.restart(self.config.timeouts.first_byte);
                }
                Poll::Pending => {}
            }
            if self.sending.done
                && self.watch.poll_gone(cx, self.client, self.worker, self.config).is_ready()
            {
                return Poll::Ready(Err(Failed::ClientGone));
            }
            if !self.upstream.input.is_empty() {
                match parse_response(&self.upstream.input, method, limits) {
                    Ok(Some(head)) => return Poll::Ready(Ok(HeadStep::Head(head))),
                    Ok(None) => {}
                    Err(ResponseError { message, .. }) => {
                        return Poll::Ready(Err(Failed::BadResponse(message.to_string())));
                    }
                }
            }
            match self.upstream.poll_fill(cx, limits.head_bytes + PIPELINE_LIMIT) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(Failed::Upstream(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failed::Upstream(error))),
                Poll::Pending => {
                    return self.poll_head_timer(cx).map(Err);
                }
            }
        }
    }

    fn poll_head_timer(&mut self, cx: &mut Context<'_>) -> Poll<Failed> {
        if self.sending.done {
            ready!(self.timer.poll(cx, self.sending.copier.progress()));
            return Poll::Ready(Failed::FirstByteTimeout);
        }
        // The request is still being sent: it is the client, or the instance's reading, that idles.
        let limit = self.config.timeouts.body_idle;
        if self.timer.limit != limit {
            self.timer.restart(limit);
        }
        ready!(self.timer.poll(cx, self.sending.copier.progress()));
        Poll::Ready(Failed::ClientStalled)
    }

    /// Lets the kernel carry the rest of the request body.
    async fn steer_request(&mut self) -> Result<(), Failed> {
        let Some(carrier) = &self.worker.carrier else { return Ok(()) };
        if register(carrier, self.client, &mut self.upstream) {
            self.sending.attempts.wait(&self.sending.copier);
            return Ok(());
        }
        let idle = self.config.timeouts.body_idle;
        let carried = self.steered_request + self.sending.copier.bytes();
        let most = self.body_limit.saturating_sub(carried);
        let framing = self.sending.copier.framing_mut();
        let steered = carrier
            .steer(Steering {
                watch_target: true,
                most,
                ..Steering::new(self.client, &mut self.upstream, framing, idle)
            })
            .await;
        self.sending.copier.touch();
        self.account(Direction::Request, &steered.end, steered.bytes);
        match steered.end {
            SteerEnd::Ended => Ok(()),
            SteerEnd::HandedBack(_) | SteerEnd::Declined(_) => {
                let sending = &mut self.sending;
                sending.attempts.note(&steered.end, &sending.copier, steered.bytes);
                Ok(())
            }
            SteerEnd::SourceClosed | SteerEnd::SourceBroken => Err(Failed::ClientGone),
            // As when a write fails: it may have said why, and the response decides. Another
            // hand-over would end in the same way at once, for ever.
            SteerEnd::TargetGone => {
                self.sending.done = true;
                self.sending.broken = Some(io::ErrorKind::ConnectionReset.into());
                Ok(())
            }
            SteerEnd::Idle => Err(Failed::ClientStalled),
        }
    }

    /// Takes the head of the response off the upstream's input.
    pub(super) fn take_head(&mut self, head: &ResponseHead) -> Bytes {
        self.upstream.input.split_to(head.len).freeze()
    }

    /// Writes to the client at once, ahead of the response (interim responses).
    pub(super) async fn write_client(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let limit = self.config.timeouts.body_idle;
        match tokio::time::timeout(limit, self.client.stream.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Failed::ClientGone),
        }
    }

    /// Carries the response to its end. The ticket is released as soon as the instance has sent its
    /// last byte, even if the client has not read it yet. `lengths` are those of such responses.
    pub(super) async fn response_body(
        &mut self,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        lengths: &Lengths,
    ) -> Result<(), Failed> {
        let from = lengths.from();
        self.timer.restart(self.config.timeouts.stream_idle);
        self.client.release_input();
        let mut attempts = Attempts::default();
        loop {
            let step = poll_fn(|cx| self.poll_body(cx, response, ticket, (from, attempts))).await?;
            match step {
                Step::Complete => return Ok(()),
                Step::Drained => self.steer_response(response, ticket, &mut attempts).await?,
            }
        }
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        (from, attempts): (Option<u64>, Attempts),
    ) -> Poll<Result<Step, Failed>> {
        match self.poll_sending(cx) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            // An early response: what is left of the request goes on in user space.
            Poll::Ready(Ok(Sent::HandOver)) => {
                self.upstream.stream.hold_back(false);
                self.sending.attempts.give_up();
            }
            Poll::Ready(Ok(Sent::Finished)) | Poll::Pending => {}
        }
        let hand_over = match self.sending.done {
            true => self.worker.hand_over(self.config, from, response, attempts),
            false => HandOver::Never,
        };
        let step = response.poll(cx, &mut self.upstream, &mut self.client.stream, hand_over);
        if response.source_done() {
            ticket.take();
        }
        match step {
            Poll::Ready(Ok(step)) => return Poll::Ready(Ok(step)),
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(match error {
                    CarryError::TargetGone(_) => Failed::ClientGone,
                    CarryError::SourceBroken(error) => Failed::Upstream(error),
                    CarryError::SourceClosed => {
                        Failed::Upstream(io::ErrorKind::UnexpectedEof.into())
                    }
                    error @ (CarryError::Malformed(_) | CarryError::TooLong) => {
                        Failed::BadResponse(error.to_string())
                    }
                }));
            }
            Poll::Pending => {}
        }
        if self.sending.done
            && self.watch.poll_gone(cx, self.client, self.worker, self.config).is_ready()
        {
            return Poll::Ready(Err(Failed::ClientGone));
        }
        ready!(self.timer.poll(cx, response.progress()));
        Poll::Ready(Err(Failed::StreamTimeout))
    }

    /// Lets the kernel carry the rest of the response body.
    async fn steer_response(
        &mut self,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        attempts: &mut Attempts,
    ) -> Result<(), Failed> {
        let Some(carrier) = &self.worker.carrier else { return Ok(()) };
        self.response_due = true;
        if register(carrier, self.client, &mut self.upstream) {
            attempts.wait(response);
            return Ok(());
        }
        // The kernel engine watches the client itself.
        self.watch.watched = None;
        let idle = self.config.timeouts.stream_idle;
        let slot = ticket.as_ref().map(Ticket::counter_slot);
        let framing = response.framing_mut();
        let steered = carrier
            .steer(Steering {
                release: slot,
                ..Steering::new(&mut self.upstream, self.client, framing, idle)
            })
            .await;
        if steered.released
            && let Some(ticket) = ticket.take()
        {
            ticket.released_by_kernel();
        }
        response.touch();
        self.account(Direction::Response, &steered.end, steered.bytes);
        match steered.end {
            SteerEnd::Ended => Ok(()),
            SteerEnd::HandedBack(_) | SteerEnd::Declined(_) => {
                attempts.note(&steered.end, response, steered.bytes);
                Ok(())
            }
            SteerEnd::SourceClosed if response.framing().is_until_close() => {
                *response.framing_mut() = router_ebpf::framing::Framing::none();
                Ok(())
            }
            SteerEnd::SourceClosed => Err(Failed::Upstream(io::ErrorKind::UnexpectedEof.into())),
            SteerEnd::SourceBroken => Err(Failed::Upstream(io::ErrorKind::ConnectionReset.into())),
            SteerEnd::TargetGone => Err(Failed::ClientGone),
            SteerEnd::Idle => Err(Failed::StreamTimeout),
        }
    }

    fn account(&mut self, direction: Direction, end: &SteerEnd, bytes: u64) {
        let metrics = &self.worker.metrics.kernel;
        match end {
            SteerEnd::Declined(reason) => metrics.fell_back(reason.as_str()),
            SteerEnd::HandedBack(reason) => {
                metrics.handed_over(direction);
                metrics.fell_back(reason.as_str());
            }
            _ => metrics.handed_over(direction),
        }
        metrics.carried(direction, bytes);
        match direction {
            Direction::Request => self.steered_request += bytes,
            Direction::Response => self.steered_response += bytes,
        }
    }
}

/// Makes both connections known to the kernel's programs where nobody expected that to pay. True if they
/// were not: a hand-over needs to have seen packets of both since.
fn register(carrier: &Carrier, client: &mut Conn, upstream: &mut Conn) -> bool {
    carrier.register(client, false) | carrier.register(upstream, true)
}

enum HeadStep {
    Head(ResponseHead),
    HandOver,
}
