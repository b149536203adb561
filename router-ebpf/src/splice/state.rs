//! The state of a connection and of a spliced pair.
//!
//! *Wire* numbers are what the peers see, *socket* numbers what the gateway's sockets believe. A
//! *position* is a byte's place in the spliced range, in 64 bits: the first byte spliced is at 0.

use super::seq;
use super::window;
use crate::framing::Framing;

/// Who moves the bytes of the pair, in [`word`].
pub mod mode {
    /// The sockets do, with their permanent offsets.
    pub const PASS: u64 = 0;
    /// The source's packets go to the receiver.
    pub const LIVE: u64 = 1;
    /// The last byte went to the receiver, which has not acknowledged everything yet.
    pub const DRAIN: u64 = 2;
    /// The entry is no longer of this connection.
    pub const DEAD: u64 = 3;
}

/// The hand-over word of a source: mode (bits 62 and 63), generation (bits 32 to 61), and the wire
/// number after the highest byte that was passed to the socket (bits 0 to 31).
pub mod word {
    use super::seq;

    /// Largest generation.
    pub const GENERATIONS: u64 = (1 << 30) - 1;

    /// Puts the word together.
    #[inline(always)]
    pub const fn pack(mode: u64, generation: u64, seen: u32) -> u64 {
        (mode & 3) << 62 | (generation & GENERATIONS) << 32 | seen as u64
    }

    /// One of [`mode`](super::mode).
    #[inline(always)]
    pub const fn mode(word: u64) -> u64 {
        word >> 62
    }

    /// The generation of the entry.
    #[inline(always)]
    pub const fn generation(word: u64) -> u64 {
        word >> 32 & GENERATIONS
    }

    /// The wire number after the highest byte passed.
    #[inline(always)]
    pub const fn seen(word: u64) -> u32 {
        word as u32
    }

    /// The word in another mode.
    #[inline(always)]
    pub const fn with_mode(word: u64, mode: u64) -> u64 {
        pack(mode, generation(word), seen(word))
    }

    /// The word after a packet that ends at `end` was passed to the socket.
    #[inline(always)]
    pub const fn passed(word: u64, end: u32) -> u64 {
        pack(mode(word), generation(word), seq::later(seen(word), end))
    }
}

/// What is known of one of the gateway's sockets and its peer. All numbers are wire numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// Wire minus socket, of what the socket sends.
    pub tx: u32,
    /// Wire minus socket, of what it receives.
    pub rx: u32,
    /// The number after the last byte that the socket sent.
    pub next: u32,
    /// The last acknowledgement that it sent.
    pub own_ack: u32,
    /// The right edge that it has promised its peer.
    pub own_edge: u32,
    /// The right edge that the peer has promised.
    pub peer_edge: u32,
    /// Added to the socket's timestamps.
    pub ts_offset: u32,
    /// The last timestamp that the peer was sent, by whomever.
    pub ts_last: u32,
    /// The last timestamp that went out with a packet of the socket itself: what is forwarded to the
    /// peer is not before it.
    pub ts_floor: u32,
    /// The socket's own last timestamp, as the socket had it.
    pub ts_own: u32,
    /// The peer's latest timestamp.
    pub ts_peer: u32,
    /// The last window field that it sent.
    pub own_window: u16,
    /// Scale of the socket's window fields.
    pub scale_own: u8,
    /// Scale of the peer's.
    pub scale_peer: u8,
    /// Not zero: the socket waits for an answer of its peer, and must see the next one.
    pub asks: u32,
    /// Not zero: it has been a receiver's, and may believe in a larger window than its peer has announced. For
    /// good: while it sends, an acknowledgement that tells it better may have to wait for it.
    pub doubt: u32,
    /// The most bytes that the socket's own packets announce as its window, however large it is; 0 for no
    /// limit.
    pub limit: u32,
    /// The highest number that one of its packets had, or one in its name.
    pub number: u32,
}

/// No end is known.
pub const UNKNOWN: u64 = u64::MAX;
/// The source's FIN is the end: any number of bytes may come, and none of them needs to be parsed.
pub const UNTIL_CLOSE: u64 = 1 << 62;

