//! Hosts, the gateway between them, lossy links, and the programs on the gateway's interfaces.

mod programs;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    rc::Rc,
};

use router_ebpf::splice::{
    packet::Packet,
    seq,
    state::{Socket, Splice, mode, word},
    window,
};

use crate::{
    gateway::User,
    peers::{Client, Server},
    plan::{End, Host, Plan, Random, bytes},
    tcp::{Segment, Settings, Tcp, Time},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    /// The gateway's socket.
    Own(usize),
    /// The client or the server.
    Peer(usize),
}

/// A connection of the gateway.
pub(crate) struct Conn {
    pub(crate) own: Tcp,
    pub(crate) peer: Tcp,
    pub(crate) word: u64,
    pub(crate) socket: Socket,
    pub(crate) link: Option<usize>,
    /// The first wire numbers of the peer's and of the gateway's bytes.
    pub(crate) peer_first: u32,
    pub(crate) own_first: u32,
    /// Bytes of the peer's stream that have gone on, and of the stream to the peer, by whomever.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) delay: Time,
    /// Bytes of the peer's stream that are spliced past the sockets: from, to, to whom, and how much
    /// further that stream is.
    pub(crate) range: Option<(u64, u64, usize, i64)>,
}

/// Two connections that are spliced, or about to be, or not yet apart.
pub(crate) struct Link {
    pub(crate) source: usize,
    pub(crate) receiver: usize,
    pub(crate) splice: Splice,
    /// Carried before it began, as far as the splice knows.
    pub(crate) aged: u64,
    pub(crate) ended: bool,
    pub(crate) quiet: bool,
    pub(crate) ticket: bool,
    /// The program has taken back.
    pub(crate) halted: bool,
}

/// What happened, for tests that must have seen it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Seen {
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn get(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: Time,
    order: u64,
    wires: BinaryHeap<Reverse<(Time, u64, usize)>>,
    in_flight: Vec<Option<(To, Segment)>>,
    last_arrival: BTreeMap<To, Time>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) links: Vec<Link>,
    pub(crate) users: Vec<User>,
    pub(crate) clients: Vec<Client>,
    pub(crate) servers: Vec<Server>,
    /// Requests and responses, by session and round.
    pub(crate) messages: Vec<Vec<[Vec<u8>; 2]>>,
    /// Releases of tickets, by session and round.
    pub(crate) released: BTreeMap<(usize, usize), u32>,
    pub(crate) seen: Seen,
    /// When somebody last did something.
    pub(crate) active: Time,
    traced: bool,
    /// What happened, if it is wanted.
    pub(crate) trace: Rc<RefCell<Vec<String>>>,
}

impl World {
    pub(crate) fn new(plan: Plan, traced: bool) -> Self {
        let mut random = Random(plan.seed);
        let messages = plan
            .sessions
            .iter()
            .enumerate()
            .map(|(s, session)| {
                let rounds = session.rounds.iter().enumerate();
                // A response that ends with a close is the last.
                let closed = session.rounds.iter().position(|r| r.response.end == End::Close);
                rounds
                    .take(closed.map_or(usize::MAX, |at| at + 1))
                    .map(|(r, round)| {
                        [
                            bytes(&round.request, s, r, &mut random),
                            bytes(&round.response, s, r, &mut random),
                        ]
                    })
                    .collect()
            })
            .collect();
        let mut world = Self {
            now: 0,
            order: 0,
            wires: BinaryHeap::new(),
            in_flight: Vec::new(),
            last_arrival: BTreeMap::new(),
            conns: Vec::new(),
            links: Vec::new(),
            users: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            messages,
            released: BTreeMap::new(),
            seen: Seen::default(),
            active: 0,
            traced,
            trace: Rc::default(),
            random,
            plan,
        };
        for s in 0..world.plan.sessions.len() {
            let (host, delay) = (world.plan.sessions[s].client, world.plan.sessions[s].delay);
            let conn = world.connect("C", host, delay, world.plan.gateway[0]);
            world.clients.push(Client::new(conn));
            world.users.push(User::new(conn));
        }
        world
    }

    fn number(&mut self, wraps: bool) -> u32 {
        if wraps {
            u32::MAX - self.random.below(8000) as u32
        } else {
            self.random.below(1 << 32) as u32
        }
    }

