//! The names of an engine's reasons in metrics, logs and status.

use super::sockmap::{Decline, HandBack};

impl HandBack {
    /// The name used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crossed => "crossed",
            Self::Backlog => "backlog",
            Self::NoTarget => "no_target",
            Self::Malformed => "malformed",
            Self::TooManyChunks => "too_many_chunks",
            Self::TooLong => "too_long",
            Self::Hole => "hole",
            Self::TargetReadable => "target_readable",
            Self::Bypassed => "bypassed",
            Self::Stalled => "stalled",
        }
    }
}

impl Decline {
    /// The name used in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::NotEstablished => "not_established",
            Self::NoRoom => "no_room",
            Self::System => "system",
            Self::Family => "family",
            Self::Options => "options",
            Self::Segments => "segments",
            Self::Window => "window",
            Self::SendQueue => "send_queue",
            Self::Unknown => "unknown",
            Self::Interface => "interface",
            Self::Stalled => "stalled",
        }
    }
}
