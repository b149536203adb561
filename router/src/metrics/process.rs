//! The `process_*` metrics that Prometheus clients share, read from `/proc/self` at each scrape.

use std::fs;

use prometheus::{
    Counter, Gauge, IntGauge, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

/// Adds the process metrics to `registry`.
pub(super) fn register(registry: &Registry) {
    registry.register(Box::new(Process::new())).expect("names not used yet");
}

struct Process {
    cpu: Counter,
    resident: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    threads: IntGauge,
    start: Gauge,
}

impl Process {
    fn new() -> Process {
        let float = |name, help| Gauge::with_opts(Opts::new(name, help)).expect("a valid name");
        let int = |name, help| IntGauge::with_opts(Opts::new(name, help)).expect("a valid name");
        Process {
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "User and system CPU time of the process in seconds. What the kernel programs and \
                 the network stack use in interrupts is not in it.",
            )
            .expect("a valid name"),
            resident: int("process_resident_memory_bytes", "Resident memory in bytes."),
            open_fds: int("process_open_fds", "Open file descriptors."),
            max_fds: int("process_max_fds", "The limit of open file descriptors (RLIMIT_NOFILE)."),
            threads: int("process_threads", "Threads."),
            start: float(
                "process_start_time_seconds",
                "When the process started, in seconds since 1970.",
            ),
        }
    }

    fn update(&self) -> Option<()> {
        // The command in parentheses may hold spaces; the fields after it are counted from 3
        // (proc_pid_stat(5)).
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = sysconf(libc::_SC_CLK_TCK)? as f64;
        let cpu = (field(14)? + field(15)?) as f64 / ticks;
        self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
        self.threads.set(field(20)? as i64);
        self.resident.set(field(24)? as i64 * sysconf(libc::_SC_PAGESIZE)?);
        // One of the entries is the descriptor that reads the directory.
        self.open_fds.set(fs::read_dir("/proc/self/fd").ok()?.count() as i64 - 1);
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let soft = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))
            .and_then(|rest| rest.split_ascii_whitespace().next());
        self.max_fds.set(soft.and_then(|number| number.parse().ok()).unwrap_or(i64::MAX));
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 =
            boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        self.start.set(boot + field(22)? as f64 / ticks);
        Some(())
    }

    fn all(&self) -> [&dyn Collector; 6] {
        [&self.cpu, &self.resident, &self.open_fds, &self.max_fds, &self.threads, &self.start]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // What cannot be read keeps its last value: a scrape must not fail for it.
        let _ = self.update();
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

fn sysconf(name: libc::c_int) -> Option<i64> {
    // SAFETY: sysconf only reads its argument.
    let value = unsafe { libc::sysconf(name) };
    (value > 0).then_some(value)
}
