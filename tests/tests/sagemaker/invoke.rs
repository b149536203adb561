//! InvokeEndpoint.

use tests::{
    Engine, Gate, Next, Setup, Upstream, chunked, eventually, for_each_engine_on_loopback,
    message::{chunked_request, request, request_with, response, response_with},
    payload,
};

use crate::{call, error_type, variant};

for_each_engine_on_loopback! {
    fn a_good_answer_goes_through_as_it_is(engine) {
        let body = payload::bytes(1, 300_000);
        let answer = response_with(
            201,
            &[("Content-Type", "x/y"), ("X-Amzn-SageMaker-Custom-Attributes", "trace=1")],
            &body,
        );
        let upstream = Upstream::answering(move |_| answer.clone());
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        for _ in 0..2 {
            let fields = [("X-Amzn-SageMaker-Inference-Id", "i-1")];
            let got = client.ask(call("invocations?a=1", &fields, "question"));
            assert_eq!((got.status(), variant(&got)), (201, Some("main")));
            assert_eq!(got.get("content-type"), Some("x/y"));
            assert_eq!(got.get("x-amzn-sagemaker-custom-attributes"), Some("trace=1"));
            payload::assert_same("the answer", &got.payload(), &body);
        }
        let sent = upstream.requests().pop().expect("a request");
        assert_eq!(sent.target(), "/invocations?a=1");
        assert_eq!(sent.get("x-amzn-sagemaker-inference-id"), Some("i-1"));
        assert_eq!(upstream.accepted(), 1);
        gateway.expect_idle();
    }

    fn an_error_of_the_instance_is_the_models(engine) {
        let upstream = Upstream::answering(|request| match &*request.payload() {
            b"sized" => response_with(404, &[("Content-Type", "text/plain")], "no such adapter"),
            b"chunked" => {
                let mut out = b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                out.extend(chunked::encode([&b"out of "[..], b"memory"]));
                out
            }
            b"long" => response(503, "\u{e9}".repeat(100_000)),
            b"moved" => response_with(302, &[("Location", "/elsewhere")], ""),
            _ => response(200, "ok"),
        });
        let gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        for (question, status, text) in [
            ("sized", 404, "no such adapter"),
            ("chunked", 500, "out of memory"),
            ("moved", 302, ""),
            ("long", 503, "\u{e9}"),
        ] {
            for operation in ["invocations", "invocations-response-stream"] {
                let answer = client.ask(call(operation, &[], question));
                assert_eq!((answer.status(), error_type(&answer)), (424, "ModelError"));
                assert_eq!(variant(&answer), Some("main"));
                assert!(answer.get("x-atalho-instance").is_some());
                assert_eq!(answer.get("x-atalho-error"), None, "it is the instance's");
                let json = answer.json();
                assert_eq!(json["OriginalStatusCode"], status);
                let original = json["OriginalMessage"].as_str().expect("a text");
                if question == "long" {
                    assert!(original == text.repeat(2048), "cut between characters");
                } else {
                    assert_eq!(original, text);
                }
                assert!(json["Message"].as_str().expect("a text").contains(text));
                assert!(json["LogStreamArn"].is_string());
            }
        }
        // The client's connection is in order, and so is the instance's but for the long ones.
        assert_eq!(client.ask(call("invocations", &[], "well")).payload(), b"ok");
        assert_eq!(upstream.accepted(), 3);
        // Asked as the container is, the instance speaks for itself.
        let plain = client.ask(request("POST", "/invocations", "sized"));
        assert_eq!((plain.status(), plain.payload()), (404, b"no such adapter".to_vec()));
        gateway.expect_idle();
        assert_eq!(gateway.in_flight(), 0);
    }
}

#[test]
fn an_error_whose_body_breaks_off_says_what_came() {
    let upstream = Upstream::serve(|peer, head| {
        let _ = peer.try_request_body(head);
        peer.send("HTTP/1.1 400 No\r\nContent-Length: 100\r\n\r\nnot so");
        Next::Close
    });
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let answer = gateway.ask(call("invocations", &[], "x"));
    assert_eq!((answer.status(), error_type(&answer)), (424, "ModelError"));
    assert_eq!(answer.json()["OriginalStatusCode"], 400);
    assert_eq!(answer.json()["OriginalMessage"], "not so");
    gateway.expect_outcomes("upstream_aborted", 1);
}

