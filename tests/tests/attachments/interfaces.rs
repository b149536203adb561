//! Which interfaces the programs are attached to, and which come and go.

use super::*;

#[test]
fn client_and_instance_behind_one_interface() {
    // A switch with three ports, and one network on it.
    let Some([client, gateway, instance]) = three() else { return };
    let Some(switch) = Namespace::new() else { return };
    switch.ip_batch("link add sw type bridge\nlink set sw up\n");
    for (host, address) in [(&client, 1), (&gateway, 2), (&instance, 3)] {
        let (port, link) = switch.link(host);
        switch.ip_batch(&format!("link set {port} master sw\nlink set {port} up\n"));
        host.ip_batch(&format!(
            "addr add 10.97.1.{address}/24 dev {link}\n\
             addr add fd97::{address}/64 dev {link} nodad\nlink set {link} up\n"
        ));
    }
    for (listen, serves) in [("10.97.1.2", "10.97.1.3"), ("[fd97::2]", "[fd97::3]")] {
        Place { listen, serves, ..Place::of([&client, &gateway, &instance]) }.expect_spliced();
    }
}

#[test]
fn containers_behind_a_bridge() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway
        .ip_batch("link add br0 type bridge\naddr add 10.97.1.254/24 dev br0\nlink set br0 up\n");
    for (host, address) in [(&client, 1), (&instance, 3)] {
        let (port, link) = gateway.link(host);
        gateway.ip_batch(&format!("link set {port} master br0\nlink set {port} up\n"));
        // As some tools do: addresses that nobody needs. A packet passes the port and the bridge.
        gateway.ip_batch(&format!("addr add 10.97.7.{address}/32 dev {port}\n"));
        host.ip_batch(&format!("addr add 10.97.1.{address}/24 dev {link}\nlink set {link} up\n"));
    }
    Place {
        listen: "10.97.1.254",
        serves: "10.97.1.3",
        ..Place::of([&client, &gateway, &instance])
    }
    .expect_spliced();
}

#[test]
fn several_interfaces_on_each_side() {
    let Some([first, gateway, second]) = three() else { return };
    first.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    first.join(&gateway, "10.97.2.1/24", "10.97.2.2/24");
    gateway.join(&second, "10.97.3.1/24", "10.97.3.2/24");
    gateway.join(&second, "10.97.4.1/24", "10.97.4.2/24");
    let upstreams = ["10.97.3.2:0", "10.97.4.2:0"]
        .map(|at| second.run(|| Upstream::manual_at(at.parse().unwrap())));
    let started = Setup::new(Engine::Splice)
        .instances(&upstreams)
        .routing("strategy", "random")
        .within(&gateway)
        .set("listen", vec!["10.97.1.2:0", "10.97.2.2:0"])
        .start();
    let mut clients: Vec<Peer> =
        started.addresses().iter().map(|address| first.run(|| Peer::connect(*address))).collect();
    let mut instances: [Vec<Peer>; 2] = Default::default();
    let mut met = [[0; 2]; 2];
    // Until each has met each, at random.
    for round in 0..64 {
        let from = round % 2;
        clients[from].send(chat("x"));
        let (to, which) = tests::eventually_some("a request", || {
            (0..2).find_map(|to| {
                instances[to].extend(upstreams[to].try_accept(Duration::ZERO));
                let has_come = |instance: &mut Peer| {
                    instance.poll();
                    !instance.pending().is_empty()
                };
                Some((to, instances[to].iter_mut().position(has_come)?))
            })
        });
        let instance = &mut instances[to][which];
        instance.request();
        let bulk = payload::bytes(round as u64, 50_000);
        instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
        clients[from].head();
        pass(instance, &mut clients[from], &bulk);
        met[from][to] += 1;
        if met.as_flattened().iter().all(|times| *times > 2) {
            break;
        }
    }
    assert!(met.as_flattened().iter().all(|times| *times > 0), "{met:?}");
    let carried = started.carried(Engine::Splice, "response");
    assert!(carried > 200_000, "only {carried} bytes; {}", refusals(&started));
    started.expect_idle();
}

#[test]
fn on_the_gateways_own_host() {
    let Some([outside, gateway, _]) = three() else { return };
    outside.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    // By an address of its link, which is local all the same.
    for (client, instance, serves) in [
        (&gateway, &gateway, "10.97.1.2"),
        (&gateway, &outside, "10.97.1.1"),
        (&outside, &gateway, "10.97.1.2"),
        (&outside, &gateway, "127.0.0.1"),
    ] {
        let place = Place { serves, ..Place::of([client, &gateway, instance]) };
        // Segments on loopback are longer than a link takes.
        match (std::ptr::eq(client, &gateway), std::ptr::eq(instance, &gateway)) {
            (true, true) => place.expect_spliced(),
            (true, false) => place.expect_one_way("response"),
            _ => place.expect_one_way("request"),
        }
    }
}

#[test]
fn interfaces_without_ethernet_are_left_to_another_engine() {
    let Some([client, gateway, instance]) = three() else { return };
    let _tunnel = Tunnel::between(&client, "10.97.1.1/24", &gateway, "10.97.1.2/24");
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place::of([&client, &gateway, &instance]);
    let mut joined = place.join();
    joined.gateway.expect_line(&["tun7", "no Ethernet header", "not spliced"]);
    joined.exchange(0);
    joined.expect_refused("interface");
}

