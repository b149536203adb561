//! Two hosts, the gateway between them, and four lossy links.

use std::{cmp::Reverse, collections::BinaryHeap};

use proptest::prelude::*;
use router_ebpf::{
    framing::Framing,
    splice::{
        seq,
        state::{Pair, Refusal, Socket, UNKNOWN, mode, word},
        translate::{self, Action, Packet, Side, Verdict, event, flag},
        window,
    },
};

use crate::tcp::{Segment, Settings, Tcp, Time};

#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// Bytes of the body.
    pub(crate) body: usize,
    pub(crate) chunked: bool,
    pub(crate) spliced: bool,
    /// The client sends this request while it still receives the response before.
    pub(crate) pipelined: bool,
    /// Longest pause of the server between two writes.
    pub(crate) pause: Time,
    pub(crate) write: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) rounds: Vec<Round>,
    /// Share of packets lost and sent twice, in 1/1000.
    pub(crate) loss: u64,
    pub(crate) twice: u64,
    /// Most additional delay of a packet, by which it can be overtaken.
    pub(crate) jitter: u64,
    pub(crate) delays: [Time; 2],
    pub(crate) scales: [u8; 4],
    pub(crate) capacities: [u64; 4],
    pub(crate) timestamps: bool,
    pub(crate) sack: [bool; 2],
    pub(crate) rates: [u32; 3],
    pub(crate) numbers: [u32; 4],
    pub(crate) client_reads: usize,
    pub(crate) stop: bool,
}

pub(crate) fn plans(chunked: bool, impaired: bool) -> impl Strategy<Value = Plan> {
    let round = (
        1usize..12_000,
        any::<bool>(),
        0u8..4,
        any::<bool>(),
        prop_oneof![Just(2u64), Just(60), Just(3000)],
    )
        .prop_flat_map(move |(body, coin, spliced, pipelined, pause)| {
            (50usize..3000).prop_map(move |write| Round {
                body,
                chunked: chunked && coin,
                spliced: spliced > 0,
                pipelined,
                pause: if write < 500 { pause.min(60) } else { pause },
                write,
            })
        });
    let network = if impaired {
        (0u64..60, 0u64..50, prop_oneof![Just(0u64), Just(3), Just(30)]).boxed()
    } else {
        Just((0, 0, 0)).boxed()
    };
    (
        (any::<u64>(), proptest::collection::vec(round, 1..5), network, [1u64..40, 1u64..6]),
        (
            [0u8..5, 0u8..5, 0u8..5, 0u8..5],
            [3000u64..60_000, 3000u64..60_000, 3000u64..60_000, 3000u64..60_000],
        ),
        (any::<bool>(), any::<bool>(), any::<bool>(), [1u32..4, 1u32..2, 1u32..4]),
        (any::<[u32; 4]>(), prop_oneof![Just(5usize), Just(60), Just(100_000)], 0u8..6),
    )
        .prop_map(
            |((seed, rounds, (loss, twice, jitter), delays), (scales, capacities), flags, rest)| {
                Plan {
                    seed,
                    rounds,
                    loss,
                    twice,
                    jitter,
                    delays,
                    scales,
                    capacities,
                    timestamps: flags.0,
                    // Blocks of the client reach the server: not without its consent.
                    sack: if flags.1 { [flags.2, true] } else { [false, flags.2] },
                    rates: flags.3,
                    numbers: rest.0,
                    client_reads: rest.1,
                    stop: rest.2 == 0,
                }
            },
        )
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    GatewayFromClient,
    GatewayFromServer,
    Client,
    Server,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Request,
    Response,
    Spliced,
    Quiet,
}

const REQUEST: usize = 120;
/// Bytes that user space adds to each response, so that the two streams differ.
const ADDED: usize = 37;
/// Bytes of a response that come before the body.
const HEAD: usize = 50;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) spliced: u64,
    pub(crate) drained: u64,
    pub(crate) forwarded: u64,
    pub(crate) turned: u64,
    pub(crate) split: u64,
    pub(crate) dropped: u64,
    pub(crate) stopped: u64,
    pub(crate) time: Time,
}

