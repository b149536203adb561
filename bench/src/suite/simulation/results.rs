//! What came of all runs.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use router::{
    config::{Strategy, VariantConfig},
    prefix::Api,
};
use serde::Serialize;

use super::{
    plan::{self, AGENTS, HOSTS, LONG, Make, SHAREGPT, Work},
    runs::{Job, run_all},
};
use crate::simulator::{
    Micros, SECOND,
    outcome::{Outcome, Summary},
    prompt::{Dialect, Prompt, Role},
    run::{Change, Setup},
    workload::{Load, Workload},
};

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// All rules over all work, under two loads and in bursts.
    pub comparisons: Vec<Comparison>,
    /// Amazon's table.
    pub amazon: Vec<AmazonRow>,
    /// PREFIX_AWARE with other lengths and thresholds.
    pub grids: Vec<Grid>,
    /// Hosts that come and go.
    pub changes: Vec<ChangeRow>,
}

/// All rules over the same work under the same load.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The work.
    pub workload: String,
    /// `some`, `much` or `bursts`.
    pub load: &'static str,
    /// Sessions per second.
    pub per_second: f64,
    /// Share of prompt tokens that one cache without end would have had.
    pub bound: f64,
    /// Per rule, RANDOM first.
    pub rules: Vec<Summary>,
}

/// RANDOM and PREFIX_AWARE in one of Amazon's configurations.
#[derive(Clone, Debug, Serialize)]
pub struct AmazonRow {
    /// The work.
    pub workload: String,
    /// `Invoke` or `OpenAI`.
    pub api: &'static str,
    /// Whether the endpoint has an inference component.
    pub component: bool,
    /// Users who wait for their answers.
    pub users: usize,
    /// RANDOM.
    pub random: Summary,
    /// PREFIX_AWARE.
    pub prefix_aware: Summary,
}

/// PREFIX_AWARE over lengths and thresholds.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// The work.
    pub workload: String,
    /// Sessions per second.
    pub per_second: f64,
    /// Length, threshold, and what came of them.
    pub cells: Vec<(usize, u32, Summary)>,
}

/// A rule and a change of the fleet.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeRow {
    /// What happens in the middle of the run.
    pub change: &'static str,
    /// The rule's name.
    pub policy: String,
    /// Share of the groups of sessions whose usual host changed.
    pub moved: f64,
    /// Hit rate in the ten minutes before.
    pub before: f64,
    /// In the minute behind the change.
    pub after: f64,
    /// Minutes until it was within 2 points of before again; `None` for not in this run.
    pub minutes: Option<u64>,
    /// Requests that failed.
    pub failures: u64,
    /// Hit rate of each minute.
    pub by_minute: Vec<f64>,
}

/// The lengths of the grid.
pub const LENGTHS: [usize; 4] = [1_024, 4_096, 16_384, 65_536];
/// The thresholds of the grid.
pub const THRESHOLDS: [u32; 4] = [4, 10, 32, 128];

/// Makes all runs. `data` is where conversations are kept, `scale` shortens all runs, and `watch` hears which share of
/// the runs is done.
///
/// # Errors
/// When the conversations cannot be had.
pub fn run(data: &Path, scale: f64, watch: &(dyn Fn(f64) + Sync)) -> anyhow::Result<Results> {
    Ok(run_works(&plan::works(data, scale)?, watch))
}

/// The same for any work, in the order of [`plan::works`].
fn run_works(works: &[Work], watch: &(dyn Fn(f64) + Sync)) -> Results {
    let mut batch = Batch::default();
    for work in works {
        let [some, much] = work.per_second;
        for (load, name) in [(some, "some"), (much, "much")] {
            batch.compare(work, work.open(load), name, load);
        }
    }
    for at in [LONG, SHAREGPT] {
        let rate = works[at].per_second[0];
        batch.compare(&works[at], works[at].bursts(rate), "bursts", rate);
    }
    for (at, users) in [(LONG, [30, 60]), (SHAREGPT, [300, 600])] {
        for users in users {
            for component in [false, true] {
                for (api, name) in [(Api::Invocations, "Invoke"), (Api::ChatCompletions, "OpenAI")]
                {
                    batch.amazon(&works[at], users, component, api, name);
                }
            }
        }
    }
    for at in [LONG, SHAREGPT, AGENTS] {
        batch.grid(&works[at]);
    }
    batch.changes(&works[LONG]);

    let outcomes = run_all(&batch.jobs, watch);
    let mut outcomes = outcomes.into_iter();
    let mut results = Results {
        comparisons: Vec::new(),
        amazon: Vec::new(),
        grids: Vec::new(),
        changes: Vec::new(),
    };
    for part in batch.parts {
        let mut next = || outcomes.next().expect("each job has an outcome");
        match part {
            Part::Comparison(mut comparison, count) => {
                comparison.rules = (0..count).map(|_| next().summary()).collect();
                results.comparisons.push(comparison);
            }
            Part::Amazon(mut row) => {
                row.random = next().summary();
                row.prefix_aware = next().summary();
                results.amazon.push(*row);
            }
            Part::Grid(mut grid) => {
                for cell in &mut grid.cells {
                    cell.2 = next().summary();
                }
                results.grids.push(grid);
            }
            Part::Change(change, at) => results.changes.push(change_row(change, at, &next())),
        }
    }
    results
}

