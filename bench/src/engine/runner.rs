//! Moves the scheduler through time and tells each request of its tokens.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{
    metrics::Metrics,
    params::Params,
    scheduler::{Job, JobId, Progress, Scheduler, TooLong},
};

/// One simulated host at work.
pub struct Runner {
    state: Mutex<State>,
    work: Notify,
    time_scale: f64,
    block_tokens: u32,
    metrics: Metrics,
}

struct State {
    scheduler: Scheduler,
    clients: HashMap<JobId, mpsc::UnboundedSender<Progress>>,
}

impl Runner {
    /// A host that does nothing until [`Self::run`] is polled.
    pub fn new(params: Params, model: &str) -> Arc<Self> {
        Arc::new(Self {
            time_scale: params.time_scale,
            block_tokens: params.block_tokens,
            state: Mutex::new(State { scheduler: Scheduler::new(params), clients: HashMap::new() }),
            work: Notify::new(),
            metrics: Metrics::new(model),
        })
    }

    /// The host's metrics, brought up to date.
    pub fn metrics(&self) -> &Metrics {
        self.metrics.observe(&self.lock().scheduler);
        &self.metrics
    }

    /// Requests that run and that wait.
    pub fn load(&self) -> (usize, usize) {
        let state = self.lock();
        (state.scheduler.running(), state.scheduler.waiting())
    }

    /// Empties the cache of all that no running request needs.
    pub fn clear_cache(&self) {
        self.lock().scheduler.clear_cache();
    }

    /// Queues a job; its tokens arrive at the returned handle, and dropping that cancels the job.
    ///
    /// # Errors
    /// When the job can never run on this host.
    pub fn submit(self: &Arc<Self>, job: &Job) -> Result<Generation, TooLong> {
        let (sender, events) = mpsc::unbounded_channel();
        let hashed = job.hashed(self.block_tokens);
        let id = {
            let mut state = self.lock();
            let id = state.scheduler.submit(hashed)?;
            state.clients.insert(id, sender);
            id
        };
        self.metrics.prompt_tokens.inc_by(job.prompt.len() as u64);
        self.work.notify_one();
        Ok(Generation {
            runner: self.clone(),
            id,
            events,
            accepted: Instant::now(),
            first: true,
            finished: false,
        })
    }

    /// Works forever.
    pub async fn run(self: Arc<Self>) {
        let mut progress = Vec::new();
        // Steps follow each other without the timer's rounding adding up.
        let mut clock = Instant::now();
        loop {
            let step = self.lock().scheduler.begin_step();
            let Some(step) = step else {
                self.work.notified().await;
                clock = Instant::now();
                continue;
            };
            self.pass(step, &mut clock).await;
            let mut state = self.lock();
            state.scheduler.finish_step(&mut progress);
            for event in progress.drain(..) {
                if event.generated > 0 {
                    self.metrics.generated_tokens.inc();
                }
                // A client that has left is cancelled by its handle.
                if let Some(client) = state.clients.get(&event.id) {
                    let _ = client.send(event);
                }
                if event.finished {
                    state.clients.remove(&event.id);
                }
            }
        }
    }

    async fn pass(&self, step: Duration, clock: &mut Instant) {
        let step = step.mul_f64(self.time_scale);
        if step.is_zero() {
            tokio::task::yield_now().await;
            return;
        }
        *clock += step;
        let now = Instant::now();
        if *clock > now {
            tokio::time::sleep_until(*clock).await;
        } else {
            *clock = now;
            tokio::task::yield_now().await;
        }
    }

    fn cancel(&self, id: JobId) {
        let mut state = self.lock();
        state.clients.remove(&id);
        self.metrics.cancelled(state.scheduler.cancel(id));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way. Dropping it before its end cancels the work.
pub struct Generation {
    runner: Arc<Runner>,
    id: JobId,
    events: mpsc::UnboundedReceiver<Progress>,
    accepted: Instant,
    first: bool,
    finished: bool,
}

impl Generation {
    /// The next token; `None` after the last.
    pub async fn next(&mut self) -> Option<Progress> {
        if self.finished {
            return None;
        }
        let progress = self.events.recv().await?;
        let metrics = &self.runner.metrics;
        if std::mem::take(&mut self.first) {
            metrics.first_token.observe(self.accepted.elapsed().as_secs_f64());
        }
        if progress.finished {
            self.finished = true;
            metrics.finished.inc();
            metrics.latency.observe(self.accepted.elapsed().as_secs_f64());
        }
        Some(progress)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.finished {
            self.runner.cancel(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(prompt: u32, output: u32) -> Job {
        Job {
            model: "m".into(),
            salt: String::new(),
            prompt: (0..prompt).collect(),
            output: (0..output).collect(),
        }
    }

    #[tokio::test]
    async fn tokens_arrive_and_time_passes_as_planned() {
        tokio::time::pause();
        let runner = Runner::new(Params::default(), "m");
        tokio::spawn(runner.clone().run());
        let start = Instant::now();
        let mut generation = runner.submit(&job(1000, 5)).unwrap();
        generation.next().await.unwrap();
        let first = start.elapsed();
        assert!(first >= Duration::from_millis(58) && first < Duration::from_millis(61));
        let mut tokens = 1;
        while generation.next().await.is_some() {
            tokens += 1;
        }
        assert_eq!(tokens, 5);
        assert_eq!(runner.load(), (0, 0));
    }

    #[tokio::test]
    async fn dropping_the_handle_cancels() {
        tokio::time::pause();
        let runner = Runner::new(Params::default(), "m");
        tokio::spawn(runner.clone().run());
        let mut generation = runner.submit(&job(1000, 500)).unwrap();
        generation.next().await.unwrap();
        assert_eq!(runner.load(), (1, 0));
        drop(generation);
        assert_eq!(runner.load(), (0, 0));
        assert_eq!(runner.metrics().cancelled_total(), 1);
    }
}
