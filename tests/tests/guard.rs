//! The guard on real interfaces: clients in a network namespace of their own, joined by veth.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU32,
    process::Command,
    time::Duration,
};

use router::kernel::guard::{Guard, GuardError, Mode, Rules};
use router_ebpf::guard_rules::Limit;
use socket2::{Domain, Socket, Type};
use tests::{Engine, Gateway, Setup, message::chat, netns::Namespace, peer::Peer};

/// How long a connection may take that the guard drops. A SYN is repeated after a second.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long anything may take that should work.
const LONG: Duration = Duration::from_secs(10);

/// A gateway's namespace and a client's, with a listener that echoes.
struct Net {
    gateway: Namespace,
    client: Namespace,
    /// The gateway's end.
    interface: String,
    listeners: Vec<SocketAddr>,
}

const GOOD: &str = "10.77.0.2";
const BAD: &str = "10.77.0.3";
const GOOD6: &str = "fd77::2";
const BAD6: &str = "fd77::3";

impl Net {
    /// `None`, said aloud, without root.
    fn new() -> Option<Self> {
        let mut net = Self::without_listeners()?;
        for address in ["10.77.0.1:0", "[fd77::1]:0"] {
            let listener = net.gateway.run(|| TcpListener::bind(address)).expect("a listener");
            net.listeners.push(listener.local_addr().expect("an address"));
            std::thread::spawn(move || echo(&listener));
        }
        Some(net)
    }

    fn without_listeners() -> Option<Self> {
        let gateway = Namespace::new()?;
        let client = Namespace::new()?;
        let (interface, theirs) = gateway.join(&client, "10.77.0.1/24", "10.77.0.2/24");
        gateway.ip(&["addr", "add", "fd77::1/64", "dev", &interface, "nodad"]);
        client.ip(&["addr", "add", "10.77.0.3/24", "dev", &theirs]);
        for address in ["fd77::2/64", "fd77::3/64"] {
            client.ip(&["addr", "add", address, "dev", &theirs, "nodad"]);
        }
        Some(Self { gateway, client, interface, listeners: Vec::new() })
    }

    fn try_start(&self, mode: Mode, rules: &Rules) -> Result<Guard, GuardError> {
        let interfaces = [self.interface.clone()];
        self.gateway.run(|| Guard::start(&interfaces, mode, &self.listeners, rules))
    }

    /// `None`, said aloud, when the binary was built without kernel programs.
    fn start(&self, mode: Mode, rules: &Rules) -> Option<Guard> {
        match self.try_start(mode, rules) {
            Err(GuardError::NotBuilt) => {
                tests::process::skip("needs kernel programs (`cargo xtask build-ebpf`)");
                None
            }
            started => Some(started.expect("the guard starts")),
        }
    }

    /// Connects from an address of the client's.
    fn connect(&self, source: &str, patience: Duration) -> io::Result<TcpStream> {
        let source: IpAddr = source.parse().expect("an address");
        let target = self.listeners[usize::from(source.is_ipv6())];
        self.client.run(|| {
            let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
            socket.connect_timeout(&target.into(), patience)?;
            Ok(socket.into())
        })
    }

    #[track_caller]
    fn works(&self, source: &str) -> TcpStream {
        let mut stream = self.connect(source, LONG).unwrap_or_else(|e| panic!("{source}: {e}"));
        exchange(&mut stream);
        stream
    }

    #[track_caller]
    fn fails(&self, source: &str) {
        let error = self.connect(source, PATIENCE).map(drop).expect_err("dropped");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "silence, no refusal: {error}");
    }

    /// Whether the interface has an XDP program.
    fn is_guarded(&self) -> bool {
        let link = ["-n", self.gateway.name(), "link", "show", "dev", &self.interface];
        let output = Command::new("ip").args(link).output().expect("`ip` runs");
        String::from_utf8_lossy(&output.stdout).contains("prog/xdp")
    }
}

fn echo(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let (mut from, mut to) = (&stream, &stream);
            io::copy(&mut from, &mut to)
        });
    }
}

#[track_caller]
fn exchange(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(LONG)).expect("a time limit");
    stream.write_all(b"are you there?").expect("writing");
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).expect("an echo");
    assert_eq!(&answer, b"are you there?");
}

