//! Running other programs, with errors that name the whole command.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// A command line that is shown before it runs, and in errors.
pub(crate) struct Cmd {
    command: Command,
    quiet: bool,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Cmd {
        Cmd { command: Command::new(program), quiet: false }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Cmd {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Cmd {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Cmd {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Cmd {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Cmd {
        self.command.current_dir(dir);
        self
    }

    /// Does not show the command line.
    pub(crate) fn quiet(mut self) -> Cmd {
        self.quiet = true;
        self
    }

    /// Runs it with our own output; fails unless it succeeds.
    pub(crate) fn run(mut self) -> Result<()> {
        self.show();
        let line = self.line();
        let status = self
            .command
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("cannot start `{line}`"))?;
        if !status.success() {
            bail!("`{line}` failed: {status}");
        }
        Ok(())
    }

    /// Runs it and gives what it printed to standard output; fails unless it succeeds.
    pub(crate) fn read(mut self) -> Result<String> {
        let line = self.line();
        let output = self.output(&line)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{line}` failed: {}\n{}", output.status, said.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no text"))
    }

    /// Whether it can be started and succeeds. Shows nothing.
    pub(crate) fn succeeds(mut self) -> bool {
        let line = self.line();
        self.output(&line).is_ok_and(|output| output.status.success())
    }

    /// The command, for who wants to start it in another way.
    pub(crate) fn into_command(self) -> Command {
        self.show();
        self.command
    }

    fn output(&mut self, line: &str) -> Result<Output> {
        self.command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))
    }

    fn show(&self) {
        if !self.quiet {
            eprintln!("$ {}", self.line());
        }
    }

    /// The command line as one would type it; not quoted, for reading only.
    fn line(&self) -> String {
        let program = Path::new(self.command.get_program());
        // Cargo is called by its full path; its name says as much.
        let name = program.file_name().unwrap_or(program.as_os_str());
        let set = self.command.get_envs().filter_map(|(name, value)| {
            Some(format!("{}={}", name.to_string_lossy(), value?.to_string_lossy()))
        });
        let words = std::iter::once(name.to_owned())
            .chain(self.command.get_args().map(OsString::from))
            .map(|word| word.to_string_lossy().into_owned());
        set.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// Whether a program of this name is on the PATH, or where the system's own are.
pub(crate) fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .any(|dir| dir.join(name).is_file())
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether we run in CI, where nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
