//! Moves hosts, sessions and a policy through time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

use serde::Serialize;

use super::{
    Micros, SECOND,
    host::{Happened, Host, RequestId},
    outcome::{Outcome, Record},
    policy::{HostView, Policy, Request},
    prompt::{Dialect, Prompt, Role},
    workload::{Arrivals, Load, Session, Turn, Workload},
};
use crate::engine::params::Params;

/// What runs, beside the workload.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Size and speed of each host.
    pub params: Params,
    /// Hosts at the start.
    pub hosts: usize,
    /// What happens to hosts, in order.
    pub changes: Vec<(Micros, Change)>,
}

/// Something that happens to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Another host comes, with an empty cache.
    Add,
    /// A host gets no new requests, and ends those that it has.
    Remove(usize),
    /// A host dies with all its requests. Until the health checks have found out, requests that are sent there are
    /// refused.
    Die(usize),
}

/// Time after which a dead host is known to be down: three checks of every five seconds, the gateway's defaults.
const DETECTION: Micros = 15 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin,
    Ask { session: usize },
    Step { host: usize },
    Change { number: usize },
    Down { host: usize },
}

struct Member {
    host: Host,
    view: HostView,
    dead: bool,
}

struct Active {
    session: Session,
    next: usize,
    /// Behind each turn, with its answer.
    prompts: Vec<Prompt>,
}

struct Asked {
    session: usize,
    host: usize,
    /// Its place among the records.
    record: usize,
    prompt: Prompt,
    turn: Turn,
}

struct Run<'a> {
    workload: &'a dyn Workload,
    load: &'a Load,
    policy: &'a mut dyn Policy,
    dialect: Arc<Dialect>,
    now: Micros,
    /// Events at the same moment come in the order in which they were set.
    queue: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    sequence: u64,
    members: Vec<Member>,
    views: Vec<HostView>,
    sessions: HashMap<usize, Active>,
    next_session: usize,
    asked: HashMap<RequestId, Asked>,
    records: Vec<Record>,
    body: Vec<u8>,
}

/// Runs `workload` under `load`. `watch` hears the moment that has come, now and then.
pub fn run(
    workload: &dyn Workload,
    load: &Load,
    setup: &Setup,
    policy: &mut dyn Policy,
    watch: &mut dyn FnMut(Micros),
) -> Outcome {
    let dialect = Dialect {
        model: "meta-llama/Llama-3.1-70B-Instruct".into(),
        block_tokens: setup.params.block_tokens,
    };
    let mut run = Run {
        workload,
        load,
        policy,
        dialect: Arc::new(dialect),
        now: 0,
        queue: BinaryHeap::new(),
        sequence: 0,
        members: Vec::new(),
        views: Vec::new(),
        sessions: HashMap::new(),
        next_session: 0,
        asked: HashMap::new(),
        records: Vec::new(),
        body: Vec::new(),
    };
    for _ in 0..setup.hosts {
        run.add(&setup.params);
    }
    run.tell_listed();
    for (number, (moment, _)) in setup.changes.iter().enumerate() {
        run.set(*moment, Event::Change { number });
    }
    let mut moments = load.arrivals.moments(load);
    if let Arrivals::Closed { .. } = load.arrivals {
        for moment in moments.by_ref() {
            run.set(moment, Event::Begin);
        }
    } else if let Some(first) = moments.next() {
        run.set(first, Event::Begin);
    }
    let mut watched = 0;
    while let Some(Reverse((moment, _, event))) = run.queue.pop() {
        debug_assert!(moment >= run.now, "time does not go back");
        run.now = moment;
        match event {
            Event::Begin => {
                run.begin();
                if let Some(next) = moments.next() {
                    run.set(next, Event::Begin);
                }
            }
            Event::Ask { session } => run.ask(session),
            Event::Step { host } => run.step(host),
            Event::Change { number } => run.change(setup.changes[number].1, &setup.params),
            Event::Down { host } => {
                run.members[host].view.listed = false;
                run.tell_listed();
            }
        }
        if moment >= watched {
            watch(moment);
            watched = moment + SECOND;
        }
    }
    let hosts = run.members.len();
    Outcome { policy: run.policy.name(), hosts, end: run.now, records: run.records }
}

