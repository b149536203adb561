//! Whether a load balancer should send clients here.

use crate::shared::{Phase, Shared};

/// An error says why not.
pub(crate) fn ready(shared: &Shared) -> Result<(), &'static str> {
    if *shared.phase.borrow() != Phase::Running {
        return Err("draining: open exchanges end, new connections are not accepted");
    }
    let fleet = shared.fleet.load();
    // That requests failed lately makes no instance useless: with all of them ejected, requests are
    // sent all the same.
    if fleet.answering().any(|(_, _, instance)| instance.status().reachable()) {
        Ok(())
    } else {
        Err("no instance can be reached: /status says why")
    }
}
