//! Programs on the clients and the servers, and what goes wrong with them.

use router_ebpf::splice::{
    packet::{Packet, flag},
    state::mode,
};

use crate::{
    plan::{ADDED, End, Fault, HEAD, SURPLUS, What, When, Who},
    tcp::Time,
    world::World,
};

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) conn: usize,
    /// Requests that it has begun to send.
    pub(crate) begun: usize,
    to_write: Vec<u8>,
    next_write: Time,
    pub(crate) got: usize,
    stalled: Time,
    /// It is known to be cut short, by what it or others did.
    pub(crate) faulted: bool,
    pub(crate) done: bool,
}

impl Client {
    pub(crate) fn new(conn: usize) -> Self {
        Self {
            conn,
            begun: 0,
            to_write: Vec::new(),
            next_write: 0,
            got: 0,
            stalled: 0,
            faulted: false,
            done: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) conn: usize,
    got: Vec<u8>,
    exchange: Option<(usize, usize)>,
    answering: bool,
    to_write: Vec<u8>,
    next_write: Time,
    stalled: Time,
    silent: bool,
    /// The gateway will not use it again.
    pub(crate) retired: bool,
}

impl Server {
    pub(crate) fn new(conn: usize) -> Self {
        Self {
            conn,
            got: Vec::new(),
            exchange: None,
            answering: false,
            to_write: Vec::new(),
            next_write: 0,
            stalled: 0,
            silent: false,
            retired: false,
        }
    }
}

impl World {
    /// What a client receives, up to the end of its `round`'s response.
    fn until(&self, session: usize, rounds: usize) -> usize {
        self.messages[session][..rounds].iter().map(|m| ADDED + m[1].len()).sum()
    }

    fn expected(&self, session: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for [_, response] in &self.messages[session] {
            out.extend([b'+'; ADDED]);
            out.extend(response);
        }
        out
    }

    /// Whether the bytes up to `at` end with a response, or before the first.
    fn boundary(&self, session: usize, at: usize) -> bool {
        (0..=self.messages[session].len()).any(|rounds| self.until(session, rounds) == at)
    }

    /// When a program of a peer will write or read again.
    pub(crate) fn next_write(&self) -> Time {
        let clients = self.clients.iter().map(|c| (c.next_write, c.to_write.len(), c.stalled));
        let servers = self.servers.iter().map(|s| (s.next_write, s.to_write.len(), s.stalled));
        let times = clients.chain(servers).flat_map(|(write, left, stalled)| {
            let write = if left > 0 { write } else { Time::MAX };
            [write, if stalled > self.now { stalled } else { Time::MAX }]
        });
        times.min().unwrap_or(Time::MAX)
    }

    pub(crate) fn peers(&mut self) {
        for i in 0..self.clients.len() {
            self.client(i);
        }
        for i in 0..self.servers.len() {
            self.server(i);
        }
    }

    fn pause(&mut self, stalls: Time) -> Time {
        if stalls > 0 && self.random.below(100) == 0 {
            self.now + self.random.below(stalls)
        } else {
            0
        }
    }

