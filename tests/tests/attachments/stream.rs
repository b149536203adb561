//! A client and an instance that are joined by a gateway, and what they send each other.

use std::{mem::offset_of, os::fd::AsRawFd, time::Duration};

use aya::maps::{Array, Map, MapData};
use router_ebpf::splice::layout::{ConnEntry, role};
use tests::{
    Engine, Gateway, Peer, Upstream,
    bpf::Objects,
    chunked, eventually,
    message::{CHUNKED_HEAD, chat, chunked_request, response},
    payload,
};

/// A client and an instance that are joined by a gateway.
pub(crate) struct Joined {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    pub(crate) client: Peer,
    pub(crate) instance: Peer,
}

impl Joined {
    /// Bodies of one direction that were spliced.
    pub(crate) fn handovers(&self, direction: &str) -> f64 {
        let labels = [("engine", "splice"), ("direction", direction)];
        self.gateway.metric("atalho_handovers_total", &labels)
    }

    /// Times that the engine did not splice, or no longer, for one reason.
    pub(crate) fn fallbacks(&self, reason: &str) -> f64 {
        let labels = [("engine", "splice"), ("reason", reason)];
        self.gateway.metric("atalho_fallbacks_total", &labels)
    }

    /// Tokens, bulk and an upload, compared byte by byte.
    #[track_caller]
    pub(crate) fn exchange(&mut self, seed: u64) {
        let (client, instance) = (&mut self.client, &mut self.instance);
        client.send(chat("tokens"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..30 {
            let chunk = chunked::chunk(&payload::bytes(seed + number, 150));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");

        let bulk = payload::bytes(seed, 400_000);
        client.send(chat("bulk"));
        instance.request();
        instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
        client.head();
        pass(instance, client, &bulk);

        let upload = chunked::encode(payload::bytes(seed, 200_000).chunks(5_000));
        let sent = chunked_request("/upload", &upload);
        let at = sent.len() - upload.len() / 2;
        client.send(&sent[..at]);
        instance.head();
        let begin = instance.take_exact(at - (sent.len() - upload.len()));
        payload::assert_same("upload", &begin, &upload[..begin.len()]);
        pass(client, instance, &upload[begin.len()..]);
        instance.send(response(200, "got it"));
        client.response();
    }

    /// An answer that goes on, which is spliced from its next byte on.
    #[track_caller]
    pub(crate) fn begin_spliced_stream(&mut self) {
        self.client.send(chat("stream"));
        self.instance.request();
        self.instance.send(CHUNKED_HEAD);
        self.client.head();
        for number in 0..100 {
            let spliced = || (pairs(&self.gateway) == [0]).then_some(());
            if tests::wait::within(Duration::from_millis(100), spliced).is_some() {
                return;
            }
            self.token(number);
        }
        panic!("not spliced: {}", refusals(&self.gateway));
    }

    /// One token of an answer that goes on.
    #[track_caller]
    pub(crate) fn token(&mut self, number: u64) {
        let chunk = chunked::chunk(&payload::bytes(number, 150));
        self.instance.send(&chunk);
        self.client.expect(&chunk);
    }

    /// Ends the stream. The connections serve another exchange, and nothing is left.
    #[track_caller]
    pub(crate) fn end_and_go_on(&mut self) {
        self.end_stream();
        self.exchange(1);
        assert_eq!(self.upstream.accepted(), 1);
        self.gateway.expect_idle();
    }

    /// The end of one.
    #[track_caller]
    pub(crate) fn end_stream(&mut self) {
        self.instance.send("0\r\n\r\n");
        self.client.expect("0\r\n\r\n");
    }

    /// Twenty tokens of an answer that goes on.
    #[track_caller]
    pub(crate) fn begin_stream(&mut self) {
        self.client.send(chat("stream"));
        self.instance.request();
        self.instance.send(CHUNKED_HEAD);
        self.client.head();
        for number in 0..20 {
            self.token(number);
        }
    }

    /// Exchanges go past the sockets, both ways, on the connections that there are: if not the first,
    /// because bytes came before it was handed over, then one of the next.
    #[track_caller]
    pub(crate) fn expect_spliced(&mut self) {
        let mut carried = [0; 2];
        for round in 0..20 {
            self.exchange(round);
            carried = ["response", "request"].map(|way| self.gateway.carried(Engine::Splice, way));
            if round > 0 && carried[0] > 300_000 && carried[1] > 50_000 {
                break;
            }
        }
        let refusals = refusals(&self.gateway);
        assert!(carried[0] > 300_000 && carried[1] > 50_000, "only {carried:?}: {refusals}");
        assert_eq!(self.upstream.accepted(), 1);
        self.gateway.expect_idle();
    }

    /// Another engine carried everything, and this is why.
    #[track_caller]
    pub(crate) fn expect_refused(&self, reason: &str) {
        let labels = [("engine", "splice")];
        assert_eq!(self.gateway.metric("atalho_handovers_total", &labels), 0.0);
        assert!(self.fallbacks(reason) > 0.0, "not for {reason}: {}", refusals(&self.gateway));
        self.gateway.expect_idle();
    }
}

/// An element of the programs' memory.
#[derive(Clone, Copy)]
pub(crate) struct Element([u8; size_of::<ConnEntry>()]);

// SAFETY: bytes.
unsafe impl aya::Pod for Element {}

impl Element {
    pub(crate) fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("within the element")
    }
}

/// What has been forwarded so far by each pair that is spliced now.
pub(crate) fn pairs(gateway: &Gateway) -> Vec<u64> {
    let conns = Objects::of(gateway.pid()).maps.into_iter().find_map(|id| {
        let map = MapData::from_id(id).ok()?;
        (map.info().ok()?.name_as_str()? == "CONNS").then_some(map)
    });
    let conns: Array<_, Element> = Map::Array(conns.expect("a map of it")).try_into().unwrap();
    // Those that were never used are zero, and the first few are used again.
    let used = (0..32).map(|index| conns.get(&index, 0).unwrap());
    used.filter(|one| u32::from_ne_bytes(one.bytes(offset_of!(ConnEntry, role))) == role::SOURCE)
        .map(|one| u64::from_ne_bytes(one.bytes(offset_of!(ConnEntry, pair.splice.forwarded))))
        .collect()
}

pub(crate) fn refusals(gateway: &Gateway) -> String {
    let metrics = gateway.metrics();
    let all: Vec<_> = metrics
        .matching("atalho_fallbacks_total", &[])
        .map(|sample| format!("{} {}", sample.labels["reason"], sample.value))
        .collect();
    all.join(", ")
}

/// Sends on one side, takes on the other: piece by piece first, with moments between them in which the
/// gateway can hand over, and then all that is left.
#[track_caller]
pub(crate) fn pass(from: &mut Peer, to: &mut Peer, bytes: &[u8]) {
    let (pieces, rest) = bytes.split_at(10 * 1000);
    for piece in pieces.chunks(1000) {
        std::thread::sleep(Duration::from_millis(1));
        from.send(piece);
        to.expect(piece);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| from.send(rest));
        payload::assert_same("bytes", &to.take_exact(rest.len()), rest);
    });
}

/// Segments that a socket has sent again, once all is acknowledged.
#[track_caller]
pub(crate) fn sent_again(peer: &Peer) -> u32 {
    // `tcpi_unacked`, `tcpi_total_retrans`.
    eventually("all is acknowledged", || tcp_info(peer)[6] == 0);
    tcp_info(peer)[25]
}

pub(crate) fn tcp_info(peer: &Peer) -> [u32; 26] {
    let mut info = [0u32; 26];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the buffer has the length that the call is told.
    let rc = unsafe {
        libc::getsockopt(
            peer.stream().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    info
}
