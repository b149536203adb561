//! The splice engine's program in drivers, where they have it.
//!
//! It is loaded first, proven ([`selftest::splice_xdp`](crate::engine::selftest::splice_xdp)), and only then
//! put on interfaces.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray},
    programs,
};

use super::{
    netdev::{self, Netdev},
    sys::{self, Update},
};
use crate::kernel::load::{map_fd, with_sources};

/// Between two looks at what interfaces can do.
const FEATURE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

const PROGRAM: &str = "atalho_splice_xdp";

/// Drivers on which forwarding so was measured to be better than by `tc`, whatever the traffic. Not so veth:
/// see docs/splice.md. No network card has been measured.
const MEASURED_DRIVERS: [&str; 0] = [];

/// Where packets are to be forwarded before they become socket buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drivers {
    /// Nowhere.
    #[default]
    None,
    /// In drivers on which it was measured to be better.
    Measured,
    /// In all that can.
    All,
}

impl Drivers {
    /// Whether any interface could be meant.
    pub(super) const fn any(self) -> bool {
        match self {
            Self::None => false,
            Self::Measured => !MEASURED_DRIVERS.is_empty(),
            Self::All => true,
        }
    }

    fn contain(self, driver: &str) -> bool {
        match self {
            Self::None => false,
            Self::Measured => MEASURED_DRIVERS.contains(&driver),
            Self::All => true,
        }
    }
}

/// The loaded program.
pub(super) struct Xdp {
    program: OwnedFd,
    forwarded: PerCpuArray<MapData, u64>,
    targets: OwnedFd,
    drivers: Drivers,
    /// Interfaces that have the guard.
    guarded: Vec<String>,
    state: Mutex<State>,
}

/// What interfaces can do changes: another program comes or goes, offloads are turned on or off.
struct State {
    netdev: Netdev,
    /// By number.
    interfaces: BTreeMap<u32, Interface>,
    /// The program goes on interfaces.
    started: bool,
    /// Packets of the self-test.
    tested: u64,
    next: Instant,
}

struct Interface {
    name: String,
    runs: Runs,
    /// Frames may be redirected there.
    target: bool,
}

/// Whether an interface runs the program.
enum Runs {
    /// It is not meant to.
    No,
    /// Until dropped.
    Yes { _link: OwnedFd },
    /// Behind the guard.
    Guarded,
    /// The kernel or the driver refuses.
    Refused(String),
}

/// What [`Xdp::refresh`] found: interfaces that run the program since, or why not.
pub(crate) type News = Vec<(String, Result<(), String>)>;

