//! The splice engine's programs: loading them, putting them on interfaces, and the memory shared with
//! them. See docs/splice.md.

mod attachments;
mod clsact;
mod entry;
mod interfaces;
mod netdev;
mod selection;
mod socket;
mod xdp;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{MapData, RingBuf},
    programs::{ProgramError, SchedClassifier},
};
use router_ebpf::splice::layout::{self, Command, Flow, answer, ask, flag};

pub use self::{
    attachments::{Attachment, Skipped},
    selection::Selection,
    xdp::Drivers,
};
use self::{
    attachments::{Attachments, Changes},
    xdp::Xdp,
};
pub(crate) use self::{
    entry::Entry,
    interfaces::News,
    socket::{Info, acknowledge_now, probe, reset_with_old_number, widen},
};
use super::{
    LoadError,
    btf::Btf,
    counters::CounterMemory,
    events, host,
    index_pool::IndexPool,
    load::{map_fd, refused_load, with_sources},
    object,
    sys::{self, Access, Mapping, Update},
};

/// How long the entry of a closed connection stays whose socket may still be there, in FIN_WAIT_2 and
/// TIME_WAIT: 60 seconds each.
const MAX_CLOSED_ENTRY_AGE: Duration = Duration::from_secs(125);
/// The same once the peer has closed as well, or a side has reset the connection: what is left is to
/// answer when it repeats its FIN, which it would do several times in this time, and packets that were
/// under way.
const CLOSED_ENTRY_CHECK_INTERVAL: Duration = Duration::from_secs(8);
/// How long a processor that holds a lock may be away.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at the entries of closed connections.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// How much the programs may hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections that are known at a time; each takes 704 bytes of kernel memory.
    pub connections: u32,
    /// In-flight counters; each takes 64 bytes.
    pub counters: u32,
    /// Where packets are forwarded before they become socket buffers, once [`SpliceObject::start_xdp`] says so.
    pub xdp: Drivers,
    /// Interfaces whose XDP program will be the guard's, which goes on with
    /// [`SpliceObject::xdp_program`].
    pub guarded: Vec<String>,
    /// Which interfaces may have them.
    pub selection: Selection,
    /// How the programs are attached to interfaces, if not in the best way that the kernel has.
    pub attachment: Option<Attachment>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 65_536,
            counters: 32_768,
            xdp: Drivers::None,
            guarded: Vec::new(),
            selection: Selection::default(),
            attachment: None,
        }
    }
}

/// The loaded programs and their maps, shared by all threads. Dropping it takes them off the
/// interfaces.
pub struct SpliceObject {
    flows: OwnedFd,
    events: OwnedFd,
    command: OwnedFd,
    conns: Mapping<layout::ConnEntry>,
    in_flight: Arc<CounterMemory>,
    used: IndexPool,
    /// Entries of closed connections, by when they are looked at again.
    closed: Mutex<Closed>,
    /// A firewall keeps resets from peers on this host.
    loses_local_resets: AtomicBool,
    /// The program in drivers, if it is wanted and the kernel takes it.
    xdp: Option<Result<Xdp, String>>,
    attachments: Attachments,
}

/// See [`SpliceObject::closed`]: by time and index, the flow and when it ends at the latest.
type Closed = BTreeMap<(Instant, u32), (Flow, Instant)>;

impl std::fmt::Debug for SpliceObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpliceObject")
            .field("in_use", &self.used.in_use())
            .field("attached", &self.attached())
            .finish_non_exhaustive()
    }
}

impl SpliceObject {
    /// Loads the programs and puts them on the interfaces of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses, the process lacks capabilities, or no interface can be had.
    pub fn load(options: &Options) -> Result<Arc<Self>, LoadError> {
        Self::load_with(options, ECN).map_err(|error| match error {
            LoadError::Refused { what, error } => {
                let release = host::release();
                let untested = match host::splice_is_tested(&release) {
                    true => String::new(),
                    false => format!(
                        " (Linux {release} is older than 6.12, the oldest on which the splice \
                         engine is tested)"
                    ),
                };
                LoadError::Refused { what, error: error + &untested }
            }
            other => other,
        })
    }

