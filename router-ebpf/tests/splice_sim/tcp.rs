//! A small honest TCP endpoint: what the splice must not confuse.
//!
//! Offsets within a stream have 64 bits, packets carry 32. It follows the rules of Linux where they
//! matter here: which segments are acceptable, which windows are believed, PAWS, and when repetitions
//! are sent. What no correct peer can send makes it panic.

use std::collections::{BTreeMap, VecDeque};

use router_ebpf::splice::{
    options::{Block, Sack},
    packet::{Packet, flag},
    seq,
    timestamps::Timestamps,
    window,
};

/// Time in milliseconds.
pub(crate) type Time = u64;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) head: Packet,
    pub(crate) data: Vec<u8>,
    /// Routers may mark it (data of a sender that takes part in ECN), and one did.
    pub(crate) markable: bool,
    pub(crate) marked: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) initial_send: u32,
    pub(crate) initial_receive: u32,
    /// Most payload of a segment on the wire.
    pub(crate) mss: usize,
    /// How many segments may travel as one.
    pub(crate) aggregate: usize,
    pub(crate) ecn: bool,
    pub(crate) capacity: u64,
    pub(crate) scale: u8,
    pub(crate) peer_scale: u8,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) clock: u32,
    /// Timestamp units per millisecond.
    pub(crate) rate: u32,
    /// Silence after which the peer is asked whether it lives; 0 for never.
    pub(crate) keepalive: Time,
    /// Segments never overtake each other: a timestamp that goes back is an error.
    pub(crate) ordered: bool,
}

pub(crate) struct Tcp {
    pub(crate) name: &'static str,
    pub(crate) set: Settings,
    /// Bytes not acknowledged, from `una` on.
    queue: VecDeque<u8>,
    pub(crate) una: u64,
    nxt: u64,
    max: u64,
    edge: u64,
    window: u64,
    wl1: u32,
    sacked: BTreeMap<u64, u64>,
    repeats: u32,
    deadline: Option<Time>,
    backoff: u32,
    pub(crate) rcv: u64,
    ahead: BTreeMap<u64, Vec<u8>>,
    ready: VecDeque<u8>,
    promised: u64,
    last_ack_sent: u64,
    ts_recent: u32,
    ts_sent: u32,
    ts_echoed: u32,
    heard: Time,
    probes: u32,
    /// Where the own FIN is.
    fin_at: Option<u64>,
    /// Where the peer's FIN is.
    peer_fin: Option<u64>,
    /// Everything up to the peer's FIN has arrived.
    pub(crate) peer_closed: bool,
    /// The socket exists no more: what comes for it is answered with a reset.
    pub(crate) gone: Option<Gone>,
    /// Closed by its owner: whoever sends more is reset.
    orphan: bool,
    /// The congestion experienced must be echoed until the sender says that it has slowed down.
    echoes: bool,
    /// The next new data says that the sender has slowed down; not again before this offset.
    slowed: bool,
    slowed_until: u64,
    /// How often the peer's echo was obeyed.
    pub(crate) slowdowns: u32,
    /// The host has started anew, and opens a connection with this number and the same addresses.
    opening: Option<u32>,
    out: Vec<Segment>,
}

/// Why a socket is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Its peer reset it.
    Reset,
    /// Its owner did.
    Aborted,
}

impl Tcp {
    pub(crate) fn new(
        name: &'static str,
        set: Settings,
        peer_capacity: u64,
        peer_clock: u32,
    ) -> Self {
        Self {
            name,
            queue: VecDeque::new(),
            una: 0,
            nxt: 0,
            max: 0,
            edge: peer_capacity,
            window: peer_capacity,
            wl1: set.initial_receive,
            sacked: BTreeMap::new(),
            repeats: 0,
            deadline: None,
            backoff: 0,
            rcv: 0,
            ahead: BTreeMap::new(),
            ready: VecDeque::new(),
            promised: set.capacity,
            last_ack_sent: 0,
            ts_recent: peer_clock,
            ts_sent: set.clock,
            ts_echoed: set.clock,
            heard: 0,
            probes: 0,
            fin_at: None,
            peer_fin: None,
            peer_closed: false,
            gone: None,
            orphan: false,
            echoes: false,
            slowed: false,
            slowed_until: 0,
            slowdowns: 0,
            opening: None,
            out: Vec::new(),
            set,
        }
    }

