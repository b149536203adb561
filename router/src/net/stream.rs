//! A TCP stream whose registration with the event loop can be changed while it is open.
//!
//! `tokio::net::TcpStream` is registered for reading for as long as it lives. A socket whose body the kernel moves must
//! not be: every redirected packet would still wake the thread that polls it. Hence this thin layer
//! over `AsyncFd`.

use std::{
    cell::Cell,
    io::{self, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll, ready},
};

use tokio::io::{Interest, unix::AsyncFd};

/// A connected, non-blocking TCP socket with TCP_NODELAY, registered with the event loop of the
/// thread that made it.
#[derive(Debug)]
pub struct Stream {
    // Taken out only while the registration changes.
    io: Option<AsyncFd<TcpStream>>,
    reading: bool,
    /// Stream bytes that this process has read.
    read: u64,
    /// Stream bytes that this process has written.
    written: u64,
    /// Whether closing is to reset the connection.
    aborts: Cell<bool>,
    /// Whether the socket holds back the last bytes written.
    holds: Cell<bool>,
}

impl Stream {
    /// Takes a connected socket: makes it non-blocking, turns Nagle off (a token must not wait for
    /// an acknowledgement), and registers it.
    ///
    /// # Errors
    /// When the socket is already gone, or the event loop refuses it.
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let io = register(socket, true)?;
        let (aborts, holds) = (Cell::new(false), Cell::new(false));
        Ok(Self { io: Some(io), reading: true, read: 0, written: 0, aborts, holds })
    }

    /// Waits until a connection that was begun is established.
    ///
    /// # Errors
    /// As `connect(2)`: refused, unreachable, reset.
    pub async fn connected(&self) -> io::Result<()> {
        loop {
            let mut guard = self.io().writable().await?;
            if let Some(error) = guard.get_inner().take_error()? {
                return Err(error);
            }
            if guard.get_inner().peer_addr().is_ok() {
                return Ok(());
            }
            guard.clear_ready();
        }
    }

    fn io(&self) -> &AsyncFd<TcpStream> {
        self.io.as_ref().expect("the registration is only taken out within `set_reading`")
    }

    /// Registers the socket for reading, or takes it off. Writing stays registered.
    ///
    /// # Errors
    /// When the event loop refuses the new registration; the stream must then be dropped.
    pub fn set_reading(&mut self, reading: bool) -> io::Result<()> {
        if self.reading == reading {
            return Ok(());
        }
        let socket = self.io.take().expect("only taken out here").into_inner();
        self.io = Some(register(socket, reading)?);
        self.reading = reading;
        Ok(())
    }

    /// Bytes read so far, since the connection began.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Bytes written so far, since the connection began.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Counts bytes that the kernel moved past this process.
    pub fn count_handed_over(&mut self, read: u64, written: u64) {
        self.read += read;
        self.written += written;
    }

    /// Reads what is there. `Ok(0)` is the peer's FIN.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.io().poll_read_ready(cx))?;
            match guard.try_io(|io| io.get_ref().read(buf)) {
                Ok(Ok(n)) => {
                    // A short read emptied the queue: the next arrival makes a new edge, so the
                    // read that would only say EAGAIN can be saved. A FIN's readiness is sticky.
                    if n > 0 && n < buf.len() {
                        guard.clear_ready();
                    }
                    self.read += n as u64;
                    return Poll::Ready(Ok(n));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }

    /// Reads without regard to readiness: what is queued now, or `WouldBlock`.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn try_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = loop {
            match self.io().get_ref().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.read += n as u64;
        Ok(n)
    }

    /// Waits until there is something to read, a FIN and an error included, and takes no bytes.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.io().poll_read_ready(cx))?;
            // Readiness may be left from bytes that have been read since: look.
            match guard.try_io(|io| io.get_ref().peek(&mut [0])) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result.map(|_| ())),
                Err(_would_block) => {}
            }
        }
    }

    /// Makes the socket hold back what does not fill a segment (`TCP_CORK`), or sends what it holds. It
    /// has taken the bytes all the same: nothing gets in front of them.
    pub fn hold_back(&self, holds: bool) {
        if self.holds.replace(holds) != holds {
            // A failure means that the socket is already broken, which the next write finds.
            let _ = socket2::SockRef::from(self.io().get_ref()).set_tcp_cork(holds);
        }
    }

    /// Writes what the socket takes.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // `send(2)` is cheaper than `writev(2)` of one buffer.
        self.poll_write_with(cx, |mut socket| socket.write(buf))
    }

    /// Writes what the socket takes of several buffers.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut socket| socket.write_vectored(bufs))
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.io().poll_write_ready(cx))?;
            match guard.try_io(|io| write(io.get_ref())) {
                Ok(Ok(n)) => {
                    self.written += n as u64;
                    return Poll::Ready(Ok(n));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }

    /// Writes all of `buf`.
    ///
    /// # Errors
    /// As `write(2)`; `WriteZero` when the socket takes nothing.
    pub async fn write_all(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = std::future::poll_fn(|cx| self.poll_write(cx, buf)).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buf = &buf[n..];
        }
        Ok(())
    }

    /// The peer's address.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io().get_ref().peer_addr()
    }

    /// Our address.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io().get_ref().local_addr()
    }

    /// Makes the close that follows a reset (RST), so that the peer cannot take what it has got for
    /// a complete message.
    pub fn abort_on_close(&self) {
        self.aborts.set(true);
        self.reset_on_close(true);
    }

    /// Makes a close by the kernel reset the connection, as when the process is killed, or not. An
    /// orderly close must take it back.
    pub fn reset_on_close(&self, reset: bool) {
        let socket = socket2::SockRef::from(self.io().get_ref());
        // A failure means that the socket is already broken, which the peer sees as well.
        let _ = socket.set_linger(reset.then_some(std::time::Duration::ZERO));
    }

    /// Whether closing is to [reset](Self::abort_on_close) the connection.
    pub fn aborts(&self) -> bool {
        self.aborts.get()
    }

    /// Closes our sending side.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.io().get_ref().shutdown(std::net::Shutdown::Write)
    }
}

fn register(socket: TcpStream, reading: bool) -> io::Result<AsyncFd<TcpStream>> {
    let interest =
        if reading { Interest::READABLE | Interest::WRITABLE } else { Interest::WRITABLE };
    // SAFETY: a TcpStream names one open descriptor for as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io().get_ref().as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.io().get_ref().as_raw_fd()
    }
}

/// Bytes that one read takes at most.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Runs `f` with the thread's read buffer. A connection owns no buffer while it waits: thousands of
/// open streams share this one.
pub fn with_read_buffer<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    thread_local! {
        static BUFFER: std::cell::RefCell<Box<[u8]>> =
            std::cell::RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice());
    }
    BUFFER.with_borrow_mut(|buffer| f(buffer))
}
