//! One request and its response, top to bottom.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;

use super::{
    answer::{self, Answer, Next},
    decide::{self, Plan},
    failure::{self, Failed, Stop},
    local,
    record::Record,
    relay::{Relay, Sending},
    worker::Worker,
};
use crate::{
    engine::{Carrier, Copier, Expect, Policy},
    fleet::{FailureKind, Fleet, Instance, InstanceId},
    http::{self, Failure, RequestHead, rewrite::Upstream},
    metrics::{Direction, Outcome},
    net::{Conn, socket},
    prefix::{self, Api},
    routing::{self, Choice},
};

/// Instances tried at most for one request, the first included.
const MAX_TRIES: usize = 3;

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

impl<'a> Exchange<'a> {
    async fn serve(
        &mut self,
        target: &prefix::Target<'_>,
        record: &mut Record<'a>,
    ) -> Result<Next, Stop> {
        if self.head.is_for_gateway(&self.raw) {
            return Ok(self.answer_locally(b"{}", record).await);
        }
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
                routing::choose(plan.variant, plan.key, &tried, &mut self.worker.rng.borrow_mut());
            let choice = match choice {
                Ok(choice) => choice,
                // Of the instances that were tried, the last one's failure tells most.
                Err(none) => {
                    return Err(Stop::Reply(match record.last_failure.take() {
                        Some((failure, outcome)) => {
                            record.outcome = Some(outcome);
                            failure
                        }
                        None => failure::no_instance(none),
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
            let (mut upstream, pooled) = self.connect(&instance, fresh).await?;
            if let Some(carrier) = &self.worker.carrier {
                let answers = plan.variant.answers.of(self.api as usize);
                match Policy::expect(config, plan.framing, answers) {
                    Expect::HandOver => {
                        carrier.register(self.client, false);
                        carrier.register(&mut upstream, true);
                    }
                    Expect::Little => {}
                    Expect::Nothing => {
                        carrier.forget(self.client);
                        carrier.forget(&mut upstream);
                    }
                }
            }
            let mut copier = Copier::new(plan.framing, false);
            copier.push(head_out.clone());
            copier.push(plan.body.clone());
            let sent = Instant::now();
            let mut relay = Relay::new(
                self.worker,
                config,
                self.client,
                upstream,
                Sending::new(copier),
                plan.body.len(),
            );
            match answer::final_head(&mut relay, &self.head, &config.head_limits()).await {
                Ok((response, head)) => {
                    instance.metrics.responded(response.status, sent.elapsed());
                    record.responded(&response);
                    failure::note_status(&instance, response.status);
                    let choice = choice.take().expect("an instance answers once");
                    // Nothing is sent again from here on. A stream may go on for minutes, and must
                    // not keep its prompt in memory.
                    self.raw = Bytes::new();
                    let read_ahead = std::mem::take(&mut plan.body).len() as u64;
                    let answer = Answer { relay, response, head, choice, read_ahead };
                    return Ok(answer::finish(
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
                    let carried = relay.sending.copier.bytes();
                    self.worker.metrics.userspace.carried(Direction::Request, carried);
                    record.request_bytes = carried + relay.steered_request + plan.body.len() as u64;
                    // With the whole request read, the client's connection is in order.
                    self.body_read |= relay.sending.copier.source_done();
                    return Err(Attempt::Stop(failure::before_response(
                        &instance, failed, config, record,
                    )));
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
        let segment = self.worker.carrier.as_ref().and_then(Carrier::segment);
        let connected = tokio::select! {
            biased;
            connected = socket::connect(&addresses, config.timeouts.connect, segment) => connected,
            () = self.client_gone() => return Err(Attempt::Stop(Stop::ClientGone)),
        };
        match connected {
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

    /// Waits until the client has left, without reading what it may still send.
    async fn client_gone(&self) {
        let Ok(watched) = self.worker.hangups.watch(&self.client.stream) else {
            // Out of memory for it: writing to the client will tell.
            return std::future::pending().await;
        };
        if self.fleet.config().half_closed_clients {
            std::future::poll_fn(|cx| watched.poll_broken(cx)).await;
        } else {
            watched.wait().await;
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
    /// when the rest of this request's body is still to come, and not with HTTP/1.0, to which such
    /// answers do not speak.
    fn keeps_open(&self) -> bool {
        self.head.keep_alive
            && self.head.version == http::Version::Http11
            && self.body_read
            && !self.worker.is_draining()
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
