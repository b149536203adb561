//! Thousands of random exchanges through each engine: what one side sent is what the other side
//! got, and at the end nothing is left.
//!
//! Everything follows from a seed, which is printed; `ATALHO_SEED` sets it, `ATALHO_SECONDS` how
//! long each engine is tried. A connection that failed is repeated over and over with
//! `ATALHO_CONNECTION`.

mod plan;

use std::{
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use plan::{Abort, Connection, Exchange, Framing, How};
use tests::{
    DEADLINE, End, Engine, Gateway, Head, Next, Peer, Setup, Upstream, eventually, for_each_engine,
    payload, peer::Pace, process, wait::within,
};

const CLIENTS: usize = 8;
/// Enough to meet every combination, and then stop.
const EXCHANGES: usize = 15_000;

/// A connection that takes longer is worth a look: nothing in it waits for long.
const SLOW: Duration = Duration::from_secs(8);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Whose exchange or connection it was, for whoever has to find out.
struct OnPanic<'a>(&'a Exchange);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in this exchange: {}", self.0.describe());
        }
    }
}

struct Named<'a>(u64, &'a Connection);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in ATALHO_CONNECTION={}, {:?}:", self.0, self.1);
            for seed in &self.1.exchanges {
                eprintln!("    {}", Exchange::from_seed(*seed).describe());
            }
        }
    }
}

// === the instance ===

fn instance(peer: &mut Peer, head: &Head) -> Next {
    let Some(seed) = head.get("x-plan").and_then(|seed| seed.parse().ok()) else {
        return match peer.try_send(&tests::message::response(200, "ok")) {
            Ok(()) => Next::Keep,
            Err(_) => Next::Close,
        };
    };
    let plan = Exchange::from_seed(seed);
    let _named = OnPanic(&plan);
    let leave = |how: How| if how == How::Reset { Next::Reset } else { Next::Close };
    let client_leaves = matches!(plan.abort, Abort::ClientSending(..) | Abort::ClientReceiving(..));
    assert_eq!((head.method(), head.target()), (plan.method, plan.target));
    peer.set_pace(plan.instance_pace);
    if let Abort::InstanceReceiving(at, how) = plan.abort {
        while peer.pending().len() < at && peer.fill().is_ok() {}
        return leave(how);
    }
    let body = match peer.try_request_body(head) {
        Ok(body) => body,
        Err(_) => {
            assert!(client_leaves, "the request was cut short");
            assert!(plan.request.raw.starts_with(peer.pending()), "not what the client sent");
            return Next::Close;
        }
    };
    payload::assert_same("request body", &body, &plan.request.raw);
    assert!(peer.pending().is_empty(), "more came behind the request");
    peer.set_pace(Pace::FAST);
    let mut reply = plan.response_bytes();
    let mut end = None;
    if let Abort::InstanceSending(at, how) = plan.abort {
        reply.truncate(at);
        end = Some(leave(how));
    }
    for piece in plan.instance_cuts.cut(&reply) {
        if peer.try_send(piece).is_err() {
            assert!(client_leaves, "the gateway broke off");
            return Next::Close;
        }
    }
    match end {
        Some(next) => next,
        None if plan.instance_closes => Next::Close,
        None => Next::Keep,
    }
}

// === the client ===

/// What a client does after an exchange.
#[derive(PartialEq)]
enum Then {
    Next,
    Leave,
}

fn leave(client: &mut Option<Peer>, how: How) {
    let Some(mut client) = client.take() else { return };
    match how {
        How::Close => client.close(),
        How::Reset => client.reset(),
        How::Finish => {
            client.finish();
            // The gateway closes as well, at once.
            client.end();
        }
    }
}

/// Sends a request, or what the plan says of it.
fn send(client: &mut Option<Peer>, plan: &Exchange) -> Then {
    let bytes = plan.request_bytes();
    let stream = client.as_mut().expect("an open connection");
    let (bytes, aborted) = match plan.abort {
        Abort::ClientSending(at, how) => (&bytes[..at], Some(how)),
        _ => (&bytes[..], None),
    };
    for piece in plan.client_cuts.cut(bytes) {
        if stream.try_send(piece).is_err() {
            assert!(
                matches!(plan.abort, Abort::InstanceReceiving(..)) || aborted.is_some(),
                "the gateway broke off"
            );
            break;
        }
    }
    match aborted {
        Some(how) => {
            leave(client, how);
            Then::Leave
        }
        None => Then::Next,
    }
}

