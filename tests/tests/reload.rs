//! The configuration changes while requests go on.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tests::{
    Engine, Gate, Next, Setup, Upstream, chunked, eventually, for_each_engine,
    gateway::{INSTANCE_HEADER, replace},
    message::{CHUNKED_HEAD, chat, response},
    payload,
};

fn generation_after(gateway: &tests::Gateway, change: impl FnOnce()) {
    let before = gateway.generation();
    change();
    eventually("the change is in effect", || gateway.generation() > before);
}

#[test]
fn sighup_and_every_way_of_changing_a_file_take_effect() {
    let fleet: Vec<Upstream> = (0..5).map(|_| Upstream::ok()).collect();
    let text = |n: usize| Setup::single(Engine::Userspace, &fleet[n]).text();
    let gateway = Setup::single(Engine::Userspace, &fleet[0]).start();
    assert_eq!(gateway.generation(), 1);
    let file = gateway.config_file();
    let serves = |n: usize| {
        let before = fleet[n].count();
        assert_eq!(gateway.ask(chat("x")).status(), 200);
        assert_eq!(fleet[n].count(), before + 1, "instance {n}");
    };
    serves(0);
    // By rename, as editors do.
    generation_after(&gateway, || replace(&file, &text(1)));
    serves(1);
    // In place.
    generation_after(&gateway, || fs::write(&file, text(2)).unwrap());
    serves(2);
    // Through symbolic links, as Kubernetes mounts a ConfigMap: the link's target is replaced.
    let directory = file.parent().unwrap();
    for n in [3, 4] {
        let version = directory.join(format!("..version-{n}"));
        fs::create_dir(&version).unwrap();
        fs::write(version.join("atalho.toml"), text(n)).unwrap();
        let link = directory.join("..data-new");
        std::os::unix::fs::symlink(&version, &link).unwrap();
        generation_after(&gateway, || {
            fs::rename(&link, directory.join("..data")).unwrap();
            if n == 3 {
                let direct = directory.join("new.toml");
                std::os::unix::fs::symlink("..data/atalho.toml", &direct).unwrap();
                fs::rename(&direct, &file).unwrap();
            }
        });
        serves(n);
    }
    // By signal. The file is as it was: an unchanged configuration may or may not count as new.
    gateway.signal(libc::SIGHUP);
    eventually("the signal was seen", || {
        gateway.metric("atalho_config_reloads_total", &[("result", "ok")]) >= 5.0
    });
    serves(4);
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream);
    let gateway = setup.start();
    let file = gateway.config_file();
    let failed = || gateway.metric("atalho_config_reloads_total", &[("result", "failed")]) as u32;
    let good = setup.text();
    let cases: [(&str, String, &[&str]); 6] = [
        ("no TOML", "listen = [".into(), &["atalho.toml"]),
        ("an unknown key", format!("colour = \"red\"\n{good}"), &["colour", "1"]),
        ("a wrong type", good.replace("threads = 1", "threads = \"many\""), &["threads"]),
        (
            "out of range",
            good.replace("name = \"main\"", "name = \"main\"\nprefix_length = 3"),
            &["prefix_length", "1024"],
        ),
        ("a bad URL", good.replace("url = \"http://", "url = \"ftp://"), &["url", "ftp"]),
        ("nothing", String::new(), &["endpoint"]),
    ];
    for (number, (what, text, parts)) in cases.iter().enumerate() {
        assert_ne!(text, &good, "{what}");
        replace(&file, text);
        eventually(&format!("{what} is refused"), || failed() as usize > number);
        eventually(&format!("{what} is explained with {parts:?}"), || {
            let log = gateway.lines().join("\n");
            parts.iter().all(|part| log.contains(part))
        });
        assert_eq!(gateway.generation(), 1, "{what}");
        assert_eq!(gateway.ask(chat("x")).status(), 200, "{what}");
    }
    // No file at all.
    fs::remove_file(&file).unwrap();
    gateway.signal(libc::SIGHUP);
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    // And a good one takes over again.
    gateway.reload(&setup.set("response_headers", false));
    assert!(gateway.ask(chat("x")).get(INSTANCE_HEADER).is_none());
}

#[test]
fn what_cannot_change_at_run_time_is_named() {
    let upstream = Upstream::ok();
    let setup = Setup::single(Engine::Userspace, &upstream);
    let gateway = setup.start();
    replace(&gateway.config_file(), &setup.set("threads", 3).set("limits.headers", 100).text());
    gateway.expect_line(&["threads", "restart"]);
    assert_eq!(gateway.ask(chat("x")).status(), 200);
}

