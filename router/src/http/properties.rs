//! What must hold for every input, whoever made it up: for property tests and fuzzing.

use super::{
    Framing, Limits, Method, RequestHead, Version,
    cors::Cors,
    forwarded,
    ids::{Ids, RequestId, TraceParent},
    parse_request, parse_request_from, parse_response,
    rewrite::{self, Downstream, Origin, Upstream},
};

/// Room for what rewriting adds.
const ROOMY: Limits = Limits { head_bytes: 1 << 20, headers: 400, body_bytes: u64::MAX };

/// A trace.
const TRACE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a request may be called.
pub(super) fn ids() -> Ids {
    let request = RequestId::parse(b"req-1").expect("valid");
    Ids { request, trace: TraceParent::parse(TRACE), continued: true }
}

/// A request head, whole and in pieces; what is accepted is read alike by another parser, and what is
/// sent on is read as it was meant.
pub fn request(buf: &[u8]) {
    let limits = Limits { headers: 300, ..Limits::default() };
    let whole = parse_request(buf, &limits);

    // Piece by piece: what is known early stays true.
    let mut seen = 0;
    for length in (0..buf.len().min(2000)).step_by(1 + buf.len() / 50) {
        match parse_request_from(&buf[..length], &mut seen, &limits) {
            Ok(None) => continue,
            Ok(head) => assert_eq!(whole, Ok(head), "accepted at {length}"),
            Err(_) => assert!(whole.is_err(), "refused at {length}"),
        }
        break;
    }

    let Ok(Some(head)) = whole else { return };
    agrees_with_httparse(buf, &head);
    let peer = std::net::IpAddr::from([192, 0, 2, 1]);
    let ids = ids();
    for (target, trusted) in [(None, false), (None, true), (Some(&b"/other?x"[..]), false)] {
        let up = Upstream {
            instead: &[],
            authority: "10.0.0.1:8000",
            target,
            origin: Origin { peer, trusted },
            upgrade: false,
            ids: &ids,
        };
        let mut out = Vec::new();
        rewrite::request(&mut out, buf, &head, &up);
        out.extend_from_slice(b"next");
        let again = parse_request(&out, &ROOMY).expect("accepted").expect("complete");
        assert_eq!(again.len, out.len() - 4);
        assert_eq!(again.framing, head.framing);
        assert_eq!(again.method_bytes(&out), head.method_bytes(buf));
        assert_eq!(again.target(&out), target.unwrap_or_else(|| head.target(buf)));
        assert_eq!(again.host(&out), Some(&b"10.0.0.1:8000"[..]));
        assert!(again.keep_alive && !again.expect_continue && again.version == Version::Http11);
        for gone in ["connection", "upgrade", "te", "keep-alive", "expect", "proxy-authorization"] {
            assert_eq!(again.header(&out, gone), None, "{gone}");
        }
        for kept in ["authorization", "content-type", "x-amzn-sagemaker-prefix-aware-id"] {
            assert_eq!(again.header(&out, kept), head.header(buf, kept), "{kept}");
        }
        for (name, value) in [("x-request-id", ids.request.as_bytes()), ("traceparent", TRACE)] {
            assert_eq!(again.headers(&out).only(name), Some(value), "{name}");
        }
        let client = |trusted: bool| forwarded::client(again.headers(&out), peer, |_| trusted);
        assert_eq!(client(false), peer);
        // Whoever trusts the gateway learns whom it has seen.
        let mut hops =
            again.headers(&out).only("x-forwarded-for").expect("once").rsplit(|b| *b == b' ');
        assert_eq!(hops.next(), Some(&b"192.0.2.1"[..]));
        assert!(trusted || hops.next().is_none());
        let _ = client(true);
    }
}

/// The same fields, in the same order, as `httparse` finds.
fn agrees_with_httparse(buf: &[u8], head: &RequestHead) {
    let mut headers = [httparse::EMPTY_HEADER; 300];
    let mut other = httparse::Request::new(&mut headers);
    let length = other.parse(buf).expect("accepted");
    assert_eq!(length, httparse::Status::Complete(head.len));
    let fields: Vec<_> = head.headers(buf).collect();
    let others: Vec<_> = other.headers.iter().map(|h| (h.name.as_bytes(), h.value)).collect();
    assert_eq!(fields, others);
}

/// A response head, for each kind of request and each kind of client.
pub fn response(buf: &[u8]) {
    for method in [Method::Get, Method::Head] {
        let Ok(Some(head)) = parse_response(buf, method, &Limits::default()) else { continue };
        for (version, keep_alive) in
            [(Version::Http11, true), (Version::Http11, false), (Version::Http10, true)]
        {
            let chunked = head.framing == Framing::chunked();
            let dechunk = chunked && version == Version::Http10;
            let body = if dechunk { rewrite::Body::Payload } else { rewrite::Body::Verbatim };
            let cors = match keep_alive {
                true => Cors::On { allowed: Some("https://app.example"), varies: true },
                false => Cors::Off,
            };
            let extra = [("x-atalho-instance", &b"10.0.0.1:8000"[..])];
            let down = Downstream { version, keep_alive, body, extra: &extra, cors };
            let mut out = Vec::new();
            rewrite::response(&mut out, buf, &head, &down);
            let again = parse_response(&out, method, &ROOMY).expect("accepted").expect("complete");
            assert_eq!((again.len, again.status), (out.len(), head.status));
            assert_eq!(again.reason_phrase(&out), head.reason_phrase(buf));
            if dechunk {
                assert!(again.framing.is_until_close());
            } else {
                assert_eq!(again.framing, head.framing);
            }
            let stays = keep_alive && !again.framing.is_until_close();
            assert_eq!(again.keep_alive, stays || head.is_interim());
            let instances =
                again.headers(&out).filter(|(n, _)| n.eq_ignore_ascii_case(b"x-atalho-instance"));
            assert_eq!(instances.count(), 1);
            if keep_alive && !again.is_interim() {
                let origin = again.headers(&out).only("access-control-allow-origin");
                assert_eq!(origin, Some(&b"https://app.example"[..]));
                assert_eq!(again.header(&out, "access-control-allow-credentials"), None);
            }
            for gone in ["upgrade", "keep-alive", "proxy-authenticate"] {
                assert_eq!(again.header(&out, gone), None, "{gone}");
            }
        }
    }
}
