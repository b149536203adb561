//! Listening and connecting, with the options that the gateway needs.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use super::Stream;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted, per listener.
const BACKLOG: i32 = 4096;

/// Idle time after which a peer is probed: well below the lifetime of common firewalls' state.
pub const KEEPALIVE: Duration = Duration::from_secs(45);

/// Bytes that may wait in the kernel for a slow receiver, besides as much again for its own overhead.
/// Left to itself, the kernel would raise them to `tcp_wmem`, commonly 4 MiB. At a round trip of
/// 10 ms this still lets 50 MB/s through.
///
/// The receive buffer is left alone on purpose: with a fixed one, packets that turn out larger in
/// memory than expected are dropped when the reader stops, and the sender's retransmission timer
/// backs off to tens of seconds that a client feels when it reads on.
const SEND_BUFFER: usize = 512 * 1024;

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
    socket.set_send_buffer_size(SEND_BUFFER)?;
    if let Some(segment) = segment {
        socket.set_tcp_mss(segment)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
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

/// A non-blocking socket whose connection to `address` has begun. `segment` is that of [`listen`].
///
/// # Errors
/// When the system has no socket left, or no route.
pub fn start_connect(address: SocketAddr, segment: Option<u32>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    if let Some(segment) = segment {
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
    segment: Option<u32>,
) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address is known");
    for &address in addresses {
        let attempt = async {
            let socket = start_connect(address, segment)?;
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

/// Finds peers that vanished without a word (a machine without power): the first probe after
/// `idle`, three more at a third of it.
///
/// # Errors
/// When the socket is already gone.
pub fn keepalive(socket: &impl std::os::fd::AsFd, idle: Duration) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&probes)
}
