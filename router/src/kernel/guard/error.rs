//! What can go wrong with the guard, in words that say what to do.

use std::{error::Error, io};

use aya::{
    maps::MapError,
    programs::{ProgramError, XdpError},
};

use super::{super::host::missing_capabilities, Mode};

/// Why there is no guard, or why its rules did not change.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The binary carries no eBPF object.
    #[error("guard: built without kernel programs; run `cargo xtask build`")]
    NotBuilt,
    /// The object lacks a program or map: it was built from other sources.
    #[error("guard: the eBPF object has no `{0}`; run `cargo xtask build` again")]
    WrongObject(&'static str),
    /// The process may not load programs.
    #[error("guard: not permitted to load an XDP program; run as root, or with {}", .0.join(", "))]
    NotPermitted(Vec<&'static str>),
    /// The kernel does not take the program.
    #[error("guard: the kernel refuses the XDP program (Linux 5.12 or newer is needed): {0}")]
    Load(String),
    /// There is no such interface.
    #[error("guard.interfaces: there is no network interface `{interface}` (see `ip link`)")]
    UnknownInterface {
        /// Its name.
        interface: String,
    },
    /// Another XDP program sits there.
    #[error(
        "guard.interfaces: `{interface}` already has an XDP program; leave the interface out, or \
         take that program off (`ip link show dev {interface}` tells its id)"
    )]
    Occupied {
        /// The interface's name.
        interface: String,
    },
    /// The interface does not take the program.
    #[error("guard: `{interface}` refuses the XDP program in {} mode: {error}", .mode.as_str())]
    Attach {
        /// The interface's name.
        interface: String,
        /// The mode that was tried.
        mode: Mode,
        /// What the kernel said.
        error: String,
    },
    /// The kernel attached the program in a way that would outlive the process.
    #[error(
        "guard: the kernel has no links for XDP on `{interface}` (Linux 5.9 or newer is needed)"
    )]
    NoLink {
        /// The interface's name.
        interface: String,
    },
    /// The kernel does not let another program follow.
    #[error("guard: the kernel lets no other XDP program follow: {0}")]
    Next(#[source] io::Error),
    /// A map cannot be read or written.
    #[error("guard: {0}")]
    Map(#[from] MapError),
    /// The loader refuses.
    #[error("guard: {0}")]
    Program(#[from] ProgramError),
}

impl GuardError {
    /// For a failure to create maps or to load the program.
    pub(super) fn load(error: &(dyn Error + 'static)) -> Self {
        // Without CAP_PERFMON it is the verifier that refuses.
        if let Some(error) = Self::not_permitted() {
            return error;
        }
        if let Some(ProgramError::LoadError { io_error, verifier_log }) = error.downcast_ref() {
            // The verdict is at the end of a long log.
            let log = verifier_log.to_string();
            let mut lines: Vec<&str> = log.lines().rev().take(3).collect();
            lines.reverse();
            return Self::Load(format!("{io_error}: {}", lines.join("; ")));
        }
        Self::Load(chain(error))
    }

    /// For a failure to attach the program.
    pub(super) fn attach(interface: &str, mode: Mode, error: ProgramError) -> Self {
        let interface = interface.to_owned();
        if matches!(error, ProgramError::UnknownInterface { .. }) {
            return Self::UnknownInterface { interface };
        }
        let code = match &error {
            ProgramError::XdpError(XdpError::NetlinkError(error)) => error.raw_os_error(),
            error => system_error(error),
        };
        match code {
            Some(libc::EBUSY | libc::EEXIST) => Self::Occupied { interface },
            _ => Self::not_permitted().unwrap_or_else(|| Self::Attach {
                interface,
                mode,
                error: chain(&error),
            }),
        }
    }

    fn not_permitted() -> Option<Self> {
        let missing = missing_capabilities();
        (!missing.is_empty()).then_some(Self::NotPermitted(missing))
    }
}

/// The system call's error at the bottom of `error`, if there is one.
fn system_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error();
        }
        next = error.source();
    }
    None
}

/// The error with its causes, unless it repeats them itself.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}
