//! What the project promises, beside what was measured.

use std::fmt;

use serde::Serialize;

use super::{
    bodies::Shape,
    control,
    decision::Case,
    fleet_size::Sizes,
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
    /// A goal for something that has been measured.
    pub fn new(what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Self { what: what.into(), measured, limit }
    }

    /// Whether it is kept. Noise is no excuse: a goal that is near its limit wants more rounds.
    pub fn is_met(&self) -> bool {
        // A figure that is no number was not measured, and does not show anything.
        self.measured <= self.limit
    }

    /// The same, in a word.
    pub fn verdict(&self) -> &'static str {
        if self.is_met() { "met" } else { "missed" }
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

/// Decision cost against the size of the fleet.
pub fn fleet_size(sizes: &Sizes) -> Goal {
    let ratio = sizes.large_us / sizes.small_us;
    Goal::new("decision among 10,000 inference components vs among 10", ratio, 1.1)
}

/// Streams beside control operations, against streams alone.
pub fn control(results: &control::Results) -> Vec<Goal> {
    [("small", &results.small), ("large", &results.large)]
        .into_iter()
        .map(|(name, fleet)| {
            let what =
                format!("chunk transit p99 with control operations vs without, {name} fleet");
            Goal::new(what, fleet.p99_ratio(), 1.1)
        })
        .collect()
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
        let of = |target| results.streams_median(target, scenario, |run| run.cost.parties_us);
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
    answers(results, &mut goals);
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
        let cpu = |t| results.streams_median(t, scenario, |run| run.cost.parties_us);
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
            goals.push(Goal::new(what, own / theirs, 1.0 / 0.9));
        }
    }
}

/// Short answers: what a hand-over may cost the next request, and how many there can be.
fn answers(results: &Results, goals: &mut Vec<Goal>) {
    let first_byte =
        |target| results.requests_median(target, 16, |run| run.client.first_byte_us.p50);
    if let Some((auto, userspace)) = first_byte(Target::Auto).zip(first_byte(Target::Userspace)) {
        let what = "auto vs userspace, answers of 16 chunks, first byte of the next request, p50";
        goals.push(Goal::new(what, auto / userspace, 1.05));
    }
    // A rate: the inverse is what may not grow.
    let time = |target| {
        results
            .requests_median(target, 1, |run| run.client.seconds / run.client.answers.max(1) as f64)
    };
    let cpu = |target| results.requests_median(target, 1, |run| run.cost.parties_us);
    for own in [Target::Userspace, Target::Auto] {
        for (figure, of) in [("time", &time as &dyn Fn(Target) -> Option<f64>), ("CPU", &cpu)] {
            if let Some((own_figure, haproxy)) = of(own).zip(of(Target::Haproxy)) {
                let what = format!(
                    "{} vs haproxy, short requests flat out, {figure} per request",
                    own.name()
                );
                goals.push(Goal::new(what, own_figure / haproxy, 1.0));
            }
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
            Box::new(move |t| results.streams_median(t, scenario, |run| run.cost.parties_us)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_or_missed() {
        for (measured, verdict) in
            [(0.9, "met"), (1.0, "met"), (1.0001, "missed"), (1.04, "missed"), (f64::NAN, "missed")]
        {
            let goal = Goal::new("this vs that", measured, 1.0);
            assert_eq!(goal.verdict(), verdict, "{measured}");
            assert!(goal.to_string().ends_with(verdict), "{goal}");
        }
    }
}