    /// An established connection between a peer and the gateway, which may have been spliced before.
    pub(crate) fn connect(
        &mut self,
        name: &'static str,
        host: Host,
        delay: Time,
        gateway: Host,
    ) -> usize {
        let (peer_first, own_first) = (self.number(host.wraps), self.number(gateway.wraps));
        let used = self.random.below(2) == 0;
        let mut offset = || if used { self.random.below(1 << 32) as u32 } else { 0 };
        let (tx, rx) = (offset(), offset());
        let clocks = [(); 2].map(|()| self.random.below(1 << 32) as u32);
        let ordered = self.plan.jitter == 0 && self.plan.twice == 0;
        let timestamps = host.timestamps && gateway.timestamps;
        let sack = host.sack && gateway.sack;
        let capacity = |host: &Host| host.capacity >> host.scale << host.scale;
        let make = |name, host: &Host, other: &Host, send, receive, clock, keepalive| Settings {
            initial_send: send,
            initial_receive: receive,
            mss: host.mss.min(other.mss),
            aggregate: self.plan.aggregate,
            ecn: host.ecn && other.ecn,
            capacity: capacity(host),
            scale: host.scale,
            peer_scale: other.scale,
            timestamps,
            sack,
            clock,
            rate: if name == "own" { 1 } else { host.rate },
            keepalive,
            ordered,
        };
        let receive = peer_first.wrapping_sub(rx);
        let own = make("own", &gateway, &host, own_first.wrapping_sub(tx), receive, clocks[0], 700);
        let peer =
            make(name, &host, &gateway, peer_first, own_first, clocks[1], self.plan.keepalive);
        let own_window = window::raw(own.capacity as i64, own.scale);
        let own_window = window::at_most(own_window, gateway.limit, own.scale);
        let told = window::bytes(own_window, own.scale);
        let socket = Socket {
            tx,
            rx,
            next: own_first,
            own_ack: peer_first,
            own_edge: seq::shift(peer_first, told),
            peer_edge: seq::shift(own_first, peer.capacity as i64),
            own_window,
            ts_last: clocks[0],
            ts_own: clocks[0],
            ts_floor: clocks[0],
            ts_peer: clocks[1],
            scale_own: own.scale,
            scale_peer: peer.scale,
            limit: gateway.limit,
            ..Socket::default()
        };
        let own_name = if name == "C" { "A" } else { "B" };
        self.conns.push(Conn {
            own: Tcp::new(own_name, own, peer.capacity, clocks[1]),
            peer: Tcp::new(name, peer, told as u64, clocks[0]),
            word: word::pack(mode::PASS, 1, peer_first),
            socket,
            link: None,
            peer_first,
            own_first,
            received: 0,
            sent: 0,
            delay,
            range: None,
        });
        self.conns.len() - 1
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.traced {
            self.trace.borrow_mut().push(format!("{:6} {}", self.now, what()));
        }
    }

    /// A packet in numbers that count from 0, as bytes of the streams on the wire.
    fn show(&self, conn: usize, from_peer: bool, socket: bool, head: &Packet) -> String {
        let Conn { peer_first, own_first, socket: s, .. } = &self.conns[conn];
        let (seq, ack) = if from_peer { (peer_first, own_first) } else { (own_first, peer_first) };
        let (tx, rx) = if from_peer { (s.rx, s.tx) } else { (s.tx, s.rx) };
        let (tx, rx) = if socket { (tx, rx) } else { (0, 0) };
        let flags = ["F", "S", "R", "P", ".", "U", "E", "C"];
        let flags: String = (0..8).filter(|i| head.flags >> i & 1 > 0).map(|i| flags[i]).collect();
        format!(
            "[{flags}] {}+{} ack {} win {} {:?}",
            seq::distance(*seq, head.seq.wrapping_add(tx)),
            head.len,
            seq::distance(*ack, head.ack.wrapping_add(rx)),
            head.window,
            head.timestamps.map(|stamp| (stamp.value, stamp.echo)),
        )
    }

    fn transmit(&mut self, to: To, mut segment: Segment) {
        let (To::Own(conn) | To::Peer(conn)) = to;
        self.active = self.now;
        let from_peer = matches!(to, To::Own(_));
        self.note(|| format!("send {to:?} {}", self.show(conn, from_peer, false, &segment.head)));
        let copies = if self.random.below(1000) < self.plan.twice { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.below(1000) < self.plan.loss {
                continue;
            }
            if segment.markable && self.random.below(1000) < self.plan.marks {
                segment.marked = true;
            }
            let delay = self.conns[conn].delay + self.random.below(self.plan.jitter + 1);
            let mut at = self.now + delay;
            let last = self.last_arrival.entry(to).or_default();
            if self.plan.jitter == 0 {
                at = at.max(*last);
            }
            *last = at;
            self.order += 1;
            self.wires.push(Reverse((at, self.order, self.in_flight.len())));
            self.in_flight.push(Some((to, segment.clone())));
        }
    }