impl Xdp {
    /// Loads the program.
    pub(super) fn load(
        ebpf: &mut Ebpf,
        drivers: Drivers,
        guarded: &[String],
    ) -> Result<Self, String> {
        let netdev = Netdev::open().map_err(|error| format!("asking for features: {error}"))?;
        let forwarded = ebpf.take_map("XDP_FORWARDED").ok_or("the object lacks a map")?;
        let forwarded = PerCpuArray::try_from(forwarded).map_err(|error| error.to_string())?;
        let targets = ebpf.map("XDP_TARGETS").and_then(map_fd).ok_or("the object lacks a map")?;
        let targets = targets.try_clone_to_owned().map_err(|error| error.to_string())?;
        let program: &mut programs::Xdp = ebpf
            .program_mut(PROGRAM)
            .and_then(|program| program.try_into().ok())
            .ok_or("the object lacks the program")?;
        program.load().map_err(|error| with_sources(&error))?;
        let program = program.fd().and_then(|fd| Ok(fd.as_fd().try_clone_to_owned()?));
        let program = program.map_err(|error| error.to_string())?;
        let state = State {
            netdev,
            interfaces: BTreeMap::new(),
            started: false,
            tested: 0,
            next: Instant::now(),
        };
        let (guarded, state) = (guarded.to_vec(), Mutex::new(state));
        Ok(Self { program, forwarded, targets, drivers, guarded, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the program once on a frame: its verdict, and what the frame has become.
    pub(super) fn run(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        sys::test_run_frame(&self.program, frame)
    }

    /// Takes loopback for an interface that frames may be redirected to, for the self-test.
    pub(super) fn allow_loopback(&self, allow: bool) -> io::Result<()> {
        let index = netdev::index("lo")?;
        if allow {
            sys::update(&self.targets, &index, &1u32, Update::Any)
        } else {
            sys::delete(&self.targets, &index)
        }
    }

    /// Puts the program on interfaces from now on. What has been forwarded so far does not count.
    pub(super) fn start(&self, interfaces: &BTreeMap<u32, String>) -> News {
        let tested = self.counted();
        let mut state = self.state();
        state.started = true;
        state.tested = tested;
        drop(state);
        self.refresh(interfaces)
    }

    /// Takes the program off all interfaces, for good: packets go by the `tc` programs.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.started = false;
        for index in std::mem::take(&mut state.interfaces).into_keys() {
            let _ = sys::delete(&self.targets, &index);
        }
    }

    /// Tries interfaces again that refused the program, because they had another one.
    pub(super) fn retry(&self) -> News {
        let mut state = self.state();
        let refused = |(_, it): &(&u32, &mut Interface)| matches!(it.runs, Runs::Refused(_));
        let mut news = News::new();
        for (index, interface) in state.interfaces.iter_mut().filter(refused) {
            interface.runs = self.attach_to(*index, &interface.name);
            if let Runs::Yes { .. } = interface.runs {
                news.push((interface.name.clone(), Ok(())));
            }
        }
        news
    }

    /// Takes note of the interfaces that have the `tc` programs now, by number.
    pub(super) fn refresh(&self, interfaces: &BTreeMap<u32, String>) -> News {
        let mut state = self.state();
        let mut news = News::new();
        if !state.started {
            return news;
        }
        state.interfaces.retain(|index, _| {
            let stays = interfaces.contains_key(index);
            if !stays {
                let _ = sys::delete(&self.targets, index);
            }
            stays
        });
        for (&index, name) in interfaces {
            if let Some(known) = state.interfaces.get_mut(&index) {
                known.name.clone_from(name);
                continue;
            }
            let runs = self.attach_to(index, name);
            match &runs {
                Runs::Yes { .. } => news.push((name.clone(), Ok(()))),
                Runs::Refused(why) => news.push((name.clone(), Err(why.clone()))),
                Runs::No | Runs::Guarded => {}
            }
            let interface = Interface { name: name.clone(), runs, target: false };
            state.interfaces.insert(index, interface);
            state.next = Instant::now();
        }
        drop(state);
        self.look();
        news
    }

    fn attach_to(&self, index: u32, name: &str) -> Runs {
        // Loopback has none.
        let Ok(driver) = netdev::driver(name) else { return Runs::No };
        if !self.drivers.contain(&driver) {
            return Runs::No;
        }
        if self.guarded.iter().any(|guarded| guarded == name) {
            return Runs::Guarded;
        }
        match sys::attach_xdp(&self.program, index) {
            Ok(link) => Runs::Yes { _link: link },
            Err(error) => Runs::Refused(error.to_string()),
        }
    }

    /// The interfaces that run the program, but for the guard's, and those that should.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        let count = |which: fn(&Runs) -> bool| {
            state.interfaces.values().filter(|interface| which(&interface.runs)).count()
        };
        (
            count(|runs| matches!(runs, Runs::Yes { .. })),
            count(|runs| matches!(runs, Runs::Refused(_))),
        )
    }

    /// The program, if the guard is to go on with it.
    pub(super) fn program(&self) -> Option<BorrowedFd<'_>> {
        let state = self.state();
        let guarded = state.interfaces.values().any(|one| matches!(one.runs, Runs::Guarded));
        guarded.then(|| self.program.as_fd())
    }

    /// Packets forwarded.
    pub(super) fn forwarded(&self) -> u64 {
        self.counted().saturating_sub(self.state().tested)
    }

    fn counted(&self) -> u64 {
        self.forwarded.get(&0, 0).map_or(0, |counts| counts.iter().sum())
    }

    /// Looks where frames may be redirected to now.
    pub(super) fn look(&self) {
        let mut state = self.state();
        let now = Instant::now();
        if state.next > now || !state.started {
            return;
        }
        state.next = now + FEATURE_CHECK_INTERVAL;
        let State { netdev, interfaces, .. } = &mut *state;
        for (index, interface) in interfaces {
            let can = netdev.features(*index).is_ok_and(|features| features.takes_redirected());
            if can != interface.target {
                let done = if can {
                    sys::update(&self.targets, index, &1u32, Update::Any)
                } else {
                    sys::delete(&self.targets, index)
                };
                interface.target = if done.is_ok() { can } else { interface.target };
            }
        }
    }
}

/// What an interface could do, for people: `None` when it has no driver.
pub(super) fn describe(index: u32, name: &str) -> Option<(bool, String)> {
    let driver = netdev::driver(name).ok()?;
    let features = match Netdev::open().and_then(|netdev| netdev.features(index)) {
        Ok(features) => features,
        Err(error) => {
            return Some((false, format!("XDP ({driver}): asking for features: {error}")));
        }
    };
    let good = features.forwards();
    let how = match (good, features.takes_redirected()) {
        (true, true) => "forwards frames, and takes them",
        (true, false) => "forwards frames, and takes none now",
        (false, true) => "takes frames only",
        (false, false) => "has no native XDP that forwards",
    };
    let auto = if MEASURED_DRIVERS.contains(&&*driver) {
        ""
    } else {
        "; not measured: `auto` leaves it out"
    };
    Some((good, format!("XDP ({driver}): {how}{auto}")))
}
