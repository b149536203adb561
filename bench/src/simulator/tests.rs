//! Properties of whole runs.

use std::{collections::HashMap, sync::Arc, time::Duration};

use router::{
    config::{Strategy, VariantConfig},
    prefix::Api,
};
use tokio::time::Instant;

use super::{
    Micros, SECOND,
    host::{Happened, Host},
    outcome::Outcome,
    policy::{Atalho, CacheAware, KubeAi, LlmD, Oracle, Policy, Preble, PrefixHash, RoundRobin},
    run::{Change, Setup, run},
    workload::{Arrivals, From, Load, Long, LongContext, Session, Turn, Workload},
};
use crate::engine::{params::Params, runner::Runner, scheduler::Job};
use crate::simulator::prompt::{Role, Text};

/// Conversations of four turns over a few system prompts.
struct Chats;

impl Workload for Chats {
    fn name(&self) -> String {
        "chats".into()
    }

    fn session(&self, number: usize) -> Option<Session> {
        let turn = |turn: usize| {
            let mut messages = Vec::new();
            if turn == 0 {
                messages.push((
                    Role::System,
                    Text::new(format!("{} be brief ", number % 9).repeat(60)),
                ));
            }
            messages.push((Role::User, Text::new(format!("{number} {turn} why? ").repeat(9))));
            let answer = Text::new(format!("{turn} so it is. ").repeat(8 + number % 5));
            Turn { messages, answer, think: SECOND, from: From::Last }
        };
        Some(Session { group: number as u64 % 9, turns: (0..4).map(turn).collect() })
    }
}

fn load(seconds: u64) -> Load {
    Load { arrivals: Arrivals::Open { per_second: 12.0 }, seconds, seed: 3 }
}

fn setup(changes: Vec<(Micros, Change)>) -> Setup {
    let params = Params { cache_blocks: 512, max_running: 8, ..Params::default() };
    Setup { params, hosts: 4, changes }
}

fn variant(strategy: Strategy, threshold: u32) -> VariantConfig {
    VariantConfig {
        strategy,
        prefix_length: 1_024,
        concurrency_threshold: threshold,
        ..VariantConfig::named("v")
    }
}

fn prefix_aware(threshold: u32) -> Atalho {
    Atalho::new("prefix", variant(Strategy::PrefixAware, threshold), Api::ChatCompletions, 5)
}

fn policies() -> Vec<Box<dyn Policy>> {
    let atalho = |strategy| Atalho::new("atalho", variant(strategy, 4), Api::ChatCompletions, 5);
    vec![
        Box::new(atalho(Strategy::Random)),
        Box::new(atalho(Strategy::LeastOutstandingRequests)),
        Box::new(atalho(Strategy::PrefixAware)),
        Box::new(RoundRobin::default()),
        Box::new(CacheAware::default()),
        Box::new(PrefixHash::default()),
        Box::new(KubeAi::default()),
        Box::new(LlmD::new(5)),
        Box::new(Preble::default()),
        Box::new(Oracle::new(&Params::default())),
    ]
}

fn outcome(policy: &mut dyn Policy, changes: Vec<(Micros, Change)>) -> Outcome {
    run(&Chats, &load(60), &setup(changes), policy, &mut |_| {})
}

