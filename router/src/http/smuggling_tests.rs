//! Families of request smuggling: each payload is either refused, or sent on in one reading only.

use super::{
    Framing, Limits, Reject, RequestHead, parse_request, properties,
    rewrite::{self, Origin, Upstream},
};

fn parse(buf: &[u8]) -> Result<Option<RequestHead>, Reject> {
    parse_request(buf, &Limits::default())
}

/// With these bytes in the place of the fields; each `payload` brings its own line ends.
fn request(payload: &str) -> Vec<u8> {
    format!("POST /v1/completions HTTP/1.1\r\nHost: gateway\r\n{payload}\r\n").into_bytes()
}

#[track_caller]
fn refused(payload: &str, reason: &str) {
    match parse(&request(payload)) {
        Err(reject) => {
            assert_eq!((reject.status, reject.reason), (400, reason), "{payload:?}");
        }
        Ok(head) => panic!("{payload:?} accepted: {head:?}"),
    }
}

/// The head as the instance gets it.
fn sent_on(buf: &[u8]) -> String {
    let head = parse(buf).expect("accepted").expect("complete");
    let origin = Origin { peer: [192, 0, 2, 1].into(), trusted: false };
    let ids = properties::ids();
    let up = Upstream {
        authority: "instance:8000",
        target: None,
        origin,
        instead: &[],
        upgrade: false,
        ids: &ids,
    };
    let mut out = Vec::new();
    rewrite::request(&mut out, buf, &head, &up);
    String::from_utf8_lossy(&out).to_ascii_lowercase()
}

#[test]
fn length_and_coding_together() {
    // CL.TE and TE.CL, whatever the order and the length.
    for length in ["0", "4", "6", "13"] {
        refused(
            &format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
            "ambiguous_framing",
        );
        refused(
            &format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
            "ambiguous_framing",
        );
    }
    // TE.TE: one of the two is obfuscated.
    for other in ["cow", "identity", "x", "chunked", "chunked, identity", ""] {
        refused(
            &format!("Transfer-Encoding: chunked\r\nTransfer-encoding: {other}\r\n"),
            "transfer_encoding",
        );
        refused(
            &format!("Transfer-encoding: {other}\r\nTransfer-Encoding: chunked\r\n"),
            "transfer_encoding",
        );
    }
}

#[test]
fn obfuscated_codings() {
    for value in [
        "xchunked",
        "chunked x",
        "chunked;q=1",
        "chunked,",
        ",chunked",
        "chunked, chunked",
        "gzip, chunked",
        "chunked, gzip",
        "identity",
        "\"chunked\"",
        "'chunked'",
        "chunk",
        "chunked\u{a0}",
        "\u{17f}chunked",
        "chun\tked",
        "c hunked",
        "identity, chunked",
        "",
    ] {
        refused(&format!("Transfer-Encoding: {value}\r\n"), "transfer_encoding");
    }
    // Control bytes and line tricks.
    for payload in [
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: \x0cchunked\r\n",
        "Transfer-Encoding: chunked\0\r\n",
        "Transfer-Encoding: \x7fchunked\r\n",
        "X: y\x08\r\nTransfer-Encoding: chunked\r\n",
    ] {
        refused(payload, "header_value");
    }
    for payload in [
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\0: chunked\r\n",
        "Transfer\tEncoding: chunked\r\n",
        "Transfer-Encoding chunked\r\n",
        "Transfer-Encoding\x0b: chunked\r\n",
        "\u{feff}Transfer-Encoding: chunked\r\n",
        "\0Transfer-Encoding: chunked\r\n",
        "(Transfer-Encoding: chunked\r\n",
        ": chunked\r\n",
        "\x7f: chunked\r\n",
    ] {
        refused(payload, "header_name");
    }
    for payload in [
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding:\r\n\tchunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "\tTransfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
    ] {
        refused(payload, "obs_fold");
    }
    for payload in [
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\n",
        "Transfer-Encoding: chunked\r\r\n",
        "Transfer-Encoding:\nchunked\r\n",
        "X: y\r\n\rTransfer-Encoding: chunked\r\n",
    ] {
        refused(payload, "line_end");
    }
}

