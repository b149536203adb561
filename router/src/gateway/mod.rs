//! The gateway at work: threads, connections, and one request's way.
//!
//! [`run`] starts everything. `worker` accepts connections, `connection` serves one client, request by
//! request, and `exchange` leads each request through its phases, in one direction:
//!
//! read → admit → decide → forward → answer → record
//!
//! Each phase is a module of that name with one type that it hands to the next. `relay` moves the bytes
//! for the last of them; `scope`, `failure` and `context` are what all of them share.

mod admit;
mod answer;
mod connection;
mod context;
mod control;
mod credentials;
mod decide;
mod ending;
mod exchange;
mod failure;
mod forward;
mod guard;
mod listeners;
mod made;
mod read;
mod record;
mod relay;
mod reload;
mod scope;
mod service;
mod takeover;
mod worker;

pub(crate) use admit::reachable;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};

use self::takeover::{Counted, Estate, Older, Predecessor, Role, Sockets};
use crate::{
    config::Config,
    engine::{Loaded, startup},
    fleet::{Counters, Fleet},
    kernel::counters::CounterMemory,
    metrics::Metrics,
    routing::{Sessions, StoredResponses},
    shared::{Phase, Shared},
};

/// In-flight counters of a gateway without kernel programs: instances of all fleets together.
const COUNTERS: u32 = 32_768;

/// Serves until the process is told to stop.
///
/// `file` is where the configuration came from, to be read again on SIGHUP or when it changes. With `take_over`, the
/// gateway that serves the same addresses on this host, if there is one, hands them over once this one can serve.
///
/// # Errors
/// When an address cannot be bound, the configured engine cannot be had, or the system refuses
/// threads or descriptors; then the other gateway goes on.
pub fn run(config: Config, file: Option<PathBuf>, take_over: bool) -> anyhow::Result<()> {
    service::started();
    listeners::raise_descriptor_limit();
    listeners::grow_descriptor_table();
    let metrics = Metrics::new();
    metrics.config.started();
    let threads = config.worker_threads();
    let loaded = startup::kernel(&config, &metrics)?;
    let memory = match &loaded {
        Some(Loaded::Sockmap(kernel)) => Arc::clone(kernel.counters()),
        Some(Loaded::Splice(programs)) => Arc::clone(programs.counters()),
        None => CounterMemory::new(COUNTERS).context("no memory for in-flight counters")?,
    };
    let counters = {
        let (base, stride, slots) = memory.counters();
        // SAFETY: the counters are zero and mapped for as long as their memory lives; the programs only take
        // off what a holder added.
        unsafe { Counters::mapped(base, stride, slots, Box::new(Arc::clone(&memory))) }
    };
    let mut predecessor = match take_over {
        true => Predecessor::find(&config.listen)?,
        false => None,
    };
    if take_over && predecessor.is_none() {
        tracing::info!(
            "no gateway on this host serves these addresses: there is none to take over from"
        );
    }
    let counted = match &mut predecessor {
        Some(predecessor) => predecessor.share_counters(&counters, &memory)?,
        None => Counted::alone(&counters),
    };
    let control = made::Made::open(&config, predecessor.as_mut())?;
    let added = control.as_ref().map(|it| it.endpoints(&config)).unwrap_or_default();
    let parts = reload::Parts { file: Arc::new(config), added };
    let config = parts.composed();
    let fleet = Fleet::build(&config, None, &counters, &metrics)?;
    let segment = loaded.as_ref().and_then(Loaded::segment);
    let open = listeners::activated(segment)?;
    let bound = listeners::bind(&config.listen, threads, segment, open, predecessor.as_mut())?;
    let admin = config.admin.map(|at| listeners::single(at, Role::Admin, predecessor.as_mut()));
    let admin = admin.transpose()?;
    let sockets = Sockets::default();
    let clients = bound.per_thread.iter().flatten().map(|it| (Role::Clients, it));
    let others = admin.iter().map(|it| (Role::Admin, it));
    let others =
        others.chain(control.iter().filter_map(|it| Some((Role::Control, it.listener()?))));
    for (role, socket) in clients.chain(others) {
        sockets.add(role, socket).context("no descriptor left for a listener")?;
    }
    let guarded = guard::Guarded::load(&config, &bound.addresses, &metrics)?;
    let guard = |loaded: Option<&Loaded>| {
        let next = match loaded {
            Some(Loaded::Splice(programs)) => programs.xdp_program(),
            _ => None,
        };
        guarded.attach(&config, next)
    };
    if predecessor.is_none() {
        guard(loaded.as_ref())?;
    }
    let (phase_sender, phase) = watch::channel(Phase::Running);
    let shared = Arc::new(Shared {
        fleet: ArcSwap::from_pointee(fleet),
        loaded,
        metrics,
        stored: StoredResponses::default(),
        sessions: Sessions::default(),
        phase,
    });
    control::resolve_names(&shared)?;
    let (ended_sender, ended) = mpsc::unbounded_channel();
    let mut workers = Vec::with_capacity(threads);
    for (index, listeners) in bound.per_thread.into_iter().enumerate() {
        let (shared, ended) = (shared.clone(), ended_sender.clone());
        let control = control.as_ref().filter(|_| config.control.on_client_listener);
        let control = control.map(|it| it.control().clone());
        let worker = thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                let result = worker::run(shared, control, listeners, index as u32);
                // A control thread that is gone has no use for the message.
                let _ = ended.send(());
                result
            })
            .context("cannot start a worker thread")?;
        workers.push(worker);
    }
    drop(ended_sender);
    // From here on this process serves.
    let older = match predecessor {
        None => Older::default(),
        Some(predecessor) => {
            let older = predecessor.serving()?;
            // Interfaces have one program in their driver, which was the old gateway's until now.
            if let Some(loaded) = &shared.loaded {
                loaded.enter_drivers();
            }
            if let Err(error) = guard(shared.loaded.as_ref()) {
                tracing::error!("serving without the guard: {error:#}");
            }
            older
        }
    };
    let (asks, asked) = mpsc::unbounded_channel();
    let estate = Estate::new(sockets, &memory, counted, older, asks);
    let estate = estate.context("cannot share in-flight counters")?;
    estate.announce(&bound.addresses);
    service::ready();
    let setup = control::Setup {
        shared: shared.clone(),
        counters,
        phase: phase_sender,
        file,
        parts,
        control,
        admin,
        addresses: bound.addresses,
        guarded,
        ended,
        estate,
        asked,
    };
    let result = control::run(setup);
    for worker in workers {
        match worker.join() {
            Ok(result) => result.context("a worker thread failed")?,
            Err(_) => anyhow::bail!("a worker thread panicked; the log has the message"),
        }
    }
    let cut = shared.metrics.clients.cut.load(Relaxed);
    if cut > 0 {
        tracing::warn!(exchanges = cut, "cut: they had not ended by the end of the drain time");
    }
    result
}
