//! `cargo xtask package`: one archive to deploy.

use std::fs;

use anyhow::{Context, Result};

use crate::{Profile, build, command::Cmd, workspace::Workspace};

pub(crate) fn package(workspace: &Workspace) -> Result<()> {
    let binary = build(workspace, Profile { release: true })?;
    let name = format!("atalho-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let packages = workspace.target.join("package");
    let dir = packages.join(&name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir.join("completions"))?;
    fs::copy(&binary, dir.join("atalho"))?;
    for (shell, file) in [("bash", "atalho.bash"), ("zsh", "_atalho"), ("fish", "atalho.fish")] {
        let script = Cmd::new(&binary).args(["completions", shell]).read()?;
        fs::write(dir.join("completions").join(file), script)?;
    }
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        fs::copy(workspace.root.join(file), dir.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    // The pages that README.md refers to.
    fs::create_dir_all(dir.join("docs"))?;
    for entry in fs::read_dir(workspace.root.join("docs"))? {
        let file = entry?.path();
        fs::copy(&file, dir.join("docs").join(file.file_name().context("a name")?))?;
    }
    fs::write(dir.join("atalho.service"), include_str!("../assets/atalho.service"))?;
    fs::write(dir.join("atalho.toml"), include_str!("../../docs/example.toml"))?;
    let archive = packages.join(format!("{name}.tar.gz"));
    // Equal input gives an equal archive.
    Cmd::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-czf"])
        .arg(&archive)
        .arg("-C")
        .arg(&packages)
        .arg(&name)
        .quiet()
        .run()?;
    println!("packed {}", workspace.relative(&archive).display());
    Ok(())
}
