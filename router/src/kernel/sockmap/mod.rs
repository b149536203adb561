//! The sockmap engine's program: loading it, and the memory shared with it. See docs/kernel.md.

mod direction;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, atomic::AtomicU32},
    time::Instant,
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{MapData, MapError, RingBuf},
    programs::{ProgramError, SkSkb},
};
use router_ebpf::layout;

pub(crate) use self::direction::{Body, Direction, Report};
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

/// How much the kernel programs may hold.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections that may be sources of bodies; each takes 128 bytes of kernel memory. A
    /// connection counts from its first hand-over until it closes.
    pub directions: u32,
    /// In-flight counters; each takes 64 bytes.
    pub counters: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { directions: 65_536, counters: 32_768 }
    }
}

/// The loaded programs and their maps, shared by all threads. Dropping it unloads them.
pub struct SockmapObject {
    // Holds the program, which is attached to the map of sources as long as that lives.
    ebpf: Mutex<Ebpf>,
    sources: OwnedFd,
    targets: OwnedFd,
    slots: OwnedFd,
    events: OwnedFd,
    directions: Mapping<layout::Direction>,
    in_flight: Arc<CounterMemory>,
    used: IndexPool,
}

impl std::fmt::Debug for SockmapObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SockmapObject").field("in_use", &self.used.in_use()).finish_non_exhaustive()
    }
}

impl SockmapObject {
    /// Loads the programs embedded in this binary.
    ///
    /// # Errors
    /// When the kernel is too old, the process lacks capabilities, or the binary has no object.
    pub fn load(options: &Options) -> Result<Arc<Self>, LoadError> {
        let object = object::object().ok_or(LoadError::NotBuilt)?;
        let release = host::release();
        if !host::sockmap_works(&release) {
            return Err(LoadError::TooOld(release));
        }
        let missing = host::missing_capabilities();
        if !missing.is_empty() {
            return Err(LoadError::Permission(missing.join(", ")));
        }
        let offsets = Offsets::of_kernel()?;

        let sockets = options.directions.saturating_mul(2);
        let verbose = tracing::enabled!(target: "atalho_ebpf", tracing::Level::DEBUG);
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("SOURCES", options.directions)
            .map_max_entries("TARGETS", sockets)
            .map_max_entries("SLOTS", options.directions)
            .map_max_entries("DIRECTIONS", options.directions)
            .map_max_entries("IN_FLIGHT", options.counters)
            .override_global("WRITE_SEQ_OFFSET", &offsets.write_seq, true)
            .override_global("COPIED_SEQ_OFFSET", &offsets.copied_seq, true)
            .override_global(aya_log::LEVEL, if verbose { &4u8 } else { &2u8 }, true)
            .load(object)
            .map_err(|error| refused_load(&error))?;
        attach(&mut ebpf)?;

        let fd = |name: &'static str| -> Result<OwnedFd, LoadError> {
            let map = ebpf.map(name).and_then(map_fd).ok_or(LoadError::Refused {
                what: "the embedded object is of another version, and lacks the map",
                error: name.to_owned(),
            })?;
            map.try_clone_to_owned().map_err(LoadError::refused("duplicating a map's descriptor"))
        };
        let (directions, in_flight) = (fd("DIRECTIONS")?, fd("IN_FLIGHT")?);
        let mapping = LoadError::refused("mapping an array's memory");
        // SAFETY: a direction consists of integers and atomics, for which any bytes are valid.
        let directions = unsafe { Mapping::new(&directions, options.directions, Access::Write) }
            .map_err(mapping)?;
        let mapping = LoadError::refused("mapping an array's memory");
        let in_flight = CounterMemory::of(in_flight, options.counters).map_err(mapping)?;
        Ok(Arc::new(Self {
            sources: fd("SOURCES")?,
            targets: fd("TARGETS")?,
            slots: fd("SLOTS")?,
            events: fd("EVENTS")?,
            directions,
            in_flight,
            used: IndexPool::new(options.directions),
            ebpf: Mutex::new(ebpf),
        }))
    }

    /// The in-flight counters that the programs release.
    pub fn counters(&self) -> &Arc<CounterMemory> {
        &self.in_flight
    }

    /// Connections that are sources of bodies, or have been and are still open.
    pub fn sources_in_use(&self) -> usize {
        self.used.in_use()
    }

    /// Passes the programs' own messages on to the log, for ever. Call it once, on any thread with
    /// an event loop.
    ///
    /// # Errors
    /// When it was called before, or the queue cannot be polled.
    pub async fn forward_messages(&self) -> io::Result<()> {
        let logger = {
            let mut ebpf = self.ebpf.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            aya_log::EbpfLogger::init(&mut ebpf).map_err(io::Error::other)?
        };
        // SAFETY: the logger owns an open descriptor for as long as it lives.
        let mut logger = unsafe {
            tokio::io::unix::AsyncFd::register_with_interest(logger, tokio::io::Interest::READABLE)
        }?;
        loop {
            let mut guard = logger.readable_mut().await?;
            guard.get_inner_mut().flush();
            guard.clear_ready();
        }
    }

    /// Gives a worker thread its queue of events.
    pub(crate) fn open_events(&self, worker: u32) -> io::Result<RingBuf<MapData>> {
        events::open(&self.events, worker)
    }

    /// A direction that the caller has taken; not to be used once this value is gone.
    pub(crate) fn direction(&self, index: u32) -> Direction {
        // SAFETY: the element is mapped as long as `self` lives, and is the caller's alone.
        unsafe { Direction::new(self.directions.element(index)) }
    }

    /// The in-flight counter in a slot.
    pub(crate) fn counter(&self, slot: u32) -> &AtomicU32 {
        self.in_flight.counter(slot)
    }

    /// A direction that is not in use.
    pub(crate) fn take_direction(&self) -> Option<u32> {
        self.used.take(Instant::now())
    }

    /// Lets the program see a socket's packets, and counts them in its direction's word from now on.
    ///
    /// # Errors
    /// `EOPNOTSUPP` when the connection is not (or no longer) established. The direction is then
    /// still the caller's.
    pub(crate) fn join_source(
        &self,
        cookie: u64,
        socket: BorrowedFd<'_>,
        direction: u32,
    ) -> io::Result<()> {
        sys::update(&self.slots, &cookie, &direction, Update::New)?;
        sys::insert_socket(&self.sources, cookie, socket, Update::New).inspect_err(|_| {
            let _ = sys::delete(&self.slots, &cookie);
        })
    }

    /// Makes the program pass all packets of a source, and returns its direction for others to use.
    pub(crate) fn leave_source(&self, cookie: u64, direction: u32) {
        // The socket itself leaves its map when it closes; taken out before, it could lose bytes.
        let _ = sys::delete(&self.slots, &cookie);
        self.used.give_back(direction, Instant::now());
    }

    /// Returns a direction whose source did not join.
    pub(crate) fn return_direction(&self, direction: u32) {
        self.used.give_back(direction, Instant::now());
    }

    /// Lets packets be redirected to a socket.
    ///
    /// # Errors
    /// `EOPNOTSUPP` when the connection is not (or no longer) established.
    pub(crate) fn join_target(&self, cookie: u64, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::insert_socket(&self.targets, cookie, socket, Update::New)
    }
}

