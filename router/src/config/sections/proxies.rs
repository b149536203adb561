//! `[proxies]`: what stands between the clients and the gateway.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[Setting {
    path: "proxies.trusted",
    kind: Kind::Networks,
    default: Some("[]"),
    live: true,
    about: "HTTP proxies and load balancers in front of the gateway. Of a request that comes from \
            there, `X-Forwarded-For`, `-Proto`, `-Host` and `-Port` are believed: they go on to the \
            instance, and the right-most address that is not a trusted proxy's is the client's. From \
            everyone else they are replaced.",
}];

/// `[proxies]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxies {
    /// Where requests come from whose `X-Forwarded-` fields are believed.
    pub trusted: Vec<IpNet>,
}

impl Proxies {
    /// Whether `address` is a proxy whose `X-Forwarded-` fields are believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        contains(&self.trusted, address)
    }
}

/// Whether one of `networks` has this address. IPv4 addresses in IPv6 form are IPv4 addresses.
fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Proxies {
    Proxies { trusted: s.networks("trusted") }
}
