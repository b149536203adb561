//! Tests that measure the machine must not run beside others, in this process or in another one.

use std::{fs::File, os::fd::AsRawFd};

/// Held while a test runs; released when dropped, or when the process ends.
#[derive(Debug)]
pub struct Guard(#[expect(dead_code, reason = "the lock lives as long as the file is open")] File);

/// Beside others.
pub fn shared() -> Guard {
    lock(libc::LOCK_SH)
}

/// Alone. A test that takes this must do so before it starts a gateway, and start it with
/// [`Setup::alone`](crate::Setup::alone).
pub fn alone() -> Guard {
    lock(libc::LOCK_EX)
}

fn lock(kind: i32) -> Guard {
    let path = crate::process::build_dir().join("atalho-tests.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
    // SAFETY: takes no memory, and the descriptor is open.
    let rc = unsafe { libc::flock(file.as_raw_fd(), kind) };
    assert_eq!(rc, 0, "locking {}: {}", path.display(), std::io::Error::last_os_error());
    Guard(file)
}
