//! Where the splice engine applies: client and instance behind interfaces of many kinds, the same
//! interface, the gateway's own host, and interfaces that come and go. What it cannot carry another
//! engine does, and a metric says why.

use std::{
    fs::File,
    io::{Read, Write},
    mem::offset_of,
    os::{fd::AsRawFd, unix::net::UnixStream},
    thread::JoinHandle,
    time::Duration,
};

use aya::{
    Ebpf,
    maps::{Array, Map, MapData},
    programs::{
        SchedClassifier, TcAttachType,
        tc::{NlOptions, TcAttachOptions},
    },
};
use router_ebpf::splice::layout::{ConnEntry, role};
use tests::{
    End, Engine, Gateway, Peer, Setup, Upstream,
    bpf::Objects,
    chunked, eventually,
    frames::{Link, Segment},
    message::{CHUNKED_HEAD, chat, chunked_request, response},
    netns::Namespace,
    payload, process,
};

/// Has the programs attached as kernels without TCX do.
const FILTERS: (&str, &str) = ("ATALHO_TC_FILTERS", "1");

/// Where the two are that the gateway is between.
struct Place<'a> {
    client: &'a Namespace,
    gateway: &'a Namespace,
    instance: &'a Namespace,
    /// The gateway's address for the client.
    listen: &'a str,
    /// The instance's.
    serves: &'a str,
}

/// A client and an instance that are joined by a gateway.
struct Joined {
    gateway: Gateway,
    upstream: Upstream,
    client: Peer,
    instance: Peer,
}

impl<'a> Place<'a> {
    /// Client, gateway and instance, with the addresses that most tests give them.
    fn of([client, gateway, instance]: [&'a Namespace; 3]) -> Self {
        Self { client, gateway, instance, listen: "10.97.1.2", serves: "10.97.2.2" }
    }

    fn start(&self) -> (Gateway, Upstream) {
        self.start_with(|setup| setup)
    }

    fn start_with(&self, set: impl FnOnce(Setup) -> Setup) -> (Gateway, Upstream) {
        let upstream = self
            .instance
            .run(|| Upstream::manual_at(format!("{}:0", self.serves).parse().unwrap()));
        let setup = Setup::single(Engine::Splice, &upstream)
            .within(self.gateway)
            .set("listen", vec![format!("{}:0", self.listen)]);
        (set(setup).start(), upstream)
    }

    fn connect(&self, gateway: Gateway, upstream: Upstream) -> Joined {
        let mut client = self.client.run(|| Peer::connect(gateway.address()));
        client.send(chat("warm"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "w"));
        client.response();
        Joined { gateway, upstream, client, instance }
    }

    fn join(&self) -> Joined {
        let (gateway, upstream) = self.start();
        self.connect(gateway, upstream)
    }

    /// One direction is spliced, the other is not, because of its segments.
    #[track_caller]
    fn expect_one_way(&self, way: &str) {
        let mut joined = self.join();
        for round in 0..20 {
            joined.exchange(round);
            if joined.handovers(way) > 0.0 {
                break;
            }
        }
        let other = if way == "request" { "response" } else { "request" };
        assert!(joined.handovers(way) > 0.0);
        assert_eq!(joined.handovers(other), 0.0);
        assert!(joined.fallbacks("segments") > 0.0);
        joined.gateway.expect_idle();
    }

    /// Exchanges are spliced there.
    #[track_caller]
    fn expect_spliced(&self) {
        self.join().expect_spliced();
    }
}

impl Joined {
    /// Bodies of one direction that were spliced.
    fn handovers(&self, direction: &str) -> f64 {
        let labels = [("engine", "splice"), ("direction", direction)];
        self.gateway.metric("atalho_handovers_total", &labels)
    }

    /// Times that the engine did not splice, or no longer, for one reason.
    fn fallbacks(&self, reason: &str) -> f64 {
        let labels = [("engine", "splice"), ("reason", reason)];
        self.gateway.metric("atalho_fallbacks_total", &labels)
    }

