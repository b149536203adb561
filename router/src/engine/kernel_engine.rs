//! The kernel engine that a worker thread uses.

use std::{io, sync::Arc};

use super::{
    Conn, Handover,
    outcome::HandoverOutcome,
    sockmap::{self, Sockmap},
    splice::{self, Splice},
};
use crate::{
    kernel::{sockmap::SockmapObject, splice::SpliceObject},
    net::HangupWatch,
};

/// The kernel programs that this process uses.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// Those of the sockmap engine.
    Sockmap(Arc<SockmapObject>),
    /// Those of the splice engine.
    Splice(Arc<SpliceObject>),
}

impl Loaded {
    /// The engine's name in metrics and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sockmap(_) => "sockmap",
            Self::Splice(_) => "splice",
        }
    }

    /// Leaves drivers to another process that takes over.
    pub fn leave_drivers(&self) {
        if let Self::Splice(programs) = self {
            programs.end_xdp();
        }
    }

    /// Makes use of drivers that another process has left.
    pub fn enter_drivers(&self) {
        if let Self::Splice(programs) = self {
            splice::log_drivers(programs.retry_xdp());
        }
    }

    /// The most bytes of a segment of a new connection, if the engine needs a limit.
    pub const fn segment(&self) -> Option<u32> {
        match self {
            Self::Sockmap(_) => None,
            Self::Splice(_) => Some(splice::MAX_SEGMENT),
        }
    }
}

/// What an engine may do.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// See [`sockmap::Settings::backlog_bytes`].
    pub backlog_bytes: u32,
    /// Whether a target whose peer has closed its sending side may still be sent to.
    pub half_closed_targets: bool,
}

/// One worker thread's access to its kernel engine. Cheap to clone.
#[derive(Clone)]
pub enum KernelEngine {
    /// Bytes from socket to socket.
    Sockmap(Sockmap),
    /// Packets past the sockets.
    Splice(Splice),
}

impl KernelEngine {
    /// # Errors
    /// When the worker's queue of events cannot be made. `worker` must be this thread's own number.
    pub fn new(
        loaded: &Loaded,
        watch: HangupWatch,
        worker: u32,
        settings: Settings,
    ) -> io::Result<Self> {
        let half_closed_targets = settings.half_closed_targets;
        Ok(match loaded {
            Loaded::Sockmap(object) => {
                let backlog_bytes = settings.backlog_bytes;
                let settings = sockmap::Settings { backlog_bytes, half_closed_targets };
                Self::Sockmap(Sockmap::new(object.clone(), watch, worker, settings)?)
            }
            Loaded::Splice(programs) => {
                let settings = splice::Settings { half_closed_targets, tests: false };
                Self::Splice(Splice::new(programs.clone(), watch, worker, settings)?)
            }
        })
    }

    /// Dispatches the kernel's events, for ever; must run on the thread that hands over, and once.
    ///
    /// # Errors
    /// When the queue of events cannot be polled.
    pub async fn drive(self) -> io::Result<()> {
        match self {
            Self::Sockmap(engine) => engine.drive().await,
            Self::Splice(engine) => engine.drive().await,
        }
    }

    /// Makes a connection known to an engine that follows its packets from before the hand-over on.
    /// `connected` if the gateway opened it. True if it was not known, and is now.
    pub fn register(&self, conn: &mut Conn, connected: bool) -> bool {
        match self {
            Self::Splice(engine) => engine.register(conn, connected),
            Self::Sockmap(_) => false,
        }
    }

    /// Takes that back, if nothing has been moved yet: the engine's look at each packet costs something.
    pub fn forget(&self, conn: &mut Conn) {
        if let Self::Splice(engine) = self {
            engine.forget(conn);
        }
    }

    /// See [`Loaded::segment`].
    pub const fn segment(&self) -> Option<u32> {
        match self {
            Self::Sockmap(_) => None,
            Self::Splice(_) => Some(splice::MAX_SEGMENT),
        }
    }

    /// See [`Sockmap::hand_over`] and [`Splice::hand_over`].
    pub async fn hand_over(&self, handover: Handover<'_>) -> HandoverOutcome {
        match self {
            Self::Sockmap(engine) => engine.hand_over(handover).await,
            Self::Splice(engine) => engine.hand_over(handover).await,
        }
    }
}
