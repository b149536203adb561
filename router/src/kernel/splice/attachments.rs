//! Where the programs are attached: to interfaces, which come and go.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use aya::{
    Ebpf,
    maps::ProgramArray,
    programs::{
        SchedClassifier, TcAttachType,
        tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions},
    },
};

use super::{
    clsact,
    interfaces::{self, Interface},
    selection::Selection,
    xdp,
};
use crate::kernel::{load::with_sources, sys};

/// How programs are attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// By links of TCX, which belong to the process (since Linux 6.6).
    Tcx,
    /// As filters of the `clsact` queueing discipline.
    Clsact,
}

/// The programs that are filters, and where they are attached.
const HOOKS: [(&str, TcAttachType, u16); 2] = [
    // After all others, and before them.
    ("atalho_splice_ingress_hook", TcAttachType::Ingress, u16::MAX - 1),
    ("atalho_splice_egress_hook", TcAttachType::Egress, 1),
];

/// Descriptors that are reserved for the links of interfaces that come later: one interface needs two.
///
/// When a process is killed, its descriptors are closed from the highest to the lowest. Where the links
/// have lower ones than the sockets, the resets of these still meet the programs.
const RESERVED_DESCRIPTORS: usize = 64;

/// The programs, and the interfaces that have them.
#[derive(Debug)]
pub(super) struct Attachments {
    ingress: OwnedFd,
    egress: OwnedFd,
    kind: Attachment,
    selection: Selection,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By number: the interface's name, and what holds the programs there.
    attached: BTreeMap<u32, (String, [Link; 2])>,
    /// The others, and why.
    skipped: BTreeMap<u32, Skipped>,
    /// Loopback has the programs in any case: self-tests need it.
    tests: bool,
    /// Low descriptors that hold nothing.
    reserved: Vec<OwnedFd>,
    /// Holds all programs and their maps; dropped after what needs them.
    ebpf: Ebpf,
}

/// What holds a program at an interface, until dropped.
#[derive(Debug)]
enum Link {
    Link(OwnedFd),
    Filter { _filter: SchedClassifierLink },
}

/// An interface that does not have the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why not.
    pub why: String,
    /// Whether the operator wants it so.
    pub wanted: bool,
}

/// Loopback's name, in every network namespace.
const LOOPBACK: &str = "lo";

/// What [`Attachments::refresh`] found.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Interfaces that have the programs since, and why.
    pub(crate) came: Vec<(String, String)>,
    /// Those that had them, and are gone, have become ports, or are called otherwise now.
    pub(crate) went: Vec<String>,
    /// Those that are left out since, and why.
    pub(crate) skipped: Vec<Skipped>,
    /// Those whose drivers forward since, or why they do not.
    pub(crate) drivers: xdp::News,
}

impl Attachments {
    /// Puts the programs on the interfaces that there are: as `kind` says, or the best that the
    /// kernel has.
    pub(super) fn attach(
        mut ebpf: Ebpf,
        kind: Option<Attachment>,
        selection: Selection,
    ) -> io::Result<Self> {
        let [ingress, egress] =
            ["atalho_splice_ingress", "atalho_splice_egress"].map(|name| program(&mut ebpf, name));
        let (ingress, egress) = (ingress?, egress?);
        let kind = match kind {
            Some(kind) => kind,
            None if has_tcx(&ingress)? => Attachment::Tcx,
            None => Attachment::Clsact,
        };
        set_tail_call(&mut ebpf, 2, "atalho_splice_icmp_error")?;
        if kind == Attachment::Clsact {
            // As long as this process is there.
            set_tail_call(&mut ebpf, 0, "atalho_splice_ingress")?;
            set_tail_call(&mut ebpf, 1, "atalho_splice_egress")?;
            for (name, ..) in HOOKS {
                let program = classifier(&mut ebpf, name)?;
                program.load().map_err(|error| io::Error::other(with_sources(&error)))?;
            }
        }
        let (attached, skipped, reserved) = Default::default();
        let state = Mutex::new(State { attached, skipped, tests: true, reserved, ebpf });
        let attachments = Self { ingress, egress, kind, selection, state };
        attachments.refresh()?;
        if kind == Attachment::Tcx {
            let reserved: io::Result<Vec<_>> =
                (0..RESERVED_DESCRIPTORS).map(|_| attachments.ingress.try_clone()).collect();
            attachments.state().reserved = reserved?;
        }
        Ok(attachments)
    }