/// What a run of jobs is for, in their order.
enum Part {
    Comparison(Comparison, usize),
    Amazon(Box<AmazonRow>),
    Grid(Grid),
    Change(&'static str, Micros),
}

#[derive(Default)]
struct Batch<'a> {
    jobs: Vec<Job<'a>>,
    parts: Vec<Part>,
}

impl<'a> Batch<'a> {
    fn job(&mut self, work: &'a Work, load: Load, changes: Vec<(Micros, Change)>, make: Make) {
        let setup = Setup { params: plan::params(), hosts: HOSTS, changes };
        let policy = Box::new(move || make());
        self.jobs.push(Job { workload: &*work.workload, load, setup, policy });
    }

    fn compare(&mut self, work: &'a Work, load: Load, name: &'static str, per_second: f64) {
        let rules = plan::rules();
        let count = rules.len();
        for make in rules {
            self.job(work, load.clone(), Vec::new(), make);
        }
        let sessions = load.arrivals.moments(&load).count();
        let comparison = Comparison {
            workload: work.workload.name(),
            load: name,
            per_second,
            bound: bound(&*work.workload, sessions),
            rules: Vec::new(),
        };
        self.parts.push(Part::Comparison(comparison, count));
    }

    fn amazon(
        &mut self,
        work: &'a Work,
        users: usize,
        component: bool,
        api: Api,
        name: &'static str,
    ) {
        for strategy in [Strategy::Random, Strategy::PrefixAware] {
            let variant = VariantConfig {
                strategy,
                prefix_length: AMAZON_LENGTH,
                concurrency_threshold: AMAZON_THRESHOLD,
                ..VariantConfig::named("v")
            };
            let make = match component {
                false => plan::with(strategy.to_string(), api, variant),
                true => plan::with_component(strategy.to_string(), api, variant),
            };
            self.job(work, work.closed(users), Vec::new(), make);
        }
        self.parts.push(Part::Amazon(Box::new(AmazonRow {
            workload: work.workload.name(),
            api: name,
            component,
            users,
            random: Summary::default(),
            prefix_aware: Summary::default(),
        })));
    }

    fn grid(&mut self, work: &'a Work) {
        let per_second = work.per_second[1];
        let mut cells = Vec::new();
        for length in LENGTHS {
            for threshold in THRESHOLDS {
                let make = plan::prefix_aware(length, threshold);
                self.job(work, work.open(per_second), Vec::new(), make);
                cells.push((length, threshold, Summary::default()));
            }
        }
        self.parts.push(Part::Grid(Grid { workload: work.workload.name(), per_second, cells }));
    }

    fn changes(&mut self, work: &'a Work) {
        let at = work.seconds / 2 * SECOND;
        let changes = [
            ("a host comes", Change::Add),
            ("a host leaves", Change::Remove(3)),
            ("a host dies", Change::Die(3)),
        ];
        for (name, change) in changes {
            for make in plan::with_affinity() {
                let load = work.open(work.per_second[0]);
                self.job(work, load, vec![(at, change)], make);
                self.parts.push(Part::Change(name, at));
            }
        }
    }
}

/// The length in Amazon's table. Its example has 4096, with which its hit rate on conversations is out of reach.
pub const AMAZON_LENGTH: usize = 1_024;
/// Its example has 10; the users here are more than ten times the hosts.
pub const AMAZON_THRESHOLD: u32 = 128;

/// The hit rate of one cache without end, to which all requests come one after another.
fn bound(workload: &dyn Workload, sessions: usize) -> f64 {
    let block_tokens = plan::params().block_tokens;
    let dialect = Dialect { model: "m".into(), block_tokens }.into();
    let (mut seen, mut cached, mut total) = (HashSet::new(), 0_u64, 0_u64);
    for session in (0..sessions).map_while(|number| workload.session(number)) {
        let mut prompts: Vec<Prompt> = Vec::new();
        for turn in session.turns {
            let mut prompt = turn.from.prompt(&prompts).unwrap_or_else(|| Prompt::new(&dialect));
            for (role, text) in &turn.messages {
                prompt = prompt.with(*role, text);
            }
            let job = prompt.job(&turn.answer);
            // The last token of a prompt is always computed.
            let cachable = ((job.prompt.max(1) - 1) / block_tokens) as usize;
            let found = job.hashes[..cachable].iter().take_while(|hash| seen.contains(*hash));
            cached += found.count() as u64 * u64::from(block_tokens);
            total += u64::from(job.prompt);
            seen.extend(job.hashes);
            prompts.push(prompt.with(Role::Assistant, &turn.answer));
        }
    }
    cached as f64 / total.max(1) as f64
}

