//! Frames as drivers give them to programs.

use std::net::{IpAddr, SocketAddr};

use router_ebpf::splice::{packet::Packet, timestamps::Timestamps};
use tokio::net::TcpStream;

use crate::engine::Conn;

/// Where packets come from that a far end sends, and where they go to.
pub(super) type Ends = (SocketAddr, SocketAddr);

pub(super) fn ends(far: &TcpStream, near: &Conn) -> Result<Ends, String> {
    let ends = far.local_addr().and_then(|far| Ok((far, near.stream.local_addr()?)));
    ends.map_err(|error| error.to_string())
}

pub(super) const fn swapped((from, to): Ends) -> Ends {
    (to, from)
}

/// A segment on loopback, where there are no Ethernet addresses.
pub(super) fn frame((from, to): Ends, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    const HEADER: usize = 32;
    let mut tcp = Vec::with_capacity(HEADER + payload.len());
    tcp.extend(from.port().to_be_bytes());
    tcp.extend(to.port().to_be_bytes());
    tcp.extend(packet.seq.to_be_bytes());
    tcp.extend(packet.ack.to_be_bytes());
    tcp.extend([(HEADER as u8 / 4) << 4, packet.flags]);
    tcp.extend(packet.window.to_be_bytes());
    tcp.extend([0; 4]);
    let stamps = packet.timestamps.unwrap_or(Timestamps { value: 0, echo: 0 });
    tcp.extend([1, 1, 8, 10]);
    tcp.extend(stamps.value.to_be_bytes());
    tcp.extend(stamps.echo.to_be_bytes());
    tcp.extend(payload);
    let length = tcp.len() as u16;
    let (kind, mut ip, addresses) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start =
                [[0x45, 0].as_slice(), &(length + 20).to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0]];
            (0x0800_u16, start.concat(), [from.octets(), to.octets()].concat())
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let start = [[0x60, 0, 0, 0].as_slice(), &length.to_be_bytes(), &[6, 64]];
            (0x86dd, start.concat(), [octets(from), octets(to)].concat())
        }
    };
    ip.extend(&addresses);
    if kind == 0x0800 {
        let checksum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let checksum = checksum(&[&addresses, &[0, 6], &length.to_be_bytes(), &tcp]);
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    [[0; 12].as_slice(), &kind.to_be_bytes(), &ip, &tcp].concat()
}

/// The checksum of the Internet (RFC 1071); all parts but the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