fn rules(allow: &[&str], deny: &[&str], limit: Option<(u32, u32)>) -> Rules {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a net")).collect();
    let number = |value| NonZeroU32::new(value).expect("not zero");
    Rules {
        allow: nets(allow),
        deny: nets(deny),
        limit: limit.map(|(rate, burst)| Limit { rate: number(rate), burst: number(burst) }),
    }
}

fn lists_hold(mode: Mode, expected: Mode) {
    let Some(net) = Net::new() else { return };
    assert!(!net.is_guarded());
    let deny = rules(&[], &["10.77.0.3/32", "fd77::3/128"], None);
    let Some(mut guard) = net.start(mode, &deny) else { return };
    assert!(net.is_guarded());
    assert_eq!(guard.attached().len(), 1);
    assert_eq!(guard.attached()[0].mode, expected);
    for source in [GOOD, GOOD6] {
        net.works(source);
    }
    for source in [BAD, BAD6] {
        net.fails(source);
    }
    let counters = guard.counters().expect("counters");
    assert!(counters.passed >= 8, "{counters:?}");
    assert!(counters.denied >= 2, "{counters:?}");
    assert_eq!((counters.not_allowed, counters.rate_limited), (0, 0));

    guard.replace(&rules(&["10.77.0.3/32"], &[], None)).expect("new rules");
    net.works(BAD);
    net.fails(GOOD);
    net.fails(GOOD6);
    assert!(guard.counters().expect("counters").not_allowed >= 2);

    drop(guard);
    assert!(!net.is_guarded());
    for source in [GOOD, GOOD6, BAD, BAD6] {
        net.works(source);
    }
}

#[test]
fn lists_hold_in_the_driver() {
    lists_hold(Mode::Native, Mode::Native);
}

#[test]
fn lists_hold_in_generic_mode() {
    lists_hold(Mode::Generic, Mode::Generic);
}

#[test]
fn auto_prefers_the_driver() {
    lists_hold(Mode::Auto, Mode::Native);
}

#[test]
fn auto_falls_back_where_the_driver_has_no_xdp() {
    let Some(net) = Net::new() else { return };
    let start = |mode| {
        let interfaces = ["lo".to_owned()];
        net.gateway.run(|| Guard::start(&interfaces, mode, &net.listeners, &Rules::default()))
    };
    match start(Mode::Native) {
        Err(GuardError::NotBuilt) => return tests::process::skip("needs kernel programs"),
        error => {
            let message = error.expect_err("loopback has no native XDP").to_string();
            assert!(message.contains("`lo`") && message.contains("native"), "{message}");
        }
    }
    let guard = start(Mode::Auto).expect("the guard starts");
    assert_eq!(guard.attached()[0].mode, Mode::Generic);
    assert!(guard.attached()[0].fallback.is_some());
}

#[test]
fn a_flood_is_limited_and_connections_live_on() {
    let Some(net) = Net::new() else { return };
    // One token in a second: none grows while the flood lasts, as none waits for its answer.
    let Some(guard) = net.start(Mode::Auto, &rules(&[], &[], Some((1, 4)))) else { return };
    let mut open = net.works(GOOD);
    let flood = |source: &str, count| {
        let sockets: Vec<Socket> = (0..count)
            .map(|_| {
                net.client.run(|| {
                    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
                    socket.set_nonblocking(true).expect("an option");
                    let source = SocketAddr::new(source.parse().expect("an address"), 0);
                    socket.bind(&source.into()).expect("a port");
                    let _ = socket.connect(&net.listeners[0].into());
                    socket
                })
            })
            .collect();
        // Answers arrive with the SYN's own system call on veth, or shortly after.
        exchange(&mut net.works(BAD));
        sockets.iter().filter(|socket| socket.peer_addr().is_ok()).count()
    };
    let through = flood(GOOD, 200);
    // Three tokens were left; one may have grown.
    assert!((3..=4).contains(&through), "{through} connections came through");
    exchange(&mut open);
    let counters = guard.counters().expect("counters");
    assert!(counters.rate_limited >= 190, "{counters:?}");
}

