//! Continuous batching: which tokens are worked on in the next step, and how long it takes.
//!
//! A step takes every running request one token further; what is left of the step's token budget
//! goes to prompts, in order of arrival. A request holds the blocks for its prompt and its whole
//! answer from admission on, so that nothing is ever preempted (a real engine admits more
//! optimistically and preempts).

use std::{collections::VecDeque, time::Duration};

use super::{
    cache::{BlockHasher, Cache},
    params::Params,
};

/// What is to be generated.
#[derive(Clone, Debug)]
pub struct Job {
    /// Model or adapter name; part of the cache's hashes.
    pub model: String,
    /// Keeps tenants apart in the cache; empty for none.
    pub salt: String,
    /// Tokens of the prompt; at least one.
    pub prompt: Vec<u32>,
    /// Tokens of the answer. None are generated for an embedding.
    pub output: Vec<u32>,
}

/// A job whose blocks are hashed already.
#[derive(Clone, Debug)]
pub struct HashedJob {
    /// Of all full blocks of prompt and answer.
    pub hashes: Vec<u64>,
    /// Tokens of the prompt; at least one.
    pub prompt: u32,
    /// Tokens of the answer.
    pub output: u32,
}

impl Job {
    /// With its blocks hashed.
    pub fn hashed(&self, block_tokens: u32) -> HashedJob {
        let mut hasher = BlockHasher::new(&self.model, &self.salt, block_tokens);
        let mut hashes = Vec::new();
        hasher.extend(&self.prompt, &mut hashes);
        hasher.extend(&self.output, &mut hashes);
        HashedJob { hashes, prompt: self.prompt.len() as u32, output: self.output.len() as u32 }
    }
}

/// Identifies a job while it is in the scheduler.
pub type JobId = u64;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waits for a place or for blocks.
    Queue,
    /// Its prompt is worked on.
    Prefill,
    /// Its answer is generated.
    Decode,
}

/// What a step did for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The job.
    pub id: JobId,
    /// Answer tokens so far.
    pub generated: u32,
    /// Prompt tokens that were in the cache.
    pub cached_tokens: u32,
    /// Whether the job is complete and has left.
    pub finished: bool,
}

/// Why a job cannot run on this host, ever.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the prompt of {prompt} tokens and {output} tokens to generate exceed this host's limit of \
     {limit} tokens; shorten the prompt or lower max_tokens"
)]
pub struct TooLong {
    prompt: usize,
    output: usize,
    limit: usize,
}

#[derive(Debug)]
struct Sequence {
    id: JobId,
    /// Of all full blocks of prompt and answer.
    hashes: Vec<u64>,
    /// Blocks of prompt and answer, a partial last one included.
    blocks: usize,
    prompt: u32,
    output: u32,
    cached_tokens: u32,
    /// Tokens whose cache entries exist.
    computed: u32,
    generated: u32,
    /// Leading hashes that are in the cache with this job as a user.
    published: usize,
    /// Tokens of the step under way.
    planned: u32,
}

impl Sequence {
    fn phase(&self) -> Phase {
        if self.computed < self.prompt { Phase::Prefill } else { Phase::Decode }
    }
}

/// The batch, the queue and the cache of one host.
#[derive(Debug)]
pub struct Scheduler {
    params: Params,
    cache: Cache,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    next_id: JobId,
    queried_tokens: u64,
    hit_tokens: u64,
}

impl Scheduler {
    /// An idle host with an empty cache.
    pub fn new(params: Params) -> Self {
        Self {
            cache: Cache::new(params.cache_blocks as usize),
            params,
            waiting: VecDeque::new(),
            running: Vec::new(),
            next_id: 1,
            queried_tokens: 0,
            hit_tokens: 0,
        }
    }

