//! A disk in memory that can fail, and lose what was not synced.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use redb::StorageBackend;

/// What there is of a disk; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What a process sees.
    seen: Vec<u8>,
    /// What is there for certain after the power was lost.
    synced: Vec<u8>,
    /// What was done since, in order.
    since: Vec<Done>,
    operations: usize,
    fails_from: Option<usize>,
}

#[derive(Clone, Debug)]
enum Done {
    Length(usize),
    Write(usize, Vec<u8>),
}

impl Done {
    fn on(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(len) => bytes.resize(*len, 0),
            Self::Write(at, data) => {
                let end = at + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(data);
            }
        }
    }
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no operation panics")
    }

    /// A disk with these contents.
    pub(super) fn with(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { seen: bytes.clone(), synced: bytes, ..State::default() })))
    }

    /// Every operation that changes something fails, once so many have been done.
    pub(super) fn fail_after(&self, operations: usize) {
        let mut state = self.state();
        state.fails_from = Some(state.operations + operations);
    }

    /// It works again.
    pub(super) fn heal(&self) {
        self.state().fails_from = None;
    }

    /// Operations so far that change something.
    pub(super) fn operations(&self) -> usize {
        self.state().operations
    }

    /// What is there when the process is killed: all that it did.
    pub(super) fn killed(&self) -> Vec<u8> {
        self.state().seen.clone()
    }

    /// What is there when the power is lost: what was synced, and of the rest what luck says.
    pub(super) fn power_lost(&self, mut luck: impl FnMut() -> bool) -> Vec<u8> {
        let state = self.state();
        let mut bytes = state.synced.clone();
        state.since.iter().filter(|_| luck()).for_each(|done| done.on(&mut bytes));
        bytes
    }
}

impl State {
    fn count(&mut self) -> io::Result<()> {
        if self.fails_from.is_some_and(|from| self.operations >= from) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.operations += 1;
        Ok(())
    }

    fn act(&mut self, done: Done) -> io::Result<()> {
        self.count()?;
        done.on(&mut self.seen);
        self.since.push(done);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let at = usize::try_from(offset).expect("a small disk");
        let bytes = state.seen.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().act(Done::Length(usize::try_from(len).expect("a small disk")))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.count()?;
        state.synced = state.seen.clone();
        state.since.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state()
            .act(Done::Write(usize::try_from(offset).expect("a small disk"), data.to_owned()))
    }
}
