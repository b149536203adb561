use super::*;

fn parse(buf: &[u8]) -> Result<Option<RequestHead>, Reject> {
    parse_request(buf, &Limits::default())
}

fn head(buf: &[u8]) -> RequestHead {
    parse(buf).expect("accepted").expect("complete")
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
    assert_eq!(head.headers(buf).count(), 4);
}
