//! Properties of the choice, over whole fleets.

mod copies;
mod failover;
mod overload;
mod shares;
mod storms;
mod strategies;
mod threshold;

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Barrier},
};

use proptest::prelude::*;

use super::*;
use crate::config::Strategy;
use crate::fleet::{
    Counters, FailureKind, Fleet, InstanceId, Variant,
    testing::{blame, config, down, fleet, only_variant, variant},
};

const KEYS: u64 = 10_000;

/// Keys as prefixes hash to.
fn keys() -> impl Iterator<Item = PrefixKey> {
    (0..KEYS).map(|n| PrefixKey(xxhash_rust::xxh3::xxh3_64(format!("prompt {n}").as_bytes())))
}

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(7)
}

/// The URL of each key's home.
fn homes(variant: &Variant) -> Vec<String> {
    keys()
        .map(|key| {
            let choice = choose(variant, Some(key), &[], &mut rng()).expect("there are instances");
            assert_eq!(choice.reason, Reason::Home);
            choice.ticket.instance().url.clone()
        })
        .collect()
}

fn equal(n: usize) -> Arc<Variant> {
    variant(Strategy::PrefixAware, 1024, &vec![1.0; n])
}

/// The fleet of `n` instances without the one at `index`.
fn without(n: usize, index: usize) -> Arc<Variant> {
    let mut config = config(Strategy::PrefixAware, 1024, &vec![1.0; n]);
    config.endpoints[0].variants[0].instances.remove(index);
    only_variant(&fleet(config))
}