#[test]
fn every_request_is_answered_once_whoever_chooses() {
    for policy in &mut policies() {
        let outcome = outcome(&mut **policy, Vec::new());
        let name = &outcome.policy;
        assert!(outcome.records.len() > 800, "{name}: {}", outcome.records.len());
        assert_eq!(outcome.records.len() % 4, 0, "{name}: each session has four turns");
        let mut sessions: HashMap<u64, Vec<_>> = HashMap::new();
        for record in &outcome.records {
            assert!(record.finished && record.host.is_some(), "{name}: {record:?}");
            let first = record.first_token.expect("a finished request had a first token");
            assert!(record.arrived < first && first <= record.ended, "{name}: {record:?}");
            assert!(record.cached_tokens < record.prompt_tokens, "{name}: {record:?}");
            sessions.entry(record.session).or_default().push(record);
        }
        for turns in sessions.values() {
            assert_eq!(turns.len(), 4, "{name}");
            // A turn comes when the one before has ended and somebody has thought.
            assert!(turns.windows(2).all(|two| two[1].arrived == two[0].ended + SECOND), "{name}");
        }
        let summary = outcome.summary();
        assert!((summary.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{name}");
        assert_eq!(summary.requests as usize, outcome.records.len());
        assert_eq!(summary.failures, 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let changes = || vec![(20 * SECOND, Change::Die(1)), (40 * SECOND, Change::Add)];
    for (one, other) in policies().iter_mut().zip(&mut policies()) {
        assert_eq!(outcome(&mut **one, changes()), outcome(&mut **other, changes()));
    }
}

#[test]
fn affinity_finds_what_chance_does_not() {
    let options = LongContext {
        contexts: 20,
        context_tokens: 1_000,
        question_tokens: 40,
        answer_tokens: 20,
        ..LongContext::default()
    };
    let long = Long::new(options);
    let hit_rate = |policy: &mut dyn Policy| {
        // Five contexts fit a host.
        run(&long, &load(120), &setup(Vec::new()), policy, &mut |_| {}).summary().hit_rate
    };
    let random = Atalho::new("random", variant(Strategy::Random, 4), Api::ChatCompletions, 5);
    let (random, prefix) = (hit_rate(&mut { random }), hit_rate(&mut prefix_aware(64)));
    assert!(random < 0.45 && prefix > 0.75, "{random} {prefix}");
}

#[test]
fn a_dead_host_fails_what_it_had_and_gets_nothing_more() {
    let died = 30 * SECOND;
    for policy in &mut policies() {
        let outcome = outcome(&mut **policy, vec![(died, Change::Die(2))]);
        let name = &outcome.policy;
        let failed: Vec<_> = outcome.records.iter().filter(|record| !record.finished).collect();
        assert!(!failed.is_empty(), "{name}");
        for record in failed {
            assert_eq!((record.host, record.ended), (Some(2), died), "{name}: {record:?}");
        }
        let later = outcome.records.iter().filter(|record| record.arrived >= died);
        assert!(later.clone().count() > 200 && later.clone().all(|r| r.host != Some(2)), "{name}");
    }
}

#[test]
fn a_host_that_leaves_ends_what_it_has() {
    let left = 30 * SECOND;
    let outcome = outcome(&mut prefix_aware(64), vec![(left, Change::Remove(0))]);
    assert!(outcome.records.iter().all(|record| record.finished));
    assert!(outcome.records.iter().any(|r| r.host == Some(0) && r.ended > left));
    assert!(outcome.records.iter().all(|r| r.arrived <= left || r.host != Some(0)));
}

#[test]
fn only_the_keys_of_a_newcomer_move() {
    let (came, end) = (60 * SECOND, 120 * SECOND);
    let load = load(120);
    let setup = setup(vec![(came, Change::Add)]);
    let options = LongContext {
        contexts: 60,
        context_tokens: 400,
        question_tokens: 20,
        answer_tokens: 4,
        ..LongContext::default()
    };
    let outcome = run(&Long::new(options), &load, &setup, &mut prefix_aware(64), &mut |_| {});
    let homes = |from, to| {
        let span = from..to;
        let asked = outcome.records.iter().filter(move |record| span.contains(&record.arrived));
        asked.map(|record| (record.group, record.host)).collect::<HashMap<_, _>>()
    };
    let (before, after) = (homes(0, came), homes(came, end));
    let moved: Vec<_> = after
        .iter()
        .filter(|(group, host)| before.get(group).is_some_and(|old| old != *host))
        .collect();
    // A fifth of sixty, give or take.
    assert!((4..24).contains(&moved.len()), "{}", moved.len());
    assert!(moved.iter().all(|(_, host)| **host == Some(4)));
}

#[test]
fn below_the_threshold_all_are_at_home() {
    let overflow = |threshold| outcome(&mut prefix_aware(threshold), Vec::new()).summary().overflow;
    assert_eq!(overflow(1_024), 0.0);
    assert!(overflow(1) > 0.2);
}

/// The host in virtual time and the engine behind `atalho-sim` do the same at the same time.
#[tokio::test]
async fn a_host_agrees_with_the_engine_that_serves_sockets() {
    tokio::time::pause();
    let params = Params { cache_blocks: 256, max_running: 3, ..Params::default() };
    let mut rng = fastrand::Rng::with_seed(8);
    let jobs: Vec<(Micros, Job)> = (0..60)
        .map(|number| {
            let family = rng.u32(0..6) * 10_000;
            let prompt = (family..family + rng.u32(50..400)).collect();
            let output = (0..rng.u32(1..30)).map(|token| number * 100 + token).collect();
            (
                u64::from(number) * 70_000,
                Job { model: "m".into(), salt: String::new(), prompt, output },
            )
        })
        .collect();

    // The clock of the runtime counts in milliseconds: in slow motion they are microseconds.
    let slow = Params { time_scale: 1_000.0, ..params.clone() };
    let runner = Runner::new(slow, "m");
    tokio::spawn(Arc::clone(&runner).run());
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (at, job) in jobs.clone() {
        let runner = Arc::clone(&runner);
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep_until(start + Duration::from_millis(at)).await;
            let mut generation = runner.submit(&job).expect("it fits");
            let first = generation.next().await.expect("a token");
            let first_at = start.elapsed();
            while generation.next().await.is_some() {}
            (first_at, start.elapsed(), first.cached_tokens)
        }));
    }
    let mut served = Vec::new();
    for task in tasks {
        served.push(task.await.expect("it does not panic"));
    }

    let mut host = Host::new(&params);
    let mut simulated = vec![(0, 0, 0); jobs.len()];
    let (mut next, mut step, mut happened) = (0, None, Vec::new());
    while next < jobs.len() || step.is_some() {
        let arrival = jobs.get(next).map(|(at, _)| *at);
        let now = match (arrival, step) {
            (Some(at), Some(end)) if at < end => at,
            (Some(at), None) => at,
            (_, Some(end)) => end,
            (None, None) => break,
        };
        if step == Some(now) {
            host.finish_step(&mut happened);
            for Happened { request, first, finished, cached_tokens } in happened.drain(..) {
                let it: &mut (Micros, Micros, u32) = &mut simulated[request as usize];
                if first {
                    (it.0, it.2) = (now, cached_tokens);
                }
                if finished {
                    it.1 = now;
                }
            }
            step = None;
        } else {
            let job = jobs[next].1.hashed(params.block_tokens);
            host.submit(next as u64, job).expect("it fits");
            next += 1;
        }
        if step.is_none() {
            step = host.begin_step().map(|length| now + length);
        }
    }
    let close = |one: Duration, other: Micros| one.as_millis().abs_diff(u128::from(other)) <= 100;
    for (number, (served, simulated)) in served.iter().zip(&simulated).enumerate() {
        assert_eq!(served.2, simulated.2, "cached tokens of {number}");
        assert!(close(served.0, simulated.0), "first token of {number}: {served:?} {simulated:?}");
        assert!(close(served.1, simulated.1), "last token of {number}: {served:?} {simulated:?}");
    }
    assert!(served.iter().any(|served| served.2 > 0));
}
