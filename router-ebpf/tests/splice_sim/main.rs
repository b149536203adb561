//! The splice core between model hosts: every byte once and in order, nothing acknowledged that has
//! not arrived, no packet that a correct peer could not have sent, and both connections usable
//! afterwards, again and again. See `docs/splice.md`.
//!
//! The plans are the same in each run. `SPLICE_SIM_FACTOR=20` runs twenty times as many.

mod tcp;
mod world;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use world::{Seen, World, plans};

/// Runs `cases` plans of a fixed seed, and sums up what happened in them.
fn run(cases: u32, chunked: bool, impaired: bool) -> Seen {
    let factor = std::env::var("SPLICE_SIM_FACTOR").ok().and_then(|n| n.parse().ok());
    let cases = cases * factor.unwrap_or(1);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, random);
    let total = std::cell::Cell::new(Seen::default());
    let result = runner.run(&plans(chunked, impaired), |plan| {
        let seen = World::new(plan).run();
        let mut sum = total.get();
        sum.spliced += seen.spliced;
        sum.drained += seen.drained;
        sum.forwarded += seen.forwarded;
        sum.turned += seen.turned;
        sum.split += seen.split;
        sum.dropped += seen.dropped;
        sum.stopped += seen.stopped;
        total.set(sum);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = total.get();
    println!("{seen:?}");
    assert_eq!(seen.spliced, seen.drained);
    assert!(seen.spliced > u64::from(cases) / 4, "most plans splice: {seen:?}");
    seen
}

#[test]
fn clean_links() {
    run(60, false, false);
}

#[test]
fn loss_duplication_reordering() {
    let seen = run(100, false, true);
    assert!(seen.turned > 0 && seen.split > 0, "{seen:?}");
}

#[test]
fn chunked_bodies_on_clean_links() {
    run(40, true, false);
}

#[test]
fn chunked_bodies_with_loss() {
    run(60, true, true);
}
