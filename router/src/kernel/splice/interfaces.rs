//! The network interfaces of this namespace: which of them get the programs, and news of them.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use netlink_packet_core::{NLM_F_DUMP, parse_string, parse_u32};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::kernel::netlink::{self, parts};

/// `RTMGRP_LINK`: an interface was added, changed or removed.
const LINKS: u32 = 1;

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    /// Its packets have an Ethernet header, as those of loopback do.
    ethernet: bool,
    /// The interface that it is a port of.
    port_of: Option<u32>,
    /// The one whose packets it takes a share of.
    below: Option<u32>,
    kind: String,
}

/// What is below an interface of these kinds gets their packets as well.
const SHARING: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "ipvtap"];
/// An interface over its ports that does not get their packets.
const VRF: &str = "vrf";

impl Interface {
    /// Reads what the kernel says of one: `struct ifinfomsg`, and attributes.
    fn read(message: &[u8]) -> Option<Self> {
        let (header, attributes) = message.split_at_checked(size_of::<libc::ifinfomsg>())?;
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let mut interface = Self {
            index: parse_u32(&header[4..8]).ok()?,
            ethernet: matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
            ..Self::default()
        };
        let (mut below, mut elsewhere) = (None, false);
        for (kind, value) in parts(attributes) {
            match kind {
                libc::IFLA_IFNAME => interface.name = parse_string(value).ok()?,
                libc::IFLA_MASTER => interface.port_of = parse_u32(value).ok(),
                libc::IFLA_LINK => below = parse_u32(value).ok(),
                libc::IFLA_LINK_NETNSID => elsewhere = true,
                libc::IFLA_LINKINFO => {
                    interface.kind = parts(value)
                        .find(|(kind, _)| *kind == libc::IFLA_INFO_KIND)
                        .and_then(|(_, value)| parse_string(value).ok())
                        .unwrap_or_default();
                }
                _ => {}
            }
        }
        // What is below one of those may be in another namespace, which has its own numbers.
        let shares = SHARING.contains(&&*interface.kind) && !elsewhere;
        interface.below = below.filter(|_| shares);
        Some(interface)
    }

    /// Whether it takes a share of the packets of an interface that is `taken`.
    pub(super) fn shares_with(&self, taken: impl Fn(u32) -> bool) -> bool {
        self.below.is_some_and(taken)
    }

    /// The interface that the network stack sees instead of this one.
    fn port_of<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        let over = all.iter().find(|other| Some(other.index) == self.port_of)?;
        (over.kind != VRF).then_some(over)
    }

    /// Whether it is a port of another one.
    pub(super) fn is_port(&self, all: &[Self]) -> bool {
        self.port_of(all).is_some()
    }

    /// Why the programs do not go on an interface, if they do not.
    ///
    /// A packet must meet them once on each way: on the interface that the network stack knows it by,
    /// and not on one below it as well, where the packet looks the same. (On the interface below one
    /// of a VLAN, it has a tag.)
    pub(super) fn unfit(&self, all: &[Self]) -> Option<String> {
        if !self.ethernet {
            return Some("its packets have no Ethernet header".to_owned());
        }
        if self.kind == VRF {
            return Some("its packets pass another interface".to_owned());
        }
        if let Some(over) = self.port_of(all) {
            return Some(format!("it is a port of {}", over.name));
        }
        let over = all.iter().find(|other| other.below == Some(self.index));
        over.map(|over| format!("it is shared with {}", over.name))
    }
}

/// All interfaces.
pub(super) fn all() -> io::Result<Vec<Interface>> {
    let message = [0; size_of::<libc::ifinfomsg>()];
    let mut found = Vec::new();
    netlink::request(
        &netlink::open(NETLINK_ROUTE)?,
        libc::RTM_GETLINK,
        NLM_F_DUMP,
        &message,
        |link| {
            found.extend(Interface::read(link));
        },
    )?;
    Ok(found)
}

/// Tells that interfaces have changed: readable then.
#[derive(Debug)]
pub(crate) struct News(Socket);

impl News {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, LINKS))?;
        Ok(Self(socket))
    }

    /// Takes what has come. What it says is looked up: some may be lost when much changes at once.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come.
    pub(crate) fn take(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut came = false;
        loop {
            match self.0.recv(&mut &mut buffer[..], libc::MSG_TRUNC) {
                Ok(_) => came = true,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => came = true,
                Err(error) if came && error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsRawFd for News {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for News {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found() {
        let all = all().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").expect("loopback");
        assert_eq!(lo.unfit(&all), None);
    }

    #[test]
    fn a_packet_meets_the_programs_once() {
        let ethernet = |index: u32, name: &str| Interface {
            index,
            name: name.to_owned(),
            ethernet: true,
            ..Interface::default()
        };
        let all = [
            ethernet(2, "eth0"),
            Interface { port_of: Some(4), ..ethernet(3, "veth1") },
            Interface { kind: "bridge".into(), ..ethernet(4, "br0") },
            Interface { kind: "vlan".into(), ..ethernet(5, "eth0.7") },
            Interface { port_of: Some(7), ..ethernet(6, "eth1") },
            Interface { kind: "vrf".into(), ..ethernet(7, "red") },
            Interface { ethernet: false, ..ethernet(8, "wg0") },
            ethernet(9, "eth2"),
            Interface { kind: "macvlan".into(), below: Some(9), ..ethernet(10, "mac0") },
        ];
        let unfit: Vec<_> =
            all.iter().filter_map(|one| Some((&*one.name, one.unfit(&all)?))).collect();
        let said =
            |name: &str| unfit.iter().find(|(other, _)| *other == name).map(|(_, why)| &**why);
        assert_eq!(said("veth1"), Some("it is a port of br0"));
        assert_eq!(said("red"), Some("its packets pass another interface"));
        assert_eq!(said("wg0"), Some("its packets have no Ethernet header"));
        assert_eq!(said("eth2"), Some("it is shared with mac0"));
        assert_eq!(unfit.len(), 4);
    }
}
