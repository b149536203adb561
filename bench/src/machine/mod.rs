//! The machine that measurements run on.

pub mod cpu;
pub mod daemon;
pub mod hosts;
pub mod memory;

use std::{io, net::SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// Descriptors that thousands of streams need, on both sides of a proxy.
const OPEN_FILES: u64 = 65_536;

/// Raises the limit of open files: to 65,536 where that is allowed, else to the most that is.
///
/// # Errors
/// When the system refuses its own maximum.
pub fn raise_open_files() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let wanted = maximum.map_or(OPEN_FILES, |maximum| maximum.max(OPEN_FILES));
    let limit = |value| Rlimit { current: value, maximum: value };
    if setrlimit(Resource::Nofile, limit(Some(wanted))).is_err() {
        setrlimit(Resource::Nofile, limit(maximum))?;
    }
    Ok(())
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

/// The machine in one line, for the head of a report.
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores ({model}), Linux {}", kernel.trim())
}
