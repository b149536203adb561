//! Flags that come from the environment, where nobody sees them.

use clap::{
    Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Adds to an error about flags that exclude each other which of them came from which variable.
pub(super) fn name_variables(mut error: clap::Error, program: &Command) -> clap::Error {
    if error.kind() != ErrorKind::ArgumentConflict {
        return error;
    }
    let mut flags = Vec::new();
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        match error.get(kind) {
            Some(ContextValue::String(flag)) => flags.push(flag.clone()),
            Some(ContextValue::Strings(many)) => flags.extend(many.iter().cloned()),
            _ => {}
        }
    }
    let set = |flag: &String| {
        let variable =
            variable_of(flag, program).filter(|name| std::env::var_os(name).is_some())?;
        let long = flag.split(' ').next().unwrap_or(flag);
        let given = |arg: std::ffi::OsString| {
            arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(long))
        };
        // A flag on the command line goes before its variable.
        (!std::env::args_os().any(given)).then(|| format!("{long} is set by {variable}"))
    };
    let tips: Vec<StyledStr> = flags
        .iter()
        .filter_map(set)
        .map(|what| format!("{what} in the environment: unset it, or leave the other out").into())
        .collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// The environment variable of a flag as clap writes it in errors (`--listen <ADDRESS>`).
fn variable_of(flag: &str, program: &Command) -> Option<String> {
    let own = program.get_arguments().find(|argument| argument.to_string() == flag);
    let variable = own.and_then(|argument| Some(argument.get_env()?.to_str()?.to_owned()));
    variable.or_else(|| program.get_subcommands().find_map(|command| variable_of(flag, command)))
}