    /// Tokens, bulk and an upload, compared byte by byte.
    #[track_caller]
    fn exchange(&mut self, seed: u64) {
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
    fn begin_spliced_stream(&mut self) {
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
    fn token(&mut self, number: u64) {
        let chunk = chunked::chunk(&payload::bytes(number, 150));
        self.instance.send(&chunk);
        self.client.expect(&chunk);
    }

    /// Ends the stream. The connections serve another exchange, and nothing is left.
    #[track_caller]
    fn end_and_go_on(&mut self) {
        self.end_stream();
        self.exchange(1);
        assert_eq!(self.upstream.accepted(), 1);
        self.gateway.expect_idle();
    }

    /// The end of one.
    #[track_caller]
    fn end_stream(&mut self) {
        self.instance.send("0\r\n\r\n");
        self.client.expect("0\r\n\r\n");
    }

    /// Twenty tokens of an answer that goes on.
    #[track_caller]
    fn begin_stream(&mut self) {
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
    fn expect_spliced(&mut self) {
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
    fn expect_refused(&self, reason: &str) {
        let labels = [("engine", "splice")];
        assert_eq!(self.gateway.metric("atalho_handovers_total", &labels), 0.0);
        assert!(self.fallbacks(reason) > 0.0, "not for {reason}: {}", refusals(&self.gateway));
        self.gateway.expect_idle();
    }
}

/// An element of the programs' memory.
#[derive(Clone, Copy)]
struct Element([u8; size_of::<ConnEntry>()]);

// SAFETY: bytes.
unsafe impl aya::Pod for Element {}

impl Element {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("within the element")
    }
}

/// What has been forwarded so far by each pair that is spliced now.
fn pairs(gateway: &Gateway) -> Vec<u64> {
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

fn refusals(gateway: &Gateway) -> String {
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
fn pass(from: &mut Peer, to: &mut Peer, bytes: &[u8]) {
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

/// Two hosts on links of the gateway's: client, gateway, instance.
fn three() -> Option<[Namespace; 3]> {
    Some([Namespace::new()?, Namespace::new()?, Namespace::new()?])
}

/// Two interfaces without Ethernet, joined by a thread.
struct Tunnel {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    fn between(left: &Namespace, here: &str, right: &Namespace, there: &str) -> Self {
        let ends = [(left, here), (right, there)].map(|(host, address)| {
            let end = host.run(tun);
            host.ip_batch(&format!("addr add {address} dev tun7\nlink set tun7 up\n"));
            end
        });
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || shuttle(ends, &stopped));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Opens a tunnel interface of this namespace.
fn tun() -> File {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let file = File::options().read(true).write(true).open("/dev/net/tun").expect("tun");
    // SAFETY: all zeros is a value of this type.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"tun7") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives during the call.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &request) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Takes packets from each end to the other.
fn shuttle(mut ends: [File; 2], stopped: &UnixStream) {
    let mut packet = [0; 65_536];
    loop {
        let mut polled = [ends[0].as_raw_fd(), ends[1].as_raw_fd(), stopped.as_raw_fd()]
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: the array lives during the call.
        unsafe { libc::poll(polled.as_mut_ptr(), 3, -1) };
        if polled[2].revents != 0 {
            return;
        }
        for end in (0..2).filter(|end| polled[*end].revents != 0) {
            let Ok(n) = ends[end].read(&mut packet) else { return };
            // An interface that is going away refuses.
            let _ = ends[1 - end].write(&packet[..n]);
        }
    }
}

/// Whether the kernel has a kind of interface.
fn has(kind: &str, namespace: &Namespace) -> bool {
    let add = format!("link add link lo name probe type {kind}");
    let output = std::process::Command::new("ip")
        .args(["-n", namespace.name()])
        .args(add.split(' '))
        .output()
        .expect("the `ip` command");
    if String::from_utf8_lossy(&output.stderr).contains("Unknown device type") {
        // Not a matter of privileges, so that CI need not fail.
        eprintln!("SKIPPED: this kernel has no interfaces of type {kind}");
        return false;
    }
    if output.status.success() {
        namespace.ip(&["link", "del", "probe"]);
    }
    true
}

/// Adds an interface of a VLAN to one that has no address, and gives it one.
fn tag(namespace: &Namespace, link: &str, vlan: u32, address: &str, options: &str) {
    namespace.ip_batch(&format!(
        "link set {link} up\n\
         link add link {link} name vlan{vlan} type vlan id {vlan} {options}\n\
         addr add {address} dev vlan{vlan}\nlink set vlan{vlan} up\n"
    ));
}

#[test]
fn vlans_on_both_sides() {
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.link(&gateway);
    let (b, s) = gateway.link(&instance);
    tag(&client, &c, 7, "10.97.1.1/24", "");
    tag(&gateway, &a, 7, "10.97.1.2/24", "");
    tag(&gateway, &b, 8, "10.97.2.1/24", "");
    tag(&instance, &s, 8, "10.97.2.2/24", "");
    Place::of([&client, &gateway, &instance]).expect_spliced();
}

#[test]
fn a_vlan_on_one_side_and_the_interface_below_it_on_the_other() {
    // Both on one link: what leaves the interface of the VLAN passes the one below as well, tagged.
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    tag(&client, &c, 7, "10.97.2.2/24", "");
    tag(&gateway, &a, 7, "10.97.2.1/24", "");
    drop(instance);
    Place::of([&client, &gateway, &client]).expect_spliced();
}

#[test]
fn tags_in_the_frame_are_left_to_another_engine() {
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.link(&gateway);
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    tag(&client, &c, 7, "10.97.1.1/24", "");
    // The interface of the VLAN gets frames, and gives them, with the tag in its place.
    tag(&gateway, &a, 7, "10.97.1.2/24", "reorder_hdr off");
    let place = Place::of([&client, &gateway, &instance]);
    let mut joined = place.join();
    joined.exchange(0);
    joined.expect_refused("interface");
}

/// Frames of a VLAN are those of another network, whatever they look like: of the stream that is spliced,
/// its next bytes or its end.
#[test]
fn tagged_frames_that_look_like_those_of_a_stream() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    joined.expect_spliced();
    // Behind ours.
    let arriving = [("sees_arriving", TcAttachType::Ingress)];
    let behind = Others::attach_to(&row.gateway, &row.links[2], &arriving, false);
    let (ours, theirs) =
        (Link::open(&row.instance, &row.links[3]), Link::open(&row.client, &row.links[0]));
    joined.begin_spliced_stream();
    let chunk = chunked::chunk(&payload::bytes(77, 150));
    joined.instance.send(&chunk);
    joined.client.expect(&chunk);
    let forged = chunked::chunk(&payload::bytes(78, 150));
    let wanted = |segment: &Segment| segment.payload() == chunk;
    let last = ours.take("the last chunk, from the instance", wanted);
    let (seen, carried) = (behind.seen()[0], pairs(&joined.gateway));
    assert_eq!(carried, [chunk.len() as u64]);
    let tags: [&[u16]; 3] = [&[7], &[0x6007], &[7, 8]];
    for tags in tags {
        ours.send(&last.next(0x18, &forged).tagged(tags));
        ours.send(&last.next(Segment::RESET, &[]).tagged(tags));
    }
    eventually("they go on", || behind.seen()[0] >= seen + 2 * tags.len() as u64);
    assert_eq!(pairs(&joined.gateway), carried);

    // What the gateway's host sends into a VLAN on the same link leaves as it is.
    let last = theirs.take("the last chunk, to the client", wanted);
    let gateways = Link::open(&row.gateway, &row.links[1]);
    for (number, tags) in tags.into_iter().enumerate() {
        let strange = last.next(0x18, &payload::bytes(number as u64, 99));
        gateways.send(&strange.tagged(tags));
        if tags.len() == 1 {
            // (The socket shows it without its tag.)
            theirs.take("the frame that was sent", |segment| segment.bytes() == strange.bytes());
        }
    }

    for number in 0..20 {
        joined.token(number);
    }
    joined.end_and_go_on();
}

/// A tag that holds a priority alone is of the same network: the gateway's socket gets what the programs
/// leave to it, and they notice.
#[test]
fn packets_that_pass_the_programs_by_are_noticed() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    joined.begin_spliced_stream();
    let tagging = [("gives_priority", TcAttachType::Egress)];
    let tagging = Others::attach_to(&row.instance, &row.links[3], &tagging, false);
    for number in 0..20 {
        joined.token(number);
    }
    assert!(tagging.seen()[1] >= 20);
    assert!(joined.fallbacks("bypassed") > 0.0, "{}", refusals(&joined.gateway));
    drop(tagging);
    joined.end_stream();
    joined.expect_spliced();
}

/// The instance's socket repeats what was forwarded already, and it passes the programs by: the gateway's socket
/// has been waiting for it, and takes it. It must not reach the client again.
#[test]
fn what_was_forwarded_does_not_come_twice() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    let link = Link::open(&row.instance, &row.links[3]);
    joined.begin_spliced_stream();
    joined.token(7);
    let chunk = chunked::chunk(&payload::bytes(7, 150));
    let first = link.take("the first one", |segment| segment.payload() == chunk);
    joined.token(8);
    assert_eq!(pairs(&joined.gateway), [2 * chunk.len() as u64]);
    link.send(&first.again().tagged(&[0x6000]));
    let (rest, end) = joined.client.end();
    assert!(rest.is_empty(), "{} bytes came again", rest.len());
    assert_eq!(end, End::Reset);
    joined.instance.expect_end();
    joined.gateway.expect_idle();
}

/// Bytes ahead of what the gateway's socket waits for pass the programs by. It keeps them, and would take them for
/// those that come that much later once others had gone past it.
#[test]
fn what_came_early_past_the_programs_takes_no_place() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    let link = Link::open(&row.instance, &row.links[3]);
    joined.begin_spliced_stream();
    let chunk = chunked::chunk(&payload::bytes(7, 150));
    joined.instance.send(&chunk);
    joined.client.expect(&chunk);
    let first = link.take("the first one", |segment| segment.payload() == chunk);
    link.send(&first.ahead(1_000, &[b'!'; 500]).tagged(&[0x6000]));
    let (rest, end) = joined.client.end();
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
    assert_eq!(end, End::Reset);
    joined.instance.expect_end();
    joined.gateway.expect_idle();
}

#[test]
fn client_and_instance_behind_one_interface() {
    // A switch with three ports, and one network on it.
    let Some([client, gateway, instance]) = three() else { return };
    let Some(switch) = Namespace::new() else { return };
    switch.ip_batch("link add sw type bridge\nlink set sw up\n");
    for (host, address) in [(&client, 1), (&gateway, 2), (&instance, 3)] {
        let (port, link) = switch.link(host);
        switch.ip_batch(&format!("link set {port} master sw\nlink set {port} up\n"));
        host.ip_batch(&format!(
            "addr add 10.97.1.{address}/24 dev {link}\n\
             addr add fd97::{address}/64 dev {link} nodad\nlink set {link} up\n"
        ));
    }
    for (listen, serves) in [("10.97.1.2", "10.97.1.3"), ("[fd97::2]", "[fd97::3]")] {
        Place { listen, serves, ..Place::of([&client, &gateway, &instance]) }.expect_spliced();
    }
}

#[test]
fn containers_behind_a_bridge() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway
        .ip_batch("link add br0 type bridge\naddr add 10.97.1.254/24 dev br0\nlink set br0 up\n");
    for (host, address) in [(&client, 1), (&instance, 3)] {
        let (port, link) = gateway.link(host);
        gateway.ip_batch(&format!("link set {port} master br0\nlink set {port} up\n"));
        // As some tools do: addresses that nobody needs. A packet passes the port and the bridge.
        gateway.ip_batch(&format!("addr add 10.97.7.{address}/32 dev {port}\n"));
        host.ip_batch(&format!("addr add 10.97.1.{address}/24 dev {link}\nlink set {link} up\n"));
    }
    Place {
        listen: "10.97.1.254",
        serves: "10.97.1.3",
        ..Place::of([&client, &gateway, &instance])
    }
    .expect_spliced();
}

#[test]
fn several_interfaces_on_each_side() {
    let Some([first, gateway, second]) = three() else { return };
    first.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    first.join(&gateway, "10.97.2.1/24", "10.97.2.2/24");
    gateway.join(&second, "10.97.3.1/24", "10.97.3.2/24");
    gateway.join(&second, "10.97.4.1/24", "10.97.4.2/24");
    let upstreams = ["10.97.3.2:0", "10.97.4.2:0"]
        .map(|at| second.run(|| Upstream::manual_at(at.parse().unwrap())));
    let started = Setup::new(Engine::Splice)
        .instances(&upstreams)
        .routing("strategy", "random")
        .within(&gateway)
        .set("listen", vec!["10.97.1.2:0", "10.97.2.2:0"])
        .start();
    let mut clients: Vec<Peer> =
        started.addresses().iter().map(|address| first.run(|| Peer::connect(*address))).collect();
    let mut instances: [Vec<Peer>; 2] = Default::default();
    let mut met = [[0; 2]; 2];
    // Until each has met each, at random.
    for round in 0..64 {
        let from = round % 2;
        clients[from].send(chat("x"));
        let (to, which) = tests::eventually_some("a request", || {
            (0..2).find_map(|to| {
                instances[to].extend(upstreams[to].try_accept(Duration::ZERO));
                let has_come = |instance: &mut Peer| {
                    instance.poll();
                    !instance.pending().is_empty()
                };
                Some((to, instances[to].iter_mut().position(has_come)?))
            })
        });
        let instance = &mut instances[to][which];
        instance.request();
        let bulk = payload::bytes(round as u64, 50_000);
        instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
        clients[from].head();
        pass(instance, &mut clients[from], &bulk);
        met[from][to] += 1;
        if met.as_flattened().iter().all(|times| *times > 2) {
            break;
        }
    }
    assert!(met.as_flattened().iter().all(|times| *times > 0), "{met:?}");
    let carried = started.carried(Engine::Splice, "response");
    assert!(carried > 200_000, "only {carried} bytes; {}", refusals(&started));
    started.expect_idle();
}

#[test]
fn on_the_gateways_own_host() {
    let Some([outside, gateway, _]) = three() else { return };
    outside.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    // By an address of its link, which is local all the same.
    for (client, instance, serves) in [
        (&gateway, &gateway, "10.97.1.2"),
        (&gateway, &outside, "10.97.1.1"),
        (&outside, &gateway, "10.97.1.2"),
        (&outside, &gateway, "127.0.0.1"),
    ] {
        let place = Place { serves, ..Place::of([client, &gateway, instance]) };
        // Segments on loopback are longer than a link takes.
        match (std::ptr::eq(client, &gateway), std::ptr::eq(instance, &gateway)) {
            (true, true) => place.expect_spliced(),
            (true, false) => place.expect_one_way("response"),
            _ => place.expect_one_way("request"),
        }
    }
}

#[test]
fn interfaces_without_ethernet_are_left_to_another_engine() {
    let Some([client, gateway, instance]) = three() else { return };
    let _tunnel = Tunnel::between(&client, "10.97.1.1/24", &gateway, "10.97.1.2/24");
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place::of([&client, &gateway, &instance]);
    let mut joined = place.join();
    joined.gateway.expect_line(&["tun7", "no Ethernet header", "not spliced"]);
    joined.exchange(0);
    joined.expect_refused("interface");
}

#[test]
fn an_interface_that_is_shared_is_left_out() {
    // The packets of the upper one pass the lower one as well.
    let Some([client, gateway, instance]) = three() else { return };
    // Only the upper one is to answer for its address.
    gateway.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap());
    let (a, c) = gateway.link(&client);
    client.ip_batch(&format!("addr add 10.97.1.1/24 dev {c}\nlink set {c} up\n"));
    gateway.ip_batch(&format!(
        "link set {a} up\nlink add mac7 link {a} type macvlan mode bridge\n\
         addr add 10.97.1.2/24 dev mac7\nlink set mac7 up\n"
    ));
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    Place::of([&client, &gateway, &instance]).expect_spliced();
}

#[test]
fn interfaces_that_come_and_go() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place { listen: "0.0.0.0", ..Place::of([&client, &gateway, &instance]) };
    let (started, upstream) = place.start();
    let objects = || Objects::of(started.pid()).links;
    let before = objects();
    let descriptors = || {
        let mut all = process::descriptors(started.pid());
        all.retain(|one| one.contains("bpf"));
        all
    };
    // After the first round: some that stay come with the first exchange.
    let mut at_first = None;
    let mut instance = None;
    for round in 0..3 {
        let (_, link) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
        started.expect_line(&[&link, "splicing its packets"]);
        assert_eq!(objects().len(), before.len() + 2);
        let mut client =
            client.run(|| Peer::connect(([10, 97, 1, 2], started.address().port()).into()));
        let bulk = payload::bytes(round, 200_000);
        let carried = started.carried(Engine::Splice, "response");
        for _ in 0..20 {
            if started.carried(Engine::Splice, "response") > carried + 50_000 {
                break;
            }
            client.send(chat("x"));
            let instance = instance.get_or_insert_with(|| upstream.accept());
            instance.request();
            instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
            client.head();
            pass(instance, &mut client, &bulk);
        }
        let carried = started.carried(Engine::Splice, "response") - carried;
        assert!(carried > 50_000, "only {carried} bytes; {}", refusals(&started));
        client.close();
        started.expect_idle();
        gateway.ip(&["link", "del", &link]);
        eventually("the links are gone", || objects() == before);
        at_first.get_or_insert_with(descriptors);
    }
    let at_first = at_first.expect("a round");
    let gone = tests::wait::within(tests::DEADLINE, || {
        (descriptors().len() <= at_first.len()).then_some(())
    });
    assert!(gone.is_some(), "{at_first:#?}, and then {:#?}", descriptors());
}

#[test]
fn an_interface_that_comes_late_resets_its_peers_when_the_gateway_is_killed() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place { listen: "0.0.0.0", ..Place::of([&client, &gateway, &instance]) };
    let (started, upstream) = place.start();
    let (_, link) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    started.expect_line(&[&link, "splicing its packets"]);
    let to = ([10, 97, 1, 2], started.address().port()).into();
    let mut peer = client.run(|| Peer::connect(to));
    peer.send(chat("warm"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "w"));
    peer.response();
    let mut joined = Joined { gateway: started, upstream, client: peer, instance };
    joined.expect_spliced();
    // In the middle of a stream.
    joined.begin_stream();
    joined.gateway.kill();
    joined.client.expect_end();
    joined.instance.expect_end();
}

/// Three hosts in a row.
struct Row {
    client: Namespace,
    gateway: Namespace,
    instance: Namespace,
    /// The client's interface, the gateway's two, and the instance's.
    links: [String; 4],
}

impl Row {
    fn new() -> Option<Self> {
        let [client, gateway, instance] = three()?;
        let (c, a) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
        let (b, s) = gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
        Some(Self { client, gateway, instance, links: [c, a, b, s] })
    }

