//! One request and its response, top to bottom.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;

use super::{
    connection::head_limits,
    decide::{self, Plan},
    local,
    record::Record,
    relay::{Failed, Relay, Sending},
    worker::Worker,
};
use crate::{
    config::Config,
    engine::Copier,
    fleet::{FailureKind, Fleet, Instance, InstanceId},
    http::{
        self, Failure, Reject, RequestHead, ResponseHead, Version,
        rewrite::{Downstream, Upstream},
    },
    metrics::{Direction, Outcome},
    net::{Conn, socket},
    prefix::{self, Api},
    routing::{self, Choice, NoInstance, Ticket},
};

/// Instances tried at most for one request, the first included.
const MAX_TRIES: usize = 3;

/// What happens to the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It reads its next request.
    KeepAlive,
    /// It is closed, after the client has had time to read the answer.
    Close,
    /// It is closed at once: the client left, or must see that its answer is incomplete.
    Drop,
    /// It is reset: a mere close would look like a complete answer.
    Reset,
}

/// Why an exchange ends without a response from an instance.
#[derive(Debug)]
pub(super) enum Stop {
    /// The gateway answers.
    Reply(Failure),
    /// Nobody is there to be answered.
    ClientGone,
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reply(reject.into())
    }
}

/// Serves the request whose head stands at the front of the client's input.
pub(super) async fn run(
    worker: &Worker,
    client: &mut Conn,
    peer: IpAddr,
    head: RequestHead,
) -> Next {
    let fleet = worker.fleet();
    let raw = client.input.split_to(head.len).freeze();
    let body_read = head.framing.is_done();
    let path = head.path(&raw).to_vec();
    let target = prefix::target(head.method, std::str::from_utf8(&path).unwrap_or_default());
    let mut record = Record::new(&head, target.api);
    let mut exchange =
        Exchange { worker, fleet: &fleet, client, peer, head, raw, api: target.api, body_read };
    let next = match exchange.serve(&target, &mut record).await {
        Ok(next) => next,
        Err(Stop::ClientGone) => {
            record.outcome = Some(Outcome::ClientGone);
            Next::Drop
        }
        Err(Stop::Reply(failure)) => exchange.reply(&failure, &mut record).await,
    };
    record.finish(fleet.config());
    next
}

struct Exchange<'a> {
    worker: &'a Worker,
    fleet: &'a Fleet,
    client: &'a mut Conn,
    peer: IpAddr,
    head: RequestHead,
    raw: Bytes,
    api: Api,
    /// Whether the whole body has been read.
    body_read: bool,
}

/// An instance's answer has begun.
struct Answer<'a> {
    relay: Relay<'a>,
    response: ResponseHead,
    head: Bytes,
    choice: Choice,
    /// Bytes of the request's body that were read for the decision.
    read_ahead: u64,
}

impl<'a> Exchange<'a> {
    async fn serve(
        &mut self,
        target: &prefix::Target<'_>,
        record: &mut Record<'a>,
    ) -> Result<Next, Stop> {
        let fleet = self.fleet;
        let which = {
            let mut rng = self.worker.rng.borrow_mut();
            decide::fleet_for(fleet, target, &self.head, &self.raw, &mut rng)
                .map_err(Stop::Reply)?
        };
        record.endpoint = Some(which.0);
        record.variant = Some(which.1);
        if target.api == Api::Models {
            let credentials = self.head.header(&self.raw, "authorization");
            let body = local::models(which.0, credentials).await;
            return Ok(self.answer_locally(&body, record).await);
        }
        let config = self.fleet.config();
        let plan =
            decide::decide(config, self.client, &self.head, &self.raw, target, which).await?;
        self.body_read = plan.framing.is_done();
        self.forward(plan, record).await
    }

