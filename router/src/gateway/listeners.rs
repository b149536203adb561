//! The addresses that clients connect to.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::Context as _;

use super::takeover::{Predecessor, Role};
use crate::net::socket;

/// Open listeners: each thread has one of its own for every address.
pub(super) struct Bound {
    pub(super) per_thread: Vec<Vec<TcpListener>>,
    /// The addresses, with the ports that the system chose where the configuration says 0.
    pub(super) addresses: Vec<SocketAddr>,
}

/// Listening sockets that the service manager has opened for this process, and keeps open while it is not there
/// (`sd_listen_fds(3)`).
///
/// # Errors
/// When one of them is no listener for TCP.
pub(super) fn activated(segment: Option<u32>) -> anyhow::Result<Vec<TcpListener>> {
    let descriptors = sd_notify::listen_fds().context("cannot read LISTEN_FDS")?;
    let take = |descriptor| {
        // SAFETY: it was opened for this process by who started it, and nobody else here knows it.
        let listener = unsafe { TcpListener::from_raw_fd(descriptor) };
        socket::adopt(&listener, segment)?;
        Ok(listener)
    };
    let taken = descriptors.map(take).collect::<io::Result<_>>();
    taken.context("a descriptor of LISTEN_FDS is no listening socket for TCP")
}

/// Binds all addresses for all threads, or none; those of a `predecessor` are taken over, and so are sockets that are
/// [open](activated) already. `segment` is that of [`socket::listen`].
pub(super) fn bind(
    addresses: &[SocketAddr],
    threads: usize,
    segment: Option<u32>,
    mut open: Vec<TcpListener>,
    mut predecessor: Option<&mut Predecessor>,
) -> anyhow::Result<Bound> {
    let mut bound = Bound {
        per_thread: (0..threads).map(|_| Vec::new()).collect(),
        addresses: Vec::with_capacity(addresses.len()),
    };
    for &address in addresses {
        let given = |it: &mut TcpListener| it.local_addr().is_ok_and(|at| at == address);
        let mut taken: Vec<_> = open.extract_if(.., given).collect();
        if let Some(predecessor) = &mut predecessor {
            // What the service manager has opened is the same socket.
            let handed = predecessor.listeners(Role::Clients, address);
            taken = if handed.is_empty() { taken } else { handed };
        }
        if !taken.is_empty() {
            share(taken, &mut bound.per_thread)
                .with_context(|| format!("cannot take over the listeners of {address}"))?;
            bound.addresses.push(address);
            continue;
        }
        // SO_REUSEPORT would let a second gateway of the same user share the port in silence, and
        // take half of the connections: a plain bind finds out first.
        socket::probe_free(address).map_err(|error| refused(address, "clients", error))?;
        let mut actual = address;
        for listeners in &mut bound.per_thread {
            let listener = socket::listen(actual, segment)
                .map_err(|error| refused(address, "clients", error))?;
            actual = listener.local_addr().context("a listener has no address")?;
            listeners.push(listener);
        }
        bound.addresses.push(actual);
    }
    for listener in open {
        let address = listener.local_addr().context("a listener has no address")?;
        tracing::warn!(%address, "the service manager has opened an address that `listen` does not name");
    }
    Ok(bound)
}

/// Gives each thread listeners of one address, and each listener a thread: nobody else accepts what waits there.
fn share(listeners: Vec<TcpListener>, threads: &mut [Vec<TcpListener>]) -> io::Result<()> {
    let first = listeners.len();
    let more: Vec<_> = (first..threads.len())
        .map(|index| listeners[index % first].try_clone())
        .collect::<io::Result<_>>()?;
    let count = threads.len();
    for (index, listener) in listeners.into_iter().chain(more).enumerate() {
        threads[index % count].push(listener);
    }
    Ok(())
}

/// Listens on the only address of its kind, or takes it over from a `predecessor`.
pub(super) fn single(
    address: SocketAddr,
    role: Role,
    predecessor: Option<&mut Predecessor>,
) -> anyhow::Result<TcpListener> {
    let taken = predecessor.and_then(|it| it.listeners(role, address).pop());
    let whom = match role {
        Role::Clients => "clients",
        Role::Admin => "the admin pages",
        Role::Control => "the control API",
    };
    match taken {
        Some(listener) => Ok(listener),
        None => TcpListener::bind(address).map_err(|error| refused(address, whom, error)),
    }
}

/// What is wrong with an address to listen on, and what to do about it.
pub(super) fn refused(address: SocketAddr, whom: &str, error: io::Error) -> anyhow::Error {
    let port = address.port();
    let advice = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            format!("another program has the port; `ss -ltnp 'sport = :{port}'` names it")
        }
        Some(libc::EACCES) if port < 1024 => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE, or a lower \
             net.ipv4.ip_unprivileged_port_start"
                .to_owned()
        }
        Some(libc::EACCES) => "a security policy of this host forbids it".to_owned(),
        Some(libc::EADDRNOTAVAIL) => {
            "no interface of this host has that address; `ip address` lists those it has".to_owned()
        }
        Some(libc::EAFNOSUPPORT) => "this host has IPv6 turned off".to_owned(),
        _ => {
            return anyhow::Error::new(error)
                .context(format!("cannot listen on {address} for {whom}"));
        }
    };
    anyhow::anyhow!("cannot listen on {address} for {whom}: {error}: {advice}")
}

/// Raises the soft limit of open descriptors to the hard one: each exchange needs two.
pub(super) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the call to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return;
    }
    let wanted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: `wanted` is valid for the call to read.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, limit = limit.rlim_cur, "cannot raise the limit of open files");
    }
}

/// Descriptors for which there is room in the table from the start: 128 KiB of kernel memory.
const DESCRIPTORS: i32 = 16 * 1024;

/// Lets the kernel grow the table of descriptors while there is only one thread. Later, each
/// doubling makes the thread that opens a descriptor wait for an RCU grace period, and with it all
/// the streams of that thread: tens of milliseconds each on the way to a thousand connections.
pub(super) fn grow_descriptor_table() {
    let Ok(file) = std::fs::File::open("/dev/null") else { return };
    // SAFETY: a plain call on a descriptor that is open; the limit may be lower than what is asked
    // for, then nothing happens.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, DESCRIPTORS - 1) };
    if high >= 0 {
        // SAFETY: the descriptor has just been made here, and nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(high) });
    }
}
