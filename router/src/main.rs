//! The `atalho` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    router::cli::main()
}
