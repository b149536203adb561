//! The program itself, on packets made here, in a network namespace of its own.

use std::{fs, num::NonZeroU32, process::Command};

use aya::programs::{TestRun, TestRunOptions, Xdp};
use ipnet::IpNet;
use router_ebpf::guard_rules::{Limit, MAX_EXTENSIONS};

use super::{Counters, Loaded, Rules};

mod packet;
use packet::{ACK, Packet, RST, SYN};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

const GOOD: &str = "198.51.100.7";
const BAD: &str = "203.0.113.9";
const GOOD6: &str = "2001:db8:600d::7";
const BAD6: &str = "2001:db8:bad::9";
const HERE: &str = "192.0.2.1";
const HERE6: &str = "2001:db8::1";

/// Runs `test` in a fresh network namespace, or says why it cannot. In CI it must.
fn with_kernel(test: impl FnOnce() + Send) {
    // SAFETY: geteuid takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || super::super::object::object().is_none() {
        let missing = if root { "kernel programs (`cargo xtask build-ebpf`)" } else { "root" };
        return crate::testing::skip(format_args!("needs {missing}"));
    }
    let inside = || {
        // SAFETY: moves this thread alone, which ends with the test.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "unshare");
        test();
    };
    if let Err(panic) = std::thread::scope(|scope| scope.spawn(inside).join()) {
        std::panic::resume_unwind(panic);
    }
}

fn rules(allow: &[&str], deny: &[&str], limit: Option<(u32, u32)>) -> Rules {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect();
    let number = |value| NonZeroU32::new(value).unwrap();
    Rules {
        allow: nets(allow),
        deny: nets(deny),
        limit: limit.map(|(rate, burst)| Limit { rate: number(rate), burst: number(burst) }),
    }
}

fn load(listeners: &[&str], rules: &Rules) -> Loaded {
    let listeners: Vec<_> = listeners.iter().map(|text| text.parse().unwrap()).collect();
    Loaded::load(&listeners, rules).expect("the guard loads")
}

fn run(program: &Xdp, packet: &[u8], repeat: u32) -> u32 {
    let options = TestRunOptions { data_in: Some(packet), repeat, ..Default::default() };
    program.test_run(options).expect("a test run").return_value
}

impl Loaded {
    /// What becomes of a packet: the rule that counted it, or `untouched`.
    fn verdict(&mut self, packet: &[u8]) -> &'static str {
        let before = self.counters().unwrap().by_rule();
        let action = run(self.program().unwrap(), packet, 1);
        let after = self.counters().unwrap().by_rule();
        let counted: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        let rule = match counted[..] {
            [] => "untouched",
            [((rule, before), (_, after))] => {
                assert_eq!(*after, before + 1);
                rule
            }
            _ => panic!("counted by several rules: {counted:?}"),
        };
        let passes = matches!(rule, "untouched" | "passed" | "unparsed");
        assert_eq!(action, if passes { XDP_PASS } else { XDP_DROP }, "{rule}");
        rule
    }

    #[track_caller]
    fn expect(&mut self, cases: &[(&str, Packet, &str)]) {
        for (name, packet, expected) in cases {
            assert_eq!(self.verdict(&packet.bytes()), *expected, "{name}");
        }
    }
}

fn syn(source: &str) -> Packet {
    let destination = if source.contains(':') { HERE6 } else { HERE };
    Packet::tcp(source, destination, 8080, SYN)
}

fn deny_list() -> Rules {
    rules(&[], &["203.0.113.0/24", "2001:db8:bad::/48"], None)
}

#[test]
fn only_tcp_to_the_listeners_is_judged() {
    with_kernel(|| {
        let mut guard = load(&["[::]:8080", "192.0.2.1:9090", "0.0.0.0:7070"], &deny_list());
        guard.expect(&[
            ("a stranger", syn(GOOD), "passed"),
            ("a denied source", syn(BAD), "denied"),
            ("a stranger, IPv6", syn(GOOD6), "passed"),
            ("a denied source, IPv6", syn(BAD6), "denied"),
            ("within a connection", Packet::tcp(BAD, HERE, 8080, ACK), "denied"),
            ("another port", Packet::tcp(BAD, HERE, 22, SYN), "untouched"),
            ("a port of the same word", Packet::tcp(BAD, HERE, 8081, SYN), "untouched"),
            ("the listener's address", Packet::tcp(BAD, HERE, 9090, SYN), "denied"),
            ("another address", Packet::tcp(BAD, "192.0.2.2", 9090, SYN), "untouched"),
            ("another family", Packet::tcp(BAD6, HERE6, 9090, SYN), "untouched"),
            ("a wildcard of IPv4", Packet::tcp(BAD, "192.0.2.2", 7070, SYN), "denied"),
            ("which IPv6 is not", Packet::tcp(BAD6, HERE6, 7070, SYN), "untouched"),
            ("UDP", syn(BAD).protocol(17), "untouched"),
            ("UDP over IPv6", syn(BAD6).protocol(17), "untouched"),
            ("UDP behind options", syn(BAD6).protocol(17).extensions(&[0, 60]), "untouched"),
            ("encrypted", syn(BAD6).protocol(50), "untouched"),
            ("ARP", syn(BAD).ether_type(0x0806), "untouched"),
            ("no network packet", syn(BAD).cut(14).ether_type(0x88cc), "untouched"),
        ]);
    });
}

