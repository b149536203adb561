//! `atalho help`: clap's own knows no `--help`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

/// Print the help of the program or of a command.
///
/// `atalho help COMMAND` says the same as `atalho COMMAND --help`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// The command; all are listed without one.
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(super) fn help(options: &Options) -> anyhow::Result<ExitCode> {
    let mut program = super::built();
    let text = match &options.command {
        None => program.render_long_help(),
        Some(name) => match program.find_subcommand_mut(name) {
            Some(command) => command.render_long_help(),
            None => bail!("there is no command `{name}`; `atalho help` lists them"),
        },
    };
    super::print(&text.to_string())?;
    Ok(ExitCode::SUCCESS)
}
