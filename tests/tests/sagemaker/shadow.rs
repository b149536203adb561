//! Shadow variants.

use tests::{
    Engine, Gate, Gateway, Next, Setup, Upstream, chunked, eventually, for_each_engine_on_loopback,
    message::{chat, chat_body, chunked_request, request, request_with, response},
};

use crate::call;

/// An endpoint with a variant that answers, and a shadow of this weight.
fn start(engine: Engine, live: &Upstream, shadow: &Upstream, weight: f64) -> Gateway {
    Setup::new(engine).endpoints(&endpoint(live, shadow, weight)).start()
}

fn endpoint(live: &Upstream, shadow: &Upstream, weight: f64) -> String {
    format!(
        r#"
        [[endpoint]]
        name = "default"
        [[endpoint.variant]]
        name = "live"
        weight = 2
        instance = [{{ url = "{}" }}]
        [[endpoint.variant]]
        name = "shadow"
        shadow = true
        weight = {weight}
        invocations_path = "/elsewhere"
        instance = [{{ url = "{}" }}]
        "#,
        live.url(),
        shadow.url()
    )
}

fn copies(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("atalho_shadow_copies_total", &[("outcome", outcome)])
}

for_each_engine_on_loopback! {
    fn a_shadow_gets_what_the_others_get(engine) {
        let live = Upstream::answering(|_| response(200, "live"));
        let shadow = Upstream::answering(|_| response(500, vec![b'x'; 1_000_000]));
        let gateway = start(engine, &live, &shadow, 2.0);
        let mut client = gateway.connect();
        let chunks = chunked::encode([&b"some "[..], b"text"]);
        let sent = [
            chat("hello"),
            call("invocations?q=1", &[("X-Amzn-SageMaker-Inference-Id", "i-1")], "question"),
            chunked_request("/v1/chat/completions", &chunks),
        ];
        for (n, sent) in sent.iter().enumerate() {
            let answer = client.ask(sent);
            assert_eq!((answer.status(), answer.payload()), (200, b"live".to_vec()));
            eventually("the copy arrives", || shadow.count() == n + 1);
            let (copy, original) = (shadow.requests().pop().unwrap(), live.requests().pop().unwrap());
            assert_eq!((copy.method(), copy.payload()), (original.method(), original.payload()));
            for field in ["x-request-id", "x-amzn-sagemaker-inference-id", "content-type"] {
                assert_eq!(copy.get(field), original.get(field), "{field}");
            }
            let target = if n == 1 { "/elsewhere?q=1" } else { "/v1/chat/completions" };
            assert_eq!(copy.target(), target);
        }
        eventually("all copies are answered", || copies(&gateway, "answered") == 3.0);
        // It is nobody's to ask for, and has no part in other requests.
        let fields = [("X-Amzn-SageMaker-Target-Variant", "shadow")];
        let named = gateway.ask(request_with("POST", "/v1/chat/completions", &fields, chat_body("x")));
        assert_eq!(named.status(), 400);
        assert_eq!(gateway.ask(request("GET", "/v1/responses/r-1", "")).status(), 200);
        gateway.expect_idle();
        assert_eq!(shadow.count(), 3);
    }
}

#[test]
fn a_shadow_gets_its_share() {
    let (live, shadow) = (Upstream::ok(), Upstream::ok());
    let gateway = start(Engine::Userspace, &live, &shadow, 0.5);
    let mut client = gateway.connect();
    for n in 0..400 {
        assert_eq!(client.ask(chat(&n.to_string())).status(), 200);
    }
    gateway.expect_idle();
    eventually("no copy is under way", || copies(&gateway, "answered") as usize == shadow.count());
    // A quarter, within six deviations.
    assert!((48..=152).contains(&shadow.count()), "{} of 400", shadow.count());
    // With no weight it gets nothing.
    gateway.reload(&Setup::new(Engine::Userspace).endpoints(&endpoint(&live, &shadow, 0.0)));
    let before = shadow.count();
    for n in 0..50 {
        client.ask(chat(&n.to_string()));
    }
    gateway.expect_idle();
    assert_eq!((shadow.count(), live.count()), (before, 450));
}

#[test]
fn a_shadow_that_hangs_or_dies_touches_nobody() {
    let live = Upstream::ok();
    let gate = Gate::new();
    let mut shadow = Upstream::held(&gate);
    let gateway = start(Engine::Userspace, &live, &shadow, 2.0);
    let mut client = gateway.connect();
    // As many as may be under way hang there; then there are no more.
    for n in 0..80 {
        assert_eq!(client.ask(chat(&n.to_string())).payload(), b"ok");
    }
    eventually("some were too many", || copies(&gateway, "too_many") == 16.0);
    eventually("the others hang", || gate.waiting() == 64);
    gate.open();
    eventually("all are answered", || copies(&gateway, "answered") == 64.0);
    gateway.expect_idle();
    // What is long is not copied, nor what has not come yet.
    let long = gateway.ask(chat(&"x".repeat(2 << 20)));
    assert_eq!(long.payload(), b"ok");
    assert_eq!(copies(&gateway, "too_large"), 1.0);
    shadow.die();
    for n in 0..5 {
        assert_eq!(client.ask(chat(&n.to_string())).payload(), b"ok");
    }
    eventually("its death is noted", || copies(&gateway, "failed") == 5.0);
    gateway.expect_outcomes("ok", 86);
    // Nor does it make a gateway ready that has nobody else.
    assert_eq!(gateway.admin_get("/readyz").status(), 200);
}

#[test]
fn a_copy_that_breaks_is_a_failed_one() {
    let live = Upstream::ok();
    let shadow = Upstream::serve(|peer, head| {
        let _ = peer.try_request_body(head);
        let _ = peer.try_send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        Next::Close
    });
    let gateway = start(Engine::Userspace, &live, &shadow, 2.0);
    assert_eq!(gateway.ask(chat("x")).payload(), b"ok");
    eventually("it is noted", || copies(&gateway, "failed") == 1.0);
    gateway.expect_idle();
}
