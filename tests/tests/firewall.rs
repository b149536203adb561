//! Beside a firewall that follows connections and drops what does not fit them.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use tests::{
    Engine, Gateway, Peer, Setup, Upstream, chunked,
    message::{CHUNKED_HEAD, chat, request, response},
    netns::Namespace,
    payload, process,
};

/// Rules that drop packets of no connection where they leave, arrive, or both; counted.
fn rules(hooks: &[&str]) -> String {
    let chains = hooks.iter().map(|hook| {
        format!(
            "chain {hook} {{\n type filter hook {hook} priority 0; policy accept;\n \
             ct state invalid counter name lost drop\n }}\n"
        )
    });
    format!("table inet guard {{\n counter lost {{ }}\n {} }}\n", chains.collect::<String>())
}

/// The `nft` command in a namespace, with its input. `None` when there is none, or the kernel lacks it.
fn nft(namespace: &Namespace, arguments: &[&str], input: &str) -> Option<String> {
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace.name(), "nft"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the `ip` command");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("`nft` reads");
    let output = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        process::skip(&format!("nft: {said}"));
        return None;
    }
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// Packets dropped so far.
fn lost(namespace: &Namespace) -> u64 {
    let said = nft(namespace, &["list", "counter", "inet", "guard", "lost"], "").expect("rules");
    let (_, rest) = said.split_once("packets ").expect("a counter");
    rest.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number")
}

/// A gateway between two peers, each on a host of its own or on the gateway's.
struct Place {
    client: Option<Namespace>,
    gateway: Namespace,
    instance: Option<Namespace>,
}

impl Place {
    fn new(hooks: &[&str], [client, instance]: [bool; 2]) -> Option<Self> {
        let gateway = Namespace::new()?;
        let host = |there: bool, theirs: &str, ours: &str| {
            let host = there.then(Namespace::new)??;
            host.join(&gateway, theirs, ours);
            Some(host)
        };
        let client = host(client, "10.96.1.1/24", "10.96.1.2/24");
        let instance = host(instance, "10.96.2.1/24", "10.96.2.2/24");
        nft(&gateway, &["-f", "-"], &rules(hooks))?;
        Some(Self { client, gateway, instance })
    }

    fn join(&self) -> Joined {
        let own = &self.gateway;
        let serves = if self.instance.is_some() { "10.96.2.1:0" } else { "127.0.0.1:0" };
        let listen = if self.client.is_some() { "10.96.1.2:0" } else { "127.0.0.1:0" };
        let instance = self.instance.as_ref().unwrap_or(own);
        let upstream = instance.run(|| Upstream::manual_at(serves.parse().unwrap()));
        let gateway = Setup::single(Engine::Splice, &upstream)
            .within(own)
            .set("listen", vec![listen])
            .start();
        let client = self.client.as_ref().unwrap_or(own);
        let mut client = client.run(|| Peer::connect(gateway.address()));
        client.send(chat("warm"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "w"));
        client.response();
        Joined { gateway, upstream, client, instance }
    }
}

struct Joined {
    gateway: Gateway,
    upstream: Upstream,
    client: Peer,
    instance: Peer,
}

impl Joined {
    /// Tokens, a long answer and a long request.
    fn exchange(&mut self, seed: u64) {
        let Self { client, instance, .. } = self;
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
        // What follows is sent once the piece before has arrived: that leaves a moment to hand over.
        let bytes = payload::bytes(seed, 1_000_000);
        client.send(chat("bulk"));
        instance.request();
        let answer = response(200, &bytes);
        let head = answer.len() - bytes.len();
        instance.send(&answer[..head]);
        client.head();
        for piece in answer[head..].chunks(200_000) {
            instance.send(piece);
            client.expect(piece);
        }
        let question = request("POST", "/invocations", &bytes);
        let head = question.len() - bytes.len();
        client.send(&question[..head + 200_000]);
        instance.head();
        instance.expect(&bytes[..200_000]);
        for piece in bytes[200_000..].chunks(200_000) {
            client.send(piece);
            instance.expect(piece);
        }
        instance.send(response(200, "done"));
        client.response();
    }

