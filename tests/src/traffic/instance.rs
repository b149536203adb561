//! The instance's side of an exchange.

use super::{
    OnPanic,
    plan::{Abort, Exchange, How, Plan},
};
use crate::{Head, Next, Peer, payload, peer::Pace};

/// Does what the plan says that a request's head names.
pub(super) fn instance(peer: &mut Peer, head: &Head) -> Next {
    let Some(plan) = head.get("x-plan").and_then(Plan::parse) else {
        return match peer.try_send(&crate::message::response(200, "ok")) {
            Ok(()) => Next::Keep,
            Err(_) => Next::Close,
        };
    };
    let plan = Exchange::new(plan);
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
        Some(next) => {
            // A reset takes back what has not left: an answer that nobody was sent is none.
            peer.let_go(reply.len().saturating_sub(plan.body_at()));
            next
        }
        None if plan.instance_closes => Next::Close,
        None => Next::Keep,
    }
}
