//! A worker thread: one event loop, its own listeners, its own connection pool.

use std::{
    cell::{Cell, RefCell},
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, watch},
    task::LocalSet,
};

use super::connection;
use crate::{
    config::Config,
    engine::{Attempts, Carrier, Copier, HandOver, Loaded, Policy, Settings},
    fleet::{Fleet, Instance, pool::ConnectionPool},
    metrics::{EngineMetrics, Metrics},
    net::{Conn, HangupWatch, Stream},
    shared::{Phase, Shared},
};

/// Between two looks at the idle connections.
const SWEEP: Duration = Duration::from_secs(1);
/// Wait after a failed accept (out of descriptors): the next may succeed once some are closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Metrics handles of a worker.
pub(super) struct WorkerMetrics {
    pub(super) all: Arc<Metrics>,
    pub(super) userspace: Arc<EngineMetrics>,
    /// Of the kernel engine.
    pub(super) kernel: Arc<EngineMetrics>,
}

/// One worker thread's own state.
pub(super) struct Worker {
    shared: Arc<Shared>,
    pub(super) pool: RefCell<ConnectionPool>,
    pub(super) rng: RefCell<fastrand::Rng>,
    pub(super) hangups: HangupWatch,
    pub(super) carrier: Option<Carrier>,
    pub(super) metrics: WorkerMetrics,
    connections: Cell<usize>,
    all_closed: Notify,
}

impl Worker {
    /// The fleet of this moment; an exchange keeps the one it began with.
    pub(super) fn fleet(&self) -> Arc<Fleet> {
        self.shared.fleet.load_full()
    }

    /// When the kernel should carry the rest of a body; `learned` is what is known of such bodies, if
    /// anything.
    pub(super) fn hand_over(
        &self,
        config: &Config,
        learned: Option<u64>,
        copier: &Copier,
        attempts: Attempts,
    ) -> HandOver {
        match self.carrier {
            Some(_) => Policy::of(config, learned).hand_over(copier, attempts),
            None => HandOver::Never,
        }
    }

    /// Whether connections are to be closed once their exchange is over.
    pub(super) fn is_draining(&self) -> bool {
        *self.shared.phase.borrow() > Phase::Running
    }

    /// Follows where the process stands.
    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.shared.phase.clone()
    }

    /// Keeps an instance's connection for its next request, or closes it.
    pub(super) fn keep(&self, instance: &Instance, conn: Conn, reusable: bool, config: &Config) {
        if !reusable || self.is_draining() || instance.is_draining() {
            instance.metrics.pool.discarded.inc();
            return;
        }
        let limit = config.pool.max_idle_per_instance;
        self.pool.borrow_mut().put(instance.id, &instance.metrics, conn, limit);
    }
}

/// Counts a client connection for as long as it is open.
struct Open(Rc<Worker>);

impl Open {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.connections.set(worker.connections.get() + 1);
        worker.metrics.all.clients.accepted.inc();
        worker.metrics.all.clients.open.inc();
        Self(worker.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = self.0.connections.get() - 1;
        self.0.connections.set(left);
        self.0.metrics.all.clients.open.dec();
        if left == 0 {
            self.0.all_closed.notify_waiters();
        }
    }
}

/// Runs worker number `index` until the process has stopped.
///
/// # Errors
/// When the thread's event loop cannot be made.
pub(super) fn run(shared: Arc<Shared>, listeners: Vec<TcpListener>, index: u32) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, serve(shared, listeners, index))
}

async fn serve(shared: Arc<Shared>, listeners: Vec<TcpListener>, index: u32) -> io::Result<()> {
    let hangups = HangupWatch::new()?;
    let carrier = match &shared.loaded {
        Some(loaded) => {
            let fleet = shared.fleet.load();
            let config = fleet.config();
            let settings = Settings {
                backlog_bytes: config.engine.backlog_bytes,
                half_closed_targets: config.half_closed_clients,
            };
            Some(Carrier::new(loaded, hangups.clone(), index, settings)?)
        }
        None => None,
    };
    tokio::task::spawn_local(hangups.clone().drive());
    if let Some(carrier) = &carrier {
        tokio::task::spawn_local(carrier.clone().drive());
    }
    let metrics = WorkerMetrics {
        all: shared.metrics.clone(),
        userspace: shared.metrics.engine("userspace"),
        kernel: shared.metrics.engine(shared.loaded.as_ref().map_or("sockmap", Loaded::name)),
    };
    let worker = Rc::new(Worker {
        shared,
        pool: RefCell::default(),
        rng: RefCell::new(fastrand::Rng::new()),
        hangups,
        carrier,
        metrics,
        connections: Cell::new(0),
        all_closed: Notify::new(),
    });
    let sweeper = tokio::task::spawn_local(sweep(worker.clone()));
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::task::spawn_local(accept(worker.clone(), listener)))
        .collect();
    let mut phase = worker.phase();
    // An error would mean that the control thread is gone, and the process with it.
    let _ = phase.wait_for(|phase| *phase > Phase::Running).await;
    for task in accepting {
        // The listener closes with its task: the kernel gives new connections to nobody here.
        task.abort();
    }
    sweeper.abort();
    tokio::select! {
        () = none_left(&worker) => {}
        _ = phase.wait_for(|phase| *phase == Phase::Stopped) => {}
    }
    Ok(())
}

async fn none_left(worker: &Worker) {
    loop {
        let closed = worker.all_closed.notified();
        if worker.connections.get() == 0 {
            return;
        }
        closed.await;
    }
}

async fn accept(worker: Rc<Worker>, listener: TcpListener) {
    // SAFETY: a TcpListener names one open descriptor for as long as it lives.
    let listener =
        match unsafe { AsyncFd::register_with_interest(listener, tokio::io::Interest::READABLE) } {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "cannot watch a listener");
                return;
            }
        };
    loop {
        let Ok(mut guard) = listener.readable().await else { return };
        match guard.try_io(|listener| listener.get_ref().accept()) {
            Ok(Ok((socket, peer))) => admit(&worker, socket, peer),
            Ok(Err(error)) if is_transient(&error) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_would_block) => {}
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

fn admit(worker: &Rc<Worker>, socket: std::net::TcpStream, peer: SocketAddr) {
    // A peer that vanished without a word must not hold its connection for ever; where the option
    // cannot be set, the connection is gone already, and its first read says so.
    let _ = crate::net::socket::keepalive(&socket, crate::net::socket::KEEPALIVE);
    match Stream::new(socket) {
        Ok(stream) => {
            let open = Open::new(worker);
            let worker = worker.clone();
            tokio::task::spawn_local(async move {
                connection::serve(&worker, Conn::new(stream), peer.ip()).await;
                drop(open);
            });
        }
        Err(error) => tracing::debug!(%error, "a connection was gone at once"),
    }
}

async fn sweep(worker: Rc<Worker>) {
    let mut ticks = tokio::time::interval(SWEEP);
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
