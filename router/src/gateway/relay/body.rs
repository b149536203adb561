//! The body of a response.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::futures::Notified;

use super::{Relay, Sent};
use crate::gateway::failure::Broken;
use crate::{
    api::stored,
    engine::{Attempts, Conn, Copier, CopyError, HandoverPoint, Lengths, Policy, Step},
    fleet::{Instance, InstanceId},
    routing::Ticket,
};

/// A response has its id within so many bytes of its body.
const ID_WITHIN: usize = 4096;

impl Relay<'_> {
    /// Notes the id of the response, if there is one in its body, as kept by `instance`.
    pub(in crate::gateway) fn learn_id(&mut self, response: &mut Copier, instance: InstanceId) {
        response.keep(ID_WITHIN);
        self.keeper = Some(instance);
    }

    /// Carries the response to its end. The ticket is released as soon as the instance has sent its
    /// last byte, even if the client has not read it yet. `lengths` are those of such responses.
    /// `began` is called once, with the time since the request had been sent, when the first byte of
    /// the body has come; not for one that the kernel has carried.
    pub(in crate::gateway) async fn response_body(
        &mut self,
        client: &mut Conn,
        instance: &Instance,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        lengths: &Lengths,
        began: impl FnOnce(Duration),
    ) -> Result<(), Broken> {
        let mut next = pin!(instance.alarm().next());
        self.instance.restart();
        let from = lengths.from();
        let mut began = Some(began);
        client.release_input();
        let mut attempts = Attempts::default();
        loop {
            let step = poll_fn(|cx| {
                let step = self.poll_body(cx, client, response, ticket, (from, attempts));
                if !self.answering && response.bytes() > 0 {
                    self.answering = true;
                    instance.note_answering();
                    if let Some(began) = began.take() {
                        began(self.sending.elapsed());
                    }
                }
                match step {
                    Poll::Pending => self.poll_pause(cx, instance, &mut next, response).map(Err),
                    ready => ready,
                }
            })
            .await?;
            match step {
                Step::Complete => return Ok(()),
                Step::Drained => {
                    let watch = (instance, &mut next);
                    self.hand_over_response(client, watch, response, ticket, &mut attempts).await?;
                }
            }
        }
    }

    /// Looks for the id of a response that may be stored, in the first bytes of its body.
    fn learn(&self, response: &mut Copier) {
        let (Some(kept), Some(keeper)) = (response.kept(), self.keeper) else { return };
        match stored::id_in(kept) {
            Some(id) => self.worker.shared.stored.note(id, keeper),
            None if kept.len() < ID_WITHIN && !response.source_done() => return,
            None => {}
        }
        response.forget();
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
        let may = response.kept().is_none()
            && (timed || Policy::of(self.config, None).from_the_head(response.framing()));
        let hand_over = match self.sending.done.is_some() && may {
            true => self.worker.hand_over(self.config, from, response, attempts),
            false => HandoverPoint::Never,
        };
        let step = response.poll(cx, &mut self.upstream, &mut client.stream, hand_over);
        self.learn(response);
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
        Poll::Pending
    }

    /// What ends a pause within a response, or before its body. A body has to begin in the time that a
    /// request may take to its first byte: many servers send the head before they begin to work.
    fn poll_pause<'i>(
        &mut self,
        cx: &mut Context<'_>,
        instance: &'i Instance,
        next: &mut Pin<&mut Notified<'i>>,
        response: &Copier,
    ) -> Poll<Broken> {
        self.instance.poll(cx, instance, next);
        let waits = self.sending.done.is_some() && !self.answering && !response.source_done();
        if waits && self.instance.down() {
            return Poll::Ready(Broken::InstanceDown);
        }
        let first_byte = self.config.timeouts.first_byte;
        let limit = if waits { first_byte } else { self.instance.pause_limit(self.config) };
        if self.timer.limit() != limit {
            self.timer.restart(limit);
        }
        // That the head moves on to the client is no progress of the instance's.
        let progress = match waits {
            true => self.sending.copier.progress(),
            false => response.progress(),
        };
        ready!(self.timer.poll(cx, progress));
        Poll::Ready(if waits { Broken::FirstByteTimeout } else { self.paused_for_too_long() })
    }

    /// What a pause was that was too long.
    pub(super) fn paused_for_too_long(&self) -> Broken {
        match () {
            () if !self.answering && self.instance.down() => Broken::InstanceDown,
            () if !self.answering => Broken::FirstByteTimeout,
            () if self.instance.refuses() => Broken::InstanceClosed,
            () => Broken::StreamTimeout,
        }
    }
}
