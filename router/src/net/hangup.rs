//! Watches sockets for a hang-up without being woken by their data.
//!
//! A socket whose body the kernel moves is not registered for reading, because the kernel would wake its poller for
//! every redirected packet. EPOLLRDHUP alone has another wake-up key than data, so an epoll set of
//! its own sees the peer's FIN and RST and nothing else.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use hashbrown::HashMap;
use tokio::io::{Interest, unix::AsyncFd};

/// What a hang-up said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The peer closed its sending side (FIN).
    Closed,
    /// The connection is broken (RST, or an error).
    Broken,
}

struct Entry {
    seen: Option<Side>,
    waker: Option<Waker>,
}

/// One thread's watch over such sockets.
///
/// Its `drive` future must run on the same thread as long as anything is watched.
#[derive(Clone)]
pub struct HangupWatch {
    inner: Rc<Inner>,
}

struct Inner {
    epoll: AsyncFd<OwnedFd>,
    // Keyed by a number that is never used again, not by descriptor: a descriptor closed and opened
    // again between two polls must not get the other's hang-up.
    entries: RefCell<HashMap<u64, Entry>>,
    next: std::cell::Cell<u64>,
}

/// A socket under watch, until dropped.
pub struct Watched {
    inner: Rc<Inner>,
    token: u64,
    fd: std::os::fd::RawFd,
}

impl HangupWatch {
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointer; its result is checked before it is owned.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a fresh descriptor that nothing else owns.
        let owned = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: an OwnedFd names one open descriptor for as long as it lives.
        let epoll = unsafe { AsyncFd::register_with_interest(owned, Interest::READABLE) }?;
        Ok(Self {
            inner: Rc::new(Inner {
                epoll,
                entries: RefCell::new(HashMap::new()),
                next: std::cell::Cell::new(1),
            }),
        })
    }

    /// Watches a socket. A hang-up that came before is seen too.
    ///
    /// The socket must stay open until the returned [`Watched`] is dropped.
    ///
    /// # Errors
    /// When the socket is under watch already, or the system has no memory left for another.
    pub fn watch(&self, socket: &impl AsFd) -> io::Result<Watched> {
        let fd = socket.as_fd().as_raw_fd();
        let token = self.inner.next.get();
        self.inner.next.set(token + 1);
        let mut event =
            libc::epoll_event { events: (libc::EPOLLRDHUP | libc::EPOLLET) as u32, u64: token };
        // SAFETY: both descriptors are open, and `event` lives through the call.
        let rc = unsafe {
            libc::epoll_ctl(self.inner.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event)
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        self.inner.entries.borrow_mut().insert(token, Entry { seen: None, waker: None });
        Ok(Watched { inner: self.inner.clone(), token, fd })
    }

    /// Dispatches hang-ups to their watchers, for ever.
    ///
    /// # Errors
    /// When the epoll set itself fails.
    pub async fn drive(self) -> io::Result<()> {
        loop {
            let mut guard = self.inner.epoll.readable().await?;
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
            // SAFETY: the buffer holds as many events as the call is told.
            let n = unsafe {
                libc::epoll_wait(
                    self.inner.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as i32,
                    0,
                )
            };
            if n < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            if n == 0 {
                guard.clear_ready();
                continue;
            }
            let mut entries = self.inner.entries.borrow_mut();
            for event in &events[..n as usize] {
                let (bits, token) = (event.events, event.u64);
                let Some(entry) = entries.get_mut(&token) else { continue };
                let broken = bits & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
                entry.seen = Some(if broken { Side::Broken } else { Side::Closed });
                if let Some(waker) = entry.waker.take() {
                    waker.wake();
                }
            }
        }
    }
}

impl Watched {
    /// Waits for the hang-up.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Side> {
        let mut entries = self.inner.entries.borrow_mut();
        let entry = entries.get_mut(&self.token).expect("removed only by drop");
        match entry.seen {
            Some(side) => Poll::Ready(side),
            None => {
                if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    entry.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Waits until the connection is broken; a FIN alone does not count.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll(cx) {
            Poll::Ready(Side::Broken) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Side::Closed) => {
                let mut entries = self.inner.entries.borrow_mut();
                let entry = entries.get_mut(&self.token).expect("removed only by drop");
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits for the hang-up.
    pub async fn wait(&self) -> Side {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: takes no memory; a descriptor that is gone already makes it fail harmlessly.
        unsafe {
            libc::epoll_ctl(
                self.inner.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                self.fd,
                std::ptr::null_mut(),
            )
        };
        self.inner.entries.borrow_mut().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn sees_a_fin_then_a_reset_and_no_data() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let watch = HangupWatch::new().unwrap();
                let driver = tokio::task::spawn_local(watch.clone().drive());
                let (near, mut far) = pair();
                let watched = watch.watch(&near).unwrap();
                far.write_all(b"data").unwrap();
                // Data must not end the wait: the time limit is what is expected here.
                let data = tokio::time::timeout(Duration::from_millis(30), watched.wait()).await;
                assert!(data.is_err());
                far.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(watched.wait().await, Side::Closed);
                socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
                drop(far);
                std::future::poll_fn(|cx| watched.poll_broken(cx)).await;
                drop(watched);
                // One that comes late sees what came before.
                assert_eq!(watch.watch(&near).unwrap().wait().await, Side::Broken);
                assert!(watch.inner.entries.borrow().is_empty());
                driver.abort();
            })
            .await;
    }
}
