//! When a body is worth handing to the kernel.
//!
//! A hand-over costs a few system calls, and a redirected packet costs a kernel worker's wake-up.
//! That is dearer than a read and a write for a token of 200 bytes, and cheaper for bulk; see
//! `docs/benchmarks.md` for the measurements behind the numbers.

use super::{
    Copier,
    sockmap::{Decline, HandBack, SteerEnd},
};
use crate::config::{Config, EngineMode};

/// What came of a body's hand-overs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Hand-overs that did not last: each makes the next one less likely to pay.
    short: u32,
    /// Body bytes that user space must have carried before the next attempt.
    after: u64,
}

impl Attempts {
    /// Hand-overs of one body that may be short before it stays in user space.
    const MAX_SHORT: u32 = 3;

    /// Makes no further attempt.
    pub fn give_up(&mut self) {
        self.short = u32::MAX;
    }

    /// Notes how an attempt ended.
    ///
    /// After one that found unread bytes, those must be carried first: another attempt without them
    /// would fail in the same way, and again, before the event loop ever gets to read them.
    pub fn note(&mut self, end: &SteerEnd, copier: &Copier) {
        self.after = copier.bytes() + 1;
        match end {
            SteerEnd::Declined(Decline::Unread) => {}
            SteerEnd::Declined(_)
            | SteerEnd::HandedBack(HandBack::Crossed | HandBack::Malformed | HandBack::NoTarget) => {
                self.give_up();
            }
            _ => self.short = self.short.saturating_add(1),
        }
    }

    fn encourage(self, copier: &Copier) -> bool {
        self.short <= Self::MAX_SHORT && copier.bytes() >= self.after
    }
}

/// Decides, for a body under way, whether the kernel should carry the rest.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Which engine the operator wants.
    pub mode: EngineMode,
    /// Body bytes left from which steering pays.
    pub steer_from_bytes: u64,
}

impl Policy {
    /// As the configuration says.
    pub fn of(config: &Config) -> Self {
        Self { mode: config.engine.mode, steer_from_bytes: config.engine.steer_from_bytes }
    }

    /// Mean size of a read, in bytes, from which a body of unknown length counts as bulk in `auto`.
    pub const BULK_READ: u64 = 8 * 1024;

    /// Whether to hand over now.
    pub fn pays(&self, copier: &Copier, attempts: Attempts) -> bool {
        if self.mode == EngineMode::Userspace || !attempts.encourage(copier) || copier.source_done()
        {
            return false;
        }
        // The kernel carries bytes as they are.
        if copier.dechunks() {
            return false;
        }
        let framing = copier.framing();
        if framing.is_length() {
            return framing.remaining >= self.steer_from_bytes;
        }
        match self.mode {
            EngineMode::Sockmap => copier.bytes() >= self.steer_from_bytes,
            // How long the body will be is unknown: what it has been like so far decides.
            _ => copier.bytes() >= self.steer_from_bytes && copier.mean_read() >= Self::BULK_READ,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_ebpf::framing::Framing;

    #[test]
    fn a_known_length_decides_at_once_and_an_unknown_one_by_what_it_was() {
        let fresh = Attempts::default();
        let mut given_up = fresh;
        given_up.give_up();
        let policy = Policy { mode: EngineMode::Auto, steer_from_bytes: 1000 };
        assert!(policy.pays(&Copier::new(Framing::length(1000), false), fresh));
        assert!(!policy.pays(&Copier::new(Framing::length(999), false), fresh));
        assert!(!policy.pays(&Copier::new(Framing::chunked(), false), fresh));
        assert!(!policy.pays(&Copier::new(Framing::length(1000), false), given_up));
        let never = Policy { mode: EngineMode::Userspace, steer_from_bytes: 0 };
        assert!(!never.pays(&Copier::new(Framing::length(1000), false), fresh));
        let always = Policy { mode: EngineMode::Sockmap, steer_from_bytes: 0 };
        assert!(always.pays(&Copier::new(Framing::chunked(), false), fresh));
        assert!(!always.pays(&Copier::new(Framing::none(), false), fresh));
        assert!(!always.pays(&Copier::new(Framing::chunked(), true), fresh));
    }

    #[test]
    fn unread_bytes_are_carried_before_the_next_attempt() {
        let policy = Policy { mode: EngineMode::Sockmap, steer_from_bytes: 0 };
        let copier = Copier::new(Framing::length(1000), false);
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            attempts.note(&SteerEnd::Declined(Decline::Unread), &copier);
        }
        assert!(!policy.pays(&copier, attempts), "nothing has been carried since");
        attempts.after = copier.bytes();
        assert!(policy.pays(&copier, attempts), "finding unread bytes is no reason to give up");
        attempts.note(&SteerEnd::HandedBack(HandBack::Crossed), &copier);
        attempts.after = 0;
        assert!(!policy.pays(&copier, attempts));
    }
}
