//! `[guard]`: the packet filter in front of the listeners.

use ipnet::IpNet;

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "guard.interfaces",
        kind: Kind::Interfaces,
        default: Some("[]"),
        live: false,
        about: "Network interfaces on which packets to the listeners are filtered before the \
                network stack sees them (XDP; needs `CAP_BPF`, `CAP_NET_ADMIN` and \
                `CAP_PERFMON`, not root). Empty turns the guard off.",
    },
    Setting {
        path: "guard.mode",
        kind: Kind::Choice(&["auto", "native", "generic"]),
        default: Some(r#""auto""#),
        live: false,
        about: "Where the filter sits: in the driver (`native`), after it (`generic`, works \
                everywhere, slower), or in the driver where that works (`auto`).",
    },
    Setting {
        path: "guard.allow",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "When not empty, only these sources reach the listeners.",
    },
    Setting {
        path: "guard.deny",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "Sources that never reach the listeners, also when `allow` has them.",
    },
    Setting {
        path: "guard.new_connections_per_second",
        kind: Kind::Integer { min: 0, max: 1_000_000, unit: "connections/s" },
        default: Some("0"),
        live: true,
        about: "New connections per second from one source address. 0 is no limit.",
    },
    Setting {
        path: "guard.burst",
        kind: Kind::Integer { min: 1, max: 1_000_000, unit: "connections" },
        default: Some("100"),
        live: true,
        about: "New connections that one source may open at once after a quiet time.",
    },
];

/// `[guard]`: off while `interfaces` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Network interfaces that get the filter.
    pub interfaces: Vec<String>,
    /// Where the filter sits.
    pub mode: GuardMode,
    /// When not empty, only these sources may send packets to the listeners.
    pub allow: Vec<IpNet>,
    /// Sources whose packets are dropped, also when `allow` has them.
    pub deny: Vec<IpNet>,
    /// New connections per second and source address; 0 for no limit.
    pub new_connections_per_second: u32,
    /// New connections that a source may open at once after a quiet time.
    pub burst: u32,
}

/// Where the packet filter sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMode {
    /// In the driver when it can, else generic.
    Auto,
    /// In the driver.
    Native,
    /// After the driver.
    Generic,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Guard {
    let modes =
        [("auto", GuardMode::Auto), ("native", GuardMode::Native), ("generic", GuardMode::Generic)];
    Guard {
        interfaces: s.interfaces("interfaces"),
        mode: s.choice("mode", &modes),
        allow: s.networks("allow"),
        deny: s.networks("deny"),
        new_connections_per_second: s.integer("new_connections_per_second"),
        burst: s.integer("burst"),
    }
}
