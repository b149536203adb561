//! What is noted of one exchange, for metrics and the access line.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    context::WorkerContext,
    read::{Identity, Request},
};
use crate::{
    api::Api,
    fleet::{Endpoint, Instance, Variant},
    http::{Failure, Method, ResponseHead},
    log,
    metrics::Outcome,
    routing::{Choice, Reason},
};

/// Bytes of a text of the client's that an access line shows.
const SHOWN: usize = 256;

/// Notes of one exchange.
pub(super) struct Record<'f> {
    worker: &'f WorkerContext,
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
    /// What the instance answered; 0 if it did not. The client may be told otherwise.
    answered: u16,
    pub(super) outcome: Option<Outcome>,
    head: Option<Duration>,
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
    /// `None` where nobody asked for access lines: nothing is kept for them then.
    asked: Option<Box<Asked>>,
}

/// What was asked for, for the access line.
struct Asked {
    path: String,
    model: String,
    tenant: Option<u64>,
}

impl<'f> Record<'f> {
    /// With `access_log`, the exchange ends with a line in the log.
    pub(super) fn new(worker: &'f WorkerContext, request: &Request, access_log: bool) -> Self {
        let asked = access_log.then(|| {
            Box::new(Asked {
                path: shown(request.path().as_bytes()),
                model: String::new(),
                tenant: None,
            })
        });
        Self {
            worker,
            started: Instant::now(),
            method: request.head.method,
            identity: request.identity,
            api: Api::Other,
            endpoint: None,
            variant: None,
            instance: None,
            reason: None,
            error: None,
            status: 0,
            answered: 0,
            outcome: None,
            head: None,
            first_byte: None,
            request_bytes: 0,
            response_bytes: 0,
            kernel_engine: None,
            added: Duration::ZERO,
            finished: false,
            unreachable: None,
            asked,
        }
    }

    /// Whether it ends with a line in the log.
    pub(super) fn is_logged(&self) -> bool {
        self.asked.is_some()
    }

    /// It is known which model the client wants, and whose request it is.
    pub(super) fn asks_for(&mut self, model: Option<&[u8]>, tenant: Option<&[u8]>) {
        if let Some(asked) = &mut self.asked {
            asked.model = shown(model.unwrap_or_default());
            asked.tenant = tenant.map(xxhash_rust::xxh3::xxh3_64);
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
        (self.status, self.answered) = (response.status, response.status);
        self.head = Some(self.started.elapsed());
    }

    /// The first byte of its body has come.
    pub(super) fn body_began(&mut self) {
        self.first_byte = Some(self.started.elapsed());
    }

    /// The gateway answered itself, with an error.
    pub(super) fn replied(&mut self, failure: &Failure) {
        self.status = failure.status;
        self.error = Some(failure.reason);
        match &self.endpoint {
            Some(endpoint) => endpoint.metrics.error(failure.status, failure.reason),
            None => self.worker.metrics.all.error(failure.status, failure.reason),
        }
    }

    /// The exchange is over.
    pub(super) fn finish(mut self) {
        self.finished = true;
        self.end();
    }

    fn end(&mut self) {
        let duration = self.started.elapsed();
        if let (Some(instance), Some(outcome)) = (&self.instance, self.outcome) {
            instance.metrics.ended(outcome, duration);
        }
        if let (Some(trial), Some(outcome)) =
            (self.variant.and_then(|variant| variant.trial.as_ref()), self.outcome)
        {
            trial.note(outcome.is_failure() || self.status.max(self.answered) >= 500);
        }
        let Some(asked) = &self.asked else { return };
        let ids = &self.identity.ids;
        log::access(&log::Access {
            client: self.identity.client,
            request_id: ids.request.as_str(),
            trace_id: ids.trace.as_ref().map_or("", |trace| trace.trace_id()),
            method: self.method.as_str(),
            path: &asked.path,
            api: self.api.as_str(),
            endpoint: self.endpoint.map_or("", |endpoint| &endpoint.name),
            variant: self.variant.map_or("", |variant| &variant.name),
            model: &asked.model,
            tenant: asked.tenant,
            status: self.status,
            instance: self.instance.as_ref().map_or("", |instance| &instance.url),
            reason: self.error.or(self.reason.map(Reason::as_str)).unwrap_or_default(),
            outcome: self.outcome.map_or("", Outcome::as_str),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            head: self.head,
            first_byte: self.first_byte,
            duration,
            engine: self.kernel_engine.unwrap_or("userspace"),
        });
    }
}

impl Drop for Record<'_> {
    /// An exchange whose task is dropped was cut at the end of the drain time.
    fn drop(&mut self) {
        if !self.finished {
            self.outcome = Some(Outcome::Shutdown);
            self.worker.metrics.all.clients.cut.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.end();
        }
    }
}

/// A text of the client's as a line may show it. The log escapes what is not printable.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned()
}
