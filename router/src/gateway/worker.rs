//! A worker thread: one event loop, its own listeners, its own connection pool.

use std::{
    cell::RefCell,
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{io::unix::AsyncFd, sync::Semaphore, task::LocalSet};

use super::{
    connection,
    context::{OpenClient, OpenClients, WorkerContext, WorkerMetrics},
};
use crate::{
    control::Control,
    engine::{Conn, KernelEngine, Loaded, Settings},
    net::{HangupWatch, Stream},
    shared::{Phase, Shared},
};

/// Between two looks at the idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a failed accept (out of descriptors): the next may succeed once some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Searches for stored responses that go on at once, each with a request to every instance.
const MAX_SEARCHES: usize = 8;
/// Copies for shadow variants at once: each holds its body.
const MAX_COPIES: usize = 64;
/// Questions for models at once: each asks all instances, and holds what they answer.
const MAX_LISTINGS: usize = 4;

/// Runs worker number `index` until the process has stopped. With `control`, its clients may call that.
///
/// # Errors
/// When the thread's event loop cannot be made.
pub(super) fn run(
    shared: Arc<Shared>,
    control: Option<Arc<Control>>,
    listeners: Vec<TcpListener>,
    index: u32,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, serve(shared, control, listeners, index))
}

async fn serve(
    shared: Arc<Shared>,
    control: Option<Arc<Control>>,
    listeners: Vec<TcpListener>,
    index: u32,
) -> io::Result<()> {
    let hangups = HangupWatch::new()?;
    let engine = match &shared.loaded {
        Some(loaded) => {
            let fleet = shared.fleet.load();
            let config = fleet.config();
            let settings = Settings {
                backlog_bytes: config.engine.backlog_bytes,
                half_closed_targets: config.half_closed_clients,
            };
            Some(KernelEngine::new(loaded, hangups.clone(), index, settings)?)
        }
        None => None,
    };
    tokio::task::spawn_local(hangups.clone().drive());
    if let Some(engine) = &engine {
        tokio::task::spawn_local(engine.clone().drive());
    }
    let metrics = WorkerMetrics {
        all: shared.metrics.clone(),
        userspace: shared.metrics.engine("userspace"),
        kernel: shared.metrics.engine(shared.loaded.as_ref().map_or("sockmap", Loaded::name)),
    };
    let worker = Rc::new(WorkerContext {
        shared,
        control,
        pool: RefCell::default(),
        rng: RefCell::new(fastrand::Rng::new()),
        hangups,
        engine,
        metrics,
        open_clients: OpenClients::default(),
        searches: Semaphore::new(MAX_SEARCHES),
        listings: Semaphore::new(MAX_LISTINGS),
        copies: Arc::new(Semaphore::new(MAX_COPIES)),
    });
    let sweeper = tokio::task::spawn_local(sweep(worker.clone()));
    let listeners = listeners.into_iter().map(watched).collect::<io::Result<Vec<_>>>()?;
    let accepting =
        listeners.iter().map(|it| tokio::task::spawn_local(accept(worker.clone(), it.clone())));
    let accepting: Vec<_> = accepting.collect();
    let mut phase = worker.phase();
    // An error would mean that the control thread is gone, and the process with it.
    let _ = phase.wait_for(|phase| *phase >= Phase::HandedOver).await;
    for task in accepting {
        task.abort();
        let _ = task.await;
    }
    if *phase.borrow() != Phase::HandedOver {
        // Closing a listener would reset the connections that wait there.
        listeners.iter().for_each(|listener| accept_waiting(&worker, listener.get_ref()));
    }
    drop(listeners);
    tokio::select! {
        () = worker.open_clients.none_left() => {}
        _ = phase.wait_for(|phase| *phase == Phase::Stopped) => {}
    }
    sweeper.abort();
    Ok(())
}

fn watched(listener: TcpListener) -> io::Result<Rc<AsyncFd<TcpListener>>> {
    // SAFETY: a TcpListener names one open descriptor for as long as it lives.
    let listener =
        unsafe { AsyncFd::register_with_interest(listener, tokio::io::Interest::READABLE) }?;
    Ok(Rc::new(listener))
}

async fn accept(worker: Rc<WorkerContext>, listener: Rc<AsyncFd<TcpListener>>) {
    loop {
        let Ok(mut guard) = listener.readable().await else { return };
        match guard.try_io(|listener| listener.get_ref().accept()) {
            Ok(Ok((socket, peer))) => serve_client(&worker, socket, peer),
            Ok(Err(error)) if is_transient(&error) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_would_block) => {}
        }
    }
}

/// Accepts what waits already.
fn accept_waiting(worker: &Rc<WorkerContext>, listener: &TcpListener) {
    loop {
        match listener.accept() {
            Ok((socket, peer)) => serve_client(worker, socket, peer),
            Err(error) if is_transient(&error) => {}
            Err(_none_or_no_descriptor) => return,
        }
    }
}

/// Errors of one connection that was gone before it was accepted, not of the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn serve_client(worker: &Rc<WorkerContext>, socket: std::net::TcpStream, peer: SocketAddr) {
    // A peer that vanished without a word must not hold its connection for ever; where the option
    // cannot be set, the connection is gone already, and its first read says so.
    let _ = crate::net::socket::keepalive(&socket, crate::net::socket::KEEPALIVE);
    match Stream::new(socket) {
        Ok(stream) => {
            let open = OpenClient::new(worker);
            let worker = worker.clone();
            tokio::task::spawn_local(async move {
                connection::serve(&worker, Conn::new(stream), peer.ip()).await;
                drop(open);
            });
        }
        Err(error) => tracing::debug!(%error, "a connection was gone at once"),
    }
}

async fn sweep(worker: Rc<WorkerContext>) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let fleet = worker.fleet();
        let max_idle = fleet.config().timeouts.pool_idle;
        let staying: hashbrown::HashSet<_> = fleet
            .instances()
            .filter(|(_, _, instance)| !instance.is_draining())
            .map(|(_, _, instance)| instance.id)
            .collect();
        worker.pool.borrow_mut().sweep(max_idle, |id| staying.contains(&id));
    }
}
