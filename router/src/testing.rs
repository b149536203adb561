//! What the unit tests share.

use std::{fmt::Display, fs::File, io::Write};

pub(crate) use self::cgroup::Cgroup;

/// The integration tests' own.
#[path = "../../tests/src/cgroup.rs"]
#[expect(unreachable_pub, reason = "there, it is public")]
mod cgroup;

/// Says that a test cannot run here, to whoever reads its output and to the list that `cargo xtask test`
/// shows at its end.
///
/// # Panics
/// In CI, which skips nothing.
#[track_caller]
pub(crate) fn skip(reason: impl Display) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!in_ci, "cannot run here, and CI skips nothing: {reason}");
    eprintln!("SKIPPED: {reason}");
    if let Some(list) = std::env::var_os("ATALHO_SKIPPED_TESTS") {
        let thread = std::thread::current();
        let line = format!("{}: {reason}\n", thread.name().unwrap_or("a test"));
        let mut list = File::options().append(true).create(true).open(list).expect("the list");
        list.write_all(line.as_bytes()).expect("a line of the list");
    }
}