    fn client(&mut self, i: usize) {
        let host = self.plan.sessions[i].client;
        let conn = self.clients[i].conn;
        if self.now < self.clients[i].stalled {
            return;
        }
        self.clients[i].stalled = self.pause(host.stalls);
        let bytes = self.conns[conn].peer.read(host.reads, self.now);
        if !bytes.is_empty() {
            self.active = self.now;
            let got = self.clients[i].got;
            let expected = self.expected(i);
            let expected = expected.get(got..got + bytes.len());
            assert_eq!(Some(&bytes[..]), expected, "the client's bytes at {got}");
            self.clients[i].got += bytes.len();
        }
        let got = self.clients[i].got;
        let rounds = self.messages[i].len();
        let peer = &mut self.conns[conn].peer;
        if peer.gone.is_some() {
            self.clients[i].done = !peer.is_opening();
            return;
        }
        if peer.peer_closed && peer.readable() == 0 {
            if !self.clients[i].done {
                let cut_short = self.plan.sessions[i].fault.is_some_and(|f| f.who == Who::Server)
                    && self.plan.sessions[i].rounds[rounds - 1].response.end == End::Close
                    && got > self.until(i, rounds - 1);
                assert!(
                    cut_short || self.boundary(i, got),
                    "a clean end after {got} of {}",
                    self.expected(i).len()
                );
            }
            self.clients[i].done = true;
            return self.conns[conn].peer.close(self.now);
        }
        let begun = self.clients[i].begun;
        if begun < rounds && self.clients[i].to_write.is_empty() {
            let early = self.plan.sessions[i].rounds[begun].pipelined && begun > 0;
            let soon = begun > 0 && got > self.until(i, begun - 1) + ADDED + HEAD + 200;
            if got >= self.until(i, begun) || early && soon {
                self.clients[i].to_write = self.messages[i][begun][0].clone();
                self.clients[i].begun += 1;
            }
        }
        if !self.clients[i].to_write.is_empty() && self.now >= self.clients[i].next_write {
            let message = &self.plan.sessions[i].rounds[self.clients[i].begun - 1].request;
            let (pause, most) = (message.pause, message.write);
            let n = 1 + self.random.below(most as u64) as usize;
            let n = n.min(self.clients[i].to_write.len());
            let part: Vec<u8> = self.clients[i].to_write.drain(..n).collect();
            self.conns[conn].peer.write(&part);
            self.clients[i].next_write = self.now + self.random.below(pause);
        }
        let asked = self.clients[i].begun == rounds && self.clients[i].to_write.is_empty();
        if asked && (self.plan.sessions[i].half_closes || got == self.until(i, rounds)) {
            self.conns[conn].peer.shut();
        }
    }

    fn server(&mut self, i: usize) {
        let conn = self.servers[i].conn;
        if self.now < self.servers[i].stalled || self.conns[conn].peer.gone.is_some() {
            return;
        }
        let host = self.plan.server;
        self.servers[i].stalled = self.pause(host.stalls);
        // One request after the other.
        let (now, server) = (self.now, &mut self.servers[i]);
        let wanted = match server.exchange {
            Some((s, r)) => self.messages[s][r][0].len(),
            None => HEAD,
        } - server.got.len();
        let bytes = self.conns[conn].peer.read(host.reads.min(wanted), now);
        if !bytes.is_empty() {
            self.active = now;
        }
        server.got.extend(bytes);
        if server.exchange.is_none() && server.got.len() == HEAD {
            server.exchange = Some((server.got[0] as usize, server.got[1] as usize));
        }
        if let Some((s, r)) = server.exchange {
            let request = &self.messages[s][r][0];
            assert_eq!(server.got, request[..server.got.len()], "the server's bytes");
            let round = &self.plan.sessions[s].rounds[r];
            if !server.answering && server.got.len() + round.early >= request.len() {
                server.answering = true;
                server.to_write.clone_from(&self.messages[s][r][1]);
                server.to_write.extend(std::iter::repeat_n(SURPLUS, round.surplus));
                server.next_write = now + self.random.below(20);
            }
            if server.answering && !server.to_write.is_empty() && now >= server.next_write {
                let (pause, most) = (round.response.pause, round.response.write);
                let n = (1 + self.random.below(most as u64) as usize).min(server.to_write.len());
                let part: Vec<u8> = server.to_write.drain(..n).collect();
                if !server.silent {
                    self.conns[conn].peer.write(&part);
                }
                server.next_write = now + self.random.below(pause);
            }
            if server.answering && server.to_write.is_empty() && server.got.len() == request.len() {
                let closes = round.closes;
                let Server { silent, retired, .. } = *server;
                *server = Server { silent, retired, ..Server::new(conn) };
                if closes {
                    self.conns[conn].peer.close(now);
                }
            }
        }
        let server = &self.servers[i];
        let peer = &mut self.conns[conn].peer;
        if peer.peer_closed && peer.readable() == 0 && !server.answering {
            peer.close(now);
        }
    }

