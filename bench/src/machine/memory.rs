//! Memory, of processes and of the kernel on their behalf. All in bytes.

use std::{fs, io, ops::Sub};

use serde::Serialize;

/// Memory in use at some moment, or the difference between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Resident memory of the processes asked about; shared pages count for each.
    pub rss: f64,
    /// The same with shared pages divided among those who share them.
    pub pss: f64,
    /// Buffers of all TCP sockets of the machine.
    pub tcp: f64,
    /// The kernel's slab memory that cannot be reclaimed: sockets, files, epoll entries.
    pub slab: f64,
}

impl Memory {
    /// Now, of `pids`.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of(pids: &[u32]) -> io::Result<Self> {
        let mut memory = Self {
            tcp: tcp(&fs::read_to_string("/proc/net/sockstat")?),
            slab: field(&fs::read_to_string("/proc/meminfo")?, "SUnreclaim:"),
            ..Self::default()
        };
        for pid in pids {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            memory.rss += field(&rollup, "Rss:");
            memory.pss += field(&rollup, "Pss:");
        }
        Ok(memory)
    }

    /// This for each of `count`.
    pub fn each(self, count: usize) -> Self {
        let count = count.max(1) as f64;
        Self {
            rss: self.rss / count,
            pss: self.pss / count,
            tcp: self.tcp / count,
            slab: self.slab / count,
        }
    }
}

impl Sub for Memory {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            rss: self.rss - other.rss,
            pss: self.pss - other.pss,
            tcp: self.tcp - other.tcp,
            slab: self.slab - other.slab,
        }
    }
}

/// A field that the kernel gives in kB.
fn field(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<f64>().ok());
    number.unwrap_or(0.0) * 1024.0
}

/// Pages of TCP buffers.
fn tcp(sockstat: &str) -> f64 {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let (_, pages) = line.rsplit_once("mem ").unwrap_or_default();
    pages.trim().parse::<f64>().unwrap_or(0.0) * rustix::param::page_size() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let meminfo = "MemTotal: 5 kB\nSUnreclaim:      12 kB\n";
        assert_eq!(field(meminfo, "SUnreclaim:"), 12.0 * 1024.0);
        let sockstat =
            "sockets: used 9\nTCP: inuse 4 orphan 0 tw 7 alloc 6 mem 3\nUDP: inuse 1 mem 9\n";
        assert_eq!(tcp(sockstat), 3.0 * rustix::param::page_size() as f64);
        assert!(Memory::of(&[std::process::id()]).unwrap().pss > 0.0);
    }
}
