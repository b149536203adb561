//! When a body is worth handing to the kernel.
//!
//! A hand-over costs some system calls, which a body must earn back. With splice a packet then costs a
//! fraction of a read and a write, which is earned back after some eight tokens. Nobody knows how many
//! there will be, but how many there were [lately](super::Lengths). With sockmap a packet costs a
//! kernel worker's wake-up, which is nowhere cheaper. So `auto` means splice, or user space; see
//! `docs/benchmarks.md` for the measurements.

use router_ebpf::framing::Framing;

use super::{
    Copier, Expect, HandoverPoint, Lengths,
    outcome::{Decline, HandoverEnd, TakeBack},
};
use crate::config::{Config, EngineMode};

/// What came of a body's hand-overs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Hand-overs that did not last: each makes the next one less likely to pay.
    short: u32,
    /// Body bytes that user space must have relayed before the next attempt.
    after: u64,
    /// Whether the source had sent on before the last attempt.
    outrun: bool,
}

impl Attempts {
    /// Hand-overs of one body that may be short before it stays in user space.
    const MAX_SHORT: u32 = 3;

    /// Bytes that make a hand-over worth its system calls, however it ended.
    const WORTHWHILE_BYTES: u64 = 256 * 1024;

    /// Makes no further attempt.
    pub fn give_up(&mut self) {
        self.short = u32::MAX;
    }

    /// Notes how an attempt ended, and how many bytes the kernel moved in it.
    ///
    /// After one that found unread bytes, those must be relayed first: another attempt without them
    /// would fail in the same way, and again, before the event loop ever gets to read them. And the next
    /// one comes before the receiver has them: it may be its answer that makes the source go on, at once.
    pub fn note(&mut self, end: &HandoverEnd, copier: &Copier, moved: u64) {
        self.wait(copier);
        self.outrun = *end == HandoverEnd::Declined(Decline::Unread);
        match end {
            HandoverEnd::Declined(
                Decline::Unread | Decline::Window | Decline::SendQueue | Decline::Unknown,
            ) => {}
            HandoverEnd::Declined(_)
            | HandoverEnd::TakenBack(
                TakeBack::Crossed
                | TakeBack::Malformed
                | TakeBack::NoTarget
                | TakeBack::Bypassed
                | TakeBack::Stalled,
            ) => {
                self.give_up();
            }
            // A lost packet says nothing about the body.
            HandoverEnd::TakenBack(TakeBack::Hole) => {}
            // A sender that is faster than its receiver runs into the backlog's limit every time, and
            // still costs less.
            _ if moved >= Self::WORTHWHILE_BYTES => {}
            _ => self.short = self.short.saturating_add(1),
        }
    }

    /// Makes no further attempt before more has been moved.
    pub fn wait(&mut self, copier: &Copier) {
        self.after = copier.bytes() + 1;
    }

    fn encourage(self, copier: &Copier) -> bool {
        self.short <= Self::MAX_SHORT && copier.bytes() >= self.after
    }
}

/// Decides, for a body under way, whether the kernel should move the rest.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Which engine the operator wants, where it works.
    pub mode: EngineMode,
    /// Body bytes left from which a hand-over pays.
    pub hand_over_from_bytes: u64,
    /// Reads of a body of unknown length after which splicing pays.
    pub hand_over_from_reads: u64,
}

impl Policy {
    /// As the configuration says, or what was `learned` of such bodies.
    pub fn of(config: &Config, learned: Option<u64>) -> Self {
        let crate::config::Engine { mode, hand_over_from_bytes, hand_over_from_reads, .. } =
            config.engine;
        let learned = learned.filter(|_| Self::learns(config));
        let hand_over_from_reads = learned.unwrap_or(hand_over_from_reads);
        Self { mode, hand_over_from_bytes, hand_over_from_reads }
    }

    /// Whether something is likely to be handed over in an exchange whose request body stands at `request`.
    pub fn expect(config: &Config, request: Framing, answers: &Lengths) -> Expect {
        let long = !request.is_length() || request.remaining >= config.engine.hand_over_from_bytes;
        match Self::learns(config) && (request.is_done() || !long) {
            true => answers.expect(),
            false => Expect::HandOver,
        }
    }

    /// Whether it makes use of what is learned. An engine that was asked for moves what it can.
    pub fn learns(config: &Config) -> bool {
        config.engine.mode == EngineMode::Auto && config.engine.learn_reads
    }

    /// Whether a response may be handed over before its first byte has come. Where a limit is 0 that is
    /// what was asked for; otherwise user space waits for that byte, whose time tells how long the
    /// instance took to begin.
    pub fn from_the_head(&self, framing: Framing) -> bool {
        match framing.is_length() || self.mode == EngineMode::Sockmap {
            true => self.hand_over_from_bytes == 0,
            false => self.hand_over_from_reads == 0,
        }
    }

    /// At which moment to hand over, if at all.
    pub fn hand_over(&self, copier: &Copier, attempts: Attempts) -> HandoverPoint {
        match self.pays(copier, attempts) {
            false => HandoverPoint::Never,
            true if attempts.outrun => HandoverPoint::HeldBack,
            true => HandoverPoint::Drained,
        }
    }

