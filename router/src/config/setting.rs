//! What the table of settings says about one setting: its kind, default, range, what it is for.

use std::time::Duration;

use crate::http::Method;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its place, as `section.key`; list sections appear by their name alone.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The default, written as in TOML; `None` when the setting may be absent or must be given, as
    /// `kind` says.
    pub default: Option<&'static str>,
    /// Whether a running gateway takes over a change.
    pub live: bool,
    /// What it is for.
    pub about: &'static str,
}

/// What values a setting takes.
#[derive(Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number of `unit`.
    Integer {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// As [`Kind::Integer`], but may be absent.
    OptionalInteger {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// Bytes: a number, or a string with KiB, MiB or GiB.
    Size {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A string such as `"250ms"`, `"3s"`, `"5m"`, `"1h"`.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
        /// Whether `"0s"` is taken as well, and what it means then.
        zero: Option<&'static str>,
    },
    /// One of some words.
    Choice(&'static [&'static str]),
    /// An address and port.
    AddressOrOff,
    /// A list of addresses with ports, at least one.
    Addresses,
    /// A list of IP addresses and networks.
    Networks,
    /// A list of network interface names.
    Interfaces,
    /// An absolute path of a URL.
    Path,
    /// A list of beginnings of lines.
    Beginnings,
    /// A path that requests may have, see [`crate::api::Pattern`]; must be given, and once only.
    Pattern,
    /// A list of methods.
    Methods,
    /// A list of web origins.
    Origins,
    /// A list of paths of URLs, to stand in front of others.
    BasePaths,
    /// A name: up to 63 letters, digits and inner hyphens; must be given, and once only.
    Name,
    /// `http://host[:port]`; must be given, and once only per variant.
    Url,
    /// A list of such URLs; must be given.
    Urls,
    /// A list of names.
    Names,
    /// An absolute path of a file.
    File,
    /// A region of AWS.
    Region,
    /// An account of AWS.
    Account,
    /// An instance type of SageMaker; must be given.
    InstanceType,
    /// A relative share: finite, above zero.
    Weight,
    /// The same, or zero.
    WeightOrZero,
}

/// Methods that a setting can name.
pub(super) const METHODS: [Method; 6] =
    [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete];

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const DAY: Duration = secs(24 * 60 * 60);
