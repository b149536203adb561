use proptest::prelude::*;

use super::*;
use crate::http::properties;

fn parse(buf: &[u8]) -> Result<Option<RequestHead>, Reject> {
    parse_request(buf, &Limits::default())
}

fn head(buf: &[u8]) -> RequestHead {
    parse(buf).unwrap_or_else(|reject| panic!("{reject}")).expect("complete")
}

/// The status and reason of what is refused.
fn refused(buf: &[u8]) -> (u16, &'static str) {
    match parse(buf) {
        Err(reject) => (reject.status, reject.reason),
        Ok(head) => panic!("accepted {:?}: {head:?}", String::from_utf8_lossy(buf)),
    }
}

/// A request with these fields besides Host.
fn with(fields: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

#[test]
fn a_plain_request() {
    let buf = b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: api:8080\r\nX-A: 1\r\n\
                Content-Length: 5\r\nx-a:2\r\n\r\nhello";
    let head = head(buf);
    assert_eq!(head.len, buf.len() - 5);
    assert_eq!((head.method, head.version), (Method::Post, Version::Http11));
    assert_eq!(head.framing, Framing::length(5));
    assert!(head.keep_alive && !head.expect_continue && !head.is_absolute());
    assert_eq!(head.method_bytes(buf), b"POST");
    assert_eq!(head.target(buf), b"/v1/chat/completions?a=b");
    assert_eq!(head.path(buf), b"/v1/chat/completions");
    assert_eq!(head.query(buf), Some(&b"a=b"[..]));
    assert_eq!(head.host(buf), Some(&b"api:8080"[..]));
    assert_eq!(head.header(buf, "x-a"), Some(&b"1"[..]));
    assert_eq!(head.header(buf, "x-b"), None);
    assert_eq!(head.headers(buf).count(), 4);
}

#[test]
fn methods() {
    for (text, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("get", Method::Other),
        ("X-!#$%&'*+.^_`|~9", Method::Other),
    ] {
        let buf = format!("{text} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = head(buf.as_bytes());
        assert_eq!((head.method, head.method_bytes(buf.as_bytes())), (method, text.as_bytes()));
    }
    assert_eq!(refused(b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), (501, "connect"));
}

#[test]
fn targets() {
    let buf = b"GET http://Other.example:81/p?q=1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let absolute = head(buf);
    assert!(absolute.is_absolute());
    assert_eq!(absolute.target(buf), b"/p?q=1");
    assert_eq!((absolute.path(buf), absolute.query(buf)), (&b"/p"[..], Some(&b"q=1"[..])));
    assert_eq!(absolute.host(buf), Some(&b"Other.example:81"[..]));
    let buf = b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(head(buf).target(buf), b"/");
    let buf = b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(head(buf).target(buf), b"*");
    for target in ["a", "*", "/a#b", "ftp://a/", "http://", "/\u{e9}", "//[", "/\x7f"] {
        let buf = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        if target == "//[" {
            assert!(parse(buf.as_bytes()).is_ok());
        } else {
            assert_eq!(refused(buf.as_bytes()).0, 400, "{target}");
        }
    }
}

#[test]
fn bodies_are_framed_by_what_the_head_says() {
    assert_eq!(head(&with("")).framing, Framing::none());
    assert_eq!(head(&with("Content-Length: 0\r\n")).framing, Framing::none());
    assert_eq!(head(&with("Content-Length:\t 12 \r\n")).framing, Framing::length(12));
    assert_eq!(head(&with("content-length: 007\r\n")).framing, Framing::length(7));
    assert_eq!(head(&with("Transfer-Encoding: chunked\r\n")).framing, Framing::chunked());
    assert_eq!(head(&with("transfer-encoding:CHUNKED \r\n")).framing, Framing::chunked());
}

#[test]
fn connections_persist_by_version_and_option() {
    for (version, option, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x\r\nConnection: y, Close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let buf = format!("GET / HTTP/{version}\r\nHost: a\r\n{option}\r\n");
        assert_eq!(head(buf.as_bytes()).keep_alive, keep_alive, "{version} {option}");
    }
}

#[test]
fn expectations() {
    assert!(head(&with("Expect: 100-Continue\r\nContent-Length: 5\r\n")).expect_continue);
    // Nothing to wait for.
    assert!(!head(&with("Expect: 100-continue\r\n")).expect_continue);
    let old = b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    assert!(!head(old).expect_continue);
    assert_eq!(refused(&with("Expect: miracles\r\n")), (417, "expectation"));
}

#[test]
fn upgrades_are_not_asked_for_any_further() {
    let buf = with("Upgrade: websocket\r\nConnection: upgrade\r\n");
    assert!(head(&buf).keep_alive);
}

#[test]
fn an_empty_line_before_the_request_is_passed_over() {
    let buf = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    let head = head(buf);
    assert_eq!((head.len, head.method_bytes(buf)), (buf.len() - 4, &b"GET"[..]));
    assert_eq!(parse(b"\r"), Ok(None));
    // A method is no longer because it comes in pieces.
    let long = format!("\r\n{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(40));
    let mut seen = 0;
    let limits = Limits::default();
    let refused_at = (0..=long.len())
        .find(|&n| parse_request_from(&long.as_bytes()[..n], &mut seen, &limits).is_err());
    assert_eq!(refused_at, Some(34));
    assert_eq!(refused(b"\r\n\r\nGET / HTTP/1.1\r\n").0, 400);
    assert_eq!(refused(b"\nGET / HTTP/1.1\r\n").0, 400);
}

#[test]
fn versions() {
    for (version, expected) in [
        ("HTTP/2.0", (505, "version")),
        ("HTTP/1.2", (505, "version")),
        ("HTTP/0.9", (505, "version")),
        ("HTTP/1.10", (400, "request_line")),
        ("HTTP/1", (400, "request_line")),
        ("http/1.1", (400, "request_line")),
        ("HTTP/1.1x", (400, "request_line")),
        ("HTTPS/1.1", (400, "request_line")),
        ("", (400, "request_line")),
    ] {
        let buf = format!("GET / {version}\r\nHost: a\r\n\r\n");
        assert_eq!(refused(buf.as_bytes()), expected, "{version}");
    }
    // The preface of HTTP/2, and a request line of HTTP/0.9.
    assert_eq!(refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (505, "version"));
    assert_eq!(refused(b"GET /\r\n\r\n"), (400, "request_line"));
}

#[test]
fn what_is_no_request_is_refused_at_once() {
    assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01"), (400, "tls"));
    for begin in [&b" GET"[..], b"\x80", b"{\"a\":", b"GET\t/", b"GET\x00", &[b'A'; 40]] {
        assert_eq!(refused(begin).0, 400, "{begin:?}");
    }
    for begin in [&b""[..], b"G", b"GET", b"GET ", b"GET / HTTP/1.1\r\nHo"] {
        assert_eq!(parse(begin), Ok(None), "{begin:?}");
    }
}

#[test]
fn limits_hold_at_the_boundary() {
    let limits = Limits { head_bytes: 100, headers: 3, body_bytes: 1000 };
    let parse = |buf: &[u8]| parse_request(buf, &limits).map_err(|r| (r.status, r.reason));
    let sized = |size: usize| {
        let mut buf = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        buf.resize(size - 4, b'x');
        buf.extend_from_slice(b"\r\n\r\n");
        buf
    };
    assert!(parse(&sized(100)).unwrap().is_some());
    assert_eq!(parse(&sized(101)), Err((431, "head_too_large")));
    // Bytes behind the head do not count, and an endless head is refused before its end.
    assert!(parse(&[&sized(100)[..], &[b'x'; 500]].concat()).unwrap().is_some());
    assert_eq!(parse(&sized(120)[..99]), Ok(None));
    assert_eq!(parse(&sized(120)[..100]), Err((431, "head_too_large")));
    assert!(parse(b"GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\n\r\n").unwrap().is_some());
    let four = b"GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n";
    assert_eq!(parse(four), Err((431, "too_many_headers")));
    assert!(parse(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n").is_ok());
    let long = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n";
    assert_eq!(parse(long), Err((413, "body_too_large")));
    for (refused, setting) in [
        (&sized(101)[..], "`limits.head_bytes`"),
        (four, "`limits.headers`"),
        (long, "`limits.body_bytes`"),
    ] {
        let message = parse_request(refused, &limits).expect_err("refused").message;
        assert!(message.contains(setting), "whoever meets the limit can name it: {message}");
    }
}

#[test]
fn the_default_limits() {
    let fields = |n: usize| {
        let mut buf = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        (1..n).for_each(|i| buf.extend_from_slice(format!("x-{i}: y\r\n").as_bytes()));
        buf.extend_from_slice(b"\r\n");
        buf
    };
    assert!(head(&fields(256)).headers(&fields(256)).count() == 256);
    assert_eq!(refused(&fields(257)), (431, "too_many_headers"));
    let token = "t".repeat(60 * 1024);
    let buf = with(&format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(head(&buf).header(&buf, "authorization").unwrap().len(), token.len() + 7);
}

proptest! {
    #[test]
    fn heads_keep_the_promises(bytes in any_head()) {
        properties::request(&bytes);
    }
}

/// Heads that are nearly right.
fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let line = proptest::sample::select(
        &[
            "Host: a",
            "Host: b:80",
            "host:",
            "Content-Length: 5",
            "Content-Length: 05",
            "Content-Length: +5",
            "content-length: 5, 5",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: x, chunked",
            "Transfer-Encoding : chunked",
            "transfer_encoding: chunked",
            "Connection: close",
            "Connection: keep-alive, x-one",
            "Connection: host, content-length",
            "X-One: 1",
            "X-Two:\t2 ",
            " folded",
            "Expect: 100-continue",
            "Upgrade: h2c",
            "TE: trailers",
            "Max-Forwards: 3",
            "X-Forwarded-For: x",
            "no colon",
            ": empty",
            "X-Bad: a\0b",
            "X-Obs: \u{e9}",
            "Via: 1.1 x",
            "Trailer: x",
            "X-Bare: a\rb",
            "X-Bare: a\nb",
        ][..],
    );
    let first = proptest::sample::select(
        &[
            "GET / HTTP/1.1",
            "POST /v1/chat/completions?a HTTP/1.1",
            "POST / HTTP/1.0",
            "OPTIONS * HTTP/1.1",
            "GET http://h/p HTTP/1.1",
            "OPTIONS http://h HTTP/1.1",
            "GET  / HTTP/1.1",
            "CONNECT a:1 HTTP/1.1",
            "GET / HTTP/2.0",
            "TRACE / HTTP/1.1",
            "",
        ][..],
    );
    let honest = (first, proptest::collection::vec(line, 0..6)).prop_map(|(first, lines)| {
        let mut head = format!("{first}\r\n").into_bytes();
        for line in lines {
            head.extend_from_slice(line.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\nbody");
        head
    });
    // And then a byte or two changed.
    let change = proptest::option::of((any::<proptest::sample::Index>(), any::<u8>()));
    (honest, change).prop_map(|(mut head, change)| {
        if let Some((at, byte)) = change {
            let at = at.index(head.len());
            head[at] = byte;
        }
        head
    })
}

/// What fuzzing starts from, and what it found before, also where there is no fuzzer.
#[test]
fn the_seeds_of_fuzzing() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fuzz/seeds/head");
    for entry in std::fs::read_dir(dir).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        properties::request(&seed);
        properties::response(&seed);
    }
}
