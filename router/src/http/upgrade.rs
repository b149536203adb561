//! Connections that become WebSockets (RFC 6455 section 4, RFC 9110 section 7.8).

use super::head::{Fields, Method, RequestHead, Version, list_tokens};

/// The protocol's name in `Upgrade`.
pub const WEBSOCKET: &str = "websocket";

/// Whether a request asks for its connection to become a WebSocket. What else the handshake needs is for
/// the instance to check.
pub fn asks_for_websocket(head: &RequestHead, buf: &[u8]) -> bool {
    head.method == Method::Get
        && head.version == Version::Http11
        && names_websocket(head.headers(buf))
}

/// Whether these fields switch a connection to WebSocket, or ask for it.
pub(crate) fn names_websocket(fields: Fields<'_>) -> bool {
    let lists = |name: &str, token: &str| {
        fields
            .clone()
            .all(name)
            .flat_map(list_tokens)
            .any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
    };
    lists("connection", "upgrade") && lists("upgrade", WEBSOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Limits, parse_request};

    #[test]
    fn a_handshake_names_the_protocol_in_both_fields() {
        let asks = |line: &str, fields: &str| {
            let text = format!("{line}\r\nHost: a\r\n{fields}\r\n");
            let head = parse_request(text.as_bytes(), &Limits::default()).unwrap().unwrap();
            asks_for_websocket(&head, text.as_bytes())
        };
        let get = "GET / HTTP/1.1";
        for fields in [
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            "connection: keep-alive, upgrade\r\nupgrade: WebSocket\r\n",
            "Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
        ] {
            assert!(asks(get, fields), "{fields}");
            assert!(!asks("POST / HTTP/1.1", fields) && !asks("GET / HTTP/1.0", fields));
        }
        for fields in [
            "",
            "Connection: Upgrade\r\n",
            "Upgrade: websocket\r\n",
            "Connection: close\r\nUpgrade: websocket\r\n",
            "Connection: Upgrade\r\nUpgrade: h2c\r\n",
            "Connection: Upgrade\r\nUpgrade: websocket/13\r\n",
        ] {
            assert!(!asks(get, fields), "{fields}");
        }
    }
}
