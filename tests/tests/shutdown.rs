//! How the gateway ends, and what it leaves behind.

use std::{
    net::SocketAddr,
    process::Stdio,
    time::{Duration, Instant},
};

use tests::{
    End, Engine, Peer, Setup, Upstream,
    bpf::Objects,
    chunked, eventually, for_each_engine_and_driver,
    message::{CHUNKED_HEAD, chat, request, response},
    payload, process,
};

for_each_engine_and_driver! {
    fn on_sigterm_open_streams_end_in_their_own_time(engine) {
        let upstream = Upstream::manual();
        let mut gateway = Setup::single(engine, &upstream).set("timeouts.drain", "60s").start();
        let mut idle = gateway.connect();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        gateway.terminate();
        eventually("it says that it is not ready", || {
            gateway.admin_get("/readyz").status() == 503
        });
        assert_eq!(idle.expect_end(), End::Closed, "an idle connection is closed");
        for number in 0..50 {
            let chunk = chunked::chunk(&payload::bytes(number, 100));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        assert!(gateway.running());
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        assert_eq!(client.expect_end(), End::Closed);
        assert!(gateway.wait().success());
    }

    fn at_the_end_of_the_drain_time_streams_are_cut(engine) {
        let upstream = Upstream::manual();
        let mut gateway = Setup::single(engine, &upstream)
            .set("timeouts.drain", "300ms")
            .set("access_log", true)
            .start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        instance.send("3\r\nabc\r\n");
        client.expect("3\r\nabc\r\n");
        gateway.terminate();
        client.expect_end();
        instance.end();
        gateway.wait();
        // Nobody can ask for metrics any more: the log has to tell.
        gateway.expect_line(&["request", "outcome=\"shutdown\"", "status=200"]);
        gateway.expect_line(&["exchanges=1", "cut"]);
    }

    fn after_a_kill_nothing_is_left_in_the_kernel(engine) {
        let upstream = Upstream::manual();
        let mut gateway = Setup::single(engine, &upstream).start();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        instance.send("3\r\nabc\r\n");
        client.expect("3\r\nabc\r\n");
        let objects = Objects::of(gateway.pid());
        // The kill switch is one: nothing of ours is in the kernel then.
        assert_eq!(objects.is_empty(), engine == Engine::Userspace, "{objects:?}");
        gateway.kill();
        client.end();
        instance.end();
        // The kernel frees them a moment later.
        eventually("its programs, maps and links are gone", || objects.alive().is_empty());
    }

    fn entries_of_maps_go_with_their_connections(engine) {
        let upstream = Upstream::manual();
        let gateway = Setup::single(engine, &upstream).start();
        let objects = Objects::of(gateway.pid());
        let before = objects.entries();
        let mut client = gateway.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..5 {
            let chunk = chunked::chunk(&payload::bytes(number, 100));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        let during = objects.entries();
        assert_eq!(during == before, engine == Engine::Userspace, "{before:?}, then {during:?}");
        client.close();
        instance.end();
        gateway.expect_idle();
        eventually("the entries are gone", || objects.entries() == before);
    }

    fn after_a_stop_nothing_is_left_in_the_kernel(engine) {
        let upstream = Upstream::ok();
        let gateway = Setup::single(engine, &upstream).start();
        assert_eq!(gateway.ask(chat("x")).status(), 200);
        let objects = Objects::of(gateway.pid());
        gateway.stop();
        eventually("its programs, maps and links are gone", || objects.alive().is_empty());
    }
}

#[test]
fn interrupt_ends_it_too() {
    let upstream = Upstream::ok();
    let mut gateway = Setup::single(Engine::Userspace, &upstream).start();
    gateway.ask(chat("x"));
    let start = Instant::now();
    gateway.signal(libc::SIGINT);
    assert!(gateway.wait().success());
    assert!(start.elapsed() < Duration::from_secs(5), "nothing was open");
}

#[test]
fn a_second_signal_does_not_wait() {
    let upstream = Upstream::manual();
    let mut gateway = Setup::single(Engine::Userspace, &upstream).start();
    let mut client = gateway.connect();
    client.send(chat("x"));
    let mut instance = upstream.accept();
    instance.request();
    gateway.terminate();
    eventually("it drains", || gateway.admin_get("/readyz").status() == 503);
    assert!(gateway.running());
    gateway.terminate();
    gateway.wait();
    instance.end();
}

#[test]
fn requests_on_open_connections_are_answered_while_draining() {
    // What was sent before the client could know is not lost.
    let upstream = Upstream::manual();
    let mut gateway = Setup::single(Engine::Userspace, &upstream).start();
    let mut client = gateway.connect();
    client.send(chat("one"));
    let mut instance = upstream.accept();
    instance.request();
    gateway.terminate();
    eventually("it drains", || gateway.admin_get("/readyz").status() == 503);
    instance.send(response(200, "1"));
    let answer = client.response();
    assert_eq!(answer.payload(), b"1");
    assert!(answer.closes(), "the client learns that the connection ends");
    assert_eq!(client.expect_end(), End::Closed);
    assert!(gateway.wait().success());
}

/// Starts a gateway where it cannot listen; what it says.
fn refused_at(address: &str) -> String {
    let mut child = tests::gateway::atalho(None)
        .args(["serve", "--listen", address, "--backend", "http://127.0.0.1:1"])
        .args(["--admin", "127.0.0.1:0", "--engine", "userspace"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = tests::wait::within(tests::DEADLINE, || child.try_wait().unwrap());
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended.is_some_and(|status| !status.success()), "it shares {address}: {text}");
    text
}

/// A port of another program's is never shared in silence, whatever the program allows.
#[test]
fn an_address_in_use_is_explained() {
    for (reuse_port, reuse_address) in [(false, false), (true, false), (false, true), (true, true)]
    {
        for host in ["127.0.0.1", "0.0.0.0"] {
            let taken = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let taken = taken.unwrap();
            taken.set_reuse_port(reuse_port).unwrap();
            taken.set_reuse_address(reuse_address).unwrap();
            taken.bind(&format!("{host}:0").parse::<SocketAddr>().unwrap().into()).unwrap();
            taken.listen(8).unwrap();
            let port = taken.local_addr().unwrap().as_socket().unwrap().port();
            let address = format!("127.0.0.1:{port}");
            let text = refused_at(&address);
            assert!(text.contains(&address) && text.contains("another program"), "{text}");
        }
    }
    // Another gateway's listeners allow sharing to those of its own threads.
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    let text = refused_at(&gateway.address().to_string());
    assert!(text.contains("another program"), "{text}");
    assert_eq!(gateway.ask(chat("x")).status(), 200);
}

#[test]
fn running_out_of_descriptors_is_survived() {
    let upstream = Upstream::ok();
    let gateway = Setup::single(Engine::Userspace, &upstream).start();
    assert_eq!(gateway.ask(chat("x")).status(), 200);
    let used = process::descriptors(gateway.pid()).len() as u64;
    let limit = libc::rlimit { rlim_cur: used + 20, rlim_max: used + 20 };
    // SAFETY: both pointers are valid or null, and the process is ours.
    let rc = unsafe {
        libc::prlimit(
            gateway.pid() as libc::pid_t,
            libc::RLIMIT_NOFILE,
            &limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(rc, 0);
    let mut crowd: Vec<Peer> = (0..60).map(|_| gateway.connect()).collect();
    for client in &mut crowd {
        let _ = client.try_send(&request("GET", "/", ""));
    }
    eventually("it has none left", || {
        process::descriptors(gateway.pid()).len() as u64 >= used + 18
    });
    drop(crowd);
    eventually("it serves again", || {
        let mut client = gateway.connect();
        client.set_patience(Duration::from_secs(5));
        let _ = client.try_send(&chat("x"));
        client.try_head().is_ok_and(|head| head.status() == 200)
    });
}
