use std::time::Duration;

use super::*;

fn page(metrics: &Metrics) -> String {
    String::from_utf8(metrics.render()).expect("text")
}

#[test]
fn counts_by_pre_resolved_handles() {
    let metrics = Metrics::new();
    let instance = metrics.instance("chat", "main", "http://10.0.0.1:8000");
    instance.chosen("home");
    instance.chosen("home");
    instance.chosen(&String::from("over_flow").replace('_', "").leak()[..]);
    instance.responded(200, Duration::from_millis(20));
    instance.body_began(true, Duration::from_millis(25));
    instance.ended(Outcome::Ok, Duration::from_millis(30));
    instance.ended(Outcome::ClientGone, Duration::from_millis(30));
    instance.state(3, true, false);
    let page = page(&metrics);
    let labels = r#"endpoint_name="chat",instance_url="http://10.0.0.1:8000""#;
    for line in [
        format!(r#"atalho_requests_total{{{labels},reason="home",variant="main"}} 2"#),
        format!(r#"atalho_requests_total{{{labels},reason="overflow",variant="main"}} 1"#),
        format!(r#"atalho_requests_total{{{labels},reason="random",variant="main"}} 0"#),
        format!(r#"atalho_exchanges_total{{{labels},outcome="client_gone",variant="main"}} 1"#),
        format!(r#"atalho_responses_total{{class="2xx",{labels},variant="main"}} 1"#),
        format!(r#"atalho_in_flight_requests{{{labels},variant="main"}} 3"#),
        format!(r#"atalho_time_to_response_head_seconds_count{{{labels},variant="main"}} 1"#),
        format!(
            r#"atalho_time_to_first_byte_seconds_count{{{labels},streamed="true",variant="main"}} 1"#
        ),
    ] {
        assert!(page.lines().any(|have| have == line), "no {line} in\n{page}");
    }
}

#[test]
fn outcomes_index_by_their_discriminant() {
    let metrics = Metrics::new();
    let instance = metrics.instance("e", "v", "u");
    instance.ended(Outcome::Shutdown, Duration::ZERO);
    assert!(page(&metrics).contains(r#"outcome="shutdown",variant="v"} 1"#));
}

#[test]
fn series_go_with_the_last_holder_and_only_then() {
    let metrics = Metrics::new();
    let first = metrics.instance("e", "v", "http://gone:1");
    let again = metrics.instance("e", "v", "http://gone:1");
    let other = metrics.instance("e", "v", "http://stays:1");
    first.prefix_cache(&PrefixCache { hits: Some(1), queries: Some(2), ratio: Some(0.5) });
    drop(first);
    assert!(page(&metrics).contains("http://gone:1"));
    drop(again);
    let page = page(&metrics);
    assert!(!page.contains("http://gone:1"), "{page}");
    assert!(page.contains("http://stays:1"));
    drop(other);
}

/// Also when nobody has looked meanwhile, and whatever their number.
#[test]
fn an_instance_that_comes_back_begins_anew() {
    let metrics = Metrics::new();
    let count = |page: &str| page.matches(r#"outcome="ok",variant="v"} 1"#).count();
    metrics.instance("e", "v", "u").ended(Outcome::Ok, Duration::ZERO);
    let again = metrics.instance("e", "v", "u");
    assert_eq!(count(&page(&metrics)), 0);
    again.ended(Outcome::Ok, Duration::ZERO);
    assert_eq!(count(&page(&metrics)), 1);
    for n in 0..2_500 {
        metrics.instance("e", "v", &format!("http://left-{n}")).ended(Outcome::Ok, Duration::ZERO);
    }
    assert!(lock(&metrics.gone).len() < 1_000, "they do not pile up");
    let page = page(&metrics);
    assert!(count(&page) == 1 && !page.contains("http://left-"), "the others have gone");
}

#[test]
fn a_mirror_survives_the_restart_of_what_it_follows() {
    let metrics = Metrics::new();
    let instance = metrics.instance("e", "v", "u");
    for hits in [10, 25, 5] {
        instance.prefix_cache(&PrefixCache { hits: Some(hits), queries: Some(100), ratio: None });
    }
    let page = page(&metrics);
    assert!(page.contains(
        r#"prefix_cache_hit_tokens_total{endpoint_name="e",instance_url="u",variant="v"} 30"#
    ));
    assert!(page.contains(
        r#"prefix_cache_query_tokens_total{endpoint_name="e",instance_url="u",variant="v"} 100"#
    ));
}

#[test]
fn an_engine_has_one_reason_at_a_time() {
    let metrics = Metrics::new();
    let engine = metrics.engine("sockmap");
    engine.available(Err("no_permission"));
    engine.available(Ok(()));
    engine.fell_back("backlog");
    engine.carried(Direction::Response, 1000);
    let page = page(&metrics);
    assert!(page.contains(r#"atalho_engine_available{engine="sockmap",reason="ok"} 1"#));
    assert!(!page.contains("no_permission"));
    assert!(page.contains(r#"atalho_fallbacks_total{engine="sockmap",reason="backlog"} 1"#));
    assert!(
        page.contains(r#"atalho_body_bytes_total{direction="response",engine="sockmap"} 1000"#)
    );
}

#[test]
fn hooks_run_before_each_rendering_and_may_use_the_handles() {
    let metrics = Metrics::new();
    let instance = metrics.instance("e", "v", "u");
    metrics.on_render(move |metrics| {
        instance.state(7, false, true);
        metrics.guard_packets("deny", 11);
    });
    let first = page(&metrics);
    assert!(first.contains(
        r#"atalho_in_flight_requests{endpoint_name="e",instance_url="u",variant="v"} 7"#
    ));
    assert!(first.contains(r#"atalho_guard_packets_total{rule="deny"} 11"#));
}

#[test]
fn process_metrics_are_real() {
    let page = page(&Metrics::new());
    let value = |name: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect(name)
    };
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") >= 3.0);
    assert!(value("process_start_time_seconds") > 1.6e9);
}

#[test]
fn every_family_is_named_and_explained() {
    let metrics = Metrics::new();
    let _instance = metrics.instance("e", "v", "u");
    metrics.endpoint("e").error(503, "no_instance");
    metrics.error(400, "bad_head");
    for family in metrics.registry.gather() {
        let name = family.name();
        assert!(name.starts_with("atalho_") || name.starts_with("process_"), "{name}");
        assert!(family.help().ends_with('.'), "{name}: {}", family.help());
        if name.starts_with("atalho_")
            && family.get_field_type() == prometheus::proto::MetricType::COUNTER
        {
            assert!(name.ends_with("_total"), "{name}");
        }
    }
}

#[test]
fn every_reason_of_routing_has_a_counter_beforehand() {
    let reasons = crate::routing::Reason::ALL.map(|reason| reason.as_str());
    assert_eq!(reasons, REASONS);
}

#[test]
fn no_label_collides_with_what_prometheus_adds_to_each_series() {
    // The labels of the target (`job`, `instance`; those of Kubernetes' service discovery as the
    // Prometheus Operator sets them), and those that the format itself uses.
    const TAKEN: [&str; 12] = [
        "job",
        "instance",
        "endpoint",
        "namespace",
        "pod",
        "service",
        "container",
        "node",
        "cluster",
        "prometheus",
        "le",
        "quantile",
    ];
    let metrics = Metrics::new();
    let instance = metrics.instance("e", "v", "u");
    instance.prefix_cache(&PrefixCache { hits: Some(1), queries: Some(2), ratio: Some(0.5) });
    let endpoint = metrics.endpoint("e");
    endpoint.error(503, "no_instance");
    let engine = metrics.engine("splice");
    engine.available(Ok(()));
    engine.fell_back("hole");
    metrics.learned_reads([(["e", "v", "chat_completions"], 8)].into_iter());
    metrics.top_prefix_shares([(["e", "v"], 0.5)].into_iter());
    metrics.guard_packets("deny", 1);
    metrics.xdp_interfaces(1, 0);
    let families = metrics.registry.gather();
    // Families without a series do not show their labels.
    assert_eq!(families.len(), families_made(), "some family has no series in this test");
    for family in families {
        for pair in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
            let name = pair.name();
            assert!(!TAKEN.contains(&name), "{} has a label `{name}`", family.name());
            assert!(!name.starts_with("__"), "{} has a label `{name}`", family.name());
        }
    }
}

/// As many as the source of the families names.
fn families_made() -> usize {
    let ours = include_str!("families.rs").matches("\"atalho_").count();
    ours + include_str!("process.rs").matches("\"process_").count()
}

#[test]
fn an_engine_shows_its_fallbacks_before_the_first() {
    let metrics = Metrics::new();
    let engine = metrics.engine("splice");
    engine.expect_fallbacks(["hole", "window"]);
    assert!(page(&metrics).contains(r#"atalho_fallbacks_total{engine="splice",reason="hole"} 0"#));
    engine.fell_back("hole");
    engine.expect_fallbacks(["hole"]);
    let page = page(&metrics);
    assert!(page.contains(r#"atalho_fallbacks_total{engine="splice",reason="hole"} 1"#));
    assert!(page.contains(r#"atalho_fallbacks_total{engine="splice",reason="window"} 0"#));
}
