//! The client's side of an exchange.

use super::{
    Named, OnPanic, Tally,
    plan::{Abort, Connection, Exchange, Framing, How, Kind, Plan},
};
use crate::{End, Gateway, Peer, payload};

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
    assert_eq!(head.get("x-plan"), Some(&*plan.plan.to_string()), "someone else's answer");
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

/// Opens a connection and does on it what the plan says.
pub(super) fn connection(gateway: &Gateway, kind: Kind, seed: u64, done: &Tally) {
    let plan = Connection::new(Plan { kind, seed });
    let _named = Named(&plan);
    let client = match plan.narrow {
        Some(size) => Peer::connect_narrow(gateway.address(), size),
        None => gateway.connect(),
    };
    if plan.pipelined {
        return pipelined(client, &plan, done);
    }
    let mut client = Some(client);
    for &number in &plan.exchanges {
        let exchange = Exchange::new(number);
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
        .map(|number| Exchange::new(*number))
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
