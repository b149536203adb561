//! A client's connection: one request after the other.

use std::{future::poll_fn, net::IpAddr, time::Duration};

use super::{
    admit,
    answer::Next,
    context::WorkerContext,
    exchange,
    read::{self, NoRequest},
};
use crate::{
    config::Config,
    engine::Conn,
    http::{self, Cors, ErrorForm, Failure, Reply},
    log,
    net::with_read_buffer,
};

/// How long a client may take to close after the last answer on its connection.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes of an unread request that are discarded while waiting for that.
const LINGER_BYTES: usize = 4 << 20;

/// Serves a client until one side closes. `peer` is the other end of its socket.
pub(super) async fn serve(worker: &WorkerContext, mut client: Conn, peer: IpAddr) {
    let source = match read::source(worker, &mut client, peer).await {
        Ok(source) => source,
        Err(NoRequest::Over) => return,
        Err(NoRequest::Rejected(failure)) => {
            let next = reject(worker, &mut client, peer, &failure).await;
            return end(client, next).await;
        }
    };
    loop {
        let next = match read::read(worker, &mut client, source).await {
            Ok(request) => exchange::run(worker, &mut client, request).await,
            Err(NoRequest::Over) => return,
            Err(NoRequest::Rejected(failure)) => {
                reject(worker, &mut client, source, &failure).await
            }
        };
        if next != Next::KeepAlive {
            return end(client, next).await;
        }
    }
}

async fn end(client: Conn, next: Next) {
    match next {
        Next::KeepAlive | Next::Drop => {}
        Next::Close => linger(client).await,
        Next::Reset => client.stream.abort_on_close(),
    }
}

/// Answers bytes that are no request, or one that is not served.
async fn reject(
    worker: &WorkerContext,
    client: &mut Conn,
    peer: IpAddr,
    failure: &Failure,
) -> Next {
    let fleet = worker.fleet();
    let (form, head_only) = refused_form(fleet.config(), &client.input);
    let failure = &failure.clone().in_form(form);
    worker.metrics.all.error(failure.status, failure.reason);
    if fleet.config().access_log {
        log::access(&log::Access::refused(peer, failure.status, failure.reason));
    }
    let mut out = Vec::with_capacity(512);
    let cors = Cors::for_origin(&fleet.config().cors.origins, refused_origin(&client.input));
    let reply = Reply { head_only, cors, ..Reply::default() };
    http::reply::failure(&mut out, form, failure, &reply);
    match tokio::time::timeout(LINGER, client.stream.write_all(&out)).await {
        Ok(Ok(())) => Next::Close,
        Ok(Err(_)) | Err(_) => Next::Drop,
    }
}

/// The form of the answer to what begins with these bytes: by the path, if they have one.
fn refused_form(config: &Config, input: &[u8]) -> (ErrorForm, bool) {
    let line = input.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default();
    let mut words = line.splitn(3, |&b| b == b' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().and_then(|t| t.split(|&b| b == b'?').next()).unwrap_or_default();
    let path = std::str::from_utf8(path).unwrap_or_default();
    (admit::error_form(config, path), method == b"HEAD")
}

/// The origin that what begins with these bytes may have sent: a page should learn that its request was
/// too large.
fn refused_origin(input: &[u8]) -> Option<&[u8]> {
    let mut lines = input.split(|&b| b == b'\n').take_while(|line| !matches!(*line, b"" | b"\r"));
    let name = b"origin:";
    lines.find_map(|line| {
        let (start, value) = line.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then_some(value.trim_ascii())
    })
}

/// Closes so that the client can read the answer: closing with unread bytes in the socket would
/// reset the connection, and a reset can overtake the answer (RFC 9112 section 9.6).
async fn linger(mut client: Conn) {
    if client.stream.shutdown_write().is_err() {
        return;
    }
    let discard = async {
        let mut left = LINGER_BYTES;
        while left > 0 {
            let read =
                poll_fn(|cx| with_read_buffer(|scratch| client.stream.poll_read(cx, scratch)));
            match read.await {
                Ok(0) | Err(_) => return,
                Ok(n) => left = left.saturating_sub(n),
            }
        }
    };
    // Either way the connection is closed now.
    let _ = tokio::time::timeout(LINGER, discard).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_speak_the_api_of_the_path() {
        let config = Config::default();
        for (input, form) in [
            (&b"POST /v1/messages?a HTTP/1.1\r\nContent-Length: x\r\n"[..], ErrorForm::Anthropic),
            (b"POST /endpoints/e/invocations HTTP/1.1\r\n", ErrorForm::SageMakerRuntime),
            (b"POST /v1/chat/completions", ErrorForm::OpenAi),
            (b"\x16\x03\x01 \xff", ErrorForm::OpenAi),
            (b"", ErrorForm::OpenAi),
        ] {
            assert_eq!(refused_form(&config, input), (form, false), "{input:?}");
        }
        assert!(refused_form(&config, b"HEAD / HTTP/1.1\r\n\r\n").1);
    }
}