/// Where the kernel's structures have what the program reads.
struct Offsets {
    write_seq: u32,
    copied_seq: u32,
}

impl Offsets {
    fn of_kernel() -> Result<Self, LoadError> {
        let btf = Btf::of_kernel()
            .map_err(|error| LoadError::NoTypes(format!("cannot be read: {error}")))?;
        let member = |structure, member| {
            btf.member_offset(structure, member)
                .ok_or_else(|| LoadError::NoTypes(format!("has no {structure}.{member}")))
        };
        // The program reads this one as the first word of the packet's control block.
        if member("tcp_skb_cb", "seq")? != 0 {
            return Err(LoadError::NoTypes("has tcp_skb_cb.seq elsewhere than expected".into()));
        }
        Ok(Self {
            write_seq: member("tcp_sock", "write_seq")?,
            copied_seq: member("tcp_sock", "copied_seq")?,
        })
    }
}

fn attach(ebpf: &mut Ebpf) -> Result<(), LoadError> {
    let refused = |what| move |error: String| LoadError::Refused { what, error };
    let sources = {
        let map = ebpf.map("SOURCES").ok_or_else(|| refused("finding a map")("SOURCES".into()))?;
        let map: aya::maps::SockHash<_, u64> = map
            .try_into()
            .map_err(|error: MapError| refused("using the map of sources")(error.to_string()))?;
        map.fd().try_clone().map_err(LoadError::refused("duplicating a map's descriptor"))?
    };
    let program: &mut SkSkb = ebpf
        .program_mut("atalho_verdict")
        .ok_or_else(|| refused("finding the program")("atalho_verdict".into()))?
        .try_into()
        .map_err(|error: ProgramError| refused("using the program")(error.to_string()))?;
    program.load().map_err(|error| refused("loading the program")(with_sources(&error)))?;
    program
        .attach(&sources)
        .map(|_| ())
        .map_err(|error| refused("attaching the program")(with_sources(&error)))
}