    /// Chooses instances until one answers, and relays its answer.
    async fn forward(&mut self, mut plan: Plan<'a>, record: &mut Record<'a>) -> Result<Next, Stop> {
        let mut tried: Vec<InstanceId> = Vec::new();
        loop {
            let began = Instant::now();
            let choice =
                routing::choose(&plan.variant, plan.key, &tried, &mut self.worker.rng.borrow_mut());
            let choice = match choice {
                Ok(choice) => choice,
                // Of the instances that were tried, the last one's failure tells most.
                Err(none) => {
                    return Err(Stop::Reply(match record.last_failure.take() {
                        Some((failure, outcome)) => {
                            record.outcome = Some(outcome);
                            failure
                        }
                        None => no_instance(none),
                    }));
                }
            };
            if tried.is_empty() {
                record.added = plan.spent + began.elapsed();
                plan.endpoint.metrics.decision(record.added);
            }
            record.chosen(&choice);
            let instance = choice.ticket.instance().clone();
            match self.try_instance(&mut plan, choice, record).await {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Stop(stop)) => return Err(stop),
                Err(Attempt::Unreachable(failure, outcome)) => {
                    instance.note_failure(FailureKind::Connect);
                    tried.push(instance.id);
                    let replayable = tried.len() < MAX_TRIES;
                    if !replayable {
                        record.outcome = Some(outcome);
                        return Err(Stop::Reply(failure));
                    }
                    record.last_failure = Some((failure, outcome));
                    instance.metrics.pool.retried_connect.inc();
                }
            }
        }
    }

    /// Sends the request to one instance, and relays its answer.
    async fn try_instance(
        &mut self,
        plan: &mut Plan<'a>,
        choice: Choice,
        record: &mut Record<'a>,
    ) -> Result<Next, Attempt> {
        let config = self.fleet.config();
        let instance = choice.ticket.instance().clone();
        let mut head_out = Vec::with_capacity(self.raw.len() + 256);
        http::rewrite::request(
            &mut head_out,
            &self.raw,
            &self.head,
            &Upstream {
                authority: &instance.authority,
                target: plan.target.as_deref(),
                client: self.peer,
            },
        );
        let head_out = Bytes::from(head_out);
        let mut choice = Some(choice);
        let mut fresh = false;
        loop {
            let (upstream, pooled) = self.connect(&instance, fresh).await?;
            let mut copier = Copier::new(plan.framing, false);
            copier.push(head_out.clone());
            copier.push(plan.body.clone());
            let sent = Instant::now();
            let mut relay =
                Relay::new(self.worker, config, self.client, upstream, Sending::new(copier));
            match final_head(&mut relay, &self.head, &head_limits(config)).await {
                Ok((response, head)) => {
                    instance.metrics.responded(response.status, sent.elapsed());
                    record.responded(&response);
                    note_status(&instance, response.status);
                    let choice = choice.take().expect("an instance answers once");
                    // Nothing is sent again from here on. A stream may go on for minutes, and must
                    // not keep its prompt in memory.
                    self.raw = Bytes::new();
                    let read_ahead = std::mem::take(&mut plan.body).len() as u64;
                    let answer = Answer { relay, response, head, choice, read_ahead };
                    return Ok(finish(
                        self.worker,
                        config,
                        &self.head,
                        self.api,
                        plan,
                        answer,
                        record,
                    )
                    .await);
                }
                Err(Failed::Upstream(error))
                    if pooled
                        && relay.upstream.input.is_empty()
                        && relay.sending.copier.bytes() + relay.steered_request == 0 =>
                {
                    // The instance closed a connection that had been at rest; nothing of this
                    // request can have been answered, and all of it is still here.
                    tracing::debug!(instance = %instance.url, %error, "a pooled connection was stale");
                    instance.metrics.pool.retried_stale.inc();
                    fresh = true;
                }
                Err(failed) => {
                    return Err(Attempt::Stop(before_response(&instance, failed, config, record)));
                }
            }
        }
    }

    /// A connection to the instance, and whether it comes from the pool.
    async fn connect(&self, instance: &Instance, fresh: bool) -> Result<(Conn, bool), Attempt> {
        let config = self.fleet.config();
        if !fresh
            && let Some(conn) =
                self.worker.pool.borrow_mut().take(instance.id, config.timeouts.pool_idle)
        {
            return Ok((conn, true));
        }
        let addresses = instance.addresses();
        match socket::connect(&addresses, config.timeouts.connect).await {
            Ok(stream) => {
                instance.metrics.pool.opened.inc();
                Ok((Conn::new(stream), false))
            }
            Err(error) => {
                let timed_out = error.kind() == std::io::ErrorKind::TimedOut;
                let failure = Failure {
                    status: if timed_out { 504 } else { 502 },
                    reason: if timed_out { "connect_timeout" } else { "connect_failed" },
                    message: "The inference server chosen for this request could not be reached. \
                              The gateway's log names it."
                        .into(),
                    retry_after: None,
                };
                tracing::warn!(instance = %instance.url, %error, "cannot connect");
                let outcome =
                    if timed_out { Outcome::TimeoutConnect } else { Outcome::ConnectError };
                Err(Attempt::Unreachable(failure, outcome))
            }
        }
    }

    /// Sends an answer that the gateway makes itself.
    async fn answer_locally(&mut self, body: &[u8], record: &mut Record<'a>) -> Next {
        let keep_alive = self.keeps_open();
        let mut out = Vec::with_capacity(body.len() + 256);
        let head_only = self.head.method == http::Method::Head;
        http::reply::json(&mut out, 200, body, head_only, keep_alive);
        record.status = 200;
        self.write(&out, keep_alive).await
    }

    /// Sends an error that the gateway makes itself.
    async fn reply(&mut self, failure: &Failure, record: &mut Record<'a>) -> Next {
        let keep_alive = self.keeps_open();
        let mut out = Vec::with_capacity(512);
        let head_only = self.head.method == http::Method::Head;
        http::reply::failure(&mut out, self.api.error_form(), failure, head_only, keep_alive);
        record.replied(self.worker, failure);
        self.write(&out, keep_alive).await
    }

    /// Whether the connection can carry another request after an answer of the gateway's own: not
    /// when the rest of this request's body is still to come.
    fn keeps_open(&self) -> bool {
        self.head.keep_alive && self.body_read && !self.worker.is_draining()
    }

    async fn write(&mut self, out: &[u8], keep_alive: bool) -> Next {
        let limit = self.fleet.config().timeouts.body_idle;
        match tokio::time::timeout(limit, self.client.stream.write_all(out)).await {
            Ok(Ok(())) if keep_alive => Next::KeepAlive,
            Ok(Ok(())) => Next::Close,
            Ok(Err(_)) | Err(_) => Next::Drop,
        }
    }
}

