//! The machine that measurements run on.

use std::{io, net::SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// Raises the limit of open files to what the system allows.
///
/// # Errors
/// When the system refuses its own maximum.
pub fn raise_open_files() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Listens on `address` with a backlog that a burst of thousands of connections fits in.
///
/// # Errors
/// When the address is taken or not of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(8192)
}
