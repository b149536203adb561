//! `[timeouts]`: how long things may take.

use std::time::Duration;

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, ms, secs},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "timeouts.head",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""30s""#),
        live: true,
        about: "From the first byte of a request to the end of its head.",
    },
    Setting {
        path: "timeouts.body_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""60s""#),
        live: true,
        about: "Longest pause within a request body. There is no limit on its total time.",
    },
    Setting {
        path: "timeouts.connect",
        kind: Kind::Duration { min: ms(1), max: secs(600), zero: None },
        default: Some(r#""5s""#),
        live: true,
        about: "To open a connection to an instance. On expiry the request goes to the next one.",
    },
    Setting {
        path: "timeouts.first_byte",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""10m""#),
        live: true,
        about: "From the end of the request to the first byte of the response's body, or to its \
                head where there is no body. Long, because the prefill of a long prompt, or a queue \
                in front of it, sends nothing for minutes, or only the head.",
    },
    Setting {
        path: "timeouts.stream_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""5m""#),
        live: true,
        about: "Longest pause within a response's body, once it has begun, and longest time in which \
                nothing moves in a WebSocket, either way. There is no limit on the total time of \
                either.",
    },
    Setting {
        path: "timeouts.client_idle",
        kind: Kind::Duration { min: ms(10), max: DAY, zero: None },
        default: Some(r#""120s""#),
        live: true,
        about: "How long a client connection may wait for its next request. Longer than clients \
                keep idle connections (90 s is common), so that it is the client who closes: the \
                other way round a request can meet a close.",
    },
    Setting {
        path: "timeouts.pool_idle",
        kind: Kind::Duration { min: ms(1), max: secs(3600), zero: None },
        default: Some(r#""3s""#),
        live: true,
        about: "How long an idle connection to an instance is kept. Shorter than the instances \
                do (5 s is common), for the same reason.",
    },
    Setting {
        path: "timeouts.lame_duck",
        kind: Kind::Duration { min: ms(1), max: secs(3600), zero: Some("stop accepting at once") },
        default: Some(r#""0s""#),
        live: true,
        about: "How long connections are still accepted after SIGTERM, while `/readyz` says 503 already. A load \
                balancer has to see that first: give it as long as two or three of its checks take.",
    },
    Setting {
        path: "timeouts.drain",
        kind: Kind::Duration { min: ms(1), max: DAY, zero: Some("stop at once") },
        default: Some(r#""5m""#),
        live: true,
        about: "How long open exchanges may go on once no connections are accepted. Make it longer than \
                your longest stream, and shorter than what kills the process (in Kubernetes \
                `terminationGracePeriodSeconds`).",
    },
];

/// `[timeouts]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// Between two reads of a request body.
    pub body_idle: Duration,
    /// To open a connection to an instance.
    pub connect: Duration,
    /// From the end of a request to the first byte of its response.
    pub first_byte: Duration,
    /// Between two reads of a response body.
    pub stream_idle: Duration,
    /// How long a client connection may wait for its next request.
    pub client_idle: Duration,
    /// How long an idle connection to an instance is kept.
    pub pool_idle: Duration,
    /// How long connections are still accepted after the signal to stop.
    pub lame_duck: Duration,
    /// How long open exchanges may go on after that.
    pub drain: Duration,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Timeouts {
    Timeouts {
        head: s.duration("head"),
        body_idle: s.duration("body_idle"),
        connect: s.duration("connect"),
        first_byte: s.duration("first_byte"),
        stream_idle: s.duration("stream_idle"),
        client_idle: s.duration("client_idle"),
        pool_idle: s.duration("pool_idle"),
        lame_duck: s.duration("lame_duck"),
        drain: s.duration("drain"),
    }
}
