//! `[limits]`: sizes that a request may have.

use crate::config::{
    section::Section,
    setting::{GIB, KIB, Kind, MIB, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "limits.head_bytes",
        kind: Kind::Size { min: 4 * KIB, max: MIB },
        default: Some(r#""64KiB""#),
        live: true,
        about: "Longest head of a request or response. A longer request head is answered with 431.",
    },
    Setting {
        path: "limits.headers",
        kind: Kind::Integer { min: 16, max: 1024, unit: "fields" },
        default: Some("256"),
        live: true,
        about: "Most header fields of one head. More are answered with 431.",
    },
    Setting {
        path: "limits.body_bytes",
        kind: Kind::Size { min: KIB, max: 1024 * GIB },
        default: Some(r#""100MiB""#),
        live: true,
        about: "Longest request body. A longer one is answered with 413, before it is read when \
                its length is announced.",
    },
    Setting {
        path: "limits.invoke_body_bytes",
        kind: Kind::Size { min: KIB, max: 1024 * GIB },
        default: Some(r#""25MiB""#),
        live: true,
        about: "Longest request body of SageMaker's InvokeEndpoint and InvokeEndpointWithResponseStream, \
                as that service has it. No more than `body_bytes` passes in any case.",
    },
    Setting {
        path: "limits.decision_bytes",
        kind: Kind::Size { min: 64 * KIB, max: GIB },
        default: Some(r#""100MiB""#),
        live: true,
        about: "Body bytes held while looking for what the choice needs (`model` may come after \
                `messages`, and pictures in them are large), and bytes that are looked at of a decoded \
                one. Past it, the choice is made with what was found, and counted as \
                `atalho_decision_shortfalls_total`; the body still passes whole.",
    },
    Setting {
        path: "limits.receive_buffer_bytes",
        kind: Kind::Size { min: 128 * KIB, max: 64 * MIB },
        default: Some(r#""1280KiB""#),
        live: true,
        about: "Memory that the kernel fills at most with what an instance has sent and the client does not \
                take, for each new connection to an instance. No more than this comes from an instance in a \
                round trip to it: some 60 MB/s at 10 ms. Without `CAP_NET_ADMIN` it takes effect where \
                `net.core.rmem_max` is at least half of it; elsewhere `net.ipv4.tcp_rmem` is the bound.",
    },
];

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request or response head.
    pub head_bytes: usize,
    /// Header fields of a head.
    pub headers: usize,
    /// Bytes of a request body.
    pub body_bytes: u64,
    /// Bytes of the body of a call of SageMaker's runtime API.
    pub invoke_body_bytes: u64,
    /// Body bytes that the gateway holds while it looks for what the choice needs.
    pub decision_bytes: usize,
    /// Memory for what an instance has sent and nobody has read, of each connection.
    pub receive_buffer_bytes: usize,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Limits {
    Limits {
        head_bytes: s.size("head_bytes"),
        headers: s.integer("headers"),
        body_bytes: s.size("body_bytes"),
        invoke_body_bytes: s.size("invoke_body_bytes"),
        decision_bytes: s.size("decision_bytes"),
        receive_buffer_bytes: s.size("receive_buffer_bytes"),
    }
}
