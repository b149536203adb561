//! Retransmissions that begin before what has been received.
//!
//! No peer on loopback sends them, so the source here is a TCP made by hand on a tunnel device, in a
//! network namespace of its own.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
    process::Command,
};

use super::*;

const HERE: [u8; 4] = [10, 9, 0, 1];
const PEER: [u8; 4] = [10, 9, 0, 2];
const PEER_PORT: u16 = 4000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// A peer that sends whatever segments the test says.
struct Peer {
    tunnel: File,
    port: u16,
    /// Sequence number of the first byte of data.
    first: u32,
    acknowledge: u32,
}

impl Peer {
    /// Moves the thread into a new network namespace with a tunnel to the peer.
    fn open() -> Result<File, String> {
        // SAFETY: takes no pointer; concerns this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let tunnel = File::options().read(true).write(true).open("/dev/net/tun");
        let tunnel = tunnel.map_err(|error| format!("/dev/net/tun: {error}"))?;
        // struct ifreq: a name, then flags.
        let mut request = [0u8; 40];
        request[..4].copy_from_slice(b"peer");
        let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as u16;
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
        // SAFETY: the request has the length of a struct ifreq.
        if unsafe { libc::ioctl(tunnel.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        for arguments in ["link set lo up", "addr add 10.9.0.1/24 dev peer", "link set peer up"] {
            let status = Command::new("ip").args(arguments.split(' ')).status();
            if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
                return Err(format!("ip {arguments}: {status:?}"));
            }
        }
        Ok(tunnel)
    }

    /// Connects to a listener of this namespace.
    fn connect(tunnel: File, port: u16, first: u32) -> Self {
        let mut peer = Self { tunnel, port, first, acknowledge: 0 };
        peer.segment(first.wrapping_sub(1), SYN, &[]);
        loop {
            let mut packet = [0; 2000];
            let n = peer.tunnel.read(&mut packet).unwrap();
            let tcp = &packet[20..n];
            if n >= 40 && packet[0] == 0x45 && packet[9] == 6 && tcp[13] & SYN != 0 {
                let sequence = u32::from_be_bytes(tcp[4..8].try_into().unwrap());
                peer.acknowledge = sequence.wrapping_add(1);
                peer.segment(first, ACK, &[]);
                return peer;
            }
        }
    }

    /// Sends `bytes` that begin `at` bytes into the stream.
    fn data(&mut self, at: u32, bytes: &[u8], flags: u8) {
        self.segment(self.first.wrapping_add(at), ACK | PSH | flags, bytes);
    }

    fn segment(&mut self, sequence: u32, flags: u8, bytes: &[u8]) {
        let mut tcp = Vec::new();
        tcp.extend(PEER_PORT.to_be_bytes());
        tcp.extend(self.port.to_be_bytes());
        tcp.extend(sequence.to_be_bytes());
        tcp.extend(self.acknowledge.to_be_bytes());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(bytes);
        let mut pseudo = [&PEER[..], &HERE[..]].concat();
        pseudo.extend([0, 6]);
        pseudo.extend((tcp.len() as u16).to_be_bytes());
        pseudo.extend(&tcp);
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());

        let mut ip = vec![0x45, 0];
        ip.extend(((20 + tcp.len()) as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(PEER);
        ip.extend(HERE);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend(tcp);
        self.tunnel.write_all(&ip).unwrap();
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Runs a test with a hand-made source and an ordinary target.
fn with_peer<F: Future<Output = ()>>(test: impl FnOnce(Sockmap, Conn, Peer) -> F + Send + 'static) {
    // A thread of its own, because the namespace is the thread's.
    let thread = std::thread::spawn(move || {
        let tunnel = match Peer::open() {
            Ok(tunnel) => tunnel,
            Err(error) => {
                return crate::testing::skip(error);
            }
        };
        with_engine(Settings::default(), |engine| async move {
            let listener = std::net::TcpListener::bind("10.9.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let accepting = std::thread::spawn(move || listener.accept().unwrap().0);
            let peer = Peer::connect(tunnel, port, u32::MAX - 700);
            let near = accepting.join().unwrap();
            test(engine, Conn::new(Stream::new(near).unwrap()), peer).await;
        });
    });
    thread.join().unwrap();
}

#[test]
fn repeated_bytes_are_redirected_once() {
    with_peer(|engine, mut from, mut peer| async move {
        let (mut to, mut target) = connection().await;
        let body = pattern(5, 60_000);
        let sent = body.clone();
        let far = tokio::task::spawn_local(async move {
            let mut got = vec![0; 1_000];
            peer.data(0, &sent[..1_000], 0);
            target.read_exact(&mut got).await.unwrap();
            assert!(got == sent[..1_000]);
            // Half old, half new; the sequence number has wrapped in between.
            peer.data(500, &sent[500..1_500], 0);
            got.resize(1_500, 0);
            target.read_exact(&mut got[1_000..]).await.unwrap();
            assert!(got == sent[..1_500]);
            // Only old bytes.
            peer.data(200, &sent[200..800], 0);
            // Out of order, overlapping, then the gap is filled.
            peer.data(2_000, &sent[2_000..3_000], 0);
            peer.data(2_500, &sent[2_500..3_500], 0);
            peer.data(1_400, &sent[1_400..2_100], 0);
            got.resize(3_500, 0);
            target.read_exact(&mut got[1_500..]).await.unwrap();
            assert!(got == sent[..3_500]);
            // More old bytes than one cut takes off.
            peer.data(3_500, &sent[3_500..23_500], 0);
            got.resize(23_500, 0);
            target.read_exact(&mut got[3_500..]).await.unwrap();
            peer.data(3_600, &sent[3_600..60_000], FIN);
            got.resize(60_000, 0);
            target.read_exact(&mut got[23_500..]).await.unwrap();
            assert!(got == sent);
            target
        });
        let mut framing = Framing::length(body.len() as u64);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        let target = far.await.unwrap();
        assert_eq!((outcome.end, outcome.bytes), (HandoverEnd::Ended, 60_000));
        drop(target);
    });
}

#[test]
fn repeated_bytes_are_passed_once() {
    with_peer(|engine, mut from, mut peer| async move {
        let (mut to, _target) = connection().await;
        let body = pattern(6, 3_000);
        peer.data(0, &body[..1_000], 0);
        let fill = |from: &mut Conn, cx: &mut Context<'_>| from.poll_fill(cx, 100_000);
        std::future::poll_fn(|cx| fill(&mut from, cx)).await.unwrap();
        let mut got = from.input.split().to_vec();
        // Joins, and is handed back at once, because the skb holds more than the body.
        let far = tokio::task::spawn_local({
            let body = body.clone();
            async move {
                tokio::task::yield_now().await;
                peer.data(900, &body[900..1_900], 0);
                peer
            }
        });
        let mut framing = Framing::length(10);
        let outcome = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE)).await;
        assert_eq!(outcome.end, HandoverEnd::TakenBack(TakeBack::Crossed));
        let mut peer = far.await.unwrap();
        peer.data(1_800, &body[1_800..3_000], 0);
        while from.input.len() < 2_000 {
            std::future::poll_fn(|cx| fill(&mut from, cx)).await.unwrap();
        }
        got.extend_from_slice(&from.input);
        assert!(got == body);
    });
}