#[test]
fn tags_and_options_hide_nothing() {
    with_kernel(|| {
        let mut guard = load(&["[::]:8080"], &deny_list());
        guard.expect(&[
            ("a tag", syn(BAD).tags(&[0x8100]), "denied"),
            ("two tags", syn(BAD).tags(&[0x88a8, 0x8100]), "denied"),
            ("two tags, IPv6", syn(BAD6).tags(&[0x8100, 0x8100]), "denied"),
            ("a tag, another port", Packet::tcp(BAD, HERE, 22, SYN).tags(&[0x8100]), "untouched"),
            ("three tags", syn(BAD).tags(&[0x88a8, 0x8100, 0x8100]), "unparsed"),
            ("a tag cut short", syn(BAD).tags(&[0x8100]).cut(16), "untouched"),
            ("options of IPv4", syn(BAD).options(4), "denied"),
            ("all options of IPv4", syn(BAD).options(40), "denied"),
            ("options of IPv4, a stranger", syn(GOOD).options(40), "passed"),
            ("options of TCP", syn(BAD).tcp_options(40), "denied"),
        ]);
    });
}

#[test]
fn extension_headers_are_looked_behind() {
    const HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTH: u8 = 51;
    const OPTIONS: u8 = 60;
    with_kernel(|| {
        let mut guard = load(&["[::]:8080"], &deny_list());
        let most = vec![OPTIONS; MAX_EXTENSIONS as usize];
        let too_many = vec![OPTIONS; MAX_EXTENSIONS as usize + 1];
        let all = [HOP, OPTIONS, ROUTING, FRAGMENT, AUTH, OPTIONS, 135, 139, 140];
        let other_port = |source| Packet::tcp(source, HERE6, 22, SYN);
        guard.expect(&[
            ("one of each", syn(BAD6).extensions(&all), "denied"),
            ("one of each, a stranger", syn(GOOD6).extensions(&all), "passed"),
            ("one of each, another port", other_port(BAD6).extensions(&all), "untouched"),
            ("as many as allowed", syn(BAD6).extensions(&most), "denied"),
            ("another port", other_port(BAD6).extensions(&most), "untouched"),
            ("more hide the port", syn(BAD6).extensions(&too_many), "denied"),
            ("whichever it is", other_port(BAD6).extensions(&too_many), "denied"),
            ("a stranger may", syn(GOOD6).extensions(&too_many), "passed"),
            ("long ones", syn(BAD6).long_extension(OPTIONS, 255), "denied"),
            ("long ones, another port", other_port(BAD6).long_extension(OPTIONS, 100), "untouched"),
            ("cut short", syn(BAD6).extensions(&[HOP]).cut(14 + 40 + 2), "unparsed"),
            ("longer than the packet", syn(BAD6).long_extension(HOP, 200).cut(200), "unparsed"),
        ]);
    });
}

#[test]
fn fragments_are_judged_by_the_first() {
    with_kernel(|| {
        let mut guard = load(&["[::]:8080"], &rules(&[], &["203.0.113.0/24"], Some((1, 1))));
        let more = 0x2000;
        guard.expect(&[
            ("the first", syn(BAD).fragment(more), "denied"),
            ("the first, only ports", syn(BAD).fragment(more).cut(14 + 20 + 8), "denied"),
            ("another", syn(BAD).fragment(more | 185), "unparsed"),
            ("the last", syn(BAD).fragment(185), "unparsed"),
            ("the last of UDP", syn(BAD).protocol(17).fragment(185), "untouched"),
            ("may not be fragmented", syn(BAD).fragment(0x4000), "denied"),
            ("the first, IPv6", syn(GOOD6).fragment6(0, true), "passed"),
            ("opened one, IPv6", syn(GOOD6).fragment6(0, true), "rate_limited"),
            ("another, IPv6", syn(GOOD6).fragment6(185, true), "unparsed"),
            ("the last, IPv6", syn(GOOD6).fragment6(185, false), "unparsed"),
            ("an atomic one", syn(GOOD6).fragment6(0, false), "rate_limited"),
        ]);
        // It may hold any flags behind the ports, so it counts as a new connection.
        let hidden = Packet::tcp(GOOD, HERE, 8080, ACK).fragment(more).cut(14 + 20 + 8);
        assert_eq!(guard.verdict(&hidden.bytes()), "passed");
        assert_eq!(guard.verdict(&hidden.bytes()), "rate_limited");
    });
}

