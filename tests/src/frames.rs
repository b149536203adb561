//! Frames on a link as they are: taken, forged, and sent past the host's own stack.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::Instant,
};

use crate::{netns::Namespace, wait::DEADLINE, wire};

const ETHERNET: usize = 14;
/// The largest frame: an aggregate.
const LARGEST: usize = 80 * 1024;

/// A host's interface.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Takes what passes from now on.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn open(namespace: &Namespace, link: &str) -> Self {
        Self(namespace.run(|| wire::packets_of(link, false)))
    }

    /// The next segment that is wanted.
    ///
    /// # Panics
    /// When none comes.
    #[track_caller]
    pub fn take(&self, what: &str, wanted: impl Fn(&Segment) -> bool) -> Segment {
        let start = Instant::now();
        while let Some(left) = DEADLINE.checked_sub(start.elapsed()) {
            match self.next(left.as_millis() as i32).map(|frame| Segment::read(&frame)) {
                Some(Some(segment)) if wanted(&segment) => return segment,
                _ => {}
            }
        }
        panic!("not within {DEADLINE:?}: {what}");
    }

    /// A frame, if there is one within so many milliseconds.
    fn next(&self, patience: i32) -> Option<Vec<u8>> {
        let mut polled = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the one element lives during the call.
        if unsafe { libc::poll(&raw mut polled, 1, patience) } < 1 {
            return None;
        }
        let mut frame = vec![0; LARGEST];
        // SAFETY: the buffer is ours and as long as said.
        let n = unsafe {
            libc::recv(polled.fd, frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
        };
        frame.truncate(usize::try_from(n).ok()?);
        Some(frame)
    }

    /// Sends a frame.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the frame lives during the call.
        let rc = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(rc, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// A segment of TCP over IPv4, from its Ethernet header on, without a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    frame: Vec<u8>,
    /// Where its TCP header is.
    at: usize,
    /// Where its payload is.
    payload: usize,
}

impl Segment {
    /// RST and ACK.
    pub const RESET: u8 = 0x14;

    fn read(frame: &[u8]) -> Option<Self> {
        if frame.get(12..14)? != [8, 0] || *frame.get(ETHERNET + 9)? != 6 {
            return None;
        }
        let length = u16::from_be_bytes([frame[ETHERNET + 2], frame[ETHERNET + 3]]) as usize;
        let at = ETHERNET + (frame[ETHERNET] & 15) as usize * 4;
        let payload = at + (frame.get(at + 12)? >> 4) as usize * 4;
        // Behind a short one there is padding.
        let end = if length == 0 { frame.len() } else { ETHERNET + length };
        (payload <= end && end <= frame.len()).then(|| Self {
            frame: frame[..end].to_vec(),
            at,
            payload,
        })
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.frame[at..at + 4].try_into().expect("four bytes"))
    }

    /// The Ethernet address that it goes to.
    pub fn to(&self) -> [u8; 6] {
        self.frame[..6].try_into().expect("six bytes")
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.word(self.at + 4)
    }

    /// What it carries.
    pub fn payload(&self) -> &[u8] {
        &self.frame[self.payload..]
    }

    /// From the TCP header on.
    pub fn bytes(&self) -> &[u8] {
        &self.frame[self.at..]
    }

    /// Another one of its sender, right behind it.
    #[must_use]
    pub fn next(&self, flags: u8, payload: &[u8]) -> Self {
        self.at(self.number().wrapping_add(self.payload().len() as u32), flags, payload)
    }

    /// Another one of its sender, `ahead` bytes behind it.
    #[must_use]
    pub fn ahead(&self, ahead: u32, payload: &[u8]) -> Self {
        let end = self.number().wrapping_add(self.payload().len() as u32);
        self.at(end.wrapping_add(ahead), self.frame[self.at + 13], payload)
    }

    /// The same once more, with checksums that its sender may have left to the interface.
    #[must_use]
    pub fn again(&self) -> Self {
        self.at(self.number(), self.frame[self.at + 13], self.payload())
    }

    fn at(&self, number: u32, flags: u8, payload: &[u8]) -> Self {
        let mut next = self.clone();
        next.frame.truncate(self.payload);
        next.frame.extend(payload);
        next.frame[self.at + 4..self.at + 8].copy_from_slice(&number.to_be_bytes());
        next.frame[self.at + 13] = flags;
        let length = (next.frame.len() - ETHERNET) as u16;
        next.frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&length.to_be_bytes());
        next.set_checksum(ETHERNET + 10, &[], ETHERNET..self.at);
        // RFC 9293 section 3.1: the segment behind a pseudo header.
        let segment = length - (self.at - ETHERNET) as u16;
        let addresses = &self.frame[ETHERNET + 12..ETHERNET + 20];
        let pseudo = [addresses, &[0, 6], &segment.to_be_bytes()].concat();
        next.set_checksum(self.at + 16, &pseudo, self.at..next.frame.len());
        next
    }

    fn set_checksum(&mut self, at: usize, before: &[u8], of: std::ops::Range<usize>) {
        self.frame[at..at + 2].fill(0);
        let sum: u32 = [before, &self.frame[of]]
            .concat()
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        self.frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The frame, with tags of 802.1Q: the outermost first.
    pub fn tagged(&self, tags: &[u16]) -> Vec<u8> {
        let mut frame = self.frame[..12].to_vec();
        for tag in tags {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(&self.frame[12..]);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_segment() {
        // A SYN as tshark shows it, its checksums good.
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 42, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame
            .extend([0, 1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        frame.extend(b"ab");
        frame.extend([0; 4]);
        let first = Segment::read(&frame).unwrap();
        assert_eq!((first.number(), first.payload()), (u32::MAX, &b"ab"[..]));
        let next = first.next(0x10, b"xyz");
        assert_eq!((next.number(), next.payload(), next.frame[47]), (1, &b"xyz"[..], 0x10));
        assert_eq!(Segment::read(&next.tagged(&[])).unwrap(), next);
        assert!(Segment::read(&next.tagged(&[7])).is_none());
        // A sum over what holds its own checksum is zero.
        let (mut of_ip, mut of_all) = (next.clone(), next.clone());
        of_ip.set_checksum(12, &next.frame[ETHERNET..34], 0..0);
        assert_eq!(of_ip.frame[12..14], [0, 0]);
        let pseudo = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 23];
        of_all.set_checksum(12, &[&pseudo, &next.frame[34..]].concat(), 0..0);
        assert_eq!(of_all.frame[12..14], [0, 0]);
    }
}
