use proptest::prelude::*;

use super::*;
use crate::http::properties;

fn parse(buf: &str) -> Result<Option<ResponseHead>, ResponseError> {
    parse_response(buf.as_bytes(), Method::Post, &Limits::default())
}

fn head(buf: &str) -> ResponseHead {
    parse(buf).unwrap_or_else(|error| panic!("{error}")).expect("complete")
}

fn refused(buf: &str) -> &'static str {
    match parse(buf) {
        Err(error) => error.reason,
        Ok(head) => panic!("accepted {buf:?}: {head:?}"),
    }
}

#[test]
fn a_plain_response() {
    let buf = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello";
    let head = head(buf);
    assert_eq!((head.len, head.status), (buf.len() - 5, 200));
    assert_eq!((head.version, head.framing), (Version::Http11, Framing::length(5)));
    assert!(head.keep_alive && !head.is_interim());
    assert_eq!(head.reason_phrase(buf.as_bytes()), b"OK");
    assert_eq!(head.header(buf.as_bytes(), "x-a"), Some(&b"1"[..]));
    assert_eq!(head.headers(buf.as_bytes()).count(), 2);
}

#[test]
fn bodies_end_where_the_rfc_says() {
    let until_close = head("HTTP/1.1 200 OK\r\n\r\n");
    assert!(until_close.framing.is_until_close() && !until_close.keep_alive);
    let chunked = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert_eq!((chunked.framing, chunked.keep_alive), (Framing::chunked(), true));
    for status in [100, 103, 204, 304] {
        for field in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let buf = format!("HTTP/1.1 {status} X\r\n{field}\r\n");
            assert!(head(&buf).framing.is_done(), "{buf}");
            assert!(head(&buf).keep_alive);
        }
    }
    let buf = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let to_head = parse_response(buf, Method::Head, &Limits::default()).unwrap().unwrap();
    assert!(to_head.framing.is_done());
    assert!(head("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n").is_interim());
}

#[test]
fn connections_persist_by_version_and_option() {
    let keeps = |first: &str, option: &str| {
        head(&format!("{first} 200 OK\r\nContent-Length: 0\r\n{option}\r\n")).keep_alive
    };
    assert!(keeps("HTTP/1.1", ""));
    assert!(!keeps("HTTP/1.1", "Connection: close\r\n"));
    assert!(!keeps("HTTP/1.0", ""));
    assert!(keeps("HTTP/1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn reason_phrases_may_be_missing_or_odd() {
    for (line, phrase) in [
        ("HTTP/1.1 200", &b""[..]),
        ("HTTP/1.1 200 ", b""),
        ("HTTP/1.1 404 Not  Found ", b"Not  Found "),
        ("HTTP/1.1 500 \u{e9}", "\u{e9}".as_bytes()),
    ] {
        let buf = format!("{line}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(head(&buf).reason_phrase(buf.as_bytes()), phrase, "{line}");
    }
}

#[test]
fn ambiguous_and_malformed_responses_are_refused() {
    for (buf, reason) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "ambiguous_framing",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "content_length"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", "content_length"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "content_length"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer_encoding"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", "transfer_encoding"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "transfer_encoding",
        ),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "transfer_encoding"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "obs_fold"),
        ("HTTP/1.1 200 OK\nA: b\n\n", "line_end"),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", "line_end"),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "header_name"),
        ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", "header_value"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "upgrade"),
        ("HTTP/1.1 099 X\r\n\r\n", "status"),
        ("HTTP/1.1 20 X\r\n\r\n", "status_line"),
        ("HTTP/2.0 200 OK\r\n\r\n", "status_line"),
        ("HTTP/1.1  200 OK\r\n\r\n", "status_line"),
        ("ICY 200 OK\r\n", "status_line"),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", "status_line"),
        ("<html>", "status_line"),
    ] {
        assert_eq!(refused(buf), reason, "{buf:?}");
    }
    assert_eq!(parse("HTT"), Ok(None));
    assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\n"), Ok(None));
}

#[test]
fn limits_hold() {
    let limits = Limits { head_bytes: 40, headers: 1, body_bytes: 0 };
    let parse =
        |buf: &str| parse_response(buf.as_bytes(), Method::Get, &limits).map_err(|e| e.reason);
    // The limit of bodies is about requests.
    assert!(parse("HTTP/1.1 200 OK\r\nContent-Length: 123\r\n\r\n").unwrap().is_some());
    assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"), Err("head_too_large"));
    assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n"), Err("too_many_headers"));
    assert_eq!(parse(&format!("HTTP/1.1 200 {}", "x".repeat(60))), Err("head_too_large"));
}

proptest! {
    #[test]
    fn heads_keep_the_promises(bytes in any_head()) {
        properties::response(&bytes);
    }
}

/// Heads that are nearly right.
fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::sample::select(
        &[
            "Content-Length: 5",
            "Content-Length: 0005",
            "Content-Length: 5 5",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked, x",
            "Connection: close",
            "Connection: x-one, transfer-encoding",
            "X-One: 1",
            "Keep-Alive: timeout=5",
            "Set-Cookie: a",
            "Trailer: X-Sum",
            "Upgrade: h2c",
            "Server: u",
            " folded",
            "X-Bad: \x01",
            "x-atalho-instance: y",
        ][..],
    );
    let first = proptest::sample::select(
        &[
            "HTTP/1.1 200 OK",
            "HTTP/1.0 200 OK",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 304",
            "HTTP/1.1 100 Continue",
            "HTTP/1.1 101 Upgrade",
            "HTTP/1.1 502 ",
            "HTTP/1.1 20",
            "HTTP/9.9 200 OK",
        ][..],
    );
    let head = (first, proptest::collection::vec(line, 0..6)).prop_map(|(first, lines)| {
        let mut head = format!("{first}\r\n").into_bytes();
        for line in lines {
            head.extend_from_slice(line.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\nbody");
        head
    });
    let change = proptest::option::of((any::<proptest::sample::Index>(), any::<u8>()));
    (head, change).prop_map(|(mut head, change)| {
        if let Some((at, byte)) = change {
            let at = at.index(head.len());
            head[at] = byte;
        }
        head
    })
}

#[test]
fn a_connection_becomes_a_websocket_where_that_was_asked_for() {
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let parse = |text: &str| parse_upgrade_response(text.as_bytes(), &Limits::default());
    let head = parse(switch).expect("it may").expect("complete");
    assert!(head.status == 101 && !head.is_interim() && head.framing.is_done());
    assert_eq!(parse(&switch[..switch.len() - 2]), Ok(None));
    for other in [
        switch.replace("websocket", "h2c"),
        switch.replace("Connection: Upgrade\r\n", ""),
        switch.replace("Upgrade: websocket\r\n", ""),
        switch.replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        assert_eq!(parse(&other).map_err(|error| error.reason), Err("upgrade"), "{other}");
    }
    // Whatever else the instance answers is as ever.
    assert_eq!(parse("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n").unwrap().unwrap().status, 403);
    let unasked = parse_response(switch.as_bytes(), Method::Get, &Limits::default());
    assert_eq!(unasked.map_err(|error| error.reason), Err("upgrade"));
}
