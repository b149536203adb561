use proptest::prelude::*;

use super::*;
use crate::{
    api::{OwnPath, Paths, TABLE},
    http::Method::Other,
};

fn config(own: &[(&str, Api, &[Method])]) -> Config {
    let own = own.iter().map(|(path, api, methods)| OwnPath {
        pattern: path.parse().expect("a path"),
        api: *api,
        methods: methods.to_vec(),
    });
    Config { paths: Paths::new(own.collect()), ..Config::default() }
}

fn status(config: &Config, method: Method, path: &str) -> u16 {
    match asked(config, method, path) {
        Ok(_) => 200,
        Err(refusal) => refusal.failure.status,
    }
}

/// Controls of vLLM, SGLang, text-generation-inference, llama.cpp and Triton, and AWS's control plane.
const CONTROLS: &[&str] = &[
    "/",
    "/metrics",
    "/metrics/",
    "/flush_cache",
    "/reset_prefix_cache",
    "/update_weights_from_disk",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/sleep",
    "/wake_up",
    "/collective_rpc",
    "/server_info",
    "/get_server_info",
    "/abort_request",
    "/start_profile",
    "/set_internal_state",
    "/release_memory_occupation",
    "/scale_elastic_ep",
    "/slots/1",
    "/props",
    "/lora-adapters",
    "/models/load",
    "/v2/repository/models/m/load",
    "/docs",
    "/openapi.json",
    "/v1/files/f",
];

#[test]
fn an_instances_controls_are_not_reachable() {
    let config = config(&[]);
    for path in CONTROLS {
        for spelling in [
            (*path).to_owned(),
            format!("/{path}"),
            format!("{path}/"),
            format!("{path}//"),
            path.replace('_', "%5f"),
            format!("/v1/models/..{path}"),
            format!("/v1/models/../..{path}"),
            format!("/v1/models/x/../../..{path}"),
            format!("/v1/models/%2e%2e{path}"),
            format!("/v1/models/.%2E/..{path}"),
            format!("/v1/models/..%2f..{}", path.replace('/', "%2f")),
            format!("/v1/models/..%5c..{}", path.replace('/', "%5c")),
            format!("/v1/models/..;/..;{path}"),
            format!("/v1/models/%252e%252e{path}"),
            format!("/v1/models/%c0%ae%c0%ae{path}"),
            format!("/v1/responses/..{path}"),
            format!("/v1/responses/..%2f{}", &path[1..]),
            format!("/v1/chat/completions/..{path}"),
            format!("/v1/./..{path}"),
            format!("{path}/v1/chat/completions"),
            format!("{path}/../v1/chat/completions"),
            format!("{path}/v1/models"),
            format!("/openai{path}"),
            format!("/openai/v1{path}"),
            format!("/endpoints/e{path}"),
            format!("/endpoints/e/openai/v1{path}"),
            format!("/endpoints/e/openai/v1/models/..{path}"),
            format!("/endpoints/e/inference-components/c{path}"),
        ] {
            // What a path without a version may look like, and then means to every server.
            let is_api = spelling.trim_matches('/') == "v1/models"
                || spelling.contains("/models/load") && !spelling.contains("..")
                || spelling.ends_with("//v1/models")
                || spelling.trim_matches('/') == "v1/chat/completions";
            for method in [Post, Put, Delete, Patch, Other] {
                let status = status(&config, method, &spelling);
                assert!(is_api || matches!(status, 404 | 405), "{method:?} {spelling}: {status}");
                assert!(status != 405 || is_api || spelling.contains("/models"), "{spelling}");
            }
            if !is_api {
                assert!(matches!(status(&config, Get, &spelling), 404 | 405), "{spelling}");
            }
        }
    }
}