    /// How the programs are attached.
    pub(super) fn kind(&self) -> Attachment {
        self.kind
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the interfaces that there are now.
    pub(super) fn refresh(&self) -> io::Result<Changes> {
        let mut state = self.state();
        let all = interfaces::all()?;
        let mut changes = Changes::default();
        let gone = |index: &u32| match all.iter().find(|one| one.index == *index) {
            None => true,
            Some(one) => one.is_port(&all) || self.refuses(&state, &one.name).is_some(),
        };
        let went: Vec<u32> = state.attached.keys().copied().filter(gone).collect();
        for index in went {
            if let Some((name, links)) = state.attached.remove(&index) {
                changes.went.push(name);
                for link in links {
                    state.reserve(link, &self.ingress);
                }
            }
        }
        state.skipped.retain(|index, _| all.iter().any(|one| one.index == *index));
        for interface in &all {
            if let Some((name, _)) = state.attached.get_mut(&interface.index) {
                name.clone_from(&interface.name);
                continue;
            }
            let shared = interface.shares_with(|index| state.attached.contains_key(&index));
            let unfit = interface.unfit(&all).or(shared.then(|| "it shares packets".to_owned()));
            let refused = self.refuses(&state, &interface.name);
            let wanted = refused.is_some();
            let why = match refused.or(unfit) {
                Some(why) => why,
                None => match self.attach_to(interface, &mut state) {
                    Ok(()) => {
                        state.skipped.remove(&interface.index);
                        let why = self.selection.reason(&interface.name);
                        changes.came.push((interface.name.clone(), why));
                        continue;
                    }
                    // Gone since.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                    Err(error) => error.to_string(),
                },
            };
            let said = Skipped { name: interface.name.clone(), why, wanted };
            match state.skipped.entry(interface.index) {
                Entry::Occupied(mut known) => {
                    if *known.get() != said {
                        known.insert(said.clone());
                        changes.skipped.push(said);
                    }
                }
                Entry::Vacant(new) => {
                    new.insert(said.clone());
                    changes.skipped.push(said);
                }
            }
        }
        Ok(changes)
    }

    /// Why the operator does not want the programs on an interface, if so.
    fn refuses(&self, state: &State, name: &str) -> Option<String> {
        if state.tests && name == LOOPBACK { None } else { self.selection.refuses(name) }
    }

    /// Takes the programs off loopback, unless it was chosen.
    pub(super) fn leave_loopback(&self) -> io::Result<()> {
        self.state().tests = false;
        self.refresh().map(drop)
    }

    /// Interfaces that have the programs, and why.
    pub(super) fn chosen(&self) -> Vec<(String, String)> {
        let why = |name: String| match self.selection.refuses(&name) {
            Some(_) => (name, "for the self-test alone".to_owned()),
            None => (name.clone(), self.selection.reason(&name)),
        };
        self.attached().into_iter().map(why).collect()
    }

    /// Patterns of [`Selection::only`] that no interface fits now.
    pub(super) fn unmatched(&self) -> Vec<String> {
        let state = self.state();
        let attached = state.attached.values().map(|(name, _)| &**name);
        let skipped = state.skipped.values().map(|skipped| &*skipped.name);
        self.selection.unmatched(attached.chain(skipped))
    }

    /// At ingress behind what is there, at egress before it: ours is the nearest to the sockets, and the
    /// others see the numbers of the wire on both ways.
    fn attach_to(&self, interface: &Interface, state: &mut State) -> io::Result<()> {
        let links = if self.kind == Attachment::Tcx {
            let egress = sys::attach_tcx(&self.egress, interface.index, sys::Hook::EgressFirst)?;
            let ingress = sys::attach_tcx(&self.ingress, interface.index, sys::Hook::IngressLast)?;
            [state.link_low(egress), state.link_low(ingress)]
        } else {
            // It may be there.
            let _ = tc::qdisc_add_clsact(&interface.name);
            clsact::remove_dead_hooks(interface.index)?;
            let [ingress, egress] = HOOKS;
            [state.filter(egress, interface)?, state.filter(ingress, interface)?]
        };
        state.attached.insert(interface.index, (interface.name.clone(), links));
        Ok(())
    }

    /// The interfaces that have the programs.
    pub(super) fn attached(&self) -> Vec<String> {
        self.state().attached.values().map(|(name, _)| name.clone()).collect()
    }

    /// The same, by number.
    pub(super) fn by_number(&self) -> BTreeMap<u32, String> {
        self.state().attached.iter().map(|(index, (name, _))| (*index, name.clone())).collect()
    }

    /// The name of one of them.
    pub(super) fn name_of(&self, index: u32) -> Option<String> {
        self.state().attached.get(&index).map(|(name, _)| name.clone())
    }

    /// Those that do not, and why.
    pub(super) fn skipped(&self) -> Vec<Skipped> {
        self.state().skipped.values().cloned().collect()
    }
}

impl State {
    /// Moves a descriptor to a low number, if there is one left.
    fn link_low(&mut self, fd: OwnedFd) -> Link {
        if let Some(reserved) = self.reserved.pop() {
            // SAFETY: both are ours; what `reserved` was is closed, and it names the link from then on.
            let rc = unsafe { libc::dup3(fd.as_raw_fd(), reserved.as_raw_fd(), libc::O_CLOEXEC) };
            if rc >= 0 {
                return Link::Link(reserved);
            }
            self.reserved.push(reserved);
        }
        Link::Link(fd)
    }

