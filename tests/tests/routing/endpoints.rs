//! Endpoints, variants and models, and what a response says of the choice.

use super::*;

#[test]
fn the_routing_headers_can_be_turned_off() {
    let fleet = fleet(2);
    let setup = Setup::new(Engine::Userspace).instances(&fleet).prefix_aware(PREFIX, 10);
    let gateway = setup.clone().set("response_headers", false).start();
    let answer = gateway.ask(chat("x"));
    assert_eq!(answer.status(), 200);
    assert!(answer.fields.iter().all(|(name, _)| !name.to_lowercase().contains("atalho")));
    gateway.reload(&setup);
    assert!(gateway.ask(chat("x")).get(INSTANCE_HEADER).is_some());
}

#[test]
fn an_instances_own_routing_headers_are_not_believed() {
    let upstream = Upstream::answering(|_| {
        tests::message::response_with(200, &[(INSTANCE_HEADER, "forged"), (REASON_HEADER, "x")], "")
    });
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let answer = gateway.ask(chat("x"));
    assert!(answer.all(INSTANCE_HEADER).iter().any(|name| *name != "forged"));
}

#[test]
fn models_are_the_union_of_the_fleet() {
    let models = |names: &[&str]| {
        let data: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"id": name, "object": "model", "owned_by": "x"}))
            .collect();
        let body = serde_json::json!({"object": "list", "data": data}).to_string();
        move |request: &Message| match request.target() {
            "/v1/models" => response(200, &body),
            _ => response(404, ""),
        }
    };
    let mut fleet = vec![
        Upstream::answering(models(&["base", "lora-a"])),
        Upstream::answering(models(&["base", "lora-b"])),
        Upstream::answering(|_| response(500, "broken")),
        Upstream::ok(),
    ];
    fleet[3].die();
    let gateway = start(&fleet);
    let names = |answer: Message| -> Vec<String> {
        assert_eq!(answer.status(), 200);
        assert!(answer.get("content-type").is_some_and(|kind| kind.contains("json")));
        let json = answer.json();
        assert_eq!(json["object"], "list");
        let mut names: Vec<String> = json["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(gateway.ask(request("GET", "/v1/models", ""))), ["base", "lora-a", "lora-b"]);
    let mut client = gateway.connect();
    client.send(request("HEAD", "/v1/models", ""));
    assert_eq!(client.response_to("HEAD").status(), 200);
    assert_eq!(client.ask(request("GET", "/v1/models", "")).status(), 200);
    gateway.expect_idle();
}

#[test]
fn endpoints_and_variants_are_chosen_by_name() {
    let fleet = fleet(4);
    let url = |n: usize| fleet[n].url();
    let gateway = Setup::new(Engine::Userspace)
        .endpoints(&format!(
            r#"
            [[endpoint]]
            name = "first"
            [[endpoint.variant]]
            name = "blue"
            weight = 3
            instance = [{{ url = "{}" }}]
            [[endpoint.variant]]
            name = "green"
            instance = [{{ url = "{}" }}]
            [[endpoint]]
            name = "second"
            [[endpoint.variant]]
            name = "only"
            instance = [{{ url = "{}" }}, {{ url = "{}" }}]
            "#,
            url(0),
            url(1),
            url(2),
            url(3)
        ))
        .start();
    for n in 0..20 {
        let body = payload::text(n, 30);
        let answer = gateway.ask(request("POST", "/endpoints/second/invocations", &body));
        assert!(served_by(&fleet, &answer) >= 2);
    }
    let got = fleet[2].requests().into_iter().chain(fleet[3].requests()).next().unwrap();
    assert_eq!(got.target(), "/invocations");
    let answer = gateway.ask(request(
        "POST",
        "/endpoints/second/openai/v1/chat/completions?api-version=1",
        tests::message::chat_body("hello"),
    ));
    let instance = served_by(&fleet, &answer);
    assert_eq!(
        fleet[instance].requests().pop().unwrap().target(),
        "/v1/chat/completions?api-version=1"
    );

    let unknown = gateway.ask(request("POST", "/endpoints/third/invocations", "x"));
    assert_eq!(unknown.status(), 400);
    assert!(unknown.get("x-atalho-error").is_some());

    let target = |name: &str| {
        let fields = [("X-Amzn-SageMaker-Target-Variant", name)];
        gateway.ask(request_with("POST", "/endpoints/first/invocations", &fields, "x"))
    };
    for _ in 0..5 {
        assert_eq!(served_by(&fleet, &target("green")), 1);
        assert_eq!(served_by(&fleet, &target("blue")), 0);
    }
    let answer = target("green");
    assert_eq!(answer.get("x-amzn-invoked-production-variant"), Some("green"));
    assert!(matches!(target("purple").status(), 400 | 404));

    // By weight otherwise.
    let before = fleet[0].count();
    let mut client = gateway.connect();
    for n in 0..400 {
        assert!(served_by(&fleet, &client.ask(chat(&format!("p {n}")))) < 2);
    }
    let share = fleet[0].count() - before;
    assert!((250..=350).contains(&share), "{share} of 400 to the variant with three quarters");
}

#[test]
fn without_an_instance_the_answer_is_503_with_retry_after() {
    let gateway = Setup::new(Engine::Userspace).start();
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.ask(chat("x"));
        assert_eq!(answer.status(), 503);
        assert!(answer.get("retry-after").is_some());
        assert!(!answer.closes());
    }
}
