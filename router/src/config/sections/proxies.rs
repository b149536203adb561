//! `[proxies]`: what stands between the clients and the gateway.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "proxies.trusted",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "HTTP proxies and load balancers in front of the gateway. Of a request that comes from \
            there, `X-Forwarded-For`, `-Proto`, `-Host` and `-Port` are believed: they go on to the \
            instance, and the right-most address that is not a trusted proxy's is the client's. From \
            everyone else they are replaced.",
    },
    Setting {
        path: "proxies.proxy_protocol",
        kind: Kind::Networks,
        default: Some("[]"),
        live: true,
        about: "Load balancers that pass TCP on and send the PROXY protocol, version 1 or 2. Each \
                connection from there must begin with its header, which says whose it is; from \
                everywhere else it is no request. Whether `proxies.trusted` \
                has it is then asked of the address in the header.",
    },
];

/// `[proxies]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxies {
    /// Where requests come from whose `X-Forwarded-` fields are believed.
    pub trusted: Vec<IpNet>,
    /// Where connections come from that begin with a header of the PROXY protocol.
    pub proxy_protocol: Vec<IpNet>,
}

impl Proxies {
    /// Whether `address` is a proxy whose `X-Forwarded-` fields are believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        contains(&self.trusted, address)
    }

    /// Whether connections from `address` begin with a header of the PROXY protocol.
    pub fn sends_header(&self, address: IpAddr) -> bool {
        contains(&self.proxy_protocol, address)
    }
}

/// Whether one of `networks` has this address. IPv4 addresses in IPv6 form are IPv4 addresses.
fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Proxies {
    Proxies { trusted: s.networks("trusted"), proxy_protocol: s.networks("proxy_protocol") }
}