    /// Bytes that the kernel has moved.
    fn carried(&self) -> [u64; 2] {
        ["request", "response"].map(|way| self.gateway.carried(Engine::Splice, way))
    }

    /// A stream under way.
    fn begin(&mut self) {
        let Self { client, instance, .. } = self;
        client.send(chat("stream"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..20 {
            let chunk = chunked::chunk(&payload::bytes(number, 150));
            instance.send(&chunk);
            client.expect(&chunk);
        }
    }
}

const EVERYWHERE: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];

/// Netfilter sees what the sockets send and get, which fits.
#[test]
fn between_hosts_all_is_spliced_and_nothing_is_dropped() {
    let Some(place) = Place::new(&EVERYWHERE, [true, true]) else { return };
    let mut joined = place.join();
    // The self-test has let one be dropped, to see whether it would be.
    let before = lost(&place.gateway);
    for round in 0..5 {
        joined.exchange(round);
    }
    let carried = joined.carried();
    assert!(carried.iter().all(|bytes| *bytes > 500_000), "{carried:?}");
    assert_eq!(joined.upstream.accepted(), 1);
    assert_eq!(lost(&place.gateway), before);
    joined.begin();
    joined.client.close();
    joined.instance.end();
}

/// A local peer's packets, and those that are forwarded to it, are seen with the numbers of the wire; those
/// of the gateway's socket to it with the socket's. Where they are dropped as they leave, a reset is as well.
#[test]
fn peers_on_the_gateways_own_host_get_everything() {
    for (hooks, spliced) in
        [(&["prerouting", "input"][..], true), (&["output"], false), (&EVERYWHERE, false)]
    {
        for far in [[false, false], [false, true], [true, false]] {
            let Some(place) = Place::new(hooks, far) else { return };
            let mut joined = place.join();
            (0..3).for_each(|round| joined.exchange(round));
            assert_eq!(joined.upstream.accepted(), 1, "{hooks:?} {far:?}");
            let carried = joined.carried();
            assert_eq!(carried != [0, 0], spliced, "{hooks:?} {far:?}: {carried:?}");
            if !spliced {
                joined.gateway.expect_line(&["are left to user space", "ct state invalid drop"]);
                let labels = [("engine", "splice"), ("reason", "firewall")];
                assert!(joined.gateway.metric("atalho_fallbacks_total", &labels) > 0.0);
            }
        }
    }
}

#[test]
fn they_hear_of_it_when_the_other_side_or_the_gateway_ends() {
    let arriving = ["prerouting", "input"];
    for (hooks, far) in
        [(&arriving[..], [false, false]), (&arriving, [true, false]), (&["output"], [false, true])]
    {
        let Some(place) = Place::new(hooks, far) else { return };
        let begun = |seed| {
            let mut joined = place.join();
            joined.exchange(seed);
            joined.begin();
            joined
        };
        let mut joined = begun(1);
        joined.client.close();
        joined.instance.end();

        let mut joined = begun(2);
        joined.instance.reset();
        joined.client.end();

        let mut joined = begun(3);
        joined.gateway.kill();
        joined.client.end();
        joined.instance.end();
    }
}

#[test]
fn doctor_names_the_kind_of_rule() {
    let Some(place) = Place::new(&["output"], [false, false]) else { return };
    let output = Command::new("ip")
        .args(["netns", "exec", place.gateway.name()])
        .arg(process::binary("ATALHO_BIN", "atalho"))
        .args(["doctor", "--require", "splice"])
        .output()
        .expect("the `ip` command");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find(|line| line.contains("firewall")).expect("a line");
    assert!(line.contains("no  lo") && line.contains("`ct state invalid drop`"), "{line}");
}
