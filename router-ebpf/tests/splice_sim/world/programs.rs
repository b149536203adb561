//! The programs on the gateway's interfaces.

use router_ebpf::splice::{
    packet::flag,
    seq,
    state::{Look, Pair, UNKNOWN, mode, word},
    translate,
    verdict::{Action, Side, Verdict, event},
};

use super::{Conn, Link, Segment, To, World};

impl World {
    /// The pair of a link, as the programs see it.
    pub(crate) fn pair(&self, link: usize) -> Pair {
        let Link { source, receiver, splice, .. } = &self.links[link];
        let (source, receiver) = (&self.conns[*source], &self.conns[*receiver]);
        let mut pair = Pair::new(source.socket, receiver.socket, 1, 0);
        pair.word = source.word;
        pair.splice = *splice;
        pair
    }

    pub(crate) fn store(&mut self, link: usize, pair: &Pair) {
        let Link { source, receiver, .. } = self.links[link];
        self.links[link].splice = pair.splice;
        self.conns[source].word = pair.word;
        self.conns[source].socket = pair.source;
        self.conns[receiver].socket = pair.receiver;
    }

    pub(super) fn ingress(&mut self, conn: usize, segment: &Segment) {
        let Some(link) = self.conns[conn].link else {
            let Conn { own, word, socket, .. } = &mut self.conns[conn];
            let syn = segment.head.flags & flag::SYN != 0;
            if syn && own.gone.is_some() {
                // Closed: the entry gives way to a new connection.
                *word = word::with_mode(*word, mode::DEAD);
            }
            if syn || word::mode(*word) == mode::DEAD {
                // A socket answers a SYN, whatever its number.
                return self.deliver(conn, segment.clone());
            }
            *word = word::passed(*word, segment.head.end());
            let head = translate::ingress_at_rest(socket, &segment.head);
            return self.deliver(conn, Self::shaped(segment, head));
        };
        let from_source = self.links[link].source == conn;
        let mut pair = self.pair(link);
        let verdict = if from_source {
            self.look(link, &mut pair, segment);
            self.store(link, &pair);
            if self.links[link].halted {
                self.close_range(link);
            }
            translate::ingress_from_source(&mut pair, &segment.head)
        } else {
            translate::ingress_from_receiver(&mut pair, &segment.head)
        };
        self.store(link, &pair);
        if !from_source && matches!(verdict.action, Action::Pass(_) | Action::Split { .. }) {
            // The receiver's connection may be a source next.
            let word = &mut self.conns[conn].word;
            *word = word::passed(*word, segment.head.end());
        }
        self.apply(conn, link, verdict, segment);
    }

    /// Follows a body of unknown length.
    fn look(&mut self, link: usize, pair: &mut Pair, segment: &Segment) {
        let head = &segment.head;
        let data = head.len > 0 && head.flags & (flag::SYN | flag::RST) == 0;
        if pair.mode() != mode::LIVE || !data || !pair.accepts(head.ack) {
            return;
        }
        match pair.splice.look(head.seq, head.len) {
            Look::Known => {}
            Look::Hole => self.halt(link, pair, "holes"),
            Look::Parse(skip) => {
                let bytes = &segment.data[skip as usize..];
                let (mut at, mut steps) = (0, 0);
                let mut framing = pair.splice.framing;
                while at < bytes.len() && steps < self.plan.steps && !framing.is_done() {
                    if framing.in_payload() {
                        at += framing.skip((bytes.len() - at) as u64) as usize;
                    } else {
                        framing.step(bytes[at]);
                        at += 1;
                    }
                    steps += 1;
                    assert_eq!(framing.error(), None);
                }
                if framing.is_done() || at == bytes.len() {
                    pair.splice.framing = framing;
                    pair.splice.parse(at as u64);
                } else {
                    self.halt(link, pair, "too many chunks");
                }
            }
        }
    }

    /// The program takes back.
    fn halt(&mut self, link: usize, pair: &mut Pair, why: &str) {
        assert!(pair.stop());
        self.seen.note(why);
        self.links[link].halted = true;
    }

