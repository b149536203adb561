//! Copies of requests for shadow variants, whose answers nobody gets.
//!
//! A copy is made of what is at hand when the request itself goes out; it waits for nothing, and nothing waits for it.
//! It has a connection and a task of its own, and what befalls it says nothing about the request.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;

use super::attempt::request_head;
use crate::gateway::{
    decide::{Plan, with_query},
    read::Request,
    scope::Scope,
};
use crate::{
    api::Api,
    config::Timeouts,
    engine::Conn,
    fleet::Variant,
    http::{Limits, Method, parse_response},
    metrics::EndpointMetrics,
    net::{READ_BUFFER_BYTES, socket},
    routing::{self, Ticket},
};

/// Bytes of a body that is copied at most.
const MAX_BYTES: usize = 1 << 20;

/// Sends copies of a request to the shadows of its endpoint, as many as they are to get.
pub(super) fn copy(scope: &Scope<'_>, request: &Request, plan: &Plan<'_>) {
    for shadow in &plan.endpoint.shadows {
        let share = plan.endpoint.copied_to(shadow);
        if request.head.method != Method::Post
            || plan.api == Api::Realtime
            || scope.worker.rng.borrow_mut().f64() >= share
        {
            continue;
        }
        let metrics = &plan.endpoint.metrics;
        if !plan.framing.is_done() || plan.body.len() > MAX_BYTES {
            metrics.copied("too_large");
        } else if let Ok(permit) = Arc::clone(&scope.worker.copies).try_acquire_owned() {
            send(scope, request, plan, shadow, permit);
        } else {
            metrics.copied("too_many");
        }
    }
}

/// Begins to send one copy.
fn send(
    scope: &Scope<'_>,
    request: &Request,
    plan: &Plan<'_>,
    shadow: &Variant,
    permit: OwnedSemaphorePermit,
) {
    let metrics = Arc::clone(&plan.endpoint.metrics);
    let chosen = {
        let mut rng = scope.worker.rng.borrow_mut();
        routing::choose(shadow, plan.key, &[], &mut rng)
    };
    let Ok(choice) = chosen else { return metrics.copied("failed") };
    let of_call = plan.call.map(|_| with_query(&shadow.invocations_path, request));
    let target = of_call.as_deref().or(plan.target.as_deref());
    let head = request_head(request, plan, target, &choice.ticket.instance().authority);
    let config = scope.config();
    let copy = Copy {
        ticket: choice.ticket,
        head,
        body: plan.body.clone(),
        timeouts: config.timeouts.clone(),
        limits: config.head_limits(),
    };
    tokio::task::spawn_local(async move {
        let result = copy.run(&metrics).await;
        if let Err(error) = result {
            tracing::debug!(%error, "a copy for a shadow variant came to nothing");
            metrics.copied("failed");
        }
        drop(permit);
    });
}

/// A copy under way.
struct Copy {
    /// Counts it at its instance.
    ticket: Ticket,
    head: Bytes,
    body: Bytes,
    timeouts: Timeouts,
    limits: Limits,
}

impl Copy {
    /// Sends it, and reads the answer to its end.
    async fn run(self, metrics: &EndpointMetrics) -> io::Result<()> {
        let Self { ticket, head, body, timeouts, limits } = self;
        let addresses = ticket.instance().addresses();
        let options =
            socket::ConnectOptions { segment: None, receive_buffer: Some(READ_BUFFER_BYTES) };
        let mut conn = Conn::new(socket::connect(&addresses, timeouts.connect, &options).await?);
        let sent = async {
            conn.stream.write_all(&head).await?;
            conn.stream.write_all(&body).await
        };
        within(timeouts.body_idle, sent).await?;
        drop((head, body));
        let mut framing = loop {
            match parse_response(&conn.input, Method::Post, &limits) {
                Ok(Some(head)) => {
                    let _ = conn.input.split_to(head.len);
                    if !head.is_interim() {
                        break head.framing;
                    }
                }
                Ok(None) => within(timeouts.first_byte, fill(&mut conn)).await?,
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        };
        loop {
            let input = std::mem::replace(&mut conn.input, BytesMut::new());
            framing
                .advance(&input)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if framing.is_done() {
                break;
            }
            match within(timeouts.stream_idle, fill(&mut conn)).await {
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof && framing.is_until_close() =>
                {
                    break;
                }
                result => result?,
            }
        }
        metrics.copied("answered");
        Ok(())
    }
}

/// Reads some more.
async fn fill(conn: &mut Conn) -> io::Result<()> {
    let room = conn.input.len() + READ_BUFFER_BYTES;
    match poll_fn(|cx| conn.poll_fill(cx, room)).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await?
}
