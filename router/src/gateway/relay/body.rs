//! The body of a response.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, ready},
};

use super::{Relay, Sent};
use crate::gateway::failure::Broken;
use crate::{
    engine::{Attempts, Conn, Copier, CopyError, HandoverPoint, Lengths, Step},
    routing::Ticket,
};

impl Relay<'_> {
    /// Carries the response to its end. The ticket is released as soon as the instance has sent its
    /// last byte, even if the client has not read it yet. `lengths` are those of such responses.
    pub(in crate::gateway) async fn response_body(
        &mut self,
        client: &mut Conn,
        response: &mut Copier,
        ticket: &mut Option<Ticket>,
        lengths: &Lengths,
    ) -> Result<(), Broken> {
        let from = lengths.from();
        self.timer.restart(self.config.timeouts.stream_idle);
        client.release_input();
        let mut attempts = Attempts::default();
        loop {
            let step = poll_fn(|cx| self.poll_body(cx, client, response, ticket, (from, attempts)))
                .await?;
            match step {
                Step::Complete => return Ok(()),
                Step::Drained => {
                    self.hand_over_response(client, response, ticket, &mut attempts).await?
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
        let hand_over = match self.sending.done {
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
        if self.sending.done
            && self.watch.poll_gone(cx, client, self.worker, self.config).is_ready()
        {
            return Poll::Ready(Err(Broken::ClientGone));
        }
        ready!(self.timer.poll(cx, response.progress()));
        Poll::Ready(Err(Broken::StreamTimeout))
    }
}
