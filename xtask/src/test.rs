//! Every check, in one row.

use std::{
    io::{BufRead, BufReader, IsTerminal},
    path::Path,
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    command::{Cmd, is_root},
    ebpf,
    setup::{self, TestTools},
    steps::Steps,
    toolchain,
    workspace::Workspace,
};

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Only format, lints and unit tests: a minute instead of many.
    #[arg(long)]
    quick: bool,
    /// Seconds that each fuzz target runs.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    fuzz_seconds: u32,
    /// Only tests whose name contains this, and no other check.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Runs the checks.
///
/// `false` when any of them failed; all run all the same, so that one run shows everything.
pub(crate) fn test(workspace: &Workspace, options: &Options) -> Result<bool> {
    ebpf::build_or_explain(workspace)?;
    let tools = if options.quick { None } else { Some(setup::test_tools(workspace)?) };
    workspace.cargo("build").arg("--workspace").run()?;
    if !is_root() {
        eprintln!("warning: not root: tests of the kernel programs will say that they are skipped");
    }
    let mut steps = Steps::default();
    if options.filter.is_empty() {
        lints(workspace, &mut steps);
        if !options.quick {
            steps.run("documentation", || {
                let doc = workspace.cargo("doc").args(["--workspace", "--no-deps"]);
                doc.env("RUSTDOCFLAGS", "-D warnings").run()
            });
            steps.run("documentation tests", || {
                workspace.cargo("test").args(["--workspace", "--doc", "--quiet"]).run()
            });
            loom(workspace, &mut steps);
            fuzz(workspace, options, &mut steps);
        }
    }
    let mut summary = String::from("no tests ran");
    let skipped = workspace.target.join("skipped-tests.txt");
    steps.run("tests", || {
        std::fs::write(&skipped, "")?;
        let (result, last) = tests(workspace, options, tools.as_ref(), &skipped)?;
        summary = last;
        result
    });
    for line in std::fs::read_to_string(&skipped).unwrap_or_default().lines() {
        summary += &format!("\nskipped  {line}");
    }
    Ok(steps.finish(&summary))
}

fn lints(workspace: &Workspace, steps: &mut Steps) {
    steps.run("format", || workspace.cargo("fmt").args(["--all", "--check"]).run());
    steps.run("lints", || {
        let clippy = workspace.cargo("clippy").args(["--workspace", "--all-targets", "--quiet"]);
        clippy.args(["--", "-D", "warnings"]).run()
    });
}

/// The hand-over protocol under the model checker, which replaces the atomics by its own.
fn loom(workspace: &Workspace, steps: &mut Steps) {
    steps.run("model checker", || {
        // Other flags for the compiler: a build directory of its own, or all would be built twice.
        workspace
            .cargo("test")
            .args(["--package", "router-ebpf", "--release"])
            .args(["--test", "handover_loom", "--test", "splice_loom"])
            .arg("--target-dir")
            .arg(workspace.target.join("loom"))
            .env("RUSTFLAGS", "--cfg loom")
            .run()
    });
}

/// A short run of each fuzz target.
fn fuzz(workspace: &Workspace, options: &Options, steps: &mut Steps) {
    let dir = workspace.root.join("tests/fuzz");
    let Some(nightly) = toolchain::nightly() else {
        steps.skip("fuzzing", "no nightly: `rustup toolchain install nightly`".into());
        return;
    };
    match setup::cargo_tool(workspace, "cargo-fuzz", "0.13.2") {
        Ok(true) => {}
        Ok(false) => return steps.skip("fuzzing", "no cargo-fuzz".into()),
        Err(error) => return steps.run("fuzzing", || Err(error)),
    }
    let fuzz = |task: &str| {
        Cmd::new("rustup")
            .args(["run", &nightly, "cargo", "fuzz", task, "--fuzz-dir"])
            .arg(&dir)
            .dir(&workspace.root)
            .env_remove("RUSTFLAGS")
    };
    steps.run("fuzzing", || {
        let build_dir = workspace.target.join("fuzz");
        for target in fuzz("list").read()?.split_whitespace() {
            // What was found before, and what is worth starting from.
            let corpus = build_dir.join("corpus").join(target);
            std::fs::create_dir_all(&corpus)?;
            let seeds = dir.join("seeds").join(target);
            let seconds = format!("-max_total_time={}", options.fuzz_seconds);
            fuzz("run")
                .arg("--target-dir")
                .arg(&build_dir)
                .arg(target)
                .arg(corpus)
                .args(seeds.is_dir().then_some(seeds))
                .args(["--", &seconds, "-verbosity=0", "-print_final_stats=1"])
                .run()?;
        }
        Ok(())
    });
}