    fn place(&self) -> Place<'_> {
        Place::of([&self.client, &self.gateway, &self.instance])
    }

    /// Sets something on all three hosts.
    fn set(&self, setting: &str, values: [&str; 3]) {
        for (host, value) in [&self.client, &self.gateway, &self.instance].into_iter().zip(values) {
            host.run(|| std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value).unwrap());
        }
    }
}

/// The filters of ours on an interface.
fn filters(namespace: &Namespace, link: &str) -> usize {
    ["ingress", "egress"]
        .map(|way| {
            let output = std::process::Command::new("tc")
                .args(["-n", namespace.name(), "filter", "show", "dev", link, way])
                .output()
                .expect("the `tc` command");
            String::from_utf8_lossy(&output.stdout).matches("_hook ").count()
        })
        .iter()
        .sum()
}

#[test]
fn filters_where_there_are_no_links() {
    let Some(row) = Row::new() else { return };
    let place = row.place();
    let start = || place.start_with(|setup| setup.environment(FILTERS.0, FILTERS.1));
    let (gateway, upstream) = start();
    assert!(Objects::of(gateway.pid()).links.is_empty());
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    let mut joined = place.connect(gateway, upstream);
    joined.expect_spliced();
    // Killed in the middle of a stream: its filters stay, and do nothing.
    joined.begin_stream();
    let objects = Objects::of(joined.gateway.pid());
    joined.gateway.kill();
    joined.client.expect_end();
    joined.instance.expect_end();
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    eventually("only what the filters need is left", || {
        let alive = objects.alive();
        alive.programs.len() == 2 && alive.maps.len() == 1
    });
    // The next one removes them.
    let (gateway, upstream) = start();
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    let mut joined = place.connect(gateway, upstream);
    joined.expect_spliced();
    let Joined { gateway, .. } = joined;
    gateway.stop();
    assert_eq!(filters(&row.gateway, &row.links[1]), 0);
    eventually("no program is left", || objects.alive().programs.is_empty());
}

