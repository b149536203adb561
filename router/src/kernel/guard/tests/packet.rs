//! Packets, right and wrong, byte by byte. Checksums are zero: the guard does not look at them.

use std::net::IpAddr;

pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;

/// A TCP segment in an Ethernet frame, to be altered.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    ether_type: u16,
    tags: Vec<u16>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    options: usize,
    fragment: u16,
    /// Extension headers: the type, and the whole of it with a next header of zero.
    extensions: Vec<(u8, Vec<u8>)>,
    port: u16,
    flags: u8,
    tcp_options: usize,
    bytes: Vec<(usize, u8)>,
    cut: usize,
}

impl Packet {
    pub(super) fn tcp(source: &str, destination: &str, port: u16, flags: u8) -> Self {
        let source: IpAddr = source.parse().unwrap();
        Self {
            ether_type: if source.is_ipv4() { 0x0800 } else { 0x86dd },
            tags: Vec::new(),
            source,
            destination: destination.parse().unwrap(),
            protocol: 6,
            options: 0,
            fragment: 0,
            extensions: Vec::new(),
            port,
            flags,
            tcp_options: 0,
            bytes: Vec::new(),
            cut: usize::MAX,
        }
    }

    pub(super) fn ether_type(mut self, value: u16) -> Self {
        self.ether_type = value;
        self
    }

    /// VLAN tags by their Ethernet types, outermost first.
    pub(super) fn tags(mut self, types: &[u16]) -> Self {
        self.tags = types.to_vec();
        self
    }

    pub(super) fn protocol(mut self, number: u8) -> Self {
        self.protocol = number;
        self
    }

    /// IPv4 options of that many bytes.
    pub(super) fn options(mut self, length: usize) -> Self {
        self.options = length;
        self
    }

    pub(super) fn tcp_options(mut self, length: usize) -> Self {
        self.tcp_options = length;
        self
    }

    /// The flags and the fragment offset of IPv4.
    pub(super) fn fragment(mut self, word: u16) -> Self {
        self.fragment = word;
        self
    }

    /// A fragment header, the offset in units of eight bytes.
    pub(super) fn fragment6(mut self, offset: u16, more: bool) -> Self {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        self.extensions.push((44, vec![0, 0, high, low, 0, 0, 0, 1]));
        self
    }

    /// Extension headers of those types, of the smallest size; fragment headers are first fragments.
    pub(super) fn extensions(mut self, types: &[u8]) -> Self {
        for &kind in types {
            let header = match kind {
                44 => vec![0, 0, 0, 1, 0, 0, 0, 1],
                // Its length is in words of four bytes, less two.
                51 => [&[0, 4][..], &[0; 22]].concat(),
                _ => vec![0; 8],
            };
            self.extensions.push((kind, header));
        }
        self
    }

    /// One extension header of `(words + 1) * 8` bytes.
    pub(super) fn long_extension(mut self, kind: u8, words: u8) -> Self {
        let mut header = vec![0; (usize::from(words) + 1) * 8];
        header[1] = words;
        self.extensions.push((kind, header));
        self
    }

    /// Changes one byte.
    pub(super) fn byte(mut self, at: usize, value: u8) -> Self {
        self.bytes.push((at, value));
        self
    }

    /// Leaves only so many bytes.
    pub(super) fn cut(mut self, length: usize) -> Self {
        self.cut = length;
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 42]);
        }
        frame.extend(self.ether_type.to_be_bytes());
        let segment = self.segment();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = 20 + self.options;
                let total = u16::try_from(header + segment.len()).unwrap();
                frame.extend([0x40 | (header / 4) as u8, 0]);
                frame.extend(total.to_be_bytes());
                frame.extend([0, 1]);
                frame.extend(self.fragment.to_be_bytes());
                frame.extend([64, self.protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                // No-operation options.
                frame.extend(vec![1; self.options]);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut types: Vec<u8> = self.extensions.iter().map(|(kind, _)| *kind).collect();
                types.push(self.protocol);
                let length: usize = self.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
                frame.extend([0x60, 0, 0, 0]);
                frame.extend(u16::try_from(length + segment.len()).unwrap().to_be_bytes());
                frame.extend([types[0], 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                for ((_, header), next) in self.extensions.iter().zip(&types[1..]) {
                    frame.push(*next);
                    frame.extend(&header[1..]);
                }
            }
            _ => panic!("addresses of two families"),
        }
        frame.extend(segment);
        for &(at, value) in &self.bytes {
            frame[at] = value;
        }
        frame.truncate(self.cut);
        frame
    }

    fn segment(&self) -> Vec<u8> {
        let mut segment = Vec::new();
        segment.extend(40_000u16.to_be_bytes());
        segment.extend(self.port.to_be_bytes());
        segment.extend([0; 8]);
        segment.extend([((5 + self.tcp_options / 4) << 4) as u8, self.flags]);
        segment.extend([0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(vec![1; self.tcp_options]);
        segment
    }
}