#[test]
fn failures_of_the_gateways_own_are_the_services() {
    let base = || Setup::new(Engine::Userspace);
    let nobody = base().start();
    let answer = nobody.ask(call("invocations", &[], "x"));
    assert_eq!((answer.status(), error_type(&answer)), (503, "ServiceUnavailable"));
    assert!(answer.get("retry-after").is_some());

    let gate = Gate::new();
    let held = Upstream::held(&gate);
    let full = base().instances([&held]).routing("max_in_flight", 1);
    let full = full.routing("concurrency_threshold", 1).start();
    let mut first = full.connect();
    first.send(call("invocations", &[], "x"));
    eventually("the only place is taken", || gate.waiting() == 1);
    let answer = full.ask(call("invocations-response-stream", &[], "x"));
    assert_eq!((answer.status(), error_type(&answer)), (429, "ModelNotReadyException"));
    gate.open();
    assert_eq!(first.response().status(), 200);

    let closes = Upstream::serve(|peer, head| {
        let _ = peer.try_request_body(head);
        Next::Close
    });
    let closing = base().instances([&closes]).start();
    let deaf = Upstream::serve(|peer, head| {
        let _ = peer.try_request_body(head);
        peer.end();
        Next::Close
    });
    let slow = base().instances([&deaf]).set("timeouts.first_byte", "300ms").start();
    for (gateway, reason) in [(closing, "upstream_closed"), (slow, "first_byte_timeout")] {
        let answer = gateway.ask(call("invocations", &[], "x"));
        assert_eq!((answer.status(), error_type(&answer)), (424, "ModelError"), "{reason}");
        assert_eq!(answer.json()["OriginalStatusCode"], 0);
        assert_eq!(answer.get("x-atalho-error"), Some(reason));
        let errors = |status| {
            gateway.metric("atalho_errors_total", &[("status", status), ("reason", reason)])
        };
        assert_eq!((errors("424"), errors("502") + errors("504")), (1.0, 0.0));
        // Asked as the container is, the answer is HTTP's.
        let plain = gateway.ask(request("POST", "/invocations", "x"));
        assert!(matches!(plain.status(), 502 | 504), "{reason}");
    }

    let ok = Upstream::ok();
    let gateway = base().instances([&ok]).start();
    let unknown = gateway.ask(request("POST", "/endpoints/nowhere/invocations", "x"));
    assert_eq!((unknown.status(), error_type(&unknown)), (400, "ValidationError"));
    let message = unknown.json()["Message"].to_string();
    assert!(message.starts_with("\"Endpoint nowhere of ") && message.contains("not found"));
    let answer = gateway.ask(call("async-invocations", &[], "x"));
    assert_eq!((answer.status(), error_type(&answer)), (400, "ValidationError"));
    assert!(answer.json()["Message"].to_string().contains("InvokeEndpointAsync is not offered"));
    assert_eq!(ok.count(), 0);
}

#[test]
fn parameters_are_checked_before_anybody_is_asked() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    for (operation, name, value, member) in [
        ("invocations", "Target-Variant", "a_b", "targetVariant"),
        ("invocations", "Inference-Id", &"x".repeat(65), "inferenceId"),
        ("invocations", "Custom-Attributes", &"x".repeat(1025), "customAttributes"),
        ("invocations", "Prefix-Aware-Id", &"x".repeat(65), "prefixAwareId"),
        ("invocations", "Session-Id", "a b", "sessionId"),
        ("invocations", "Inference-Component", "-a", "inferenceComponentName"),
        ("invocations-response-stream", "Session-Id", "NEW_SESSION", "sessionId"),
        ("inference-components/a_b/invocations", "X", "x", "inferenceComponentName"),
    ] {
        let fields = [(&*format!("X-Amzn-SageMaker-{name}"), value)];
        let answer = gateway.ask(call(operation, &fields, "x"));
        assert_eq!((answer.status(), error_type(&answer)), (400, "ValidationError"), "{name}");
        let message = answer.json()["Message"].as_str().expect("a text").to_owned();
        assert!(message.starts_with("1 validation error detected: Value '"), "{message}");
        assert!(message.contains(&format!("' at '{member}' failed to satisfy")), "{message}");
        // The container's own path has no such parameters, but for the tenant's id.
        if name != "Prefix-Aware-Id" {
            let plain = gateway.ask(request_with("POST", "/invocations", &fields, "x"));
            assert!(plain.status() == 200 || name == "Target-Variant", "{name}");
        }
    }
    assert!(upstream.requests().iter().all(|request| request.target() == "/invocations"));
}

