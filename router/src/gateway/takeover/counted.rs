//! Requests of other gateways on this host, which count for thresholds as long as their processes live.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{PidfdFlags, getpid, pidfd_open},
};

use super::message::Table;
use crate::{
    fleet::{Counters, Foreign},
    kernel::counters::{CounterMemory, ForeignCounters},
};

/// A table of counters, with what another process needs to read it and to know when it ends.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) table: Table,
    memory: Arc<OwnedFd>,
    process: Arc<OwnedFd>,
}

impl Shared {
    /// This process's own.
    pub(super) fn own(memory: &CounterMemory) -> io::Result<Self> {
        let (_, stride, len) = memory.counters();
        Ok(Self {
            table: Table { stride: stride as u32, len },
            memory: Arc::new(memory.descriptor().try_clone_to_owned()?),
            process: Arc::new(pidfd_open(getpid(), PidfdFlags::empty())?),
        })
    }

    /// What came with a message; takes its two descriptors off `descriptors`.
    pub(super) fn received(
        table: Table,
        descriptors: &mut impl Iterator<Item = OwnedFd>,
    ) -> Option<Self> {
        let (memory, process) = (descriptors.next()?, descriptors.next()?);
        Some(Self { table, memory: Arc::new(memory), process: Arc::new(process) })
    }

    /// What goes with a message.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.process.as_fd()]
    }

    /// Waits until its process has ended.
    fn wait(&self) {
        let mut fds = [PollFd::new(&*self.process, PollFlags::IN)];
        while !poll(&mut fds, None).is_ok_and(|n| n > 0) {}
    }
}

/// The other processes whose requests count for this one's thresholds.
#[derive(Clone)]
pub(in crate::gateway) struct Counted {
    counters: Counters,
    others: Arc<Mutex<Vec<Shared>>>,
}

impl Counted {
    pub(super) fn new(counters: &Counters) -> Self {
        Self { counters: counters.clone(), others: Arc::default() }
    }

    /// Those that have not ended.
    pub(super) fn others(&self) -> Vec<Shared> {
        self.lock().clone()
    }

    /// Counts the requests of another process until it ends.
    ///
    /// # Errors
    /// When its counters cannot be read, as those of another version may be. Each process then counts its own.
    pub(super) fn add(&self, shared: Shared) -> io::Result<()> {
        let Table { stride, len } = shared.table;
        let memory = ForeignCounters::map(&*shared.memory, stride as usize, len)?;
        let (base, stride, len) = memory.counters();
        // SAFETY: the counters are mapped for as long as their memory lives.
        let foreign = unsafe { Foreign::mapped(base, stride, len, Box::new(memory)) };
        let foreign = Arc::new(foreign);
        self.counters.count_other(Arc::clone(&foreign));
        self.lock().push(shared.clone());
        let (this, it) = (self.clone(), Arc::clone(&foreign));
        let watching = thread::Builder::new().name("take-over".into()).spawn(move || {
            shared.wait();
            this.forget(&shared, &it);
        });
        if let Err(error) = watching {
            self.counters.forget_other(&foreign);
            return Err(error);
        }
        Ok(())
    }

    fn forget(&self, shared: &Shared, foreign: &Arc<Foreign>) {
        let mut others = self.lock();
        others.retain(|it| !Arc::ptr_eq(&it.process, &shared.process));
        self.counters.forget_other(foreign);
        if others.is_empty() {
            self.counters.forget_others();
            tracing::debug!("no other gateway's requests count any more");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Shared>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
