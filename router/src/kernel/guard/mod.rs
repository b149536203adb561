//! The guard: an XDP program that drops packets to the gateway's ports by their source.
//!
//! It is independent of the engines: loaded only when interfaces are configured, and gone with the
//! [`Guard`] or the process, however that ends, because its links are file descriptors.

mod error;
mod lists;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, BorrowedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, ArrayOfMaps, HashMap, LpmTrie, MapData, PerCpuArray, lpm_trie::Key},
    programs::{Xdp, XdpMode, links::FdLink},
};
use ipnet::IpNet;
use router_ebpf::guard_rules::{
    Family, KEY, Limit, PORT_WORDS, key_any, key_v4, key_v6, port_bit, verdict,
};

pub use error::GuardError;

/// Sources whose connections are counted at a time; each takes about 100 bytes of kernel memory.
/// Beyond that, the longest quiet one is forgotten.
const BUCKETS: u32 = 65_536;
/// With multi-buffer support (Linux 5.18), and without.
const PROGRAMS: [&str; 2] = ["atalho_guard_frags", "atalho_guard"];

/// `BPF_F_NO_PREALLOC` of linux/bpf.h, which tries must have.
const NO_PREALLOC: u32 = 1;

type Lists = LpmTrie<MapData, [u8; KEY], u32>;

/// Where an interface runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if it can, else generic.
    Auto,
    /// In the driver, before the packet becomes a socket buffer.
    Native,
    /// In the network stack; works everywhere, and is slower.
    Generic,
}

impl Mode {
    /// The name as in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }

    const fn tries(self) -> &'static [Self] {
        match self {
            Self::Auto => &[Self::Native, Self::Generic],
            Self::Native => &[Self::Native],
            Self::Generic => &[Self::Generic],
        }
    }
}

/// Whom the guard lets through. Can be replaced at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// When not empty, only these sources pass; of an address family that it does not name, none.
    pub allow: Vec<IpNet>,
    /// These sources do not pass, also when `allow` has them.
    pub deny: Vec<IpNet>,
    /// New connections per source, an IPv4 address or an IPv6 /64.
    pub limit: Option<Limit>,
}

/// An interface with the guard on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The interface's name.
    pub interface: String,
    /// Native or generic.
    pub mode: Mode,
    /// Why it is not native, if that was tried.
    pub fallback: Option<String>,
}

/// Packets to the gateway's ports since the start, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Let through.
    pub passed: u64,
    /// Dropped: the source is on the deny list.
    pub denied: u64,
    /// Dropped: the source is not on the allow list.
    pub not_allowed: u64,
    /// Dropped: new connections beyond the limit.
    pub rate_limited: u64,
    /// Let through unjudged, whatever their port: malformed IP, or TCP fragments without ports.
    pub unparsed: u64,
}

impl Counters {
    /// The counters with their names.
    pub const fn by_rule(&self) -> [(&'static str, u64); verdict::COUNT as usize] {
        [
            ("passed", self.passed),
            ("denied", self.denied),
            ("not_allowed", self.not_allowed),
            ("rate_limited", self.rate_limited),
            ("unparsed", self.unparsed),
        ]
    }
}

/// The guard at work. Dropping it takes the program off the interfaces.
pub struct Guard {
    // First, so that the program is off the interfaces before its maps are closed.
    _links: Vec<FdLink>,
    attached: Vec<Attached>,
    loaded: Loaded,
}

impl Guard {
    /// Puts the guard on `interfaces` of the calling thread's network namespace, for TCP to
    /// `listeners`.
    ///
    /// # Errors
    /// As those of [`load`](Self::load) and [`attach`](Self::attach).
    pub fn start(
        interfaces: &[String],
        mode: Mode,
        listeners: &[SocketAddr],
        rules: &Rules,
    ) -> Result<Self, GuardError> {
        let mut guard = Self::load(listeners, rules)?;
        guard.attach(interfaces, mode)?;
        Ok(guard)
    }

    /// Makes a guard for TCP to `listeners` that is on no interface yet.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load(listeners: &[SocketAddr], rules: &Rules) -> Result<Self, GuardError> {
        let loaded = Loaded::load(listeners, rules)?;
        Ok(Self { _links: Vec::new(), attached: Vec::new(), loaded })
    }

    /// Puts it on `interfaces` of the calling thread's network namespace.
    ///
    /// # Errors
    /// When an interface is missing or has another XDP program.
    pub fn attach(&mut self, interfaces: &[String], mode: Mode) -> Result<(), GuardError> {
        for interface in interfaces {
            let (link, on) = self.loaded.attach(interface, mode)?;
            self._links.push(link);
            self.attached.push(on);
        }
        Ok(())
    }

    /// Lets another XDP program of this process have what the guard lets through.
    ///
    /// # Errors
    /// When the guard is not in the driver everywhere, or the kernel refuses.
    pub fn go_on_with(&mut self, next: BorrowedFd<'_>) -> Result<(), GuardError> {
        if let Some(on) = self.attached.iter().find(|on| on.mode != Mode::Native) {
            let error = "the guard is not in the driver".to_owned();
            return Err(GuardError::Attach {
                interface: on.interface.clone(),
                mode: on.mode,
                error,
            });
        }
        let map = self.loaded.ebpf.map("GUARD_NEXT").and_then(super::load::map_fd);
        let map = map.ok_or(GuardError::WrongObject("GUARD_NEXT"))?;
        let program = next.as_raw_fd() as u32;
        super::sys::update(&map, &0u32, &program, super::sys::Update::Any).map_err(GuardError::Next)
    }

