//! `cargo xtask package`: one archive to deploy.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{Profile, build, command::Cmd, links, workspace::Workspace};

/// What is in the archive as it is here: where from, by what name, and whether it can be run.
const FILES: [(&str, &str, bool); 4] = [
    ("LICENSE", "LICENSE", false),
    ("docs/example.toml", "atalho.toml", false),
    ("xtask/assets/atalho.service", "atalho.service", false),
    ("xtask/assets/install.sh", "install.sh", true),
];

pub(crate) fn package(workspace: &Workspace) -> Result<()> {
    let binary = build(workspace, Profile { release: true })?;
    let name = format!("atalho-{}-{}-linux", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let packages = workspace.target.join("package");
    let dir = packages.join(&name);
    let symbols = packages.join(format!("{name}-debug"));
    for dir in [&dir, &symbols] {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir_all(dir)?;
    }
    strip(&binary, &dir.join("atalho"), &symbols.join("atalho.debug"))?;
    fs::create_dir_all(dir.join("completions"))?;
    for (shell, file) in [("bash", "atalho.bash"), ("zsh", "_atalho"), ("fish", "atalho.fish")] {
        let script = Cmd::new(&binary).args(["completions", shell]).read()?;
        fs::write(dir.join("completions").join(file), script)?;
    }
    files(&workspace.root, &dir)?;
    for name in [name.clone(), format!("{name}-debug")] {
        let archive = packages.join(format!("{name}.tar.gz"));
        // Equal input gives an equal archive.
        Cmd::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
            .arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(&packages)
            .arg(&name)
            .quiet()
            .run()?;
        println!("packed {}", workspace.relative(&archive).display());
    }
    if let Some(version) = glibc(&dir.join("atalho"))? {
        println!("the binary needs glibc {version} or later");
    }
    Ok(())
}

/// Copies the binary without its symbols, which go to a file of their own that debuggers find by its
/// name and checksum.
fn strip(binary: &Path, stripped: &Path, symbols: &Path) -> Result<()> {
    let objcopy = || Cmd::new("objcopy").quiet();
    let advice = "objcopy comes with the linker, in the package binutils";
    objcopy().arg("--only-keep-debug").arg(binary).arg(symbols).run().context(advice)?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(symbols);
    objcopy().arg("--strip-all").arg(link).arg(binary).arg(stripped).run()
}

/// The oldest C library that has everything the binary asks for.
fn glibc(binary: &Path) -> Result<Option<String>> {
    let symbols = Cmd::new("objdump").arg("-T").arg(binary).read()?;
    Ok(newest_glibc(&symbols))
}

fn newest_glibc(symbols: &str) -> Option<String> {
    let number = |text: &str| -> Option<Vec<u32>> {
        text.split('.').map(|part| part.parse().ok()).collect()
    };
    symbols
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit() && c != '.').next())
        .filter(|version| number(version).is_some())
        .max_by_key(|version| number(version))
        .map(str::to_owned)
}

/// Everything in the archive but what is built.
fn files(root: &Path, dir: &Path) -> Result<()> {
    for (from, to, runs) in FILES {
        let to = dir.join(to);
        fs::copy(root.join(from), &to).with_context(|| format!("cannot copy {from}"))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(if runs { 0o755 } else { 0o644 }))?;
    }
    let mut pages: Vec<PathBuf> = ["README.md", "CHANGELOG.md"].map(PathBuf::from).into();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        fs::create_dir_all(dir.join(&folder))?;
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let is_folder = entry.file_type()?.is_dir();
            if is_folder { &mut folders } else { &mut pages }.push(folder.join(entry.file_name()));
        }
    }
    for page in &pages {
        fs::copy(root.join(page), dir.join(page))
            .with_context(|| format!("cannot copy {}", page.display()))?;
    }
    // Once all are there: links to the sources lead nowhere from here.
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let page = dir.join(page);
        let text = fs::read_to_string(&page)?;
        let leads = |target: &str| {
            let file = target.split('#').next().unwrap_or_default();
            file.is_empty() || page.with_file_name(file).exists()
        };
        fs::write(&page, links::without_dead(&text, leads))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    /// The archive's folder, without a build: any file stands for the binary.
    fn unpacked() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        files(root(), dir.path()).expect("all are there");
        fs::write(dir.path().join("atalho"), "#!/bin/sh\n").expect("written");
        fs::create_dir(dir.path().join("completions")).expect("made");
        for file in ["atalho.bash", "_atalho", "atalho.fish"] {
            fs::write(dir.path().join("completions").join(file), "").expect("written");
        }
        dir
    }

    #[test]
    fn links_of_the_archive_lead_somewhere() {
        let dir = unpacked();
        let docs = fs::read_dir(dir.path().join("docs")).expect("pages").map(|e| e.unwrap().path());
        assert!(dir.path().join("docs/routing").is_dir(), "the report's pictures come along");
        let mut pages: Vec<PathBuf> =
            docs.filter(|page| page.extension().is_some_and(|end| end == "md")).collect();
        assert!(pages.len() > 5, "{pages:?}");
        pages.extend(["README.md", "CHANGELOG.md"].map(|page| dir.path().join(page)));
        let mut dead = Vec::new();
        let mut alive = 0;
        for page in &pages {
            let text = fs::read_to_string(page).expect("a page");
            dead.extend(links::broken(page, &text));
            alive += links::targets(&text).len();
        }
        assert!(dead.is_empty(), "{dead:#?}");
        assert!(alive > 20, "only {alive} links are left");
    }

    #[test]
    fn what_the_unit_names_is_there_after_installation() {
        let (dir, installed) = (unpacked(), tempfile::tempdir().expect("a directory"));
        let install = || {
            let script = Cmd::new(dir.path().join("install.sh")).quiet();
            script.env("DESTDIR", installed.path()).read().expect("it installs")
        };
        install();
        let at = |path: &str| installed.path().join(path.trim_start_matches('/'));
        let unit = fs::read_to_string(at("/etc/systemd/system/atalho.service")).expect("the unit");
        let value = |key: &str| {
            let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect(key);
            line.split(' ').next().expect("a value").to_owned()
        };
        let page = value("Documentation=file://");
        assert!(links::broken(&at(&page), &fs::read_to_string(at(&page)).expect(&page)).is_empty());
        let binary = fs::metadata(at(&value("ExecStart="))).expect("the binary");
        assert_eq!(binary.permissions().mode() & 0o777, 0o755);
        assert!(unit.contains("--config /etc/atalho/atalho.toml"));
        // A second time is an upgrade: the configuration is the owner's.
        let config = at("/etc/atalho/atalho.toml");
        fs::write(&config, "mine").expect("written");
        install();
        assert_eq!(fs::read_to_string(&config).expect("there"), "mine");
    }

    #[test]
    fn the_newest_version_of_the_c_library_counts() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) read\n0000 DF *UND* 0000 (GLIBC_2.34) x\n\
                       0000 DF *UND* 0000 (GLIBC_2.9) y\n0000 (GLIBC_PRIVATE) z\n";
        assert_eq!(newest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("no symbols"), None);
    }
}
