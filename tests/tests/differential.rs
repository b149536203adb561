//! Thousands of random exchanges through each engine: what one side sent is what the other side
//! got, and at the end nothing is left.
//!
//! Everything follows from a seed, which is printed; `ATALHO_SEED` sets it, `ATALHO_SECONDS` how
//! long each engine is tried. A connection that failed is repeated over and over with
//! `ATALHO_CONNECTION`.

use std::time::Duration;

use tests::{
    Engine, Setup, for_each_engine_and_driver,
    traffic::{self, Baseline, Kind, Traffic, setting},
};

/// Enough to meet every combination, and then stop.
const EXCHANGES: usize = 15_000;

for_each_engine_and_driver! {
    fn what_one_side_sent_is_what_the_other_got(engine) {
        let seed = setting("ATALHO_SEED", fastrand::u64(..));
        println!("{engine:?}: ATALHO_SEED={seed}");
        let fleet = [traffic::instance(), traffic::instance()];
        let gateway = Setup::new(engine)
            .instances(&fleet)
            .set("threads", 2)
            .set("timeouts.pool_idle", "500ms")
            .set("log.level", "info")
            .start();
        let baseline = Baseline::of(&gateway);
        let limit = Duration::from_secs(setting("ATALHO_SECONDS", 40));
        let traffic = Traffic { seed, kind: Kind::Everything, limit, exchanges: EXCHANGES };
        let tally = traffic.run_until(&gateway, &fleet, |tally| {
            tally.exchanges() >= 1_000
                && tally.aborts().iter().all(|count| *count > 10)
                && gateway.takes_part(&["response", "request"])
        });
        assert!(tally.exchanges() >= 1_000, "too slow to mean anything");
        assert!(tally.aborts().iter().all(|count| *count > 10));
        gateway.expect_carried("request");
        gateway.expect_carried("response");
        gateway.expect_drivers_took_part();
        assert!(engine == Engine::Userspace || gateway.carried(engine, "response") > 1 << 20);
        baseline.expect(&gateway, &fleet);
    }
}
