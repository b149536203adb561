//! The gateway's user space: it relays, hands over, takes back, and carries hang-ups.

use router_ebpf::{
    framing::Framing,
    splice::state::{Splice, UNKNOWN, UNTIL_CLOSE, mode, word},
};

use crate::{
    peers::Server,
    plan::{ADDED, End, HEAD, Message, Round},
    tcp::Time,
    world::{Link, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Copying,
    /// Filled in, with the words of the compare-and-swap.
    Prepared(usize, u64, u64),
    Live(usize),
}

/// One direction of an exchange.
#[derive(Clone, Debug)]
struct Relay {
    response: bool,
    from: usize,
    to: usize,
    /// Bytes still to come, of all; not known when the end is a close.
    left: usize,
    head_left: usize,
    framing: Framing,
    flow: Flow,
    stop_at: Option<Time>,
}

#[derive(Clone, Debug)]
enum Step {
    Idle,
    Relay(Relay),
    Over,
}

#[derive(Debug)]
pub(crate) struct User {
    pub(crate) a: usize,
    pub(crate) b: Option<usize>,
    pub(crate) round: usize,
    pub(crate) begun: Time,
    step: Step,
    pub(crate) tickets: usize,
    pub(crate) faulted: bool,
    /// One of the gateway's sockets sends no more.
    pub(crate) shut: bool,
}

impl User {
    pub(crate) fn new(a: usize) -> Self {
        Self {
            a,
            b: None,
            round: 0,
            begun: 0,
            step: Step::Idle,
            tickets: 0,
            faulted: false,
            shut: false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.step, Step::Over)
    }

    /// Whether it carries a message itself.
    pub(crate) fn copies(&self) -> bool {
        matches!(&self.step, Step::Relay(relay) if relay.flow == Flow::Copying)
    }
}

impl World {
    pub(crate) fn user_space(&mut self) {
        for link in 0..self.links.len() {
            if self.random.below(3) == 0 {
                self.watch(link);
            }
        }
        for i in 0..self.users.len() {
            // It is not always awake.
            if self.random.below(3) > 0 {
                self.user(i);
            }
        }
        let over = self.users.iter().all(User::is_over);
        for i in 0..self.servers.len() {
            let conn = self.servers[i].conn;
            if self.conns[conn].link.is_none() && !self.busy(conn) {
                // In the pool.
                let own = &mut self.conns[conn].own;
                if over || own.peer_closed || self.servers[i].retired {
                    // Also when there is something to read.
                    if own.gone.is_none() && own.readable() > 0 {
                        self.seen.note("surplus left");
                    }
                    own.close(self.now);
                }
            }
        }
    }

    fn busy(&self, conn: usize) -> bool {
        self.users.iter().any(|user| user.b == Some(conn))
    }

    /// A link that is not of use any more.
    fn watch(&mut self, link: usize) {
        let Link { source, receiver, quiet, .. } = self.links[link];
        if self.conns[source].link != Some(link) {
            return;
        }
        if quiet {
            return self.unlink(link);
        }
        let gone = |conn: usize| self.conns[conn].own.gone.is_some();
        if gone(source) || gone(receiver) {
            let a = self.users.iter().position(|user| user.a == source || user.a == receiver);
            self.abort(a.expect("one of them is a client's"));
        }
    }

    fn unlink(&mut self, link: usize) {
        let Link { source, receiver, .. } = self.links[link];
        for conn in [source, receiver] {
            if self.conns[conn].link == Some(link) {
                self.conns[conn].link = None;
            }
        }
    }

    /// Resets both sides of whatever a session does.
    pub(crate) fn abort(&mut self, i: usize) {
        let user = &mut self.users[i];
        let (a, b, round) = (user.a, user.b.take(), user.round);
        user.step = Step::Over;
        let mut conns = vec![a];
        conns.extend(b);
        if let Some(link) = self.conns[a].link {
            conns.extend([self.links[link].source, self.links[link].receiver]);
        }
        conns.sort_unstable();
        conns.dedup();
        for conn in &conns {
            self.conns[*conn].own.abort(self.now);
        }
        for conn in &conns {
            self.flush(*conn);
        }
        for conn in conns {
            if let Some(link) = self.conns[conn].link {
                self.unlink(link);
            }
            let word = &mut self.conns[conn].word;
            *word = word::with_mode(*word, mode::DEAD);
        }
        self.release_round(i, round);
        self.clients[i].faulted |= self.plan.sessions[i].half_closes && !self.plan.half_closed;
    }

    pub(crate) fn release(&mut self, link: usize) {
        let a = self.links[link].receiver;
        let i = self.users.iter().position(|user| user.a == a).expect("a session");
        *self.released.entry((i, self.users[i].round)).or_default() += 1;
    }

    /// Releases the round's ticket if it was taken and nobody else has.
    fn release_round(&mut self, i: usize, round: usize) {
        if self.users[i].tickets == round + 1 {
            self.released.entry((i, round)).or_insert(1);
        }
    }

    fn user(&mut self, i: usize) {
        let a = self.users[i].a;
        if self.users[i].is_over() {
            // It lingers until the client has closed as well.
            self.conns[a].own.read(usize::MAX, self.now);
            if self.conns[a].link.is_none() && self.conns[a].own.peer_closed {
                self.conns[a].own.shut();
            }
            return;
        }
        if self.conns[a].own.gone.is_some() {
            return self.abort(i);
        }
        if let Some(b) = self.users[i].b
            && self.conns[b].own.gone.is_some()
        {
            return self.abort(i);
        }
        match self.users[i].step.clone() {
            Step::Idle => self.idle(i),
            Step::Relay(relay) => self.relay(i, relay),
            Step::Over => {}
        }
    }

    fn idle(&mut self, i: usize) {
        let a = self.users[i].a;
        let own = &mut self.conns[a].own;
        if own.readable() == 0 {
            if own.peer_closed || self.users[i].shut {
                own.shut();
                self.users[i].step = Step::Over;
            }
            return;
        }
        let idle: Vec<usize> = self
            .servers
            .iter()
            .filter(|server| !server.retired)
            .map(|server| server.conn)
            .filter(|conn| {
                let conn_ = &self.conns[*conn];
                let own = &conn_.own;
                conn_.link.is_none() && !self.busy(*conn) && !own.told() && !own.is_shut()
            })
            .collect();
        let pick = self.random.below(idle.len() as u64 + 1) as usize;
        let b = match idle.get(pick.min(idle.len().saturating_sub(1))) {
            Some(conn) => *conn,
            None => {
                let (host, delay) = (self.plan.server, self.plan.server_delay);
                let conn = self.connect("S", host, delay, self.plan.gateway[1]);
                self.servers.push(Server::new(conn));
                conn
            }
        };
        self.users[i].b = Some(b);
        self.users[i].tickets += 1;
        self.begin(i, false, a, b);
    }

    fn message(&self, i: usize, response: bool) -> &Message {
        let round = &self.plan.sessions[i].rounds[self.users[i].round];
        if response { &round.response } else { &round.request }
    }

    fn begin(&mut self, i: usize, response: bool, from: usize, to: usize) {
        let message = self.message(i, response);
        let framing = match message.end {
            End::Length => Framing::length(message.body as u64),
            End::Chunked => Framing::chunked(),
            End::Close => Framing::until_close(),
        };
        let left = match message.end {
            End::Close => usize::MAX,
            _ => self.messages[i][self.users[i].round][usize::from(response)].len(),
        };
        let relay = Relay {
            response,
            from,
            to,
            left,
            head_left: HEAD,
            framing,
            flow: Flow::Copying,
            stop_at: None,
        };
        self.users[i].step = Step::Relay(relay);
    }

    fn relay(&mut self, i: usize, mut relay: Relay) {
        match relay.flow {
            Flow::Copying => return self.copy(i, relay),
            Flow::Prepared(link, expected, live) => {
                if self.conns[relay.from].word == expected {
                    self.go_live(i, &mut relay, link, live);
                } else {
                    self.unlink(link);
                    relay.flow = Flow::Copying;
                }
            }
            Flow::Live(link) => return self.live(i, relay, link),
        }
        self.users[i].step = Step::Relay(relay);
    }

    fn go_live(&mut self, i: usize, relay: &mut Relay, link: usize, live: u64) {
        self.conns[relay.from].word = live;
        relay.flow = Flow::Live(link);
        self.seen.note("spliced");
        let room = self.plan.gateway[usize::from(relay.response)].room;
        if room > 0 && self.random.below(4) > 0 {
            self.seen.note("widened");
            let own = &mut self.conns[relay.from].own;
            own.widen(room);
            let room = room.min(65_535 << own.set.scale);
            let mut pair = self.pair(link);
            pair.widen(room as i64);
            self.store(link, &pair);
        }
        if !relay.response {
            self.seen.note("requests spliced");
        }
        let stop = self.message(i, relay.response).stop;
        if stop > 0 && !self.users[i].shut && self.random.below(2) == 0 {
            relay.stop_at = Some(self.now + self.random.below(stop));
        }
        let (received, sent) = (self.conns[relay.from].received, self.conns[relay.to].sent);
        self.conns[relay.from].range =
            Some((received, u64::MAX, relay.to, sent as i64 - received as i64));
        let age = self.message(i, relay.response).age << 30;
        if age > 0 && self.conns[relay.to].own.drained() {
            self.seen.note("aged");
            self.age(link, age);
        }
    }

    /// As if the splice had spliced a lot already: nothing is under way of what is below.
    fn age(&mut self, link: usize, bytes: u64) {
        let mut pair = self.pair(link);
        let moved = bytes as u32;
        let splice = &mut pair.splice;
        splice.forwarded += bytes;
        splice.acked += bytes;
        splice.parsed += bytes;
        if splice.length != UNKNOWN && splice.length != UNTIL_CLOSE {
            splice.length += bytes;
        }
        splice.edge += bytes as i64;
        splice.promised += bytes as i64;
        splice.h = splice.h.wrapping_sub(moved);
        splice.a = splice.a.wrapping_sub(moved);
        pair.source.rx = pair.source.rx.wrapping_sub(moved);
        pair.receiver.tx = pair.receiver.tx.wrapping_sub(moved);
        self.store(link, &pair);
        self.links[link].aged = bytes;
    }

    fn copy(&mut self, i: usize, mut relay: Relay) {
        let Relay { response, from, to, .. } = relay;
        // Nothing is written while what was spliced is not acknowledged, unless it was taken back.
        let free = match self.conns[to].link {
            None => true,
            Some(link) => self.links[link].receiver == to && relay.head_left < HEAD,
        };
        if !free {
            return;
        }
        if self.conns[to].own.is_shut() {
            return self.abort(i);
        }
        if response && relay.head_left == HEAD && self.conns[from].own.readable() > 0 {
            self.conns[to].own.write(&[b'+'; ADDED]);
            self.conns[to].sent += ADDED as u64;
        }
        let most = 1 + self.random.below(1500) as usize;
        let bytes = self.conns[from].own.read(most.min(relay.left), self.now);
        // A kernel tells of the room at once.
        self.flush(from);
        self.conns[to].own.write(&bytes);
        self.conns[from].received += bytes.len() as u64;
        self.conns[to].sent += bytes.len() as u64;
        let head = relay.head_left.min(bytes.len());
        relay.head_left -= head;
        assert_eq!(relay.framing.advance(&bytes[head..]), Ok(bytes.len() - head));
        if relay.left != usize::MAX {
            relay.left -= bytes.len();
        }
        let own = &self.conns[from].own;
        let drained = own.readable() == 0;
        if relay.left == 0 || relay.left == usize::MAX && own.peer_closed && drained {
            return self.finish(i, &relay);
        }
        if own.peer_closed && drained {
            return self.abort(i);
        }
        if response && self.conns[to].own.peer_closed && !self.plan.half_closed {
            return self.abort(i);
        }
        let early = !response && self.conns[to].own.readable() > 0;
        let ready = self.message(i, response).spliced
            && relay.head_left == 0
            && drained
            && !early
            && own.drained()
            && !self.conns[to].own.peer_closed
            && self.conns[from].link.is_none()
            && self.conns[to].link.is_none()
            && self.agree(from, to);
        if ready && self.random.below(3) > 0 {
            self.prepare(i, &mut relay);
        }
        self.users[i].step = Step::Relay(relay);
    }

    /// What the two connections have negotiated.
    fn agree(&self, from: usize, to: usize) -> bool {
        let (source, receiver) = (&self.conns[from].own.set, &self.conns[to].own.set);
        source.timestamps == receiver.timestamps
            && (source.sack || !receiver.sack)
            && (receiver.ecn || !source.ecn)
            && source.mss <= receiver.mss
    }

    fn prepare(&mut self, i: usize, relay: &mut Relay) {
        // From user space's own counts, as the gateway will have them.
        let (from, to) = (&self.conns[relay.from], &self.conns[relay.to]);
        let h = from.peer_first.wrapping_add(from.received as u32);
        let a = to.own_first.wrapping_add(to.sent as u32);
        let length = match self.message(i, relay.response).end {
            End::Length => relay.left as u64,
            End::Chunked => UNKNOWN,
            End::Close => UNTIL_CLOSE,
        };
        let link = self.links.len();
        self.links.push(Link {
            source: relay.from,
            receiver: relay.to,
            splice: Splice::NONE,
            aged: 0,
            ended: false,
            quiet: false,
            ticket: relay.response,
            halted: false,
        });
        let mut pair = self.pair(link);
        match pair.prepare(h, a, length, relay.framing) {
            Ok((expected, live)) => {
                self.store(link, &pair);
                self.conns[relay.from].link = Some(link);
                self.conns[relay.to].link = Some(link);
                relay.flow = Flow::Prepared(link, expected, live);
            }
            Err(refusal) => self.seen.note(format!("refused: {refusal:?}")),
        }
    }

    fn live(&mut self, i: usize, mut relay: Relay, link: usize) {
        let Relay { response, from, to, .. } = relay;
        if self.links[link].ended {
            self.account(&mut relay, link);
            assert_eq!(relay.left, 0, "the end is where the body ends");
            return self.finish(i, &relay);
        }
        if self.links[link].halted {
            self.taken_back(&mut relay, link);
            return self.users[i].step = Step::Relay(relay);
        }
        if self.conns[from].own.peer_closed {
            if relay.left != usize::MAX {
                return self.abort(i);
            }
            self.stop(&mut relay, link);
            return self.finish(i, &relay);
        }
        let receiver = &self.conns[to].own;
        if receiver.peer_closed && (!response || !self.plan.half_closed) {
            return self.abort(i);
        }
        let early = !response && receiver.readable() > 0;
        // Unless nothing can be written any more.
        if !self.users[i].shut && (early || relay.stop_at.is_some_and(|at| at <= self.now)) {
            self.stop(&mut relay, link);
        }
        self.users[i].step = Step::Relay(relay);
    }

    /// Counts what was spliced.
    fn account(&mut self, relay: &mut Relay, link: usize) {
        let spliced = self.spliced(link);
        self.conns[relay.from].received += spliced;
        self.conns[relay.to].sent += spliced;
        if relay.left != usize::MAX {
            relay.left -= spliced as usize;
        }
        relay.framing = if relay.framing.is_length() {
            Framing::length(relay.left as u64)
        } else {
            self.links[link].splice.framing
        };
    }

    /// User space takes back: what follows goes through the sockets.
    fn stop(&mut self, relay: &mut Relay, link: usize) {
        let mut pair = self.pair(link);
        assert!(pair.stop());
        self.store(link, &pair);
        self.seen.note("stopped");
        self.taken_back(relay, link);
    }

    /// A part of the body was spliced.
    fn taken_back(&mut self, relay: &mut Relay, link: usize) {
        let pair = self.pair(link);
        self.close_range(link);
        self.account(relay, link);
        if pair.mode() == mode::PASS {
            self.seen.note("drained");
            self.links[link].quiet = true;
        }
        relay.stop_at = None;
        relay.flow = Flow::Copying;
    }

    fn finish(&mut self, i: usize, relay: &Relay) {
        let round = self.users[i].round;
        if !relay.response {
            return self.begin(i, true, relay.to, relay.from);
        }
        self.release_round(i, round);
        let closed = self.message(i, true).end == End::Close;
        let Round { closes, surplus, .. } = self.plan.sessions[i].rounds[round];
        if (closes || surplus > 0)
            && let Some(server) = self.servers.iter_mut().find(|s| s.conn == relay.from)
        {
            // The head has said so.
            server.retired = true;
        }
        let user = &mut self.users[i];
        // It is back in the pool once it is not linked any more.
        user.b = None;
        user.begun = self.now;
        user.step = Step::Idle;
        user.round += 1;
        if closed || user.shut {
            user.step = Step::Over;
            self.conns[relay.to].own.shut();
        }
    }
}
