//! What every phase of a worker thread's exchanges can use.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use tokio::sync::{Notify, Semaphore, watch};

use crate::{
    config::Config,
    control::Control,
    engine::{Attempts, Conn, Copier, HandoverPoint, KernelEngine, Policy},
    fleet::{Fleet, Instance, pool::ConnectionPool},
    metrics::{EngineMetrics, Metrics},
    net::HangupWatch,
    shared::{Phase, Shared},
};

/// Metrics handles of a worker.
pub(super) struct WorkerMetrics {
    pub(super) all: Arc<Metrics>,
    pub(super) userspace: Arc<EngineMetrics>,
    /// Of the kernel engine.
    pub(super) kernel: Arc<EngineMetrics>,
}

/// One worker thread's own state.
pub(super) struct WorkerContext {
    pub(super) shared: Arc<Shared>,
    /// The control plane, where clients may call it.
    pub(super) control: Option<Arc<Control>>,
    pub(super) pool: RefCell<ConnectionPool>,
    pub(super) rng: RefCell<fastrand::Rng>,
    pub(super) hangups: HangupWatch,
    pub(super) engine: Option<KernelEngine>,
    pub(super) metrics: WorkerMetrics,
    pub(super) open_clients: OpenClients,
    /// Searches for stored responses that may go on at once.
    pub(super) searches: Semaphore,
    /// Copies for shadow variants that may be under way at once.
    pub(super) copies: Arc<Semaphore>,
    /// Questions to the instances for their models, on behalf of clients, that may go on at once.
    pub(super) listings: Semaphore,
}

impl WorkerContext {
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
    ) -> HandoverPoint {
        match self.engine {
            Some(_) => Policy::of(config, learned).hand_over(copier, attempts),
            None => HandoverPoint::Never,
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

/// How many client connections a worker has open.
#[derive(Default)]
pub(super) struct OpenClients {
    count: Cell<usize>,
    none: Notify,
}

impl OpenClients {
    /// Waits until there is none.
    pub(super) async fn none_left(&self) {
        loop {
            let closed = self.none.notified();
            if self.count.get() == 0 {
                return;
            }
            closed.await;
        }
    }
}

/// Counts a client connection for as long as it is open.
pub(super) struct OpenClient(Rc<WorkerContext>);

impl OpenClient {
    pub(super) fn new(worker: &Rc<WorkerContext>) -> Self {
        let count = &worker.open_clients.count;
        count.set(count.get() + 1);
        worker.metrics.all.clients.accepted.inc();
        worker.metrics.all.clients.open.inc();
        Self(worker.clone())
    }
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        let OpenClients { count, none } = &self.0.open_clients;
        count.set(count.get() - 1);
        self.0.metrics.all.clients.open.dec();
        if count.get() == 0 {
            none.notify_waiters();
        }
    }
}
