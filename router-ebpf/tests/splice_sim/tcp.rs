//! A small honest TCP endpoint: what the splice must not confuse.
//!
//! Offsets within a stream have 64 bits, packets carry 32. It follows the rules of Linux where they
//! matter here: which segments are acceptable, which windows are believed, PAWS, and when repetitions
//! are sent. What no correct peer can send makes it panic.

use std::collections::{BTreeMap, VecDeque};

use router_ebpf::splice::{
    options::{Block, Sack},
    seq,
    timestamps::Timestamps,
    translate::{Packet, flag},
    window,
};

/// Time in milliseconds.
pub(crate) type Time = u64;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) head: Packet,
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) initial_send: u32,
    pub(crate) initial_receive: u32,
    pub(crate) mss: usize,
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
    out: Vec<Segment>,
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
        self.queue.extend(bytes);
    }

    /// Whether everything written has been acknowledged.
    pub(crate) fn drained(&self) -> bool {
        self.queue.is_empty()
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

    fn segment(&mut self, seq: u32, data: Vec<u8>, now: Time) {
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
            flags: flag::ACK,
            timestamps: self
                .set
                .timestamps
                .then_some(Timestamps { value: clock, echo: self.ts_recent }),
            sack,
        };
        self.out.push(Segment { head, data });
    }

    fn acknowledge(&mut self, now: Time) {
        self.segment(self.send_number(self.nxt.max(self.una)), Vec::new(), now);
    }

    /// What is to go out now.
    pub(crate) fn poll(&mut self, now: Time) -> Vec<Segment> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.backoff = (self.backoff + 1).min(3);
            self.deadline = None;
            if self.max > self.una {
                self.nxt = self.una;
            } else if !self.queue.is_empty() {
                self.segment(self.send_number(self.una).wrapping_sub(1), Vec::new(), now);
                self.deadline = Some(now + (200 << self.backoff));
            }
        }
        let congestion = self.una + 12 * self.set.mss as u64;
        let total = self.una + self.queue.len() as u64;
        loop {
            if let Some((_, right)) = self.sacked.range(..=self.nxt).next_back()
                && *right > self.nxt
            {
                self.nxt = *right;
                continue;
            }
            let hole = self.sacked.range(self.nxt..).next().map_or(u64::MAX, |(left, _)| *left);
            let end =
                total.min(self.edge).min(congestion).min(hole).min(self.nxt + self.set.mss as u64);
            if end <= self.nxt {
                break;
            }
            let from = (self.nxt - self.una) as usize;
            let data = self.queue.range(from..from + (end - self.nxt) as usize).copied().collect();
            self.segment(self.send_number(self.nxt), data, now);
            self.nxt = end;
            self.max = self.max.max(end);
        }
        if self.queue.is_empty() {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.deadline = Some(now + (200 << self.backoff));
        }
        if self.set.keepalive > 0 && now >= self.heard + self.set.keepalive && self.queue.is_empty()
        {
            self.probes += 1;
            assert!(self.probes < 12, "{}: no sign of life", self.name);
            self.segment(self.send_number(self.una).wrapping_sub(1), Vec::new(), now);
            self.heard = now - self.set.keepalive + 200;
        }
        std::mem::take(&mut self.out)
    }

    /// Takes a segment in.
    pub(crate) fn receive(&mut self, segment: &Segment, now: Time) {
        let head = &segment.head;
        assert_eq!(head.len as usize, segment.data.len());
        self.heard = now;
        self.probes = 0;
        let at = self.rcv as i64 + seq::distance(self.receive_number(self.rcv), head.seq);
        let end = at + head.len as i64;
        if let Some(stamp) = head.timestamps {
            assert!(!seq::before(self.ts_sent, stamp.echo), "{}: echo from the future", self.name);
            self.ts_echoed = stamp.echo;
            if seq::before(stamp.value, self.ts_recent) {
                assert!(!self.set.ordered, "{}: timestamp goes back", self.name);
                return self.acknowledge(now);
            }
        }
        if end > self.promised as i64 {
            assert!(
                head.len == 0,
                "{}: data beyond the window: {end} > {}",
                self.name,
                self.promised
            );
            return self.acknowledge(now);
        }
        if end < self.last_ack_sent as i64 || (head.len > 0 && end <= self.rcv as i64) {
            return self.acknowledge(now);
        }
        if let Some(stamp) = head.timestamps
            && at <= self.last_ack_sent as i64
        {
            self.ts_recent = stamp.value;
        }
        self.take_ack(head, now);
        if head.len > 0 {
            self.take_data(at, &segment.data);
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
        if ack > self.una {
            self.queue.drain(..(ack - self.una) as usize);
            self.una = ack;
            self.nxt = self.nxt.max(ack);
            self.sacked = self.sacked.split_off(&ack);
            self.repeats = 0;
            self.backoff = 0;
            self.deadline = None;
        } else if self.max > self.una && head.len == 0 && !opened {
            self.repeats += 1;
            if self.repeats == 3 {
                let hole = self.sacked.keys().next().map_or(u64::MAX, |left| *left);
                let end = self.max.min(hole).min(self.una + self.set.mss as u64);
                let data = self.queue.range(..(end - self.una) as usize).copied().collect();
                self.segment(self.send_number(self.una), data, now);
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
