//! Finding a compiler that can build for the kernel.
//!
//! The target has no precompiled `core`, so the compiler must have its library sources beside it,
//! and unstable options must be allowed: a nightly, or `RUSTC_BOOTSTRAP=1`.

use std::path::{Path, PathBuf};

use crate::command::{Cmd, is_root, on_path};

/// The linker for the BPF target. Newer ones want an LLVM that the compilers do not bring yet.
pub(crate) const BPF_LINKER: &str = "bpf-linker@0.10.3";

/// The oldest compiler that builds the BPF crates.
const OLDEST_RUSTC: (u32, u32) = (1, 88);

/// Names a compiler to use, before any that is found.
pub(crate) const RUSTC_VARIABLE: &str = "ATALHO_EBPF_RUSTC";

/// A compiler and its cargo.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    /// For people: `rustup nightly-...`, `/usr/bin/rustc`.
    pub(crate) name: String,
    /// What `rustc --version` says.
    pub(crate) version: String,
    rustc: PathBuf,
    cargo: PathBuf,
    sysroot: PathBuf,
}

/// Why a compiler cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Unusable {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// What a search found, best first.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) usable: Vec<Toolchain>,
    pub(crate) unusable: Vec<Unusable>,
}

impl Toolchain {
    /// `cargo TASK` with this compiler, unstable options allowed, whatever toolchain runs us.
    pub(crate) fn cargo(&self, task: &str) -> Cmd {
        let command = Cmd::new(&self.cargo)
            .arg(task)
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        // bpf-linker loads LLVM from there at run time. A distribution's compiler links it
        // elsewhere: then whatever is already named there must do.
        let lib = self.sysroot.join("lib");
        if !has_llvm(&lib) {
            return command;
        }
        let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let dirs = std::iter::once(lib).chain(std::env::split_paths(&others));
        match std::env::join_paths(dirs) {
            Ok(path) => command.env("LD_LIBRARY_PATH", path),
            Err(_) => command,
        }
    }
}

/// Looks for compilers: the one that is named, rustup's nightlies, a distribution's, other ones of
/// rustup.
pub(crate) fn find(cargo: &Path) -> Found {
    let mut candidates = Vec::new();
    if let Some(named) = std::env::var_os(RUSTC_VARIABLE) {
        let named = PathBuf::from(named);
        candidates.push((format!("{} ({RUSTC_VARIABLE})", named.display()), named, None));
    }
    let of_rustup = |(name, dir): (String, PathBuf)| {
        let own_cargo = Some(dir.join("bin/cargo")).filter(|cargo| cargo.is_file());
        (format!("rustup {name}"), dir.join("bin/rustc"), own_cargo)
    };
    let (nightlies, others): (Vec<_>, Vec<_>) =
        rustup_toolchains().into_iter().partition(|(name, _)| name.contains("nightly"));
    candidates.extend(nightlies.into_iter().map(of_rustup));
    for path in ["/usr/bin/rustc", "/usr/local/bin/rustc"].map(PathBuf::from) {
        if path.is_file() {
            candidates.push((path.display().to_string(), path, None));
        }
    }
    candidates.extend(others.into_iter().map(of_rustup));

    let mut found = Found::default();
    for (name, rustc, own_cargo) in candidates {
        match examine(&name, rustc, own_cargo.unwrap_or_else(|| cargo.to_owned())) {
            Ok(toolchain) => found.usable.push(toolchain),
            Err(why) => found.unusable.push(Unusable { name, why }),
        }
    }
    found
}

