//! Whether the client is still there.

use std::task::{Context, Poll, ready};

use crate::engine::Conn;
use crate::gateway::context::WorkerContext;
use crate::{config::Config, net::Watched};

/// Bytes of later requests that are read ahead while a response is under way.
pub(super) const PIPELINE_LIMIT: usize = 64 * 1024;

/// Notices that the client left, while nothing is expected from it.
#[derive(Default)]
pub(super) struct ClientWatch {
    /// Set once nothing more may be read: the read-ahead is full, or the client has closed its
    /// sending side and still gets its answer.
    watched: Option<Watched>,
    half_closed: bool,
}

impl ClientWatch {
    /// Ends the watch of the socket; the next poll begins one again.
    pub(super) fn pause(&mut self) {
        self.watched = None;
    }

    /// Ready once the client has left. Reads what it sends ahead meanwhile.
    pub(super) fn poll_gone(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Conn,
        worker: &WorkerContext,
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
