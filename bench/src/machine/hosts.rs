//! Client, gateway and server on hosts of their own: network namespaces joined by veth pairs.
//!
//! ```text
//! client 10.97.1.1 -- 10.97.1.2 gateway 10.97.2.1 -- 10.97.2.2 server
//!        10.97.3.1 --------- without a gateway --------- 10.97.3.2
//! ```

use std::{
    ffi::OsStr,
    fs::File,
    io::Write,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsFd, AsRawFd},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the gateway is, for the client.
pub const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 1, 2));
/// Where the server is, for the gateway, and for the client when its packets are forwarded.
pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 2, 2));
/// Where the server is, for the client, without a gateway.
pub const SERVER_DIRECT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 3, 2));

/// Three hosts, removed when this is dropped.
#[derive(Debug)]
pub struct Hosts {
    /// The gateway's.
    pub gateway: Host,
    /// The server's.
    pub server: Host,
    client: Host,
}

/// One host.
#[derive(Debug)]
pub struct Host {
    name: String,
}

impl Hosts {
    /// Makes them, and takes this thread, and those that it starts, to the client's.
    ///
    /// `plain`: client and server send packets as they are on a wire, each of the size of one and with its
    /// checksum complete, and take what XDP redirects to them. What a link has no room for waits, as in front
    /// of a network card: a veth without a queue loses what its other end has no room for, which is 256
    /// packets where an XDP program takes them.
    ///
    /// # Errors
    /// When the system refuses: this takes root.
    pub fn enter(plain: bool) -> anyhow::Result<Self> {
        let hosts = Self {
            client: Host::new("client")?,
            gateway: Host::new("gateway")?,
            server: Host::new("server")?,
        };
        let (client, gateway, server) = (&hosts.client, &hosts.gateway, &hosts.server);
        // Interfaces are named after the host at the other end.
        client.link("gateway", gateway, "client")?;
        gateway.link("server", server, "gateway")?;
        client.link("server", server, "client")?;
        client.batch(
            "addr add 10.97.1.1/24 dev gateway\naddr add 10.97.3.1/24 dev server\n\
             link set gateway up\nlink set server up\nroute add 10.97.2.0/24 via 10.97.1.2\n",
        )?;
        gateway.batch(
            "addr add 10.97.1.2/24 dev client\naddr add 10.97.2.1/24 dev server\n\
             link set client up\nlink set server up\n",
        )?;
        server.batch(
            "addr add 10.97.2.2/24 dev gateway\naddr add 10.97.3.2/24 dev client\n\
             link set gateway up\nlink set client up\nroute add 10.97.1.0/24 via 10.97.2.1\n",
        )?;
        if plain {
            client.plain_packets(&["gateway", "server"])?;
            server.plain_packets(&["gateway", "client"])?;
            for (host, link) in [(client, "gateway"), (server, "gateway")] {
                let queue = ["qdisc", "replace", "dev", link, "root", "pfifo", "limit", "100000"];
                run("tc", &[&["-n", &*host.name], &queue[..]].concat())?;
            }
        }
        let mut forward = gateway.command("sh");
        let status = forward.args(["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]).status()?;
        ensure!(status.success(), "the gateway's host does not forward");
        client.enter().context("moving to the client's host")?;
        Ok(hosts)
    }
}

impl Host {
    fn new(role: &str) -> anyhow::Result<Self> {
        let host = Self { name: format!("atalho-bench-{}-{role}", std::process::id()) };
        ip(&["netns", "add", &host.name])?;
        host.batch("link set lo up\n")?;
        Ok(host)
    }

    /// A command that runs there.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Takes this thread there.
    fn enter(&self) -> anyhow::Result<()> {
        let namespace = File::open(format!("/var/run/netns/{}", self.name))?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// See [`Hosts::enter`].
    fn plain_packets(&self, links: &[&str]) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                links.iter().try_for_each(|link| plain_packets(link))
            });
            worker.join().expect("a thread that does not panic")
        })
    }

    fn link(&self, link: &str, other: &Self, peer: &str) -> anyhow::Result<()> {
        let (here, there) = (&self.name, &other.name);
        ip(&[
            "link", "add", link, "netns", here, "type", "veth", "peer", "name", peer, "netns",
            there,
        ])
    }

    fn batch(&self, commands: &str) -> anyhow::Result<()> {
        let mut child = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .context("the `ip` command")?;
        child.stdin.take().context("a pipe")?.write_all(commands.as_bytes())?;
        ensure!(child.wait()?.success(), "`ip` failed in {}", self.name);
        Ok(())
    }
}

/// Sets offloads of an interface of this thread's host.
fn plain_packets(link: &str) -> anyhow::Result<()> {
    // ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM, ETHTOOL_SGRO: what, and whether it is on.
    const SETTINGS: [[u32; 2]; 4] = [[0x1f, 0], [0x24, 0], [0x17, 0], [0x2c, 1]];
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    for mut setting in SETTINGS {
        // SAFETY: all zeros is a value of this type.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().take(15).zip(link.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = setting.as_mut_ptr().cast();
        // SAFETY: the request and what it points to live during the call.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut request) };
        ensure!(rc == 0, "offloads of {link}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    run("ip", args)
}

fn run(command: &str, args: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(command).args(args).status();
    let status = status.with_context(|| format!("the `{command}` command"))?;
    ensure!(status.success(), "`{command} {}` failed", args.join(" "));
    Ok(())
}