/// Somebody else's programs on an interface.
struct Others(Ebpf);

impl Others {
    fn attach(row: &Row, programs: &[(&str, TcAttachType)], filters: bool) -> Self {
        Self::attach_to(&row.gateway, &row.links[1], programs, filters)
    }

    fn attach_to(
        host: &Namespace,
        link: &str,
        programs: &[(&str, TcAttachType)],
        filters: bool,
    ) -> Self {
        let path = process::build_dir().join("../bpf-tests/atalho-wire");
        let mut ebpf = Ebpf::load_file(&path).expect("`cargo xtask build-ebpf` builds it");
        host.run(|| {
            for (name, way) in programs {
                let program: &mut SchedClassifier =
                    ebpf.program_mut(name).unwrap().try_into().unwrap();
                program.load().unwrap();
                if filters {
                    let _ = aya::programs::tc::qdisc_add_clsact(link);
                    let options = TcAttachOptions::Netlink(NlOptions::default());
                    program.attach_with_options(link, *way, options).unwrap();
                } else {
                    program.attach(link, *way).unwrap();
                }
            }
        });
        Self(ebpf)
    }

    /// What arrived, and what left.
    fn seen(&self) -> [u64; 2] {
        let seen: Array<_, u64> = self.0.map("SEEN").unwrap().try_into().unwrap();
        [0, 1].map(|way| seen.get(&way, 0).unwrap())
    }
}