#[test]
fn a_connection_pauses_while_its_source_is_denied() {
    let Some(net) = Net::new() else { return };
    let Some(mut guard) = net.start(Mode::Auto, &Rules::default()) else { return };
    let mut open = net.works(GOOD);
    guard.replace(&rules(&[], &["10.77.0.0/24"], None)).expect("new rules");
    open.write_all(b"are you there?").expect("writing");
    open.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let mut answer = [0; 14];
    assert_eq!(open.read(&mut answer).expect_err("no echo").kind(), io::ErrorKind::WouldBlock);
    guard.replace(&Rules::default()).expect("new rules");
    // TCP sends it again.
    open.set_read_timeout(Some(LONG)).expect("a time limit");
    open.read_exact(&mut answer).expect("an echo");
}

#[test]
fn an_occupied_or_unknown_interface_is_named() {
    let Some(net) = Net::new() else { return };
    let Some(_guard) = net.start(Mode::Auto, &Rules::default()) else { return };
    for mode in [Mode::Auto, Mode::Native, Mode::Generic] {
        let error = net.try_start(mode, &Rules::default()).expect_err("occupied");
        assert!(matches!(error, GuardError::Occupied { .. }), "{error:?}");
        assert!(error.to_string().contains(&net.interface), "{error}");
    }
    assert!(net.is_guarded(), "the first one stays");
    let missing = ["nosuch0".to_owned()];
    let start = || Guard::start(&missing, Mode::Auto, &net.listeners, &Rules::default());
    let error = net.gateway.run(start).expect_err("unknown");
    assert!(error.to_string().contains("`nosuch0`"), "{error}");
}

/// The gateway itself as its configuration says, without instances: it answers 503.
struct Served {
    net: Net,
    setup: Setup,
    gateway: Gateway,
}

impl Served {
    fn start() -> Option<Self> {
        let mut net = Net::without_listeners()?;
        // A guard that does nothing shows whether there are kernel programs.
        drop(net.start(Mode::Auto, &Rules::default())?);
        let setup = Setup::new(Engine::Userspace)
            .set("listen", vec!["10.77.0.1:0", "[fd77::1]:0"])
            .set("guard.interfaces", vec![net.interface.clone()])
            .set("guard.deny", vec!["10.77.0.3", "fd77::3"])
            .within(&net.gateway);
        let gateway = setup.start();
        net.listeners = gateway.addresses().to_vec();
        Some(Self { net, setup, gateway })
    }

    #[track_caller]
    fn answers(&self, source: &str) {
        let stream = self.net.connect(source, LONG).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(Peer::new(stream).ask(chat("hello")).status(), 503, "no instance");
    }

    fn packets(&self, rule: &str) -> f64 {
        self.net
            .gateway
            .run(|| self.gateway.metric("atalho_guard_packets_total", &[("rule", rule)]))
    }
}

#[test]
fn the_gateway_guards_itself_as_configured() {
    let Some(mut served) = Served::start() else { return };
    assert!(served.net.is_guarded());
    for source in [GOOD, GOOD6] {
        served.answers(source);
    }
    for source in [BAD, BAD6] {
        served.net.fails(source);
    }
    assert!(served.packets("denied") >= 2.0);
    assert!(served.packets("passed") >= 8.0);
    assert!(served.packets("rate_limited") == 0.0);

    let setup = served.setup.clone().set("guard.deny", vec!["10.77.0.2"]);
    served.net.gateway.run(|| served.gateway.reload(&setup));
    for source in [BAD, BAD6, GOOD6] {
        served.answers(source);
    }
    served.net.fails(GOOD);

    served.gateway.kill();
    // The kernel drops the links with the process's last descriptor.
    tests::eventually("the interface is free", || !served.net.is_guarded());
}

/// An interface has one such program at a time: the new gateway's comes when the old one's goes.
#[test]
fn a_gateway_that_takes_over_guards_from_then_on() {
    let Some(mut served) = Served::start() else { return };
    let setup = served.setup.clone().in_place_of(&served.gateway).flag("--take-over");
    let mut old = std::mem::replace(&mut served.gateway, setup.start());
    assert!(old.wait().success());
    assert!(served.net.is_guarded());
    served.answers(GOOD);
    served.net.fails(BAD);
    assert!(served.packets("denied") >= 1.0, "by its own program");
    served.gateway.kill();
    tests::eventually("the interface is free", || !served.net.is_guarded());
}

#[test]
fn a_stopped_gateway_leaves_the_interface() {
    let Some(served) = Served::start() else { return };
    assert!(served.net.is_guarded());
    let Served { net, gateway, .. } = served;
    gateway.stop();
    assert!(!net.is_guarded());
}
