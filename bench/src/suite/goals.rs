//! What the project promises, beside what was measured.

use std::fmt;

use serde::Serialize;

use super::{
    bodies::Shape,
    decision::Case,
    relay::{Results, Scenario, StreamsRun},
    target::Target,
};
use crate::report::number;

/// A promise and how it stands.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What is compared.
    pub what: String,
    /// What was measured.
    pub measured: f64,
    /// What it may be at most.
    pub limit: f64,
}

impl Goal {
    fn new(what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Self { what: what.into(), measured, limit }
    }

    /// Whether it is kept; figures within a twentieth of the limit are as good as on it.
    pub fn verdict(&self) -> &'static str {
        match self.measured {
            measured if measured <= self.limit => "met",
            measured if measured <= self.limit * 1.05 => "met within noise",
            _ => "missed",
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, measured, limit } = self;
        write!(
            f,
            "{what}: {} (goal: at most {}): {}",
            number(*measured),
            number(*limit),
            self.verdict()
        )
    }
}

/// Decision cost against parsing, and against the size of the body.
pub fn decision(cases: &[Case]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let find = |api: &str, shape: Shape, kib: usize| {
        cases.iter().find(|case| {
            case.api == api
                && case.shape == shape
                && case.body_bytes == kib << 10
                && case.prefix_length == 4_096
        })
    };
    for (shape, name) in [(Shape::Long, "long"), (Shape::Short, "short")] {
        if let Some(case) = find("openai", shape, 32) {
            let ratio = case.decision_us.median / case.parse_us.median;
            let what = format!("decision vs parse, 32 KiB chat of {name} messages, prefix 4096");
            goals.push(Goal::new(what, ratio, 0.05));
        }
    }
    let (small, large) = (find("invoke", Shape::Long, 32), find("invoke", Shape::Long, 1_024));
    if let Some((small, large)) = small.zip(large) {
        let ratio = large.decision_us.median / small.decision_us.median;
        goals.push(Goal::new("decision on the Invoke API, 1 MiB vs 32 KiB", ratio, 1.0));
    }
    goals
}

/// The relay's goals, as far as the targets they compare were measured.
pub fn relay(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (scenario, name) in
        [(Scenario::Paced100, "100 streams"), (Scenario::Paced1000, "1,000 streams")]
    {
        let figures = paced(results, scenario);
        for (figure, of) in &figures {
            if let Some((own, nginx)) = of(Target::Userspace).zip(of(Target::Nginx)) {
                let what = format!("userspace vs nginx, {name}, {figure}");
                goals.push(Goal::new(what, own / nginx, 1.0));
            }
        }
        for (figure, of) in &figures {
            auto_goal(&mut goals, &format!("{name}, {figure}"), of);
        }
    }
    for (scenario, name) in [
        (Scenario::Bulk, "paced"),
        (Scenario::Flood, "flat out"),
        (Scenario::FloodLength, "flat out, sized"),
    ] {
        let of = |target| results.streams_median(target, scenario, |run| run.cost.own_us);
        if let Some((sockmap, userspace)) = of(Target::Sockmap).zip(of(Target::Userspace)) {
            let what = format!("sockmap vs userspace, 16 KiB writes, {name}, CPU per write");
            goals.push(Goal::new(what, sockmap / userspace, 0.8));
        }
        auto_goal(&mut goals, &format!("16 KiB writes, {name}, CPU per write"), &of);
        // A rate: the inverse is what may not grow.
        let time = |target| {
            let rate = results.streams_median(target, scenario, |run| {
                run.client.events as f64 / run.client.seconds
            });
            rate.map(|rate| 1.0 / rate)
        };
        auto_goal(&mut goals, &format!("16 KiB writes, {name}, time per write"), &time);
    }
    splice(results, &mut goals);
    for target in [Target::Userspace, Target::Sockmap, Target::Splice, Target::Auto] {
        if let Some(pss) = results.memory_median(target, |memory| memory.pss) {
            let what = format!("{}, KiB per open stream", target.name());
            goals.push(Goal::new(what, pss / 1024.0, 24.0));
        }
    }
    goals
}

/// What rewriting packets may cost, beside forwarding them, and that it is quicker than proxies.
fn splice(results: &Results, goals: &mut Vec<Goal>) {
    for (scenario, name) in
        [(Scenario::Paced100, "100 streams"), (Scenario::Paced1000, "1,000 streams")]
    {
        let p50 = |t| results.streams_median(t, scenario, |run| run.client.transit_us.p50);
        // Not the machine's: it is sampled by the timer whose ticks some targets' work begins with.
        let cpu = |t| results.streams_median(t, scenario, |run| run.cost.own_us);
        let others = [
            ("chunk p50", Target::Forwarding, 1.15, &p50 as &dyn Fn(Target) -> Option<f64>),
            ("chunk p50", Target::Nginx, 1.0, &p50),
            ("chunk p50", Target::Haproxy, 1.0, &p50),
            ("CPU per chunk", Target::Forwarding, 1.2, &cpu),
        ];
        for (figure, other, limit, of) in others {
            if let Some((own, theirs)) = of(Target::Splice).zip(of(other)) {
                let what = format!("splice vs {}, {name}, {figure}", other.name());
                goals.push(Goal::new(what, own / theirs, limit));
            }
        }
    }
    for (scenario, name) in
        [(Scenario::Flood, "flat out"), (Scenario::FloodLength, "flat out, sized")]
    {
        let time = |target| {
            let seconds = |run: &StreamsRun| run.client.seconds / run.client.events.max(1) as f64;
            results.streams_median(target, scenario, seconds)
        };
        if let Some((own, theirs)) = time(Target::Splice).zip(time(Target::Forwarding)) {
            let what = format!("splice vs forwarding, 16 KiB writes, {name}, time per write");
            goals.push(Goal::new(what, own / theirs, 1.0 / 0.85));
        }
    }
}

type Figure<'a> = (&'static str, Box<dyn Fn(Target) -> Option<f64> + 'a>);

fn paced(results: &Results, scenario: Scenario) -> [Figure<'_>; 3] {
    [
        (
            "chunk p50",
            Box::new(move |t| results.streams_median(t, scenario, |run| run.client.transit_us.p50)),
        ),
        (
            "chunk p99",
            Box::new(move |t| results.streams_median(t, scenario, |run| run.client.transit_us.p99)),
        ),
        (
            "CPU per chunk",
            Box::new(move |t| results.streams_median(t, scenario, |run| run.cost.own_us)),
        ),
    ]
}

/// `auto` may not be worse than the best of the engines.
fn auto_goal(goals: &mut Vec<Goal>, what: &str, of: &dyn Fn(Target) -> Option<f64>) {
    let engines = [Target::Userspace, Target::Sockmap, Target::Splice];
    let best = engines.into_iter().filter_map(of).reduce(f64::min);
    let (Some(auto), Some(best)) = (of(Target::Auto), best) else { return };
    let what = format!("auto vs the best engine, {what}");
    goals.push(Goal::new(what, auto / best, 1.0));
}