    pub(crate) fn send_number(&self, offset: u64) -> u32 {
        self.set.initial_send.wrapping_add(offset as u32)
    }

    pub(crate) fn receive_number(&self, offset: u64) -> u32 {
        self.set.initial_receive.wrapping_add(offset as u32)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.gone.is_none() {
            assert!(self.fin_at.is_none() || bytes.is_empty(), "{}: written after FIN", self.name);
            self.queue.extend(bytes);
        }
    }

    /// Whether everything written has been acknowledged.
    pub(crate) fn drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends no more, after what is queued.
    pub(crate) fn shut(&mut self) {
        if self.fin_at.is_none() && self.gone.is_none() {
            self.fin_at = Some(self.una + self.queue.len() as u64);
        }
    }

    /// Whether it sends no more.
    pub(crate) fn is_shut(&self) -> bool {
        self.fin_at.is_some()
    }

    /// As a program that closes its descriptor: unread bytes make it a reset.
    pub(crate) fn close(&mut self, now: Time) {
        if self.ready.is_empty() {
            self.shut();
            self.orphan = true;
        } else {
            self.abort(now);
        }
    }

    /// Resets the connection.
    pub(crate) fn abort(&mut self, now: Time) {
        if self.gone.is_none() {
            self.gone = Some(Gone::Aborted);
            self.segment(self.send_number(self.max), Vec::new(), flag::RST | flag::ACK, now);
        }
    }

    /// The host starts anew, and opens a connection with the same addresses.
    pub(crate) fn reboot(&mut self, number: u32) {
        self.gone = Some(Gone::Aborted);
        self.opening = Some(number);
        self.deadline = None;
        self.out.clear();
    }

    /// Whether the opening has not been answered.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// A peer that waits for an answer to its SYN.
    fn open(&mut self, head: &Packet, number: u32) {
        if head.flags & flag::RST != 0 {
            if head.flags & flag::ACK != 0 && head.ack == number.wrapping_add(1) {
                self.opening = None;
            }
        } else if head.flags & flag::ACK != 0 && head.ack != number.wrapping_add(1) {
            self.refuse(head);
        }
    }

    /// Whether the peer's end of the connection was heard of, in whatever form.
    pub(crate) fn told(&self) -> bool {
        self.peer_closed || self.gone.is_some()
    }

    /// The offset after all data, and after a FIN.
    fn total(&self) -> u64 {
        match self.fin_at {
            Some(at) => at + 1,
            None => self.una + self.queue.len() as u64,
        }
    }

    /// Takes so many bytes from now on, without a word.
    pub(crate) fn widen(&mut self, bytes: u64) {
        self.promised = self.promised.max(self.rcv + bytes);
    }

