//! Clients that are written in Python.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::process;

/// The Python that has the packages of `tests/requirements.txt`, as `cargo xtask test` makes it.
pub fn python() -> Option<PathBuf> {
    let made = || process::build_dir().parent().map(|target| target.join("venv/bin/python"));
    let python = std::env::var_os("ATALHO_TEST_PYTHON").map(PathBuf::from).or_else(made);
    let found = python.filter(|python| python.exists());
    if found.is_none() {
        process::skip("there is no Python with the clients: run `cargo xtask setup`");
    }
    found
}

/// Runs a script of `tests/clients`. Says whether it ran: without the clients it is skipped.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn run_script_with(script: &str, arguments: &[&str]) -> bool {
    let Some(python) = python() else { return false };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script);
    let output = Command::new(python).arg(script).args(arguments).output().expect("python");
    expect_success(&output);
    assert!(output.stdout.ends_with(b"ok\n"));
    true
}

/// # Panics
/// When the program failed.
#[track_caller]
pub fn expect_success(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
}
