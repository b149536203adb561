//! One host in virtual time.

use std::{collections::HashMap, time::Duration};

use super::Micros;
use crate::engine::{
    params::Params,
    scheduler::{HashedJob, JobId, Progress, Scheduler, TooLong},
};

/// Number of a request in a run.
pub type RequestId = u64;

/// A host, at work on a step or at rest.
#[derive(Debug)]
pub struct Host {
    scheduler: Scheduler,
    requests: HashMap<JobId, RequestId>,
    stepping: bool,
    progress: Vec<Progress>,
}

/// What happened to a request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The request.
    pub request: RequestId,
    /// It had its first token.
    pub first: bool,
    /// It had its last token.
    pub finished: bool,
    /// Prompt tokens that were in the cache.
    pub cached_tokens: u32,
}

impl Host {
    /// At rest, with an empty cache.
    pub fn new(params: &Params) -> Self {
        Self {
            scheduler: Scheduler::new(params.clone()),
            requests: HashMap::new(),
            stepping: false,
            progress: Vec::new(),
        }
    }

    /// Queues a request.
    ///
    /// # Errors
    /// When it can never run here.
    pub fn submit(&mut self, request: RequestId, job: HashedJob) -> Result<(), TooLong> {
        let id = self.scheduler.submit(job)?;
        self.requests.insert(id, request);
        Ok(())
    }

    /// Starts a step if none is under way and there is something to do, and says how long it takes.
    pub fn begin_step(&mut self) -> Option<Micros> {
        if self.stepping {
            return None;
        }
        let step = self.scheduler.begin_step()?;
        self.stepping = true;
        Some(micros(step))
    }

    /// Ends the step; tells of each request whose first or last token it made.
    pub fn finish_step(&mut self, happened: &mut Vec<Happened>) {
        self.stepping = false;
        self.scheduler.finish_step(&mut self.progress);
        for progress in self.progress.drain(..) {
            let (first, finished) = (progress.generated <= 1, progress.finished);
            if !first && !finished {
                continue;
            }
            let request = match finished {
                true => self.requests.remove(&progress.id),
                false => self.requests.get(&progress.id).copied(),
            };
            let request = request.expect("a job in the scheduler has a request");
            let cached_tokens = progress.cached_tokens;
            happened.push(Happened { request, first, finished, cached_tokens });
        }
    }

    /// All requests that have not finished.
    pub fn open(&self) -> Vec<RequestId> {
        let mut open: Vec<_> = self.requests.values().copied().collect();
        open.sort_unstable();
        open
    }

    /// The scheduler, to look at.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}
