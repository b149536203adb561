//! Puts the eBPF object into the binary, so that there is one file to deploy.
//!
//! The object is built by `cargo xtask build-ebpf` beforehand, because it needs another toolchain.
//! Without it the gateway still builds, and relays in user space.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=ATALHO_EBPF_OBJECT");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    let object = env::var_os("ATALHO_EBPF_OBJECT").map_or_else(
        || {
            let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
            let target = env::var_os("CARGO_TARGET_DIR")
                .map_or_else(|| manifest.join("../target"), PathBuf::from);
            target.join("bpf/atalho-ebpf")
        },
        PathBuf::from,
    );
    // A watched file that is missing would make every build start anew; its folder can be made.
    let folder = object.parent().expect("a file in a folder");
    let _ = fs::create_dir_all(folder);
    println!("cargo::rerun-if-changed={}", folder.display());

    let bytes = fs::read(&object).unwrap_or_default();
    if bytes.is_empty() {
        println!(
            "cargo::warning=built without kernel programs ({} is missing): run `cargo xtask build`",
            object.display()
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("atalho-ebpf");
    fs::write(&out, bytes).unwrap_or_else(|error| panic!("writing {}: {error}", out.display()));
}
