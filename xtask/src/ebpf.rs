//! Building the kernel programs.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    command::in_ci,
    toolchain::{self, Toolchain},
    workspace::Workspace,
};

const TARGET: &str = "bpfel-unknown-none";
/// Package, its binary, and where it goes below `target`. The tests' object has a folder of its own
/// because the build script of `router` watches that of the gateway's.
const OBJECTS: [(&str, &str, &str); 2] =
    [("router-ebpf", "atalho-ebpf", "bpf"), ("wire", "atalho-wire", "bpf-tests")];
/// Of the workspace's Cargo.toml; the flags of the target are in .cargo/config.toml.
const PROFILE: &str = "bpf";

/// Builds the kernel programs unless they are up to date.
///
/// # Errors
/// Says in one line what is missing when the toolchain is not there and cannot be installed.
pub(crate) fn build(workspace: &Workspace, force: bool) -> Result<()> {
    let there =
        OBJECTS.iter().all(|(_, name, folder)| object_at(workspace, folder, name).is_file());
    // A directory of its own: the compiler differs from the one of the rest of the workspace. And
    // not beside the object: the build script of `router` watches that directory.
    let build_dir = workspace.target.join("bpf-build");
    let stamp = build_dir.join("stamp");
    let sources = hash_of_sources(&workspace.root)?;
    if !force && there && fs::read_to_string(&stamp).is_ok_and(|old| old == sources) {
        return Ok(());
    }
    let toolchain = toolchain(workspace)?;
    toolchain::ensure_bpf_linker(workspace.cargo_path())?;
    eprintln!("building the kernel programs with {} ({})", toolchain.name, toolchain.version);
    for (package, name, folder) in OBJECTS {
        toolchain
            .cargo("build")
            .args(["--profile", PROFILE, "-p", package, "--bin", name])
            .args(["--features", "programs"])
            .args(["-Z", "build-std=core", "--target", TARGET, "--target-dir"])
            .arg(&build_dir)
            .dir(&workspace.root)
            .run()?;
        let object = object_at(workspace, folder, name);
        replace(&build_dir.join(TARGET).join(PROFILE).join(name), &object)?;
        println!("built {}", workspace.relative(&object).display());
    }
    fs::write(&stamp, sources)?;
    Ok(())
}

/// As [`build`]; where the toolchain cannot be had, says so and goes on without kernel programs,
/// except in CI.
pub(crate) fn build_or_explain(workspace: &Workspace) -> Result<()> {
    match build(workspace, false) {
        Err(error) if !in_ci() && error.is::<NoToolchain>() => {
            eprintln!("warning: {error:#}");
            eprintln!(
                "warning: going on without the kernel programs; the gateway will relay everything \
                 in user space"
            );
            // What an older source produced must not be embedded as if it were this one's.
            let _ = fs::remove_file(object(workspace));
            Ok(())
        }
        result => result,
    }
}

/// The compiler to use, installed if need be.
fn toolchain(workspace: &Workspace) -> Result<Toolchain> {
    let mut found = toolchain::find(workspace.cargo_path());
    if found.usable.is_empty() && toolchain::install() {
        found = toolchain::find(workspace.cargo_path());
    }
    match found.usable.into_iter().next() {
        Some(toolchain) => Ok(toolchain),
        None => bail!(NoToolchain),
    }
}

/// There is no compiler that can build for the kernel.
#[derive(Debug)]
struct NoToolchain;

impl std::fmt::Display for NoToolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(toolchain::INSTALL_HINT)
    }
}

impl std::error::Error for NoToolchain {}

/// Where the object goes, and where `router`'s build script looks for it.
pub(crate) fn object(workspace: &Workspace) -> PathBuf {
    let (_, name, folder) = OBJECTS[0];
    object_at(workspace, folder, name)
}

fn object_at(workspace: &Workspace, folder: &str, name: &str) -> PathBuf {
    workspace.target.join(folder).join(name)
}

/// Copies `new` over `old` in one step, and only if they differ, so that nothing that embeds it is
/// rebuilt in vain.
fn replace(new: &Path, old: &Path) -> Result<()> {
    let bytes = fs::read(new).with_context(|| format!("no object at {}", new.display()))?;
    if fs::read(old).is_ok_and(|known| known == bytes) {
        return Ok(());
    }
    fs::create_dir_all(old.parent().context("a directory")?)?;
    let temporary = new.with_extension("copy");
    fs::write(&temporary, bytes)?;
    Ok(fs::rename(temporary, old)?)
}

/// A hash over everything the object is made from, except the compiler: a newer one does not make
/// an object wrong.
fn hash_of_sources(root: &Path) -> Result<String> {
    let mut files =
        ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"].map(|file| root.join(file)).to_vec();
    let mut dirs = vec![root.join("router-ebpf"), root.join("tests/wire")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true if entry.file_name() == "target" => {}
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(root)?.hash(&mut hasher);
        fs::read(&file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}
