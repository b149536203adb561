//! The control thread: signals, reloads, health checks, the admin pages.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use serde_json::json;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::LocalSet,
};

use super::{
    ending::{Ending, Why},
    guard::Guarded,
    made::Made,
    reload::{InForce, Parts, Reloaded, Reloader},
    service,
    takeover::{Ask, Asks, Estate},
};
use crate::{
    admin,
    config::LogFormat,
    fleet::{self, Counters},
    shared::{Phase, Shared},
};

/// How long the start waits for the addresses of host names.
const RESOLVE: Duration = Duration::from_secs(2);

/// What the control thread is given.
pub(super) struct Setup {
    pub(super) shared: Arc<Shared>,
    pub(super) counters: Counters,
    pub(super) phase: watch::Sender<Phase>,
    /// Where the configuration came from.
    pub(super) file: Option<PathBuf>,
    /// What the fleet was made of.
    pub(super) parts: Parts,
    /// The control API and what was made through it, if it is on.
    pub(super) control: Option<Made>,
    pub(super) admin: Option<TcpListener>,
    /// Where clients connect.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) guarded: Guarded,
    /// Says that a worker thread ended.
    pub(super) ended: mpsc::UnboundedReceiver<()>,
    /// What another gateway may take over.
    pub(super) estate: Estate,
    /// What one that does asks for.
    pub(super) asked: mpsc::UnboundedReceiver<Ask>,
}

/// Runs until all worker threads have ended.
///
/// # Errors
/// When a signal cannot be handled, or a worker thread ended by itself.
pub(super) fn run(setup: Setup) -> anyhow::Result<()> {
    let phase = setup.phase.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control thread's event loop")?;
    let result = LocalSet::new().block_on(&runtime, serve(setup));
    // The workers end in every case, also when something failed here.
    phase.send_replace(Phase::Stopped);
    result
}

async fn serve(setup: Setup) -> anyhow::Result<()> {
    let Setup { shared, counters, phase, file, parts, control, .. } = setup;
    let Setup { admin, addresses, guarded, ended, estate, asked, .. } = setup;
    let mut ending = Ending::new(phase, ended)?;
    let hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
    let replace = signal(SignalKind::user_defined2()).context("cannot handle SIGUSR2")?;
    tokio::task::spawn_local(service::replace(replace));
    let format = shared.fleet.load().config().log.format;
    announce(format, &addresses, admin.as_ref(), control.as_ref().and_then(Made::listener))?;
    let pages = admin.map(|it| tokio::task::spawn_local(serve_admin(it, shared.clone())));
    let (fleets, changed) = watch::channel(());
    let current = shared.clone();
    let news = changed.clone();
    tokio::task::spawn_local(fleet::health::run(move || current.fleet.load_full(), news));
    let current = shared.clone();
    tokio::task::spawn_local(fleet::adapters::keep(move || current.fleet.load_full(), changed));
    let (current, metrics) = (shared.clone(), shared.metrics.clone());
    let watch = fleet::hot_prefix::watch(move || current.fleet.load_full(), metrics);
    tokio::task::spawn_local(watch);
    let (taken, taken_over) = oneshot::channel();
    let sources = Sources { file, parts, control, asks: Asks { asked, taken } };
    let following = follow(sources, shared.clone(), counters, guarded, hangup, fleets);
    let following = tokio::task::spawn_local(following);
    let timeouts = || shared.fleet.load().config().timeouts.clone();
    match ending.begins(taken_over).await? {
        Why::Signal(signal) => {
            service::stopping();
            ending.lame_duck(signal, timeouts().lame_duck).await;
            estate.close();
            ending.drain(timeouts().drain).await;
        }
        Why::TakenOver(drained) => {
            // The other process has these addresses, and says what changes.
            following.abort();
            let _ = following.await;
            if let Some(loaded) = &shared.loaded {
                loaded.leave_drivers();
            }
            pages.inspect(tokio::task::JoinHandle::abort);
            estate.close();
            ending.hand_over(drained).await;
            ending.wait().await;
            ending.drain(timeouts().drain).await;
        }
    }
    Ok(())
}

/// Host names get a moment to be found before the first request comes.
///
/// # Errors
/// When there is no descriptor left for an event loop.
pub(super) fn resolve_names(shared: &Shared) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fleet::resolve_new(&shared.fleet.load_full(), RESOLVE));
    Ok(())
}

/// Where the configuration comes from, and what it was at the start.
struct Sources {
    file: Option<PathBuf>,
    parts: Parts,
    control: Option<Made>,
    asks: Asks,
}

/// Takes over what changes of the configuration while the gateway runs.
async fn follow(
    Sources { file, parts, control, asks }: Sources,
    shared: Arc<Shared>,
    counters: Counters,
    guarded: Guarded,
    hangup: Signal,
    fleets: watch::Sender<()>,
) {
    let in_force = InForce::new(&shared.fleet, parts, &counters, &shared.metrics);
    let (reloaded, changed) = watch::channel(());
    let answering =
        asks.answer(&in_force, &shared, &counters, control.as_ref().map(|it| it.control().clone()));
    let made = async {
        if let Some(control) = control {
            control.follow(&in_force, &fleets, changed).await;
        }
    };
    let applied = |taken: &Reloaded| {
        fleets.send_replace(());
        reloaded.send_replace(());
        guarded.replace(&taken.config)
    };
    tokio::join!(reload(file, &in_force, hangup, applied), made, answering);
}

/// Takes over the configuration file whenever it changes, or on SIGHUP.
async fn reload(
    file: Option<PathBuf>,
    in_force: &InForce<'_>,
    mut hangup: Signal,
    applied: impl FnMut(&Reloaded) -> anyhow::Result<()>,
) {
    let Some(file) = file else {
        // The signal must not end the process, as it would without a handler.
        while hangup.recv().await.is_some() {
            tracing::warn!("SIGHUP: there is no configuration file to read again");
        }
        return;
    };
    Reloader::new(file, in_force).run(&mut hangup, applied).await;
}

async fn serve_admin(listener: TcpListener, shared: Arc<Shared>) {
    if let Err(error) = admin::serve(listener, shared).await {
        tracing::error!(%error, "the admin pages are gone; requests go on");
    }
}

/// Says on standard output where the gateway listens, for people and for scripts that asked for
/// port 0; in JSON where the log is.
fn announce(
    format: LogFormat,
    addresses: &[SocketAddr],
    admin: Option<&TcpListener>,
    control: Option<&TcpListener>,
) -> anyhow::Result<()> {
    let admin = admin.map(TcpListener::local_addr).transpose()?;
    let control = control.map(TcpListener::local_addr).transpose()?;
    let listening = addresses.iter().map(|address| ("listening", Some(*address)));
    let others = [("admin", admin), ("control API", control)];
    let others = others.into_iter().filter(|(_, address)| address.is_some());
    let events = listening.chain(others);
    let lines: String = events
        .chain([("ready", None)])
        .map(|(event, address)| match (format, address) {
            (LogFormat::Text, Some(address)) => format!("{event} on {address}\n"),
            (LogFormat::Text, None) => format!("{event}\n"),
            (LogFormat::Json, address) => {
                let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
                let mut line = json!({ "timestamp": timestamp, "level": "INFO", "message": event });
                if let Some(address) = address {
                    line["address"] = address.to_string().into();
                }
                format!("{line}\n")
            }
        })
        .collect();
    let mut out = std::io::stdout().lock();
    // Whoever started the gateway may have closed its end: no reason not to serve.
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    Ok(())
}