#[test]
fn apis_are_reachable_by_their_methods_and_no_others() {
    let config = config(&[]);
    for info in TABLE.iter().filter(|info| info.public) {
        for path in info.paths {
            let path = path.replace("{model...}", "org/name").replace(['{', '}'], "");
            for method in [Get, Head, Post, Put, Patch, Delete, Options, Other] {
                let takes = TABLE.iter().any(|i| {
                    i.public && i.methods.contains(&method) && {
                        config.paths.target(method, &path).api == i.api
                    }
                });
                let expected = if takes || method == Options { 200 } else { 405 };
                assert_eq!(status(&config, method, &path), expected, "{method:?} {path}");
            }
        }
    }
    let refusal = asked(&config, Get, "/v1/chat/completions").expect_err("POST only");
    assert_eq!(refusal.failure.reason, "method_not_allowed");
    assert_eq!(refusal.fields, [("Allow", "POST, OPTIONS".into())]);
    let options = asked(&config, Options, "/endpoints/e/invocations").expect("a preflight");
    let Asked::Instances(target) = options else { panic!("{options:?}") };
    assert_eq!(
        (target.api, target.endpoint, target.path),
        (Api::Other, Some("e"), Some("/invocations"))
    );
}

#[test]
fn a_base_has_to_be_configured() {
    let mut config = config(&[]);
    assert_eq!(status(&config, Post, "/openai/v1/chat/completions"), 200);
    let refusal = asked(&config, Post, "/llm/v1/chat/completions").expect_err("unknown");
    assert_eq!((refusal.failure.status, refusal.failure.reason), (404, "unknown_base_path"));
    assert!(refusal.failure.message.contains("`/openai` (`base_paths`)"));
    config.base_paths = vec!["/llm".parse().expect("a base")];
    assert_eq!(status(&config, Post, "/llm/v1/chat/completions"), 200);
    assert_eq!(status(&config, Post, "//llm//v1/chat/completions/"), 200);
    assert_eq!(status(&config, Post, "/openai/v1/chat/completions"), 404);
    assert_eq!(status(&config, Post, "/llm/metrics/v1/chat/completions"), 404);
}

#[test]
fn the_configuration_makes_more_reachable() {
    let config = config(&[
        ("/metrics", Api::Other, &[Get]),
        ("/v1/files/{rest...}", Api::Other, &[]),
        ("/my/chat", Api::ChatCompletions, &[]),
        ("/", Api::Other, &[Post]),
    ]);
    for (method, path, expected) in [
        (Get, "/metrics", 200),
        (Head, "/metrics", 200),
        (Options, "/metrics", 200),
        (Post, "/metrics", 405),
        (Get, "/metrics/x", 404),
        (Get, "/metrics%2f", 404),
        (Delete, "/v1/files/f-1", 200),
        (Get, "/v1/files/f-1/content", 200),
        (Other, "/v1/files/f-1", 200),
        (Get, "/v1/files/../../flush_cache", 404),
        (Get, "/v1/files/%2e%2e/%2e%2e/flush_cache", 404),
        (Get, "/v1/files/..%2f..%2fflush_cache", 404),
        (Get, "/v1/files", 404),
        (Post, "/my/chat", 200),
        (Get, "/my/chat", 405),
        (Post, "/", 200),
        (Get, "/", 405),
        (Post, "/endpoints/e/openai/v1/files/f-1", 200),
        (Post, "/endpoints/e/metrics", 404),
        (Post, "/v1/chat/completions", 200),
    ] {
        assert_eq!(status(&config, method, path), expected, "{method:?} {path}");
    }
    // A pattern for everything takes nothing away from the APIs.
    let all = self::config(&[("/{any...}", Api::Other, &[])]);
    let Ok(Asked::Instances(target)) = asked(&all, Post, "/v1/chat/completions") else { panic!() };
    assert_eq!(target.api, Api::ChatCompletions);
    let named = asked(&all, Post, "/endpoints/e/invocations");
    assert!(matches!(named, Ok(Asked::Instances(Target { endpoint: Some("e"), .. }))));
}

#[test]
fn a_named_endpoint_is_used_or_refused() {
    // Even where everything is reachable: below another name it would be another endpoint's.
    let config = config(&[("/{any...}", Api::Other, &[])]);
    for (path, expected) in [
        ("/endpoints/e/invocations", 200),
        ("/endpoints/e/openai/v1/chat/completions", 200),
        ("/endpoints/e/invocations-response-stream", 200),
        ("/endpoints/e/async-invocations", 400),
        ("/endpoints/e/async-invocations/", 400),
        ("/endpoints/e/inference-components/c/invocations-response-stream", 200),
        ("/endpoints/e", 404),
        ("/endpoints", 404),
        ("/endpoints/", 404),
        ("//endpoints//e//pooling", 404),
        ("/endpoints/e/pooling", 404),
        ("/endpoints/e/v1/chat/completions", 404),
        ("/endpoints/e/invocations/x", 404),
        ("/endpoints/e/openai/pooling", 404),
    ] {
        assert_eq!(status(&config, Post, path), expected, "{path}");
    }
}