#[test]
fn other_programs_on_the_same_interface() {
    for filters in [false, true] {
        let Some(row) = Row::new() else { return };
        let both =
            [("sees_arriving", TcAttachType::Ingress), ("sees_leaving", TcAttachType::Egress)];
        let first = Others::attach(&row, &both, filters);
        let place = row.place();
        let (gateway, upstream) =
            place.start_with(
                |setup| {
                    if filters { setup.environment(FILTERS.0, FILTERS.1) } else { setup }
                },
            );
        let last = Others::attach(&row, &both, filters);
        let mut joined = place.connect(gateway, upstream);
        joined.expect_spliced();
        let [all, ..] = first.seen();
        assert!(all > 50, "{all} packets arrived before they were spliced");
        assert!(last.seen()[1] > 50, "what leaves passes them too");
        // What is not ours goes on to the others.
        let echo = || {
            let before = [first.seen(), last.seen()];
            let listener = row.gateway.run(|| std::net::TcpListener::bind("10.97.1.2:0").unwrap());
            let address = listener.local_addr().unwrap();
            let mut there = row.client.run(|| Peer::connect(address));
            let mut here = Peer::new(listener.accept().unwrap().0);
            there.send("there");
            here.expect("there");
            here.send("back");
            there.expect("back");
            let after = [first.seen(), last.seen()];
            for (before, after) in before.as_flattened().iter().zip(after.as_flattened()) {
                assert!(after >= &(before + 2), "{before}, then {after}");
            }
        };
        echo();
        let Joined { gateway, .. } = joined;
        gateway.stop();
        echo();
    }
}