#[test]
fn bodies_of_calls_have_a_limit_of_their_own() {
    let upstream =
        Upstream::answering(|request| response(200, request.payload().len().to_string()));
    let setup = || Setup::single(Engine::Userspace, &upstream);
    let gateway = setup().set("limits.invoke_body_bytes", 100_000).start();
    let body = |length| vec![b'x'; length];
    let in_chunks = |operation: &str, length| {
        let pieces = chunked::encode(body(length).chunks(30_000));
        chunked_request(&format!("/endpoints/default/{operation}"), pieces)
    };
    for operation in ["invocations", "invocations-response-stream"] {
        assert_eq!(gateway.ask(call(operation, &[], body(100_000))).status(), 200);
        assert_eq!(gateway.ask(in_chunks(operation, 99_000)).status(), 200);
        for sent in [call(operation, &[], body(100_001)), in_chunks(operation, 100_001)] {
            let answer = gateway.ask(sent);
            assert_eq!((answer.status(), error_type(&answer)), (413, "ValidationError"));
            let message = answer.json()["Message"].to_string();
            assert!(message.contains("100000 bytes (`limits.invoke_body_bytes`)"), "{message}");
        }
    }
    // Nobody else is meant.
    assert_eq!(gateway.ask(request("POST", "/invocations", body(200_000))).status(), 200);
    // The smaller of both counts.
    gateway.reload(&setup().set("limits.body_bytes", 50_000));
    let answer = gateway.ask(call("invocations", &[], body(50_001)));
    assert_eq!(answer.status(), 413);
    assert!(answer.json()["Message"].to_string().contains("limits.body_bytes"));
}

#[test]
fn instances_take_calls_where_their_variant_says() {
    let fleet: Vec<Upstream> = (0..2).map(|_| Upstream::ok()).collect();
    let gateway = Setup::new(Engine::Userspace)
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "default"
            [[endpoint.variant]]
            name = "own"
            instance = [{{ url = "{}" }}]
            [[endpoint.variant]]
            name = "chat"
            invocations_path = "/v1/chat/completions"
            instance = [{{ url = "{}" }}]
            "#,
            fleet[0].url(),
            fleet[1].url()
        ))
        .start();
    for (index, name, path) in [(0, "own", "/invocations"), (1, "chat", "/v1/chat/completions")] {
        let fields = [("X-Amzn-SageMaker-Target-Variant", name)];
        for operation in ["invocations?q=1", "invocations-response-stream?q=1"] {
            let answer = gateway.ask(call(operation, &fields, "{}"));
            assert_eq!((answer.status(), variant(&answer)), (200, Some(name)));
            let got = fleet[index].requests().pop().expect("a request");
            assert_eq!(got.target(), format!("{path}?q=1"));
        }
        // A path of its own stays as it is.
        let answer = gateway.ask(request_with("POST", "/invocations", &fields, "{}"));
        assert_eq!(variant(&answer), Some(name));
        assert_eq!(fleet[index].requests().pop().expect("a request").target(), "/invocations");
    }
}

#[test]
fn the_components_name_reaches_the_instance() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let header = "X-Amzn-SageMaker-Inference-Component";
    for (target, fields, expected) in [
        ("inference-components/lora-1/openai/v1/chat/completions", vec![], "lora-1"),
        ("inference-components/lora-1/invocations", vec![(header, "lora-2")], "lora-1"),
        ("inference-components/lora-1/invocations-response-stream", vec![], "lora-1"),
        ("invocations", vec![(header, "lora-2")], "lora-2"),
        ("openai/v1/chat/completions", vec![(header, "lora-2")], "lora-2"),
    ] {
        let answer = gateway.ask(call(target, &fields, "{}"));
        assert_eq!(answer.status(), 200, "{target}");
        let got = upstream.requests().pop().expect("a request");
        assert_eq!(got.get(header), Some(expected), "{target}");
        assert!(matches!(got.target(), "/invocations" | "/v1/chat/completions"));
    }
    let bad = gateway.ask(call("inference-components/a%20b/openai/v1/chat/completions", &[], "{}"));
    assert_eq!(bad.status(), 400);
    assert!(bad.json()["error"]["message"].to_string().contains("inferenceComponentName"));
}
