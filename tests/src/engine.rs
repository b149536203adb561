//! Every relay test runs once for each engine.

/// What carries body bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Reads and writes.
    Userspace,
    /// The sock-map of the kernel.
    Sockmap,
}

impl Engine {
    /// Its name in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Userspace => "userspace",
            Self::Sockmap => "sockmap",
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

/// Defines a test for each engine, named `NAME::userspace` and so on:
///
/// ```ignore
/// for_each_engine! {
///     fn a_response_arrives(engine) { ... }
/// }
/// ```
#[macro_export]
macro_rules! for_each_engine {
    ($($(#[$meta:meta])* fn $name:ident($engine:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run($engine: $crate::Engine) $body

            #[test]
            fn userspace() {
                run($crate::Engine::Userspace);
            }

            #[test]
            fn sockmap() {
                if $crate::Engine::Sockmap.available() {
                    run($crate::Engine::Sockmap);
                }
            }
        }
    )*};
}
