//! Real bytes through real sockets and the real programs, on loopback.

use std::{
    future::{Future, poll_fn},
    sync::atomic::Ordering::SeqCst,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::LocalSet,
};

use super::*;
use crate::{
    engine::{KernelEngine, selftest::data::chunked, testing::always_quicker},
    kernel::{LoadError, splice::Options},
    net::{
        Stream,
        socket::{self, ConnectOptions},
    },
};

const IDLE: Duration = Duration::from_secs(10);

/// The programs, for one test alone; or why it is skipped.
fn programs() -> Option<Arc<SpliceObject>> {
    loaded(SpliceObject::load(&options()))
}

fn options() -> Options {
    Options { connections: 64, counters: 64, ..Options::default() }
}

fn loaded(result: Result<Arc<SpliceObject>, LoadError>) -> Option<Arc<SpliceObject>> {
    match result {
        Ok(programs) => Some(programs),
        Err(error) => {
            crate::testing::skip(error);
            None
        }
    }
}

/// Runs a test with an engine of its own.
fn with_engine<F: Future<Output = ()>>(test: impl FnOnce(Splice) -> F) {
    let Some(programs) = programs() else { return };
    with_programs(programs, test);
}

fn with_programs<F: Future<Output = ()>>(
    programs: Arc<SpliceObject>,
    test: impl FnOnce(Splice) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async move {
        let watch = HangupWatch::new().unwrap();
        let engine = Splice::new(programs, watch.clone(), 0, Settings::default()).unwrap();
        tokio::task::spawn_local(watch.drive());
        tokio::task::spawn_local(engine.clone().drive());
        tokio::time::timeout(Duration::from_secs(120), test(engine)).await.expect("a test hangs");
    });
}

/// A client's connection and one to an instance, with their far ends, known to the programs.
struct Pairs {
    a: Conn,
    client: TcpStream,
    b: Conn,
    instance: TcpStream,
}

impl Pairs {
    async fn open(engine: &Splice) -> Self {
        let mut pairs = Self::unknown().await;
        pairs.register(engine);
        // What a request and the head of its response are.
        pairs.echo().await;
        pairs
    }

    /// Not known to the programs.
    async fn unknown() -> Self {
        let listener = socket::listen("127.0.0.1:0".parse().unwrap(), Some(MAX_SEGMENT)).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        let a = Conn::new(Stream::new(near.into_std().unwrap()).unwrap());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = ConnectOptions { segment: Some(MAX_SEGMENT), receive_buffer: Some(1 << 20) };
        let b = Conn::new(socket::connect(&[address], IDLE, &options).await.unwrap());
        let (instance, _) = listener.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        instance.set_nodelay(true).unwrap();
        Self { a, client, b, instance }
    }

    fn register(&mut self, engine: &Splice) {
        engine.register(&mut self.a, false);
        engine.register(&mut self.b, true);
    }

    /// A few bytes each way, through the sockets.
    async fn echo(&mut self) {
        for (near, far) in [(&mut self.a, &mut self.client), (&mut self.b, &mut self.instance)] {
            far.write_all(b"to").await.unwrap();
            fill(near, 2).await;
            assert_eq!(&near.input[..], b"to");
            near.input.clear();
            near.stream.write_all(b"from").await.unwrap();
            let mut got = [0; 4];
            far.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"from");
        }
    }
}