    pub(crate) fn faults(&mut self) {
        for i in 0..self.users.len() {
            if let Some(fault) = self.plan.sessions[i].fault
                && self.users[i].round == fault.round
                && !self.users[i].faulted
                && self.due(i, fault.when)
            {
                self.users[i].faulted = true;
                self.fault(i, fault);
            }
        }
    }

    fn due(&self, session: usize, when: When) -> bool {
        let user = &self.users[session];
        let link = self.conns[user.a].link.map(|link| (self.pair(link).mode(), &self.links[link]));
        match (when, link) {
            (When::Time(after), _) => self.now >= user.begun + after,
            (When::Live(bytes), Some((mode::LIVE, link))) => {
                link.splice.forwarded - link.aged >= bytes
            }
            (When::Drain, Some((mode::DRAIN, _))) => true,
            (When::Quiet, Some((mode::PASS, link))) => link.quiet,
            _ => false,
        }
    }

    fn fault(&mut self, session: usize, fault: Fault) {
        let a = self.users[session].a;
        let link = self.conns[a].link;
        let mode = match link {
            Some(link) if self.links[link].quiet => "quiet",
            Some(link) => ["off", "live", "drain", "dead"][self.pair(link).mode() as usize],
            None => "off",
        };
        let b = link
            .map(|link| &self.links[link])
            .map(|link| if link.source == a { link.receiver } else { link.source })
            .or(self.users[session].b);
        let server_side = matches!(fault.who, Who::Server | Who::B);
        let Some(conn) = (if server_side { b } else { Some(a) }) else { return };
        self.seen.note(format!("{:?} {:?} {mode}", fault.who, fault.what));
        if fault.what == What::Forged {
            let seq = self.random.below(1 << 32) as u32;
            let timestamps = None;
            let head = Packet { seq, flags: flag::SYN, window: 9, timestamps, ..Packet::default() };
            return self.forge(conn, head);
        }
        // Or in the middle of a message, after taking back.
        let at_rest = matches!(mode, "off") || self.users[session].copies();
        self.clients[session].faulted = true;
        match fault.who {
            Who::A | Who::B => {
                if fault.what == What::Reset || fault.what == What::Reboot || at_rest {
                    self.abort(session);
                } else {
                    self.users[session].shut = true;
                    self.conns[conn].own.shut();
                }
            }
            Who::Client | Who::Server => {
                let number = self.random.below(1 << 32) as u32;
                let peer = &mut self.conns[conn].peer;
                match fault.what {
                    What::Shut => peer.shut(),
                    What::Close => peer.close(self.now),
                    What::Reset => peer.abort(self.now),
                    What::Reboot | What::Forged => peer.reboot(number),
                }
                if fault.who == Who::Client {
                    self.clients[session].to_write.clear();
                    self.clients[session].begun = self.messages[session].len();
                } else if let Some(server) = self.servers.iter_mut().find(|s| s.conn == conn) {
                    server.to_write.clear();
                    server.silent = true;
                }
            }
        }
    }

    /// Whether everybody has heard of the end.
    pub(crate) fn over(&self) -> bool {
        self.clients.iter().all(|client| client.done)
            && self.users.iter().all(|user| user.is_over())
            && self.conns.iter().all(|conn| {
                let peer = &conn.peer;
                peer.told() && !peer.is_opening() && conn.own.told() && conn.link.is_none()
            })
    }

    pub(crate) fn verify(&mut self) {
        for (i, client) in self.clients.iter().enumerate() {
            if !client.faulted {
                let rounds = self.messages[i].len();
                assert_eq!(client.got, self.until(i, rounds), "session {i} is complete");
            }
        }
        for ((session, round), times) in &self.released {
            assert_eq!(*times, 1, "ticket of session {session}, round {round}");
        }
        let tickets: usize = self.users.iter().map(|user| user.tickets).sum();
        assert_eq!(self.released.len(), tickets, "each ticket is released");
        self.seen.counts.insert("time".into(), self.now);
        let slowed = self.conns.iter().filter(|c| c.peer.name == "S").map(|c| c.peer.slowdowns);
        let slowed = u64::from(slowed.sum::<u32>());
        *self.seen.counts.entry("slowdowns".into()).or_default() += slowed;
    }
}
