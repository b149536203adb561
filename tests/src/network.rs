//! What lies between a client, the gateway and an instance: one loopback, or links.
//!
//! A test's body does not say which. While a [`Topology`] other than loopback is in force, the
//! test's thread, and every thread that it starts, is on the client's host: what it connects comes
//! from there. [`Upstream`](crate::Upstream) listens on the instance's host, and
//! [`Setup`](crate::Setup) starts the gateway on its own, because both ask [`Network::current`].

use std::{
    collections::HashMap,
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use crate::{
    netns::{self, Namespace},
    wire::{Shares, Wire},
};

/// Addresses on the client's link, then on the instance's: client, gateway, gateway, instance.
const V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 98, 1, 1),
    Ipv4Addr::new(10, 98, 1, 2),
    Ipv4Addr::new(10, 98, 2, 1),
    Ipv4Addr::new(10, 98, 2, 2),
];
const V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd98, 1, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd98, 1, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xfd98, 2, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd98, 2, 0, 0, 0, 0, 0, 2),
];

/// Where client, gateway and instance are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// All on one host, over IPv4.
    Loopback,
    /// Three hosts in a row, joined by veth pairs, over IPv4. The gateway's forwards as well.
    Veth,
    /// The same over IPv6.
    Veth6,
}

impl Topology {
    /// Takes this thread, and those that it starts, to the client's host. `None`, said aloud, when
    /// we may not.
    ///
    /// # Panics
    /// In CI, when we may not.
    pub fn enter(self) -> Option<Entered> {
        match self {
            Self::Loopback => Some(Entered { inside: None }),
            Self::Veth | Self::Veth6 => Network::new(self == Self::Veth6)?.enter(),
        }
    }
}

/// Keeps a thread on the client's host; dropped, it brings it back.
#[derive(Debug)]
pub struct Entered {
    inside: Option<(Arc<Network>, File)>,
}

impl Entered {
    /// The network, if there is one.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.inside.as_ref().map(|(network, _)| network)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some((network, home)) = self.inside.take() else { return };
        networks().remove(&network.key);
        netns::enter(&home);
    }
}

/// Client, gateway and instance, each on a host of its own.
#[derive(Debug)]
pub struct Network {
    /// The client's host.
    pub client: Namespace,
    /// The gateway's host.
    pub gateway: Namespace,
    /// The instance's host.
    pub instance: Namespace,
    /// The client's interface, and the gateway's on the same link.
    pub client_link: (String, String),
    /// The gateway's interface towards the instance, and the instance's.
    pub instance_link: (String, String),
    /// Bad wires on both links, if they were asked for.
    pub wires: Option<Wires>,
    six: bool,
    key: u64,
}

/// The wires of both links; the hosts are at the ends of the client's, and of the instance's, so that
/// the gateway is at the right end of the first and at the left end of the second.
#[derive(Debug)]
pub struct Wires {
    client: Mutex<Wire>,
    instance: Mutex<Wire>,
    namespace: Namespace,
}

impl Wires {
    /// The one between client and gateway.
    pub fn client(&self) -> MutexGuard<'_, Wire> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one between gateway and instance.
    pub fn instance(&self) -> MutexGuard<'_, Wire> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on some long frames of the instance are overtaken by those that came with them.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn overtake(&self) {
        self.instance().overtake(&self.namespace);
    }

    /// Makes their ends at the gateway take what XDP redirects there. Those put packets together then, which the
    /// other ends take apart.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn take_redirected(&self) {
        let [client, instance] = [self.client(), self.instance()].map(|wire| wire.links.clone());
        for (near, far) in [(&client[1], &client[0]), (&instance[0], &instance[1])] {
            self.namespace.set_receive_offload(near, true);
            self.namespace.plain_packets(far);
        }
    }

    /// Changes how bad both are.
    pub fn set(&self, shares: Shares) {
        self.client().set(shares);
        self.instance().set(shares);
    }
}

static NETWORKS: LazyLock<Mutex<HashMap<u64, Arc<Network>>>> = LazyLock::new(Mutex::default);

