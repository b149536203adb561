//! Network namespaces joined by veth pairs: a client, a gateway and an instance that are not on
//! one loopback.

use std::{
    fs::File,
    io::Write,
    net::IpAddr,
    os::fd::AsRawFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A named network namespace, removed when dropped together with its interfaces.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

// Commands of ETHTOOL_S*.
const TSO: u32 = 0x1f;
const GSO: u32 = 0x24;
const GRO: u32 = 0x2c;
const CHECKSUMS: u32 = 0x17;

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Namespace {
    /// Makes one with loopback up. `None`, said aloud, when we may not.
    ///
    /// # Panics
    /// In CI, when we may not.
    #[track_caller]
    pub fn new() -> Option<Self> {
        if !crate::process::root_or_skip("making network namespaces") {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("atalho-{}-{number}", std::process::id());
        // Of a test that was killed, when process numbers came round.
        if std::path::Path::new("/run/netns").join(&name).exists() {
            ip(&["netns", "delete", &name]);
        }
        ip(&["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"]);
        Some(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` within.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn ip(&self, args: &[&str]) {
        ip(&[&["-n", &self.name], args].concat());
    }

    /// Runs many commands of `ip` within, one a line.
    ///
    /// # Panics
    /// When one fails.
    #[track_caller]
    pub fn ip_batch(&self, commands: &str) {
        let mut child = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the `ip` command");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(commands.as_bytes()).expect("`ip` reads");
        drop(input);
        let output = child.wait_with_output().expect("our child");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip: {said}in: {commands}");
    }

    /// Joins two namespaces with a pair of interfaces that are down and have no address. Returns
    /// their names, ours first.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn link(&self, other: &Self) -> (String, String) {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let (a, b) = (format!("at{number}a"), format!("at{number}b"));
        let (ours, theirs) = (self.name(), other.name());
        ip(&[
            "link", "add", &a, "netns", ours, "type", "veth", "peer", "name", &b, "netns", theirs,
        ]);
        (a, b)
    }

    /// Joins two namespaces: `here` becomes this one's address on a link, `there` the other's, both
    /// with a prefix length. Returns the names of the interfaces, ours first.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn join(&self, other: &Self, here: &str, there: &str) -> (String, String) {
        let (a, b) = self.link(other);
        for (space, link, address) in [(self, &a, here), (other, &b, there)] {
            // Without duplicate address detection, IPv6 addresses work at once.
            let nodad = if address.contains(':') { "nodad" } else { "" };
            space.ip_batch(&format!("addr add {address} dev {link} {nodad}\nlink set {link} up\n"));
        }
        (a, b)
    }

    /// Makes an interface take and bring packets as they are on a wire: each of the size of one, its
    /// checksum complete. (Between hosts on one machine they would be neither.)
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn plain_packets(&self, link: &str) {
        // In the order in which they depend on each other.
        const RECEIVE_CHECKSUMS: u32 = 0x15;
        self.set_offloads(
            link,
            &[(TSO, 0), (GSO, 0), (GRO, 0), (CHECKSUMS, 0), (RECEIVE_CHECKSUMS, 0)],
        );
    }

    /// Makes an interface send packets whose checksum is complete, one by one, and take what XDP
    /// redirects to it from the other end of the link.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn xdp_peer(&self, link: &str) {
        self.set_offloads(link, &[(TSO, 0), (GSO, 0), (CHECKSUMS, 0), (GRO, 1)]);
        self.queue(link);
    }

    /// Makes packets wait while an interface can send no more, as those of a network card do. A veth without
    /// a queue loses what its other end has no room for: 256 packets, when an XDP program takes them.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn queue(&self, link: &str) {
        let queue = ["qdisc", "replace", "dev", link, "root", "pfifo", "limit", "100000"];
        run("tc", &[&["-n", &self.name], &queue[..]].concat());
    }

    /// Whether an interface puts packets together that it receives. A veth takes what XDP redirects to
    /// the other end of the link only then.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn set_receive_offload(&self, link: &str, on: bool) {
        self.set_offloads(link, &[(GRO, on.into())]);
    }

    #[track_caller]
    fn set_offloads(&self, link: &str, settings: &[(u32, u32)]) {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        self.run(|| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for (setting, on) in settings.iter().copied() {
                // SAFETY: all zeros is a value of this type.
                let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
                for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
                    *to = from as libc::c_char;
                }
                // `struct ethtool_value`: what to do, and zero for off.
                let mut value = [setting, on];
                request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
                // SAFETY: the request and what it points to live during the call.
                let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &request) };
                let error = std::io::Error::last_os_error();
                // An XDP program at the other end takes some away.
                let gone = on == 0 && error.raw_os_error() == Some(libc::EOPNOTSUPP);
                assert!(rc == 0 || gone, "setting {setting:#x} of {link}: {error}");
            }
        });
    }

    /// A descriptor of it, to enter it by.
    ///
    /// # Panics
    /// When it is gone.
    pub fn open(&self) -> File {
        open(&self.name)
    }

    /// Adds an address to a link of this namespace.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn add_address(&self, address: IpAddr, link: &str) {
        self.ip(&["addr", "add", &format!("{address}/32"), "dev", link]);
    }

    /// Runs `work` on a thread that is in this namespace. Sockets made there stay in it, wherever
    /// they are used afterwards.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.name, work)
    }
}

/// Runs `work` on a thread that is in the namespace of this name.
///
/// # Panics
/// When there is none, or `work` panics.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = || {
            enter(&open(name));
            work()
        };
        match scope.spawn(entered).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn open(name: &str) -> File {
    File::open(format!("/var/run/netns/{name}")).expect("a namespace")
}

/// Takes this thread, and those that it starts from now on, to a namespace.
///
/// # Panics
/// When we may not.
pub fn enter(namespace: &File) {
    // SAFETY: the descriptor is open; only this thread changes its namespace.
    let rc = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(rc, 0, "setns: {}", std::io::Error::last_os_error());
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[track_caller]
fn ip(args: &[&str]) {
    run("ip", args);
}

#[track_caller]
fn run(command: &str, args: &[&str]) {
    let output = Command::new(command).args(args).output().expect("the commands of iproute2");
    assert!(
        output.status.success(),
        "{command} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