#[test]
fn what_looks_like_a_framing_field() {
    for payload in
        ["Content_Length: 5\r\n", "content_LENGTH: 5\r\n", "Transfer_Encoding: chunked\r\n"]
    {
        refused(payload, "ambiguous_framing");
    }
    // Other names are other fields, to everyone who reads names as they are.
    for payload in ["X-Transfer-Encoding: chunked\r\n", "Content-Lengths: 5\r\n", "Content: 5\r\n"]
    {
        let head = parse(&request(payload)).unwrap().unwrap();
        assert_eq!(head.framing, Framing::none());
    }
}

#[test]
fn obfuscated_lengths() {
    for value in [
        "+5",
        "-5",
        "-0",
        "5, 5",
        "5,5",
        "5 5",
        "5;",
        "5.0",
        "0x5",
        "5e0",
        "\u{b2}",
        "five",
        "",
        "5_0",
        "5\t5",
        "18446744073709551621",
        "99999999999999999999999999999999",
        "9223372036854775808",
        "\"5\"",
    ] {
        refused(&format!("Content-Length: {value}\r\n"), "content_length");
    }
    for payload in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n",
    ] {
        refused(payload, "content_length");
    }
    refused("Content-Length : 5\r\n", "header_name");
    refused("Content-Length\r\n", "header_name");
    refused("Content-Length: 5\x0b\r\n", "header_value");
    refused("Content-Length: 5\r\n 6\r\n", "obs_fold");
    // Odd but plain: sent on in the plainest spelling.
    let out = sent_on(&request("CONTENT-length:\t 0005 \r\n"));
    assert!(out.contains("\r\ncontent-length: 5\r\n") && !out.contains("0005"));
}

