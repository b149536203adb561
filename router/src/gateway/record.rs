//! What is noted of one exchange, for metrics and the access line.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{context::WorkerContext, read::Identity};
use crate::{
    config::Config,
    fleet::{Endpoint, Instance, Variant},
    http::{Failure, Method, RequestHead, ResponseHead},
    log,
    metrics::Outcome,
    prefix::Api,
    routing::{Choice, Reason},
};

/// Notes of one exchange.
pub(super) struct Record<'f> {
    started: Instant,
    method: Method,
    pub(super) identity: Identity,
    pub(super) api: Api,
    pub(super) endpoint: Option<&'f Endpoint>,
    pub(super) variant: Option<&'f Variant>,
    instance: Option<Arc<Instance>>,
    reason: Option<Reason>,
    error: Option<&'static str>,
    pub(super) status: u16,
    pub(super) outcome: Option<Outcome>,
    first_byte: Option<Duration>,
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    /// Whether the kernel carried most of the response.
    pub(super) kernel_engine: Option<&'static str>,
    /// Time the gateway added before the request went on.
    pub(super) added: Duration,
    finished: bool,
    /// How the last instance tried could not be reached, and what it would be answered with.
    pub(super) unreachable: Option<(Outcome, Option<Failure>)>,
}

impl Record<'_> {
    pub(super) fn new(head: &RequestHead, identity: Identity) -> Self {
        Self {
            started: Instant::now(),
            method: head.method,
            identity,
            api: Api::Other,
            endpoint: None,
            variant: None,
            instance: None,
            reason: None,
            error: None,
            status: 0,
            outcome: None,
            first_byte: None,
            request_bytes: 0,
            response_bytes: 0,
            kernel_engine: None,
            added: Duration::ZERO,
            finished: false,
            unreachable: None,
        }
    }

    /// An instance was chosen. One chosen before could not be reached.
    pub(super) fn chosen(&mut self, choice: &Choice) {
        let instance = choice.ticket.instance();
        if let (Some(before), Some((outcome, _))) = (&self.instance, &self.unreachable) {
            before.metrics.ended(*outcome, self.started.elapsed());
        }
        instance.metrics.chosen(choice.reason.as_str());
        self.instance = Some(instance.clone());
        self.reason = Some(choice.reason);
    }

    /// The instance's response has begun.
    pub(super) fn responded(&mut self, response: &ResponseHead) {
        self.status = response.status;
        self.first_byte = Some(self.started.elapsed());
    }

    /// The gateway answered itself, with an error.
    pub(super) fn replied(&mut self, worker: &WorkerContext, failure: &Failure) {
        self.status = failure.status;
        self.error = Some(failure.reason);
        match &self.endpoint {
            Some(endpoint) => endpoint.metrics.error(failure.status, failure.reason),
            None => worker.metrics.all.error(failure.status, failure.reason),
        }
    }

    /// The exchange is over.
    pub(super) fn finish(mut self, config: &Config) {
        self.finished = true;
        let duration = self.started.elapsed();
        if let (Some(instance), Some(outcome)) = (&self.instance, self.outcome) {
            instance.metrics.ended(outcome, duration);
        }
        if !config.access_log {
            return;
        }
        let ids = &self.identity.ids;
        log::access(&log::Access {
            client: self.identity.client,
            request_id: ids.request.as_str(),
            trace_id: ids.trace.as_ref().map_or("", |trace| trace.trace_id()),
            endpoint: self.endpoint.map_or("", |endpoint| &endpoint.name),
            variant: self.variant.map_or("", |variant| &variant.name),
            method: self.method.as_str(),
            api: self.api.as_str(),
            status: self.status,
            instance: self.instance.as_ref().map_or("", |instance| &instance.url),
            reason: self.error.or(self.reason.map(Reason::as_str)).unwrap_or_default(),
            outcome: self.outcome.map_or("", Outcome::as_str),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            first_byte: self.first_byte,
            duration,
            engine: self.kernel_engine.unwrap_or("userspace"),
        });
    }
}

impl Drop for Record<'_> {
    /// An exchange whose task is dropped was cut at the end of the drain time.
    fn drop(&mut self) {
        if let (false, Some(instance)) = (self.finished, &self.instance) {
            instance.metrics.ended(Outcome::Shutdown, self.started.elapsed());
        }
    }
}
