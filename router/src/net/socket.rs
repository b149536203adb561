//! Listening and connecting, with the options that the gateway needs.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Connections that may wait to be accepted, per listener.
const BACKLOG: i32 = 4096;

/// Opens one of several listeners that share `address` by SO_REUSEPORT: each worker thread has its
/// own, and the kernel spreads connections over them.
///
/// # Errors
/// When the address is not ours, or another program has it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `[::]` serves IPv4 as well, on every distribution, whatever its default.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A non-blocking socket whose connection to `address` has begun.
///
/// # Errors
/// When the system has no socket left, or no route.
pub fn start_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
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
