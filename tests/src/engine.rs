//! Every relay test runs once for each engine, and on the networks where the engine might differ.

use crate::Topology;

/// What carries body bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Reads and writes.
    Userspace,
    /// The sock-map of the kernel.
    Sockmap,
    /// Packets that are rewritten and sent on before a socket sees them.
    Splice,
    /// The same, before they become socket buffers where that is possible.
    SpliceXdp,
}

impl Engine {
    /// Its name in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Userspace => "userspace",
            Self::Sockmap => "sockmap",
            Self::Splice | Self::SpliceXdp => "splice",
        }
    }

    /// Whether it works here. Says why when it does not.
    ///
    /// # Panics
    /// When it does not and `CI=true`: there, a test that is skipped is a test that failed.
    pub fn available(self) -> bool {
        self == Self::Userspace || crate::process::root_or_skip("loading eBPF programs")
    }
}

/// Runs a test's body with an engine over a network, unless one of them cannot be had here.
pub fn run(engine: Engine, topology: Topology, body: impl FnOnce(Engine)) {
    if !engine.available() {
        return;
    }
    if let Some(entered) = topology.enter() {
        if let (Engine::SpliceXdp, Some(network)) = (engine, entered.network()) {
            network.allow_xdp();
        }
        body(engine);
    }
}

/// Defines a test for each engine, named `NAME::userspace` and so on:
///
/// ```ignore
/// for_each_engine! {
///     fn a_response_arrives(engine) { ... }
/// }
/// ```
///
/// All engines run on loopback. `splice` works on packets, so it runs over links as well
/// (`NAME::splice_veth`). Where packets matter it does so in drivers too (`NAME::splice_xdp`): with
/// [`for_each_engine_and_driver!`](crate::for_each_engine_and_driver). With
/// [`for_each_engine_and_network!`](crate::for_each_engine_and_network) all of them do, and `splice` over
/// IPv6 too; with [`for_each_engine_on_loopback!`](crate::for_each_engine_on_loopback) none does.
#[macro_export]
macro_rules! for_each_engine {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $crate::engine_tests! {
            $(#[$meta])* $name $engine $body
            loopback: Userspace userspace, Sockmap sockmap;
            splice: Loopback splice, Veth splice_veth;
            xdp: ;
            others:
        }
    )*};
}

/// As [`for_each_engine!`](crate::for_each_engine), and in drivers.
#[macro_export]
macro_rules! for_each_engine_and_driver {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $crate::engine_tests! {
            $(#[$meta])* $name $engine $body
            loopback: Userspace userspace, Sockmap sockmap;
            splice: Loopback splice, Veth splice_veth;
            xdp: Veth splice_xdp;
            others:
        }
    )*};
}

/// As [`for_each_engine!`](crate::for_each_engine), over every kind of network.
#[macro_export]
macro_rules! for_each_engine_and_network {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $crate::engine_tests! {
            $(#[$meta])* $name $engine $body
            loopback: Userspace userspace, Sockmap sockmap;
            splice: Loopback splice, Veth splice_veth, Veth6 splice_veth6;
            xdp: Veth splice_xdp, Veth6 splice_xdp6;
            others: Userspace userspace_veth, Sockmap sockmap_veth
        }
    )*};
}

/// As [`for_each_engine!`](crate::for_each_engine), for bodies that need one host, or make networks
/// of their own.
#[macro_export]
macro_rules! for_each_engine_on_loopback {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $crate::engine_tests! {
            $(#[$meta])* $name $engine $body
            loopback: Userspace userspace, Sockmap sockmap;
            splice: Loopback splice;
            xdp: ;
            others:
        }
    )*};
}

/// As [`for_each_engine_on_loopback!`](crate::for_each_engine_on_loopback), for bodies that make networks
/// of their own: with XDP too.
#[macro_export]
macro_rules! for_each_engine_on_own_networks {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $crate::engine_tests! {
            $(#[$meta])* $name $engine $body
            loopback: Userspace userspace, Sockmap sockmap;
            splice: Loopback splice;
            xdp: Loopback splice_xdp;
            others:
        }
    )*};
}

/// One body, many tests.
#[doc(hidden)]
#[macro_export]
macro_rules! engine_tests {
    (
        $(#[$meta:meta])* $name:ident $engine:ident $body:block
        loopback: $($local:ident $local_name:ident),*;
        splice: $($topology:ident $splice_name:ident),*;
        xdp: $($links:ident $xdp_name:ident),*;
        others: $($other:ident $other_name:ident),*
    ) => {
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run($engine: $crate::Engine) $body

            $(
                #[test]
                fn $local_name() {
                    $crate::engine::run($crate::Engine::$local, $crate::Topology::Loopback, run);
                }
            )*
            $(
                #[test]
                fn $other_name() {
                    $crate::engine::run($crate::Engine::$other, $crate::Topology::Veth, run);
                }
            )*
            $(
                #[test]
                fn $splice_name() {
                    $crate::engine::run($crate::Engine::Splice, $crate::Topology::$topology, run);
                }
            )*
            $(
                #[test]
                fn $xdp_name() {
                    $crate::engine::run($crate::Engine::SpliceXdp, $crate::Topology::$links, run);
                }
            )*
        }
    };
}
