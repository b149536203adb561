//! A request for an instance, over the interface by which it is reached.

use std::{future::poll_fn, net::SocketAddr, sync::Arc};

use router_ebpf::framing::Framing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Failure, IDLE, LIMIT, Progress,
    connections::{V4, V6, accepted},
    data::expect,
    splice_engine, within_limit,
};
use crate::{
    engine::{Conn, Handover, KernelEngine, outcome::HandoverEnd},
    http::{Limits, Method, parse_response},
    kernel::splice::SpliceObject,
    net::socket::{self, ConnectOptions},
};

/// Most bytes of a segment that every link takes, IPv6's smallest included.
const SEGMENT: u32 = 1220;

/// Has a request for an instance pass the sockets on its way, over the real interface, and reads the
/// answer. Says what the status was, and by which interface the instance was reached.
///
/// # Errors
/// The first step that went wrong.
pub fn splice_to(
    programs: &Arc<SpliceObject>,
    instance: SocketAddr,
    request: &str,
) -> Result<(u16, String), Failure> {
    let steps = async |progress: &Progress| {
        let engine = splice_engine(programs)?;
        steps(progress, programs, &engine, instance, request).await
    };
    let (reached, _) = within_limit(steps)?;
    programs.forget_closed();
    Ok(reached)
}

async fn steps(
    progress: &Progress,
    programs: &SpliceObject,
    engine: &KernelEngine,
    instance: SocketAddr,
    request: &str,
) -> Result<(u16, String), Failure> {
    let connecting = async {
        let instances = [instance];
        let options = ConnectOptions { segment: engine.segment(), ..ConnectOptions::default() };
        let stream = socket::connect(&instances, LIMIT, &options).await?;
        Ok::<_, std::io::Error>(Conn::new(stream))
    };
    let mut to = progress.step("connecting", connecting).await?;
    engine.register(&mut to, true);
    let local = if instance.is_ipv6() { V6 } else { V4 };
    let opening = accepted(local, Some(SEGMENT));
    let (mut from, mut client) = progress.step("opening a connection", opening).await?;
    engine.register(&mut from, false);
    // The sockets first, so that the programs know where both stand.
    let first = async {
        from.stream.write_all(b"there").await?;
        client.read_exact(&mut [0; 5]).await?;
        client.write_all(b"back").await?;
        while from.input.len() < 4 && poll_fn(|cx| from.poll_fill(cx, 4)).await? > 0 {}
        from.input.clear();
        to.stream.write_all(request.as_bytes()).await
    };
    progress.step("sending a request", first).await?;
    progress.step("the first answer", answer(&mut to)).await?;
    let mut framing = Framing::length(request.len() as u64);
    let spliced = async {
        let handover = engine.hand_over(Handover::new(&mut from, &mut to, &mut framing, IDLE));
        let (outcome, sent) = tokio::join!(handover, client.write_all(request.as_bytes()));
        sent.map_err(|error| error.to_string())?;
        expect(&outcome, HandoverEnd::Ended, request.len() as u64)
    };
    progress.step("a spliced request", spliced).await?;
    let status = progress.step("the answer to a spliced request", answer(&mut to)).await?;
    let interface = to.splice.as_ref().map(|member| member.interface());
    Ok((status, interface.and_then(|index| programs.name_of(index)).unwrap_or_default()))
}

/// Reads an answer, and says its status.
async fn answer(conn: &mut Conn) -> Result<u16, String> {
    let limits = Limits { head_bytes: 64 * 1024, headers: 256, body_bytes: 1 << 20 };
    let mut read = async || match poll_fn(|cx| conn.poll_fill(cx, 1 << 20)).await {
        Ok(0) => Err("the instance closed its connection".to_owned()),
        Ok(_) => Ok(conn.input.split()),
        Err(error) => Err(error.to_string()),
    };
    let mut bytes = bytes::BytesMut::new();
    let head = loop {
        bytes.unsplit(read().await?);
        match parse_response(&bytes, Method::Get, &limits) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(error) => return Err(error.message.to_string()),
        }
    };
    let mut body = bytes.split_off(head.len);
    let mut framing = head.framing;
    loop {
        framing.advance(&body).map_err(|error| error.to_string())?;
        if framing.is_done() {
            return Ok(head.status);
        }
        body = read().await?;
    }
}