    /// Queues a job.
    ///
    /// # Errors
    /// When it exceeds the model's length or the whole cache.
    pub fn submit(&mut self, job: HashedJob) -> Result<JobId, TooLong> {
        let block_tokens = self.params.block_tokens as usize;
        let HashedJob { hashes, prompt, output } = job;
        let total = prompt as usize + output as usize;
        let limit = (self.params.max_model_len as usize).min(self.cache.capacity() * block_tokens);
        if total > limit {
            return Err(TooLong { prompt: prompt as usize, output: output as usize, limit });
        }
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push_back(Sequence {
            id,
            hashes,
            blocks: total.div_ceil(block_tokens),
            prompt,
            output,
            cached_tokens: 0,
            computed: 0,
            generated: 0,
            published: 0,
            planned: 0,
        });
        Ok(id)
    }

    /// Removes a job, wherever it stands; its blocks are free at once.
    pub fn cancel(&mut self, id: JobId) -> Option<Phase> {
        if let Some(at) = self.waiting.iter().position(|sequence| sequence.id == id) {
            self.waiting.remove(at);
            return Some(Phase::Queue);
        }
        let at = self.running.iter().position(|sequence| sequence.id == id)?;
        let sequence = self.running.remove(at);
        self.release(&sequence);
        Some(sequence.phase())
    }

    /// Starts a step and says how long it takes; `None` when there is nothing to do.
    pub fn begin_step(&mut self) -> Option<Duration> {
        self.admit();
        let mut budget = self.params.max_batched_tokens;
        let (mut decoding, mut context, mut prefill_tokens) = (0u64, 0u64, 0u64);
        for sequence in &mut self.running {
            sequence.planned = 0;
            // Generation goes first even if the budget is smaller than the batch.
            if sequence.phase() == Phase::Decode {
                sequence.planned = 1;
                budget = budget.saturating_sub(1);
                decoding += 1;
                context += u64::from(sequence.computed);
            }
        }
        // The oldest prompt always makes progress.
        let mut budget = if decoding == 0 { budget } else { budget.max(1) };
        for sequence in &mut self.running {
            if sequence.phase() == Phase::Prefill {
                sequence.planned = budget.min(sequence.prompt - sequence.computed);
                budget -= sequence.planned;
                prefill_tokens += u64::from(sequence.planned);
            }
        }
        (!self.running.is_empty()).then(|| {
            Duration::from_micros(
                self.params.step_us
                    + self.params.sequence_us * decoding
                    + self.params.context_token_ns * context / 1_000
                    + self.params.prefill_token_us * prefill_tokens,
            )
        })
    }

