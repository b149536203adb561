//! What is read, what is refused, and with which words.

use std::time::Duration;

use proptest::prelude::*;

use super::{Strategy, *};

/// A file with one endpoint, and `head` before it.
fn with(head: &str) -> String {
    format!(
        "{head}\n[[endpoint]]\nname = \"e\"\n[[endpoint.variant]]\nname = \"v\"\n\
         [[endpoint.variant.instance]]\nurl = \"http://10.0.0.1:8000\"\n"
    )
}

fn read(text: &str) -> Config {
    parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// The issues of a file, as `line:column: field: message`.
fn issues(text: &str) -> Vec<String> {
    let error = parse("test.toml", text).expect_err("something is wrong");
    assert!(!error.issues.is_empty());
    let shown = error.to_string();
    shown.lines().map(|l| l.strip_prefix("test.toml:").expect("the file").trim().into()).collect()
}

fn only_issue(text: &str) -> String {
    let issues = issues(text);
    assert_eq!(issues.len(), 1, "{issues:#?}");
    issues.into_iter().next().expect("one")
}

#[test]
fn an_empty_file_but_for_an_endpoint_has_all_defaults() {
    let config = read(&with(""));
    let defaults = Config::default();
    assert_eq!(Config { endpoints: vec![], ..config.clone() }, defaults);
    let variant = &config.endpoints[0].variants[0];
    assert_eq!((variant.weight, variant.strategy), (1.0, Strategy::PrefixAware));
    assert_eq!((variant.prefix_length, variant.concurrency_threshold), (4096, 10));
    assert_eq!(variant.max_in_flight, None);
    assert_eq!((variant.instances[0].weight, variant.instances[0].drain), (1.0, false));
    // What the design promises.
    assert_eq!(defaults.listen, ["0.0.0.0:8080".parse().expect("an address")]);
    assert!(defaults.admin.expect("on").ip().is_loopback());
    assert!(defaults.limits.head_bytes >= 64 << 10 && defaults.limits.body_bytes >= 100 << 20);
    assert!(defaults.timeouts.pool_idle < Duration::from_secs(5));
    assert!(defaults.timeouts.client_idle > Duration::from_secs(90));
    assert!(defaults.worker_threads() >= 1);
}

#[test]
fn every_kind_of_value_is_read() {
    let config = read(&with(
        r#"
        listen = ["[::]:8080", "127.0.0.1:1"]
        admin = "off"
        threads = 0x10
        access_log = true
        limits = { head_bytes = 65536, body_bytes = "1GiB", decision_bytes = "1 MiB" }
        [timeouts]
        connect = "250ms"
        first_byte = "1h"
        drain = "0s"
        [engine]
        mode = "userspace"
        [guard]
        interfaces = ["eth0", "wlan0.7"]
        allow = ["10.0.0.0/8", "::1"]
        "#,
    ));
    assert_eq!(config.listen.len(), 2);
    assert_eq!((config.admin, config.threads, config.worker_threads()), (None, 16, 16));
    assert!(config.access_log && config.response_headers);
    assert_eq!((config.limits.head_bytes, config.limits.body_bytes), (65536, 1 << 30));
    assert_eq!(config.limits.decision_bytes, 1 << 20);
    assert_eq!(config.timeouts.connect, Duration::from_millis(250));
    assert_eq!(config.timeouts.first_byte, Duration::from_secs(3600));
    assert_eq!(config.timeouts.drain, Duration::ZERO);
    assert_eq!(config.engine.mode, EngineMode::Userspace);
    assert_eq!(config.guard.allow[1].to_string(), "::1/128");
}

#[test]
fn strategies_are_known_by_both_names() {
    for (name, strategy) in [
        ("prefix-aware", Strategy::PrefixAware),
        ("PREFIX_AWARE", Strategy::PrefixAware),
        ("LEAST_OUTSTANDING_REQUESTS", Strategy::LeastOutstandingRequests),
        ("random", Strategy::Random),
        ("RANDOM", Strategy::Random),
    ] {
        let text =
            with("").replace("name = \"v\"", &format!("name = \"v\"\nstrategy = \"{name}\""));
        assert_eq!(read(&text).endpoints[0].variants[0].strategy, strategy);
    }
    let text = with("").replace("name = \"v\"", "name = \"v\"\nstrategy = \"KV_AWARE\"");
    assert!(only_issue(&text).starts_with("6:12: endpoint[0].variant[0].strategy: `KV_AWARE`"));
}

#[test]
fn an_error_names_file_line_field_and_remedy() {
    let text = with("\n\n[timeouts]\nhead = \"30 seconds\"");
    let error = parse("/etc/atalho.toml", &text).expect_err("no duration").to_string();
    assert_eq!(
        error,
        "/etc/atalho.toml:4:8: timeouts.head: `30 seconds` will not do: write a time with its \
         unit, such as \"250ms\", \"3s\", \"5m\" or \"1h\""
    );
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_the_file() {
    let text = "threads = -1\nlisten = []\nacces_log = true\n[[endpoint]]\nname = \"a b\"\n\
                [[endpoint.variant]]\nweight = -1\nprefix_length = 512\n\
                [[endpoint.variant.instance]]\nurl = \"https://x\"\ndrain = 1\n";
    let issues = issues(text);
    let expected = [
        "1:11: threads: -1 is out of range: write a whole number from 0 to 1024 (threads)",
        "2:10: listen: is empty",
        "3:1: acces_log: is not a setting: did you mean `access_log`?",
        "5:8: endpoint[0].name: `a b` is no name",
        "6:1: endpoint[0].variant[0].name: is missing: Name that a client may ask for",
        "7:10: endpoint[0].variant[0].weight: -1 is no weight",
        "8:17: endpoint[0].variant[0].prefix_length: 512 is out of range: write a whole number \
         from 1024 to 65536",
        "10:7: endpoint[0].variant[0].instance[0].url: `https://x` asks for TLS",
        "11:9: endpoint[0].variant[0].instance[0].drain: 1 will not do: write true or false",
    ];
    assert_eq!(issues.len(), expected.len(), "{issues:#?}");
    for (issue, expected) in issues.iter().zip(expected) {
        assert!(issue.starts_with(expected), "{issue}\n{expected}");
    }
}

#[test]
fn broken_toml_is_an_error_with_its_place() {
    for (text, at) in [
        ("listen = [", "1:"),
        ("a = 1\nb = \n", "2:"),
        ("threads = 1\nthreads = 2\n", "2:1: "),
        ("[log]\n[log]\n", "2:"),
        ("x = \"\u{e9}\" y", "1:9"),
    ] {
        assert!(issues(text).iter().any(|issue| issue.starts_with(at)), "{:?}", issues(text));
    }
}

#[test]
fn hostile_files_are_errors_and_no_more() {
    for deep in ["[".repeat(100_000), "a.".repeat(100_000), "x={a=".repeat(50_000)] {
        issues(&deep);
        issues(&format!("listen = {deep}"));
    }
    // Errors in each line are all reported.
    assert!(issues(&with(&"\u{1}\n".repeat(500))).len() >= 500);
}

#[test]
fn other_systems_line_ends_and_marks_are_read() {
    let text = with("threads = 3").replace('\n', "\r\n");
    assert_eq!(read(&text).threads, 3);
    assert_eq!(read(&format!("\u{feff}{text}")).threads, 3);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_or_the_right_place() {
    let text = with("[timeouts]\nconect = \"1s\"");
    assert!(only_issue(&text).contains("did you mean `connect`?"));
    let text = with("prefix_length = 4096");
    assert!(only_issue(&text).contains("as `endpoint.variant.prefix_length`"));
    let text = with("[pool]\nzzz = 1");
    assert!(only_issue(&text).contains("known here: max_idle_per_instance"));
    let text = with("[tls]\ncert = \"x\"");
    assert!(only_issue(&text).starts_with("1:2: tls: is not a setting"));
}

#[test]
fn wrong_shapes_are_refused_with_the_right_one() {
    let text = with("timeouts = 5");
    assert!(only_issue(&text).contains("write a section [timeouts]"));
    let text = "[endpoint]\nname = \"e\"\n";
    assert!(only_issue(text).contains("[[endpoint]], with double brackets"));
    let text = "endpoint = [1]\n";
    assert!(only_issue(text).starts_with("1:13: endpoint[0]: is no table"));
    assert!(only_issue(&with("listen = \"0.0.0.0:1\"")).contains("write a list in [ ]"));
    assert!(only_issue(&with("listen = [8080]")).contains("write text in quotes"));
    assert!(only_issue(&with("threads = 1.5")).contains("write a whole number"));
    assert!(only_issue(&with("threads = 99999999999999999999")).contains("out of range"));
    let text = format!("threads = {}", "9".repeat(100));
    assert!(only_issue(&with(&text)).contains("write a smaller number"));
    assert!(only_issue("").contains("endpoint: there is none: add an [[endpoint]]"));
    assert!(only_issue("[[endpoint]]\nname = \"e\"").contains("add an [[endpoint.variant]]"));
}

#[test]
fn names_and_urls_are_there_once() {
    let text = with("") + "[[endpoint.variant.instance]]\nurl = \"HTTP://10.0.0.1:08000/\"\n";
    let issue = only_issue(&text);
    assert!(
        issue.starts_with("9:7: endpoint[0].variant[0].instance[1].url: http://10.0.0.1:8000 is"),
        "{issue}"
    );
    let text = with("") + "[[endpoint.variant]]\nname = \"v\"\n";
    assert!(only_issue(&text).starts_with("9:8: endpoint[0].variant[1].name: v is there already"));
    let text = format!("{}{}", with(""), with(""));
    assert!(only_issue(&text).starts_with("10:8: endpoint[1].name: e is there already"));
    assert!(only_issue(&with("listen = [\"[::]:1\", \"[::]:1\"]")).contains("twice"));
    // The same server in two variants is two instances.
    let text = with("")
        + "[[endpoint.variant]]\nname = \"w\"\n[[endpoint.variant.instance]]\n\
           url = \"http://10.0.0.1:8000\"\n";
    assert_eq!(read(&text).endpoints[0].variants.len(), 2);
}

#[test]
fn a_variant_may_have_no_instances() {
    let text = "[[endpoint]]\nname = \"e\"\n[[endpoint.variant]]\nname = \"v\"\n";
    assert!(read(text).endpoints[0].variants[0].instances.is_empty());
}

#[test]
fn settings_that_depend_on_each_other_are_checked_together() {
    let text = with("[health]\ninterval = \"1s\"");
    assert!(only_issue(&text).starts_with("1:1: health.timeout: is longer than health.interval"));
    let text = with("[health]\neject_max = \"1s\"");
    assert!(only_issue(&text).starts_with("2:13: health.eject_max: is shorter than"));
    let limit = |strategy: &str| {
        let v = format!("name = \"v\"\nmax_in_flight = 9\nstrategy = \"{strategy}\"");
        with("").replace("name = \"v\"", &v)
    };
    assert!(only_issue(&limit("prefix-aware")).contains("below concurrency_threshold (10)"));
    assert_eq!(
        read(&limit("random")).endpoints[0].variants[0].max_in_flight.map(Into::into),
        Some(9_u32)
    );
}

#[test]
fn addresses_networks_paths_and_interfaces_are_checked() {
    for (text, part) in [
        ("listen = [\"8080\"]", "no address with a port"),
        ("listen = [\"localhost:80\"]", "no address with a port"),
        ("admin = \"on\"", "\"127.0.0.1:9901\" or \"off\""),
        ("[guard]\ndeny = [\"10.0.0.0/33\"]", "no address or network"),
        ("[guard]\ndeny = [\"10.0.0.1/8\"]", "write \"10.0.0.0/8\""),
        ("[guard]\ninterfaces = [\"eth0 \"]", "no interface name"),
        ("[guard]\ninterfaces = [\"sixteen-letters-\"]", "no interface name"),
        ("[guard]\nburst = 0", "from 1 to 1000000"),
        ("[health]\npath = \"health\"", "begin with /"),
        ("[health]\npath = \"/a b\"", "percent-encode"),
        ("[health]\npath = \"/\\r\\nX: y\"", "percent-encode"),
        ("[log]\nlevel = \"loud\"", "\"error\", \"warn\", \"info\", \"debug\", \"trace\""),
        ("[limits]\nhead_bytes = \"1KB\"", "such as 65536 or \"64KiB\""),
        ("[limits]\nhead_bytes = 100", "write 4KiB to 1MiB"),
        ("[limits]\nbody_bytes = \"99999999999999GiB\"", "such as"),
        ("[timeouts]\nconnect = 5", "write a time with its unit"),
        ("[timeouts]\nconnect = \"0s\"", "write \"1ms\" to \"10m\""),
        ("[timeouts]\ndrain = \"25h\"", "\"24h\", or \"0s\" (stop at once)"),
        ("[scrape]\ninterval = \"1ms\"", "or \"0s\" (never)"),
    ] {
        let issue = only_issue(&with(text));
        assert!(issue.contains(part), "{text}: {issue}");
    }
}

#[test]
fn somebody_has_to_answer() {
    let shadow = with("").replace("name = \"v\"", "name = \"v\"\nshadow = true");
    let issue = only_issue(&shadow);
    assert!(issue.contains("endpoint[0].variant: there are shadows alone"), "{issue}");
    let two = shadow + "[[endpoint.variant]]\nname = \"w\"\n";
    let config = parse("test.toml", &two).expect("one that answers");
    let shadows = config.endpoints[0].variants.iter().map(|variant| variant.shadow);
    assert_eq!(shadows.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_variant_may_have_no_share_but_an_instance_has_some() {
    let none = with("").replace("name = \"v\"", "name = \"v\"\nweight = 0");
    assert_eq!(read(&none).endpoints[0].variants[0].weight, 0.0);
    let issue = only_issue(&(with("") + "weight = 0\n"));
    assert!(issue.contains("instance[0].weight: 0 is no weight: write a number from"), "{issue}");
}

#[test]
fn weights_are_finite_and_not_below_zero() {
    for weight in ["-1", "1e-7", "-0.5", "nan", "inf", "-inf", "1e300", "1e-300", "\"1\"", "true"] {
        let text = with("").replace("name = \"v\"", &format!("name = \"v\"\nweight = {weight}"));
        assert!(only_issue(&text).starts_with("6:10: endpoint[0].variant[0].weight"), "{weight}");
    }
    for (text, weight) in [("2", 2.0), ("0.5", 0.5), ("1e6", 1e6), ("0.000001", 1e-6)] {
        let text = with("") + &format!("weight = {text}\n");
        assert_eq!(read(&text).endpoints[0].variants[0].instances[0].weight, weight);
    }
}

#[test]
fn range_limits_of_the_api_are_the_api_s() {
    let try_both = |key: &str, inside: &[u32], outside: &[u32]| {
        let text = |n| with("").replace("name = \"v\"", &format!("name = \"v\"\n{key} = {n}"));
        for n in inside {
            read(&text(*n));
        }
        for n in outside {
            assert!(only_issue(&text(*n)).contains(&format!("{n} is out of range")));
        }
    };
    try_both("prefix_length", &[1024, 65536], &[0, 1023, 65537]);
    try_both("concurrency_threshold", &[1, 1024], &[0, 1025]);
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("none.toml");
    let error = load(&missing).expect_err("it is not there").to_string();
    assert!(error.starts_with(&format!("{}: cannot be read: ", missing.display())), "{error}");
    let binary = dir.path().join("binary.toml");
    std::fs::write(&binary, b"a = 1 # \xff").expect("written");
    assert!(load(&binary).expect_err("no UTF-8").to_string().contains("not UTF-8 at byte 8"));
    std::fs::write(&binary, with("")).expect("written");
    load(&binary).expect("right now");
}

#[test]
fn flags_make_the_same_configuration_as_a_file() {
    let flags = Flags {
        listen: vec!["127.0.0.1:80".parse().expect("an address")],
        backends: vec!["http://10.0.0.11:8000".into(), "http://10.0.0.12:8000".into()],
        strategy: Some(Strategy::LeastOutstandingRequests),
        prefix_length: Some(2048),
        concurrency_threshold: Some(5),
        engine: Some(EngineMode::Sockmap),
        admin: Some(None),
        threads: Some(3),
        access_log: true,
    };
    let file = r#"
        listen = ["127.0.0.1:80"]
        admin = "off"
        threads = 3
        access_log = true
        engine.mode = "sockmap"
        [[endpoint]]
        name = "default"
        [[endpoint.variant]]
        name = "default"
        strategy = "least-outstanding-requests"
        prefix_length = 2048
        concurrency_threshold = 5
        instance = [{ url = "http://10.0.0.11:8000" }, { url = "http://10.0.0.12:8000" }]
    "#;
    assert_eq!(from_flags(&flags), Ok(read(file)));
    let least = Flags { backends: flags.backends, ..Flags::default() };
    let config = from_flags(&least).expect("backends are enough");
    assert_eq!(Config { endpoints: vec![], ..config }, Config::default());
}

#[test]
fn wrong_flags_are_all_named() {
    let flags = Flags {
        backends: vec!["gpu:8000".into(), "http://a".into(), "http://A:80".into()],
        prefix_length: Some(1),
        concurrency_threshold: Some(5000),
        threads: Some(5000),
        ..Flags::default()
    };
    let error = from_flags(&flags).expect_err("all wrong").to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 5, "{error}");
    assert!(lines[0].starts_with("command line: --prefix-length: 1 is out of range: write"));
    for (line, flag) in lines.iter().zip(["prefix-length", "concurrency-threshold", "threads"]) {
        assert!(line.contains(&format!("--{flag}: ")), "{line}");
    }
    assert!(lines[3].contains("--backend: `gpu:8000` does not begin with http://"));
    assert!(lines[4].contains("--backend: http://a:80 is there already"));
    let none = from_flags(&Flags::default()).expect_err("no backend").to_string();
    assert!(none.contains("name at least one instance, as --backend http://host:port"));
}

#[test]
fn paths_of_ones_own_speak_an_api() {
    let table = |path: &str, api: &str| format!("[[path]]\npath = \"{path}\"\napi = \"{api}\"\n");
    let config = read(&with(&table("/teams/{team}/chat", "chat_completions")));
    let api = |path| config.paths.target(crate::http::Method::Post, path).api;
    assert_eq!(api("/teams/red/chat"), crate::api::Api::ChatCompletions);
    assert_eq!(api("/teams/red"), crate::api::Api::Other);

    let wrong = [
        table("chat", "chat_completions"),
        table("/endpoints/x/chat", "chat_completions"),
        table("/chat", "chat"),
        table("/chat", "other") + "methods = [\"get\"]\n",
        table("/twice", "messages") + &table("/twice", "responses"),
        "[[path]]\napi = \"messages\"\n".into(),
    ];
    for (text, expected) in wrong.iter().zip([
        "path[0].path: `chat` does not begin with `/`",
        "path[0].path: `/endpoints/x/chat` begins with `/endpoints/`",
        "path[0].api: `chat` is not known: write \"chat_completions\", ",
        "path[0].methods: `get` is no method: write GET, HEAD, POST, PUT, PATCH, DELETE",
        "path[1].path: /twice is there already",
        "path[0].path: is missing: A path that clients can reach",
    ]) {
        let error = parse("f", &with(text)).expect_err("a refusal").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_control_api_has_an_address_of_its_own_and_may_be_all_there_is() {
    let config = parse(
        "f",
        "[control]\nlisten = \"127.0.0.1:9902\"\nregion = \"eu-west-1\"\n\
         [[host_pool]]\ninstance_type = \"ml.g6.xlarge\"\nmodels = [\"m\"]\n\
         hosts = [\"http://10.0.0.1:8000\", \"http://gpu\"]\n",
    )
    .expect("no endpoint is needed");
    assert!(config.endpoints.is_empty());
    assert_eq!(config.control.region, "eu-west-1");
    let pool = &config.host_pools[0];
    assert_eq!(pool.hosts[1].as_str(), "http://gpu:80");
    assert!(pool.suits("ml.g6.xlarge", "m") && !pool.suits("ml.g6.xlarge", "n"));
    assert!(!pool.suits("ml.g6.2xlarge", "m"));

    let pool = "[[host_pool]]\ninstance_type = \"ml.x\"\nhosts = [\"http://a\"]\n";
    for (text, expected) in [
        ("[control]\nlisten = \"0.0.0.0:8080\"\n", "listens at 0.0.0.0:8080, which 0.0.0.0:8080"),
        ("[control]\nlisten = \"[::]:9901\"\n", "which 127.0.0.1:9901 covers"),
        ("[control]\nlisten = \"on\"\n", "`on` is no address with a port"),
        ("[control]\nstore = \"a.redb\"\n", "is no absolute path"),
        ("[control]\nregion = \"Mars\"\n", "`Mars` is no region"),
        ("[control]\naccount = \"12\"\n", "`12` is no account"),
        ("[[host_pool]]\nhosts = [\"http://a\"]\n", "host_pool[0].instance_type: is missing"),
        ("[[host_pool]]\ninstance_type = \"p5\"\n", "`p5` is no instance type"),
        ("[[host_pool]]\ninstance_type = \"ml.x\"\n", "host_pool[0].hosts: is missing"),
        (
            "[[host_pool]]\ninstance_type = \"ml.x\"\nhosts = [\"http://a\", \"http://a:80\"]\n",
            "has http://a:80 twice",
        ),
        (&[pool, pool].concat(), "number 2 has http://a:80, which number 1 has too"),
    ] {
        let error = parse("f", &with(text)).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn every_setting_is_in_the_table_once_with_a_default_in_its_range() {
    for (index, setting) in settings().enumerate() {
        assert!(settings().take(index).all(|s| s.path != setting.path), "{}", setting.path);
        let must_have = !matches!(
            setting.kind,
            Kind::Name
                | Kind::Url
                | Kind::Urls
                | Kind::InstanceType
                | Kind::Pattern
                | Kind::OptionalInteger { .. }
        );
        assert_eq!(setting.default.is_some(), must_have, "{}", setting.path);
        assert!(setting.about.ends_with('.'), "{}", setting.path);
    }
    // Reading them all, defaults included, is what the default configuration does.
    read(&with(""));
}

proptest! {
    /// Whatever stands in a file, reading it ends with a configuration or with errors that have
    /// their place in it.
    #[test]
    fn no_text_panics(
        lines in prop::collection::vec(
            prop_oneof![
                "[a-z_\\[\\]]{1,20}",
                "(listen|threads|weight|url|name|interval|endpoint|x) = [-0-9a-z\"\\[\\]{}.]{0,12}",
                Just("[[endpoint]]".to_owned()),
                Just("[[endpoint.variant]]".to_owned()),
                Just("[[endpoint.variant.instance]]".to_owned()),
                Just("[health]".to_owned()),
                "\\PC{0,20}",
            ],
            0..20,
        )
    ) {
        let text = lines.join("\n");
        if let Err(error) = parse("f", &text) {
            for issue in error.issues {
                if let Some((line, column)) = issue.at {
                    prop_assert!(line >= 1 && line <= text.lines().count() + 1 && column >= 1);
                }
            }
        }
    }

    #[test]
    fn durations_and_sizes_are_read_as_they_are_written(n in 0..10_000_000_u64) {
        let time = Duration::from_millis(n);
        prop_assert_eq!(value::duration(&value::duration_text(time)), Some(time));
        prop_assert_eq!(value::size(&value::size_text(n)), Some(n));
        prop_assert_eq!(value::size(&value::size_text(n << 20)), Some(n << 20));
    }
}
