//! Which work, which loads, which rules.

use std::{path::Path, sync::Arc};

use router::{
    config::{PrefixEnd, Strategy, VariantConfig},
    prefix::Api,
};

use crate::{
    engine::params::Params,
    simulator::{
        policy::{
            Atalho, CacheAware, KubeAi, LlmD, Oracle, Policy, Preble, PrefixHash, RoundRobin,
        },
        workload::{
            AgentOptions, Agents, Arrivals, Code, CodeOptions, Load, Long, LongContext, Rag,
            RagOptions, ShareGpt, Workload,
        },
    },
};

/// Hosts of the fleet, as many as in Amazon's measurements.
pub const HOSTS: usize = 7;
/// Of all that is random.
const SEED: u64 = 1;

/// Makes a rule, new each time.
pub type Make = Arc<dyn Fn() -> Box<dyn Policy> + Send + Sync>;

/// Work, and how much of it.
pub struct Work {
    /// The sessions.
    pub workload: Box<dyn Workload>,
    /// Seconds of a run.
    pub seconds: u64,
    /// Sessions per second: some load, and much.
    pub per_second: [f64; 2],
}

/// All kinds of work. `scale` shortens the runs.
///
/// # Errors
/// When the conversations cannot be had.
pub fn works(data: &Path, scale: f64) -> anyhow::Result<Vec<Work>> {
    let seconds = |seconds: u64| ((seconds as f64 * scale) as u64).max(10);
    let work = |workload: Box<dyn Workload>, length, per_second| Work {
        workload,
        seconds: seconds(length),
        per_second,
    };
    let zipf = LongContext { zipf: 1.0, ..LongContext::default() };
    Ok(vec![
        work(Box::new(Long::new(LongContext::default())), 3_600, [6.0, 14.0]),
        work(Box::new(Long::new(zipf)), 3_600, [8.0, 22.0]),
        work(Box::new(ShareGpt::read(&ShareGpt::fetch(data)?, SEED)?), 1_800, [4.0, 9.5]),
        work(Box::new(Rag::new(RagOptions::default())), 1_200, [12.0, 28.0]),
        work(Box::new(Code::new(CodeOptions::default())), 1_200, [0.7, 1.6]),
        work(Box::new(Agents::new(AgentOptions::default())), 1_200, [0.8, 1.8]),
    ])
}

/// Numbers of the kinds of work in [`works`].
pub const LONG: usize = 0;
/// See [`LONG`].
pub const SHAREGPT: usize = 2;
/// See [`LONG`].
pub const AGENTS: usize = 5;

impl Work {
    /// A load that arrives by chance.
    pub fn open(&self, per_second: f64) -> Load {
        self.load(Arrivals::Open { per_second })
    }

    /// The same on average, half of it in bursts of a minute every ten.
    pub fn bursts(&self, per_second: f64) -> Load {
        let (period, high) = (600.min(self.seconds / 2).max(2), 60.min(self.seconds / 20).max(1));
        let factor = (period - high) as f64 / high as f64;
        self.load(Arrivals::Bursts { per_second, period, high, factor: factor.min(4.0) })
    }

    /// A load of users who wait for their answers.
    pub fn closed(&self, users: usize) -> Load {
        self.load(Arrivals::Closed { users })
    }

    fn load(&self, arrivals: Arrivals) -> Load {
        Load { arrivals, seconds: self.seconds, seed: SEED }
    }
}

/// The gateway with one of the strategies of Amazon's API.
pub fn atalho(name: impl Into<String>, strategy: Strategy, length: usize, threshold: u32) -> Make {
    with(
        name,
        Api::ChatCompletions,
        VariantConfig {
            strategy,
            prefix_length: length,
            concurrency_threshold: threshold,
            ..VariantConfig::named("v")
        },
    )
}

/// The gateway with the routing of a variant.
pub fn with(name: impl Into<String>, api: Api, variant: VariantConfig) -> Make {
    let name = name.into();
    Arc::new(move || Box::new(Atalho::new(name.clone(), variant.clone(), api, SEED)))
}

/// The same for an inference component of it, with a copy on each host.
pub fn with_component(name: impl Into<String>, api: Api, variant: VariantConfig) -> Make {
    let name = name.into();
    Arc::new(move || {
        Box::new(Atalho::new(name.clone(), variant.clone(), api, SEED).with_component())
    })
}

/// RANDOM, which others are compared with.
pub fn random() -> Make {
    atalho("RANDOM", Strategy::Random, 4_096, 10)
}

/// PREFIX_AWARE.
pub fn prefix_aware(length: usize, threshold: u32) -> Make {
    let name = format!("PREFIX_AWARE {length}/{threshold}");
    atalho(name, Strategy::PrefixAware, length, threshold)
}

/// All rules, Amazon's first.
pub fn rules() -> Vec<Make> {
    let mut rules = vec![
        random(),
        Arc::new(|| Box::new(RoundRobin::default())),
        atalho("LEAST_OUTSTANDING_REQUESTS", Strategy::LeastOutstandingRequests, 4_096, 10),
        prefix_aware(4_096, 10),
        prefix_aware(1_024, 64),
        prefix_aware(4_096, 64),
    ];
    rules.extend(own());
    rules.extend(peers());
    rules
}

/// What the gateway has beside Amazon's strategies.
pub fn own() -> Vec<Make> {
    vec![opening(4_096, 64), opening(65_536, 64)]
}

/// PREFIX_AWARE with the first message of the user as the end of the prefix.
pub fn opening(length: usize, threshold: u32) -> Make {
    let variant = VariantConfig {
        strategy: Strategy::PrefixAware,
        prefix_length: length,
        concurrency_threshold: threshold,
        ..VariantConfig::named("v")
    };
    Arc::new(move || {
        let name = format!("opening {length}/{threshold}");
        let atalho = Atalho::new(name, variant.clone(), Api::ChatCompletions, SEED);
        Box::new(atalho.ending(PrefixEnd::FirstUserMessage))
    })
}

/// Other routers' rules, and the oracle.
fn peers() -> Vec<Make> {
    vec![
        Arc::new(|| Box::new(CacheAware::default())),
        Arc::new(|| Box::new(PrefixHash::default())),
        Arc::new(|| Box::new(KubeAi::default())),
        Arc::new(|| Box::new(LlmD::new(SEED))),
        Arc::new(|| Box::new(Preble::default())),
        Arc::new(|| Box::new(Oracle::new(&params()))),
    ]
}

/// Rules whose affinity can be seen to move.
pub fn with_affinity() -> Vec<Make> {
    let mut rules = vec![prefix_aware(4_096, 64)];
    rules.push(Arc::new(|| Box::new(CacheAware::default())));
    rules.push(Arc::new(|| Box::new(PrefixHash::default())));
    rules.push(Arc::new(|| Box::new(LlmD::new(SEED))));
    rules.push(Arc::new(|| Box::new(Preble::default())));
    rules
}

/// The hosts.
pub fn params() -> Params {
    Params::llama_70b_on_eight_h100()
}
