//! Next hops and routes that change.

use super::*;

#[test]
fn packets_that_come_by_another_way_than_they_go() {
    let Some(row) = Row::new() else { return };
    let (c, a) = row.client.join(&row.gateway, "10.97.3.1/24", "10.97.3.2/24");
    // An address of the client's host that the gateway reaches by the second link alone, and that
    // sends by the first.
    row.client.ip(&["addr", "add", "10.97.5.1/32", "dev", "lo"]);
    row.gateway.ip(&["route", "add", "10.97.5.1/32", "via", "10.97.3.1"]);
    row.client.ip_batch(
        "route del 10.97.1.0/24\nroute add 10.97.1.0/24 dev LINK src 10.97.5.1\n"
            .replace("LINK", &row.links[0])
            .as_str(),
    );
    let place = row.place();
    let mut joined = place.join();
    assert_eq!(joined.client.local_addr().ip().to_string(), "10.97.5.1");
    joined.expect_spliced();
    drop((c, a));
}

/// A machine is replaced by another one, or a virtual address moves.
#[test]
fn a_neighbour_with_another_address() {
    let Some(row) = Row::new() else { return };
    let place = row.place();
    let mut joined = place.join();
    // The client's host tells when its address changes.
    row.client.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_notify", "1").unwrap());
    let link = Link::open(&row.client, &row.links[0]);
    joined.begin_spliced_stream();
    for round in 0..3u8 {
        // The way is noted.
        for number in 0..20 {
            joined.token(number);
        }
        let before = sent_again(&joined.instance);
        let address = [2, 0, 0, 0, 7, round];
        let text = address.map(|byte| format!("{byte:02x}")).join(":");
        row.client.ip(&["link", "set", &row.links[0], "address", &text]);
        for number in 0..20 {
            joined.token(100 + number);
        }
        let chunk = chunked::chunk(&payload::bytes(119, 150));
        let last = link.take("the last one, where it arrived", |segment| {
            segment.payload() == chunk && segment.to() == address
        });
        assert_eq!(last.payload(), chunk);
        // Half a second is a first time-out, and a second one at the latest.
        let again = sent_again(&joined.instance) - before;
        assert!(again <= 4, "sent again {again} times");
    }
    assert!(!pairs(&joined.gateway).is_empty());
    joined.end_and_go_on();
}

/// A cable breaks, and there is another one to the same host.
#[test]
fn a_way_that_moves_to_another_interface() {
    // The client's, then the instance's.
    for (side, peer, gateway) in [(0, "10.97.1.1", "10.97.1.2"), (3, "10.97.2.2", "10.97.2.1")] {
        let Some(row) = Row::new() else { return };
        let (host, first) = ([&row.client, &row.instance][side / 3], &row.links[side]);
        let (second, other) = host.join(&row.gateway, "10.97.3.1/24", "10.97.3.2/24");
        let mut joined = row.place().join();
        joined.gateway.expect_line(&["splicing", &other]);
        joined.begin_spliced_stream();
        for round in 0..2 {
            for number in 0..20 {
                joined.token(number);
            }
            let before = sent_again(&joined.instance);
            if round == 0 {
                host.ip_batch(&format!(
                    "link set {first} down\nroute add {gateway}/32 via 10.97.3.2 src {peer}\n"
                ));
                row.gateway.ip(&["route", "add", &format!("{peer}/32"), "via", "10.97.3.1"]);
            } else {
                host.ip_batch(&format!(
                    "link set {first} up\nroute del {gateway}/32\nlink set {second} down\n"
                ));
                row.gateway.ip(&["route", "del", &format!("{peer}/32")]);
            }
            for number in 0..20 {
                joined.token(100 + number);
            }
            // It is noticed after four seconds at the latest: some five repetitions, each twice as late.
            let again = sent_again(&joined.instance) - before;
            assert!((1..=8).contains(&again), "sent again {again} times");
        }
        assert!(!pairs(&joined.gateway).is_empty());
        joined.end_and_go_on();
    }
}

#[test]
fn routes_that_only_sockets_find_are_noticed() {
    // The way to the client is in a table for the packets of one port, which those that are passed on
    // are not looked up by.
    let Some(row) = Row::new() else { return };
    let Some(client) = Namespace::new() else { return };
    let router = &row.client;
    client.join(router, "10.97.0.1/24", "10.97.0.2/24");
    client.ip(&["route", "add", "default", "via", "10.97.0.2"]);
    router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let place = Place { client: &client, ..row.place() };
    let (gateway, upstream) = place.start();
    let port = gateway.address().port();
    row.gateway.ip_batch(&format!(
        "rule add ipproto tcp sport {port} lookup 97\n\
         route add 10.97.0.0/24 via 10.97.1.1 table 97\n"
    ));
    let mut joined = place.connect(gateway, upstream);
    for round in 0..20 {
        joined.exchange(round);
        if joined.fallbacks("stalled") > 1.0 {
            joined.gateway.expect_idle();
            return;
        }
    }
    panic!("never noticed: {}", refusals(&joined.gateway));
}
