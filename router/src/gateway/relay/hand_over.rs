//! Bodies that the kernel carries for a while.

use std::{
    future::{Future as _, poll_fn},
    io,
    pin::{Pin, pin},
    time::{Duration, Instant},
};

use tokio::sync::futures::Notified;

use super::Relay;
use crate::gateway::failure::Broken;
use crate::{
    engine::{Attempts, Conn, Copier, Handover, HandoverEnd, IdleLimits, KernelEngine},
    fleet::Instance,
    metrics::Direction,
    routing::Ticket,
};

impl Relay<'_> {
    /// Lets the kernel carry the rest of the request body.
    pub(super) async fn hand_over_request(&mut self, client: &mut Conn) -> Result<(), Broken> {
        let Some(engine) = &self.worker.engine else { return Ok(()) };
        if register(engine, client, &mut self.upstream) {
            self.sending.attempts.wait(&self.sending.copier);
            return Ok(());
        }
        let idle = self.config.timeouts.body_idle;
        let carried = self.kernel_request_bytes + self.sending.copier.bytes();
        let most = self.body_limit.saturating_sub(carried);
        let framing = self.sending.copier.framing_mut();
        let outcome = engine
            .hand_over(Handover {
                watch_target: true,
                most,
                ..Handover::new(client, &mut self.upstream, framing, idle)
            })
            .await;
        self.sending.copier.touch();
        self.account(Direction::Request, &outcome.end, outcome.bytes);
        match outcome.end {
            HandoverEnd::Ended => Ok(()),
            HandoverEnd::TakenBack(_) | HandoverEnd::Declined(_) => {
                let sending = &mut self.sending;
                sending.attempts.note(&outcome.end, &sending.copier, outcome.bytes);
                Ok(())
            }
            HandoverEnd::SourceClosed | HandoverEnd::SourceBroken => Err(Broken::ClientGone),
            // As when a write fails: it may have said why, and the response decides. Another
            // hand-over would end in the same way at once, for ever.
            HandoverEnd::TargetGone => {
                self.sending.done = Some(Instant::now());
                self.sending.broken = Some(io::ErrorKind::ConnectionReset.into());
                Ok(())
            }
            HandoverEnd::Idle => Err(Broken::ClientStalled),
        }
    }

    /// Lets the kernel carry the rest of the response body.
    pub(super) async fn hand_over_response<'i>(
        &mut self,
        client: &mut Conn,
        (instance, next): (&'i Instance, &mut Pin<&mut Notified<'i>>),
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        attempts: &mut Attempts,
    ) -> Result<(), Broken> {
        let Some(engine) = &self.worker.engine else { return Ok(()) };
        self.response_due = true;
        if register(engine, client, &mut self.upstream) {
            attempts.wait(response);
            return Ok(());
        }
        // The kernel engine watches the client itself.
        self.watch.pause();
        let begun = response.bytes() + self.kernel_response_bytes > 0;
        let timeouts = &self.config.timeouts;
        let idle = timeouts.stream_idle;
        let first = if begun { idle } else { timeouts.first_byte };
        let slot = ticket.as_ref().map(Ticket::counter_slot);
        let framing = response.framing_mut();
        let limits = IdleLimits::new(first, idle);
        let outcome = {
            let (watch, config, answering) = (&mut self.instance, self.config, self.answering);
            let mut handover = pin!(engine.hand_over(Handover {
                release: slot,
                limits: Some(&limits),
                ..Handover::new(&mut self.upstream, client, framing, idle)
            }));
            poll_fn(|cx| {
                watch.poll(cx, instance, next);
                limits.later.set(watch.pause_limit(config));
                limits.first.set(match () {
                    () if answering => limits.later.get(),
                    () if watch.down() => Duration::ZERO,
                    () => first,
                });
                handover.as_mut().poll(cx)
            })
            .await
        };
        if outcome.bytes > 0 && !self.answering {
            self.answering = true;
            instance.note_answering();
        }
        if outcome.released
            && let Some(ticket) = ticket.take()
        {
            ticket.released_by_kernel();
        }
        response.touch();
        self.account(Direction::Response, &outcome.end, outcome.bytes);
        match outcome.end {
            HandoverEnd::Ended => Ok(()),
            HandoverEnd::TakenBack(_) | HandoverEnd::Declined(_) => {
                attempts.note(&outcome.end, response, outcome.bytes);
                Ok(())
            }
            HandoverEnd::SourceClosed if response.framing().is_until_close() => {
                *response.framing_mut() = router_ebpf::framing::Framing::none();
                Ok(())
            }
            HandoverEnd::SourceClosed => Err(Broken::Upstream(io::ErrorKind::UnexpectedEof.into())),
            HandoverEnd::SourceBroken => {
                Err(Broken::Upstream(io::ErrorKind::ConnectionReset.into()))
            }
            HandoverEnd::TargetGone => Err(Broken::ClientGone),
            HandoverEnd::Idle => Err(self.paused_for_too_long()),
        }
    }

    fn account(&mut self, direction: Direction, end: &HandoverEnd, bytes: u64) {
        let metrics = &self.worker.metrics.kernel;
        match end {
            HandoverEnd::Declined(reason) => metrics.fell_back(reason.as_str()),
            HandoverEnd::TakenBack(reason) => {
                metrics.handed_over(direction);
                metrics.fell_back(reason.as_str());
            }
            _ => metrics.handed_over(direction),
        }
        metrics.carried(direction, bytes);
        match direction {
            Direction::Request => self.kernel_request_bytes += bytes,
            Direction::Response => self.kernel_response_bytes += bytes,
        }
    }
}

/// Makes both connections known to the kernel's programs where nobody expected that to pay. True if they
/// were not: a hand-over needs to have seen packets of both since.
fn register(engine: &KernelEngine, client: &mut Conn, upstream: &mut Conn) -> bool {
    engine.register(client, false) | engine.register(upstream, true)
}
