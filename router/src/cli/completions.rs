//! `atalho completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell.
///
/// For example: `atalho completions bash > /etc/bash_completion.d/atalho`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn completions(options: &Options) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut super::Cli::command(), "atalho", &mut script);
    super::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
