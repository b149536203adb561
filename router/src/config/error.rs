//! What is wrong with a configuration, where, and what to do.

use std::{fmt, path::Path};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Line and column, from 1; `None` for settings that came from flags.
    pub at: Option<(usize, usize)>,
    /// The setting, as `endpoint[0].variant[1].weight`; empty when the file itself is wrong.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Where the configuration came from: a file, or `command line`.
    pub source_name: String,
    /// At least one.
    pub issues: Vec<Issue>,
}

impl ConfigError {
    pub(super) fn of_file(path: &Path, message: impl Into<String>) -> Self {
        let issue = Issue { at: None, field: String::new(), message: message.into() };
        Self { source_name: path.display().to_string(), issues: vec![issue] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.source_name)?;
            if let Some((line, column)) = issue.at {
                write!(f, ":{line}:{column}")?;
            }
            if !issue.field.is_empty() {
                write!(f, ": {}", one_line(&issue.field))?;
            }
            write!(f, ": {}", one_line(&issue.message))?;
        }
        Ok(())
    }
}

/// Values are quoted as they stand in the file, and must not break a terminal or a log.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}