/// Takes a response, and judges it.
fn receive(client: &mut Option<Peer>, plan: &Exchange) -> Then {
    let stream = client.as_mut().expect("an open connection");
    stream.set_pace(plan.client_pace);
    let instance_leaves =
        matches!(plan.abort, Abort::InstanceReceiving(..) | Abort::InstanceSending(..));
    let mut interim = 0;
    let head = loop {
        match stream.try_head() {
            Ok(head) if head.status() == 100 && plan.expects_continue => {}
            Ok(head) if head.status() < 200 => interim += 1,
            Ok(head) => break head,
            Err(end) => {
                assert!(instance_leaves, "{end:?} instead of a response");
                return Then::Leave;
            }
        }
    };
    if head.get("x-plan").is_none() {
        // The gateway's own answer, for an instance that left before its own.
        assert!(instance_leaves, "an unexpected answer: {head:?}");
        if let Abort::InstanceSending(at, _) = plan.abort {
            assert!(at < plan.body_at(), "the instance had answered");
        }
        assert!(matches!(head.status(), 502 | 503), "{}", head.first);
        let body = stream.try_response_body(&head, plan.method);
        return if head.closes() || body.is_err() { Then::Leave } else { Then::Next };
    }
    assert_eq!(head.status(), plan.status);
    assert_eq!(head.get("x-plan"), Some(&*plan.seed.to_string()), "someone else's answer");
    assert_eq!(interim, plan.interim, "interim responses");
    assert_eq!(head.closes(), plan.closes() && !plan.old || head.closes() && plan.old);
    if let Abort::ClientReceiving(at, how) = plan.abort {
        while stream.pending().len() < at.min(plan.expected().len()) && stream.fill().is_ok() {}
        assert!(plan.expected().starts_with(stream.pending()), "not what the instance sent");
        leave(client, how);
        return Then::Leave;
    }
    let until_close = plan.response.framing == Framing::UntilClose;
    if let Abort::InstanceSending(at, how) = plan.abort {
        let expected = plan.expected();
        match stream.try_response_body(&head, plan.method) {
            // Nothing else can mark the end of such a body, so this is a whole one.
            Ok(body) if until_close && how == How::Close => {
                payload::assert_same("body", &body, &expected[..at - plan.body_at()]);
            }
            // (`try_response_body` takes a FIN for the end only where nothing else marks it.)
            Ok(_) => panic!("a response that was cut off ended cleanly"),
            // Where the framing tells, a FIN is no clean end either.
            Err(_) => {
                assert!(expected.starts_with(stream.pending()), "not what the instance sent");
            }
        }
        return Then::Leave;
    }
    match stream.try_response_body(&head, plan.method) {
        Ok(body) => payload::assert_same("response body", &body, plan.expected()),
        Err(end) => panic!("{end:?} within the response, after {}", stream.pending().len()),
    }
    if plan.closes() {
        assert_eq!(stream.expect_end(), End::Closed);
        return Then::Leave;
    }
    Then::Next
}

fn connection(gateway: &Gateway, seed: u64, done: &Tally) {
    let plan = Connection::from_seed(seed);
    let _named = Named(seed, &plan);
    let client = match plan.narrow {
        Some(size) => Peer::connect_narrow(gateway.address(), size),
        None => gateway.connect(),
    };
    if plan.pipelined {
        return pipelined(client, &plan, done);
    }
    let mut client = Some(client);
    for &seed in &plan.exchanges {
        let exchange = Exchange::from_seed(seed);
        let _named = OnPanic(&exchange);
        done.count(&exchange);
        if send(&mut client, &exchange) == Then::Leave
            || receive(&mut client, &exchange) == Then::Leave
        {
            return;
        }
    }
}

/// Requests go out one behind the other; a reader takes the responses.
fn pipelined(client: Peer, plan: &Connection, done: &Tally) {
    let mut exchanges: Vec<Exchange> = plan
        .exchanges
        .iter()
        .map(|seed| Exchange::from_seed(*seed))
        // When someone leaves, answers that the client has not read yet may be lost with the
        // connection: that is for connections with one request at a time.
        .filter(|exchange| matches!(exchange.abort, Abort::Nobody))
        .collect();
    // For the same reason nothing may be sent behind a request that ends the connection.
    if let Some(last) = exchanges.iter().position(Exchange::closes) {
        exchanges.truncate(last + 1);
    }
    let mut writer = Peer::new(client.stream().try_clone().expect("a descriptor"));
    let mut client = Some(client);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for exchange in &exchanges {
                for piece in exchange.client_cuts.cut(&exchange.request_bytes()) {
                    // The reader sees why.
                    if writer.try_send(piece).is_err() {
                        return;
                    }
                }
            }
        });
        for exchange in &exchanges {
            let _named = OnPanic(exchange);
            done.count(exchange);
            if receive(&mut client, exchange) == Then::Leave {
                break;
            }
        }
    });
}

// === the test ===

