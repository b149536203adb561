//! What happens in one run, and the bytes of it.

use proptest::prelude::*;

use crate::tcp::Time;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Length,
    Chunked,
    /// Responses only.
    Close,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Bytes of the body, before chunking.
    pub(crate) body: usize,
    pub(crate) end: End,
    pub(crate) spliced: bool,
    /// Longest pause of the sender between two writes.
    pub(crate) pause: Time,
    /// Most bytes of a write.
    pub(crate) write: usize,
    /// Most bytes of a chunk.
    pub(crate) chunk: usize,
    /// The gateway takes the body back after at most so many milliseconds; 0 for never.
    pub(crate) stop: Time,
    /// Gigabytes that the splice has already carried when it begins, as far as it knows.
    pub(crate) age: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) request: Message,
    pub(crate) response: Message,
    /// The client sends this request while it still receives the response before.
    pub(crate) pipelined: bool,
    /// The server begins its response with so many bytes of the request still to come.
    pub(crate) early: usize,
    /// The server closes behind the response.
    pub(crate) closes: bool,
    /// Bytes that a broken server sends behind the body.
    pub(crate) surplus: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Client,
    Server,
    /// The gateway's socket towards the client.
    A,
    /// The gateway's socket towards the server.
    B,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Sends no more, and goes on reading.
    Shut,
    /// Closes, as a program that ends.
    Close,
    Reset,
    /// The host starts anew and opens a connection with the same addresses.
    Reboot,
    /// Somebody else sends a SYN in the host's name.
    Forged,
}

/// When something breaks: within the fault's round, in a state of the session's pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// After so many milliseconds, whatever the state.
    Time(Time),
    /// While a body is carried, once so many bytes were forwarded.
    Live(u64),
    Drain,
    /// Everything is acknowledged, and user space has not noticed.
    Quiet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) round: usize,
    pub(crate) who: Who,
    pub(crate) what: What,
    pub(crate) when: When,
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) rounds: Vec<Round>,
    pub(crate) fault: Option<Fault>,
    pub(crate) client: Host,
    /// The client closes its half after its last request.
    pub(crate) half_closes: bool,
    pub(crate) delay: Time,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) mss: usize,
    pub(crate) scale: u8,
    pub(crate) capacity: u64,
    /// Of what the gateway's sockets announce while they are not spliced; 0 for none.
    pub(crate) limit: u32,
    /// How much further than that they let themselves be opened for a splice.
    pub(crate) room: u64,
    pub(crate) rate: u32,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
    pub(crate) reads: usize,
    /// It stops reading now and then, for up to so long.
    pub(crate) stalls: Time,
    /// Close to where its numbers wrap.
    pub(crate) wraps: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) sessions: Vec<Session>,
    /// What servers and the gateway's sockets are.
    pub(crate) server: Host,
    pub(crate) gateway: [Host; 2],
    pub(crate) server_delay: Time,
    /// Share of packets lost, sent twice, and marked as having met congestion, in 1/1000.
    pub(crate) loss: u64,
    pub(crate) twice: u64,
    pub(crate) marks: u64,
    /// Most additional delay of a packet, by which it can be overtaken.
    pub(crate) jitter: u64,
    /// Most steps of the parser that a program may take in one packet.
    pub(crate) steps: usize,
    /// Programs can deliver two packets for one.
    pub(crate) both: bool,
    /// How many segments may travel as one.
    pub(crate) aggregate: usize,
    /// Responses go on for clients that have closed their half.
    pub(crate) half_closed: bool,
    /// Hosts ask silent peers whether they live.
    pub(crate) keepalive: Time,
}

/// What plans may hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) chunked: bool,
    pub(crate) impaired: bool,
    pub(crate) faults: bool,
    pub(crate) closes: bool,
    pub(crate) requests: bool,
    pub(crate) many: bool,
    pub(crate) small: bool,
    pub(crate) ecn: bool,
    pub(crate) surplus: bool,
}

fn message(kind: Kind, response: bool) -> BoxedStrategy<Message> {
    let body = if response || kind.requests {
        prop_oneof![1 => 1usize..60, 4 => 60usize..9_000].boxed()
    } else {
        (1usize..60).boxed()
    };
    let pause = prop_oneof![Just(2u64), Just(60), Just(3000)];
    let end = (any::<u8>(), any::<u8>()).prop_map(move |(chunked, close)| {
        if kind.closes && response && close < 40 {
            End::Close
        } else if kind.chunked && chunked < 128 {
            End::Chunked
        } else {
            End::Length
        }
    });
    (body, end, 0u8..4, pause, 50usize..3000, prop_oneof![Just(8usize), Just(700)], 0u8..8, 0u8..12)
        .prop_map(|(body, end, spliced, pause, write, chunk, stop, age)| Message {
            body,
            end,
            spliced: spliced > 0,
            pause: if write < 500 { pause.min(60) } else { pause },
            write,
            chunk,
            stop: if stop == 0 { 400 } else { 0 },
            age: match age {
                0 => 3,
                1 => 5,
                _ => 0,
            },
        })
        .boxed()
}

fn round(kind: Kind) -> impl Strategy<Value = Round> {
    let early = if kind.requests {
        prop_oneof![3 => Just(0usize), 1 => 1usize..3000].boxed()
    } else {
        Just(0).boxed()
    };
    let surplus = if kind.surplus { (1usize..2500).boxed() } else { Just(0).boxed() };
    let rest = (any::<bool>(), early, any::<u8>(), surplus);
    (message(kind, false), message(kind, true), rest).prop_map(
        move |(request, response, (pipelined, early, closes, surplus))| Round {
            surplus: if response.end == End::Chunked { surplus } else { 0 },
            closes: response.end == End::Close || kind.closes && closes < 60,
            request,
            response,
            pipelined,
            early,
        },
    )
}

