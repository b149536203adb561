use proptest::prelude::*;

use super::*;

fn post(path: &str) -> Target<'_> {
    target(Method::Post, path)
}

#[test]
fn every_path_of_the_table_speaks_its_api() {
    for info in &TABLE {
        for path in info.paths {
            let path = path.replace("{model...}", "org/name").replace(['{', '}'], "");
            for method in info.methods {
                let target = target(*method, &path);
                // Some words stand where an id may stand, too.
                let expected = match (info.api, *method, target.api) {
                    (Api::StoredResponse, Method::Post, Api::Responses) => Api::Responses,
                    _ => info.api,
                };
                assert_eq!((target.api, target.path), (expected, None), "{path}");
            }
            assert_eq!(target(Method::Options, &path).api, Api::Other, "{path}");
        }
    }
}

#[test]
fn plain_paths() {
    for (path, expected) in [
        ("/v1/chat/completions", Api::ChatCompletions),
        ("/v1/completions", Api::Completions),
        ("/v1/responses", Api::Responses),
        ("/v1/responses/input_tokens", Api::Responses),
        ("/v1/responses/resp_1/cancel", Api::StoredResponse),
        ("/v1/embeddings", Api::Embeddings),
        ("/v1/messages", Api::Messages),
        ("/v1/messages/count_tokens", Api::CountTokens),
        ("/v1/rerank", Api::Rerank),
        ("/v1/score", Api::Score),
        ("/v1/audio/transcriptions", Api::Transcriptions),
        ("/pooling", Api::Pooling),
        ("/tokenize", Api::Tokenize),
        ("/generate", Api::Generate),
        ("/generate_stream", Api::Generate),
        ("/v2/models/llama/generate_stream", Api::Generate),
        ("/invocations", Api::Invocations),
        ("/v1/models", Api::Other),
        ("/V1/chat/completions", Api::Other),
        ("/v1/chat%2Fcompletions", Api::Other),
        ("/v1/chat", Api::Other),
        ("/v1/chat/completions/x", Api::Other),
        ("/v1/load_lora_adapter", Api::Other),
        ("/flush_cache", Api::Other),
        ("/v1/responses/{id}/cancel/x", Api::Other),
        ("/", Api::Other),
        ("", Api::Other),
        ("*", Api::Other),
    ] {
        assert_eq!(post(path).api, expected, "{path}");
        assert_eq!((post(path).endpoint, post(path).base, post(path).path), (None, None, None));
    }
    for (path, expected) in [
        ("/v1/models", Api::Models),
        ("/models", Api::Models),
        ("/v1/models/llama", Api::Model),
        ("/v1/models/org/llama", Api::Model),
        ("/v1/responses/resp_1", Api::StoredResponse),
        ("/v1/responses/resp_1/input_items", Api::StoredResponse),
        ("/v1/realtime", Api::Realtime),
        ("/v1/chat/completions", Api::Other),
        ("/health", Api::Other),
        ("/metrics", Api::Other),
    ] {
        assert_eq!(target(Method::Get, path).api, expected, "{path}");
    }
}

#[test]
fn spellings_of_a_path() {
    for path in [
        "/v1/chat/completions/",
        "/v1/chat/completions//",
        "//v1//chat/completions",
        "/chat/completions",
        "/chat/completions/",
    ] {
        let expected = Target { api: Api::ChatCompletions, ..Target::default() };
        assert_eq!(post(path), expected, "{path}");
    }
    for (path, base) in [
        ("/openai/v1/chat/completions", Some("/openai")),
        ("/llm/v1/chat/completions/", Some("/llm")),
        ("/a/b-1/c.d/e_~//v1/chat/completions", Some("/a/b-1/c.d/e_~")),
    ] {
        assert_eq!((post(path).api, post(path).base), (Api::ChatCompletions, base), "{path}");
    }
    for path in [
        "/a/b/c/d/e/v1/chat/completions",
        "/a/../v1/chat/completions",
        "/./v1/chat/completions",
        "/a%2fb/v1/chat/completions",
        "/flush_cache;/v1/chat/completions",
        // Without a version in between, anything could be anything.
        "/llm/chat/completions",
        "/flush_cache/generate",
        "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q",
    ] {
        assert_eq!(post(path), Target::default(), "{path}");
    }
    assert_eq!(target(Method::Get, "/llm/v1/models").api, Api::Models);
}

#[test]
fn paths_that_name_a_model() {
    let azure = post("/openai/deployments/gpt-oss/chat/completions");
    assert_eq!((azure.api, azure.model), (Api::ChatCompletions, Some("gpt-oss")));
    assert_eq!((azure.named_model(), azure.path, azure.base), (Some("gpt-oss"), None, None));
    assert_eq!(post("/v2/models/llama/generate").named_model(), Some("llama"));
}

