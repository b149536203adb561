//! The admin pages, on a listener of their own: metrics, health, status.
//!
//! They only read. They have no authentication, which is why they are on loopback by default; who
//! binds them elsewhere is warned in the log.

pub(crate) mod moment;
mod pages;
mod ready;
pub(crate) mod status;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time,
};

use crate::{engine::Policy, http, metrics::Metrics, prefix::Api, shared::Shared};
use pages::Page;
pub(crate) use ready::ready;

/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 64;

/// For a whole exchange: these pages are for machines on the same network.
const PATIENCE: Duration = Duration::from_secs(10);

/// Wait after a failed accept (out of descriptors): the next may succeed once some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a request to these pages may need. A body is read and ignored.
const LIMITS: http::Limits =
    http::Limits { head_bytes: 16 << 10, headers: 100, body_bytes: u64::MAX };

/// Serves the pages for ever. Must run inside a tokio runtime.
///
/// # Errors
/// When the listener cannot be polled.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    warn_if_exposed(listener.local_addr()?);
    let weak = Arc::downgrade(&shared);
    shared.metrics.on_render(move |_: &Metrics| update_gauges(&weak));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // Whoever asked is gone or too slow: nothing to tell anybody.
                    let _ = time::timeout(PATIENCE, exchange(stream, &shared)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "admin: cannot accept a connection");
                time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn warn_if_exposed(address: SocketAddr) {
    if address.ip().is_loopback() {
        tracing::info!(%address, "admin pages: /metrics /healthz /readyz /status");
    } else {
        tracing::warn!(
            %address,
            "the admin pages have no authentication and are open beyond this host: everybody who \
             reaches this address sees the fleet; set `admin = \"127.0.0.1:9901\"` to close them"
        );
    }
}

/// Sets the gauges that follow the fleet's own state.
fn update_gauges(shared: &Weak<Shared>) {
    let Some(shared) = shared.upgrade() else { return };
    let fleet = shared.fleet.load();
    for (_, _, instance) in fleet.instances() {
        let draining = instance.is_draining();
        instance.metrics.state(instance.in_flight(), instance.available(), draining);
    }
    for instance in fleet.leaving() {
        instance.metrics.state(instance.in_flight(), false, true);
    }
    let learned = fleet.endpoints().iter().flat_map(|endpoint| {
        endpoint.variants.iter().flat_map(move |variant| {
            Api::ALL.into_iter().filter_map(move |api| {
                let reads = variant.answers.of(api as usize).from()?;
                Some(([&*endpoint.name, &*variant.name, api.as_str()], reads))
            })
        })
    });
    shared.metrics.learned_reads(learned.filter(|_| Policy::learns(fleet.config())));
}

/// One request, one answer, closed: scrapers come too seldom for more.
async fn exchange(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut input = Vec::with_capacity(1024);
    let answer = loop {
        match http::parse_request(&input, &LIMITS) {
            Ok(Some(head)) => {
                let head_only = head.method == http::Method::Head;
                break match std::str::from_utf8(head.path(&input)) {
                    Ok(path) => pages::page(head.method, path, shared),
                    Err(_) => Page::not_found(),
                }
                .answer(head_only);
            }
            Ok(None) => {}
            Err(reject) => break Page::text(reject.status, &reject.message).answer(false),
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // What the client still sends (a body) is read, or closing would reset the connection and the
    // answer could be lost on its way.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests;