    /// Replaces the rules. A packet is judged by the old lists or by the new ones, never by a part
    /// of either.
    ///
    /// # Errors
    /// When the kernel has no memory for the lists; the old ones stay then.
    pub fn replace(&mut self, rules: &Rules) -> Result<(), GuardError> {
        self.loaded.rules.replace(rules)
    }

    /// The interfaces that are guarded.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Packets so far.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn counters(&self) -> Result<Counters, GuardError> {
        self.loaded.counters()
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("attached", &self.attached).finish_non_exhaustive()
    }
}

/// The program and its maps.
struct Loaded {
    ebpf: Ebpf,
    program: &'static str,
    rules: RuleMaps,
    counters: PerCpuArray<MapData, u64>,
}

/// The maps that change at run time.
struct RuleMaps {
    lists: ArrayOfMaps<MapData, Lists>,
    limit: Array<MapData, u64>,
}

impl Loaded {
    fn load(listeners: &[SocketAddr], rules: &Rules) -> Result<Self, GuardError> {
        let object = super::object::object().ok_or(GuardError::NotBuilt)?;
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("GUARD_BUCKETS", BUCKETS)
            .load(object)
            .map_err(|error| GuardError::load(&error))?;
        let mut take = |name| ebpf.take_map(name).ok_or(GuardError::WrongObject(name));
        let mut ports: Array<_, u64> = take("GUARD_PORTS")?.try_into()?;
        let mut addresses: HashMap<_, [u8; KEY], u32> = take("GUARD_LISTENERS")?.try_into()?;
        let lists = take("GUARD_LISTS")?.try_into()?;
        let limit = take("GUARD_LIMIT")?.try_into()?;
        let counters = take("GUARD_COUNTERS")?.try_into()?;

        let mut bits = [0; PORT_WORDS as usize];
        for listener in listeners {
            let (index, bit) = port_bit(listener.port());
            bits[index as usize] |= bit;
            for key in keys(*listener) {
                addresses.insert(key, 1, 0)?;
            }
        }
        for (index, word) in (0..).zip(bits) {
            if word != 0 {
                ports.set(index, word, 0)?;
            }
        }

        let program = load_program(&mut ebpf)?;
        let mut maps = RuleMaps { lists, limit };
        maps.replace(rules)?;
        Ok(Self { ebpf, program, rules: maps, counters })
    }

    fn program(&mut self) -> Result<&mut Xdp, GuardError> {
        xdp(&mut self.ebpf, self.program)
    }

    fn attach(&mut self, interface: &str, wanted: Mode) -> Result<(FdLink, Attached), GuardError> {
        let program = self.program()?;
        let mut fallback = None;
        for &mode in wanted.tries() {
            let flags = if mode == Mode::Native { XdpMode::Driver } else { XdpMode::Skb };
            let id = match program.attach(interface, flags) {
                Ok(id) => id,
                Err(error) => match GuardError::attach(interface, mode, error) {
                    GuardError::Attach { error, .. }
                        if wanted == Mode::Auto && fallback.is_none() =>
                    {
                        fallback = Some(error);
                        continue;
                    }
                    error => return Err(error),
                },
            };
            let link = FdLink::try_from(program.take_link(id)?)
                .map_err(|_| GuardError::NoLink { interface: interface.to_owned() })?;
            return Ok((link, Attached { interface: interface.to_owned(), mode, fallback }));
        }
        unreachable!("the last mode to try returns")
    }

    fn counters(&self) -> Result<Counters, GuardError> {
        let sum = |verdict: u32| -> Result<u64, GuardError> {
            Ok(self.counters.get(&verdict, 0)?.iter().sum())
        };
        Ok(Counters {
            passed: sum(verdict::PASSED)?,
            denied: sum(verdict::DENIED)?,
            not_allowed: sum(verdict::NOT_ALLOWED)?,
            rate_limited: sum(verdict::RATE_LIMITED)?,
            unparsed: sum(verdict::UNPARSED)?,
        })
    }
}

impl RuleMaps {
    fn replace(&mut self, rules: &Rules) -> Result<(), GuardError> {
        let entries = lists::entries(&rules.allow, &rules.deny);
        let capacity = u32::try_from(entries.len()).unwrap_or(u32::MAX).max(1);
        let mut trie = Lists::create(capacity, NO_PREALLOC)?;
        for ((key, length), bits) in entries {
            trie.insert(&Key::new(length, key), bits, 0)?;
        }
        self.lists.set(0, &trie, 0)?;
        self.limit.set(0, rules.limit.map_or(0, Limit::to_word), 0)?;
        Ok(())
    }
}

/// What a listener answers. `[::]` answers IPv4 as well.
fn keys(listener: SocketAddr) -> Vec<[u8; KEY]> {
    let port = listener.port();
    match listener.ip().to_canonical() {
        IpAddr::V4(address) => vec![key_v4(address.octets(), port)],
        IpAddr::V6(address) if address.is_unspecified() => {
            vec![key_any(Family::V4, port), key_any(Family::V6, port)]
        }
        IpAddr::V6(address) => vec![key_v6(address.octets(), port)],
    }
}

/// Loads the best of [`PROGRAMS`] that this kernel takes.
fn load_program(ebpf: &mut Ebpf) -> Result<&'static str, GuardError> {
    let [best, plain] = PROGRAMS;
    if xdp(ebpf, best)?.load().is_ok() {
        return Ok(best);
    }
    xdp(ebpf, plain)?.load().map_err(|error| GuardError::load(&error))?;
    Ok(plain)
}

fn xdp<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, GuardError> {
    let program = ebpf.program_mut(name).ok_or(GuardError::WrongObject(name))?;
    program.try_into().map_err(|_| GuardError::WrongObject(name))
}
