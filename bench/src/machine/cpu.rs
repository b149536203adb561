//! Processor time, of the machine and of those who caused it.

use std::{fs, io, time::Duration};

use rustix::param::clock_ticks_per_second;

/// Processor time used up to some moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// By everyone on this machine.
    pub machine: Duration,
    /// By the kernel's own threads.
    pub kernel: Duration,
    /// By the gateway's processes.
    pub gateway: Duration,
    /// By the other processes asked about: client and backend.
    pub others: Duration,
}

/// Processor time between two samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// By everyone on this machine.
    pub machine: Duration,
    /// By the processes asked about and the kernel's threads: the machine without its neighbours.
    pub parties: Duration,
    /// By the gateway's processes.
    pub gateway: Duration,
}

impl Sample {
    /// Now. A process that does not exist counts as zero.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn take(gateway: &[u32], others: &[u32]) -> io::Result<Self> {
        let sum = |pids: &[u32]| pids.iter().map(|pid| process(*pid).unwrap_or_default()).sum();
        Ok(Self {
            machine: machine(&fs::read_to_string("/proc/stat")?),
            kernel: kernel_threads()?,
            gateway: sum(gateway),
            others: sum(others),
        })
    }

    /// What was used since `earlier`, of the same processes.
    pub fn since(&self, earlier: &Self) -> Used {
        let gateway = self.gateway.saturating_sub(earlier.gateway);
        let others = self.others.saturating_sub(earlier.others);
        Used {
            machine: self.machine.saturating_sub(earlier.machine),
            parties: gateway + others + self.kernel.saturating_sub(earlier.kernel),
            gateway,
        }
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_nanos(count * 1_000_000_000 / clock_ticks_per_second().max(1))
}

/// user, nice, system, irq and softirq of the first line of `/proc/stat`; not idle, iowait, steal.
fn machine(stat: &str) -> Duration {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_ascii_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    ticks([0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum())
}

/// The fields of `/proc/PID/stat` behind the name, which may hold spaces and parentheses.
fn stat(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

/// utime and stime of all threads of a process.
fn process(pid: u32) -> Option<Duration> {
    let fields = stat(pid)?;
    Some(ticks(fields.get(11)? + fields.get(12)?))
}

/// What processes have used so far, and how often one of their threads was woken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Processor time in user space.
    pub user: Duration,
    /// Processor time in the kernel on their behalf; interrupts count for whoever they interrupt.
    pub system: Duration,
    /// Times that a thread gave up its processor by itself, to be woken later.
    pub waits: u64,
}

impl Use {
    /// Until now. A process that does not exist counts as zero.
    pub fn of(pids: &[u32]) -> Self {
        let mut sum = Self::default();
        for pid in pids {
            let fields = stat(*pid).unwrap_or_default();
            let of = |at: usize| ticks(fields.get(at).copied().unwrap_or(0));
            sum.user += of(11);
            sum.system += of(12);
            sum.waits += waits(*pid).unwrap_or(0);
        }
        sum
    }

    /// What was used since `earlier`, by the same processes.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            waits: self.waits.saturating_sub(earlier.waits),
        }
    }
}

fn waits(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Some(sum)
}

/// Sum over the children of kthreadd, in nanoseconds rather than ticks: there are many, and most
/// run only briefly.
fn kernel_threads() -> io::Result<Duration> {
    const KTHREADD: u64 = 2;
    let mut nanos = 0;
    for pid in all()? {
        if stat(pid).is_some_and(|fields| fields.get(1) == Some(&KTHREADD)) {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            nanos += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// All processes.
fn all() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()))
}

/// A process and all that descend from it.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn family(root: u32) -> io::Result<Vec<u32>> {
    let parents: Vec<(u32, u64)> =
        all()?.filter_map(|pid| Some((pid, *stat(pid)?.get(1)?))).collect();
    let mut family = vec![root];
    let mut at = 0;
    while at < family.len() {
        let parent = u64::from(family[at]);
        family.extend(parents.iter().filter(|(_, ppid)| *ppid == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    Ok(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_line() {
        let per_tick = ticks(1);
        assert_eq!(machine("cpu  1 2 4 1000 500 8 16 99 0 0\ncpu0 1"), per_tick * 31);
    }

    #[test]
    fn own_work_is_seen() {
        let pid = std::process::id();
        let before = Sample::take(&[pid], &[]).unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed() < Duration::from_millis(200) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = Sample::take(&[pid], &[]).unwrap().since(&before);
        assert!(used.gateway >= Duration::from_millis(20), "{used:?}");
        assert!(used.parties >= used.gateway, "{used:?}");
        assert!(Use::of(&[pid]).user >= Duration::from_millis(20));
        assert!(family(pid).unwrap().contains(&pid));
    }
}
