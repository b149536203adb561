//! Listening and connecting, with the options that the gateway needs.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::LazyLock,
    time::Duration,
};

use super::Stream;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted, per listener.
const BACKLOG: i32 = 4096;

/// Idle time after which a peer is probed: well below the lifetime of common firewalls' state.
pub const KEEPALIVE: Duration = Duration::from_secs(45);

/// Bytes that the kernel keeps at most for a receiver: sent and not acknowledged, or not sent yet, besides as much again
/// for its own overhead. Left to itself, the kernel would raise them to `tcp_wmem`, commonly 4 MiB. At a round trip of
/// 10 ms this still lets 50 MB/s through.
const SEND_BUFFER: usize = 512 * 1024;

/// Of those, bytes that have not been sent yet (`TCP_NOTSENT_LOWAT`): enough to be sent while the gateway is woken for
/// more. A receiver that has stopped has acknowledged all that was sent, so no more than this waits for it.
const MAX_UNSENT: u32 = 128 * 1024;

/// Options of a connection that the gateway opens.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// The most bytes of a segment, both ways, where the interface would take more.
    pub segment: Option<u32>,
    /// The most memory that the kernel fills with what was received and not read. `None` leaves that to the kernel, which
    /// lets it grow to the machine's `tcp_rmem`.
    pub receive_buffer: Option<usize>,
}

/// Opens one of several listeners that share `address` by SO_REUSEPORT: each worker thread has its
/// own, and the kernel spreads connections over them. `segment` is the most bytes of a segment, both ways,
/// where the interface would take more.
///
/// # Errors
/// When the address is not ours, or another program has it.
pub fn listen(address: SocketAddr, segment: Option<u32>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` serves IPv4 as well, on every distribution, whatever its default.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Inherited by the connections.
    limit_send_buffer(&socket)?;
    if let Some(segment) = segment {
        socket.set_tcp_mss(segment)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Gives a listener that somebody else has opened the options of [`listen`]'s.
///
/// # Errors
/// When it is no listening socket for TCP.
pub fn adopt(listener: &TcpListener, segment: Option<u32>) -> io::Result<()> {
    let socket = SockRef::from(listener);
    if !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen"));
    }
    socket.set_nonblocking(true)?;
    // Has an answer for sockets of IP alone.
    listener.local_addr()?;
    limit_send_buffer(&socket)?;
    if let Some(segment) = segment {
        socket.set_tcp_mss(segment)?;
    }
    Ok(())
}

/// Checks that nobody listens on `address` yet: a plain bind, which does not share.
///
/// # Errors
/// When the address is taken, or not ours.
pub fn probe_free(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Connections of an earlier process that linger in TIME_WAIT do not count.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(())
}

/// A non-blocking socket whose connection to `address` has begun.
///
/// # Errors
/// When the system has no socket left, or no route.
pub fn start_connect(address: SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    limit_send_buffer(&socket)?;
    if let Some(memory) = options.receive_buffer {
        // Before the connection: the scale of its windows is made to fit.
        limit_receive_buffer(&socket, memory)?;
    }
    if let Some(segment) = options.segment {
        socket.set_tcp_mss(segment)?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Connects to the first of `addresses` that answers, within `limit` for each.
///
/// # Errors
/// That of the last address; `TimedOut` when it did not answer in time; `AddrNotAvailable` when
/// there is none.
pub async fn connect(
    addresses: &[SocketAddr],
    limit: Duration,
    options: &ConnectOptions,
) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address is known");
    for &address in addresses {
        let attempt = async {
            let socket = start_connect(address, options)?;
            keepalive(&socket, KEEPALIVE)?;
            let stream = Stream::new(socket)?;
            stream.connected().await?;
            Ok(stream)
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        }
    }
    Err(last)
}

fn limit_send_buffer(socket: &Socket) -> io::Result<()> {
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_tcp_notsent_lowat(MAX_UNSENT)
}

/// Keeps the kernel from filling more than `memory` with what was received and not read. Where this process may not
/// have as much for certain (`rmem_max`, without `CAP_NET_ADMIN`), less would make it slow: the kernel sizes the
/// buffer then, as it does for others.
fn limit_receive_buffer(socket: &Socket, memory: usize) -> io::Result<()> {
    // The kernel doubles what it is told.
    let size = (memory / 2).min(libc::c_int::MAX as usize / 2) as libc::c_int;
    // SAFETY: the option is an int, and lives during the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    if rc == 0 || size > rmem_max() {
        return Ok(());
    }
    socket.set_recv_buffer_size(size as usize)
}

/// The most that `SO_RCVBUF` takes on this machine.
fn rmem_max() -> libc::c_int {
    static MAX: LazyLock<libc::c_int> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    });
    *MAX
}

/// Finds peers that vanished without a word (a machine without power): the first probe after
/// `idle`, three more at a third of it.
///
/// # Errors
/// When the socket is already gone.
pub fn keepalive(socket: &impl std::os::fd::AsFd, idle: Duration) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}