/// What is spliced between a source and a receiver.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Bytes from the first one spliced to the highest one forwarded.
    pub forwarded: u64,
    /// How many of them the receiver has acknowledged.
    pub acked: u64,
    /// How many there will be, or [`UNKNOWN`].
    pub length: u64,
    /// Up to where a body without a known length was parsed.
    pub parsed: u64,
    /// The receiver's right edge, a position.
    pub edge: i64,
    /// The right edge that the source was promised, a position.
    pub promised: i64,
    /// Bytes that the source's socket takes beyond what was forwarded, if the splice ends there.
    pub room: i64,
    /// How many of them the source is promised at most: more when it makes use of them.
    pub offer: i64,
    /// How many it is promised beyond a known end.
    pub behind: i64,
    /// Where the body stands at `parsed`.
    pub framing: Framing,
    /// Position 0 as the source numbers it.
    pub h: u32,
    /// Position 0 as the receiver sees it.
    pub a: u32,
    /// Position 0 as the source's socket has it: what it receives next.
    pub h_socket: u32,
    /// Position 0 as the receiver's socket has it: what it sends next.
    pub a_socket: u32,
    /// From the source's timestamps to those that the receiver gets.
    pub ts_forth: u32,
    /// From the receiver's timestamps to those that the source gets.
    pub ts_back: u32,
    /// The source's timestamp at the hand-over.
    pub oldest_source: u32,
    /// The receiver's timestamp at the hand-over.
    pub oldest_receiver: u32,
}

/// What is to be done with a packet's payload before the packet may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Known,
    /// After so many bytes it is to be parsed. If that cannot be done at once, as with a hole.
    Parse(u32),
    /// Bytes before it are missing. It must not be forwarded: the program stops ([`Pair::stop`]) and passes
    /// the packet to the socket.
    Hole,
}

impl Splice {
    /// Nothing is spliced.
    pub const NONE: Self = Self {
        forwarded: 0,
        acked: 0,
        length: 0,
        parsed: 0,
        edge: 0,
        promised: 0,
        room: 0,
        offer: 0,
        behind: 0,
        framing: Framing::none(),
        h: 0,
        a: 0,
        h_socket: 0,
        a_socket: 0,
        ts_forth: 0,
        ts_back: 0,
        oldest_source: 0,
        oldest_receiver: 0,
    };

    /// The position of a number of the source.
    #[inline(always)]
    pub const fn position(&self, number: u32) -> i64 {
        let forwarded = self.forwarded as i64;
        forwarded + seq::distance(seq::shift(self.h, forwarded), number)
    }

    /// The position of a number that the receiver acknowledges.
    #[inline(always)]
    pub const fn ack_position(&self, number: u32) -> i64 {
        let forwarded = self.forwarded as i64;
        forwarded + seq::distance(seq::shift(self.a, forwarded), number)
    }

    /// The number that the source's socket gives a position: for the socket, the spliced range has no
    /// length.
    #[inline(always)]
    pub const fn in_source_socket(&self, position: i64) -> u32 {
        seq::shift(self.h_socket, self.without_carried(position))
    }

    /// The number that the receiver's socket gives an acknowledged position.
    #[inline(always)]
    pub const fn in_receiver_socket(&self, position: i64) -> u32 {
        seq::shift(self.a_socket, self.without_carried(position))
    }

    #[inline(always)]
    const fn without_carried(&self, position: i64) -> i64 {
        let forwarded = self.forwarded as i64;
        if position <= 0 {
            position
        } else if position <= forwarded {
            0
        } else {
            position - forwarded
        }
    }

    /// Whether bytes up to `end` may be forwarded: with an unknown length only what was parsed.
    #[inline(always)]
    pub const fn may_forward(&self, end: i64) -> bool {
        self.length != UNKNOWN || end <= self.parsed as i64
    }

    /// What must be done with a packet's payload first. Bytes to be parsed are fed to
    /// [`Splice::framing`] and reported with [`Splice::parse`].
    #[inline(always)]
    pub const fn look(&self, number: u32, len: u32) -> Look {
        let at = self.position(number);
        let end = at + len as i64;
        let parsed = self.parsed as i64;
        if self.length != UNKNOWN || at < 0 || end <= parsed || end > self.promised {
            return Look::Known;
        }
        if at <= parsed { Look::Parse((parsed - at) as u32) } else { Look::Hole }
    }

    /// Notes that `bytes` more went through [`Splice::framing`].
    #[inline(always)]
    pub const fn parse(&mut self, bytes: u64) {
        self.parsed += bytes;
        if self.framing.is_done() {
            self.length = self.parsed;
        }
    }
}

/// What a socket can send again without hearing of it: the receiver acknowledges numbers that the socket
/// has not sent yet, which it takes for nothing until it has sent as much.
pub const MAX_RETRACT_BYTES: u64 = 10 * 1400;