/// Why an attempt at one instance came to nothing.
enum Attempt {
    /// Nothing was sent: another instance may be tried.
    Unreachable(Failure, Outcome),
    /// The exchange is over.
    Stop(Stop),
}

/// Waits for the final response, passing interim ones on.
async fn final_head(
    relay: &mut Relay<'_>,
    request: &RequestHead,
    limits: &http::Limits,
) -> Result<(ResponseHead, Bytes), Failed> {
    loop {
        let response = relay.response_head(request.method, limits).await?;
        let head = relay.take_head(&response);
        if !response.is_interim() {
            return Ok((response, head));
        }
        // The gateway has answered `Expect` itself; HTTP/1.0 knows no interim responses.
        if response.status != 100 && request.version == Version::Http11 {
            let mut out = Vec::with_capacity(head.len() + 64);
            let down = Downstream {
                version: request.version,
                keep_alive: true,
                dechunk: false,
                extra: &[],
            };
            http::rewrite::response(&mut out, &head, &response, &down);
            relay.write_client(&out).await?;
        }
    }
}

/// Relays an instance's answer to its end, and says what becomes of both connections.
async fn finish(
    worker: &Worker,
    config: &Config,
    request: &RequestHead,
    api: Api,
    plan: &Plan<'_>,
    answer: Answer<'_>,
    record: &mut Record<'_>,
) -> Next {
    let Answer { mut relay, response, head, choice, read_ahead } = answer;
    let arrived = Instant::now();
    let chunked = !response.framing.is_length()
        && !response.framing.is_until_close()
        && !response.framing.is_done();
    let dechunk = chunked && request.version == Version::Http10;
    let delimited = !response.framing.is_until_close() && !dechunk;
    let keep_alive =
        request.keep_alive && delimited && relay.sending.is_complete() && !worker.is_draining();
    let instance = choice.ticket.instance().clone();
    let mut extra: [(&str, &[u8]); 3] = [("", &[]); 3];
    let mut count = 0;
    if config.response_headers {
        extra[0] = ("x-atalho-instance", instance.authority.as_bytes());
        extra[1] = ("x-atalho-reason", choice.reason.as_str().as_bytes());
        count = 2;
    }
    if api == Api::Invocations {
        extra[count] = ("x-amzn-invoked-production-variant", plan.variant.name.as_bytes());
        count += 1;
    }
    let mut out = Vec::with_capacity(head.len() + 256);
    let down = Downstream { version: request.version, keep_alive, dechunk, extra: &extra[..count] };
    http::rewrite::response(&mut out, &head, &response, &down);
    drop(head);
    let mut copier = Copier::new(response.framing, dechunk);
    copier.push(out.into());
    plan.endpoint.metrics.added(record.added + arrived.elapsed());
    let mut ticket: Option<Ticket> = Some(choice.ticket);
    let result = relay.response_body(&mut copier, &mut ticket).await;
    drop(ticket);
    let userspace = &worker.metrics.userspace;
    let sent_on = relay.sending.copier.bytes() + read_ahead;
    userspace.carried(Direction::Request, sent_on);
    userspace.carried(Direction::Response, copier.bytes());
    record.request_bytes = sent_on + relay.steered_request;
    record.response_bytes = copier.bytes() + relay.steered_response;
    record.steered = relay.steered_response > copier.bytes();
    let complete = relay.sending.is_complete();
    match result {
        Ok(()) => {
            record.outcome = Some(Outcome::Ok);
            let reusable = response.keep_alive
                && complete
                && !response.framing.is_until_close()
                && relay.upstream.input.is_empty();
            worker.keep(&instance, relay.upstream, reusable, config);
            if keep_alive { Next::KeepAlive } else { Next::Close }
        }
        Err(failed) => {
            let outcome = after_response(&instance, failed);
            record.outcome = Some(outcome);
            if outcome == Outcome::ClientGone || delimited { Next::Drop } else { Next::Reset }
        }
    }
}

