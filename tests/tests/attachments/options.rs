//! Options and segment sizes of the two connections.

use super::*;

#[test]
fn ecn_where_both_sides_know_it() {
    // Of the client, the gateway, and the instance.
    for (ecn, spliced) in [(["1"; 3], [true; 2]), (["0", "1", "1"], [false, true])] {
        let Some(row) = Row::new() else { return };
        row.set("tcp_ecn", ecn);
        let mut joined = row.place().join();
        if spliced[0] {
            joined.expect_spliced();
            continue;
        }
        for round in 0..20 {
            joined.exchange(round);
            if joined.handovers("request") > 0.0 {
                break;
            }
        }
        assert!(joined.handovers("request") > 0.0, "marks of the client's packets");
        assert_eq!(joined.handovers("response"), 0.0, "the client would not know the marks");
        assert!(joined.fallbacks("options") > 0.0);
    }
}

#[test]
fn accurate_ecn_is_left_to_another_engine() {
    let Some(row) = Row::new() else { return };
    // On one side is enough.
    let known = row.client.run(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "3").is_ok());
    if !known {
        return process::skip_for_kernel("accurate-ecn");
    }
    row.set("tcp_ecn", ["3", "3", "0"]);
    let mut joined = row.place().join();
    joined.exchange(0);
    joined.expect_refused("options");
}

#[test]
fn links_with_larger_packets_than_others() {
    for (client, instance) in [(9000, 1500), (1500, 9000)] {
        let Some(row) = Row::new() else { return };
        let [c, a, b, s] = &row.links;
        row.client.ip(&["link", "set", c, "mtu", &client.to_string()]);
        row.gateway.ip(&["link", "set", a, "mtu", &client.to_string()]);
        row.gateway.ip(&["link", "set", b, "mtu", &instance.to_string()]);
        row.instance.ip(&["link", "set", s, "mtu", &instance.to_string()]);
        row.place().expect_one_way(if client > instance { "response" } else { "request" });
    }
}

#[test]
fn clients_that_take_smaller_segments_than_the_instance_sends() {
    let Some(row) = Row::new() else { return };
    let [c, a, ..] = &row.links;
    row.client.ip(&["link", "set", c, "mtu", "1400"]);
    row.gateway.ip(&["link", "set", a, "mtu", "1400"]);
    let mut joined = row.place().join();
    joined.exchange(0);
    assert_eq!(joined.handovers("response"), 0.0);
    assert!(joined.fallbacks("segments") > 0.0);
}

/// A path to the client that becomes narrower, twice: a router says so to whom it takes for the sender.
#[test]
fn routers_that_take_smaller_packets() {
    for six in [false, true] {
        let Some(row) = Row::new() else { return };
        let Some(client) = Namespace::new() else { return };
        // The host of the row's client is a router here.
        let router = &row.client;
        let (outer, inner) = client.link(router);
        let [near, a, b, s] = &row.links;
        client.ip_batch(&format!(
            "addr add 10.97.0.1/24 dev {outer}\naddr add fd97:0::1/64 dev {outer} nodad\n\
             link set {outer} up\nroute add default via 10.97.0.2\n"
        ));
        router.ip_batch(&format!(
            "addr add 10.97.0.2/24 dev {inner}\naddr add fd97:0::2/64 dev {inner} nodad\n\
             addr add fd97:1::1/64 dev {near} nodad\nlink set {inner} up\n"
        ));
        client.ip(&["-6", "route", "add", "default", "via", "fd97:0::2"]);
        row.gateway.ip_batch(&format!(
            "addr add fd97:1::2/64 dev {a} nodad\naddr add fd97:2::1/64 dev {b} nodad\n\
             route add 10.97.0.0/24 via 10.97.1.1\nroute add fd97::/64 via fd97:1::1\n"
        ));
        row.instance.ip_batch(&format!("addr add fd97:2::2/64 dev {s} nodad\n"));
        router.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        });
        let (listen, serves) =
            if six { ("[fd97:1::2]", "[fd97:2::2]") } else { ("10.97.1.2", "10.97.2.2") };
        let place = Place { client: &client, listen, serves, ..row.place() };
        // Shorter bodies the sockets carry themselves.
        let (gateway, upstream) =
            place.start_with(|setup| setup.set("engine.hand_over_from_bytes", 20_000));
        let mut joined = place.connect(gateway, upstream);
        joined.expect_spliced();
        let narrow = |mtu: &str| router.ip(&["link", "set", &inner, "mtu", mtu]);
        // The gateway's socket learns of it, though its numbers have moved.
        narrow("1400");
        let (client, instance) = (&mut joined.client, &mut joined.instance);
        let short = payload::bytes(1, 15_000);
        client.send(chat("short"));
        instance.request();
        instance.send(response(200, &short));
        payload::assert_same("short", &client.response().payload(), &short);
        // The instance does, in the middle of a stream.
        narrow("1300");
        for round in 0..20 {
            let before = joined.gateway.carried(Engine::Splice, "response");
            let (client, instance) = (&mut joined.client, &mut joined.instance);
            let bulk = payload::bytes(round, 300_000);
            client.send(chat("bulk"));
            instance.request();
            instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
            client.head();
            pass(instance, client, &bulk);
            joined.gateway.expect_idle();
            if joined.gateway.carried(Engine::Splice, "response") > before + 250_000 {
                break;
            }
            assert!(round < 19, "never spliced: {}", refusals(&joined.gateway));
            // Another one, that nobody knows of yet.
            narrow(&(1299 - round).to_string());
        }
    }
}