    /// As [`SpliceObject::load`], with another member of `tcp_sock` that says whether ECN is accurate.
    pub(crate) fn load_with(options: &Options, ecn: &str) -> Result<Arc<Self>, LoadError> {
        let object = object::object().ok_or(LoadError::NotBuilt)?;
        let missing = host::missing_capabilities();
        if !missing.is_empty() {
            return Err(LoadError::Permission(missing.join(", ")));
        }
        let [snd_wnd, mss_clamp, early, ecn_flags] = offsets(ecn)?;
        // Other gateways on this host have other marks. The lowest ten bits tell packets apart.
        let mark = fastrand::u32(1..1 << 22) << 10;
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("FLOWS", options.connections)
            .map_max_entries("CONNS", options.connections)
            .map_max_entries("IN_FLIGHT", options.counters)
            .override_global("MARK", &mark, true)
            .override_global("SND_WND_OFFSET", &snd_wnd, true)
            .override_global("MSS_CLAMP_OFFSET", &mss_clamp, true)
            .override_global("XDP", &u32::from(options.xdp.any()), true)
            .override_global("OUT_OF_ORDER_OFFSET", &early, true)
            .override_global("ECN_FLAGS_OFFSET", &ecn_flags, true)
            .load(object)
            .map_err(|error| refused_load(&error))?;
        for name in [
            "atalho_splice_ingress",
            "atalho_splice_egress",
            "atalho_splice_icmp_error",
            "atalho_splice_command",
        ] {
            let program = classifier(&mut ebpf, name)?;
            program.load().map_err(|error| refused("loading the program", &error))?;
        }
        let xdp = options.xdp;
        let xdp = xdp.any().then(|| Xdp::load(&mut ebpf, xdp, &options.guarded));
        let command = attachments::program(&mut ebpf, "atalho_splice_command")
            .map_err(LoadError::refused("duplicating a program's descriptor"))?;
        let fd = |name: &'static str| -> Result<OwnedFd, LoadError> {
            let map = ebpf.map(name).and_then(map_fd).ok_or(LoadError::Refused {
                what: "the embedded object is of another version, and lacks the map",
                error: name.to_owned(),
            })?;
            map.try_clone_to_owned().map_err(LoadError::refused("duplicating a map's descriptor"))
        };
        let (conns, in_flight) = (fd("CONNS")?, fd("IN_FLIGHT")?);
        let (flows, events) = (fd("FLOWS")?, fd("SPLICE_EVENTS")?);
        let attachments = Attachments::attach(ebpf, options.attachment, options.selection.clone())
            .map_err(LoadError::refused("attaching the programs"))?;
        if attachments.attached().is_empty() {
            let skipped = attachments
                .skipped()
                .into_iter()
                .map(|Skipped { name, why, .. }| format!("{name}: {why}"));
            return Err(LoadError::Refused {
                what: "attaching the programs",
                error: skipped.collect::<Vec<_>>().join("; "),
            });
        }

