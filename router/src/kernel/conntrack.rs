//! The kernel's connection tracking (netfilter), which firewalls ask whether a packet fits its connection.
//!
//! It follows both directions of a connection by what it sees of them. Of a connection between two sockets of
//! this host, one of which is spliced, it sees the one's packets before the programs have changed their
//! numbers, and the other's as they are on the wire. They would not fit each other, and rules such as `ct
//! state invalid drop` would drop them. So it is told to let the numbers of such a connection be.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::netlink;

/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_NEW` (linux/netfilter/nfnetlink.h and
/// nfnetlink_conntrack.h): without `NLM_F_CREATE`, a change of an entry that is there.
const CHANGE: u16 = 1 << 8;
/// Attributes of an entry.
const TUPLE: u16 = 1;
const PROTOCOL_INFO: u16 = 4;
/// Attributes of a tuple.
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// Attributes of a protocol's part.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// Attributes of what is known of TCP.
const TCP: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
/// `IP_CT_TCP_FLAG_BE_LIBERAL`: packets outside of the window fit as well.
const BE_LIBERAL: u8 = 8;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// A conversation with connection tracking, in the network namespace of the thread that began it.
pub(crate) struct Conntrack(Socket);

impl Conntrack {
    /// # Errors
    /// When the kernel has none that can be spoken to, which needs its module `nf_conntrack_netlink`, or this
    /// process may not: that takes `CAP_NET_ADMIN`.
    pub(crate) fn open() -> io::Result<Self> {
        let conntrack = netlink::open(NETLINK_NETFILTER).map(Self)?;
        // What answers a netlink socket at all is a part of netfilter that is there without connection tracking.
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        conntrack.ignore_numbers(nobody, nobody)?;
        Ok(conntrack)
    }

    /// Lets packets of a connection fit whatever their numbers are. False when it is not tracked.
    ///
    /// # Errors
    /// When the kernel refuses: this takes `CAP_NET_ADMIN`.
    pub(crate) fn ignore_numbers(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        match netlink::request(&self.0, CHANGE, NLM_F_ACK, &message(local, remote), |_| {}) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Names an entry by one of its directions, and says what is to change.
fn message(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let addresses = match (local.ip().to_canonical(), remote.ip().to_canonical()) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            [attribute(1, &local.octets()), attribute(2, &remote.octets())]
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            [attribute(3, &local.octets()), attribute(4, &remote.octets())]
        }
        // Sockets have both addresses of one kind.
        _ => [Vec::new(), Vec::new()],
    };
    let ports = [
        attribute(NUMBER, &[libc::IPPROTO_TCP as u8]),
        attribute(SOURCE_PORT, &local.port().to_be_bytes()),
        attribute(DESTINATION_PORT, &remote.port().to_be_bytes()),
    ];
    let tuple = [
        attribute(ADDRESSES | NESTED, &addresses.concat()),
        attribute(PROTOCOL | NESTED, &ports.concat()),
    ];
    // Flags, and which of them are meant.
    let flags = FLAGS.map(|direction| attribute(direction, &[BE_LIBERAL, BE_LIBERAL]));
    let tcp = attribute(TCP | NESTED, &flags.concat());
    let family = if local.ip().to_canonical().is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // `struct nfgenmsg`.
    let header = vec![family as u8, 0, 0, 0];
    let entry = [
        header,
        attribute(TUPLE | NESTED, &tuple.concat()),
        attribute(PROTOCOL_INFO | NESTED, &tcp),
    ];
    entry.concat()
}

/// One attribute, filled up to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Packets so far that fitted no connection, in the network namespace of the calling thread; `None` when
/// nothing is tracked.
pub(crate) fn invalid_packets() -> Option<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").ok()?;
    let mut lines = table.lines();
    let column = lines.next()?.split_whitespace().position(|name| name == "invalid")?;
    let of_processor =
        |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    Some(lines.filter_map(of_processor).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_tracked_is_no_error() {
        let socket = match Conntrack::open() {
            Ok(socket) => socket,
            Err(error) => return crate::testing::skip(error),
        };
        for (local, remote) in [("127.0.0.1:1", "127.0.0.9:2"), ("[::1]:1", "[::1]:2")] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            match socket.ignore_numbers(local, remote) {
                Ok(tracked) => assert!(!tracked),
                Err(error) => return crate::testing::skip(error),
            }
        }
    }
}
