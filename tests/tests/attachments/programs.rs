//! Programs of others on the same interface, and filters where the kernel has no TCX.

use super::*;

/// Has the programs attached as kernels without TCX do.
const FILTERS: (&str, &str) = ("ATALHO_TC_FILTERS", "1");

#[test]
fn filters_where_there_are_no_links() {
    let Some(row) = Row::new() else { return };
    let place = row.place();
    let start = || place.start_with(|setup| setup.environment(FILTERS.0, FILTERS.1));
    let (gateway, upstream) = start();
    assert!(Objects::of(gateway.pid()).links.is_empty());
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    let mut joined = place.connect(gateway, upstream);
    joined.expect_spliced();
    // Killed in the middle of a stream: its filters stay, and do nothing.
    joined.begin_stream();
    let objects = Objects::of(joined.gateway.pid());
    joined.gateway.kill();
    joined.client.expect_end();
    joined.instance.expect_end();
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    eventually("only what the filters need is left", || {
        let alive = objects.alive();
        alive.programs.len() == 2 && alive.maps.len() == 1
    });
    // The next one removes them.
    let (gateway, upstream) = start();
    assert_eq!(filters(&row.gateway, &row.links[1]), 2);
    let mut joined = place.connect(gateway, upstream);
    joined.expect_spliced();
    let Joined { gateway, .. } = joined;
    gateway.stop();
    assert_eq!(filters(&row.gateway, &row.links[1]), 0);
    eventually("no program is left", || objects.alive().programs.is_empty());
}

#[test]
fn other_programs_on_the_same_interface() {
    for filters in [false, true] {
        let Some(row) = Row::new() else { return };
        let both =
            [("sees_arriving", TcAttachType::Ingress), ("sees_leaving", TcAttachType::Egress)];
        let first = Others::attach(&row, &both, filters);
        let place = row.place();
        let (gateway, upstream) =
            place.start_with(
                |setup| {
                    if filters { setup.environment(FILTERS.0, FILTERS.1) } else { setup }
                },
            );
        let last = Others::attach(&row, &both, filters);
        let mut joined = place.connect(gateway, upstream);
        joined.expect_spliced();
        let [all, ..] = first.seen();
        assert!(all > 50, "{all} packets arrived before they were spliced");
        assert!(last.seen()[1] > 50, "what leaves passes them too");
        // What is not ours goes on to the others.
        let echo = || {
            let before = [first.seen(), last.seen()];
            let listener = row.gateway.run(|| std::net::TcpListener::bind("10.97.1.2:0").unwrap());
            let address = listener.local_addr().unwrap();
            let mut there = row.client.run(|| Peer::connect(address));
            let mut here = Peer::new(listener.accept().unwrap().0);
            there.send("there");
            here.expect("there");
            here.send("back");
            there.expect("back");
            let after = [first.seen(), last.seen()];
            for (before, after) in before.as_flattened().iter().zip(after.as_flattened()) {
                assert!(after >= &(before + 2), "{before}, then {after}");
            }
        };
        echo();
        let Joined { gateway, .. } = joined;
        gateway.stop();
        echo();
    }
}

#[test]
fn programs_that_take_all_packets_are_noticed() {
    let Some(row) = Row::new() else { return };
    let _other = Others::attach(&row, &[("ends_here", TcAttachType::Ingress)], false);
    let mut joined = row.place().join();
    joined.exchange(0);
    joined.expect_refused("interface");
}