        let mapping = || LoadError::refused("mapping an array's memory");
        // SAFETY: a connection consists of integers and atomics, for which any bytes are valid.
        let conns = unsafe { Mapping::new(&conns, options.connections, Access::Write) }
            .map_err(mapping())?;
        let in_flight = CounterMemory::of(in_flight, options.counters).map_err(mapping())?;
        Ok(Arc::new(Self {
            flows,
            events,
            command,
            conns,
            in_flight,
            used: IndexPool::new(options.connections),
            closed: Mutex::default(),
            loses_local_resets: AtomicBool::new(false),
            xdp,
            attachments,
        }))
    }

    /// The in-flight counters that the programs release.
    pub fn counters(&self) -> &Arc<CounterMemory> {
        &self.in_flight
    }

    /// Whether peers on this host may not hear of a reset by a socket whose numbers have moved: a self-test has
    /// found that a firewall drops it.
    pub fn loses_local_resets(&self) -> bool {
        self.loses_local_resets.load(Relaxed)
    }

    pub(crate) fn note_local_resets(&self, lost: bool) {
        self.loses_local_resets.store(lost, Relaxed);
    }

    /// The interfaces that have the programs.
    pub fn attached(&self) -> Vec<String> {
        self.attachments.attached()
    }

    /// The same, and why they were chosen.
    pub fn chosen(&self) -> Vec<(String, String)> {
        self.attachments.chosen()
    }

    /// Patterns of [`Selection::only`] that no interface fits now.
    pub fn unmatched(&self) -> Vec<String> {
        self.attachments.unmatched()
    }

    /// Takes the programs off loopback again, unless it was chosen: they were there for the self-tests.
    ///
    /// # Errors
    /// When the kernel does not tell which interfaces there are.
    pub fn end_self_tests(&self) -> io::Result<()> {
        self.attachments.leave_loopback()
    }

    /// Interfaces that do not have the programs, and why.
    pub fn skipped(&self) -> Vec<Skipped> {
        self.attachments.skipped()
    }

    /// The name of an interface that has the programs.
    pub(crate) fn name_of(&self, index: u32) -> Option<String> {
        self.attachments.name_of(index)
    }

    /// How the programs are attached.
    pub fn attachment(&self) -> Attachment {
        self.attachments.kind()
    }

    /// Tells when interfaces come, change or go: see [`SpliceObject::refresh`].
    pub(crate) fn news(&self) -> io::Result<News> {
        News::open()
    }

    /// Puts the programs on interfaces that have come.
    pub(crate) fn refresh(&self) -> io::Result<Changes> {
        let mut changes = self.attachments.refresh()?;
        if let Some(xdp) = self.xdp() {
            changes.drivers = xdp.refresh(&self.attachments.by_number());
        }
        Ok(changes)
    }

    fn xdp(&self) -> Option<&Xdp> {
        self.xdp.as_ref().and_then(|xdp| xdp.as_ref().ok())
    }

    /// Whether the program in drivers is wanted, and loaded.
    ///
    /// # Errors
    /// Why it could not be loaded.
    pub fn has_xdp(&self) -> Result<bool, &str> {
        match &self.xdp {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(why)) => Err(why),
        }
    }

    /// Forwards packets in the drivers that were asked for, from now on. Returns the interfaces that do,
    /// and those that refuse, with why.
    pub fn start_xdp(&self) -> Vec<(String, Result<(), String>)> {
        self.xdp().map(|xdp| xdp.start(&self.attachments.by_number())).unwrap_or_default()
    }

    /// Forwards packets in drivers no more: another process is to have them.
    pub fn end_xdp(&self) {
        if let Some(xdp) = self.xdp() {
            xdp.end();
        }
    }

    /// Tries drivers again that had another program.
    pub fn retry_xdp(&self) -> Vec<(String, Result<(), String>)> {
        self.xdp().map(Xdp::retry).unwrap_or_default()
    }

    /// On how many interfaces that is done, and on how many it is refused.
    pub fn xdp_interfaces(&self) -> (usize, usize) {
        self.xdp().map(Xdp::counts).unwrap_or_default()
    }

    /// What each interface that has a driver could do with XDP, and whether it could forward so.
    pub fn drivers(&self) -> Vec<(String, bool, String)> {
        let interfaces = self.attachments.by_number().into_iter();
        let described = |(index, name): (u32, String)| {
            let (good, said) = xdp::describe(index, &name)?;
            Some((name, good, said))
        };
        interfaces.filter_map(described).collect()
    }

    /// Runs the program in drivers on a frame: whether it redirects it, and what the frame has become.
    pub(crate) fn run_xdp(&self, frame: &[u8]) -> io::Result<(bool, Vec<u8>)> {
        const XDP_REDIRECT: u32 = 4;
        let xdp = self.xdp().ok_or(io::ErrorKind::NotFound)?;
        let (action, frame) = xdp.run(frame)?;
        Ok((action == XDP_REDIRECT, frame))
    }

    /// Lets frames be redirected to loopback, or no longer: for a self-test.
    pub(crate) fn allow_loopback(&self, allow: bool) -> io::Result<()> {
        self.xdp().ok_or(io::ErrorKind::NotFound)?.allow_loopback(allow)
    }

    /// The program that the guard is to go on with, if it has an interface on which packets are to be
    /// forwarded so.
    pub fn xdp_program(&self) -> Option<BorrowedFd<'_>> {
        self.xdp().and_then(Xdp::program)
    }

    /// Packets that were forwarded before they became socket buffers.
    pub fn forwarded_by_xdp(&self) -> u64 {
        self.xdp().map_or(0, Xdp::forwarded)
    }

    /// Connections that the programs know, closed ones included.
    pub fn in_use(&self) -> usize {
        self.used.in_use()
    }

    /// The in-flight counter in a slot.
    pub(crate) fn counter(&self, slot: u32) -> &AtomicU32 {
        self.in_flight.counter(slot)
    }

    /// Gives a worker thread its queue of events.
    pub(crate) fn open_events(&self, worker: u32) -> io::Result<RingBuf<MapData>> {
        events::open(&self.events, worker)
    }

    /// What the programs know of a connection.
    pub(crate) fn entry(&self, index: u32) -> Entry {
        // SAFETY: the element is mapped as long as `self` lives.
        unsafe { Entry::new(self.conns.element(index)) }
    }

    /// Makes a connection known to the programs, which see to it that the socket announces no more than
    /// `limit` bytes as its window, if it is not zero. Returns its index.
    ///
    /// # Errors
    /// When all entries are in use.
    pub(crate) fn register(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        info: &Info,
        worker: u32,
        connected: bool,
        limit: u32,
    ) -> io::Result<u32> {
        let flow = flow(local, remote);
        let now = Instant::now();
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        self.sweep(&mut closed, now);
        let index = self.used.take(now).ok_or(io::ErrorKind::StorageFull)?;
        let flags = if connected { flag::CONNECTED } else { 0 };
        self.entry(index).prepare(index, flow, flags, info, worker, limit);
        // A flow that is there already is that of a closed connection with the same addresses.
        sys::update(&self.flows, &flow, &index, Update::Any).inspect_err(|_| {
            self.used.give_back(index, now);
        })?;
        Ok(index)
    }

    /// Forgets a connection whose socket is closed; `waits` if packets may still be under way that
    /// need its offsets.
    pub(crate) fn forget(&self, index: u32, waits: bool) {
        let entry = self.entry(index);
        let now = Instant::now();
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if waits {
            let _ = self.command(&Command { what: ask::CLOSED, source: index, ..Self::nothing() });
            closed.insert(
                (now + CLOSED_ENTRY_CHECK_INTERVAL, index),
                (entry.flow(), now + MAX_CLOSED_ENTRY_AGE),
            );
        } else {
            self.remove(index, &entry.flow(), now);
        }
        self.sweep(&mut closed, now);
    }

    /// Removes the entries of closed connections whose sockets are gone.
    pub(crate) fn sweep_closed(&self) {
        if let Some(xdp) = self.xdp() {
            xdp.look();
        }
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        self.sweep(&mut closed, Instant::now());
    }

    /// Removes the entries of all closed connections, whose peers are known to need them no more.
    pub(crate) fn forget_closed(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for ((_, index), (flow, _)) in std::mem::take(&mut *closed) {
            self.remove(index, &flow, now);
        }
    }

    fn sweep(&self, closed: &mut Closed, now: Instant) {
        while let Some(first) = closed.first_entry()
            && first.key().0 <= now
        {
            let ((_, index), (flow, end)) = first.remove_entry();
            if self.entry(index).flags() & flag::ENDED != 0 || end <= now {
                self.remove(index, &flow, now);
            } else {
                closed.insert((now + CLOSED_ENTRY_CHECK_INTERVAL, index), (flow, end));
            }
        }
    }

    /// Removes an entry. The caller holds the lock of `closed`, so that no other connection takes the
    /// flow meanwhile.
    fn remove(&self, index: u32, flow: &Flow, now: Instant) {
        if sys::lookup::<_, u32>(&self.flows, flow).is_ok_and(|found| found == index) {
            let _ = sys::delete(&self.flows, flow);
        }
        self.used.give_back(index, now);
    }

    /// A command that does nothing, to be filled in.
    pub(crate) const fn nothing() -> Command {
        Command {
            ethernet: [0; 4],
            what: 0,
            source: 0,
            receiver: 0,
            h: 0,
            a: 0,
            generation: 0,
            length: 0,
            most: 0,
            ticket: 0,
            framing: router_ebpf::framing::Framing::none(),
        }
    }

    /// Lets the programs do something: one of [`answer`](layout::answer).
    ///
    /// # Errors
    /// When the kernel does not run the program, or a lock is held for longer than [`LOCK_PATIENCE`].
    pub(crate) fn command(&self, command: &Command) -> io::Result<u32> {
        let mut since = None;
        loop {
            match sys::test_run(&self.command, command)? {
                answer::LOCKED => {}
                answer => return Ok(answer),
            }
            // A pair that cannot be parted costs both connections: the holder's processor comes back before long.
            if since.get_or_insert_with(Instant::now).elapsed() > LOCK_PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }
}

