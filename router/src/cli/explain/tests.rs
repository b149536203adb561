use super::*;

fn options(args: &[&str]) -> Options {
    use clap::Parser;
    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }
    let fleet = ["--backend", "http://10.0.0.1:80", "--backend", "http://10.0.0.2:80"];
    Only::parse_from(["explain"].iter().chain(&fleet).chain(args)).options
}

fn explained(args: &[&str]) -> anyhow::Result<Explanation> {
    let options = options(args);
    let config = Arc::new(options.fleet.config(Flags::default())?);
    let fleet = Fleet::build(&config, None, &Counters::heap(8), &Metrics::new())?;
    explain_request(&fleet, &input::read(&options)?, options.variant.as_deref())
}

#[test]
fn a_raw_request_and_its_body_alone_say_the_same() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"Hello"}]}"#;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("request.http");
    // As an editor saves it.
    let raw = format!(
        "POST /v1/chat/completions?x=1 HTTP/1.1\nHost: h\nContent-Length: {}\n\
         X-Amzn-SageMaker-Prefix-Aware-Id: t\n\n{body}",
        body.len()
    );
    std::fs::write(&file, raw).expect("a file");
    let whole = explained(&[file.to_str().expect("text")]).expect("an explanation");
    let alone = explained(&["-d", body, "-H", "x-amzn-sagemaker-prefix-aware-id: t"])
        .expect("an explanation");
    assert_eq!(whole.key, alone.key);
    assert_eq!(whole.tenant.expect("a tenant").value, "t");
    let home = &alone.ranking[0].instance;
    assert_eq!(alone.choice.instance.as_ref(), Some(home));
    assert_eq!(alone.choice.reason, Some("home"));
    assert!(alone.ranking[0].score > alone.ranking[1].score);
}

#[test]
fn chunked_bodies_are_taken_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("request.http");
    let raw = "POST /invocations HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
               3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    std::fs::write(&file, raw).expect("a file");
    let explanation = explained(&[file.to_str().expect("text")]).expect("an explanation");
    let prefix = explanation.prefix.expect("a prefix");
    assert_eq!((prefix.parts, prefix.length), (vec!["abcde".to_owned()], 5));
}

#[test]
fn refusals_say_what_the_gateway_would_answer() {
    let error = |args: &[&str]| format!("{:#}", explained(args).expect_err("a refusal"));
    assert!(error(&["-d", "{}", "--path", "/endpoints/no/invocations"]).contains("404"));
    assert!(error(&["-d", "{}", "--variant", "no"]).contains("there are default"));
    assert!(error(&["-d", "{}", "-H", "x-amzn-sagemaker-prefix-aware-id:  "]).contains("1 to 64"));
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("request.http");
    std::fs::write(&file, "POST / HTTP/1.1\nContent-Length: 0\n\n").expect("a file");
    assert!(error(&[file.to_str().expect("text")]).contains("400"));
}

#[test]
fn text_names_every_part() {
    let text = explained(&["-d", r#"{"model":"m","messages":[]}"#])
        .expect("an explanation")
        .to_text(false);
    for part in ["request", "endpoint", "tenant", "model", "prefix", "key", "ranking", "choice"] {
        assert!(text.lines().any(|line| line.starts_with(part)), "no {part} in\n{text}");
    }
}

#[test]
fn broken_bodies_and_those_that_cannot_be_read_are_named() {
    let notes = |args: &[&str]| explained(args).expect("an explanation").notes.join("; ");
    assert_eq!(notes(&["-d", r#"{"messages":[]}"#]), "");
    let broken = notes(&["-d", r#"{"messages":[{"content" 5}]}"#]);
    assert!(broken.contains("not valid JSON") && broken.contains("line 1 column 25"), "{broken}");
    // Even where nothing that decides is behind the fault.
    assert!(notes(&["-d", r#"{"model":"m","x":tru}"#]).contains("not valid JSON"));
    // Bytes are bytes.
    assert_eq!(notes(&["-d", "x", "--path", "/invocations"]), "");
    let unknown = explained(&["-d", "x", "-H", "Content-Encoding: lzw"]).expect("an explanation");
    assert!(unknown.notes[0].contains("Content-Encoding is not known"), "{:?}", unknown.notes);
    assert_eq!((unknown.key, unknown.choice.reason), (None, Some("undecodable")));
}

#[test]
fn the_list_of_models_is_the_gateways_own() {
    let explanation =
        explained(&["-X", "GET", "-d", "", "--path", "/v1/models"]).expect("an explanation");
    assert!(explanation.choice.why.contains("answers this itself"), "{}", explanation.choice.why);
    assert_eq!(explanation.choice.reason, None);
}

#[test]
fn stored_responses_are_for_their_keepers() {
    let explanation =
        explained(&["-X", "GET", "-d", "", "--path", "/v1/responses/resp_1"]).expect("one");
    assert!(explanation.choice.why.contains("keeps this response"), "{explanation:?}");
    let body = r#"{"input":"a","previous_response_id":"resp_1"}"#;
    let explanation = explained(&["-d", body, "--path", "/v1/responses"]).expect("one");
    assert!(explanation.notes.iter().any(|note| note.contains("`resp_1`")), "{explanation:?}");
    let body = r#"{"input":"a"}"#;
    let explanation = explained(&["-d", body, "--path", "/v1/responses"]).expect("one");
    assert!(explanation.notes.is_empty(), "{explanation:?}");
}

#[test]
fn media_is_shown_by_its_hash() {
    let picture = "data:image/png;base64,".to_owned() + &"iVBORw0KGgo".repeat(20_000);
    let content = serde_json::json!([
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": "What is this?"},
    ]);
    let body =
        serde_json::json!({"model": "m", "messages": [{"role": "user", "content": content}]});
    let explanation = explained(&["-d", &body.to_string()]).expect("an explanation");
    let prefix = explanation.prefix.as_ref().expect("a prefix");
    assert_eq!(prefix.parts.len(), 2, "{:?}", prefix.parts);
    assert!(prefix.parts[1].starts_with("[media ") && prefix.parts[1].len() == 40);
    assert!(explanation.to_text(false).contains("media parts counted as 4096 each (at most 4096)"));
}

#[test]
fn long_prefixes_are_shown_by_their_ends() {
    let long = "x".repeat(500);
    let messages: Vec<_> = (0..9)
        .map(|n| serde_json::json!({"role": "user", "content": format!("{n}{long}")}))
        .collect();
    let body = serde_json::json!({ "messages": messages }).to_string();
    let explanation = explained(&["-d", &body]).expect("an explanation");
    let parts = &explanation.prefix.as_ref().expect("a prefix").parts;
    assert_eq!(parts.len(), 9);
    let text = explanation.to_text(false);
    assert!(text.contains("... 3 more ...") && text.contains("... 381 characters ..."), "{text}");
    assert!(text.lines().all(|line| line.len() < 250), "{text}");
    assert!(explanation.to_text(true).contains(&long));
}