/// Why a pair cannot be handed over now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pair is spliced already, or not drained.
    Busy,
    /// More has been passed to the source's socket than was forwarded.
    Behind,
    /// The receiver's window does not reach as far as what the source was promised.
    Window,
}

/// Two connections that can be spliced.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// See [`word`].
    pub word: u64,
    /// The socket whose peer sends.
    pub source: Socket,
    /// The socket whose peer receives.
    pub receiver: Socket,
    /// The spliced range.
    pub splice: Splice,
}

impl Pair {
    /// A pair that nothing is known of.
    pub const fn new(source: Socket, receiver: Socket, generation: u64, seen: u32) -> Self {
        let splice = Splice::NONE;
        Self { word: word::pack(mode::PASS, generation, seen), source, receiver, splice }
    }

    /// One of [`mode`].
    #[inline(always)]
    pub const fn mode(&self) -> u64 {
        word::mode(self.word)
    }

    /// Fills in a splice from source number `h` on, which the receiver gets as `a`, and returns the
    /// word that the hand-over's compare-and-swap expects and the one that it puts there.
    ///
    /// `length` is the number of bytes left of the body, or [`UNKNOWN`], when `framing` tells the end.
    ///
    /// # Errors
    /// When it cannot be now; the splice is unchanged.
    pub fn prepare(
        &mut self,
        h: u32,
        a: u32,
        length: u64,
        framing: Framing,
    ) -> Result<(u64, u64), Refusal> {
        if self.mode() != mode::PASS {
            return Err(Refusal::Busy);
        }
        if word::seen(self.word) != h {
            return Err(Refusal::Behind);
        }
        let edge = seq::distance(a, self.receiver.peer_edge);
        let promised = seq::distance(h, self.source.own_edge);
        if edge < promised {
            return Err(Refusal::Window);
        }
        let own = window::bytes(self.source.own_window, self.source.scale_own);
        self.splice = Splice {
            forwarded: 0,
            acked: 0,
            length,
            parsed: 0,
            edge,
            promised,
            room: own,
            offer: own,
            behind: own,
            framing,
            h,
            a,
            h_socket: h.wrapping_sub(self.source.rx),
            a_socket: a.wrapping_sub(self.receiver.tx),
            ts_forth: self.receiver.ts_last.wrapping_sub(self.source.ts_peer),
            ts_back: self.source.ts_last.wrapping_sub(self.receiver.ts_peer),
            oldest_source: self.source.ts_peer,
            oldest_receiver: self.receiver.ts_peer,
        };
        // What the receiver's socket has sent may not be acknowledged yet.
        self.receiver.asks = 1;
        self.source.asks = 0;
        let generation = word::generation(self.word);
        Ok((word::pack(mode::PASS, generation, h), word::pack(mode::LIVE, generation, h)))
    }

    /// Notes that the source has sent up to `end`.
    #[inline(always)]
    pub(crate) fn forwards(&mut self, end: i64) {
        let splice = &mut self.splice;
        if end <= splice.forwarded as i64 {
            return;
        }
        splice.forwarded = end as u64;
        let promised = splice.promised;
        let most = 2 * (promised - end) < splice.offer;
        let known = splice.offer <= promised - splice.acked as i64;
        if most && known && splice.offer < splice.room {
            // It could make use of more, and it is the offer that holds it.
            let twice = 2 * splice.offer;
            splice.offer = if twice < splice.room { twice } else { splice.room };
        }
    }

    /// Takes note that the source's socket takes `bytes` more than what its peer has sent to it, which it
    /// has not announced.
    #[inline(always)]
    pub fn widen(&mut self, bytes: i64) {
        if self.mode() == mode::LIVE && bytes > self.splice.room {
            self.splice.room = bytes;
        }
    }

    /// Ends the splice at the highest byte forwarded: LIVE → DRAIN, or PASS at once when nothing was
    /// forwarded. Says whether it was live.
    #[inline(always)]
    pub fn stop(&mut self) -> bool {
        if self.mode() != mode::LIVE {
            return false;
        }
        self.splice.length = self.splice.forwarded;
        self.end();
        if self.splice.acked == self.splice.length {
            // Nobody is left who would send the acknowledgement that ends the draining.
            self.word = word::with_mode(self.word, mode::PASS);
            self.receiver.asks = 0;
        }
        true
    }