/// What two processors carry at the same time comes in another order by a few microseconds.
#[test]
fn packets_that_overtake_others_leave_no_hole() {
    let Some(row) = Row::new() else { return };
    // Single packets, which arrive many at a time.
    row.instance.plain_packets(&row.links[3]);
    let behind = [("falls_behind", TcAttachType::Ingress)];
    let behind = Others::attach_to(&row.gateway, &row.links[2], &behind, false);
    let Joined { gateway, mut client, mut instance, upstream } = row.place().join();
    let holes = || {
        let labels = [("engine", "splice"), ("reason", "hole")];
        gateway.metric("atalho_fallbacks_total", &labels)
    };
    let mut rounds = Vec::new();
    for seed in 0..20 {
        let carried = gateway.carried(Engine::Splice, "response");
        client.send(chat("bulk"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..16 {
            let chunk = chunked::chunk(&payload::bytes(number, 150));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        let (holes_before, [behind_before, _]) = (holes(), behind.seen());
        let bulk = chunked::encode(payload::bytes(seed, 8 << 20).chunks(16 << 10));
        pass(&mut instance, &mut client, &bulk);
        let (holes, behind) = (holes() - holes_before, behind.seen()[0] - behind_before);
        let carried = gateway.carried(Engine::Splice, "response") - carried;
        rounds.push((carried, behind, holes));
        // Not every round: a processor may be busy with something else for longer than packets wait.
        if carried > 8 << 20 && behind >= 20 && holes == 0.0 {
            assert_eq!(upstream.accepted(), 1);
            return gateway.expect_idle();
        }
    }
    panic!("bytes carried, packets overtaken, holes: {rounds:?}");
}

#[test]
fn programs_that_take_all_packets_are_noticed() {
    let Some(row) = Row::new() else { return };
    let _other = Others::attach(&row, &[("ends_here", TcAttachType::Ingress)], false);
    let mut joined = row.place().join();
    joined.exchange(0);
    joined.expect_refused("interface");
}

#[test]
fn ecn_where_both_sides_know_it() {
    // Of the client, the gateway, and the instance.
    for (ecn, spliced) in [(["1"; 3], [true; 2]), (["0", "1", "1"], [false, true])] {
        let Some(row) = Row::new() else { return };
        row.set("tcp_ecn", ecn);
        let mut joined = row.place().join();
        if spliced[0] {
            joined.expect_spliced();
            continue;
        }
        for round in 0..20 {
            joined.exchange(round);
            if joined.handovers("request") > 0.0 {
                break;
            }
        }
        assert!(joined.handovers("request") > 0.0, "marks of the client's packets");
        assert_eq!(joined.handovers("response"), 0.0, "the client would not know the marks");
        assert!(joined.fallbacks("options") > 0.0);
    }
}

#[test]
fn accurate_ecn_is_left_to_another_engine() {
    let Some(row) = Row::new() else { return };
    // On one side is enough.
    let known = row.client.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "3").is_ok());
    if !known {
        eprintln!("SKIPPED: this kernel has no accurate ECN");
        return;
    }
    row.set("tcp_ecn", ["3", "3", "0"]);
    let mut joined = row.place().join();
    joined.exchange(0);
    joined.expect_refused("options");
}

#[test]
fn links_with_larger_packets_than_others() {
    for (client, instance) in [(9000, 1500), (1500, 9000)] {
        let Some(row) = Row::new() else { return };
        let [c, a, b, s] = &row.links;
        row.client.ip(&["link", "set", c, "mtu", &client.to_string()]);
        row.gateway.ip(&["link", "set", a, "mtu", &client.to_string()]);
        row.gateway.ip(&["link", "set", b, "mtu", &instance.to_string()]);
        row.instance.ip(&["link", "set", s, "mtu", &instance.to_string()]);
        row.place().expect_one_way(if client > instance { "response" } else { "request" });
    }
}

#[test]
fn clients_that_take_smaller_segments_than_the_instance_sends() {
    let Some(row) = Row::new() else { return };
    let [c, a, ..] = &row.links;
    row.client.ip(&["link", "set", c, "mtu", "1400"]);
    row.gateway.ip(&["link", "set", a, "mtu", "1400"]);
    let mut joined = row.place().join();
    joined.exchange(0);
    assert_eq!(joined.handovers("response"), 0.0);
    assert!(joined.fallbacks("segments") > 0.0);
}

/// A path to the client that becomes narrower, twice: a router says so to whom it takes for the sender.
#[test]
fn routers_that_take_smaller_packets() {
    for six in [false, true] {
        let Some(row) = Row::new() else { return };
        let Some(client) = Namespace::new() else { return };
        // The host of the row's client is a router here.
        let router = &row.client;
        let (outer, inner) = client.link(router);
        let [near, a, b, s] = &row.links;
        client.ip_batch(&format!(
            "addr add 10.97.0.1/24 dev {outer}\naddr add fd97:0::1/64 dev {outer} nodad\n\
             link set {outer} up\nroute add default via 10.97.0.2\n"
        ));
        router.ip_batch(&format!(
            "addr add 10.97.0.2/24 dev {inner}\naddr add fd97:0::2/64 dev {inner} nodad\n\
             addr add fd97:1::1/64 dev {near} nodad\nlink set {inner} up\n"
        ));
        client.ip(&["-6", "route", "add", "default", "via", "fd97:0::2"]);
        row.gateway.ip_batch(&format!(
            "addr add fd97:1::2/64 dev {a} nodad\naddr add fd97:2::1/64 dev {b} nodad\n\
             route add 10.97.0.0/24 via 10.97.1.1\nroute add fd97::/64 via fd97:1::1\n"
        ));
        row.instance.ip_batch(&format!("addr add fd97:2::2/64 dev {s} nodad\n"));
        router.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        });
        let (listen, serves) =
            if six { ("[fd97:1::2]", "[fd97:2::2]") } else { ("10.97.1.2", "10.97.2.2") };
        let place = Place { client: &client, listen, serves, ..row.place() };
        // Shorter bodies the sockets carry themselves.
        let (gateway, upstream) =
            place.start_with(|setup| setup.set("engine.steer_from_bytes", 20_000));
        let mut joined = place.connect(gateway, upstream);
        joined.expect_spliced();
        let narrow = |mtu: &str| router.ip(&["link", "set", &inner, "mtu", mtu]);
        // The gateway's socket learns of it, though its numbers have moved.
        narrow("1400");
        let (client, instance) = (&mut joined.client, &mut joined.instance);
        let short = payload::bytes(1, 15_000);
        client.send(chat("short"));
        instance.request();
        instance.send(response(200, &short));
        payload::assert_same("short", &client.response().payload(), &short);
        // The instance does, in the middle of a stream.
        narrow("1300");
        for round in 0..20 {
            let before = joined.gateway.carried(Engine::Splice, "response");
            let (client, instance) = (&mut joined.client, &mut joined.instance);
            let bulk = payload::bytes(round, 300_000);
            client.send(chat("bulk"));
            instance.request();
            instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
            client.head();
            pass(instance, client, &bulk);
            joined.gateway.expect_idle();
            if joined.gateway.carried(Engine::Splice, "response") > before + 250_000 {
                break;
            }
            assert!(round < 19, "never spliced: {}", refusals(&joined.gateway));
            // Another one, that nobody knows of yet.
            narrow(&(1299 - round).to_string());
        }
    }
}