async fn fill(conn: &mut Conn, length: usize) {
    while conn.input.len() < length {
        assert!(poll_fn(|cx| conn.poll_fill(cx, length)).await.unwrap() > 0, "an early end");
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// What a relay does with a body: hands it over, and goes on in user space when that is not possible.
async fn relay(engine: &Splice, from: &mut Conn, to: &mut Conn, mut framing: Framing) -> u64 {
    let mut moved = 0;
    while !framing.is_done() {
        if from.input.is_empty() {
            let outcome = engine.hand_over(Handover::new(from, to, &mut framing, IDLE)).await;
            moved += outcome.bytes;
            match outcome.end {
                HandoverEnd::Ended => break,
                HandoverEnd::TakenBack(_) | HandoverEnd::Declined(_) => {}
                end => panic!("{end:?}"),
            }
        }
        if from.input.is_empty() {
            assert!(poll_fn(|cx| from.poll_fill(cx, 64 * 1024)).await.unwrap() > 0, "an early end");
        }
        let n = framing.advance(&from.input).unwrap();
        let bytes = from.input.split_to(n);
        to.stream.write_all(&bytes).await.unwrap();
    }
    moved
}

#[test]
fn many_bodies_both_ways_on_the_same_connections() {
    with_engine(|engine| async move {
        let mut rng = fastrand::Rng::with_seed(7);
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let mut moved = 0;
        for round in 0..60 {
            let payload = pattern(round, rng.usize(1..300_000));
            let (body, framing) = if rng.bool() {
                let body = chunked(&payload, rng.usize(1..20_000));
                (body, Framing::chunked())
            } else {
                let framing = Framing::length(payload.len() as u64);
                (payload, framing)
            };
            let up = rng.u8(..) < 80;
            let (from, to, source, target) = if up {
                (&mut a, &mut b, &mut client, &mut instance)
            } else {
                (&mut b, &mut a, &mut instance, &mut client)
            };
            let most = rng.usize(1..100_000);
            let send = async {
                for part in body.chunks(most) {
                    source.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let mut got = vec![0; body.len()];
            let receive = target.read_exact(&mut got);
            let (n, (), received) = tokio::join!(relay(&engine, from, to, framing), send, receive);
            received.unwrap();
            moved += n;
            assert!(got == body, "round {round}");
        }
        assert!(moved > 0);
        println!("the kernel moved {moved} bytes");
        let mut pairs = Pairs { a, client, b, instance };
        pairs.echo().await;
    });
}

/// A connection with accurate ECN counts marks in bits that the programs do not translate. Few kernels have
/// it: what is read here instead of how it uses ECN is a number that can be set.
#[test]
fn accurate_ecn_on_either_side_is_left_to_another_engine() {
    let Some(programs) = loaded(SpliceObject::load_with(&options(), "keepalive_probes")) else {
        return;
    };
    with_programs(programs, |engine| async move {
        // Of the client's connection and the instance's. TCP_ECN_MODE_ACCECN is 16.
        for (said, spliced) in [([15, 47], true), ([16, 15], false), ([15, 31], false)] {
            let mut pairs = Pairs::unknown().await;
            for (stream, said) in [&pairs.a.stream, &pairs.b.stream].into_iter().zip(said) {
                let keepalive = socket2::TcpKeepalive::new().with_retries(said);
                socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive).unwrap();
            }
            pairs.register(&engine);
            pairs.echo().await;
            let Pairs { a, client, b, instance } = &mut pairs;
            let mut framing = Framing::length(4);
            let handover = engine.hand_over(Handover::new(b, a, &mut framing, IDLE));
            let mut got = [0; 4];
            if spliced {
                let far = async {
                    instance.write_all(b"0123").await.unwrap();
                    client.read_exact(&mut got).await.unwrap();
                };
                assert_eq!(tokio::join!(handover, far).0.end, HandoverEnd::Ended);
            } else {
                assert_eq!(handover.await.end, HandoverEnd::Declined(Decline::Options));
                // User space carries it.
                let far = async {
                    instance.write_all(b"0123").await.unwrap();
                    client.read_exact(&mut got).await.unwrap();
                };
                let moved = tokio::join!(relay(&engine, b, a, Framing::length(4)), far).0;
                assert_eq!(moved, 0);
            }
            assert_eq!(&got, b"0123");
        }
    });
}

/// Bytes that a socket had out of order when the programs came to know it are not theirs to count: once
/// others before them had gone past it, it would take them for later ones.
#[test]
fn bytes_that_came_early_keep_their_place() {
    with_engine(|engine| async move {
        let mut pairs = Pairs::unknown().await;
        let mut stream = b"to".to_vec();
        stream.extend(pattern(3, 4000));
        if !forged::send(&pairs.client, 2000, &stream[2000..2600]) {
            return;
        }
        pairs.register(&engine);
        pairs.echo().await;
        let Pairs { a, client, b, .. } = &mut pairs;
        let mut framing = Framing::length(1000);
        let handover = engine.hand_over(Handover::new(a, b, &mut framing, IDLE));
        let (outcome, sent) = tokio::join!(handover, client.write_all(&stream[2..1002]));
        sent.unwrap();
        assert_eq!(outcome.end, HandoverEnd::Declined(Decline::Unread));
        client.write_all(&stream[1002..]).await.unwrap();
        fill(a, 4000).await;
        assert!(a.input[..] == stream[2..]);
        a.input.clear();
        // They are read now.
        pairs.echo().await;
        let Pairs { a, client, b, instance } = &mut pairs;
        let mut got = [0; 1000];
        let far = async {
            client.write_all(&stream[..1000]).await.unwrap();
            instance.read_exact(&mut got).await.unwrap();
        };
        tokio::join!(relay(&engine, a, b, Framing::length(1000)), far);
        assert!(got == stream[..1000]);
        pairs.echo().await;
    });
}

/// Segments that a socket did not send.
mod forged {
    use std::{mem::MaybeUninit, net::SocketAddr, os::fd::AsRawFd};

    use socket2::{Domain, Protocol, Socket, Type};
    use tokio::net::TcpStream;

    const HEADERS: usize = 40;

    /// Sends `payload` to a socket's peer, as what will follow after `ahead` more bytes. False, said aloud, when that
    /// is not allowed.
    pub(super) fn send(stream: &TcpStream, ahead: u32, payload: &[u8]) -> bool {
        let (Ok(SocketAddr::V4(from)), Ok(SocketAddr::V4(to))) =
            (stream.local_addr(), stream.peer_addr())
        else {
            panic!("sockets of IPv4");
        };
        let raw = match Socket::new(
            Domain::IPV4,
            Type::from(libc::SOCK_RAW),
            Some(Protocol::from(libc::IPPROTO_RAW)),
        ) {
            Ok(raw) => raw,
            Err(error) => {
                crate::testing::skip(error);
                return false;
            }
        };
        let (received, sent) = (queue(stream, 1), queue(stream, 2));
        let length = (HEADERS + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, libc::IPPROTO_TCP as u8, 0, 0]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend(sent.wrapping_add(ahead).to_be_bytes());
        packet.extend(received.to_be_bytes());
        // Five words of header, ACK, a window, no checksum yet.
        packet.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        packet.extend(payload);
        // RFC 9293 section 3.1: the segment behind a pseudo header.
        let pseudo = [&packet[12..20], &[0, 6], &(length - 20).to_be_bytes()].concat();
        let sum: u32 = [&pseudo[..], &packet[20..]]
            .concat()
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        packet[36..38].copy_from_slice(&checksum.to_be_bytes());
        raw.send_to(&packet, &SocketAddr::V4(to).into()).unwrap();
        true
    }

    /// The next number that a socket receives (1) or sends (2): it must be in repair for that.
    fn queue(stream: &TcpStream, queue: libc::c_int) -> u32 {
        const REPAIR: libc::c_int = 19;
        const QUEUE: libc::c_int = 20;
        const QUEUE_SEQ: libc::c_int = 21;
        let fd = stream.as_raw_fd();
        let set = |name, value: libc::c_int| {
            // SAFETY: the option is an int, and lives during the call.
            let rc = unsafe {
                libc::setsockopt(fd, libc::IPPROTO_TCP, name, (&raw const value).cast(), 4)
            };
            assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        };
        set(REPAIR, 1);
        set(QUEUE, queue);
        let mut number = MaybeUninit::<u32>::uninit();
        let mut length = 4;
        // SAFETY: the buffer has the length that the call is told, and is filled when that succeeds.
        let number = unsafe {
            let rc = libc::getsockopt(
                fd,
                libc::IPPROTO_TCP,
                QUEUE_SEQ,
                number.as_mut_ptr().cast(),
                &raw mut length,
            );
            assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
            number.assume_init()
        };
        set(REPAIR, -1);
        number
    }
}

#[test]
fn the_counter_is_released_with_the_last_byte() {
    with_engine(|engine| async move {
        let mut pairs = Pairs::open(&engine).await;
        let programs = engine.inner.programs.clone();
        programs.counter(5).store(1, SeqCst);
        let Pairs { a, client, b, instance } = &mut pairs;
        let mut framing = Framing::length(10);
        let handover = engine
            .hand_over(Handover { release: Some(5), ..Handover::new(b, a, &mut framing, IDLE) });
        let far = async {
            instance.write_all(b"0123456789").await.unwrap();
            let mut got = [0; 10];
            client.read_exact(&mut got).await.unwrap();
            // The answer is complete, and the instance is free, whatever user space does.
            assert_eq!(programs.counter(5).load(SeqCst), 0);
            got
        };
        let (outcome, got) = tokio::join!(handover, far);
        assert_eq!(outcome, HandoverOutcome { bytes: 10, released: true, end: HandoverEnd::Ended });
        assert_eq!(&got, b"0123456789");
        assert!(framing.is_done());
    });
}

/// A hypervisor may take a processor away while a program on it holds a lock. Whatever user space wants
/// meanwhile has to wait: here the beginning of a hand-over, and its end.
#[test]
fn a_lock_that_is_held_for_long_is_waited_for() {
    const LONG: Duration = Duration::from_millis(100);
    with_engine(|engine| async move {
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let programs = engine.inner.programs.clone();
        let index = b.splice.as_ref().unwrap().index();
        let lock_for_long = || {
            let programs = programs.clone();
            programs.entry(index).pair_lock().store(1, SeqCst);
            std::thread::spawn(move || {
                std::thread::sleep(LONG);
                programs.entry(index).pair_lock().store(0, SeqCst);
            })
        };
        let mut framing = Framing::length(10);
        let first = lock_for_long();
        let handover = engine.hand_over(Handover::new(&mut b, &mut a, &mut framing, IDLE));
        let far = async {
            instance.write_all(b"0123456789").await.unwrap();
            let mut got = [0; 10];
            client.read_exact(&mut got).await.unwrap();
            // On this thread, before the hand-over's end is seen.
            (got, lock_for_long())
        };
        let (outcome, (got, second)) = tokio::join!(handover, far);
        assert_eq!(outcome.end, HandoverEnd::Ended);
        assert_eq!(&got, b"0123456789");
        first.join().unwrap();
        second.join().unwrap();
        assert!(!b.splice.as_ref().unwrap().is_broken());
    });
}

#[test]
fn a_dropped_future_resets_both_and_leaves_the_counter() {
    with_engine(|engine| async move {
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let programs = engine.inner.programs.clone();
        programs.counter(6).store(1, SeqCst);
        let mut framing = Framing::length(1000);
        {
            let mut handover = Box::pin(engine.hand_over(Handover {
                release: Some(6),
                ..Handover::new(&mut b, &mut a, &mut framing, IDLE)
            }));
            let far = async {
                instance.write_all(b"some").await.unwrap();
                let mut got = [0; 4];
                client.read_exact(&mut got).await.unwrap();
                got
            };
            tokio::select! {
                // The hand-over begins first.
                biased;
                end = &mut handover => panic!("{end:?}"),
                got = far => assert_eq!(&got, b"some"),
            }
        }
        assert_eq!(programs.counter(6).load(SeqCst), 1);
        drop((a, b));
        for far in [&mut client, &mut instance] {
            let error = far.read(&mut [0; 16]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        assert_eq!(programs.in_use(), 0, "connections that were reset leave nothing behind");
    });
}

/// The window that sockets announce must hold two segments, and is no limit while a pair is spliced.
#[test]
fn more_than_the_window_is_under_way() {
    with_engine(|engine| async move {
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let programs = engine.inner.programs.clone();
        let [receiver, source] = [&a, &b].map(|conn| conn.splice.as_ref().unwrap().index());
        for index in [receiver, source] {
            assert!(2 * programs.entry(index).mss() <= UNSPLICED_WINDOW);
        }
        let body = pattern(11, 1 << 20);
        let mut framing = Framing::length(body.len() as u64);
        let handover = engine.hand_over(Handover::new(&mut b, &mut a, &mut framing, IDLE));
        let receive = async {
            while programs.entry(source).forwarded() <= u64::from(UNSPLICED_WINDOW) {
                tokio::task::yield_now().await;
            }
            let mut got = vec![0; body.len()];
            client.read_exact(&mut got).await.unwrap();
            got
        };
        let (outcome, sent, got) = tokio::join!(handover, instance.write_all(&body), receive);
        sent.unwrap();
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::Ended, body.len() as u64));
        assert!(got == body);
    });
}

#[test]
fn a_source_that_is_always_quicker_is_handed_over() {
    with_engine(|engine| async move {
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let carrier = KernelEngine::Splice(engine);
        always_quicker(&carrier, (&mut b, &mut instance), (&mut a, &mut client)).await;
        always_quicker(&carrier, (&mut a, &mut client), (&mut b, &mut instance)).await;
    });
}

#[test]
fn hang_ups_of_either_side_are_seen() {
    with_engine(|engine| async move {
        // The receiver closes.
        let Pairs { mut a, client, mut b, mut instance } = Pairs::open(&engine).await;
        let mut framing = Framing::length(1000);
        instance.write_all(b"some").await.unwrap();
        let handover = engine.hand_over(Handover::new(&mut b, &mut a, &mut framing, IDLE));
        let (outcome, ()) = tokio::join!(handover, async { drop(client) });
        assert!(matches!(
            outcome.end,
            HandoverEnd::TargetGone | HandoverEnd::Declined(Decline::Unread)
        ));
        drop((a, b));

        // The source is reset.
        let Pairs { mut a, mut client, mut b, mut instance } = Pairs::open(&engine).await;
        let mut framing = Framing::length(1000);
        let handover = engine.hand_over(Handover::new(&mut b, &mut a, &mut framing, IDLE));
        let far = async {
            instance.write_all(b"some").await.unwrap();
            let mut got = [0; 4];
            client.read_exact(&mut got).await.unwrap();
            socket2::SockRef::from(&instance).set_linger(Some(Duration::ZERO)).unwrap();
            drop(instance);
        };
        let (outcome, ()) = tokio::join!(handover, far);
        assert_eq!(outcome.end, HandoverEnd::SourceBroken);
        drop((a, b));
        let error = client.read(&mut [0; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "it is not a complete answer");
    });
}
