//! Why an instance is as it is, since when, and what happened last. For people: nothing here has a
//! part in the choice of an instance.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use super::{FailureKind, Status};

/// What is known of an instance's condition.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// What speaks against it, if anything.
    pub status: Status,
    /// Since when it has this status.
    pub since: SystemTime,
    /// What led to the status, as a clause; `None` while nothing speaks against the instance.
    pub why: Option<String>,
    /// When requests will be tried there again; `None` when it is not ejected.
    pub ejected_until: Option<SystemTime>,
    /// The last health check, if there was one.
    pub last_check: Option<CheckNote>,
    /// The last request that failed by the instance's fault, if there was one.
    pub last_failure: Option<FailureNote>,
}

/// What came of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckNote {
    /// When it ended.
    pub at: SystemTime,
    /// What was wrong; `None` for a good one.
    pub error: Option<String>,
}

/// A request that failed by the instance's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureNote {
    /// When it failed.
    pub at: SystemTime,
    /// How.
    pub kind: FailureKind,
}

/// What the control thread saw of one instance last.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    check: Option<CheckNote>,
    /// What was wrong at the last bad check.
    check_error: Option<String>,
    /// What was wrong at the last look-up of the host name, unless that went well.
    lookup_error: Option<String>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A health check has ended.
    pub(super) fn check(&self, result: Result<(), String>) {
        let mut noted = self.lock();
        let error = result.err();
        if error.is_some() {
            noted.check_error.clone_from(&error);
        }
        noted.check = Some(CheckNote { at: SystemTime::now(), error });
    }

    /// The host name has been looked up.
    pub(super) fn lookup(&self, result: Result<(), String>) {
        self.lock().lookup_error = result.err();
    }

    /// What is known about `status`. Its times are the caller's to fill in.
    pub(super) fn diagnosis(&self, status: Status, failure: Option<FailureNote>) -> Diagnosis {
        let noted = self.lock();
        Diagnosis {
            status,
            since: SystemTime::now(),
            why: noted.why(status, failure),
            ejected_until: None,
            last_check: noted.check.clone(),
            last_failure: failure,
        }
    }
}

impl Noted {
    fn why(&self, status: Status, failure: Option<FailureNote>) -> Option<String> {
        let with = |what: &str, error: Option<&str>| match error {
            Some(error) => format!("{what}: {error}"),
            None => what.to_owned(),
        };
        Some(match status.as_str() {
            "removed" => "no longer in the configuration".to_owned(),
            "draining" => "`drain = true` in the configuration".to_owned(),
            "unresolved" => {
                with("its host name has no known address", self.lookup_error.as_deref())
            }
            "down" => with("its health checks fail", self.check_error.as_deref()),
            "ejected" => {
                let kind = failure.map(|failure| failure.kind.to_string());
                with("its requests fail", kind.as_deref())
            }
            "suspect" => "requests wait for its first byte until they are given up".to_owned(),
            "overloaded" => "it answered that it has too many requests".to_owned(),
            _ => return None,
        })
    }
}
