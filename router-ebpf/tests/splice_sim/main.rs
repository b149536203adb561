//! The splice core between model hosts: every byte once and in order, nothing acknowledged that has
//! not arrived, no packet that a correct peer could not have sent, both connections usable
//! afterwards, again and again, with each other and with others, and everybody hears of the end. See
//! `docs/splice.md`.
//!
//! The plans are the same in each run. `SPLICE_SIM_FACTOR=20` runs twenty times as many, `SPLICE_SIM_SEED=3`
//! others, and `SPLICE_SIM_TRACE=FILE` leaves all packets of the last failure in a file.

mod gateway;
mod peers;
mod plan;
mod tcp;
mod world;

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use plan::{Kind, Plan, plans};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use world::{Seen, World};

/// What went wrong, and the last packets before it.
fn explain(plan: &Plan, panic: &dyn std::any::Any) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let world = World::new(plan.clone(), true);
    let trace = std::rc::Rc::clone(&world.trace);
    let _ = catch_unwind(AssertUnwindSafe(|| world.run()));
    let trace = trace.borrow();
    if let Ok(file) = std::env::var("SPLICE_SIM_TRACE") {
        let _ = std::fs::write(file, trace.join("\n"));
    }
    let last = &trace[trace.len().saturating_sub(120)..];
    format!("{}\n{}\n", said.unwrap_or_default(), last.join("\n"))
}

/// Runs `cases` plans of a fixed seed, and sums up what happened in them.
fn run(cases: u32, kind: Kind) -> Seen {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let cases = cases * number("SPLICE_SIM_FACTOR").unwrap_or(1);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    let seed = number("SPLICE_SIM_SEED").unwrap_or(7) as u8;
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, random);
    let total = RefCell::new(Seen::default());
    let result = runner.run(&plans(kind), |plan| {
        match catch_unwind(AssertUnwindSafe(|| World::new(plan.clone(), false).run())) {
            Ok(seen) => {
                total.borrow_mut().add(&seen);
                Ok(())
            }
            Err(panic) => Err(TestCaseError::fail(explain(&plan, &*panic))),
        }
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = total.into_inner();
    println!("{seen:?}");
    assert!(seen.get("spliced") > u64::from(cases) / 4, "most plans splice: {seen:?}");
    seen
}

#[test]
fn clean_links() {
    let seen = run(60, Kind::default());
    assert_eq!(seen.get("spliced"), seen.get("drained"));
}

#[test]
fn loss_duplication_reordering() {
    let seen = run(100, Kind { impaired: true, ..Kind::default() });
    assert!(seen.get("turned") > 0 && seen.get("split") > 0, "{seen:?}");
    assert_eq!(seen.get("spliced"), seen.get("drained"));
}

#[test]
fn chunked_bodies_on_clean_links() {
    run(40, Kind { chunked: true, ..Kind::default() });
}

#[test]
fn chunked_bodies_with_loss() {
    let seen = run(60, Kind { chunked: true, impaired: true, ..Kind::default() });
    for what in ["holes", "too many chunks"] {
        assert!(seen.get(what) > 0, "{what} did not happen: {seen:?}");
    }
}

#[test]
fn surplus_reaches_nobody() {
    let kind = Kind { surplus: true, chunked: true, impaired: true, many: true, ..Kind::default() };
    let seen = run(100, kind);
    assert!(seen.get("surplus left") > 0, "{seen:?}");
}

#[test]
fn requests_and_other_partners() {
    let kind =
        Kind { requests: true, many: true, impaired: true, chunked: true, ..Kind::default() };
    let seen = run(60, kind);
    assert!(seen.get("requests spliced") > 20, "{seen:?}");
}

#[test]
fn small_windows_and_segments() {
    run(60, Kind { small: true, impaired: true, requests: true, ..Kind::default() });
}

#[test]
fn closes() {
    run(80, Kind { closes: true, impaired: true, requests: true, many: true, ..Kind::default() });
}

#[test]
fn faults() {
    let kind = Kind {
        faults: true,
        closes: true,
        impaired: true,
        requests: true,
        many: true,
        chunked: true,
        ..Kind::default()
    };
    let seen = run(300, kind);
    let chosen = std::env::var_os("SPLICE_SIM_SEED").is_some();
    for who in ["Client", "Server"] {
        for what in ["Shut", "Close", "Reset", "Reboot", "Forged"] {
            for state in ["off", "live", "drain", "quiet"] {
                let times = seen.get(&format!("{who} {what} {state}"));
                // Other seeds may miss one.
                let rare = what == "Forged" || what == "Reboot" || chosen;
                assert!(times > 0 || rare, "{who} {what} {state} did not happen");
            }
        }
    }
}

#[test]
fn congestion_is_told() {
    let seen = run(40, Kind { ecn: true, impaired: true, requests: true, ..Kind::default() });
    assert!(seen.get("slowdowns") > 0, "{seen:?}");
}