fn change_row(change: &'static str, at: Micros, outcome: &Outcome) -> ChangeRow {
    const MINUTE: Micros = 60 * SECOND;
    let rate = |from: Micros, to: Micros| outcome.summary_of(from..to).hit_rate;
    let before = rate(at.saturating_sub(10 * MINUTE), at);
    let minutes = outcome.end / MINUTE;
    let by_minute: Vec<f64> =
        (0..minutes).map(|minute| rate(minute * MINUTE, (minute + 1) * MINUTE)).collect();
    let since = (at / MINUTE) as usize;
    let recovered = by_minute.iter().skip(since).position(|rate| *rate >= before - 0.02);
    ChangeRow {
        change,
        policy: outcome.policy.clone(),
        moved: moved(outcome, at),
        before,
        after: rate(at, at + MINUTE),
        minutes: recovered.map(|minutes| minutes as u64),
        failures: outcome.summary().failures,
        by_minute,
    }
}

/// The share of the groups that were asked for before and after a moment whose most frequent host changed.
fn moved(outcome: &Outcome, at: Micros) -> f64 {
    let usual = |after: bool| {
        let mut counts: HashMap<u64, HashMap<u32, u32>> = HashMap::new();
        for record in outcome.records.iter().filter(|record| (record.arrived >= at) == after) {
            if let Some(host) = record.host {
                *counts.entry(record.group).or_default().entry(host).or_default() += 1;
            }
        }
        let most = |hosts: HashMap<u32, u32>| {
            hosts.into_iter().max_by_key(|(host, count)| (*count, u32::MAX - host)).map(|it| it.0)
        };
        counts.into_iter().map(|(group, hosts)| (group, most(hosts))).collect::<HashMap<_, _>>()
    };
    let (before, after) = (usual(false), usual(true));
    let both: Vec<_> =
        after.iter().filter_map(|(group, host)| Some((before.get(group)?, host))).collect();
    let moved = both.iter().filter(|(old, new)| old != new).count();
    moved as f64 / both.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        simulator::workload::{
            AgentOptions, Agents, Code, CodeOptions, Long, LongContext, Rag, RagOptions,
        },
        suite::simulation::report,
    };

    fn works() -> Vec<Work> {
        let long = LongContext { contexts: 12, context_tokens: 500, ..LongContext::default() };
        let zipf = LongContext { zipf: 1.0, ..long.clone() };
        let other = LongContext { contexts: 9, zipf: 0.5, ..long.clone() };
        let rag =
            RagOptions { documents: 20, topics: 10, document_tokens: 100, ..RagOptions::default() };
        let code = CodeOptions { projects: 5, completions: 3, ..CodeOptions::default() };
        let agents =
            AgentOptions { kinds: 3, calls: 3, system_tokens: 300, ..AgentOptions::default() };
        let work =
            |workload: Box<dyn Workload>| Work { workload, seconds: 20, per_second: [1.0, 2.0] };
        vec![
            work(Box::new(Long::new(long))),
            work(Box::new(Long::new(zipf))),
            work(Box::new(Long::new(other))),
            work(Box::new(Rag::new(rag))),
            work(Box::new(Code::new(code))),
            work(Box::new(Agents::new(agents))),
        ]
    }

    #[test]
    fn the_report_is_whole_and_says_the_same_again() {
        let (results, again) = (run_works(&works(), &|_| {}), run_works(&works(), &|_| {}));
        let text = report::text(&results);
        assert_eq!(text, report::text(&again));
        assert!(!text.contains("{{"), "a place of the frame is empty");
        for comparison in &results.comparisons {
            for rule in &comparison.rules {
                assert!(rule.requests > 10 && rule.failures == 0, "{rule:?}");
                // No rule finds more than one cache without end, but for which turns come first.
                assert!(rule.hit_rate <= comparison.bound + 0.02, "{rule:?} {}", comparison.bound);
            }
        }
        let directory = tempfile::tempdir().expect("a directory");
        report::write(&results, directory.path()).expect("written");
        let links = text.split("](routing/").skip(1).map(|rest| rest.split(')').next());
        let links: Vec<_> = links.flatten().collect();
        assert_eq!(links.len(), results.comparisons.len() + results.grids.len() + 3);
        for link in links {
            let picture = directory.path().join("routing").join(link);
            let svg = std::fs::read_to_string(&picture).expect("the picture is there");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{link}");
        }
    }

    #[test]
    fn an_endless_cache_finds_what_was_asked_before() {
        let options = LongContext {
            contexts: 1,
            context_tokens: 1_000,
            question_tokens: 2,
            ..LongContext::default()
        };
        // All but the first have the context, less what does not fill a block and the question.
        let bound = bound(&Long::new(options), 100);
        assert!((0.95..0.98).contains(&bound), "{bound}");
    }
}