#[test]
fn malformed_packets_pass() {
    with_kernel(|| {
        let mut guard = load(&["[::]:8080"], &deny_list());
        guard.expect(&[
            ("no IPv4 header", syn(BAD).cut(14 + 19), "unparsed"),
            ("a header too short", syn(BAD).byte(14, 0x44), "unparsed"),
            ("another version", syn(BAD).byte(14, 0x65), "unparsed"),
            ("options cut short", syn(BAD).options(40).cut(14 + 30), "unparsed"),
            ("no ports", syn(BAD).cut(14 + 20 + 3), "unparsed"),
            ("no flags", syn(BAD).cut(14 + 20 + 13), "unparsed"),
            ("no IPv6 header", syn(BAD6).cut(14 + 39), "unparsed"),
            ("another version, IPv6", syn(BAD6).byte(14, 0x40), "unparsed"),
            ("no ports, IPv6", syn(BAD6).cut(14 + 40 + 1), "unparsed"),
            ("only Ethernet", syn(BAD).cut(14), "unparsed"),
        ]);
        // Every length of every kind of packet: the program finds an answer.
        for packet in [syn(BAD), syn(BAD6).extensions(&[0, 44, 51]), syn(BAD).tags(&[0x8100])] {
            for length in 14..packet.bytes().len() {
                guard.verdict(&packet.clone().cut(length).bytes());
            }
        }
    });
}

#[test]
fn an_allow_list_keeps_others_out_and_deny_wins() {
    with_kernel(|| {
        let mut guard =
            load(&["[::]:8080"], &rules(&["198.51.100.0/24"], &["198.51.100.128/25"], None));
        guard.expect(&[
            ("allowed", syn("198.51.100.127"), "passed"),
            ("allowed and denied", syn("198.51.100.128"), "denied"),
            ("neither", syn("198.51.101.1"), "not_allowed"),
            ("another family", syn(GOOD6), "not_allowed"),
            ("another port", Packet::tcp(BAD, HERE, 22, SYN), "untouched"),
        ]);
        guard.rules.replace(&rules(&["2001:db8:600d::/48"], &[], None)).unwrap();
        guard.expect(&[
            ("no longer allowed", syn("198.51.100.127"), "not_allowed"),
            ("allowed now", syn(GOOD6), "passed"),
            ("its neighbour", syn("2001:db8:600e::7"), "not_allowed"),
        ]);
        guard.rules.replace(&Rules::default()).unwrap();
        guard.expect(&[("no lists", syn(BAD), "passed"), ("no lists", syn(BAD6), "passed")]);
    });
}

#[test]
fn new_connections_have_a_limit_per_source() {
    with_kernel(|| {
        // One token in 1,000 seconds: the clock does not matter.
        let mut guard = load(&["[::]:8080"], &rules(&[], &[], Some((1, 1000))));
        guard.rules.replace(&rules(&[], &[], Some((1, 3)))).unwrap();
        for _ in 0..3 {
            guard.expect(&[("the burst", syn(GOOD), "passed")]);
        }
        guard.expect(&[
            ("one more", syn(GOOD), "rate_limited"),
            ("to be answered in turn", Packet::tcp(GOOD, HERE, 8080, SYN | ACK), "passed"),
            ("within a connection", Packet::tcp(GOOD, HERE, 8080, ACK), "passed"),
            ("the end of one", Packet::tcp(GOOD, HERE, 8080, RST), "passed"),
            ("its neighbour", syn("198.51.100.8"), "passed"),
            ("another port of the machine", Packet::tcp(GOOD, HERE, 22, SYN), "untouched"),
            ("IPv6", syn("2001:db8:600d::1"), "passed"),
            ("an address of the same subscriber", syn("2001:db8:600d::2"), "passed"),
            ("and another", syn("2001:db8:600d::ffff:1"), "passed"),
            ("one too many", syn("2001:db8:600d::3"), "rate_limited"),
            ("another subscriber", syn("2001:db8:600d:1::1"), "passed"),
        ]);
        guard.rules.replace(&Rules::default()).unwrap();
        guard.expect(&[("no limit", syn(GOOD), "passed"), ("no limit", syn(GOOD), "passed")]);
        guard.rules.replace(&rules(&[], &[BAD_NET], Some((1, 3)))).unwrap();
        guard.expect(&[
            ("the limit is back", syn(GOOD), "rate_limited"),
            ("who is denied takes no token", syn(BAD), "denied"),
        ]);
        guard.rules.replace(&rules(&[], &[], Some((1_000_000, 1)))).unwrap();
        guard.verdict(&syn(GOOD).bytes());
        // A token grows in a microsecond; a run takes longer.
        guard.expect(&[("a raised limit forgives", syn(GOOD), "passed")]);
    });
}