    pub(crate) fn readable(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn read(&mut self, most: usize, now: Time) -> Vec<u8> {
        let bytes: Vec<u8> = self.ready.drain(..most.min(self.ready.len())).collect();
        let grown = self.rcv + self.free() - self.promised.min(self.rcv + self.free());
        if !bytes.is_empty() && (grown >= 2 * self.set.mss as u64 || self.promised <= self.rcv) {
            self.acknowledge(now);
        }
        bytes
    }

    fn free(&self) -> u64 {
        self.set.capacity - (self.ready.len() as u64).min(self.set.capacity)
    }

    fn segment(&mut self, seq: u32, data: Vec<u8>, flags: u8, now: Time) {
        // The edge does not move left; it is rounded down to the scale's unit.
        let edge = (self.rcv + self.free()).max(self.promised);
        let raw = window::raw((edge - self.rcv) as i64, self.set.scale);
        self.promised = self.promised.max(self.rcv + window::bytes(raw, self.set.scale) as u64);
        self.last_ack_sent = self.rcv;
        let clock = self.set.clock.wrapping_add((now as u32).wrapping_mul(self.set.rate));
        self.ts_sent = clock;
        let mut sack = Sack::default();
        if self.set.sack {
            let mut blocks: Vec<(u64, u64)> = Vec::new();
            for (at, bytes) in &self.ahead {
                match blocks.last_mut() {
                    Some(last) if last.1 == *at => last.1 += bytes.len() as u64,
                    _ => blocks.push((*at, at + bytes.len() as u64)),
                }
            }
            for (left, right) in blocks.into_iter().take(3) {
                sack.push(Block {
                    left: self.receive_number(left),
                    right: self.receive_number(right),
                });
            }
        }
        let head = Packet {
            seq,
            ack: self.receive_number(self.rcv),
            len: data.len() as u32,
            window: raw,
            flags: flags | if self.echoes && flags & flag::RST == 0 { flag::ECE } else { 0 },
            timestamps: self
                .set
                .timestamps
                .then_some(Timestamps { value: clock, echo: self.ts_recent }),
            sack,
        };
        let markable = self.set.ecn && !data.is_empty();
        self.out.push(Segment { head, data, markable, marked: false });
    }

    fn acknowledge(&mut self, now: Time) {
        self.segment(self.send_number(self.max.max(self.una)), Vec::new(), flag::ACK, now);
    }

    /// Sends what is between two offsets, with the FIN if it is there.
    fn send(&mut self, from: u64, to: u64, now: Time) {
        let data_to = to.min(self.fin_at.unwrap_or(u64::MAX));
        let range = (from - self.una) as usize..(data_to - self.una) as usize;
        let data: Vec<u8> = self.queue.range(range).copied().collect();
        let mut flags = flag::ACK;
        if to > data_to {
            flags |= flag::FIN;
        }
        if self.slowed && from >= self.max && !data.is_empty() {
            flags |= flag::CWR;
            self.slowed = false;
        }
        self.segment(self.send_number(from), data, flags, now);
    }

    fn probe(&mut self, now: Time) {
        let before = self.send_number(self.una).wrapping_sub(1);
        self.segment(before, Vec::new(), flag::ACK, now);
    }

    /// What is to go out now.
    pub(crate) fn poll(&mut self, now: Time) -> Vec<Segment> {
        if let Some(seq) = self.opening
            && self.deadline.is_none_or(|deadline| deadline <= now)
        {
            self.deadline = Some(now + 1000);
            let head = Packet { seq, flags: flag::SYN, window: 5000, ..Packet::default() };
            self.out.push(Segment { head, data: Vec::new(), markable: false, marked: false });
        }
        if self.gone.is_some() {
            return std::mem::take(&mut self.out);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.backoff = (self.backoff + 1).min(3);
            self.deadline = None;
            if self.max > self.una && self.edge > self.una {
                self.nxt = self.una;
            } else if self.max > self.una {
                // The window has shrunk below what was sent: sent again, as Linux does.
                let end = self.max.min(self.una + self.set.mss as u64);
                self.send(self.una, end, now);
            } else if self.total() > self.una {
                self.probe(now);
                self.deadline = Some(now + (200 << self.backoff));
            }
        }
        let most = (self.set.mss * self.set.aggregate) as u64;
        let congestion = self.una + (12 * self.set.mss as u64).max(most);
        loop {
            if let Some((_, right)) = self.sacked.range(..=self.nxt).next_back()
                && *right > self.nxt
            {
                self.nxt = *right;
                continue;
            }
            let hole = self.sacked.range(self.nxt..).next().map_or(u64::MAX, |(left, _)| *left);
            let end = self.total().min(self.edge).min(congestion).min(hole).min(self.nxt + most);
            if end <= self.nxt {
                break;
            }
            self.send(self.nxt, end, now);
            self.nxt = end;
            self.max = self.max.max(end);
        }
        if self.total() == self.una {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.deadline = Some(now + (200 << self.backoff));
        }
        let idle = now >= self.heard + self.set.keepalive && self.total() == self.una;
        if self.set.keepalive > 0 && idle {
            self.probes += 1;
            assert!(self.probes < 12, "{}: no sign of life", self.name);
            self.probe(now);
            self.heard = now - self.set.keepalive + 200;
        }
        std::mem::take(&mut self.out)
    }

    /// When there will be something to send, if nothing comes.
    pub(crate) fn next_event(&self) -> Time {
        let idle = self.gone.is_none() && self.set.keepalive > 0 && self.total() == self.una;
        let keepalive = if idle { self.heard + self.set.keepalive } else { Time::MAX };
        self.deadline.unwrap_or(Time::MAX).min(keepalive)
    }

    /// What the kernel answers for a socket that is not there.
    fn refuse(&mut self, head: &Packet) {
        if head.flags & flag::RST != 0 {
            return;
        }
        let answer = if head.flags & flag::ACK != 0 {
            Packet { seq: head.ack, flags: flag::RST, ..Packet::default() }
        } else {
            let ack = head.seq.wrapping_add(head.len) + u32::from(head.flags & flag::SYN != 0);
            Packet { ack, flags: flag::RST | flag::ACK, ..Packet::default() }
        };
        self.out.push(Segment { head: answer, data: Vec::new(), markable: false, marked: false });
    }

    /// Takes a segment in.
    pub(crate) fn receive(&mut self, segment: &Segment, now: Time) {
        let head = &segment.head;
        assert_eq!(head.len as usize, segment.data.len());
        if let Some(number) = self.opening {
            return self.open(head, number);
        }
        if self.gone.is_some() {
            return self.refuse(head);
        }
        let at = self.rcv as i64 + seq::distance(self.receive_number(self.rcv), head.seq);
        if head.flags & flag::RST != 0 {
            if at == self.rcv as i64 {
                self.gone = Some(Gone::Reset);
            } else if at > self.rcv as i64 && at <= self.promised as i64 {
                self.acknowledge(now);
            }
            return;
        }
        if head.flags & flag::SYN != 0 {
            return self.acknowledge(now);
        }
        self.heard = now;
        self.probes = 0;
        let fin = head.flags & flag::FIN != 0;
        let data_end = at + head.len as i64;
        let end = data_end + i64::from(fin);
        if let Some(stamp) = head.timestamps {
            assert!(!seq::before(self.ts_sent, stamp.echo), "{}: echo from the future", self.name);
            self.ts_echoed = stamp.echo;
            if seq::before(stamp.value, self.ts_recent) {
                assert!(!self.set.ordered, "{}: timestamp goes back", self.name);
                return self.acknowledge(now);
            }
        }
        if end > self.promised as i64 {
            // A window that is closed may be probed with data.
            let probe = at <= self.rcv as i64 && self.promised <= self.rcv;
            assert!(
                end == at || probe,
                "{}: data beyond the window: {end} > {}",
                self.name,
                self.promised
            );
            return self.acknowledge(now);
        }
        if end < self.last_ack_sent as i64 || (end > at && end <= self.rcv as i64) {
            return self.acknowledge(now);
        }
        if let Some(stamp) = head.timestamps
            && at <= self.last_ack_sent as i64
        {
            self.ts_recent = stamp.value;
        }
        self.take_ack(head, now);
        if self.orphan && data_end > self.rcv as i64 && head.len > 0 {
            self.gone = Some(Gone::Aborted);
            return self.refuse(head);
        }
        if head.flags & flag::CWR != 0 {
            self.echoes = false;
        }
        if segment.marked && head.len > 0 {
            assert!(self.set.ecn, "{}: marked, but does not know of ECN", self.name);
            self.echoes = true;
        }
        if let Some(last) = self.peer_fin {
            assert!(end == at || data_end <= last as i64, "{}: data after FIN", self.name);
        }
        if fin {
            let place = *self.peer_fin.get_or_insert(data_end as u64);
            assert_eq!(place, data_end as u64, "{}: FIN has moved", self.name);
            let farthest = self.ahead.keys().next_back().map_or(0, |last| last + 1);
            assert!(farthest.max(self.rcv) <= place, "{}: FIN within data", self.name);
        }
        if end > at {
            self.take_data(at, &segment.data);
            if self.peer_fin == Some(self.rcv) && !self.peer_closed {
                self.peer_closed = true;
                self.rcv += 1;
            }
            self.acknowledge(now);
        }
    }

    fn take_ack(&mut self, head: &Packet, now: Time) {
        let ack = self.una as i64 + seq::distance(self.send_number(self.una), head.ack);
        assert!(
            ack <= self.max as i64,
            "{}: acknowledgement of {ack}, sent {}",
            self.name,
            self.max
        );
        if ack < self.una as i64 {
            return;
        }
        let ack = ack as u64;
        for block in &head.sack.blocks[..head.sack.count as usize] {
            let left = self.una as i64 + seq::distance(self.send_number(self.una), block.left);
            let right = self.una as i64 + seq::distance(self.send_number(self.una), block.right);
            assert!(left < right && right <= self.max as i64, "{}: SACK of unsent data", self.name);
            if left > ack as i64 {
                self.sacked.insert(left as u64, right as u64);
            }
        }
        let told = window::bytes(head.window, self.set.peer_scale) as u64;
        let fresh = seq::before(self.wl1, head.seq)
            || self.wl1 == head.seq && (told > self.window || told == 0);
        let opened = ack + told > self.edge;
        if ack > self.una || fresh {
            self.window = told;
            self.wl1 = head.seq;
            self.edge = ack + told;
        }
        if head.flags & flag::ECE != 0 && self.set.ecn && ack >= self.slowed_until {
            self.slowed = true;
            self.slowdowns += 1;
            self.slowed_until = self.max + 1;
        }
        if ack > self.una {
            let data_to = ack.min(self.fin_at.unwrap_or(u64::MAX));
            self.queue.drain(..data_to.saturating_sub(self.una) as usize);
            self.una = ack;
            self.nxt = self.nxt.max(ack);
            self.sacked = self.sacked.split_off(&ack);
            self.repeats = 0;
            self.backoff = 0;
            self.deadline = None;
        } else if self.max > self.una && head.len == 0 && head.flags & flag::FIN == 0 && !opened {
            self.repeats += 1;
            if self.repeats == 3 {
                let hole = self.sacked.keys().next().map_or(u64::MAX, |left| *left);
                let end = self.max.min(hole).min(self.una + self.set.mss as u64);
                self.send(self.una, end, now);
            }
        }
    }

    fn take_data(&mut self, at: i64, data: &[u8]) {
        let skip = (self.rcv as i64 - at).max(0) as usize;
        let from = at.max(self.rcv as i64) as u64;
        for (place, byte) in (from..).zip(data.iter().skip(skip)) {
            // Byte for byte: overlaps of all kinds, and what was there must be the same.
            let known = self.ahead.entry(place).or_insert_with(|| vec![*byte]);
            assert_eq!(known[0], *byte, "{}: byte {place} has changed", self.name);
        }
        while let Some(byte) = self.ahead.remove(&self.rcv) {
            self.ready.push_back(byte[0]);
            self.rcv += 1;
        }
    }
}

impl Tcp {
    pub(crate) fn describe(&self) -> String {
        format!(
            "{}: una {} max {} edge {} queued {} rcv {} ready {} ahead {} fin {:?} peer {:?} gone {:?}",
            self.name,
            self.una,
            self.max,
            self.edge,
            self.queue.len(),
            self.rcv,
            self.ready.len(),
            self.ahead.len(),
            self.fin_at,
            self.peer_fin,
            self.gone
        )
    }
}
