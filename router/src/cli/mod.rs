//! The command line: flags in, a configuration or a report out.

mod check;
mod completions;
mod doctor;
mod endpoint;
mod environment;
mod explain;
mod fleet_flags;
mod heap;
mod help;
mod serve;
mod status;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};

/// A gateway for fleets of LLM inference servers.
///
/// Requests that start with the same prompt go to the same instance, so that its KV cache is used
/// again; once an instance has its share of requests in flight, the next ones overflow to a less
/// busy one. Bodies are carried by the kernel where that pays, else by user space.
#[derive(Parser, Debug)]
#[command(name = "atalho", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  atalho serve --backend http://10.0.0.11:8000 --backend http://10.0.0.12:8000
  atalho check /etc/atalho/atalho.toml && systemctl reload atalho
  atalho status --config /etc/atalho/atalho.toml
  atalho explain --config /etc/atalho/atalho.toml request.json
  atalho endpoint list --config /etc/atalho/atalho.toml
  atalho doctor

Each command explains itself: atalho COMMAND --help";

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Options),
    Check(check::Options),
    Status(status::Options),
    Explain(Box<explain::Options>),
    Endpoint(endpoint::Options),
    Doctor(doctor::Options),
    Completions(completions::Options),
    Help(help::Options),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version come this way as well, and are no failures.
        Err(error) => environment::name_variables(error, &built()).exit(),
    };
    let result = match cli.command {
        Command::Serve(options) => serve::serve(options),
        Command::Check(options) => check::check(&options),
        Command::Status(options) => status::status(&options),
        Command::Explain(options) => explain::explain(&options),
        Command::Endpoint(options) => endpoint::endpoint(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Completions(options) => completions::completions(&options),
        Command::Help(options) => help::help(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The definition of all commands, with what clap adds to it.
fn built() -> clap::Command {
    let mut program = Cli::command();
    program.build();
    program
}

/// Prints a report. A reader that has seen enough (`| head`) is no error.
fn print(report: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(report.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A number of things, with an s where it takes one.
fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_consistent_and_every_flag_is_explained() {
        let command = super::built();
        command.clone().debug_assert();
        command.get_subcommands().for_each(explains_itself);
    }

    fn explains_itself(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments().filter(|arg| !arg.is_global_set()) {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
        command.get_subcommands().for_each(explains_itself);
    }
}
