//! A connection to the chosen instance.

use crate::gateway::{failure::Stop, scope::Scope};
use crate::{
    engine::{Conn, KernelEngine},
    fleet::Instance,
    http::Failure,
    metrics::Outcome,
    net::socket,
};

/// Why an attempt at one instance came to nothing.
pub(super) enum Failed {
    /// Nothing was executed: another instance may be tried. If there is none, this is the answer, or one
    /// that says that none can be reached.
    Unreachable(Outcome, Option<Failure>),
    /// The exchange is over.
    Stop(Stop),
}

/// A connection to the instance, and whether it comes from the pool. With `fresh` it does not.
pub(super) async fn connect(
    scope: &Scope<'_>,
    instance: &Instance,
    fresh: bool,
) -> Result<(Conn, bool), Failed> {
    let timeouts = &scope.config().timeouts;
    if !fresh
        && let Some(conn) = scope.worker.pool.borrow_mut().take(instance.id, timeouts.pool_idle)
    {
        return Ok((conn, true));
    }
    let addresses = instance.addresses();
    let options = socket::ConnectOptions {
        segment: scope.worker.engine.as_ref().and_then(KernelEngine::segment),
        receive_buffer: Some(scope.config().limits.receive_buffer_bytes),
    };
    let connected = tokio::select! {
        biased;
        connected = socket::connect(&addresses, timeouts.connect, &options) => connected,
        () = scope.client_gone() => return Err(Failed::Stop(Stop::ClientGone)),
    };
    match connected {
        Ok(stream) => {
            instance.metrics.pool.opened.inc();
            Ok((Conn::new(stream), false))
        }
        Err(error) => {
            tracing::warn!(instance = %instance.url, %error, "cannot connect");
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                instance.note_refused();
            }
            let outcome = match error.kind() {
                std::io::ErrorKind::TimedOut => Outcome::TimeoutConnect,
                _ => Outcome::ConnectError,
            };
            Err(Failed::Unreachable(outcome, None))
        }
    }
}
