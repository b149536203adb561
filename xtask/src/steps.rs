//! A row of checks that all run, and the summary at the end.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::command::in_ci;

/// What came of a check.
enum End {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The checks so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, End, Duration)>,
}

impl Steps {
    /// Runs a check; a failure is remembered, and the next one still runs.
    pub(crate) fn run(&mut self, name: &'static str, check: impl FnOnce() -> Result<()>) {
        eprintln!("\n=== {name}");
        let start = Instant::now();
        let end = match check() {
            Ok(()) => End::Passed,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                End::Failed(format!("{error:#}"))
            }
        };
        self.done.push((name, end, start.elapsed()));
    }

    /// Says that a check does not run here. In CI that is a failure.
    pub(crate) fn skip(&mut self, name: &'static str, why: String) {
        eprintln!("\n=== {name}: skipped, {why}");
        let end = if in_ci() {
            End::Failed(format!("{why}; CI skips nothing"))
        } else {
            End::Skipped(why)
        };
        self.done.push((name, end, Duration::ZERO));
    }

    /// Prints the table of what came of each check, then `last`; says whether all passed.
    pub(crate) fn finish(self, last: &str) -> bool {
        println!();
        let mut good = true;
        for (name, end, spent) in &self.done {
            let spent = format!("{:.1} s", spent.as_secs_f64());
            match end {
                End::Passed => println!("passed   {name:<20} {spent:>8}"),
                End::Skipped(why) => println!("skipped  {name:<20} {why}"),
                End::Failed(why) => {
                    println!("FAILED   {name:<20} {spent:>8}  {why}");
                    good = false;
                }
            }
        }
        println!("{last}");
        good
    }
}