fn host(kind: Kind) -> impl Strategy<Value = Host> {
    let mss = if kind.small { 40usize..120 } else { 500..501 };
    let capacity = if kind.small {
        prop_oneof![300u64..3000, 3000u64..60_000].boxed()
    } else {
        (3000u64..60_000).boxed()
    };
    let reads = prop_oneof![Just(5usize), Just(60), Just(100_000)];
    let stalls =
        if kind.small { prop_oneof![Just(0u64), Just(2500)].boxed() } else { Just(0).boxed() };
    let scale = if kind.small { 0u8..11 } else { 0..5 };
    (mss, scale, capacity, 1u32..4, any::<[bool; 3]>(), 0u8..6, reads, stalls).prop_map(
        move |(mss, scale, capacity, rate, flags, rare, reads, stalls)| Host {
            mss,
            scale,
            // A window field has 16 bits; less than a unit would be a window of nothing.
            capacity: capacity.min(65_535 << scale).max(2 << scale),
            limit: 0,
            room: 0,
            rate,
            sack: flags[0],
            timestamps: rare > 0,
            ecn: kind.ecn && flags[1],
            reads,
            stalls,
            wraps: flags[2],
        },
    )
}

fn session(kind: Kind) -> impl Strategy<Value = Session> {
    let who = prop_oneof![Just(Who::Client), Just(Who::Server), Just(Who::A), Just(Who::B)];
    let what = prop_oneof![
        3 => Just(What::Shut),
        3 => Just(What::Close),
        3 => Just(What::Reset),
        1 => Just(What::Reboot),
        1 => Just(What::Forged)
    ];
    let when = prop_oneof![
        1 => (0u64..800).prop_map(When::Time),
        3 => prop_oneof![Just(0u64), 0u64..4000].prop_map(When::Live),
        1 => Just(When::Drain),
        1 => Just(When::Quiet)
    ];
    let rounds = proptest::collection::vec(round(kind), 1..5);
    (
        rounds,
        (who, what, when, any::<proptest::sample::Index>()),
        host(kind),
        any::<bool>(),
        1u64..40,
    )
        .prop_map(move |(rounds, (who, what, when, at), client, half_closes, delay)| Session {
            fault: kind.faults.then(|| Fault { round: at.index(rounds.len()), who, what, when }),
            rounds,
            client,
            half_closes: kind.closes && half_closes,
            delay,
        })
}

pub(crate) fn plans(kind: Kind) -> impl Strategy<Value = Plan> {
    let network = if kind.impaired {
        (0u64..60, 0u64..50, prop_oneof![Just(0u64), Just(3), Just(30)]).boxed()
    } else {
        Just((0, 0, 0)).boxed()
    };
    let sessions = if kind.many { 2..4 } else { 1..2 };
    (
        any::<u64>(),
        proptest::collection::vec(session(kind), sessions),
        (host(kind), host(kind), host(kind)),
        network,
        (1u64..6, 1usize..6, any::<bool>(), 0u8..4),
    )
        .prop_map(move |(seed, sessions, mut hosts, (loss, twice, jitter), rest)| {
            if rest.3 > 0 {
                // As in the gateway: its sockets promise less than most peers do.
                let peers = sessions.iter().map(|s| s.client.capacity).chain([hosts.0.capacity]);
                let least = peers.min().unwrap_or(0) / 2;
                for host in [&mut hosts.1, &mut hosts.2] {
                    let least = least.max(2 << host.scale);
                    if rest.3 == 1 {
                        host.capacity = host.capacity.min(least);
                    } else {
                        host.limit = least as u32;
                        host.room = seed % 4 * 7_000;
                    }
                    host.timestamps = true;
                }
            }
            Plan {
                seed,
                sessions,
                server: hosts.0,
                gateway: [hosts.1, hosts.2],
                server_delay: rest.0,
                loss,
                twice,
                marks: if kind.ecn { 100 } else { 0 },
                jitter,
                steps: if rest.2 { 40 } else { 4096 },
                both: seed % 3 == 0,
                aggregate: rest.1,
                half_closed: rest.2,
                keepalive: if kind.faults || kind.closes || kind.surplus { 3000 } else { 0 },
            }
        })
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// A message's head: it says which exchange it belongs to.
pub(crate) const HEAD: usize = 40;
/// Bytes that user space adds to each response, so that the two streams differ.
pub(crate) const ADDED: usize = 37;

/// What a broken server sends behind the body.
pub(crate) const SURPLUS: u8 = 0xee;

/// The bytes of a message.
pub(crate) fn bytes(
    message: &Message,
    session: usize,
    round: usize,
    random: &mut Random,
) -> Vec<u8> {
    let mut out = vec![session as u8, round as u8];
    out.resize(HEAD, b'h');
    let payload: Vec<u8> = (0..message.body).map(|_| random.below(256) as u8).collect();
    if message.end != End::Chunked {
        out.extend(payload);
        return out;
    }
    let mut rest = &payload[..];
    while !rest.is_empty() {
        let most = 1 + random.below(message.chunk as u64) as usize;
        let (chunk, after) = rest.split_at(most.min(rest.len()));
        out.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
        rest = after;
    }
    out.extend(b"0\r\n\r\n");
    out
}