/// What a failure before the response's head means for the client.
fn before_response(
    instance: &Instance,
    failed: Failed,
    config: &Config,
    record: &mut Record<'_>,
) -> Stop {
    let reply = |status, reason, message: String| {
        Stop::Reply(Failure { status, reason, message: message.into(), retry_after: None })
    };
    let (outcome, stop) = match failed {
        Failed::ClientGone => (Outcome::ClientGone, Stop::ClientGone),
        Failed::BadRequest(error) => (
            Outcome::BadRequest,
            reply(
                400,
                "malformed_body",
                format!("The request's body cannot be passed on: {error}."),
            ),
        ),
        Failed::TooLarge => (Outcome::BadRequest, Stop::Reply(decide::too_large(config))),
        Failed::ClientStalled => (Outcome::TimeoutIdle, Stop::Reply(decide::stalled())),
        Failed::Upstream(error) => {
            instance.note_failure(FailureKind::Reset);
            tracing::warn!(instance = %instance.url, %error, "closed before answering");
            (
                Outcome::ConnectError,
                reply(
                    502,
                    "upstream_closed",
                    "The inference server closed the connection before it answered. The request \
                     may have been started, so it was not sent again."
                        .into(),
                ),
            )
        }
        Failed::BadResponse(why) => {
            instance.note_failure(FailureKind::Protocol);
            tracing::warn!(instance = %instance.url, %why, "bad response");
            (
                Outcome::BadResponse,
                reply(
                    502,
                    "bad_response",
                    format!("The inference server's response cannot be passed on: {why}."),
                ),
            )
        }
        Failed::FirstByteTimeout | Failed::StreamTimeout => {
            instance.note_failure(FailureKind::Timeout);
            tracing::warn!(instance = %instance.url, "no response in time");
            (
                Outcome::TimeoutFirstByte,
                reply(
                    504,
                    "first_byte_timeout",
                    format!(
                        "The inference server sent no response within {:?} \
                         (`timeouts.first_byte`).",
                        config.timeouts.first_byte
                    ),
                ),
            )
        }
    };
    record.outcome = Some(outcome);
    stop
}

/// What a failure after the response's head was.
fn after_response(instance: &Instance, failed: Failed) -> Outcome {
    match failed {
        Failed::ClientGone => Outcome::ClientGone,
        Failed::BadRequest(_) | Failed::TooLarge => Outcome::BadRequest,
        Failed::ClientStalled | Failed::StreamTimeout | Failed::FirstByteTimeout => {
            tracing::warn!(instance = %instance.url, "a response stood still for too long");
            Outcome::TimeoutIdle
        }
        Failed::Upstream(error) => {
            instance.note_failure(FailureKind::Reset);
            tracing::warn!(instance = %instance.url, %error, "broke off inside its response");
            Outcome::UpstreamAborted
        }
        Failed::BadResponse(why) => {
            instance.note_failure(FailureKind::Protocol);
            tracing::warn!(instance = %instance.url, %why, "bad response");
            Outcome::BadResponse
        }
    }
}

/// Passive health: only the instance's own errors count, never the client's.
fn note_status(instance: &Instance, status: u16) {
    if status >= 500 {
        instance.note_failure(FailureKind::Status);
    } else {
        instance.note_success();
    }
}

fn no_instance(none: NoInstance) -> Failure {
    let (message, retry_after) = match none {
        NoInstance::None => (
            "No inference server is able to serve at the moment: none is configured, or all are \
             draining or unresolved.",
            Some(5),
        ),
        NoInstance::Exhausted => {
            ("Every inference server that could serve failed to answer.", None)
        }
        NoInstance::AtLimit => (
            "Every inference server has as many requests as it may take (`max_in_flight`); try \
             again shortly.",
            Some(1),
        ),
    };
    Failure { status: none.status(), reason: none.as_str(), message: message.into(), retry_after }
}
