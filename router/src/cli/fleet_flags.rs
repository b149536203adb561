//! The flags that say what fleet there is: by a file, or one by one.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};

use crate::config::{self, Config, ConfigError, Flags, STRATEGIES, Strategy};

/// Where the fleet is described.
#[derive(Args, Debug, Default)]
#[group(id = "fleet", multiple = true)]
pub(super) struct FleetFlags {
    /// Configuration file (TOML); the flags below then have their places in it.
    #[arg(
        long,
        short,
        value_name = "FILE",
        env = "ATALHO_CONFIG",
        conflicts_with_all = ["backend", "strategy", "prefix_length", "concurrency_threshold"]
    )]
    pub(super) config: Option<PathBuf>,

    /// An inference server, as http://host:port; repeat it for each one, or separate them by commas,
    /// as in the environment variable.
    #[arg(long, value_name = "URL", env = "ATALHO_BACKENDS", value_delimiter = ',')]
    pub(super) backend: Vec<String>,

    /// How an instance is chosen.
    ///
    /// prefix-aware: by the start of the prompt, with overflow at the threshold.
    /// least-outstanding-requests: the one with the fewest requests in flight. random: any.
    #[arg(
        long,
        value_name = "STRATEGY",
        env = "ATALHO_STRATEGY",
        value_parser = PossibleValuesParser::new(STRATEGIES).try_map(|name| name.parse::<Strategy>())
    )]
    pub(super) strategy: Option<Strategy>,

    /// How much of a request decides where it goes: characters of prompt text, or bytes of the body
    /// on the Invoke API.
    ///
    /// Too short, and everything that shares a system prompt meets at one instance; too long, and
    /// prompts that differ only at their end part. [default: 4096]
    #[arg(long, value_name = "UNITS", env = "ATALHO_PREFIX_LENGTH")]
    pub(super) prefix_length: Option<u64>,

    /// Requests in flight at an instance from which it gets no more for the sake of the prefix; the
    /// next ones overflow to a less busy one. [default: 10]
    #[arg(long, value_name = "REQUESTS", env = "ATALHO_CONCURRENCY_THRESHOLD")]
    pub(super) concurrency_threshold: Option<u64>,
}

impl FleetFlags {
    /// The configuration that the file or the flags describe. `rest` brings the flags of the
    /// command itself; a file has them already.
    pub(super) fn config(&self, rest: Flags) -> Result<Config, ConfigError> {
        if let Some(file) = &self.config {
            return config::load(file);
        }
        config::from_flags(&Flags {
            backends: self.backend.clone(),
            strategy: self.strategy,
            prefix_length: self.prefix_length,
            concurrency_threshold: self.concurrency_threshold,
            ..rest
        })
    }
}

/// Takes an address with a port, or `off`.
pub(super) fn address_or_off(text: &str) -> Result<AddressOrOff, String> {
    match text {
        "off" => Ok(AddressOrOff(None)),
        _ => match text.parse() {
            Ok(address) => Ok(AddressOrOff(Some(address))),
            Err(_) => Err("write an address with a port, as 127.0.0.1:9901, or `off`".into()),
        },
    }
}

/// An address, or none on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressOrOff(pub(super) Option<SocketAddr>);
