//! Client, gateway and instance on hosts of their own, and how they are joined.

use tests::{
    Engine, Gateway, Peer, Setup, Upstream,
    message::{chat, response},
    netns::Namespace,
    process,
};

use crate::stream::Joined;

/// Where the two are that the gateway is between.
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Namespace,
    pub(crate) gateway: &'a Namespace,
    pub(crate) instance: &'a Namespace,
    /// The gateway's address for the client.
    pub(crate) listen: &'a str,
    /// The instance's.
    pub(crate) serves: &'a str,
}

impl<'a> Place<'a> {
    /// Client, gateway and instance, with the addresses that most tests give them.
    pub(crate) fn of([client, gateway, instance]: [&'a Namespace; 3]) -> Self {
        Self { client, gateway, instance, listen: "10.97.1.2", serves: "10.97.2.2" }
    }

    pub(crate) fn start(&self) -> (Gateway, Upstream) {
        self.start_with(|setup| setup)
    }

    pub(crate) fn start_with(&self, set: impl FnOnce(Setup) -> Setup) -> (Gateway, Upstream) {
        let upstream = self
            .instance
            .run(|| Upstream::manual_at(format!("{}:0", self.serves).parse().unwrap()));
        let setup = Setup::single(Engine::Splice, &upstream)
            .within(self.gateway)
            .set("listen", vec![format!("{}:0", self.listen)]);
        (set(setup).start(), upstream)
    }

    pub(crate) fn connect(&self, gateway: Gateway, upstream: Upstream) -> Joined {
        let mut client = self.client.run(|| Peer::connect(gateway.address()));
        client.send(chat("warm"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(response(200, "w"));
        client.response();
        Joined { gateway, upstream, client, instance }
    }

    pub(crate) fn join(&self) -> Joined {
        let (gateway, upstream) = self.start();
        self.connect(gateway, upstream)
    }

    /// One direction is spliced, the other is not, because of its segments.
    #[track_caller]
    pub(crate) fn expect_one_way(&self, way: &str) {
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
    pub(crate) fn expect_spliced(&self) {
        self.join().expect_spliced();
    }
}

/// Two hosts on links of the gateway's: client, gateway, instance.
pub(crate) fn three() -> Option<[Namespace; 3]> {
    Some([Namespace::new()?, Namespace::new()?, Namespace::new()?])
}

/// Three hosts in a row.
pub(crate) struct Row {
    pub(crate) client: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) instance: Namespace,
    /// The client's interface, the gateway's two, and the instance's.
    pub(crate) links: [String; 4],
}

impl Row {
    pub(crate) fn new() -> Option<Self> {
        let [client, gateway, instance] = three()?;
        let (c, a) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
        let (b, s) = gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
        Some(Self { client, gateway, instance, links: [c, a, b, s] })
    }

    pub(crate) fn place(&self) -> Place<'_> {
        Place::of([&self.client, &self.gateway, &self.instance])
    }

    /// Sets something on all three hosts.
    pub(crate) fn set(&self, setting: &str, values: [&str; 3]) {
        for (host, value) in [&self.client, &self.gateway, &self.instance].into_iter().zip(values) {
            host.run(|| std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value).unwrap());
        }
    }
}

/// Whether the kernel has a kind of interface.
pub(crate) fn has(kind: &str, namespace: &Namespace) -> bool {
    let add = format!("link add link lo name probe type {kind}");
    let output = std::process::Command::new("ip")
        .args(["-n", namespace.name()])
        .args(add.split(' '))
        .output()
        .expect("the `ip` command");
    if String::from_utf8_lossy(&output.stderr).contains("Unknown device type") {
        let feature = kind.split(' ').next().unwrap_or(kind);
        process::skip_for_kernel(feature);
        return false;
    }
    if output.status.success() {
        namespace.ip(&["link", "del", "probe"]);
    }
    true
}

/// Adds an interface of a VLAN to one that has no address, and gives it one.
pub(crate) fn tag(namespace: &Namespace, link: &str, vlan: u32, address: &str, options: &str) {
    namespace.ip_batch(&format!(
        "link set {link} up\n\
         link add link {link} name vlan{vlan} type vlan id {vlan} {options}\n\
         addr add {address} dev vlan{vlan}\nlink set vlan{vlan} up\n"
    ));
}