#[test]
fn an_interface_that_is_shared_is_left_out() {
    // The packets of the upper one pass the lower one as well.
    let Some([client, gateway, instance]) = three() else { return };
    // Only the upper one is to answer for its address.
    gateway.run(|| std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap());
    let (a, c) = gateway.link(&client);
    client.ip_batch(&format!("addr add 10.97.1.1/24 dev {c}\nlink set {c} up\n"));
    gateway.ip_batch(&format!(
        "link set {a} up\nlink add mac7 link {a} type macvlan mode bridge\n\
         addr add 10.97.1.2/24 dev mac7\nlink set mac7 up\n"
    ));
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    Place::of([&client, &gateway, &instance]).expect_spliced();
}

#[test]
fn interfaces_that_come_and_go() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place { listen: "0.0.0.0", ..Place::of([&client, &gateway, &instance]) };
    let (started, upstream) = place.start();
    let objects = || Objects::of(started.pid()).links;
    let before = objects();
    let descriptors = || {
        let mut all = process::descriptors(started.pid());
        all.retain(|one| one.contains("bpf"));
        all
    };
    // After the first round: some that stay come with the first exchange.
    let mut at_first = None;
    let mut instance = None;
    for round in 0..3 {
        let (_, link) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
        started.expect_line(&[&link, "splicing its packets"]);
        assert_eq!(objects().len(), before.len() + 2);
        let mut client =
            client.run(|| Peer::connect(([10, 97, 1, 2], started.address().port()).into()));
        let bulk = payload::bytes(round, 200_000);
        let carried = started.carried(Engine::Splice, "response");
        for _ in 0..20 {
            if started.carried(Engine::Splice, "response") > carried + 50_000 {
                break;
            }
            client.send(chat("x"));
            let instance = instance.get_or_insert_with(|| upstream.accept());
            instance.request();
            instance.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bulk.len()));
            client.head();
            pass(instance, &mut client, &bulk);
        }
        let carried = started.carried(Engine::Splice, "response") - carried;
        assert!(carried > 50_000, "only {carried} bytes; {}", refusals(&started));
        client.close();
        started.expect_idle();
        gateway.ip(&["link", "del", &link]);
        eventually("the links are gone", || objects() == before);
        at_first.get_or_insert_with(descriptors);
    }
    let at_first = at_first.expect("a round");
    let gone = tests::wait::within(tests::DEADLINE, || {
        (descriptors().len() <= at_first.len()).then_some(())
    });
    assert!(gone.is_some(), "{at_first:#?}, and then {:#?}", descriptors());
}

#[test]
fn an_interface_that_comes_late_resets_its_peers_when_the_gateway_is_killed() {
    let Some([client, gateway, instance]) = three() else { return };
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    let place = Place { listen: "0.0.0.0", ..Place::of([&client, &gateway, &instance]) };
    let (started, upstream) = place.start();
    let (_, link) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    started.expect_line(&[&link, "splicing its packets"]);
    let to = ([10, 97, 1, 2], started.address().port()).into();
    let mut peer = client.run(|| Peer::connect(to));
    peer.send(chat("warm"));
    let mut instance = upstream.accept();
    instance.request();
    instance.send(response(200, "w"));
    peer.response();
    let mut joined = Joined { gateway: started, upstream, client: peer, instance };
    joined.expect_spliced();
    // In the middle of a stream.
    joined.begin_stream();
    joined.gateway.kill();
    joined.client.expect_end();
    joined.instance.expect_end();
}

#[test]
fn only_chosen_interfaces_have_the_programs() {
    let Some(row) = Row::new() else { return };
    let [_, near, far, _] = &row.links;
    // Whole names or patterns; and what is excepted has none, whatever else says that it may.
    let last = |name: &str| format!("*{}", &name[1..]);
    for (only, except, spliced) in [
        (vec![near.clone(), last(far)], vec![], true),
        (vec![near.clone()], vec![], false),
        (vec![], vec!["lo".to_owned()], true),
        (vec![], vec![far.clone()], false),
        (vec![near.clone(), far.clone()], vec![last(far)], false),
    ] {
        let place = row.place();
        let set = |setup: Setup| {
            setup
                .set("engine.interfaces", only.clone())
                .set("engine.except_interfaces", except.clone())
        };
        let (gateway, upstream) = place.start_with(set);
        let why = match only.first() {
            Some(first) => format!("`{first}` is in engine.interfaces"),
            None => "it is suitable".to_owned(),
        };
        gateway.expect_line(&["splicing its packets", &format!("interface=\"{near}\""), &why]);
        let mut joined = place.connect(gateway, upstream);
        if spliced {
            joined.expect_spliced();
            continue;
        }
        let why = match except.first() {
            Some(first) => format!("`{first}` is in engine.except_interfaces"),
            None => "it is not in engine.interfaces".to_owned(),
        };
        joined.gateway.expect_line(&["are not spliced", &format!("interface=\"{far}\""), &why]);
        joined.exchange(0);
        assert_eq!(joined.handovers("request") + joined.handovers("response"), 0.0);
        assert!(joined.fallbacks("interface") > 0.0, "{}", refusals(&joined.gateway));
    }
}

#[test]
fn interfaces_that_come_later_are_chosen_likewise() {
    let Some(row) = Row::new() else { return };
    let set = |setup: Setup| setup.set("engine.interfaces", vec!["late*"]);
    let (gateway, _upstream) = row.place().start_with(set);
    gateway.expect_line(&["no interface is called so", "late*"]);
    row.gateway.ip_batch("link add late0 type veth peer name early0\nlink set late0 up\n");
    let reason = "`late*` is in engine.interfaces";
    gateway.expect_line(&["splicing its packets", "interface=\"late0\"", reason]);
    gateway.expect_line(&["are not spliced", "interface=\"early0\"", "not in engine.interfaces"]);
}
