//! The AWS SDK, against an instance that does as it is told.

use tests::{
    Next, Peer, Setup, Upstream, chunked, for_each_engine_on_loopback, message::Head,
    python::run_script_with,
};

/// Answers with the request's body, as the custom attributes say.
fn obey(peer: &mut Peer, head: &Head) -> Next {
    let Ok(raw) = peer.try_request_body(head) else { return Next::Close };
    let body = if head.chunked() { chunked::decode(&raw).0 } else { raw };
    let how = head.get("x-amzn-sagemaker-custom-attributes").unwrap_or_default();
    let status = how.parse().unwrap_or(200);
    let fields = format!(
        "HTTP/1.1 {status} S\r\nContent-Type: x/y\r\nX-Amzn-SageMaker-Custom-Attributes: seen {how}\r\n"
    );
    let mut out = fields.into_bytes();
    let mut next = Next::Keep;
    match how {
        "chunked" => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            out.extend(chunked::encode(body.chunks(1 + body.len() / 7)));
        }
        "close" => {
            out.extend_from_slice(b"Connection: close\r\n\r\n");
            out.extend(body);
            next = Next::Close;
        }
        "break" | "stall" => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            out.extend(chunked::chunk(&body));
            next = Next::Close;
        }
        _ => {
            out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes());
            out.extend(body);
        }
    }
    if peer.try_send(&out).is_err() {
        return Next::Close;
    }
    if how == "stall" {
        // Until the gateway gives up.
        peer.end();
    }
    next
}

for_each_engine_on_loopback! {
    fn the_aws_sdk_gets_what_the_service_would_answer(engine) {
        let upstream = Upstream::serve(obey);
        let gateway =
            Setup::single(engine, &upstream).set("timeouts.stream_idle", "500ms").start();
        run_script_with("sagemaker_runtime.py", &[&gateway.url()]);
        gateway.expect_idle();
    }
}