fn examine(name: &str, rustc: PathBuf, cargo: PathBuf) -> Result<Toolchain, String> {
    let read = |args: &[&str]| {
        let command = Cmd::new(&rustc).args(args).env_remove("RUSTUP_TOOLCHAIN");
        command.read().map(|text| text.trim().to_owned()).map_err(|error| format!("{error:#}"))
    };
    let version = read(&["--version"])?;
    if release(&version).is_none_or(|release| release < OLDEST_RUSTC) {
        return Err(format!("{version} is older than {}.{}", OLDEST_RUSTC.0, OLDEST_RUSTC.1));
    }
    let sysroot = PathBuf::from(read(&["--print", "sysroot"])?);
    let core = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !core.is_file() {
        return Err(format!("{version} has no library sources (rust-src)"));
    }
    Ok(Toolchain { name: name.to_owned(), version, rustc, cargo, sysroot })
}

/// Major and minor of `rustc 1.96.0 (...)`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split_ascii_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The name of a nightly of rustup, if there is one.
pub(crate) fn nightly() -> Option<String> {
    rustup_toolchains().into_iter().map(|(name, _)| name).find(|name| name.contains("nightly"))
}

/// Names and directories of rustup's toolchains, in its order.
fn rustup_toolchains() -> Vec<(String, PathBuf)> {
    let list = Cmd::new("rustup").args(["toolchain", "list", "-v"]).read().unwrap_or_default();
    let mut seen = Vec::<(String, PathBuf)>::new();
    for line in list.lines() {
        // NAME [(default, ...)] PATH
        let (Some(name), Some(at)) = (line.split_whitespace().next(), line.find(" /")) else {
            continue;
        };
        let dir = PathBuf::from(line[at + 1..].trim());
        if seen.iter().all(|(_, known)| *known != dir) {
            seen.push((name.to_owned(), dir));
        }
    }
    seen
}

fn has_llvm(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libLLVM"))
    })
}

/// Tries to get a compiler onto this machine; true if something was installed.
pub(crate) fn install() -> bool {
    if let Some(name) = nightly() {
        let add = Cmd::new("rustup").args(["component", "add", "rust-src", "--toolchain", &name]);
        if add.run().is_ok() {
            return true;
        }
    }
    apt_install(&["rustc-web", "rust-web-src"])
}

/// What to tell a person who has to install a compiler.
pub(crate) const INSTALL_HINT: &str = "for the kernel programs install a compiler with its library \
     sources: `rustup toolchain install nightly --component rust-src`, or on Debian as root \
     `apt-get install --no-install-recommends rustc-web rust-web-src`";

/// Installs Debian packages, if we are root where there is apt-get and the packages exist; true if
/// that worked.
pub(crate) fn apt_install(packages: &[&str]) -> bool {
    if !is_root() || !on_path("apt-get") {
        return false;
    }
    let known = |package: &&&str| Cmd::new("apt-cache").args(["show", package]).succeeds();
    if !packages.iter().all(|package| known(&package)) {
        let _ = Cmd::new("apt-get").args(["update", "-q"]).run();
        if !packages.iter().all(|package| known(&package)) {
            return false;
        }
    }
    Cmd::new("apt-get")
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
        .is_ok()
}

/// Makes sure that bpf-linker is there; an error says in one line what to do.
pub(crate) fn ensure_bpf_linker(cargo: &Path) -> anyhow::Result<String> {
    use anyhow::Context;
    if let Ok(version) = bpf_linker_version() {
        return Ok(version);
    }
    eprintln!("bpf-linker is missing: installing it with cargo (about a minute, once)");
    Cmd::new(cargo)
        .args(["install", BPF_LINKER, "--locked"])
        .run()
        .and_then(|()| bpf_linker_version())
        .with_context(|| format!("install it by hand: `cargo install {BPF_LINKER} --locked`"))
}

/// What `bpf-linker --version` says.
pub(crate) fn bpf_linker_version() -> anyhow::Result<String> {
    Ok(Cmd::new("bpf-linker").arg("--version").read()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases() {
        assert_eq!(release("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96)));
        assert_eq!(release("rustc 1.99.0-nightly (1234 2026-09-01)"), Some((1, 99)));
        assert_eq!(release("something else"), None);
    }
}
