//! When a body is worth handing to the kernel.
//!
//! A hand-over costs a few system calls, and a redirected packet costs a kernel worker's wake-up.
//! That is dearer than a read and a write for a token of 200 bytes, and cheaper for bulk; see
//! `docs/benchmarks.md` for the measurements behind the numbers.

use super::Copier;
use crate::config::{Config, EngineMode};

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

    /// Whether to hand over now. `declined` counts the hand-overs of this body that did not come
    /// about or did not last: each makes the next one less likely to pay.
    pub fn pays(&self, copier: &Copier, declined: u32) -> bool {
        if self.mode == EngineMode::Userspace || declined > 3 || copier.source_done() {
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
        let policy = Policy { mode: EngineMode::Auto, steer_from_bytes: 1000 };
        assert!(policy.pays(&Copier::new(Framing::length(1000), false), 0));
        assert!(!policy.pays(&Copier::new(Framing::length(999), false), 0));
        assert!(!policy.pays(&Copier::new(Framing::chunked(), false), 0));
        assert!(!policy.pays(&Copier::new(Framing::length(1000), false), 4));
        let never = Policy { mode: EngineMode::Userspace, steer_from_bytes: 0 };
        assert!(!never.pays(&Copier::new(Framing::length(1000), false), 0));
        let always = Policy { mode: EngineMode::Sockmap, steer_from_bytes: 0 };
        assert!(always.pays(&Copier::new(Framing::chunked(), false), 0));
        assert!(!always.pays(&Copier::new(Framing::none(), false), 0));
        assert!(!always.pays(&Copier::new(Framing::chunked(), true), 0));
    }
}