/// Unit, property and integration tests; what came of them, and the runner's last lines.
fn tests(
    workspace: &Workspace,
    options: &Options,
    tools: Option<&TestTools>,
    skipped: &Path,
) -> Result<(Result<()>, String)> {
    let nextest = match tools {
        Some(tools) => tools.nextest,
        None => setup::has_nextest(),
    };
    let mut command = match nextest {
        true => workspace.cargo("nextest").args(["run", "--no-fail-fast"]),
        false => workspace.cargo("test").arg("--no-fail-fast").arg("--tests"),
    };
    command = match options.quick {
        true => command.args(["--workspace", "--lib", "--bins"]),
        false => command.arg("--workspace"),
    };
    command = match nextest {
        true => command.args(&options.filter),
        // It takes one filter only.
        false => command.arg("--").args(options.filter.first()),
    };
    // Each test that cannot run here adds a line.
    command = command.env("ATALHO_SKIPPED_TESTS", skipped);
    if let Some(tools) = tools {
        command = command.env("ATALHO_TEST_PYTHON", &tools.python);
    }
    if nextest { run_nextest(command) } else { run_cargo_test(command) }
}

/// Nextest writes to standard error. Behind its summary it lists what failed: we show that list
/// again, and the summary last.
fn run_nextest(command: Cmd) -> Result<(Result<()>, String)> {
    let colour = if std::io::stderr().is_terminal() { "always" } else { "never" };
    let mut command = command.env("CARGO_TERM_COLOR", colour).into_command();
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stderr.take().context("a pipe")?).lines();
    let mut last = Vec::new();
    for line in lines {
        let line = line?;
        eprintln!("{line}");
        if !last.is_empty() || line.contains("Summary") && line.contains("tests run") {
            last.push(line);
        }
    }
    last.retain(|line: &String| !line.starts_with("error: "));
    if !last.is_empty() {
        last.rotate_left(1);
    }
    Ok((ended(child.wait()?), last.join("\n")))
}

/// `cargo test` writes a result per binary to standard output; the sum is ours.
fn run_cargo_test(command: Cmd) -> Result<(Result<()>, String)> {
    let mut command = command.into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    let mut sum = [0_u32; 3];
    for line in lines {
        let line = line?;
        println!("{line}");
        if let Some(counts) = counts(&line) {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    let [passed, failed, ignored] = sum;
    Ok((ended(child.wait()?), format!("{passed} passed, {failed} failed, {ignored} ignored")))
}

fn ended(status: std::process::ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("see above ({status})");
    }
    Ok(())
}

/// The numbers in `test result: ok. 11 passed; 0 failed; 0 ignored; ...`.
fn counts(line: &str) -> Option<[u32; 3]> {
    let rest = line.strip_prefix("test result: ")?;
    let count = |word: &str| {
        let part = rest.split(['.', ';']).find(|part| part.trim_end().ends_with(word))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some([count("passed")?, count("failed")?, count("ignored")?])
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn reads_results_of_the_test_harness() {
        let line =
            "test result: FAILED. 11 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(line), Some([11, 2, 1]));
        assert_eq!(counts("running 3 tests"), None);
    }
}