const BAD_NET: &str = "203.0.113.0/24";

#[test]
fn processors_share_a_bucket() {
    with_kernel(|| {
        const BURST: u64 = 10_000;
        let mut guard = load(&["[::]:8080"], &rules(&[], &[], Some((1, BURST as u32))));
        let program = guard.program().unwrap();
        let (program, packet) = (&*program, syn(GOOD).bytes());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| run(program, &packet, BURST as u32));
            }
        });
        let Counters { passed, rate_limited, .. } = guard.counters().unwrap();
        assert_eq!(passed + rate_limited, 4 * BURST);
        // A token grows every second.
        assert!((BURST..BURST + 60).contains(&passed), "{passed} passed");
    });
}

#[test]
fn no_packet_meets_half_a_list() {
    with_kernel(|| {
        let nets = |extra: &str| {
            let many = (0..200).map(|i| format!("10.0.{i}.0/24"));
            many.chain([extra.to_owned()]).map(|text| text.parse().unwrap()).collect()
        };
        // The good source is on both allow lists, by different entries; the bad one on both deny lists.
        let lists = [
            Rules { allow: nets("198.51.100.0/24"), deny: nets("203.0.113.0/24"), limit: None },
            Rules { allow: nets("198.51.0.0/16"), deny: nets("203.0.0.0/16"), limit: None },
        ];
        let mut guard = load(&["[::]:8080"], &lists[0]);
        let (good, bad) = (syn(GOOD).bytes(), syn(BAD).bytes());
        let Loaded { ebpf, program, rules, .. } = &mut guard;
        let program = &*super::xdp(ebpf, program).unwrap();
        let running = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            for packet in [&good, &bad] {
                let running = &running;
                scope.spawn(move || {
                    while running.load(std::sync::atomic::Ordering::Relaxed) {
                        run(program, packet, 1000);
                    }
                });
            }
            for i in 0..100 {
                rules.replace(&lists[i % 2]).unwrap();
            }
            running.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        let counters = guard.counters().unwrap();
        let judged = counters.passed + counters.denied;
        assert_eq!(
            counters,
            Counters {
                passed: counters.passed,
                denied: judged - counters.passed,
                ..Default::default()
            }
        );
        assert_eq!(counters.passed % 1000, 0, "every packet of the good source, and no other");
        assert!(counters.passed > 0 && counters.denied > 0);
    });
}

/// A machine that also routes: what it passes on to others is not the gateway's, even if the port
/// is the same.
#[test]
fn routed_packets_are_untouched() {
    with_kernel(|| {
        let ip = |line: &str| {
            let output = Command::new("ip").args(line.split(' ')).output().expect("`ip` runs");
            assert!(output.status.success(), "ip {line}: {output:?}");
        };
        ip("link set lo up");
        ip("link add there type veth peer name here");
        ip("addr add 192.0.2.1/24 dev here");
        ip("addr add 2001:db8::1/64 dev here nodad");
        ip("link set here up");
        ip("link set there up");
        let mut guard = load(
            &["[::]:8080", "192.0.2.1:9090"],
            &rules(&[], &["203.0.113.0/24", "2001:db8:bad::/48"], Some((1, 1))),
        );
        let to = |source, destination| Packet::tcp(source, destination, 8080, SYN);
        let routed = [
            ("to here", to(BAD, HERE), "denied"),
            ("to another machine", to(BAD, "192.0.2.77"), "untouched"),
            ("no token is taken", to(GOOD, "192.0.2.77"), "untouched"),
            ("so there is one", to(GOOD, HERE), "passed"),
            ("and no more", to(GOOD, HERE), "rate_limited"),
            ("to here, IPv6", to(BAD6, HERE6), "denied"),
            ("to another machine, IPv6", to(BAD6, "2001:db8::77"), "untouched"),
            ("a listener on one address", Packet::tcp(BAD, HERE, 9090, SYN), "denied"),
        ];
        guard.expect(&[("not routing yet", to(BAD, "192.0.2.77"), "denied")]);
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        guard.expect(&routed);
    });
}

#[test]
fn mapped_listeners_are_of_ipv4() {
    assert_eq!(
        super::keys("[::ffff:192.0.2.1]:80".parse().unwrap()),
        super::keys("192.0.2.1:80".parse().unwrap())
    );
    assert_eq!(super::keys("[::]:80".parse().unwrap()).len(), 2);
}