#[test]
fn errors_are_in_the_form_of_the_api() {
    let config = Config::default();
    let form = |path, aws| error_form(&config.paths.target(Post, path), path, aws);
    for (path, expected) in [
        ("/v1/messages", ErrorForm::Anthropic),
        ("/endpoints/e/async-invocations", ErrorForm::SageMakerRuntime),
        ("/endpoints/e/invocations", ErrorForm::SageMakerRuntime),
        ("/endpoints/e", ErrorForm::SageMakerRuntime),
        ("/invocations", ErrorForm::SageMaker),
        ("/endpoints/e/openai/v1/unheard-of", ErrorForm::OpenAi),
        ("/endpoints/e/openai/v1/messages", ErrorForm::Anthropic),
        ("/metrics", ErrorForm::OpenAi),
        ("/", ErrorForm::OpenAi),
    ] {
        assert_eq!(form(path, false), expected, "{path}");
    }
    assert_eq!(form("/", true), ErrorForm::SageMaker);
}

#[test]
fn health_is_the_gateways_own() {
    let config = config(&[]);
    for (method, path) in [(Get, "/health"), (Head, "/health"), (Get, "/ping"), (Post, "/ping")] {
        assert_eq!(asked(&config, method, path).expect("health"), Asked::Health);
    }
    assert_eq!(status(&config, Post, "/health"), 405);
    assert_eq!(asked(&config, Options, "/health").expect("answered"), Asked::Options);
    assert_eq!(asked(&config, Options, "*").expect("answered"), Asked::Options);
    for path in ["/health/", "//health", "/healthz", "/health_generate"] {
        assert_eq!(status(&config, Get, path), 404, "{path}");
    }
    let all = self::config(&[("/{any...}", Api::Other, &[])]);
    assert_eq!(asked(&all, Options, "*").expect("answered"), Asked::Options);
    let own = self::config(&[("/health", Api::Other, &[])]);
    assert!(matches!(asked(&own, Get, "/health"), Ok(Asked::Instances(_))));
}

/// What a server makes of a path that decodes, takes `\` for a slash, cuts parameters off, merges slashes
/// and resolves dots, over and over.
fn as_the_laxest_server(path: &str) -> Vec<String> {
    let mut text = path.to_owned();
    for _ in 0..3 {
        let mut out = Vec::new();
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let code = bytes
                .get(at + 1..at + 3)
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match (bytes[at], code) {
                (b'%', Some(byte)) => {
                    out.push(byte);
                    at += 3;
                }
                (byte, _) => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        text = String::from_utf8_lossy(&out).replace('\\', "/");
    }
    let mut parts: Vec<String> = Vec::new();
    for part in text.split('/') {
        match part.split(';').next().unwrap_or_default() {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

proptest! {
    /// What is reachable begins, for the laxest server as well, with what it began with here.
    #[test]
    fn a_reachable_path_leads_nowhere_else(parts in prop::collection::vec(prop_oneof![
        Just("v1"), Just("models"), Just("responses"), Just("openai"), Just("deployments"), Just("files"),
        Just(".."), Just("."), Just("%2e%2e"), Just("%2E."), Just("..%2f.."), Just("%5c.."), Just("..;"),
        Just("x"), Just("a%2fb"), Just("%252e%252e"), Just("metrics"), Just("chat"), Just("completions"),
        Just(""), Just("cancel"), Just("%c0%ae%c0%ae"), Just("..\\.."), Just("%"), Just("x;y"),
    ], 0..9)) {
        let path = format!("/{}", parts.join("/"));
        let config = config(&[("/v1/files/{rest...}", Api::Other, &[])]);
        for method in [Get, Post, Delete] {
            if asked(&config, method, &path).is_ok() {
                let lax = as_the_laxest_server(&path);
                let here: Vec<_> = segments(&path).map(|part| part.to_lowercase().replace("%2f", "/")).collect();
                prop_assert_eq!(lax.join("/"), here.join("/"), "{}", path);
            }
        }
    }
}
