//! The splice engine's program in drivers, where they have it.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray},
    programs::{self, XdpMode},
};
use router_ebpf::splice::layout::XDP_INTERFACES;

use super::{
    netdev::{self, Netdev},
    sys::{self, Update},
};
use crate::kernel::{map_fd, with_sources};

/// Between two looks at what interfaces can do.
const LOOK: Duration = Duration::from_secs(2);

const PROGRAM: &str = "atalho_splice_xdp";

/// The program at work.
pub(super) struct Attached {
    /// Interfaces that run it.
    pub(super) interfaces: Vec<String>,
    /// Those that should and do not, and why.
    pub(super) skipped: Vec<(String, String)>,
    /// For the guard to go on with, on the interfaces that it has.
    program: Option<OwnedFd>,
    forwarded: PerCpuArray<MapData, u64>,
    targets: OwnedFd,
    watch: Mutex<Watch>,
}

/// What interfaces can do changes: another program comes or goes, offloads are turned on or off.
struct Watch {
    netdev: Netdev,
    /// Numbers of the interfaces, and whether frames may be redirected there.
    interfaces: Vec<(u32, bool)>,
    next: Instant,
}

impl Attached {
    /// Loads the program and puts it on `wanted`, but for those that are `guarded`.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        all: &[String],
        wanted: &[String],
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
        let fd = program.fd().and_then(|fd| Ok(fd.as_fd().try_clone_to_owned()?));
        let fd = fd.map_err(|error| error.to_string())?;
        let (mut interfaces, mut skipped) = (Vec::new(), Vec::new());
        for interface in wanted {
            if guarded.contains(interface) {
                continue;
            }
            match program.attach(interface, XdpMode::Driver) {
                Ok(_) => interfaces.push(interface.clone()),
                Err(error) => skipped.push((interface.clone(), with_sources(&error))),
            }
        }
        let chained = wanted.iter().any(|interface| guarded.contains(interface));
        let numbers = all.iter().filter_map(|name| netdev::index(name).ok());
        let numbers = numbers.take(XDP_INTERFACES as usize).map(|index| (index, false)).collect();
        let watch = Watch { netdev, interfaces: numbers, next: Instant::now() };
        let attached = Self {
            interfaces,
            skipped,
            program: chained.then_some(fd),
            forwarded,
            targets,
            watch: Mutex::new(watch),
        };
        attached.look();
        Ok(attached)
    }

    /// The program, if the guard is to go on with it.
    pub(super) fn program(&self) -> Option<BorrowedFd<'_>> {
        self.program.as_ref().map(AsFd::as_fd)
    }

    /// Packets forwarded.
    pub(super) fn forwarded(&self) -> u64 {
        self.forwarded.get(&0, 0).map_or(0, |counts| counts.iter().sum())
    }

    /// Looks where frames may be redirected to now.
    pub(super) fn look(&self) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if watch.next > now {
            return;
        }
        watch.next = now + LOOK;
        let Watch { netdev, interfaces, .. } = &mut *watch;
        for (index, is) in interfaces {
            let can = netdev.is_target(*index).unwrap_or(false);
            if can != *is {
                let done = if can {
                    sys::update(&self.targets, index, &1u32, Update::Any)
                } else {
                    sys::delete(&self.targets, index)
                };
                *is = if done.is_ok() { can } else { *is };
            }
        }
    }
}
