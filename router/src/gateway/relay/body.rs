//! The body of a response.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Relay, Sent};
use crate::gateway::failure::Broken;
use crate::{
    engine::{Attempts, Conn, Copier, CopyError, HandoverPoint, Lengths, Policy, Step},
    routing::Ticket,
};

impl Relay<'_> {
    /// Carries the response to its end. The ticket is released as soon as the instance has sent its
    /// last byte, even if the client has not read it yet. `lengths` are those of such responses.
    /// `began` is called once, with the time since the request had been sent, when the first byte of
    /// the body has come; not for one that the kernel has carried.
    pub(in crate::gateway) async fn response_body(
        &mut self,
        client: &mut Conn,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        lengths: &Lengths,
        began: impl FnOnce(Duration),
    ) -> Result<(), Broken> {
        let from = lengths.from();
        let mut began = Some(began);
        client.release_input();
        let mut attempts = Attempts::default();
        loop {
            let step = poll_fn(|cx| {
                let step = self.poll_body(cx, client, response, ticket, (from, attempts));
                if response.bytes() > 0
                    && let Some(began) = began.take()
                {
                    began(self.sending.elapsed());
                }
                step
            })
            .await?;
            match step {
                Step::Complete => return Ok(()),
                Step::Drained => {
                    self.hand_over_response(client, response, ticket, &mut attempts).await?;
                    if self.kernel_response_bytes > 0 && response.bytes() == 0 {
                        began = None;
                    }
                }
            }
        }
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        (from, attempts): (Option<u64>, Attempts),
    ) -> Poll<Result<Step, Broken>> {
        match self.poll_sending(cx, client) {
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            // An early response: what is left of the request goes on in user space.
            Poll::Ready(Ok(Sent::HandOver)) => {
                self.upstream.stream.hold_back(false);
                self.sending.attempts.give_up();
            }
            Poll::Ready(Ok(Sent::Finished)) | Poll::Pending => {}
        }
        let timed = response.bytes() > 0 || self.kernel_response_bytes > 0;
        let may = timed || Policy::of(self.config, None).from_the_head(response.framing());
        let hand_over = match self.sending.done.is_some() && may {
            true => self.worker.hand_over(self.config, from, response, attempts),
            false => HandoverPoint::Never,
        };
        let step = response.poll(cx, &mut self.upstream, &mut client.stream, hand_over);
        if response.source_done() {
            ticket.take();
        }
        match step {
            Poll::Ready(Ok(step)) => return Poll::Ready(Ok(step)),
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(match error {
                    CopyError::TargetGone(_) => Broken::ClientGone,
                    CopyError::SourceBroken(error) => Broken::Upstream(error),
                    CopyError::SourceClosed => {
                        Broken::Upstream(io::ErrorKind::UnexpectedEof.into())
                    }
                    error @ (CopyError::Malformed(_) | CopyError::TooLong) => {
                        Broken::BadResponse(error.to_string())
                    }
                }));
            }
            Poll::Pending => {}
        }
        if self.sending.done.is_some()
            && self.watch.poll_gone(cx, client, self.worker, self.config).is_ready()
        {
            return Poll::Ready(Err(Broken::ClientGone));
        }
        self.poll_body_timer(cx, response).map(Err)
    }

    /// A body has to begin in the time that a request may take to its first byte: many servers send
    /// the head before they begin to work.
    fn poll_body_timer(&mut self, cx: &mut Context<'_>, response: &Copier) -> Poll<Broken> {
        let waits = self.sending.done.is_some()
            && response.bytes() == 0
            && self.kernel_response_bytes == 0
            && !response.source_done();
        let timeouts = &self.config.timeouts;
        let limit = if waits { timeouts.first_byte } else { timeouts.stream_idle };
        if self.timer.limit() != limit {
            self.timer.restart(limit);
        }
        // That the head moves on to the client is no progress of the instance's.
        let progress = match waits {
            true => self.sending.copier.progress(),
            false => response.progress(),
        };
        ready!(self.timer.poll(cx, progress));
        Poll::Ready(if waits { Broken::FirstByteTimeout } else { Broken::StreamTimeout })
    }
}
