//! Many runs on all processors.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::simulator::{
    Micros, SECOND,
    outcome::Outcome,
    policy::Policy,
    run::{Setup, run},
    workload::{Load, Workload},
};

/// One run that is to be made.
pub struct Job<'a> {
    /// Who asks what.
    pub workload: &'a dyn Workload,
    /// When.
    pub load: Load,
    /// Of which hosts.
    pub setup: Setup,
    /// Makes the rule that chooses the host.
    pub policy: Box<dyn Fn() -> Box<dyn Policy> + Send + Sync + 'a>,
}

/// Makes all runs, on as many threads as there are processors; `watch` hears now and then which share of the work is
/// done, 0 to 1. The outcomes are in the order of the jobs, and the same however many threads there are.
pub fn run_all(jobs: &[Job<'_>], watch: &(dyn Fn(f64) + Sync)) -> Vec<Outcome> {
    let total: u64 = jobs.iter().map(|job| job.load.seconds).sum::<u64>().max(1);
    let done: Vec<AtomicU64> = jobs.iter().map(|_| AtomicU64::new(0)).collect();
    let waiting = Mutex::new((0..jobs.len()).collect::<VecDeque<_>>());
    let outcomes: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(number) = next() {
                    let job = &jobs[number];
                    let mut policy = (job.policy)();
                    let mut tell = |moment: Micros| {
                        done[number]
                            .store((moment / SECOND).min(job.load.seconds), Ordering::Relaxed);
                        let sum: u64 = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
                        watch(sum as f64 / total as f64);
                    };
                    let outcome = run(job.workload, &job.load, &job.setup, &mut *policy, &mut tell);
                    *outcomes[number].lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(outcome);
                }
            });
        }
    });
    outcomes
        .into_iter()
        .map(|outcome| {
            outcome.into_inner().unwrap_or_else(PoisonError::into_inner).expect("each job was made")
        })
        .collect()
}
