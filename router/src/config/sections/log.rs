//! `[log]`: the program's own log.

use crate::config::{
    section::Section,
    setting::{Kind, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "log.format",
        kind: Kind::Choice(&["text", "json"]),
        default: Some(r#""text""#),
        live: false,
        about: "How log lines are written: for people, or one JSON object per line.",
    },
    Setting {
        path: "log.level",
        kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        default: Some(r#""info""#),
        live: false,
        about: "The least severe level that is written.",
    },
];

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line is written.
    pub format: LogFormat,
    /// The least severe level that is written.
    pub level: LogLevel,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Severity of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something is broken.
    Error,
    /// Something needs attention.
    Warn,
    /// Changes of state.
    Info,
    /// Decisions.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name used in configurations, which is also a `tracing` filter directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Log {
    Log {
        format: s.choice("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
        level: s.choice(
            "level",
            &[LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace]
                .map(|level| (level.as_str(), level)),
        ),
    }
}
