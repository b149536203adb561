//! Bodies that the kernel carries for a while.

use std::io;

use super::Relay;
use crate::gateway::failure::Broken;
use crate::{
    engine::{Attempts, Carrier, Copier, Steering, sockmap::SteerEnd},
    metrics::Direction,
    net::Conn,
    routing::Ticket,
};

impl Relay<'_> {
    /// Lets the kernel carry the rest of the request body.
    pub(super) async fn steer_request(&mut self, client: &mut Conn) -> Result<(), Broken> {
        let Some(carrier) = &self.worker.carrier else { return Ok(()) };
        if register(carrier, client, &mut self.upstream) {
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
                ..Steering::new(client, &mut self.upstream, framing, idle)
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
            SteerEnd::SourceClosed | SteerEnd::SourceBroken => Err(Broken::ClientGone),
            // As when a write fails: it may have said why, and the response decides. Another
            // hand-over would end in the same way at once, for ever.
            SteerEnd::TargetGone => {
                self.sending.done = true;
                self.sending.broken = Some(io::ErrorKind::ConnectionReset.into());
                Ok(())
            }
            SteerEnd::Idle => Err(Broken::ClientStalled),
        }
    }

    /// Lets the kernel carry the rest of the response body.
    pub(super) async fn steer_response(
        &mut self,
        client: &mut Conn,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        attempts: &mut Attempts,
    ) -> Result<(), Broken> {
        let Some(carrier) = &self.worker.carrier else { return Ok(()) };
        self.response_due = true;
        if register(carrier, client, &mut self.upstream) {
            attempts.wait(response);
            return Ok(());
        }
        // The kernel engine watches the client itself.
        self.watch.pause();
        let idle = self.config.timeouts.stream_idle;
        let slot = ticket.as_ref().map(Ticket::counter_slot);
        let framing = response.framing_mut();
        let steered = carrier
            .steer(Steering {
                release: slot,
                ..Steering::new(&mut self.upstream, client, framing, idle)
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
            SteerEnd::SourceClosed => Err(Broken::Upstream(io::ErrorKind::UnexpectedEof.into())),
            SteerEnd::SourceBroken => Err(Broken::Upstream(io::ErrorKind::ConnectionReset.into())),
            SteerEnd::TargetGone => Err(Broken::ClientGone),
            SteerEnd::Idle => Err(Broken::StreamTimeout),
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
