//! How the hosts are that could be given to somebody.

use std::time::Duration;

use tokio::{net::TcpStream, task::JoinSet};

use super::{hosts::Looks, step::Look};
use crate::{
    config::Health,
    fleet::probe::{self, Get},
};

/// Hosts that are looked at together.
const TOGETHER: usize = 64;

/// Asks each host for its health, as instances are asked: any status below 500 is a good answer. Where
/// `health.active` is off, one that takes a connection is well.
pub(super) async fn at(wanted: &[Look], health: &Health) -> Looks {
    let mut looks = Looks::new();
    for group in wanted.chunks(TOGETHER) {
        let mut asked = JoinSet::new();
        for host in group {
            let Look { host, path } = host.clone();
            let path = health.active.then(|| path.unwrap_or_else(|| health.path.clone()));
            let limit = health.timeout;
            asked.spawn(async move {
                let answer = ask(&host, path.as_deref(), limit).await;
                (host, answer)
            });
        }
        looks.extend(asked.join_all().await);
    }
    looks
}

async fn ask(host: &str, path: Option<&str>, limit: Duration) -> Result<(), String> {
    let authority = host.trim_start_matches("http://");
    let asked = async {
        let found = tokio::net::lookup_host(authority).await;
        let addresses: Vec<_> = found.map_err(|error| error.to_string())?.collect();
        let Some(path) = path else {
            let connected = TcpStream::connect(&*addresses).await;
            return connected.map(|_| ()).map_err(|error| format!("no connection: {error}"));
        };
        let get = Get { authority, path, headers: &[], time_limit: limit, size_limit: 0 };
        match probe::status(&addresses, &get).await {
            Ok(500..) => Err(format!("its {path} answers with an error")),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    };
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}
