//! Installing what building and testing need.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    command::{Cmd, in_ci, on_path},
    ebpf,
    toolchain::apt_install,
    workspace::Workspace,
};

/// Everything: what building needs, then what the tests need.
pub(crate) fn setup(workspace: &Workspace) -> Result<()> {
    ebpf::build_or_explain(workspace)?;
    let tools = test_tools(workspace)?;
    println!("python with the openai client: {}", workspace.relative(&tools.python).display());
    println!("test runner: {}", if tools.nextest { "cargo nextest" } else { "cargo test" });
    Ok(())
}

/// What the tests use besides cargo.
pub(crate) struct TestTools {
    /// A Python that has the packages of `tests/requirements.txt`.
    pub(crate) python: PathBuf,
    /// Whether cargo-nextest is there; without it `cargo test` runs the tests.
    pub(crate) nextest: bool,
}

/// Finds or installs the tools of the tests.
pub(crate) fn test_tools(workspace: &Workspace) -> Result<TestTools> {
    let programs = [
        ("curl", "curl"),
        ("ip", "iproute2"),
        ("bpftool", "bpftool"),
        ("nft", "nftables"),
        ("tshark", "tshark"),
        ("python3", "python3"),
    ];
    for (program, package) in programs {
        if !on_path(program) && !apt_install(&[package]) {
            bail!("the tests need `{program}`: install {package} (Debian's name of the package)");
        }
    }
    // Not on the way elsewhere: Debian starts them as services.
    for (program, package) in
        [("openssl", "openssl"), ("nginx", "nginx-light"), ("haproxy", "haproxy")]
    {
        if on_path(program) || in_ci() && apt_install(&[package]) {
            continue;
        }
        if in_ci() {
            bail!("the tests need `{program}`: install {package} (Debian's name of the package)");
        }
        eprintln!("{program} is not there: tests of TLS in front are skipped without {package}");
    }
    Ok(TestTools { python: python(workspace)?, nextest: has_nextest() })
}

/// Whether cargo-nextest is there. It is never installed on the way: building it takes longer than
/// it saves.
pub(crate) fn has_nextest() -> bool {
    Cmd::new("cargo-nextest").args(["nextest", "--version"]).succeeds()
}

/// The virtual environment in `target/venv`, made or brought up to date if need be.
pub(crate) fn python(workspace: &Workspace) -> Result<PathBuf> {
    let venv = workspace.target.join("venv");
    let python = venv.join("bin/python");
    let requirements = workspace.root.join("tests/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let stamp = venv.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted)
        && Cmd::new(&python).args(["-c", "import openai"]).succeeds()
    {
        return Ok(python);
    }
    make_venv(&venv)?;
    Cmd::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(&requirements)
        .run()
        .context("the tests use the openai client from PyPI; is the registry reachable?")?;
    std::fs::write(stamp, wanted)?;
    Ok(python)
}

/// Some distributions ship `venv` without `ensurepip`, and say so only when asked for both.
fn make_venv(venv: &Path) -> Result<()> {
    let make = || Cmd::new("python3").args(["-m", "venv", "--clear"]).arg(venv).run();
    if make().is_ok() {
        return Ok(());
    }
    if !apt_install(&["python3-venv"]) {
        bail!("python3 cannot make a virtual environment: install python3-venv");
    }
    make()
}

/// Makes sure of a cargo subcommand that the tests want and can live without outside CI.
///
/// # Errors
/// In CI, when it cannot be installed.
pub(crate) fn cargo_tool(workspace: &Workspace, name: &str, version: &str) -> Result<bool> {
    if on_path(name) {
        return Ok(true);
    }
    if !in_ci() {
        eprintln!("{name} is not there: `cargo install {name} --locked` would add it");
        return Ok(false);
    }
    workspace.cargo("install").args([&format!("{name}@{version}"), "--locked"]).run()?;
    Ok(true)
}
