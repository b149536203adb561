//! `[health]`: how an instance's health is found out.

use std::time::Duration;

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, ms, secs},
    value::duration_text,
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "health.active",
        kind: Kind::Bool,
        default: Some("true"),
        live: true,
        about: "Whether instances are asked for their health. Failed requests count in any case, \
                see `health.eject_after`.",
    },
    Setting {
        path: "health.path",
        kind: Kind::Path,
        default: Some(r#""/health""#),
        live: true,
        about: "Path of the check. Any answer with a status below 500 is good: a server without \
                this path answers 404 and is alive all the same.",
    },
    Setting {
        path: "health.interval",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "Between the starts of two checks of one instance. The first comes at once, the \
                checks of different instances are spread over the interval.",
    },
    Setting {
        path: "health.timeout",
        kind: Kind::Duration { min: ms(1), max: secs(600), zero: None },
        default: Some(r#""2s""#),
        live: true,
        about: "For one check, with connecting. At most `health.interval`.",
    },
    Setting {
        path: "health.rise",
        kind: Kind::Integer { min: 1, max: 1000, unit: "checks" },
        default: Some("2"),
        live: true,
        about: "Good checks in a row that bring an instance back. One that has never answered \
                needs only one.",
    },
    Setting {
        path: "health.fall",
        kind: Kind::Integer { min: 1, max: 1000, unit: "checks" },
        default: Some("3"),
        live: true,
        about: "Bad checks in a row that take an instance out. An instance that has never \
                answered is out after the first refused connection.",
    },
    Setting {
        path: "health.eject_after",
        kind: Kind::Integer { min: 0, max: 1000, unit: "requests" },
        default: Some("5"),
        live: true,
        about: "Requests in a row that failed by the instance's fault (no connection, a reset, a \
                5xx answer) and eject it for a while. Neither a client's own mistake (4xx), nor \
                501, nor overload (429, 503, 529) counts, and what fails again and again for the \
                same prompt, or for one client of several, counts once. 0 turns ejection off.",
    },
    Setting {
        path: "health.eject_for",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "Length of the first ejection. Each further one is twice as long, until requests \
                succeed again.",
    },
    Setting {
        path: "health.eject_max",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""60s""#),
        live: true,
        about: "Longest ejection. At least `health.eject_for`.",
    },
    Setting {
        path: "health.max_ejection_percent",
        kind: Kind::Integer { min: 0, max: 100, unit: "%" },
        default: Some("50"),
        live: true,
        about: "Share of a variant's reachable instances that failed requests may eject at the \
                same time, rounded down: of one instance, and of none, never any. Health checks \
                are not bound by it.",
    },
    Setting {
        path: "health.suspect_after",
        kind: Kind::Integer { min: 0, max: 1000, unit: "requests" },
        default: Some("3"),
        live: true,
        about: "Requests in a row that waited for the first byte of a body until their clients \
                left or their time was over, while none got one, and that make the instance \
                suspect: it gets two requests at a time until one is answered. They count by \
                prefix and client as failures do, and `health.max_ejection_percent` bounds this \
                as well. 0 turns it off.",
    },
    Setting {
        path: "health.suspect_wait",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "The shortest wait that counts for `health.suspect_after`: clients that give up \
                sooner say nothing about the instance.",
    },
    Setting {
        path: "health.refused_grace",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: Some("as long as any") },
        default: Some(r#""10s""#),
        live: true,
        about: "Longest pause within a response once its instance's port has refused a \
                connection. A server that is stopping may close its port and still finish its \
                streams; one that sends nothing any more is not coming back to them.",
    },
    Setting {
        path: "health.resend",
        kind: Kind::Bool,
        default: Some("false"),
        live: true,
        about: "Whether a request that waits for the first byte of an instance which is found down \
                is sent to another one, although the first may have executed it, and may answer it \
                yet. Otherwise it is answered with 503, except when its method is idempotent.",
    },
    Setting {
        path: "health.overload_for",
        kind: Kind::Duration { min: ms(10), max: secs(600), zero: Some("never") },
        default: Some(r#""1s""#),
        live: true,
        about: "How long an instance that answered 429, 503 or 529 gets only requests that no \
                other instance can take. A `Retry-After` of its answer makes that longer.",
    },
    Setting {
        path: "health.overload_max",
        kind: Kind::Duration { min: ms(10), max: secs(3600), zero: None },
        default: Some(r#""10s""#),
        live: true,
        about: "The longest that a `Retry-After` makes it. At least `health.overload_for`.",
    },
    Setting {
        path: "health.resolve",
        kind: Kind::Duration { min: ms(100), max: DAY, zero: None },
        default: Some(r#""30s""#),
        live: true,
        about: "Between two look-ups of an instance's host name. A failed look-up keeps the \
                addresses that were known.",
    },
];

/// `[health]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether instances are asked for their health.
    pub active: bool,
    /// Path of the check, asked with GET.
    pub path: String,
    /// Between the starts of two checks of an instance.
    pub interval: Duration,
    /// For one check.
    pub timeout: Duration,
    /// Good checks in a row that bring an instance back.
    pub rise: u32,
    /// Bad checks in a row that take an instance out.
    pub fall: u32,
    /// Failed requests in a row that eject an instance; 0 for never.
    pub eject_after: u32,
    /// Length of the first ejection; each further one is twice as long.
    pub eject_for: Duration,
    /// Longest ejection.
    pub eject_max: Duration,
    /// Share of a variant's reachable instances that may be ejected, in percent.
    pub max_ejection_percent: u32,
    /// Unanswered requests in a row that make an instance suspect; 0 for never.
    pub suspect_after: u32,
    /// The shortest wait that counts as unanswered.
    pub suspect_wait: Duration,
    /// Longest pause within a response once its instance refuses connections; zero for no limit of
    /// its own.
    pub refused_grace: Duration,
    /// Whether requests that wait at an instance that is found down are sent elsewhere.
    pub resend: bool,
    /// How long an overloaded instance is spared; zero for never.
    pub overload_for: Duration,
    /// The longest that it is, whatever it asks for.
    pub overload_max: Duration,
    /// Between two look-ups of an instance's host name.
    pub resolve: Duration,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Health {
    let health = Health {
        active: s.bool("active"),
        path: s.path("path"),
        interval: s.duration("interval"),
        timeout: s.duration("timeout"),
        rise: s.integer("rise"),
        fall: s.integer("fall"),
        eject_after: s.integer("eject_after"),
        eject_for: s.duration("eject_for"),
        eject_max: s.duration("eject_max"),
        max_ejection_percent: s.integer("max_ejection_percent"),
        suspect_after: s.integer("suspect_after"),
        suspect_wait: s.duration("suspect_wait"),
        refused_grace: s.duration("refused_grace"),
        resend: s.bool("resend"),
        overload_for: s.duration("overload_for"),
        overload_max: s.duration("overload_max"),
        resolve: s.duration("resolve"),
    };
    if health.timeout > health.interval {
        let text = duration_text(health.interval);
        s.issue("timeout", format!("is longer than health.interval ({text}): make it shorter"));
    }
    if health.eject_max < health.eject_for {
        let text = duration_text(health.eject_for);
        s.issue("eject_max", format!("is shorter than health.eject_for ({text}): make it longer"));
    }
    if health.overload_max < health.overload_for {
        let text = duration_text(health.overload_for);
        let message = format!("is shorter than health.overload_for ({text}): make it longer");
        s.issue("overload_max", message);
    }
    health
}