    /// Sends a segment to a gateway's socket, as from its peer.
    pub(crate) fn forge(&mut self, conn: usize, head: Packet) {
        let segment = Segment { head, data: Vec::new(), markable: false, marked: false };
        self.transmit(To::Own(conn), segment);
    }

    fn shaped(segment: &Segment, head: Packet) -> Segment {
        let data = segment.data[..head.len as usize].to_vec();
        Segment { head, data, ..*segment }
    }

    fn arrive(&mut self, to: To, segment: &Segment) {
        let (To::Own(conn) | To::Peer(conn)) = to;
        let from_peer = matches!(to, To::Own(_));
        self.note(|| {
            let link = self.conns[conn].link;
            let state = link.map(|l| {
                let pair = self.pair(l);
                let splice = pair.splice;
                let role = if self.links[l].source == conn { "source" } else { "receiver" };
                format!(
                    "{role} mode {} forwarded {} acked {} edge {} promised {} length {}",
                    pair.mode(),
                    splice.forwarded,
                    splice.acked,
                    splice.edge,
                    splice.promised,
                    splice.length as i64
                )
            });
            let shown = self.show(conn, from_peer, false, &segment.head);
            format!("  arrived {to:?} {shown} {}", state.unwrap_or_default())
        });
        self.active = self.now;
        match to {
            To::Peer(conn) => {
                self.conns[conn].peer.receive(segment, self.now);
                self.check_source(conn);
            }
            To::Own(conn) => {
                self.ingress(conn, segment);
                let Conn { own, socket, link, .. } = &self.conns[conn];
                let aged = link.is_some_and(|link| self.links[link].aged > 0);
                if own.gone.is_none() && !aged {
                    let una = own.send_number(own.una).wrapping_add(socket.tx);
                    let ahead = seq::distance(una, socket.next);
                    assert!(ahead.abs() < 1 << 20, "{} has lost its numbers: {ahead}", own.name);
                }
            }
        }
    }

    /// What a source hears of as arrived has arrived.
    fn check_source(&self, conn: usize) {
        let source = &self.conns[conn];
        if let Some((from, to, receiver, further)) = source.range
            && source.peer.una.min(to) > from
        {
            let claimed = source.peer.una.min(to).wrapping_add_signed(further);
            let has = self.conns[receiver].peer.rcv;
            assert!(has >= claimed, "{} hears {claimed}, there is {has}", source.peer.name);
        }
    }

    pub(crate) fn flush(&mut self, conn: usize) {
        for segment in self.conns[conn].own.poll(self.now) {
            self.egress(conn, &segment);
        }
    }

    fn send(&mut self) {
        for conn in 0..self.conns.len() {
            for segment in self.conns[conn].peer.poll(self.now) {
                self.transmit(To::Own(conn), segment);
            }
            self.flush(conn);
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        while !self.over() {
            assert!(self.now < 600_000, "stalled: {}", self.describe());
            while let Some(Reverse((at, _, index))) = self.wires.peek().copied()
                && at <= self.now
            {
                self.wires.pop();
                let (to, segment) = self.in_flight[index].take().expect("sent once");
                self.arrive(to, &segment);
            }
            self.peers();
            self.faults();
            self.user_space();
            self.send();
            self.now = self.next_moment();
        }
        self.verify();
        self.seen
    }

    /// The next millisecond, or one much later when nobody has had anything to do for a while.
    fn next_moment(&self) -> Time {
        let soon = self.now + 1;
        if self.now < self.active + 20 {
            return soon;
        }
        let wires = self.wires.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        let hosts = self.conns.iter().flat_map(|conn| [&conn.own, &conn.peer]);
        let hosts = hosts.map(Tcp::next_event).min().unwrap_or(Time::MAX);
        wires.min(hosts).min(self.next_write()).max(soon).min(self.now + 500)
    }

    fn describe(&self) -> String {
        let mut out = String::new();
        for (i, user) in self.users.iter().enumerate() {
            out += &format!("\nsession {i}: {user:?} {:?}", self.clients[i]);
        }
        for (i, conn) in self.conns.iter().enumerate() {
            out += &format!(
                "\nconn {i}: mode {} link {:?} own {} peer {}",
                word::mode(conn.word),
                conn.link,
                conn.own.describe(),
                conn.peer.describe()
            );
            if let Some(link) = conn.link {
                out += &format!(" {:?}", self.links[link].splice);
            }
        }
        out
    }
}
