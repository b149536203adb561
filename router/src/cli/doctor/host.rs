//! What the host offers to a gateway, read from /proc and /sys.

use std::{borrow::Cow, fs};

use serde::Serialize;

/// One finding.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    #[serde(rename = "ok")]
    pub(super) good: bool,
    pub(super) name: Cow<'static, str>,
    pub(super) said: String,
}

/// Capabilities that matter here, by number (capability.h).
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (39, "CAP_BPF", "to load kernel programs"),
    (12, "CAP_NET_ADMIN", "to attach them to sockets and interfaces"),
    (38, "CAP_PERFMON", "to let them read kernel memory"),
    (BIND_SERVICE, "CAP_NET_BIND_SERVICE", "to listen on ports below 1024"),
];
/// Of the capabilities the one that most gateways do without.
const BIND_SERVICE: u32 = 10;

/// Everything worth knowing before the engines are tried.
pub(super) fn findings() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let mut all = vec![
        finding(true, "kernel", read("/proc/sys/kernel/osrelease")),
        match fs::metadata("/sys/kernel/btf/vmlinux") {
            Ok(file) => finding(true, "BTF", format!("{} KiB", file.len() / 1024)),
            Err(_) => finding(
                false,
                "BTF",
                "/sys/kernel/btf/vmlinux is missing: use a kernel with CONFIG_DEBUG_INFO_BTF"
                    .into(),
            ),
        },
        jit(&read("/proc/sys/net/core/bpf_jit_enable")),
        cgroup(&read("/proc/self/mounts")),
    ];
    let status = read("/proc/self/status");
    all.extend(capabilities(&status));
    let limits = read("/proc/self/limits");
    all.push(memlock(limit(&limits, "Max locked memory")));
    all.push(open_files(limit(&limits, "Max open files")));
    all
}

fn finding(good: bool, name: &'static str, said: String) -> Finding {
    Finding { good, name: name.into(), said }
}

fn jit(setting: &str) -> Finding {
    match setting {
        "0" => finding(
            false,
            "JIT",
            "off: kernel programs would be interpreted; `sysctl net.core.bpf_jit_enable=1`".into(),
        ),
        // Kernels built with the JIT always on have no such setting, or hide it from containers.
        "" => finding(true, "JIT", "no setting to be seen: always on, or hidden here".into()),
        _ => finding(true, "JIT", "on".into()),
    }
}

fn cgroup(mounts: &str) -> Finding {
    let found = mounts.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let dir = fields.next()?;
        (fields.next()? == "cgroup2").then_some(dir)
    });
    match found {
        Some(dir) => finding(true, "cgroup v2", dir.to_owned()),
        None => finding(false, "cgroup v2", "not mounted".into()),
    }
}

fn capabilities(status: &str) -> impl Iterator<Item = Finding> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES.into_iter().map(move |(number, name, what)| {
        let there = effective >> number & 1 == 1;
        let said = format!("{} {what}", if there { "there," } else { "missing, needed" });
        finding(there || number == BIND_SERVICE, name, said)
    })
}

/// The soft limit of `/proc/self/limits`, `None` for unlimited.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn memlock(limit: Option<u64>) -> Finding {
    match limit {
        None => finding(true, "memlock", "unlimited".into()),
        // Since 5.11 the kernel charges BPF memory to the cgroup instead.
        Some(bytes) => {
            finding(true, "memlock", format!("{} KiB; only counts before Linux 5.11", bytes / 1024))
        }
    }
}

fn open_files(limit: Option<u64>) -> Finding {
    // Two sockets per exchange in flight, and the pools.
    const ENOUGH: u64 = 4096;
    match limit {
        Some(files) if files < ENOUGH => finding(
            false,
            "open files",
            format!("{files}: two per stream are needed; `ulimit -n 1048576`"),
        ),
        Some(files) => finding(true, "open files", files.to_string()),
        None => finding(true, "open files", "unlimited".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc() {
        let good = |status: &str| capabilities(status).map(|found| found.good).collect::<Vec<_>>();
        assert_eq!(good("Name:\tx\nCapEff:\t000001ffffffffff\n"), [true; 4]);
        assert_eq!(good("CapEff:\t0000008000001000\n"), [true, true, false, true]);
        let limits = "Max open files            1024                 524288               files\n\
                      Max locked memory         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024));
        assert_eq!(limit(limits, "Max locked memory"), None);
        assert!(!open_files(Some(1024)).good);
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(cgroup(mounts).said, "/sys/fs/cgroup");
        assert!(!cgroup("proc /proc proc rw 0 0\n").good);
    }
}
