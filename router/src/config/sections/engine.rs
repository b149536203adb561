//! `[engine]`: what carries body bytes.

use crate::config::{
    section::Section,
    setting::{GIB, KIB, Kind, MIB, Setting},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "engine.mode",
        kind: Kind::Choice(&["auto", "sockmap", "splice", "userspace"]),
        default: Some(r#""auto""#),
        live: false,
        about: "What carries body bytes. `auto`: `splice` where the start-up self-test passed, \
                else user space. `splice` passes the packets by the gateway's sockets wherever it \
                can; `sockmap` lets the kernel move the bytes between them; both insist, and \
                refuse to start where they do not work. `userspace` never uses the kernel's \
                engines, and is the switch to turn them off.",
    },
    Setting {
        path: "engine.xdp",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: Some(r#""auto""#),
        live: false,
        about: "Whether `splice` forwards packets in network drivers as well (native XDP), before the \
                kernel makes socket buffers of them. `on`: in all drivers that can, if it passes a \
                self-test. `auto`: only in those on which it was measured to be better whatever the \
                traffic, which is none so far: not on veth, and no network card has been measured. \
                `atalho doctor` tells what the interfaces of this host could do.",
    },
    Setting {
        path: "engine.interfaces",
        kind: Kind::Interfaces,
        default: Some("[]"),
        live: false,
        about: "Network interfaces whose packets `splice` may take; `*` stands for any characters, as in \
                `\"eth*\"`. Empty: all that are suitable, and those that come later. Connections that lead \
                over other interfaces stay in user space. `atalho doctor --config` and the log say which \
                were chosen, and why.",
    },
    Setting {
        path: "engine.except_interfaces",
        kind: Kind::Interfaces,
        default: Some("[]"),
        live: false,
        about: "Network interfaces whose packets `splice` leaves alone, whatever `interfaces` says; written \
                likewise. Loopback has the programs during the self-test all the same.",
    },
    Setting {
        path: "engine.hand_over_from_bytes",
        kind: Kind::Size { min: 0, max: GIB },
        default: Some(r#""64KiB""#),
        live: false,
        about: "Where its length is known, the kernel gets a body only when at least this much \
                of it is left: the hand-over has a cost of its own, which a short body does not \
                earn back. Without a length, `sockmap` gets it once this much of it has passed. \
                Responses are handed over from their first byte on, whose time is measured; with 0 \
                from their head on, and it is not.",
    },
    Setting {
        path: "engine.hand_over_from_reads",
        kind: Kind::Integer { min: 0, max: 1_000_000, unit: "reads" },
        default: Some("4"),
        live: false,
        about: "A body of unknown length is spliced once it came in this many reads. A read finds a \
                token most often, and a hand-over is earned back after some eight tokens. With 0 \
                it is spliced from the head on, and the time to its first byte is not measured.",
    },
    Setting {
        path: "engine.learn_reads",
        kind: Kind::Bool,
        default: Some("true"),
        live: false,
        about: "Whether `auto` learns, for each variant and API, how long answers of unknown length \
                are, and splices them from the read on that costs least: those that are too short \
                never, those that are long enough from their first read on. `hand_over_from_reads` applies \
                until 16 were seen, to request bodies, and to `splice`.",
    },
    Setting {
        path: "engine.backlog_bytes",
        kind: Kind::Size { min: 64 * KIB, max: 64 * MIB },
        default: Some(r#""384KiB""#),
        live: false,
        about: "Bytes that the kernel may hold for a slow receiver, per direction, before the \
                direction falls back to user space and its back-pressure.",
    },
];

/// `[engine]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which engine carries bodies.
    pub mode: EngineMode,
    /// Where `splice` forwards packets before they become socket buffers.
    pub xdp: XdpMode,
    /// Patterns of names of interfaces that `splice` may be on; all, if empty.
    pub interfaces: Vec<String>,
    /// Patterns of those that it may not be on.
    pub except_interfaces: Vec<String>,
    /// Remaining body bytes from which a body is handed to the kernel.
    pub hand_over_from_bytes: u64,
    /// Reads of a body of unknown length after which it is spliced.
    pub hand_over_from_reads: u64,
    /// Whether `auto` learns that from the answers it carries.
    pub learn_reads: bool,
    /// Redirected bytes that may wait for a slow receiver, per direction.
    pub backlog_bytes: u32,
}

/// Which engine carries bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineMode {
    /// As `Splice` where it passed its self-test, else user space.
    Auto,
    /// Socket to socket wherever it can.
    Sockmap,
    /// Packets past the sockets wherever it can.
    Splice,
    /// Never the kernel.
    Userspace,
}

impl EngineMode {
    /// The name used in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sockmap => "sockmap",
            Self::Splice => "splice",
            Self::Userspace => "userspace",
        }
    }
}

/// Whether network drivers forward packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// Those on which it was measured to be better.
    Auto,
    /// All that can.
    On,
    /// None.
    Off,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> Engine {
    let modes = [EngineMode::Auto, EngineMode::Sockmap, EngineMode::Splice, EngineMode::Userspace];
    Engine {
        mode: s.choice("mode", &modes.map(|mode| (mode.as_str(), mode))),
        xdp: s
            .choice("xdp", &[("auto", XdpMode::Auto), ("on", XdpMode::On), ("off", XdpMode::Off)]),
        interfaces: s.interfaces("interfaces"),
        except_interfaces: s.interfaces("except_interfaces"),
        hand_over_from_bytes: s.size("hand_over_from_bytes"),
        hand_over_from_reads: s.integer("hand_over_from_reads"),
        learn_reads: s.bool("learn_reads"),
        backlog_bytes: s.size("backlog_bytes"),
    }
}
