//! Development tasks. `cargo xtask --help` lists them.

mod children;
mod command;
#[cfg(test)]
mod docs;
mod doctor;
mod ebpf;
mod links;
mod package;
mod run;
mod service_model;
mod setup;
mod steps;
mod test;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use workspace::Workspace;

/// Builds, runs, tests and measures Atalho.
///
/// Every task looks for what it needs, installs what is missing where it can, and otherwise says in
/// one line what to install.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building and testing need: the eBPF toolchain, the Python client, cargo tools.
    Setup,
    /// Build the kernel programs (target/bpf/atalho-ebpf), unless they are up to date.
    BuildEbpf {
        /// Build them even if nothing changed.
        #[arg(long)]
        force: bool,
    },
    /// Build the kernel programs and the gateway with them inside: target/PROFILE/atalho.
    Build(Profile),
    /// Try it: a simulated fleet of four engines and the gateway on loopback, until Ctrl-C.
    Run(run::Options),
    /// Run every check: format, lints, documentation, model checker, fuzzing, all tests.
    Test(test::Options),
    /// Measure; what follows is passed on (`cargo xtask bench --help` lists it).
    #[command(disable_help_flag = true)]
    Bench {
        /// Options of the benchmarks.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Say what of the toolchain is there, what is missing, and which engines work on this host.
    Doctor,
    /// Write what botocore says of SageMaker's control API to router/src/aws/service/sagemaker.json.
    ServiceModel,
    /// Build a release and pack it: binary, completions, systemd unit, licence, pages, in
    /// target/package; its debug symbols beside it.
    Package,
}

/// How to compile.
#[derive(Args, Clone, Copy)]
struct Profile {
    /// Compile for production: slower to build, faster to run.
    #[arg(long)]
    release: bool,
}

fn main() -> ExitCode {
    match task(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task; `false` means that it failed and has said why.
fn task(task: Task) -> Result<bool> {
    let workspace = Workspace::find()?;
    match task {
        Task::Setup => setup::setup(&workspace)?,
        Task::BuildEbpf { force } => ebpf::build(&workspace, force)?,
        Task::Build(profile) => drop(build(&workspace, profile)?),
        Task::Run(options) => run::run(&workspace, &options)?,
        Task::Test(options) => return test::test(&workspace, &options),
        Task::Bench { options } => bench(&workspace, &options)?,
        Task::Doctor => doctor::doctor(&workspace)?,
        Task::ServiceModel => service_model::write(&workspace)?,
        Task::Package => package::package(&workspace)?,
    }
    Ok(true)
}

/// Builds the kernel programs where that is possible, then the gateway; says where it is.
fn build(workspace: &Workspace, profile: Profile) -> Result<std::path::PathBuf> {
    ebpf::build_or_explain(workspace)?;
    workspace.cargo("build").args(["-p", "router"]).args(profile.flags()).run()?;
    let binary = workspace.binary("atalho", profile.release);
    println!("built {}", workspace.relative(&binary).display());
    Ok(binary)
}

/// What the benchmarks answer to `--help`. A test of theirs keeps it as it is.
const BENCH_HELP: &str = include_str!("../../bench/help.txt");

fn bench(workspace: &Workspace, options: &[String]) -> Result<()> {
    if options.iter().any(|option| option == "--help" || option == "-h") {
        print!("{BENCH_HELP}");
        return Ok(());
    }
    ebpf::build_or_explain(workspace)?;
    workspace.cargo("build").args(["--release", "-p", "router", "-p", "bench"]).run()?;
    command::Cmd::new(workspace.binary("atalho-bench", true)).args(options).run()
}

impl Profile {
    fn flags(self) -> &'static [&'static str] {
        if self.release { &["--release"] } else { &[] }
    }
}
