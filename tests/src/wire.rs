//! A bad wire between two hosts: it loses, repeats and delays packets.
//!
//! Frames that come in at one end are taken to the other by a tc program (the package `wire`), which
//! decides what becomes of each by its number and a seed. What is to come later goes to an interface
//! of its own, from where a thread of ours takes it, and puts it on the wire after a moment, behind
//! what has passed meanwhile. Aggregates and unfinished checksums stay as they are on all ways.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io, mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::Array,
    programs::{LinkOrder, SchedClassifier, TcAttachType, tc::TcAttachOptions},
};
pub use wire::Fate;
use wire::{COUNTERS, ENDS, Settings, setting};

use crate::{netns::Namespace, process};

/// How long a delayed packet takes at most. On links as short as these, a whole window passes it.
const LATEST: Duration = Duration::from_millis(4);
/// The largest frame, an aggregate, and what stands before it (`struct virtio_net_hdr`).
const LARGEST: usize = 80 * 1024;
const PREFIX: usize = 10;

/// Packets of a million that are treated so, in each direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// Lost.
    pub lose: u32,
    /// Repeated at once.
    pub repeat: u32,
    /// Late.
    pub delay: u32,
    /// In time, and once more late.
    pub echo: u32,
}

impl Shares {
    /// As many of each.
    pub fn all(share: u32) -> Self {
        Self { lose: share, repeat: share, delay: share, echo: share }
    }
}

/// A wire, good until told otherwise. Cut when dropped.
#[derive(Debug)]
pub struct Wire {
    ebpf: Ebpf,
    /// The interfaces, left and right.
    pub(crate) links: [String; 2],
    ports: [u64; 2],
    holds: [u64; 2],
    seed: u64,
    /// Nanoseconds that every frame takes, if it is not zero.
    latency: Arc<AtomicU64>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A program, loaded.
fn load<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("a program of ours");
    let program: &mut SchedClassifier = program.try_into().expect("a classifier");
    program.load().expect("a program that the kernel takes");
    program
}