/// The member of `tcp_sock` that says how a connection uses ECN.
const ECN: &str = "ecn_flags";

/// Of `snd_wnd`, `rx_opt.mss_clamp`, `out_of_order_queue` and what says of ECN in `struct tcp_sock`.
fn offsets(ecn: &str) -> Result<[u32; 4], LoadError> {
    let btf =
        Btf::of_kernel().map_err(|error| LoadError::NoTypes(format!("cannot be read: {error}")))?;
    let member = |structure, member| {
        btf.member_offset(structure, member)
            .ok_or_else(|| LoadError::NoTypes(format!("has no {structure}.{member}")))
    };
    let options = member("tcp_sock", "rx_opt")?;
    Ok([
        member("tcp_sock", "snd_wnd")?,
        options + member("tcp_options_received", "mss_clamp")?,
        member("tcp_sock", "out_of_order_queue")?,
        member("tcp_sock", ecn)?,
    ])
}

fn refused(what: &'static str, error: &ProgramError) -> LoadError {
    LoadError::Refused { what, error: with_sources(error) }
}

fn classifier<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Refused {
        what: "the embedded object is of another version, and lacks the program",
        error: name.to_owned(),
    })?;
    program.try_into().map_err(|error| refused("using the program", &error))
}

/// How the programs name a connection.
fn flow(local: SocketAddr, remote: SocketAddr) -> Flow {
    let address = |address: SocketAddr| {
        let octets = match address.ip().to_canonical() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        std::array::from_fn(|i| {
            u32::from_ne_bytes(octets[4 * i..4 * i + 4].try_into().expect("four bytes"))
        })
    };
    Flow {
        local: address(local),
        remote: address(remote),
        ports: [local.port().to_be(), remote.port().to_be()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_attaches() {
        for attachment in [None, Some(Attachment::Clsact)] {
            match SpliceObject::load(&Options {
                connections: 64,
                counters: 16,
                attachment,
                ..Options::default()
            }) {
                Ok(programs) => {
                    println!("{programs:?}, skipped {:?}", programs.skipped());
                    assert!(programs.attached().iter().any(|name| name == "lo"));
                }
                Err(error) => crate::testing::skip(error),
            }
        }
    }
}
