//! Where things are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::Cmd;

/// The checkout and its build directory.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// `target`, or where `CARGO_TARGET_DIR` and the like put it.
    pub(crate) target: PathBuf,
    cargo: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Result<Workspace> {
        let cargo = std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from);
        let metadata = Cmd::new(&cargo)
            .args(["metadata", "--format-version=1", "--no-deps"])
            .dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .read()?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
        let path = |field: &str| {
            metadata[field].as_str().map(PathBuf::from).with_context(|| format!("no {field}"))
        };
        Ok(Workspace { root: path("workspace_root")?, target: path("target_directory")?, cargo })
    }

    /// `cargo TASK` in the root of the workspace.
    pub(crate) fn cargo(&self, task: &str) -> Cmd {
        Cmd::new(&self.cargo).arg(task).dir(&self.root)
    }

    /// The cargo that runs us, or the one on the PATH.
    pub(crate) fn cargo_path(&self) -> &Path {
        &self.cargo
    }

    /// A built binary.
    pub(crate) fn binary(&self, name: &str, release: bool) -> PathBuf {
        self.target.join(if release { "release" } else { "debug" }).join(name)
    }

    /// A path as seen from the root of the workspace, for reading.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}