impl Run<'_> {
    fn set(&mut self, moment: Micros, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((moment, self.sequence, event)));
    }

    fn add(&mut self, params: &Params) {
        let view = HostView { listed: true, ..HostView::default() };
        self.members.push(Member { host: Host::new(params), view, dead: false });
        self.views.push(view);
    }

    fn tell_listed(&mut self) {
        self.look();
        self.policy.listed(&self.views);
    }

    /// Brings the views up to date.
    fn look(&mut self) {
        for (view, member) in self.views.iter_mut().zip(&self.members) {
            let scheduler = member.host.scheduler();
            *view = HostView {
                running: scheduler.running() as u32,
                waiting: scheduler.waiting() as u32,
                cache_usage: scheduler.cache().pinned() as f64
                    / scheduler.cache().capacity() as f64,
                backlog: scheduler.backlog(),
                ..member.view
            };
        }
    }

    fn begin(&mut self) {
        if self.now >= self.load.seconds * SECOND {
            return;
        }
        let number = self.next_session;
        let Some(session) = self.workload.session(number) else { return };
        self.next_session += 1;
        self.sessions.insert(number, Active { session, next: 0, prompts: Vec::new() });
        self.ask(number);
    }

    /// Asks the next turn of a session.
    fn ask(&mut self, number: usize) {
        let active = self.sessions.get_mut(&number).expect("a session asks while it is there");
        let turn = active.session.turns[active.next].clone();
        let mut prompt =
            turn.from.prompt(&active.prompts).unwrap_or_else(|| Prompt::new(&self.dialect));
        for (role, text) in &turn.messages {
            prompt = prompt.with(*role, text);
        }
        let group = active.session.group;
        active.next += 1;
        prompt.write_body(turn.answer.tokens(), &mut self.body);
        let id = self.records.len() as RequestId;
        self.look();
        if self.policy.is_oracle() {
            let hashes = prompt.hashes();
            for (view, member) in self.views.iter_mut().zip(&self.members) {
                view.cached_blocks = member.host.scheduler().cache().matching(&hashes) as u32;
            }
        }
        let now = self.now;
        let request = Request { id, session: number, now, body: &self.body, prompt: &prompt };
        let mut record =
            Record { arrived: self.now, group, session: number as u64, ..Record::default() };
        let mut failed = Vec::new();
        let chosen = loop {
            let Some(choice) = self.policy.choose(&request, &self.views, &failed) else {
                break None;
            };
            if !self.members[choice.host].dead {
                break Some(choice);
            }
            self.policy.ended(id, choice.host);
            failed.push(choice.host);
        };
        let job = prompt.job(&turn.answer);
        record.prompt_tokens = job.prompt;
        record.output_tokens = job.output;
        let Some(choice) = chosen else {
            record.ended = self.now;
            self.records.push(record);
            self.end_session(number);
            return;
        };
        record.host = Some(choice.host as u32);
        record.overflow = choice.overflow;
        let at = self.records.len();
        self.records.push(record);
        self.asked
            .insert(id, Asked { session: number, host: choice.host, record: at, prompt, turn });
        let member = &mut self.members[choice.host];
        member.view.in_flight += 1;
        if member.host.submit(id, job).is_err() {
            self.fail(id);
            return;
        }
        self.start(choice.host);
    }

    /// Starts a step of a host that is at rest.
    fn start(&mut self, host: usize) {
        if let Some(step) = self.members[host].host.begin_step() {
            self.set(self.now + step, Event::Step { host });
        }
    }

    fn step(&mut self, host: usize) {
        if self.members[host].dead {
            return;
        }
        let mut happened = Vec::new();
        self.members[host].host.finish_step(&mut happened);
        for Happened { request, first, finished, cached_tokens } in happened {
            let asked = &self.asked[&request];
            let record = &mut self.records[asked.record];
            if first {
                record.first_token = Some(self.now);
                record.cached_tokens = cached_tokens;
            }
            if finished {
                record.finished = true;
                self.end(request);
            }
        }
        self.start(host);
    }

    /// A request has ended; its session goes on, if it was answered.
    fn end(&mut self, id: RequestId) -> usize {
        let asked = self.asked.remove(&id).expect("a request ends once");
        self.members[asked.host].view.in_flight -= 1;
        self.policy.ended(id, asked.host);
        let record = &mut self.records[asked.record];
        record.ended = self.now;
        if !record.finished {
            return asked.session;
        }
        let active = self.sessions.get_mut(&asked.session).expect("its session waits for it");
        active.prompts.push(asked.prompt.with(Role::Assistant, &asked.turn.answer));
        match active.session.turns.get(active.next) {
            Some(next) => {
                let moment = self.now + next.think;
                self.set(moment, Event::Ask { session: asked.session });
            }
            None => self.end_session(asked.session),
        }
        asked.session
    }

    /// A request gets no answer: its session is over.
    fn fail(&mut self, id: RequestId) {
        let session = self.end(id);
        self.end_session(session);
    }

    fn end_session(&mut self, number: usize) {
        self.sessions.remove(&number);
        if let Arrivals::Closed { .. } = self.load.arrivals {
            self.set(self.now, Event::Begin);
        }
    }

    fn change(&mut self, change: Change, params: &Params) {
        match change {
            Change::Add => self.add(params),
            Change::Remove(host) => self.members[host].view.listed = false,
            Change::Die(host) => {
                self.members[host].dead = true;
                for request in self.members[host].host.open() {
                    self.fail(request);
                }
                self.set(self.now + DETECTION, Event::Down { host });
                return;
            }
        }
        self.tell_listed();
    }
}