    /// Takes back that anything was forwarded, if the receiver has acknowledged nothing and was not sent
    /// more than [`MAX_RETRACT_BYTES`]: the source repeats it, for its socket then. Says whether it can be.
    ///
    /// What the receiver got all the same its socket sends again, with the same numbers.
    #[inline(always)]
    pub fn retract(&mut self, framing: Framing) -> bool {
        let splice = &mut self.splice;
        if word::mode(self.word) != mode::LIVE
            || splice.acked != 0
            || splice.forwarded > MAX_RETRACT_BYTES
        {
            return false;
        }
        splice.forwarded = 0;
        splice.parsed = 0;
        splice.framing = framing;
        true
    }

    /// Whether a packet of the source can be from it, by its acknowledgement. Nothing else is to be done
    /// with one that cannot.
    #[inline(always)]
    pub const fn accepts(&self, acknowledgement: u32) -> bool {
        !seq::before(self.source.next, acknowledgement)
    }

    /// LIVE → DRAIN: offsets first, mode after them. Both sockets go on behind the range.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        let spliced = self.splice.length as u32;
        self.source.rx = self.source.rx.wrapping_add(spliced);
        self.receiver.tx = self.receiver.tx.wrapping_add(spliced);
        // Numbers that nobody has moved along while it lasted; from 2 GiB on they would seem to be later.
        self.receiver.next = self.splice.a.wrapping_add(spliced);
        self.receiver.number = self.receiver.next;
        self.source.number = self.source.next;
        self.receiver.doubt = 1;
        self.source.own_ack = self.splice.h.wrapping_add(spliced);
        self.source.own_edge = seq::shift(self.splice.h, self.splice.promised);
        self.word = word::pack(
            mode::DRAIN,
            word::generation(self.word),
            self.splice.h.wrapping_add(spliced),
        );
    }

    /// The window field for the source, with an acknowledgement up to `position`.
    #[inline(always)]
    pub(crate) fn window_for_source(&mut self, position: i64) -> u16 {
        let splice = &mut self.splice;
        let limit = splice.forwarded as i64 + splice.offer;
        // No end that is known lies so far away that this could overflow.
        let behind = splice.length as i64 + splice.behind;
        let known = splice.length < UNTIL_CLOSE;
        let limit = if known && behind < limit { behind } else { limit };
        splice.promised = window::promise(splice.promised, splice.edge, limit);
        window::raw(self.splice.promised - position, self.source.scale_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_their_parts() {
        let packed = word::pack(mode::DRAIN, 77, 0xffff_fff0);
        assert_eq!(word::mode(packed), mode::DRAIN);
        assert_eq!(word::generation(packed), 77);
        assert_eq!(word::seen(packed), 0xffff_fff0);
        assert_eq!(word::seen(word::passed(packed, 5)), 5);
        assert_eq!(word::seen(word::passed(packed, 0xffff_ff00)), 0xffff_fff0);
        assert_eq!(word::mode(word::with_mode(packed, mode::DEAD)), mode::DEAD);
    }

    /// As if nothing had been handed over.
    #[test]
    fn what_nobody_acknowledges_is_taken_back() {
        let mut pair = Pair::new(Socket::default(), Socket::default(), 1, 100);
        (pair.receiver.peer_edge, pair.source.own_edge) = (2000, 900);
        pair.prepare(100, 1000, 5000, Framing::none()).unwrap();
        assert!(!pair.retract(Framing::none()), "not live");
        pair.word = word::with_mode(pair.word, mode::LIVE);
        pair.splice.forwarded = 700;
        let mut acknowledged = pair;
        acknowledged.splice.acked = 1;
        assert!(!acknowledged.retract(Framing::none()));
        assert!(pair.retract(Framing::length(5000)) && pair.stop());
        assert_eq!((pair.mode(), pair.source.rx, pair.receiver.tx), (mode::PASS, 0, 0));
        assert_eq!(word::seen(pair.word), 100);
        assert_eq!(pair.splice.framing, Framing::length(5000));
    }

    /// Bodies of any length: 32-bit comparisons with the start would fail from 2 GiB on.
    #[test]
    fn positions_know_more_than_32_bits() {
        let mut pair = Pair::new(Socket::default(), Socket::default(), 1, 100);
        pair.prepare(100, 4_000_000_000, 9 << 30, Framing::none()).unwrap();
        pair.splice.forwarded = 7 << 30;
        for offset in [-1000i64, 0, 1000] {
            let position = (7i64 << 30) + offset;
            assert_eq!(pair.splice.position(seq::shift(100, position)), position);
            assert_eq!(pair.splice.ack_position(seq::shift(4_000_000_000, position)), position);
        }
        assert_eq!(pair.splice.in_source_socket(5 << 30), 100);
        assert_eq!(pair.splice.in_source_socket((7 << 30) + 3), 103);
    }
}
