//! What the system knows about a process.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

/// Where the build puts its binaries: `target/PROFILE`.
///
/// # Panics
/// When the test executable is not below it.
pub fn build_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the path of the test executable");
    let deps = exe.parent().expect("a directory");
    let dir = if deps.ends_with("deps") { deps.parent() } else { Some(deps) };
    dir.expect("a build directory").to_owned()
}

/// A binary of this workspace: `$VARIABLE`, or the one beside the tests.
///
/// # Panics
/// When it has not been built.
pub fn binary(variable: &str, name: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| build_dir().join(name), PathBuf::from);
    assert!(
        path.exists(),
        "{} is not there: build it with `cargo build --workspace`, or name it in {variable}",
        path.display()
    );
    path
}

/// Whether tests may be skipped. Not in CI.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Skips a test, visibly.
///
/// # Panics
/// In CI.
#[track_caller]
pub fn skip(reason: &str) {
    assert!(!in_ci(), "cannot run here, and CI skips nothing: {reason}");
    note_skipped(reason);
}

/// Skips a test, visibly, for what this kernel was built without.
///
/// # Panics
/// In CI, unless the variable `ATALHO_KERNEL_LACKS` names the feature (a list with commas).
#[track_caller]
pub fn skip_for_kernel(feature: &str) {
    let lacks = std::env::var("ATALHO_KERNEL_LACKS").unwrap_or_default();
    let declared = lacks.split(',').any(|name| name.trim() == feature);
    let reason = format!("this kernel has no {feature}");
    assert!(
        !in_ci() || declared,
        "{reason}, and ATALHO_KERNEL_LACKS does not say that it may be missing"
    );
    note_skipped(&reason);
}

/// Tells whoever reads the test's output, and the list that `cargo xtask test` shows at its end.
fn note_skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    if let Some(list) = std::env::var_os("ATALHO_SKIPPED_TESTS") {
        let thread = std::thread::current();
        let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
        let mut list = File::options().append(true).create(true).open(list).expect("the list");
        list.write_all(line.as_bytes()).expect("a line of the list");
    }
}

/// Whether we are root. Says that the test is skipped otherwise.
///
/// # Panics
/// In CI, when we are not.
#[track_caller]
pub fn root_or_skip(what: &str) -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip(&format!("{what} needs root"));
    }
    root
}

/// Confines this thread, and the threads and processes that it starts, to one processor. Packets that
/// threads send over veth are delivered by the processor that sent them; when a thread moves between
/// two sends, they may overtake each other.
///
/// # Panics
/// When the system refuses.
pub fn on_one_processor() {
    // SAFETY: all zeros is an empty set; the calls get its address and size.
    unsafe {
        let processor = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor as usize, &mut set);
        let rc = libc::sched_setaffinity(0, size_of_val(&set), &set);
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    }
}

/// What a process' descriptors point at (`socket:[1]`, a path, ...).
pub fn descriptors(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

/// How many TCP sockets a process has. (Those by which a runtime hears of signals come after its start.)
pub fn sockets(pid: u32) -> usize {
    let inode = |line: &str| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?));
    let tcp: HashSet<String> = ["tcp", "tcp6"]
        .iter()
        .map(|family| fs::read_to_string(format!("/proc/{pid}/net/{family}")).unwrap_or_default())
        .flat_map(|text| text.lines().skip(1).filter_map(inode).collect::<Vec<_>>())
        .collect();
    descriptors(pid).iter().filter(|target| tcp.contains(*target)).count()
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/status"), "VmRSS:")
}

fn field(path: &str, name: &str) -> u64 {
    fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
