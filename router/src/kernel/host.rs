//! What this host lets the process do: kernel version and capabilities.

use std::{ffi::CStr, fs};

/// The first release of the 6.12 series, and the first after it, whose socket maps neither lose nor
/// repeat bytes (see docs/kernel.md).
const SERIES: (u32, u32) = (6, 12);
const SERIES_PATCH: u32 = 34;
const SINCE: (u32, u32) = (6, 16);

/// Capabilities that loading needs, by number. `CAP_SYS_ADMIN` stands in for all but one.
const NEEDED: [(u32, &str); 3] = [(39, "CAP_BPF"), (12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON")];
const SYS_ADMIN: u32 = 21;

/// The running kernel's release, as `uname -r` prints it.
pub(super) fn release() -> String {
    // SAFETY: all bit patterns are valid for the structure, which the call fills.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call.
    unsafe { libc::uname(&mut name) };
    // SAFETY: the kernel ends the string with a zero.
    unsafe { CStr::from_ptr(name.release.as_ptr()) }.to_string_lossy().into_owned()
}

/// Whether a release has the fixes that the sockmap engine depends on.
pub(super) fn sockmap_works(release: &str) -> bool {
    let (version, patch) = version(release);
    version >= SINCE || version == SERIES && patch >= SERIES_PATCH
}

/// Whether a release is one of those on which the splice engine is tested. It may work on older ones:
/// what counts is whether their verifiers take the programs.
pub(super) fn splice_is_tested(release: &str) -> bool {
    version(release).0 >= SERIES
}

fn version(release: &str) -> ((u32, u32), u32) {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (version, numbers.next().unwrap_or(0))
}

/// The capabilities that the process lacks.
pub(super) fn missing_capabilities() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing_in(&status)
}

fn missing_in(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let has = |number: u32| effective >> number & 1 == 1;
    NEEDED
        .iter()
        .filter(|(number, name)| {
            let stands_in = has(SYS_ADMIN) && *name != "CAP_NET_ADMIN";
            !has(*number) && !stands_in
        })
        .map(|(_, name)| *name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for good in ["6.12.34", "6.12.90-1-amd64", "6.16.0", "6.18.44-fc", "7.0-rc1", "10.2"] {
            assert!(sockmap_works(good), "{good}");
        }
        for bad in ["6.12.33", "6.12", "6.1.192", "6.13.9", "6.15.3", "5.15.0-generic", "x"] {
            assert!(!sockmap_works(bad), "{bad}");
        }
        assert!(splice_is_tested("6.12.0") && splice_is_tested("7.0"));
        assert!(!splice_is_tested("6.11.9") && !splice_is_tested("6.1.176"));
    }

    #[test]
    fn capabilities() {
        assert_eq!(missing_in("CapEff:\t000001ffffffffff\n"), Vec::<&str>::new());
        assert_eq!(missing_in("CapEff:\t0000000000000000\n").len(), 3);
        assert_eq!(missing_in("CapEff:\t0000000000200000\n"), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_in("CapEff:\t0000008000001000\n"), ["CAP_PERFMON"]);
    }
}