#[test]
fn paths_that_name_an_endpoint() {
    let case = |path| {
        let t = post(path);
        (t.api, t.endpoint, t.component, t.path)
    };
    assert_eq!(
        case("/endpoints/chat/invocations"),
        (Api::Invocations, Some("chat"), None, Some("/invocations"))
    );
    assert_eq!(case("/endpoints/chat//invocations/").3, Some("/invocations"));
    assert_eq!(
        case("/endpoints/chat/openai/v1/chat/completions"),
        (Api::ChatCompletions, Some("chat"), None, Some("/v1/chat/completions"))
    );
    assert_eq!(
        case("/endpoints/chat/inference-components/lora-1/openai/v1/responses"),
        (Api::Responses, Some("chat"), Some("lora-1"), Some("/v1/responses"))
    );
    assert_eq!(
        case("/endpoints/chat/openai/v1/unheard-of"),
        (Api::Other, Some("chat"), None, Some("/v1/unheard-of"))
    );
    for path in [
        "/endpoints/chat",
        "/endpoints/",
        "/endpoints//invocations",
        "/endpoints/chat/",
        "/endpoints/chat/openai",
        "/endpoints/chat/openai/v1",
        "/endpoints/chat/openai/v2/x",
        "/endpoints/chat/openaiv1/x",
        "/endpoints/chat/invocations/x",
        "/endpoints/chat/pooling",
        "/endpoints/chat/v1/chat/completions",
        "/endpoints/v1/chat/completions",
        "/endpoints/chat/inference-components//invocations",
    ] {
        assert_eq!(case(path), (Api::Other, None, None, None), "{path}");
    }
}

#[test]
fn paths_of_the_configuration() {
    let own = |path: &str, api| OwnPath {
        pattern: path.parse().expect("a path"),
        api,
        methods: Vec::new(),
    };
    let paths = Paths::new(vec![
        own("/my/chat", Api::ChatCompletions),
        own("/teams/{team}/{model}/embed", Api::Embeddings),
        own("/all/{rest...}", Api::Generate),
    ]);
    let case = |path| {
        let target = paths.target(Method::Post, path);
        (target.api, target.model)
    };
    assert_eq!(case("/my/chat"), (Api::ChatCompletions, None));
    assert_eq!(case("/my//chat/"), (Api::ChatCompletions, None));
    assert_eq!(case("/teams/red/m-7/embed"), (Api::Embeddings, Some("m-7")));
    assert_eq!(case("/teams/red/embed"), (Api::Other, None));
    assert_eq!(case("/all/a/b"), (Api::Generate, None));
    assert_eq!(case("/all"), (Api::Other, None));
    assert_eq!(case("/v1/chat/completions"), (Api::ChatCompletions, None));
    // A method that the API does not take.
    assert_eq!(paths.target(Method::Get, "/my/chat").api, Api::Other);
}

#[test]
fn what_is_no_pattern() {
    for (text, error) in [
        ("my/chat", PatternError::Start),
        ("", PatternError::Start),
        ("/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", PatternError::Segments),
        ("/a b", PatternError::Character),
        ("/a?b=c", PatternError::Character),
        ("/caf\u{e9}", PatternError::Character),
        ("/{}", PatternError::Brace),
        ("/{a}b", PatternError::Brace),
        ("/{a...}/b", PatternError::Brace),
        ("/{...}", PatternError::Brace),
        ("/endpoints/{name}/pooling", PatternError::Endpoints),
    ] {
        assert_eq!(text.parse::<Pattern>(), Err(error), "{text}");
    }
}

proptest! {
    #[test]
    fn any_path_is_read(path in prop_oneof![
        any::<String>(),
        proptest::collection::vec(prop_oneof![
            Just("endpoints"), Just("v1"), Just("openai"), Just("invocations"), Just("chat"),
            Just("completions"), Just("models"), Just("responses"), Just(""), Just("é"), Just(".."),
            Just("inference-components"), Just("{model}"), Just("{model...}"),
        ], 0..20).prop_map(|parts| format!("/{}", parts.join("/"))),
    ]) {
        for method in [Method::Get, Method::Post] {
            let found = target(method, &path);
            // What is sent on is a part of what came.
            prop_assert!(found.path.is_none_or(|part| part.starts_with('/') && path.contains(part)));
            prop_assert!(found.path.is_some() == found.endpoint.is_some());
            let api = found.api;
            let with_slashes = path.replace('/', "//") + "/";
            prop_assert_eq!(target(method, &with_slashes).api, api, "{}", path);
        }
    }
}