fn networks() -> MutexGuard<'static, HashMap<u64, Arc<Network>>> {
    NETWORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    /// Makes one, with addresses of both families on every link. `six` says which of them
    /// [`Network::listen`] and [`Network::instance_address`] name. `None`, said aloud, when we may
    /// not.
    ///
    /// # Panics
    /// In CI, when we may not.
    pub fn new(six: bool) -> Option<Self> {
        Self::make(six, None)
    }

    /// As [`Network::new`], with wires that can be made bad.
    pub fn wired(six: bool, seed: u64) -> Option<Self> {
        Self::make(six, Some(seed))
    }

    fn make(six: bool, seed: Option<u64>) -> Option<Self> {
        let (client, gateway) = (Namespace::new()?, Namespace::new()?);
        let instance = Namespace::new()?;
        let (client_link, instance_link, wires) = match seed {
            None => (client.link(&gateway), gateway.link(&instance), None),
            Some(seed) => {
                let middle = Namespace::new()?;
                middle.run(|| configure("ipv6/conf/all/disable_ipv6"));
                let wire = |left: &Namespace, right: &Namespace, seed| {
                    let (a, b) = left.link(&middle);
                    let (c, d) = middle.link(right);
                    (Mutex::new(Wire::between(&middle, &b, &c, seed)), (a, d))
                };
                let (first, client_link) = wire(&client, &gateway, seed);
                let (second, instance_link) = wire(&gateway, &instance, !seed);
                let wires = Wires { client: first, instance: second, namespace: middle };
                (client_link, instance_link, Some(wires))
            }
        };
        let ends = [
            (&client, &client_link.0),
            (&gateway, &client_link.1),
            (&gateway, &instance_link.0),
            (&instance, &instance_link.1),
        ];
        for ((namespace, link), (v4, v6)) in ends.into_iter().zip(V4.iter().zip(&V6)) {
            let mut commands = format!(
                "link set {link} up\naddr add {v4}/24 dev {link}\naddr add {v6}/64 dev {link} nodad\n"
            );
            // The outer two reach each other through the gateway.
            let way = match link {
                link if *link == client_link.0 => Some(1),
                link if *link == instance_link.1 => Some(2),
                _ => None,
            };
            if let Some(next) = way {
                commands += &format!("route add default via {}\n", V4[next]);
                commands += &format!("route add ::/0 via {}\n", V6[next]);
            }
            namespace.ip_batch(&commands);
        }
        gateway.run(|| {
            configure("ipv4/ip_forward");
            configure("ipv6/conf/all/forwarding");
        });
        let key = client.run(current_namespace);
        Some(Self { client, gateway, instance, client_link, instance_link, wires, six, key })
    }

    /// Makes every interface take and bring packets as they are on a wire.
    pub fn plain_packets(&self) {
        self.client.plain_packets(&self.client_link.0);
        self.gateway.plain_packets(&self.client_link.1);
        self.gateway.plain_packets(&self.instance_link.0);
        self.instance.plain_packets(&self.instance_link.1);
    }

    /// Makes the links of the gateway such that XDP can forward between them: the peers complete their
    /// checksums, send single packets, and take what is redirected.
    pub fn allow_xdp(&self) {
        self.client.xdp_peer(&self.client_link.0);
        self.instance.xdp_peer(&self.instance_link.1);
        self.wires.iter().for_each(Wires::take_redirected);
    }

    /// Takes this thread, and those that it starts, to the client's host.
    pub fn enter(self) -> Option<Entered> {
        let home = File::open("/proc/thread-self/ns/net").expect("our namespace");
        let network = Arc::new(self);
        networks().insert(network.key, network.clone());
        netns::enter(&network.client.open());
        Some(Entered { inside: Some((network, home)) })
    }

    /// The network on whose client's host this thread is.
    pub fn current() -> Option<Arc<Self>> {
        let networks = networks();
        if networks.is_empty() {
            return None;
        }
        networks.get(&current_namespace()).cloned()
    }

    fn address(&self, index: usize) -> SocketAddr {
        let ip = if self.six { IpAddr::V6(V6[index]) } else { IpAddr::V4(V4[index]) };
        SocketAddr::new(ip, 0)
    }

    /// The client's.
    pub fn client_address(&self) -> SocketAddr {
        self.address(0)
    }

    /// Where the gateway is to listen.
    pub fn listen(&self) -> SocketAddr {
        self.address(1)
    }

    /// Where an instance is to listen.
    pub fn instance_address(&self) -> SocketAddr {
        self.address(3)
    }
}

/// Where an instance listens unless the test says otherwise: see [`Topology`].
pub fn instance_address() -> SocketAddr {
    match Network::current() {
        Some(network) => network.instance_address(),
        None => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
    }
}

/// Turns a setting of this thread's namespace on.
fn configure(setting: &str) {
    std::fs::write(format!("/proc/sys/net/{setting}"), "1").expect("a setting of ours");
}

fn current_namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").expect("our namespace").ino()
}
