//! Host names of instances to addresses, off the way of requests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{Fleet, Instance};

/// For one look-up. The system's resolver has time limits of its own, often longer.
const LOOKUP: Duration = Duration::from_secs(5);

/// Looks up the host names that have no address yet, all at once, for at most `limit`. What is not
/// found by then is looked up again by the health checks.
pub async fn resolve_new(fleet: &Fleet, limit: Duration) {
    let mut lookups = tokio::task::JoinSet::new();
    for instance in fleet.servers() {
        if instance.status().unresolved() {
            let instance = Arc::clone(instance);
            lookups.spawn(async move { resolve(&instance).await });
        }
    }
    if !lookups.is_empty() && tokio::time::timeout(limit, lookups.join_all()).await.is_err() {
        tracing::warn!(?limit, "some host names are still being looked up");
    }
}

/// Looks up an instance's host name. A failure keeps what was known.
pub(super) async fn resolve(instance: &Instance) {
    let lookup = async {
        tokio::net::lookup_host(&instance.authority).await.map(|found| preferred(found.collect()))
    };
    let found = match tokio::time::timeout(LOOKUP, lookup).await {
        Ok(Ok(found)) if found.is_empty() => Err("the name has no address".to_owned()),
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {LOOKUP:?}")),
    };
    instance.note_lookup(found.as_ref().map(|_| ()).map_err(Clone::clone));
    match found {
        Ok(found) if *instance.addresses() == found => {}
        Ok(found) => {
            tracing::info!(instance = instance.url, addresses = ?found, "host name resolved");
            instance.set_addresses(found);
        }
        Err(error) => {
            let kept = instance.addresses();
            tracing::warn!(instance = instance.url, error, ?kept, "host name look-up failed");
        }
    }
}

/// Each address once, in an order that does not depend on the resolver's: all gateway hosts are to
/// send a prefix to the same address. IPv4 goes first, because servers that listen on one family
/// only mostly listen on that one.
fn preferred(mut found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{config, fleet};

    #[test]
    fn addresses_come_in_one_order_whatever_the_resolver_says() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|a| a.parse().expect("an address")).collect()
        };
        let found = parse(&["[::1]:80", "10.0.0.2:80", "10.0.0.1:80", "[::1]:80", "10.0.0.2:80"]);
        assert_eq!(preferred(found), parse(&["10.0.0.1:80", "10.0.0.2:80", "[::1]:80"]));
    }

    #[tokio::test]
    async fn literals_serve_at_once_and_names_when_resolved() {
        let mut config = config(crate::config::Strategy::Random, 1, &[1.0, 1.0, 1.0]);
        let instances = &mut config.endpoints[0].variants[0].instances;
        instances[0].url = "http://localhost:8000".parse().expect("valid");
        instances[1].url = "http://[::1]:8000".parse().expect("valid");
        instances[2].url = "http://no-such-host.invalid:8000".parse().expect("valid");
        let fleet = fleet(config);
        let state =
            || -> Vec<_> { fleet.instances().map(|(_, _, i)| i.status().as_str()).collect() };
        assert_eq!(state(), ["unresolved", "up", "unresolved"]);
        resolve_new(&fleet, Duration::from_secs(30)).await;
        assert_eq!(state(), ["up", "up", "unresolved"]);
        let first = fleet.instances().next().expect("there are three").2.address();
        assert!(first.expect("resolved").ip().is_loopback());
    }
}
