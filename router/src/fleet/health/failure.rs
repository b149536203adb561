//! What a request says about its instance.

use std::{fmt, net::IpAddr};

/// How a request failed by its instance's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// The connection ended before the response did.
    Reset,
    /// No answer in time.
    Timeout,
    /// What it sent is not HTTP.
    Protocol,
    /// It answered with a status of 500 or more that stands for a fault of its own.
    Status,
}

impl FailureKind {
    /// The name used in status pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Status => "status",
        }
    }

    /// Whether a good health check says that the cause is gone. A server may well answer checks
    /// while all its requests fail.
    pub(super) const fn cured_by_check(self) -> bool {
        matches!(self, Self::Connect | Self::Reset)
    }

    /// Whether the request itself may be the cause: one that kills its engine, or that its engine
    /// fails at, does so wherever it is sent.
    pub(super) const fn may_be_the_request_s(self) -> bool {
        !matches!(self, Self::Connect)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Reset => "connection lost",
            Self::Timeout => "no answer in time",
            Self::Protocol => "malformed answer",
            Self::Status => "5xx answers",
        })
    }
}

/// What the status of an answer says about the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It works.
    Well,
    /// It has more requests than it can take: load, not a fault.
    Overloaded,
    /// It failed.
    Failed,
    /// Nothing: what was asked for is not there, whoever is asked.
    Neither,
}

impl Verdict {
    /// By status: 429, 503 (RFC 9110 section 15.6.4) and 529 (of Anthropic's API) stand for
    /// overload, 501 and 505 for what the server never does, and other 5xx for its faults. Other
    /// 4xx are the client's own.
    pub const fn of_status(status: u16) -> Self {
        match status {
            429 | 503 | 529 => Self::Overloaded,
            501 | 505 => Self::Neither,
            500.. => Self::Failed,
            _ => Self::Well,
        }
    }
}

/// Whose request failed: the same failure again of the same prompt or client says little new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The hash of the request's prefix, where it has one.
    pub prefix: Option<u64>,
    /// Where it came from.
    pub client: IpAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_tell_load_from_faults_and_from_mistakes() {
        for status in [200, 301, 400, 401, 404, 408, 422, 499] {
            assert_eq!(Verdict::of_status(status), Verdict::Well, "{status}");
        }
        for status in [429, 503, 529] {
            assert_eq!(Verdict::of_status(status), Verdict::Overloaded, "{status}");
        }
        for status in [501, 505] {
            assert_eq!(Verdict::of_status(status), Verdict::Neither, "{status}");
        }
        for status in [500, 502, 504, 507, 599, 999] {
            assert_eq!(Verdict::of_status(status), Verdict::Failed, "{status}");
        }
    }
}