    fn apply(&mut self, conn: usize, link: usize, verdict: Verdict, segment: &Segment) {
        let Link { source, receiver, .. } = self.links[link];
        let other = if source == conn { receiver } else { source };
        if verdict.events & event::ENDED != 0 {
            self.ended(link);
        }
        match verdict.action {
            Action::Drop => self.seen.note("dropped"),
            Action::Pass(head) => self.deliver(conn, Self::shaped(segment, head)),
            Action::Forward(head) => {
                self.seen.note("forwarded");
                self.transmit(To::Peer(other), Self::shaped(segment, head));
            }
            Action::TurnRound(head) => {
                self.seen.note("turned");
                self.transmit(To::Peer(conn), Self::shaped(segment, head));
            }
            Action::Split { socket, peer, zero_window_first } => {
                self.seen.note("split");
                self.transmit(To::Peer(other), Self::shaped(segment, peer));
                if zero_window_first && self.plan.both {
                    self.deliver(conn, Self::shaped(segment, socket.closed_window()));
                }
                self.deliver(conn, Self::shaped(segment, socket));
            }
        }
        if verdict.events & event::QUIET != 0 {
            self.seen.note("drained");
            self.links[link].quiet = true;
            self.check_end(link);
        }
    }

    pub(crate) fn ended(&mut self, link: usize) {
        self.check_end(link);
        self.links[link].ended = true;
        self.close_range(link);
        if self.links[link].ticket {
            self.links[link].ticket = false;
            self.release(link);
        }
    }

    /// The sockets and the offsets meet behind the spliced range.
    pub(crate) fn check_end(&self, link: usize) {
        let Link { source, receiver, splice, .. } = &self.links[link];
        let (source, receiver) = (&self.conns[*source], &self.conns[*receiver]);
        let end = splice.h.wrapping_add(splice.length as u32);
        if !source.own.told() {
            let next = source.own.receive_number(source.own.rcv).wrapping_add(source.socket.rx);
            // What follows may have come.
            let behind = seq::distance(end, next);
            assert!((0..1 << 20).contains(&behind), "{behind}");
        }
        let behind = splice.a.wrapping_add(splice.length as u32);
        assert_eq!(splice.a_socket.wrapping_add(receiver.socket.tx), behind);
    }

    /// The link's range has an end, which is known now.
    pub(crate) fn close_range(&mut self, link: usize) {
        let spliced = self.spliced(link);
        let source = self.links[link].source;
        let (from, to, ..) = self.conns[source].range.as_mut().expect("a range");
        *to = *from + spliced;
    }

    /// Bytes that a link has spliced, once it has ended.
    pub(crate) fn spliced(&self, link: usize) -> u64 {
        assert_ne!(self.links[link].splice.length, UNKNOWN);
        self.links[link].splice.length - self.links[link].aged
    }

    fn deliver(&mut self, conn: usize, segment: Segment) {
        self.note(|| {
            format!("     deliver to socket {conn} {}", self.show(conn, true, true, &segment.head))
        });
        self.conns[conn].own.receive(&segment, self.now);
    }

    pub(super) fn egress(&mut self, conn: usize, segment: &Segment) {
        let head = match self.conns[conn].link {
            None => {
                let Conn { word, socket, .. } = &mut self.conns[conn];
                if word::mode(*word) == mode::DEAD {
                    segment.head
                } else {
                    translate::egress_at_rest(socket, &segment.head)
                }
            }
            Some(link) => {
                let source = self.links[link].source == conn;
                let side = if source { Side::Source } else { Side::Receiver };
                let mut pair = self.pair(link);
                let action = translate::egress(&mut pair, side, &segment.head).action;
                self.store(link, &pair);
                match action {
                    Action::Pass(head) => head,
                    Action::Drop => return,
                    other => panic!("egress: {other:?}"),
                }
            }
        };
        self.transmit(To::Peer(conn), Self::shaped(segment, head));
    }
}
