//! From a packet to the TCP segment in it: Ethernet, VLAN tags, IPv4 or IPv6 with their options and
//! extension headers.
//!
//! Fragments: the first one carries the ports, and is judged by them; without it the others are
//! never put together, so they pass. A first fragment that ends before the TCP flags counts as a new
//! connection, since it may be one.

use aya_ebpf::programs::XdpContext;
use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    vlan::VlanHdr,
};
use router_ebpf::guard_rules::{
    KEY, MAX_EXTENSION_BYTES, MAX_EXTENSIONS, MAX_TAGS, key_v4, key_v6,
};

/// What a packet is to the guard.
pub(super) enum Parsed {
    /// Neither IP nor TCP.
    Other,
    /// IP, but cut short, malformed, or a fragment without ports.
    Unparsed,
    /// A TCP segment, or the beginning of one.
    Tcp(Segment),
}

/// What the guard needs to know of a segment.
pub(super) struct Segment {
    pub(super) source: Address,
    pub(super) destination: Address,
    pub(super) source_port: u16,
    /// The destination's port; `None` if too many extension headers are in front of it.
    pub(super) port: Option<u16>,
    /// Whether it opens a connection, or may do so.
    pub(super) opens: bool,
}

/// An IP address, in network order.
#[derive(Clone, Copy)]
pub(super) enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Address {
    #[inline(always)]
    pub(super) fn key(&self, port: u16) -> [u8; KEY] {
        match *self {
            Self::V4(address) => key_v4(address, port),
            Self::V6(address) => key_v6(address, port),
        }
    }
}

/// The bytes of a packet.
struct Packet {
    start: usize,
    end: usize,
}

impl Packet {
    /// A header at `offset`, if the packet holds all of it.
    #[inline(always)]
    fn read<T: Copy>(&self, offset: usize) -> Option<T> {
        let at = self.start + offset;
        if at + size_of::<T>() > self.end {
            return None;
        }
        // SAFETY: The bytes are within the packet, and headers are plain integers.
        Some(unsafe { (at as *const T).read_unaligned() })
    }
}

#[inline(always)]
pub(super) fn parse(ctx: &XdpContext) -> Parsed {
    let packet = Packet { start: ctx.data(), end: ctx.data_end() };
    let Some(ethernet) = packet.read::<EthHdr>(0) else {
        return Parsed::Other;
    };
    let mut ether_type = ethernet.ether_type;
    let mut offset = EthHdr::LEN;
    for _ in 0..MAX_TAGS {
        if !is_tag(ether_type) {
            break;
        }
        let Some(tag) = packet.read::<VlanHdr>(offset) else {
            return Parsed::Other;
        };
        ether_type = tag.ether_type;
        offset += VlanHdr::LEN;
    }
    if ether_type == EtherType::Ipv4 as u16 {
        ipv4(&packet, offset)
    } else if ether_type == EtherType::Ipv6 as u16 {
        ipv6(&packet, offset)
    } else if is_tag(ether_type) {
        Parsed::Unparsed
    } else {
        Parsed::Other
    }
}

#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    ether_type == EtherType::Ieee8021q as u16 || ether_type == EtherType::Ieee8021ad as u16
}

#[inline(always)]
fn ipv4(packet: &Packet, offset: usize) -> Parsed {
    let Some(header) = packet.read::<Ipv4Hdr>(offset) else {
        return Parsed::Unparsed;
    };
    if header.proto != IpProto::Tcp as u8 {
        return Parsed::Other;
    }
    // `ihl` is in bytes, and at most 60.
    let length = header.ihl() as usize;
    if header.version() != 4 || length < Ipv4Hdr::LEN || header.frag_offset() != 0 {
        return Parsed::Unparsed;
    }
    const MORE_FRAGMENTS: u8 = 1;
    let is_fragment = header.frag_flags() & MORE_FRAGMENTS != 0;
    let source = Address::V4(header.src_addr);
    let destination = Address::V4(header.dst_addr);
    tcp(packet, offset + length, source, destination, is_fragment)
}

#[inline(always)]
fn ipv6(packet: &Packet, offset: usize) -> Parsed {
    let Some(header) = packet.read::<Ipv6Hdr>(offset) else {
        return Parsed::Unparsed;
    };
    if header.version() != 6 {
        return Parsed::Unparsed;
    }
    let source = Address::V6(header.src_addr);
    let destination = Address::V6(header.dst_addr);
    let mut next = header.next_hdr;
    let mut offset = offset + Ipv6Hdr::LEN;
    let limit = offset + MAX_EXTENSION_BYTES as usize;
    let mut is_fragment = false;
    for _ in 0..=MAX_EXTENSIONS {
        if next == IpProto::Tcp as u8 {
            return tcp(packet, offset, source, destination, is_fragment);
        }
        let kind = Extension::of(next);
        if matches!(kind, Extension::None) {
            return Parsed::Other;
        }
        if offset > limit {
            break;
        }
        // Next header, length, and (in a fragment header) offset and flags (RFC 8200 section 4).
        let Some([follows, length, high, low]) = packet.read::<[u8; 4]>(offset) else {
            return Parsed::Unparsed;
        };
        next = follows;
        offset += match kind {
            Extension::Fragment => {
                let fragment = u16::from_be_bytes([high, low]);
                if fragment >> 3 != 0 {
                    return if next == IpProto::Tcp as u8 {
                        Parsed::Unparsed
                    } else {
                        Parsed::Other
                    };
                }
                is_fragment |= fragment & 1 != 0;
                8
            }
            Extension::Authentication => (length as usize + 2) * 4,
            _ => (length as usize + 1) * 8,
        };
    }
    Parsed::Tcp(Segment { source, destination, source_port: 0, port: None, opens: true })
}

/// How the length of an extension header is written.
enum Extension {
    /// It is none.
    None,
    /// Always eight bytes (RFC 8200 section 4.5).
    Fragment,
    /// In words of four bytes, less two (RFC 4302 section 2.2).
    Authentication,
    /// In words of eight bytes, less one.
    Usual,
}

impl Extension {
    #[inline(always)]
    fn of(next: u8) -> Self {
        const HOP_BY_HOP: u8 = IpProto::HopOpt as u8;
        const ROUTING: u8 = IpProto::Ipv6Route as u8;
        const FRAGMENT: u8 = IpProto::Ipv6Frag as u8;
        const AUTHENTICATION: u8 = IpProto::Ah as u8;
        const DESTINATION: u8 = IpProto::Ipv6Opts as u8;
        const MOBILITY: u8 = 135;
        const HOST_IDENTITY: u8 = IpProto::Hip as u8;
        const SHIM6: u8 = IpProto::Shim6 as u8;
        match next {
            FRAGMENT => Self::Fragment,
            AUTHENTICATION => Self::Authentication,
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6 => Self::Usual,
            _ => Self::None,
        }
    }
}

#[inline(always)]
fn tcp(
    packet: &Packet,
    offset: usize,
    source: Address,
    destination: Address,
    is_fragment: bool,
) -> Parsed {
    let Some([a, b, c, d]) = packet.read::<[u8; 4]>(offset) else {
        return Parsed::Unparsed;
    };
    let opens = match packet.read::<TcpHdr>(offset) {
        Some(header) => header.syn() != 0 && header.ack() == 0,
        None if is_fragment => true,
        None => return Parsed::Unparsed,
    };
    let (source_port, port) = (u16::from_be_bytes([a, b]), Some(u16::from_be_bytes([c, d])));
    Parsed::Tcp(Segment { source, destination, source_port, port, opens })
}