impl Wire {
    /// Joins two interfaces of a namespace that is there for wires only.
    ///
    /// # Panics
    /// When the system refuses, or the program has not been built.
    #[track_caller]
    pub fn between(namespace: &Namespace, left: &str, right: &str, seed: u64) -> Self {
        let pairs = [namespace.link(namespace), namespace.link(namespace)];
        let mut commands = String::new();
        for link in [left, right].into_iter().chain(pairs.iter().flat_map(|(a, b)| [&**a, b])) {
            commands += &format!("link set {link} up\n");
        }
        namespace.ip_batch(&commands);
        let path = process::build_dir().join("../bpf-tests/atalho-wire");
        let mut ebpf = Ebpf::load_file(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo xtask build-ebpf` builds it", path.display())
        });
        let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
        let latency = Arc::<AtomicU64>::default();
        let (ports, holds, thread) = namespace.run(|| {
            let ports = [index(left), index(right)];
            let sockets = [packets_of(&pairs[0].1, true), packets_of(&pairs[1].1, true)];
            let holds = [index(&pairs[0].0), index(&pairs[1].0)];
            // What came in at the left goes out at the right.
            let outs = [ports[1], ports[0]];
            let fixed = latency.clone();
            let thread = std::thread::spawn(move || hold(&sockets, outs, &stopped, seed, &fixed));
            for (name, link) in [("from_left", left), ("from_right", right)] {
                let program = load(&mut ebpf, name);
                program.attach(link, TcAttachType::Ingress).expect("an interface");
            }
            (ports.map(u64::from), holds.map(u64::from), thread)
        });
        let mut wire = Self {
            ebpf,
            links: [left, right].map(str::to_owned),
            ports,
            holds,
            seed,
            latency,
            stop,
            thread: Some(thread),
        };
        wire.set(Shares::default());
        wire
    }

    /// Changes how bad it is.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn set(&mut self, shares: Shares) {
        let map = self.ebpf.map_mut("SETTINGS").expect("a map of ours");
        let mut map: Array<_, Settings> = map.try_into().expect("an array");
        for end in 0..ENDS {
            let mut settings = Settings::default();
            settings[setting::OUT] = self.ports[1 - end as usize];
            settings[setting::HOLD] = self.holds[end as usize];
            settings[setting::LOSE] = shares.lose.into();
            settings[setting::REPEAT] = shares.repeat.into();
            settings[setting::DELAY] = shares.delay.into();
            settings[setting::ECHO] = shares.echo.into();
            settings[setting::SEED] = self.seed.wrapping_mul(2).wrapping_add(end.into());
            map.set(end, settings, 0).expect("an element");
        }
    }

    /// Makes it long: every frame takes `latency`, and none overtakes another.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn lengthen(&mut self, latency: Duration) {
        self.latency.store(latency.as_nanos() as u64, Relaxed);
        self.set(Shares { delay: 1_000_000, ..Shares::default() });
    }

    /// From now on some of the long frames that come in at the right end are overtaken by those that came with
    /// them.
    ///
    /// # Panics
    /// When the system refuses.
    pub(crate) fn overtake(&mut self, namespace: &Namespace) {
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        let program = load(&mut self.ebpf, "falls_behind");
        namespace.run(|| {
            let attached =
                program.attach_with_options(&self.links[1], TcAttachType::Ingress, first);
            attached.expect("an interface")
        });
    }

    /// How many were.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn overtaken(&self) -> u64 {
        let map = self.ebpf.map("SEEN").expect("a map of ours");
        let map: Array<_, u64> = map.try_into().expect("an array");
        map.get(&0, 0).expect("an element")
    }

    /// How many packets met a fate so far, of those that came in at the left end, and at the right.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn count(&self, fate: Fate) -> [u64; 2] {
        let map = self.ebpf.map("COUNTS").expect("a map of ours");
        let map: Array<_, u64> = map.try_into().expect("an array");
        [0, 1].map(|end| map.get(&(end * COUNTERS + fate as u32), 0).expect("an element"))
    }

    /// Packets by fate, in a line.
    pub fn describe(&self) -> String {
        [Fate::Pass, Fate::Lose, Fate::Repeat, Fate::Delay, Fate::Echo]
            .map(|fate| {
                let [left, right] = self.count(fate);
                format!("{fate:?} {left}/{right}")
            })
            .join(", ")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the thread that delays packets failed");
        }
    }
}

fn index(link: &str) -> u32 {
    let name = std::ffi::CString::new(link).expect("a name");
    // SAFETY: the name is a string that ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "{link}: {}", io::Error::last_os_error());
    index
}

/// A socket that gets every frame that passes an interface. With `noted`, a note of what is unfinished
/// about it stands before it, and it takes frames with such a note.
pub(crate) fn packets_of(link: &str, noted: bool) -> OwnedFd {
    // SAFETY: takes no memory.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just opened, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let options = [
        (libc::SOL_PACKET, libc::PACKET_VNET_HDR, noted.into()),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
    ];
    for (level, name, value) in options {
        let value: libc::c_int = value;
        // SAFETY: the option is an int, and lives during the call.
        let rc = unsafe {
            libc::setsockopt(
                fd,
                level,
                name,
                (&raw const value).cast(),
                mem::size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
    }
    let address = link_address(index(link), libc::ETH_P_ALL as u16);
    // SAFETY: the address is of the family's type, and lives during the call.
    let rc = unsafe { libc::bind(fd, (&raw const address).cast(), size_of_address()) };
    assert_eq!(rc, 0, "{}", io::Error::last_os_error());
    socket
}

fn link_address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: all zeros is a value of this type.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    address
}

fn size_of_address() -> libc::socklen_t {
    mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t
}

/// A frame that waits: when it is due, a number to tell it from others, where it came in, itself.
type Waiting = Reverse<(Instant, u64, usize, Vec<u8>)>;

/// Takes frames from both sockets, and sends each to the interface opposite some time later.
fn hold(
    sockets: &[OwnedFd; 2],
    outs: [u32; 2],
    stopped: &UnixStream,
    seed: u64,
    latency: &AtomicU64,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut waiting = BinaryHeap::<Waiting>::new();
    let mut frame = vec![0; LARGEST];
    for number in 0.. {
        let now = Instant::now();
        let ready = |first: &Waiting| first.0.0 <= now;
        while waiting.peek().is_some_and(ready) {
            let Some(Reverse((_, _, end, frame))) = waiting.pop() else { break };
            send(&sockets[end], outs[end], &frame);
        }
        let next = waiting.peek().map(|Reverse((due, ..))| due.saturating_duration_since(now));
        let mut polled = [sockets[0].as_raw_fd(), sockets[1].as_raw_fd(), stopped.as_raw_fd()]
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let patience =
            next.map(|next| libc::timespec { tv_sec: 0, tv_nsec: next.subsec_nanos().into() });
        let patience = patience.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array and the time live during the call.
        unsafe { libc::ppoll(polled.as_mut_ptr(), 3, patience, std::ptr::null()) };
        if polled[2].revents != 0 {
            return;
        }
        for end in (0..2).filter(|end| polled[*end].revents != 0) {
            // SAFETY: the buffer is ours and as long as said.
            let n = unsafe {
                let buf = frame.as_mut_ptr().cast();
                libc::recv(polled[end].fd, buf, frame.len(), libc::MSG_DONTWAIT)
            };
            if n > 0 {
                let due = Instant::now()
                    + match latency.load(Relaxed) {
                        0 => LATEST.mul_f64(rng.f64()),
                        fixed => Duration::from_nanos(fixed),
                    };
                waiting.push(Reverse((
                    due,
                    number * 2 + end as u64,
                    end,
                    frame[..n as usize].into(),
                )));
            }
        }
    }
}

fn send(socket: &OwnedFd, out: u32, frame: &[u8]) {
    let Some(kind) = frame.get(PREFIX + 12..PREFIX + 14) else { return };
    let address = link_address(out, u16::from_be_bytes([kind[0], kind[1]]));
    // SAFETY: the frame and the address live during the call.
    let rc = unsafe {
        let (frame, len) = (frame.as_ptr().cast(), frame.len());
        let address = (&raw const address).cast();
        libc::sendto(socket.as_raw_fd(), frame, len, 0, address, size_of_address())
    };
    // An interface that is going away refuses; nothing else may.
    let error = io::Error::last_os_error();
    let gone =
        [libc::ENETDOWN, libc::ENXIO, libc::ENODEV].contains(&error.raw_os_error().unwrap_or(0));
    assert!(rc >= 0 || gone, "sending a frame of {} bytes: {error}", frame.len());
}
