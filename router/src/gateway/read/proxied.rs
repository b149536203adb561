//! Whose connection it is, where a load balancer says so in front of the first request.

use std::{future::poll_fn, net::IpAddr};

use bytes::Buf as _;

use super::{NoRequest, head_timeout, wait_for_request};
use crate::{
    engine::Conn,
    gateway::context::WorkerContext,
    http::Failure,
    net::{
        READ_BUFFER_BYTES,
        proxy_protocol::{self, MAX_HEADER_BYTES, ProxyHeader, ProxyHeaderError},
    },
};

/// The address that a new connection from `peer` comes from: that of its PROXY protocol header, which is
/// taken off the input, if `peer` is configured to send one.
pub(in crate::gateway) async fn source(
    worker: &WorkerContext,
    client: &mut Conn,
    peer: IpAddr,
) -> Result<IpAddr, NoRequest> {
    let fleet = worker.fleet();
    let config = fleet.config();
    if !config.proxies.sends_header(peer) {
        return Ok(peer);
    }
    // It comes with the connection: whoever is slow here gets no more time than for a head.
    wait_for_request(worker, client, config.timeouts.head).await?;
    let read = async {
        loop {
            match proxy_protocol::parse(&client.input) {
                Ok(Some(header)) => return Ok(header),
                Ok(None) => {}
                Err(error) => return Err(NoRequest::Rejected(refused(error))),
            }
            let room = MAX_HEADER_BYTES + READ_BUFFER_BYTES;
            match poll_fn(|cx| client.poll_fill(cx, room)).await {
                Ok(0) | Err(_) => return Err(NoRequest::Over),
                Ok(_) => {}
            }
        }
    };
    let ProxyHeader { len, source } = match tokio::time::timeout(config.timeouts.head, read).await {
        Ok(header) => header?,
        Err(_) => return Err(NoRequest::Rejected(head_timeout(config.timeouts.head))),
    };
    client.input.advance(len);
    client.release_input();
    Ok(source.map_or(peer, |source| source.ip().to_canonical()))
}

fn refused(error: ProxyHeaderError) -> Failure {
    Failure {
        status: 400,
        reason: "proxy_header",
        message: format!(
            "This connection comes from a load balancer that is to send the PROXY protocol \
             (`proxies.proxy_protocol`), but {error}."
        )
        .into(),
        retry_after: None,
    }
}
