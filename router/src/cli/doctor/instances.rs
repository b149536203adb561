//! Whether the instances of a configuration answer, and whether requests to them can be spliced.

use std::{net::SocketAddr, sync::Arc};

use super::host::Finding;
use crate::{
    config::{Config, InstanceConfig},
    engine::selftest,
    fleet::probe::{self, Get},
    kernel::splice::SpliceObject,
};

/// Longest answer that is read, in bytes; the status is what counts.
const SIZE_LIMIT: usize = 1 << 20;

/// Asks each instance for its health, as the gateway does.
///
/// # Errors
/// When there is no event loop to do so.
pub(super) fn asked(config: &Config) -> std::io::Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(each(config, |instance| {
        let answer = runtime.block_on(ask(config, instance));
        let good = matches!(answer, Ok(status) if status < 500);
        let said = match answer {
            Ok(status) => format!("answered {status}"),
            Err(error) => error,
        };
        match (good, instance.drain) {
            // It may well be stopped.
            (false, true) => (true, format!("draining; {said}")),
            _ => (good, said),
        }
    }))
}

async fn ask(config: &Config, instance: &InstanceConfig) -> Result<u16, String> {
    let authority = instance.url.authority();
    let looked_up = tokio::time::timeout(config.health.timeout, tokio::net::lookup_host(authority));
    let addresses: Vec<SocketAddr> = match looked_up.await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => return Err(format!("the host name is not found: {error}")),
        Err(_) => return Err("the host name is not found in time".to_owned()),
    };
    let request = Get {
        authority,
        path: &config.health.path,
        headers: &[],
        time_limit: config.health.timeout,
        size_limit: SIZE_LIMIT,
    };
    let answer = probe::get(&addresses, &request).await.map_err(|error| error.to_string())?;
    Ok(answer.status)
}

/// Splices a request for its health to each instance.
pub(super) fn spliced(config: &Config, programs: &Arc<SpliceObject>) -> Vec<Finding> {
    each(config, |instance| {
        let authority = instance.url.authority();
        let request = format!("GET {} HTTP/1.1\r\nHost: {authority}\r\n\r\n", config.health.path);
        let address = std::net::ToSocketAddrs::to_socket_addrs(authority).map(|mut all| all.next());
        let spliced = match address {
            Ok(Some(address)) => {
                selftest::splice_to(programs, address, &request).map_err(|error| error.to_string())
            }
            Ok(None) => Err("the host name has no address".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match spliced {
            Ok((status, interface)) => {
                (true, format!("spliced a request over {interface}; it answered {status}"))
            }
            Err(error) => (false, error),
        }
    })
}

/// What is found about each instance, once for each URL.
fn each(config: &Config, find: impl Fn(&InstanceConfig) -> (bool, String)) -> Vec<Finding> {
    let variants = config.endpoints.iter().flat_map(|endpoint| &endpoint.variants);
    let mut found: Vec<Finding> = Vec::new();
    for instance in variants.flat_map(|variant| &variant.instances) {
        let name = instance.url.as_str();
        if !found.iter().any(|known| known.name == name) {
            let (good, said) = find(instance);
            found.push(Finding { good, name: name.to_owned().into(), said });
        }
    }
    found
}
