//! Which requests may become WebSockets.

use crate::{
    api::{Api, Target},
    config::Config,
    gateway::{
        failure::{Refusal, origin_refused},
        read::Request,
    },
    http::{
        Cors, Failure,
        upgrade::{WEBSOCKET, asks_for_websocket},
    },
};

/// Lets WebSocket handshakes pass to the realtime APIs, and nothing else.
///
/// # Errors
/// The answer to a request for one of them that is no handshake, and to a handshake for others.
pub(super) fn check(
    config: &Config,
    request: &Request,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    let asks = asks_for_websocket(&request.head, request.raw());
    match (target.api == Api::Realtime, asks) {
        (false, false) => Ok(()),
        // Browsers open a WebSocket to any server and let the page read it: what keeps other pages away
        // is the server (RFC 6455 section 10.2). Other programs send no origin.
        (true, true) if is_foreign(config, request) => Err(origin_refused().into()),
        (true, true) if request.head.framing.is_done() => Ok(()),
        (true, true) => {
            let message = "A WebSocket handshake has no body: leave Content-Length and \
                           Transfer-Encoding out.";
            Err(failure(400, "websocket_body", message).into())
        }
        (true, false) => {
            let message = "This path speaks WebSocket: send a handshake (GET with `Connection: \
                           Upgrade` and `Upgrade: websocket`).";
            Err(refusal(message, WEBSOCKET))
        }
        (false, true) => {
            let message = "This path speaks plain HTTP, not WebSocket. Those that do are the realtime \
                           API's; a `[[path]]` with `api = \"realtime\"` in the gateway's configuration \
                           adds more.";
            Err(refusal(message, "HTTP/1.1"))
        }
    }
}

/// Whether a web page asks that may not read answers.
fn is_foreign(config: &Config, request: &Request) -> bool {
    let cors = Cors::of(&config.cors.origins, request.fields());
    matches!(cors, Cors::On { allowed: None, .. }) && request.header("origin").is_some()
}

/// 426 has to name the protocol (RFC 9110 section 15.5.22).
fn refusal(message: &'static str, protocol: &'static str) -> Refusal {
    Refusal {
        failure: failure(426, "upgrade_required", message),
        fields: vec![("Upgrade", protocol.into()), ("Connection", "Upgrade".into())],
    }
}

fn failure(status: u16, reason: &'static str, message: &'static str) -> Failure {
    Failure { status, reason, message: message.into(), retry_after: None }
}
