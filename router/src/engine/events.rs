//! The events of a kernel engine, and who waits for them.

use std::{
    cell::RefCell,
    io,
    task::{Context, Waker},
};

use aya::maps::{MapData, RingBuf};
use hashbrown::HashMap;
use tokio::io::{Interest, unix::AsyncFd};

/// One worker thread's queue of events. Every event begins with the index, a `u32`, of the element that
/// it concerns; the element itself says what happened.
pub(super) struct Events {
    /// Taken by [`Events::drive`].
    queue: RefCell<Option<RingBuf<MapData>>>,
    /// Who waits for events of an element.
    wakers: RefCell<HashMap<u32, Waker>>,
}

impl Events {
    pub(super) fn new(queue: RingBuf<MapData>) -> Self {
        Self { queue: RefCell::new(Some(queue)), wakers: RefCell::default() }
    }

    /// Wakes whoever waits, for ever; must run on the thread that waits, and once.
    ///
    /// # Errors
    /// When the queue cannot be polled.
    pub(super) async fn drive(&self) -> io::Result<()> {
        let queue = self.queue.borrow_mut().take();
        let queue = queue.ok_or_else(|| io::Error::other("the events have a driver already"))?;
        // SAFETY: the queue owns an open descriptor for as long as it lives.
        let mut queue = unsafe { AsyncFd::register_with_interest(queue, Interest::READABLE) }?;
        loop {
            let mut guard = queue.readable_mut().await?;
            while let Some(event) = guard.get_inner_mut().next() {
                let Some(index) = event.first_chunk() else { continue };
                self.forget(u32::from_ne_bytes(*index)).inspect(Waker::wake_by_ref);
            }
            guard.clear_ready();
        }
    }

    /// Has the task woken by the next event of an element.
    pub(super) fn wait(&self, index: u32, cx: &Context<'_>) {
        self.wakers.borrow_mut().insert(index, cx.waker().clone());
    }

    /// Ends the waiting for an element.
    pub(super) fn forget(&self, index: u32) -> Option<Waker> {
        self.wakers.borrow_mut().remove(&index)
    }

    /// Wakes those who wait for elements of which `moved` says that something happened. An event is
    /// lost when the queue is full.
    pub(super) fn wake_where(&self, mut moved: impl FnMut(u32) -> bool) {
        for (index, waker) in &*self.wakers.borrow() {
            if moved(*index) {
                waker.wake_by_ref();
            }
        }
    }

    /// Whether nobody waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.wakers.borrow().is_empty()
    }
}
