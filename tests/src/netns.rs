//! Network namespaces joined by veth pairs: a client, a gateway and an instance that are not on
//! one loopback.

use std::{
    fs::File,
    net::IpAddr,
    os::fd::AsRawFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// A named network namespace, removed when dropped together with its interfaces.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

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

    /// Joins two namespaces: `here` becomes this one's address on a link, `there` the other's, both
    /// with a prefix length. The interfaces are named after the other end's number.
    ///
    /// # Panics
    /// When the system refuses.
    #[track_caller]
    pub fn join(&self, other: &Self, here: &str, there: &str) -> (String, String) {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let (a, b) = (format!("at{number}a"), format!("at{number}b"));
        ip(&[
            "link",
            "add",
            &a,
            "netns",
            &self.name,
            "type",
            "veth",
            "peer",
            "name",
            &b,
            "netns",
            &other.name,
        ]);
        for (space, link, address) in [(self, &a, here), (other, &b, there)] {
            // Without duplicate address detection, IPv6 addresses work at once.
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            space.ip(&[&["addr", "add", address, "dev", link], nodad].concat());
            space.ip(&["link", "set", link, "up"]);
        }
        (a, b)
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
        std::thread::scope(|scope| {
            let entered = || {
                let file =
                    File::open(format!("/var/run/netns/{}", self.name)).expect("a namespace");
                // SAFETY: the descriptor is open; only this thread changes its namespace.
                let rc = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(rc, 0, "setns: {}", std::io::Error::last_os_error());
                work()
            };
            match scope.spawn(entered).join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[track_caller]
fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("the `ip` command");
    assert!(
        output.status.success(),
        "ip {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
