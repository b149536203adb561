//! Routing strategies as they are stored: by the configuration's names.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

use crate::config::Strategy;

pub(super) fn serialize<S: Serializer>(strategy: &Strategy, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(strategy.as_str())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Strategy, D::Error> {
    let name = String::deserialize(d)?;
    name.parse().map_err(D::Error::custom)
}