    fn filter(
        &mut self,
        (name, kind, priority): (&str, TcAttachType, u16),
        interface: &Interface,
    ) -> io::Result<Link> {
        let program = classifier(&mut self.ebpf, name)?;
        let options = NlOptions { priority, ..NlOptions::default() };
        program
            .attach_with_options(&interface.name, kind, TcAttachOptions::Netlink(options))
            .and_then(|link| program.take_link(link))
            .map(|filter| Link::Filter { _filter: filter })
            .map_err(|error| io::Error::other(with_sources(&error)))
    }

    /// Closes a link, and keeps its number.
    fn reserve(&mut self, link: Link, filler: &impl AsFd) {
        let Link::Link(fd) = link else { return };
        // SAFETY: both are ours; what `fd` was is closed.
        let rc = unsafe { libc::dup3(filler.as_fd().as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) };
        if rc >= 0 && self.reserved.len() < RESERVED_DESCRIPTORS {
            self.reserved.push(fd);
        }
    }
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> io::Result<&'a mut SchedClassifier> {
    let program = ebpf.program_mut(name);
    program.ok_or(io::ErrorKind::NotFound)?.try_into().map_err(io::Error::other)
}

/// A program's descriptor.
pub(super) fn program(ebpf: &mut Ebpf, name: &str) -> io::Result<OwnedFd> {
    let program = classifier(ebpf, name)?;
    program.fd().map_err(io::Error::other)?.as_fd().try_clone_to_owned()
}

/// Whether the kernel attaches programs to interfaces by links.
fn has_tcx(program: &OwnedFd) -> io::Result<bool> {
    /// Nobody's interface: a kernel that knows such links looks for it.
    const NONE: u32 = i32::MAX as u32;
    match sys::attach_tcx(program, NONE, sys::Hook::IngressLast) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Lets other programs call one by its number.
fn set_tail_call(ebpf: &mut Ebpf, index: u32, name: &str) -> io::Result<()> {
    let program = classifier(ebpf, name)?.fd().and_then(|fd| Ok(fd.try_clone()?));
    let program = program.map_err(io::Error::other)?;
    let hooks = ebpf.map_mut("HOOKS").ok_or(io::ErrorKind::NotFound)?;
    let mut hooks = ProgramArray::try_from(hooks).map_err(io::Error::other)?;
    hooks.set(index, &program, 0).map_err(io::Error::other)
}