for_each_engine! {
    fn no_request_is_dropped_while_the_fleet_changes(engine) {
        let fleet: Vec<Upstream> = (0..4).map(|number| {
            Upstream::serve(move |peer, head| {
                peer.request_body(head);
                peer.send(CHUNKED_HEAD);
                for piece in payload::bytes(number, 20_000).chunks(3000) {
                    peer.send(chunked::chunk(piece));
                }
                peer.send("0\r\n\r\n");
                Next::Keep
            })
        }).collect();
        let base = Setup::new(engine).set("threads", 2);
        let gateway =
            base.clone().instances(&fleet).routing("strategy", "prefix-aware").start();
        let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|thread| {
                    let (gateway, stop, done) = (&gateway, &stop, &done);
                    scope.spawn(move || {
                        let mut client = gateway.connect();
                        let mut number = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let answer = client.ask(chat(&format!("{thread} {number}")));
                            assert_eq!(answer.status(), 200);
                            assert_eq!(answer.payload().len(), 20_000);
                            number += 1;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let strategies = ["random", "least-outstanding-requests", "prefix-aware"];
            for round in 0..24 {
                let gone = round % 5;
                let some = fleet.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, u)| u);
                let setup = base.clone().instances(some)
                    .routing("strategy", strategies[round % 3])
                    .routing("concurrency_threshold", 1 + round as i64);
                let before = done.load(Ordering::Relaxed);
                gateway.reload(&setup);
                eventually("requests go on", || {
                    done.load(Ordering::Relaxed) > before + 8
                        || clients.iter().any(|client| client.is_finished())
                });
            }
            stop.store(true, Ordering::Relaxed);
        });
        gateway.expect_idle();
        let ok = gateway.outcomes("ok");
        assert!(ok > 0 && gateway.metric("atalho_errors_total", &[]) == 0.0);
        gateway.expect_carried("response");
    }

    fn streams_of_a_removed_instance_end_in_their_own_time(engine) {
        let (old, new) = (Upstream::manual(), Upstream::ok());
        let base = Setup::new(engine);
        let gateway = base.clone().instance(old.address()).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = old.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        gateway.reload(&base.clone().instance(new.address()));
        assert_eq!(gateway.ask(chat("y")).status(), 200);
        assert_eq!(new.count(), 1);
        for number in 0..20 {
            let chunk = chunked::chunk(&payload::bytes(number, 100));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        // Its connection is of no use any more.
        instance.expect_end();
        // The client's is, for the new one.
        assert_eq!(client.ask(chat("z")).status(), 200);
        assert_eq!(new.count(), 2);
        gateway.expect_carried("response");
        gateway.expect_idle();
    }

    fn a_draining_instance_gets_nothing_new(engine) {
        let (a, b) = (Upstream::manual(), Upstream::ok());
        let base = Setup::new(engine).set("timeouts.pool_idle", "60s");
        let both = |drain: bool| {
            base.clone().instance_with(a.address(), &[("drain", drain.into())])
        };
        let gateway = both(false).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = a.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        gateway.reload(&both(true).instance(b.address()));
        let labels = [("instance_url", &*a.url())];
        let gauge = gateway.metrics();
        assert_eq!(gauge.sum("atalho_instance_draining", &[]), 1.0, "{labels:?}");
        for n in 0..20 {
            assert_eq!(gateway.ask(chat(&format!("{n}"))).status(), 200);
        }
        assert_eq!(b.count(), 20);
        // The last answer may be counted a moment longer.
        eventually("its counter is as it was", || gateway.in_flight() == 1);
        instance.send("3\r\nabc\r\n0\r\n\r\n");
        client.expect("3\r\nabc\r\n0\r\n\r\n");
        gateway.expect_idle();
        // And back.
        gateway.reload(&both(false));
        instance.expect_end();
        client.send(chat("again"));
        let mut instance = a.accept();
        instance.request();
        instance.send(response(200, "served"));
        assert_eq!(client.response().payload(), b"served");
    }
}

#[test]
fn counters_survive_a_reload() {
    let gate = Gate::new();
    let (a, b) = (Upstream::held(&gate), Upstream::held(&gate));
    let base = Setup::new(Engine::Userspace).instance(a.address());
    let gateway = base.start();
    let mut clients: Vec<_> = (0..5)
        .map(|_| {
            let mut client = gateway.connect();
            client.send(chat("x"));
            client
        })
        .collect();
    eventually("all are held", || gate.waiting() == 5);
    for round in 0..6 {
        let setup = if round % 2 == 0 { base.clone().instance(b.address()) } else { base.clone() };
        gateway.reload(&setup.set("limits.headers", 100 + round));
        assert_eq!(gateway.in_flight(), 5, "round {round}");
    }
    // Removed with requests in flight, and added again.
    gateway.reload(&Setup::single(Engine::Userspace, &b));
    gateway.reload(&base);
    assert_eq!(gateway.in_flight(), 5, "the same instance, the same counter");
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    gateway.expect_idle();
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    gateway.expect_idle();
}
