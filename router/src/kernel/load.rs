//! Why programs could not be loaded, and what their loaders share.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use aya::{EbpfError, maps::Map};

/// Why the kernel programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The binary carries no eBPF object.
    #[error("built without kernel programs; run `cargo xtask build`")]
    NotBuilt,
    /// The kernel has faults that lose bytes.
    #[error(
        "Linux {0} is too old for the sockmap engine: it needs 6.12.34 or a later 6.12, or 6.16 or \
         later"
    )]
    TooOld(String),
    /// The kernel was built without what the programs need.
    #[error("the kernel's type information {0}; it needs CONFIG_DEBUG_INFO_BTF")]
    NoTypes(String),
    /// The process may not load programs.
    #[error("no permission to load kernel programs: the process lacks {0}")]
    Permission(String),
    /// The kernel refused.
    #[error("{what}: {error}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What the kernel, or the loader, said.
        error: String,
    },
}

impl LoadError {
    pub(super) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Refused { what, error: error.to_string() }
    }
}

pub(super) fn refused_load(error: &EbpfError) -> LoadError {
    LoadError::Refused { what: "loading the kernel programs", error: with_sources(error) }
}

/// An error with what lies beneath it, such as the verifier's words.
pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    shortened(&text)
}

/// Lines kept of a verifier's log: what it is about is at its beginning, what is wrong at its end.
const LINES: [usize; 2] = [2, 6];

/// A text without the middle of its lines, where there are many: a verifier writes thousands.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let [head, tail] = LINES;
    if lines.len() <= head + tail + 1 {
        return text.to_owned();
    }
    let (from, to) = (lines[..head].join("\n"), lines[lines.len() - tail..].join("\n"));
    format!("{from}\n... {} lines ...\n{to}", lines.len() - head - tail)
}

pub(super) fn map_fd(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::SockHash(data)
        | Map::ArrayOfMaps(data)
        | Map::ProgramArray(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_beginning_and_the_end_are_told() {
        let log = |lines: usize| (0..lines).map(|n| format!("line {n}\n")).collect::<String>();
        assert_eq!(shortened(&log(9)), log(9));
        let short = shortened(&log(5000));
        assert!(short.starts_with("line 0\nline 1\n... 4992 lines ...\nline 4994\n"), "{short}");
        assert!(short.ends_with("line 4999"), "{short}");
    }
}
