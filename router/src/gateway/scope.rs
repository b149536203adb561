//! What one exchange has from its first phase to its last.

use std::time::Duration;

use super::{context::WorkerContext, record::Record};
use crate::{
    config::Config,
    engine::Conn,
    fleet::Fleet,
    http::{Cors, ErrorForm},
};

/// One exchange's surroundings.
pub(super) struct Scope<'a> {
    pub(super) worker: &'a WorkerContext,
    /// The fleet that the exchange began with; a reload does not change it.
    pub(super) fleet: &'a Fleet,
    pub(super) client: &'a mut Conn,
    pub(super) record: Record<'a>,
    /// The form of errors that the client expects.
    pub(super) error_form: ErrorForm,
    /// Which web pages may read the answer.
    pub(super) cors: Cors<'a>,
    /// Whether the whole body of the request has been read.
    pub(super) body_read: bool,
}

impl<'a> Scope<'a> {
    pub(super) fn config(&self) -> &'a Config {
        self.fleet.config()
    }

    /// Waits until the client has left, without reading what it may still send.
    pub(super) async fn client_gone(&self) {
        let Ok(watched) = self.worker.hangups.watch(&self.client.stream) else {
            // Out of memory for it: writing to the client will tell.
            return std::future::pending().await;
        };
        if self.config().half_closed_clients {
            std::future::poll_fn(|cx| watched.poll_broken(cx)).await;
        } else {
            watched.wait().await;
        }
    }

    /// Writes to the client, within the time that a body may stand still. `false` when it left or
    /// takes nothing.
    pub(super) async fn write_client(&mut self, bytes: &[u8]) -> bool {
        let limit: Duration = self.config().timeouts.body_idle;
        matches!(tokio::time::timeout(limit, self.client.stream.write_all(bytes)).await, Ok(Ok(())))
    }
}