pub(crate) struct World {
    plan: Plan,
    random: Random,
    now: Time,
    order: u64,
    wires: BinaryHeap<Reverse<(Time, u64, usize)>>,
    sent: Vec<Option<(To, Segment)>>,
    last_arrival: [Time; 4],
    client: Tcp,
    a: Tcp,
    b: Tcp,
    server: Tcp,
    pair: Pair,
    step: Step,
    round: usize,
    request_left: usize,
    response_left: usize,
    head_left: usize,
    framing: Framing,
    /// Bytes of the server's stream that have gone on, by whomever.
    from_server: u64,
    to_client: u64,
    prepared: Option<(u64, u64)>,
    released: usize,
    /// Bytes of the server's stream that are carried past the sockets: from, to, and how much further
    /// the client's stream is.
    ranges: Vec<(u64, u64, u64)>,
    stop_at: Option<Time>,
    requests_sent: usize,
    requests_served: usize,
    to_write: Vec<u8>,
    next_write: Time,
    expected: Vec<u8>,
    got: usize,
    got_rounds: Vec<usize>,
    pub(crate) seen: Seen,
}

fn bodies(plan: &Plan, random: &mut Random) -> Vec<Vec<u8>> {
    plan.rounds
        .iter()
        .map(|round| {
            let mut out: Vec<u8> = (0..HEAD).map(|_| random.below(256) as u8).collect();
            let payload: Vec<u8> = (0..round.body).map(|_| random.below(256) as u8).collect();
            if round.chunked {
                let mut rest = &payload[..];
                while !rest.is_empty() {
                    let (chunk, after) =
                        rest.split_at((1 + random.below(700) as usize).min(rest.len()));
                    out.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
                    out.extend(chunk);
                    out.extend(b"\r\n");
                    rest = after;
                }
                out.extend(b"0\r\n\r\n");
            } else {
                out.extend(payload);
            }
            out
        })
        .collect()
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut random = Random(plan.seed);
        let [c, a, b, s] = plan.numbers;
        let [sc, sa, sb, ss] = plan.scales;
        // A window field has 16 bits.
        let cap = |i: usize| plan.capacities[i].min(65_535 << plan.scales[i]);
        let capacity = [cap(0), cap(1), cap(2), cap(3)];
        let ordered = plan.jitter == 0 && plan.twice == 0;
        let clocks = [
            random.below(1 << 32),
            random.below(1 << 32),
            random.below(1 << 32),
            random.below(1 << 32),
        ]
        .map(|clock| clock as u32);
        let make = |name,
                    send,
                    receive,
                    i: usize,
                    peer: usize,
                    scale,
                    peer_scale,
                    rate,
                    sack,
                    keepalive| {
            let set = Settings {
                initial_send: send,
                initial_receive: receive,
                mss: 500,
                capacity: capacity[i] >> scale << scale,
                scale,
                peer_scale,
                timestamps: plan.timestamps,
                sack,
                clock: clocks[i],
                rate,
                keepalive,
                ordered,
            };
            Tcp::new(name, set, capacity[peer] >> peer_scale << peer_scale, clocks[peer])
        };
        let client = make("C", c, a, 0, 1, sc, sa, plan.rates[0], plan.sack[0], 0);
        let a_socket = make("A", a, c, 1, 0, sa, sc, plan.rates[1], plan.sack[0], 700);
        let b_socket = make("B", b, s, 2, 3, sb, ss, plan.rates[1], plan.sack[1], 700);
        let server = make("S", s, b, 3, 2, ss, sb, plan.rates[2], plan.sack[1], 0);
        let socket = |own: &Tcp, peer: &Tcp| Socket {
            next: own.set.initial_send,
            own_ack: own.set.initial_receive,
            own_edge: own.receive_number(own.set.capacity),
            peer_edge: own.send_number(peer.set.capacity),
            own_window: window::raw(own.set.capacity as i64, own.set.scale),
            ts_last: own.set.clock,
            ts_own: own.set.clock,
            ts_floor: own.set.clock,
            ts_peer: peer.set.clock,
            scale_own: own.set.scale,
            scale_peer: own.set.peer_scale,
            ..Socket::default()
        };
        let pair = Pair::new(socket(&b_socket, &server), socket(&a_socket, &client), 1, s);
        let responses = bodies(&plan, &mut random);
        let mut expected = Vec::new();
        let mut got_rounds = Vec::new();
        for response in &responses {
            expected.extend([b'+'; ADDED]);
            expected.extend(response);
            got_rounds.push(expected.len());
        }
        let first = responses.first().map_or(0, Vec::len);
        Self {
            random,
            now: 0,
            order: 0,
            wires: BinaryHeap::new(),
            sent: Vec::new(),
            last_arrival: [0; 4],
            client,
            a: a_socket,
            b: b_socket,
            server,
            pair,
            step: Step::Request,
            round: 0,
            request_left: REQUEST,
            response_left: first,
            head_left: HEAD,
            framing: Framing::none(),
            from_server: 0,
            to_client: 0,
            prepared: None,
            released: 0,
            ranges: Vec::new(),
            stop_at: None,
            requests_sent: 0,
            requests_served: 0,
            to_write: Vec::new(),
            next_write: 0,
            expected,
            got: 0,
            got_rounds,
            seen: Seen::default(),
            plan,
        }
    }

    fn response(&self, round: usize) -> &[u8] {
        let from = if round == 0 { 0 } else { self.got_rounds[round - 1] };
        &self.expected[from + ADDED..self.got_rounds[round]]
    }

    fn transmit(&mut self, to: To, segment: Segment) {
        let copies = if self.random.below(1000) < self.plan.twice { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.below(1000) < self.plan.loss {
                continue;
            }
            let side = matches!(to, To::Server | To::GatewayFromServer) as usize;
            let mut at =
                self.now + self.plan.delays[side] + self.random.below(self.plan.jitter + 1);
            let last = &mut self.last_arrival[to as usize];
            if self.plan.jitter == 0 {
                at = at.max(*last);
            }
            *last = at;
            self.order += 1;
            self.wires.push(Reverse((at, self.order, self.sent.len())));
            self.sent.push(Some((to, segment.clone())));
        }
    }

    fn shaped(segment: &Segment, head: Packet) -> Segment {
        let data = segment.data[..head.len as usize].to_vec();
        Segment { head, data }
    }

    fn arrive(&mut self, to: To, segment: Segment) {
        match to {
            To::Client => {
                self.client.receive(&segment, self.now);
            }
            To::Server => {
                self.server.receive(&segment, self.now);
                self.check_server();
            }
            To::GatewayFromClient => {
                let verdict = translate::ingress_from_receiver(&mut self.pair, &segment.head);
                self.apply(To::Client, verdict, &segment);
            }
            To::GatewayFromServer => {
                self.parse(&segment);
                let verdict = translate::ingress_from_source(&mut self.pair, &segment.head);
                self.apply(To::Server, verdict, &segment);
            }
        }
        for (name, socket, side) in
            [("A", &self.pair.receiver, &self.a), ("B", &self.pair.source, &self.b)]
        {
            let ahead =
                seq::distance(side.send_number(side.una).wrapping_add(socket.tx), socket.next);
            assert!(ahead.abs() < 1 << 20, "{name} has lost its numbers: {ahead}");
        }
    }

    /// The client's and the server's word of how much has arrived must agree.
    fn check_server(&self) {
        let una = self.server.una;
        if let Some((from, to, further)) = self.ranges.last()
            && una > *from
        {
            let claimed = una.min(*to) + further;
            assert!(self.client.rcv >= claimed, "S hears {claimed}, C has {}", self.client.rcv);
        }
    }

    fn parse(&mut self, segment: &Segment) {
        if self.pair.mode() != mode::LIVE || segment.head.flags & (flag::SYN | flag::RST) != 0 {
            return;
        }
        if let Some(skip) = self.pair.splice.unparsed(segment.head.seq, segment.head.len) {
            let bytes = &segment.data[skip as usize..];
            let used = self.pair.splice.framing.advance(bytes).expect("a correct server");
            self.pair.splice.parse(used as u64);
        }
    }

    fn apply(&mut self, from: To, verdict: Verdict, segment: &Segment) {
        let (back, on) = match from {
            To::Client => (To::Client, To::Server),
            _ => (To::Server, To::Client),
        };
        if verdict.events & event::ENDED != 0 {
            self.ended();
        }
        match verdict.action {
            Action::Drop => self.seen.dropped += 1,
            Action::Pass(head) => self.deliver(from, Self::shaped(segment, head)),
            Action::Forward(head) => {
                self.seen.forwarded += 1;
                self.transmit(on, Self::shaped(segment, head));
            }
            Action::TurnRound(head) => {
                self.seen.turned += 1;
                self.transmit(back, Self::shaped(segment, head));
            }
            Action::Split { socket, peer, zero_window_first } => {
                self.seen.split += 1;
                self.transmit(on, Self::shaped(segment, peer));
                if zero_window_first {
                    let zero = Packet { window: 0, len: 0, ..socket };
                    self.deliver(from, Segment { head: zero, data: Vec::new() });
                }
                self.deliver(from, Self::shaped(segment, socket));
            }
        }
        if verdict.events & event::QUIET != 0 {
            self.seen.drained += 1;
            if self.step == Step::Quiet {
                self.check_end();
                assert!(self.a.drained(), "all that A sent is acknowledged");
                self.next_round();
            }
        }
    }

    fn deliver(&mut self, from: To, segment: Segment) {
        match from {
            To::Client => self.a.receive(&segment, self.now),
            _ => self.b.receive(&segment, self.now),
        }
    }

    /// The sockets and the offsets meet behind the carried range.
    fn check_end(&self) {
        let (pair, splice) = (&self.pair, &self.pair.splice);
        let end = splice.h.wrapping_add(splice.length as u32);
        assert_eq!(self.b.receive_number(self.b.rcv).wrapping_add(pair.source.rx), end);
        let behind = splice.a.wrapping_add(splice.length as u32);
        assert_eq!(splice.a_socket.wrapping_add(pair.receiver.tx), behind);
    }

    fn ended(&mut self) {
        assert_eq!(self.step, Step::Spliced);
        self.check_end();
        let carried = self.pair.splice.length;
        let (from, to, further) = self.ranges.last_mut().expect("a range");
        *to = *from + carried;
        self.to_client += carried;
        self.from_server += carried;
        assert_eq!(self.response_left as u64, carried, "the end is where the body ends: {further}");
        self.response_left = 0;
        self.released += 1;
        self.stop_at = None;
        self.step = Step::Quiet;
    }

    fn next_round(&mut self) {
        self.round += 1;
        self.step = Step::Request;
        self.request_left = REQUEST;
        if self.round < self.plan.rounds.len() {
            self.response_left = self.response(self.round).len();
            self.head_left = HEAD;
        }
    }

    fn user_space(&mut self) {
        if self.round >= self.plan.rounds.len() {
            return;
        }
        let round = self.plan.rounds[self.round].clone();
        match self.step {
            // Taken back, and C has not acknowledged everything.
            Step::Request if self.pair.mode() != mode::PASS => {}
            Step::Request => {
                let bytes = self.a.read(self.request_left, self.now);
                self.b.write(&bytes);
                self.request_left -= bytes.len();
                if self.request_left == 0 {
                    self.a.write(&[b'+'; ADDED]);
                    self.to_client += ADDED as u64;
                    self.framing = if round.chunked {
                        Framing::chunked()
                    } else {
                        Framing::length(round.body as u64)
                    };
                    self.step = Step::Response;
                }
            }
            Step::Response => {
                if let Some((expected, live)) = self.prepared.take()
                    && self.pair.word == expected
                {
                    self.pair.word = live;
                    self.seen.spliced += 1;
                    self.ranges.push((
                        self.from_server,
                        u64::MAX,
                        self.to_client - self.from_server,
                    ));
                    if self.plan.stop {
                        self.stop_at = Some(self.now + self.random.below(400));
                    }
                    self.step = Step::Spliced;
                    return;
                }
                let most = 1 + self.random.below(1500) as usize;
                let bytes = self.b.read(most.min(self.response_left), self.now);
                self.a.write(&bytes);
                self.response_left -= bytes.len();
                self.from_server += bytes.len() as u64;
                self.to_client += bytes.len() as u64;
                let head = self.head_left.min(bytes.len());
                self.head_left -= head;
                assert_eq!(self.framing.advance(&bytes[head..]), Ok(bytes.len() - head));
                if self.framing.is_done() && self.response_left == 0 && self.head_left == 0 {
                    self.released += 1;
                    return self.next_round();
                }
                let ready = round.spliced
                    && self.head_left == 0
                    && self.b.readable() == 0
                    && self.b.drained();
                if ready && self.random.below(3) > 0 {
                    self.prepare(round.chunked);
                }
            }
            Step::Spliced => {
                if self.stop_at.is_some_and(|at| at <= self.now) {
                    self.stop_at = None;
                    self.stop();
                }
            }
            Step::Quiet => {}
        }
    }

    fn prepare(&mut self, chunked: bool) {
        // From user space's own counts, as the gateway will have them.
        let h_wire = self.plan.numbers[3].wrapping_add(self.from_server as u32);
        let a_wire = self.plan.numbers[1].wrapping_add(self.to_client as u32);
        let length = if chunked { UNKNOWN } else { self.response_left as u64 };
        match self.pair.prepare(h_wire, a_wire, length, self.framing) {
            Ok(words) => self.prepared = Some(words),
            Err(Refusal::Busy | Refusal::Behind | Refusal::Window) => {}
        }
    }

    /// User space takes back: what follows goes through the sockets, once this part has drained.
    fn stop(&mut self) {
        assert!(self.pair.stop());
        self.seen.stopped += 1;
        let carried = self.pair.splice.length;
        let range = self.ranges.last_mut().expect("a range");
        range.1 = range.0 + carried;
        self.to_client += carried;
        self.from_server += carried;
        self.response_left -= carried as usize;
        self.framing = self.pair.splice.framing;
        if !self.plan.rounds[self.round].chunked {
            self.framing = Framing::length(self.response_left as u64);
        }
        if self.pair.mode() == mode::PASS {
            self.seen.drained += 1;
        }
        // It writes at once: what the receiver's socket sends too early becomes a probe.
        self.step = Step::Response;
    }

    fn apps(&mut self) {
        let bytes = self.client.read(self.plan.client_reads, self.now);
        assert_eq!(bytes, self.expected[self.got..self.got + bytes.len()], "the client's bytes");
        self.got += bytes.len();
        if self.requests_sent < self.plan.rounds.len() {
            let begun = self.requests_sent == 0 || {
                let before = self.requests_sent - 1;
                let early = self.plan.rounds[self.requests_sent].pipelined;
                let from = if before == 0 { 0 } else { self.got_rounds[before - 1] };
                self.got >= self.got_rounds[before] || early && self.got > from + HEAD + ADDED + 200
            };
            if begun {
                self.client.write(&[b'r'; REQUEST]);
                self.requests_sent += 1;
            }
        }
        if self.server.readable() >= REQUEST && self.to_write.is_empty() {
            self.server.read(REQUEST, self.now);
            self.to_write = self.response(self.requests_served).to_vec();
            self.requests_served += 1;
            self.next_write = self.now + self.random.below(20);
        }
        if !self.to_write.is_empty() && self.now >= self.next_write {
            let round = &self.plan.rounds[self.requests_served - 1];
            let (pause, most) = (round.pause, round.write);
            let n = (1 + self.random.below(most as u64) as usize).min(self.to_write.len());
            let part: Vec<u8> = self.to_write.drain(..n).collect();
            self.server.write(&part);
            self.next_write = self.now + self.random.below(pause);
        }
    }

    fn send(&mut self) {
        for segment in self.client.poll(self.now) {
            self.transmit(To::GatewayFromClient, segment);
        }
        for segment in self.server.poll(self.now) {
            self.transmit(To::GatewayFromServer, segment);
        }
        for (side, to) in [(Side::Receiver, To::Client), (Side::Source, To::Server)] {
            let out =
                if side == Side::Receiver { self.a.poll(self.now) } else { self.b.poll(self.now) };
            for segment in out {
                match translate::egress(&mut self.pair, side, &segment.head).action {
                    Action::Pass(head) => self.transmit(to, Self::shaped(&segment, head)),
                    Action::Drop => {}
                    other => panic!("egress: {other:?}"),
                }
            }
        }
    }

    pub(crate) fn run(mut self) -> Seen {
        let rounds = self.plan.rounds.len();
        while self.got < self.expected.len() || self.round < rounds {
            assert!(
                self.now < 400_000,
                "stalled: round {} {:?}, C has {}, mode {}, {:?}",
                self.round,
                self.step,
                self.got,
                self.pair.mode(),
                self.pair.splice
            );
            while let Some(Reverse((at, _, index))) = self.wires.peek().copied()
                && at <= self.now
            {
                self.wires.pop();
                let (to, segment) = self.sent[index].take().expect("sent once");
                self.arrive(to, segment);
            }
            self.apps();
            self.user_space();
            self.send();
            self.now += 1;
        }
        assert_eq!(self.got, self.expected.len());
        assert_eq!(self.released, rounds, "each ticket is released once");
        assert_eq!(word::mode(self.pair.word), mode::PASS);
        self.seen.time = self.now;
        self.seen
    }
}