#[derive(Default)]
struct Tally {
    exchanges: AtomicUsize,
    bytes: AtomicUsize,
    chunked: AtomicUsize,
    aborts: [AtomicUsize; 4],
}

impl Tally {
    fn count(&self, exchange: &Exchange) {
        let add = |counter: &AtomicUsize, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&self.exchanges, 1);
        add(&self.bytes, exchange.request.raw.len() + exchange.response.raw.len());
        if exchange.response.framing == Framing::Chunked {
            add(&self.chunked, 1);
        }
        let index = match exchange.abort {
            Abort::Nobody => return,
            Abort::ClientSending(..) => 0,
            Abort::ClientReceiving(..) => 1,
            Abort::InstanceReceiving(..) => 2,
            Abort::InstanceSending(..) => 3,
        };
        add(&self.aborts[index], 1);
    }
}

for_each_engine! {
    fn what_one_side_sent_is_what_the_other_got(engine) {
        let seed = setting("ATALHO_SEED", fastrand::u64(..));
        let limit = Duration::from_secs(setting("ATALHO_SECONDS", 60));
        println!("{engine:?}: ATALHO_SEED={seed}");
        let fleet = [Upstream::serve(instance), Upstream::serve(instance)];
        let gateway = Setup::new(engine)
            .instances(&fleet)
            .set("threads", 2)
            .set("timeouts.pool_idle", "500ms")
            .set("log.level", "info")
            .start();
        gateway.ask(tests::message::request("GET", "/warm", ""));
        eventually("the warm connections are closed", || {
            gateway.metric("atalho_pool_idle_connections", &[]) == 0.0
                && gateway.metric("atalho_client_connections_open", &[]) == 0.0
        });
        let descriptors = || process::descriptors(gateway.pid()).len();
        let baseline = descriptors();

        let (tally, stop) = (Tally::default(), AtomicBool::new(false));
        let failed = Mutex::new(None);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (gateway, tally, stop, failed) = (&gateway, &tally, &stop, &failed);
                let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed)
                        && start.elapsed() < limit
                        && tally.exchanges.load(Ordering::Relaxed) < EXCHANGES
                    {
                        let seed = setting("ATALHO_CONNECTION", rng.u64(..));
                        let run = || connection(gateway, seed, tally);
                        let began = Instant::now();
                        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                            stop.store(true, Ordering::Relaxed);
                            failed.lock().unwrap().get_or_insert(seed);
                        }
                        if began.elapsed() > SLOW {
                            println!("ATALHO_CONNECTION={seed} took {:?}", began.elapsed());
                        }
                    }
                });
            }
        });
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        println!(
            "{engine:?}: {} exchanges, {} MiB, {} chunked, {:?} aborts (client sending, client \
             receiving, instance receiving, instance sending) in {:?}",
            count(&tally.exchanges),
            count(&tally.bytes) >> 20,
            count(&tally.chunked),
            tally.aborts.each_ref().map(count),
            start.elapsed()
        );
        let failures: Vec<String> = fleet.iter().flat_map(Upstream::failures).collect();
        let failed = failed.into_inner().unwrap();
        assert!(
            failed.is_none() && failures.is_empty(),
            "ATALHO_SEED={seed}: a client failed in connection {failed:?}; instances: {failures:#?}"
        );
        assert!(count(&tally.exchanges) >= 1_000, "too slow to mean anything");
        assert!(tally.aborts.iter().all(|counter| count(counter) > 10));

        gateway.expect_idle();
        gateway.expect_carried("request");
        gateway.expect_carried("response");
        assert!(engine == Engine::Userspace || gateway.carried(engine, "response") > 1 << 20);
        let closed = within(DEADLINE, || {
            (fleet.iter().map(Upstream::open).sum::<usize>() == 0).then_some(())
        });
        if closed.is_none() {
            let sockets = Command::new("ss").args(["-tnpoi"]).output().map(|out| out.stdout);
            let page = gateway.admin_get("/metrics").payload();
            panic!(
                "the instances still have connections: {:?} \n{}\n{:#}\n{}",
                fleet.each_ref().map(Upstream::peers),
                String::from_utf8_lossy(&page),
                gateway.status(),
                String::from_utf8_lossy(&sockets.unwrap_or_default())
            );
        }
        // Including that of the connection which asks for the metrics, at either moment.
        eventually("no descriptor is left", || descriptors() <= baseline);
        let metrics = gateway.metrics();
        let chosen = metrics.sum("atalho_requests_total", &[]);
        // A stale connection is replaced at the same instance, without another choice.
        let retried = metrics.sum("atalho_retries_total", &[("reason", "connect")]);
        let ended = metrics.sum("atalho_exchanges_total", &[]);
        assert_eq!(chosen, ended + retried, "every assigned request has ended, once");
    }
}