    fn pays(&self, copier: &Copier, attempts: Attempts) -> bool {
        if self.mode == EngineMode::Userspace || !attempts.encourage(copier) || copier.source_done()
        {
            return false;
        }
        // The kernel moves bytes as they are.
        if !copier.output().is_verbatim() {
            return false;
        }
        let framing = copier.framing();
        if framing.is_length() && framing.remaining < self.hand_over_from_bytes {
            return false;
        }
        framing.is_length()
            || match self.mode {
                EngineMode::Sockmap => copier.bytes() >= self.hand_over_from_bytes,
                _ => copier.reads() >= self.hand_over_from_reads,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Output;

    #[test]
    fn a_body_must_be_long_enough_and_not_given_up() {
        let fresh = Attempts::default();
        let mut given_up = fresh;
        given_up.give_up();
        let policy = Policy { mode: EngineMode::Sockmap, hand_over_from_bytes: 1000, ..AT_ONCE };
        assert!(policy.pays(&Copier::new(Framing::length(1000), Output::Verbatim), fresh));
        assert!(!policy.pays(&Copier::new(Framing::length(999), Output::Verbatim), fresh));
        assert!(!policy.pays(&Copier::new(Framing::chunked(), Output::Verbatim), fresh));
        assert!(!policy.pays(&Copier::new(Framing::length(1000), Output::Verbatim), given_up));
        let never = Policy { mode: EngineMode::Userspace, ..AT_ONCE };
        assert!(!never.pays(&Copier::new(Framing::length(1000), Output::Verbatim), fresh));
        let always = Policy { mode: EngineMode::Sockmap, ..AT_ONCE };
        assert!(always.pays(&Copier::new(Framing::chunked(), Output::Verbatim), fresh));
        assert!(!always.pays(&Copier::new(Framing::none(), Output::Verbatim), fresh));
        assert!(!always.pays(&Copier::new(Framing::chunked(), Output::Payload), fresh));
    }

    const AT_ONCE: Policy =
        Policy { mode: EngineMode::Auto, hand_over_from_bytes: 0, hand_over_from_reads: 0 };

    #[test]
    fn splice_takes_a_stream_by_its_reads() {
        for (mode, at_once) in
            [(EngineMode::Auto, true), (EngineMode::Splice, true), (EngineMode::Sockmap, false)]
        {
            let policy = Policy { mode, hand_over_from_bytes: 1000, hand_over_from_reads: 0 };
            let pays =
                |framing| policy.pays(&Copier::new(framing, Output::Verbatim), Attempts::default());
            assert_eq!(pays(Framing::chunked()), at_once, "{mode:?}");
            assert!(pays(Framing::length(1000)) && !pays(Framing::length(999)), "{mode:?}");
            let policy = Policy { hand_over_from_reads: 1, ..policy };
            let chunked = Copier::new(Framing::chunked(), Output::Verbatim);
            assert!(!policy.pays(&chunked, Attempts::default()), "{mode:?}: nothing was read yet");
        }
    }

    #[test]
    fn only_auto_makes_use_of_what_was_learned() {
        let mut config = Config::default();
        let reads = |config: &Config, learned| Policy::of(config, learned).hand_over_from_reads;
        assert_eq!([reads(&config, None), reads(&config, Some(16))], [4, 16]);
        config.engine.learn_reads = false;
        assert_eq!(reads(&config, Some(16)), 4);
        config.engine.learn_reads = true;
        for mode in [EngineMode::Splice, EngineMode::Sockmap, EngineMode::Userspace] {
            config.engine.mode = mode;
            assert_eq!(reads(&config, Some(16)), 4, "{mode:?}");
        }
    }

    #[test]
    fn a_long_request_makes_a_hand_over_likely_whatever_the_answers_were() {
        let config = Config::default();
        let answers = Lengths::default();
        (0..1_000).for_each(|_| answers.note_due(false));
        let expect = |config: &Config, request| Policy::expect(config, request, &answers);
        for (request, expected) in [
            (Framing::none(), Expect::Nothing),
            (Framing::length((64 << 10) - 1), Expect::Nothing),
            (Framing::length(64 << 10), Expect::HandOver),
            (Framing::chunked(), Expect::HandOver),
        ] {
            assert_eq!(expect(&config, request), expected, "{request:?}");
        }
        let mut splice = config.clone();
        splice.engine.mode = EngineMode::Splice;
        assert_eq!(expect(&splice, Framing::none()), Expect::HandOver);
        let mut fixed = config;
        fixed.engine.learn_reads = false;
        assert_eq!(expect(&fixed, Framing::none()), Expect::HandOver);
    }

    #[test]
    fn unread_bytes_are_carried_before_the_next_attempt() {
        let policy = Policy { mode: EngineMode::Sockmap, ..AT_ONCE };
        let copier = Copier::new(Framing::length(1000), Output::Verbatim);
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            attempts.note(&HandoverEnd::Declined(Decline::Unread), &copier, 0);
        }
        assert!(!policy.pays(&copier, attempts), "nothing has been moved since");
        attempts.after = copier.bytes();
        assert_eq!(
            policy.hand_over(&copier, attempts),
            HandoverPoint::HeldBack,
            "it is no reason to give up"
        );
        for _ in 0..100 {
            attempts.note(&HandoverEnd::TakenBack(TakeBack::Backlog), &copier, 1 << 20);
        }
        attempts.after = copier.bytes();
        assert!(policy.pays(&copier, attempts), "these were worth it");
        for _ in 0..100 {
            attempts.note(&HandoverEnd::TakenBack(TakeBack::Hole), &copier, 1000);
        }
        attempts.after = copier.bytes();
        assert!(policy.pays(&copier, attempts), "packets get lost");
        for _ in 0..=Attempts::MAX_SHORT {
            attempts.note(&HandoverEnd::TakenBack(TakeBack::Backlog), &copier, 1000);
        }
        attempts.after = copier.bytes();
        assert!(!policy.pays(&copier, attempts), "these were not");
        attempts = Attempts::default();
        attempts.note(&HandoverEnd::TakenBack(TakeBack::Crossed), &copier, 1 << 20);
        attempts.after = 0;
        assert!(!policy.pays(&copier, attempts));
    }
}
