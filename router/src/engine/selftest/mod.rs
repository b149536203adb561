//! Proves the engines with real bytes over loopback, before a request depends on them.
//!
//! Kernels have been known to lose, repeat or withhold bytes on this path. Each step below is
//! something that the engine relies on; all together take a few milliseconds.

mod connections;
pub(in crate::engine) mod data;
mod drivers;
mod firewall;
mod frames;
mod instance;
mod pair;
mod stall;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

use router_ebpf::framing::Framing;
use tokio::task::LocalSet;

use self::{
    connections::V4,
    data::{chunked, payload},
    pair::Pair,
};
pub use self::{drivers::splice_xdp, instance::splice_to};
use super::{
    KernelEngine,
    sockmap::{Settings, Sockmap},
    splice::{self, Splice},
};
use crate::{
    kernel::{MAX_WORKERS, conntrack, sockmap::SockmapObject, splice::SpliceObject},
    net::HangupWatch,
};

/// All steps together may take this long. They take a fraction of a second; a machine that is
/// starting many things at once must not lose the engine for that.
const LIMIT: Duration = Duration::from_secs(10);
/// How long one hand-over may be idle: longer than the limit.
const IDLE: Duration = Duration::from_secs(60);
/// The backlog at which the kernel must hand back in the test.
const BACKLOG: u32 = 64 * 1024;

/// What is wrong with an engine on this host.
#[derive(Debug, thiserror::Error)]
#[error("self-test, {step}: {reason}")]
pub struct Failure {
    step: &'static str,
    reason: String,
}

impl Failure {
    fn explained(mut self, why: String) -> Self {
        self.reason = format!("{}; {why}", self.reason);
        self
    }
}

/// Where a self-test stands.
#[derive(Default)]
struct Progress(Cell<&'static str>);

impl Progress {
    async fn step<T, E: Display>(
        &self,
        step: &'static str,
        does: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        self.0.set(step);
        does.await.map_err(failed(step))
    }
}

fn failed<E: Display>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure { step, reason: error.to_string() }
}

/// Pushes bytes through the user-space engine and compares them. Returns how long it took.
///
/// Must not be called from asynchronous code.
///
/// # Errors
/// The first step that went wrong.
pub fn userspace() -> Result<Duration, Failure> {
    let steps = async |progress: &Progress| {
        let mut pair = progress.step(OPENING, Pair::open()).await?;
        let payload = payload(40_000);
        let length = Framing::length(payload.len() as u64);
        progress.step("a body of known length", pair.copy(length, &payload)).await?;
        let chunks = chunked(&payload, 777);
        progress.step("a chunked body", pair.copy(Framing::chunked(), &chunks)).await
    };
    Ok(within_limit(steps)?.1)
}

/// Pushes bytes through the sockmap engine and compares them. Returns how long it took.
///
/// It uses a worker's number that no worker thread has, and must not be called from asynchronous
/// code.
///
/// # Errors
/// The first step that went wrong.
pub fn sockmap(object: &Arc<SockmapObject>) -> Result<Duration, Failure> {
    let steps = async |progress: &Progress| {
        let settings = Settings { backlog_bytes: BACKLOG, ..Settings::default() };
        let engine = engine(|watch| {
            Ok(KernelEngine::Sockmap(Sockmap::new(Arc::clone(object), watch, WORKER, settings)?))
        })?;
        let mut pair = progress.step(OPENING, Pair::open()).await?;
        pair.bodies(progress, &engine).await?;
        progress.step("a target that does not read", pair.stall(&engine)).await?;
        progress.step("a source that closes", pair.finish(&engine)).await?;
        drop(pair);
        match object.sources_in_use() {
            0 => Ok(()),
            left => Err(failed("leaving the maps")(format!("{left} directions are still in use"))),
        }
    };
    Ok(within_limit(steps)?.1)
}

/// As [`sockmap`], for the splice engine.
///
/// # Errors
/// The first step that went wrong.
pub fn splice(programs: &Arc<SpliceObject>) -> Result<Duration, Failure> {
    let steps = async |progress: &Progress| {
        let engine = splice_engine(programs)?;
        let mut pair = progress.step(OPENING, Pair::open_known(&engine, V4)).await?;
        pair.bodies(progress, &engine).await?;
        // In user space, both ways.
        progress.step("the sockets afterwards", pair.echo()).await?;
        progress.step("a source that closes", pair.finish_under_way(&engine)).await
    };
    let invalid = conntrack::invalid_packets();
    let result = within_limit(steps);
    // Both ends of the connections are gone.
    programs.forget_closed();
    let ((), took) = result.map_err(|failure| match (invalid, conntrack::invalid_packets()) {
        (Some(before), Some(after)) if after > before => failure.explained(format!(
            "{} packets fitted no connection of connection tracking meanwhile: a firewall rule such \
             as `ct state invalid drop` may have dropped them on loopback",
            after - before
        )),
        _ => failure,
    })?;
    programs.note_local_resets(!firewall::lets_resets_out(programs)?);
    Ok(took)
}

const OPENING: &str = "opening connections on loopback";
/// The number of a worker that no worker thread has.
const WORKER: u32 = MAX_WORKERS as u32 - 1;

fn splice_engine(programs: &Arc<SpliceObject>) -> Result<KernelEngine, Failure> {
    let settings = splice::Settings { tests: true, ..splice::Settings::default() };
    engine(|watch| {
        Ok(KernelEngine::Splice(Splice::new(Arc::clone(programs), watch, WORKER, settings)?))
    })
}

/// An engine, at work.
fn engine(
    make: impl FnOnce(HangupWatch) -> std::io::Result<KernelEngine>,
) -> Result<KernelEngine, Failure> {
    let watch = HangupWatch::new().map_err(failed("event loop"))?;
    let engine = make(watch.clone()).map_err(failed("queue of events"))?;
    tokio::task::spawn_local(watch.drive());
    tokio::task::spawn_local(engine.clone().drive());
    Ok(engine)
}

/// Runs the steps of a self-test; says what came of them, and how long they took.
fn within_limit<T>(
    steps: impl AsyncFnOnce(&Progress) -> Result<T, Failure>,
) -> Result<(T, Duration), Failure> {
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("event loop"))?;
    let progress = Progress::default();
    let steps = async {
        tokio::time::timeout(LIMIT, steps(&progress)).await.unwrap_or_else(|_| {
            Err(failed(progress.0.get())(format!("did not end within {LIMIT:?} of the start")))
        })
    };
    let came = LocalSet::new().block_on(&runtime, steps)?;
    Ok((came, start.elapsed()))
}