#[test]
fn old_versions() {
    for fields in [
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n",
    ] {
        let buf = format!("POST / HTTP/1.0\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parse(buf.as_bytes()).map_err(|r| r.reason), Err("transfer_encoding"));
    }
    for line in
        ["POST /", "POST / HTTP/0.9", "POST / HTTP/1.2", "POST / HTTP/1.1 x", "POST / HTTP/1.1 "]
    {
        let buf = format!("{line}\r\nHost: a\r\n\r\n");
        assert!(parse(buf.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn request_lines() {
    for line in [
        "POST  / HTTP/1.1",
        "POST /  HTTP/1.1",
        "POST\t/ HTTP/1.1",
        "POST /\tHTTP/1.1",
        " POST / HTTP/1.1",
        "POST / x HTTP/1.1",
        "POST /\0 HTTP/1.1",
        "POST /\x0b HTTP/1.1",
        "PO ST / HTTP/1.1",
        "POST:/ HTTP/1.1",
        "POST /a\rb HTTP/1.1",
        "POST /\u{2028} HTTP/1.1",
        "POST / HTTP/1.1\0",
        "POST / HTTP\\1.1",
        "POST / HTTP/1 .1",
        "POST / HTTP/01.1",
    ] {
        let buf = format!("{line}\r\nHost: a\r\n\r\n");
        let reject = parse(buf.as_bytes()).expect_err(line);
        assert_eq!(reject.status, 400, "{line:?}");
    }
}

#[test]
fn hosts() {
    for fields in [
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: a\r\nhOST: a\r\n",
        "X: y\r\n",
        "Host: a b\r\n",
        "Host: a, b\r\n",
        "Host: a/b\r\n",
        "Host: u@a\r\n",
        "Host: a:80:90\r\n",
        "Host: a:x\r\n",
        "Host: a?b\r\n",
        "Host: a#b\r\n",
        "Host: a\\b\r\n",
        "Host: http://a\r\n",
        "Host: [::1\r\n",
        "Host: \u{e9}\r\n",
        "Host: :80\r\n",
    ] {
        let buf = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(
            parse(buf.as_bytes()).map_err(|r| (r.status, r.reason)),
            Err((400, "host")),
            "{fields:?}"
        );
    }
    // Not even an absolute target makes up for a bad Host, and a good one is overruled by it.
    for fields in ["", "Host: a\r\nHost: b\r\n", "Host: a b\r\n"] {
        let buf = format!("GET http://t/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(parse(buf.as_bytes()).map_err(|r| r.reason), Err("host"));
    }
    let out = sent_on(b"GET http://target:1/p HTTP/1.1\r\nHost: other\r\n\r\n");
    assert!(out.starts_with("get /p http/1.1\r\nhost: instance:8000\r\n"));
    assert!(out.contains("x-forwarded-host: target:1\r\n") && !out.contains("other"));
    for target in [
        "http://u:p@h/",
        "http:///p",
        "http:/p",
        "http:p",
        "https:h",
        "http://h\\p",
        "http://a,b/",
        "//h@",
    ] {
        let buf = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        match parse(buf.as_bytes()) {
            Err(reject) => assert_eq!(reject.reason, "target"),
            // A path, however odd, and never a host.
            Ok(head) => assert_eq!(head.unwrap().host(buf.as_bytes()), Some(&b"a"[..])),
        }
    }
}

#[test]
fn connection_options_remove_nothing_that_matters() {
    for option in [
        "content-length",
        "transfer-encoding",
        "host",
        "authorization",
        "cookie",
        "x-api-key",
        "content-type",
        "x-amzn-sagemaker-prefix-aware-id",
        "X-FORWARDED-FOR",
        "via",
    ] {
        let out = sent_on(&request(&format!(
            "Connection: close, {option}\r\nContent-Length: 5\r\nAuthorization: b\r\nCookie: c\r\n\
             X-Api-Key: k\r\nContent-Type: t\r\nX-Amzn-SageMaker-Prefix-Aware-Id: i\r\n"
        )));
        for kept in [
            "content-length: 5",
            "authorization: b",
            "cookie: c",
            "x-api-key: k",
            "content-type: t",
            "host: instance:8000",
            "x-amzn-sagemaker-prefix-aware-id: i",
            "x-forwarded-for: 192.0.2.1",
        ] {
            assert!(out.contains(&format!("\r\n{kept}\r\n")), "{option} removed {kept}");
        }
        assert!(!out.contains("connection"));
    }
    let chunked =
        sent_on(&request("Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n"));
    assert!(chunked.contains("\r\ntransfer-encoding: chunked\r\n"));
    // Many options would make every field be compared with every option.
    let many: Vec<_> = (0..33).map(|i| format!("x-{i}")).collect();
    refused(&format!("Connection: {}\r\n", many.join(",")), "connection");
    let split: String = many.iter().map(|option| format!("Connection: {option}\r\n")).collect();
    refused(&split, "connection");
}

#[test]
fn upgrades_and_tunnels_do_not_open() {
    let out = sent_on(&request(
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    ));
    assert!(!out.contains("upgrade") && !out.contains("http2-settings"));
    let connect = parse(b"CONNECT instance:8000 HTTP/1.1\r\nHost: instance:8000\r\n\r\n");
    assert_eq!(connect.map_err(|r| r.status), Err(501));
}

#[test]
fn bytes_behind_the_head_are_not_part_of_it() {
    let hidden = "0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut buf = request(&format!("Content-Length: {}\r\n", hidden.len()));
    let head_length = buf.len();
    buf.extend_from_slice(hidden.as_bytes());
    let head = parse(&buf).unwrap().unwrap();
    assert_eq!((head.len, head.framing), (head_length, Framing::length(hidden.len() as u64)));
    // A GET with a body has that body.
    let buf = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nGET /x HTTP";
    assert_eq!(parse(buf).unwrap().unwrap().framing, Framing::length(9));
}

#[test]
fn chunk_tricks() {
    let malformed = [
        &b"+5\r\nhello\r\n"[..],
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\t;x\r\nhello\r\n",
        b"5\nhello\n",
        b"5\r\nhello\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhell\r\n",
        b"\r\n5\r\nhello\r\n",
        b";\r\n",
        b"5;\nhello",
        b"5;a\0\r\nhello\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"10000000000000005\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        b"8000000000000000\r\n",
        b"5_0\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\n\n",
        b"0\r\n\n",
        b"0\r\nX\0: y\r\n\r\n",
        b"G\r\n",
        b"\xd9\xa5\r\n",
        b"0;\x7f\r\n",
    ];
    for body in malformed {
        let mut framing = Framing::chunked();
        assert!(framing.advance(body).is_err(), "{:?}", String::from_utf8_lossy(body));
        assert!(!framing.is_done());
    }
    // The end is where it is, whatever follows.
    for (body, length) in [
        (&b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n"[..], 15),
        (b"0\r\n\r\n0\r\n\r\n", 5),
        (b"0000000000000000000\r\n\r\n", 23),
        (b"0;a=\"\r\n\r\nGET", 9),
        (b"0\r\nTransfer-Encoding: chunked\r\n\r\n", 33),
    ] {
        let mut framing = Framing::chunked();
        assert_eq!(framing.advance(body), Ok(length));
        assert!(framing.is_done());
    }
}
