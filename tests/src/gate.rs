//! Holds threads until the test lets them go.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A gate that many threads can wait at. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is open. Gives up after five minutes: the test has failed by then.
    pub fn wait(&self) {
        let mut state = self.state();
        state.waiting += 1;
        let limit = Duration::from_secs(300);
        let (mut state, _) = self
            .inner
            .1
            .wait_timeout_while(state, limit, |state| !state.open)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }

    /// How many wait at it.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.state().open
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.state().open = true;
        self.inner.1.notify_all();
    }
}
