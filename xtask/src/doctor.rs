//! What of the toolchain is there, and which engines work here.

use anyhow::Result;

use crate::{
    command::{Cmd, is_root, on_path},
    ebpf, toolchain,
    workspace::Workspace,
};

pub(crate) fn doctor(workspace: &Workspace) -> Result<()> {
    println!("To build the kernel programs:");
    let found = toolchain::find(workspace.cargo_path());
    for (rank, usable) in found.usable.iter().enumerate() {
        let used = if rank == 0 { "used" } else { "also good" };
        println!("  ok       {} ({}), {used}", usable.name, usable.version);
    }
    for unusable in &found.unusable {
        println!("  no       {}: {}", unusable.name, unusable.why);
    }
    if found.usable.is_empty() {
        println!("  missing  {}", toolchain::INSTALL_HINT);
    }
    match toolchain::bpf_linker_version() {
        Ok(version) => println!("  ok       {version}"),
        Err(_) => {
            println!("  missing  bpf-linker: `cargo install {} --locked`", toolchain::BPF_LINKER);
        }
    }
    let object = ebpf::object(workspace);
    let built = if object.is_file() { "ok     " } else { "missing" };
    println!("  {built}  {}", workspace.relative(&object).display());

    println!("To run the tests:");
    for (program, why) in [
        ("curl", "a real client"),
        ("python3", "the openai client runs in it"),
        ("bpftool", "shows that nothing is left in the kernel"),
        ("ip", "network namespaces; package iproute2"),
        ("cargo-nextest", "runs tests faster; `cargo install cargo-nextest --locked`"),
        ("cargo-fuzz", "short fuzz runs; `cargo install cargo-fuzz --locked` and a nightly"),
        ("openssl", "certificates for the tests of TLS in front"),
        ("nginx", "in front in tests, compared with in `cargo xtask bench`"),
        ("haproxy", "in front in tests, compared with in `cargo xtask bench`"),
    ] {
        println!("  {}  {program} ({why})", if on_path(program) { "ok     " } else { "missing" });
    }
    println!("  {}  root (kernel tests)", if is_root() { "ok     " } else { "missing" });

    let binary = workspace.binary("atalho", false);
    if !binary.is_file() {
        println!("The gateway is not built yet: `cargo xtask build`, then `atalho doctor`.");
        return Ok(());
    }
    println!();
    Cmd::new(binary).arg("doctor").quiet().run()
}