#[test]
fn packets_that_come_by_another_way_than_they_go() {
    let Some(row) = Row::new() else { return };
    let (c, a) = row.client.join(&row.gateway, "10.97.3.1/24", "10.97.3.2/24");
    // An address of the client's host that the gateway reaches by the second link alone, and that
    // sends by the first.
    row.client.ip(&["addr", "add", "10.97.5.1/32", "dev", "lo"]);
    row.gateway.ip(&["route", "add", "10.97.5.1/32", "via", "10.97.3.1"]);
    row.client.ip_batch(
        "route del 10.97.1.0/24\nroute add 10.97.1.0/24 dev LINK src 10.97.5.1\n"
            .replace("LINK", &row.links[0])
            .as_str(),
    );
    let place = row.place();
    let mut joined = place.join();
    assert_eq!(joined.client.local_addr().ip().to_string(), "10.97.5.1");
    joined.expect_spliced();
    drop((c, a));
}

/// Segments that a socket has sent again, once all is acknowledged.
#[track_caller]
fn sent_again(peer: &Peer) -> u32 {
    // `tcpi_unacked`, `tcpi_total_retrans`.
    eventually("all is acknowledged", || tcp_info(peer)[6] == 0);
    tcp_info(peer)[25]
}

fn tcp_info(peer: &Peer) -> [u32; 26] {
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

/// A machine is replaced by another one, or a virtual address moves.
#[test]
fn a_neighbour_with_another_address() {
    let Some(row) = Row::new() else { return };
    let place = row.place();
    let mut joined = place.join();
    // The client's host tells when its address changes.
    row.client.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_notify", "1").unwrap());
    let link = Link::open(&row.client, &row.links[0]);
    joined.begin_spliced_stream();
    for round in 0..3u8 {
        // The way is noted.
        for number in 0..20 {
            joined.token(number);
        }
        let before = sent_again(&joined.instance);
        let address = [2, 0, 0, 0, 7, round];
        let text = address.map(|byte| format!("{byte:02x}")).join(":");
        row.client.ip(&["link", "set", &row.links[0], "address", &text]);
        for number in 0..20 {
            joined.token(100 + number);
        }
        let chunk = chunked::chunk(&payload::bytes(119, 150));
        let last = link.take("the last one, where it arrived", |segment| {
            segment.payload() == chunk && segment.to() == address
        });
        assert_eq!(last.payload(), chunk);
        // Half a second is a first time-out, and a second one at the latest.
        let again = sent_again(&joined.instance) - before;
        assert!(again <= 4, "sent again {again} times");
    }
    assert!(!pairs(&joined.gateway).is_empty());
    joined.end_and_go_on();
}

/// A cable breaks, and there is another one to the same host.
#[test]
fn a_way_that_moves_to_another_interface() {
    // The client's, then the instance's.
    for (side, peer, gateway) in [(0, "10.97.1.1", "10.97.1.2"), (3, "10.97.2.2", "10.97.2.1")] {
        let Some(row) = Row::new() else { return };
        let (host, first) = ([&row.client, &row.instance][side / 3], &row.links[side]);
        let (second, other) = host.join(&row.gateway, "10.97.3.1/24", "10.97.3.2/24");
        let mut joined = row.place().join();
        joined.gateway.expect_line(&["splicing", &other]);
        joined.begin_spliced_stream();
        for round in 0..2 {
            for number in 0..20 {
                joined.token(number);
            }
            let before = sent_again(&joined.instance);
            if round == 0 {
                host.ip_batch(&format!(
                    "link set {first} down\nroute add {gateway}/32 via 10.97.3.2 src {peer}\n"
                ));
                row.gateway.ip(&["route", "add", &format!("{peer}/32"), "via", "10.97.3.1"]);
            } else {
                host.ip_batch(&format!(
                    "link set {first} up\nroute del {gateway}/32\nlink set {second} down\n"
                ));
                row.gateway.ip(&["route", "del", &format!("{peer}/32")]);
            }
            for number in 0..20 {
                joined.token(100 + number);
            }
            // It is noticed after four seconds at the latest: some five repetitions, each twice as late.
            let again = sent_again(&joined.instance) - before;
            assert!((1..=8).contains(&again), "sent again {again} times");
        }
        assert!(!pairs(&joined.gateway).is_empty());
        joined.end_and_go_on();
    }
}

#[test]
fn routes_that_only_sockets_find_are_noticed() {
    // The way to the client is in a table for the packets of one port, which those that are passed on
    // are not looked up by.
    let Some(row) = Row::new() else { return };
    let Some(client) = Namespace::new() else { return };
    let router = &row.client;
    client.join(router, "10.97.0.1/24", "10.97.0.2/24");
    client.ip(&["route", "add", "default", "via", "10.97.0.2"]);
    router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let place = Place { client: &client, ..row.place() };
    let (gateway, upstream) = place.start();
    let port = gateway.address().port();
    row.gateway.ip_batch(&format!(
        "rule add ipproto tcp sport {port} lookup 97\n\
         route add 10.97.0.0/24 via 10.97.1.1 table 97\n"
    ));
    let mut joined = place.connect(gateway, upstream);
    for round in 0..20 {
        joined.exchange(round);
        if joined.fallbacks("stalled") > 1.0 {
            joined.gateway.expect_idle();
            return;
        }
    }
    panic!("never noticed: {}", refusals(&joined.gateway));
}