    /// Ends the step that [`Self::begin_step`] started: what it produced goes to `progress`.
    pub fn finish_step(&mut self, progress: &mut Vec<Progress>) {
        let mut running = std::mem::take(&mut self.running);
        running.retain_mut(|sequence| {
            sequence.computed += std::mem::take(&mut sequence.planned);
            self.publish(sequence);
            if sequence.phase() == Phase::Prefill {
                return true;
            }
            // The step that completes the prompt yields the first token already.
            if sequence.output > 0 {
                sequence.generated += 1;
            }
            let finished = sequence.generated >= sequence.output;
            progress.push(Progress {
                id: sequence.id,
                generated: sequence.generated,
                cached_tokens: sequence.cached_tokens,
                finished,
            });
            if finished {
                self.release(sequence);
            }
            !finished
        });
        self.running = running;
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Prompt tokens of all requests that are yet to be worked on. Those of requests in the queue count in full,
    /// since what they find in the cache is known only when they leave it.
    pub fn backlog(&self) -> u64 {
        let left = |sequence: &Sequence| {
            u64::from(sequence.prompt.saturating_sub(sequence.computed.max(sequence.cached_tokens)))
        };
        self.running.iter().chain(&self.waiting).map(left).sum()
    }

    /// The KV cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Forgets what no running request needs.
    pub fn clear_cache(&mut self) {
        self.cache.clear();
    }

    /// Prompt tokens looked up in the cache so far, and those found.
    pub fn prefix_tokens(&self) -> (u64, u64) {
        (self.queried_tokens, self.hit_tokens)
    }

    fn admit(&mut self) {
        let block_tokens = self.params.block_tokens;
        while self.running.len() < self.params.max_running as usize {
            let Some(sequence) = self.waiting.front_mut() else { break };
            // The last prompt token is always computed: its output is the first token.
            let cachable = ((sequence.prompt - 1) / block_tokens) as usize;
            let matched = self.cache.matching(&sequence.hashes[..cachable]);
            if !self.cache.reserve(&sequence.hashes[..matched], sequence.blocks - matched) {
                break;
            }
            sequence.published = matched;
            sequence.cached_tokens = matched as u32 * block_tokens;
            sequence.computed = sequence.cached_tokens;
            self.queried_tokens += u64::from(sequence.prompt);
            self.hit_tokens += u64::from(sequence.cached_tokens);
            self.running.extend(self.waiting.pop_front());
        }
    }

    fn publish(&mut self, sequence: &mut Sequence) {
        let complete = (sequence.computed / self.params.block_tokens) as usize;
        while sequence.published < complete {
            self.cache.publish(sequence.hashes[sequence.published]);
            sequence.published += 1;
        }
    }

    fn release(&mut self, sequence: &Sequence) {
        self.cache
            .release(&sequence.hashes[..sequence.published], sequence.blocks - sequence.published);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params() -> Params {
        Params {
            block_tokens: 4,
            cache_blocks: 64,
            max_running: 2,
            max_batched_tokens: 16,
            ..Params::default()
        }
    }

    fn tokens(prompt: std::ops::Range<u32>, output: u32) -> Job {
        Job {
            model: "m".into(),
            salt: String::new(),
            prompt: prompt.collect(),
            output: (1000..1000 + output).collect(),
        }
    }

    fn job(prompt: std::ops::Range<u32>, output: u32) -> HashedJob {
        tokens(prompt, output).hashed(params().block_tokens)
    }

    fn run(scheduler: &mut Scheduler) -> (Vec<Progress>, Duration) {
        let (mut all, mut time) = (Vec::new(), Duration::ZERO);
        while let Some(step) = scheduler.begin_step() {
            time += step;
            scheduler.finish_step(&mut all);
        }
        (all, time)
    }

    #[test]
    fn a_cached_prompt_is_faster_and_says_so() {
        let mut scheduler = Scheduler::new(params());
        scheduler.submit(job(0..40, 3)).unwrap();
        let (cold, cold_time) = run(&mut scheduler);
        assert_eq!(cold.len(), 3);
        assert_eq!(cold[0].cached_tokens, 0);
        assert!(cold[2].finished && !cold[1].finished);
        scheduler.submit(job(0..40, 3)).unwrap();
        let (warm, warm_time) = run(&mut scheduler);
        // All but the block of the last prompt token, which is always computed.
        assert_eq!(warm[0].cached_tokens, 36);
        assert!(warm_time < cold_time, "{warm_time:?} {cold_time:?}");
        assert_eq!(scheduler.prefix_tokens(), (80, 36));
        assert_eq!(scheduler.cache().pinned(), 0);
    }

    #[test]
    fn prompts_are_worked_off_in_pieces() {
        let mut scheduler = Scheduler::new(params());
        scheduler.submit(job(0..40, 1)).unwrap();
        let mut progress = Vec::new();
        for _ in 0..2 {
            scheduler.begin_step().unwrap();
            scheduler.finish_step(&mut progress);
            assert_eq!(progress, []);
        }
        scheduler.begin_step().unwrap();
        scheduler.finish_step(&mut progress);
        assert_eq!(progress.len(), 1);
    }

    #[test]
    fn generation_goes_on_beside_a_long_prompt() {
        let mut scheduler = Scheduler::new(params());
        let first = scheduler.submit(job(0..4, 10)).unwrap();
        let mut progress = Vec::new();
        scheduler.begin_step().unwrap();
        scheduler.finish_step(&mut progress);
        scheduler.submit(job(100..140, 1)).unwrap();
        progress.clear();
        for _ in 0..2 {
            scheduler.begin_step().unwrap();
            scheduler.finish_step(&mut progress);
        }
        assert_eq!(progress.iter().filter(|p| p.id == first).count(), 2);
        assert_eq!(progress.len(), 2);
    }

    #[test]
    fn more_requests_wait_and_a_bigger_batch_is_slower() {
        let mut scheduler = Scheduler::new(params());
        for n in 0..3 {
            scheduler.submit(job(n * 100..n * 100 + 4, 5)).unwrap();
        }
        scheduler.begin_step().unwrap();
        assert_eq!((scheduler.running(), scheduler.waiting()), (2, 1));
        scheduler.finish_step(&mut Vec::new());
        assert_eq!(scheduler.begin_step().unwrap(), Duration::from_micros(8_000 + 2 * 100));
        scheduler.finish_step(&mut Vec::new());
        let (rest, _) = run(&mut scheduler);
        assert_eq!(rest.iter().filter(|progress| progress.finished).count(), 3);
    }

    #[test]
    fn a_long_context_is_slower() {
        let params = Params { context_token_ns: 1_000, ..params() };
        let mut scheduler = Scheduler::new(params);
        scheduler.submit(job(0..12, 3)).unwrap();
        let mut step = || {
            let time = scheduler.begin_step().unwrap();
            scheduler.finish_step(&mut Vec::new());
            time.as_micros() as u64
        };
        assert_eq!([step(), step(), step()], [8_000 + 12 * 50, 8_000 + 100 + 12, 8_000 + 100 + 13]);
    }

    #[test]
    fn a_cancelled_job_frees_what_it_holds() {
        let mut scheduler = Scheduler::new(params());
        let ids: Vec<_> =
            (0..3).map(|n| scheduler.submit(job(n * 100..n * 100 + 32, 4)).unwrap()).collect();
        scheduler.begin_step().unwrap();
        assert_eq!(scheduler.cancel(ids[2]), Some(Phase::Queue));
        // In the middle of a step.
        assert_eq!(scheduler.cancel(ids[0]), Some(Phase::Prefill));
        scheduler.finish_step(&mut Vec::new());
        let (rest, _) = run(&mut scheduler);
        assert!(rest.iter().all(|progress| progress.id == ids[1]));
        assert_eq!(scheduler.cancel(ids[1]), None);
        assert_eq!(scheduler.cache().pinned(), 0);
    }

    #[test]
    fn an_answer_is_in_the_cache_for_the_next_turn() {
        let mut scheduler = Scheduler::new(params());
        scheduler.submit(job(0..10, 10)).unwrap();
        run(&mut scheduler);
        let mut next = tokens(0..10, 1);
        next.prompt.extend(1000..1010);
        next.prompt.extend(0..10);
        scheduler.submit(next.hashed(4)).unwrap();
        // 19 tokens have entries: the last generated one was never fed back.
        assert_eq!(run(&mut scheduler).0[0].cached_tokens, 16);
    }

    #[test]
    fn what_never_fits_is_refused() {
        let mut scheduler = Scheduler::new(params());
        assert_eq!(
            scheduler.submit(job(0..250, 10)),
            Err(TooLong { prompt: 250, output: 10, limit: 256 })
        );
        scheduler.submit(job(0..250, 6)).unwrap();
        assert!(run(&mut scheduler).0.last().unwrap().finished);
    }

    #[test]
    fn an_embedding_ends_with_its_prompt() {
        let mut scheduler = Scheduler::new(params());
        scheduler.submit(job(0..20, 0)).unwrap();
        let (progress, _) = run(&mut scheduler);
        assert_eq!(progress.len(), 1);
        assert!(progress[0].finished && progress[0].generated == 0);
    }

    proptest! {
        #[test]
        fn every_job_ends_and_leaves_nothing(
            jobs in proptest::collection::vec((0u32..3, 1u32..60, 0u32..20, any::<bool>()), 1..30)
        ) {
            let mut scheduler = Scheduler::new(params());
            let (mut open, mut progress) = (0, Vec::new());
            for (family, prompt, output, cancel) in jobs {
                let start = family * 1000;
                let id = scheduler.submit(job(start..start + prompt, output)).unwrap();
                scheduler.begin_step();
                if !cancel || scheduler.cancel(id).is_none() {
                    open += 1;
                }
                scheduler.finish_step(&mut progress);
            }
            progress.extend(run(&mut scheduler).0);
            prop_assert_eq!(progress.iter().filter(|p| p.finished).count(), open);
            prop_assert_eq!(scheduler.cache().pinned(), 0);
        }
    }
}
