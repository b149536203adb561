//! What is to be done with a packet, and what happened with it.

use super::packet::Packet;

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes nowhere.
    Drop,
    /// On its way, with these fields: to the socket at ingress, to the wire at egress.
    Pass(Packet),
    /// To the other peer.
    Forward(Packet),
    /// Back to the one who sent it, without payload.
    TurnRound(Packet),
    /// Both to the socket and, as a copy, to the other peer.
    Split {
        /// For the socket.
        socket: Packet,
        /// For the other peer.
        peer: Packet,
        /// The socket gets [`Packet::closed_window`] of its packet first: a smaller window that comes
        /// with nothing newly acknowledged is believed only after that.
        zero_window_first: bool,
    },
}

/// What happened, as bits.
pub mod event {
    /// The last byte was forwarded: the ticket is to be released.
    pub const ENDED: u8 = 1;
    /// Everything was acknowledged.
    pub const QUIET: u8 = 2;
    /// The source closed or reset its connection.
    pub const SOURCE_CLOSED: u8 = 4;
    /// The receiver closed or reset its connection.
    pub const RECEIVER_CLOSED: u8 = 8;
}

/// An [`Action`], and what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is to be done.
    pub action: Action,
    /// See [`event`].
    pub events: u8,
}

impl From<Action> for Verdict {
    #[inline(always)]
    fn from(action: Action) -> Self {
        Self { action, events: 0 }
    }
}

/// Which of an [`Outcome`]'s packets go where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Plan {
    /// As [`Action::Drop`].
    #[default]
    Drop,
    /// As [`Action::Pass`], with `socket`.
    Pass,
    /// As [`Action::Forward`], with `peer`.
    Forward,
    /// As [`Action::TurnRound`], with `socket`.
    TurnRound,
    /// As [`Action::Split`].
    Split,
    /// As [`Action::Split`], with the window of zero first.
    SplitAndQuiet,
}

/// A [`Verdict`] in a form that is written in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What is to be done.
    pub plan: Plan,
    /// See [`event`].
    pub events: u8,
    /// For the socket.
    pub socket: Packet,
    /// For the other peer.
    pub peer: Packet,
}

impl From<&Outcome> for Verdict {
    fn from(outcome: &Outcome) -> Self {
        let (socket, peer) = (outcome.socket, outcome.peer);
        let action = match outcome.plan {
            Plan::Drop => Action::Drop,
            Plan::Pass => Action::Pass(socket),
            Plan::Forward => Action::Forward(peer),
            Plan::TurnRound => Action::TurnRound(socket),
            Plan::Split => Action::Split { socket, peer, zero_window_first: false },
            Plan::SplitAndQuiet => Action::Split { socket, peer, zero_window_first: true },
        };
        Self { action, events: outcome.events }
    }
}

/// Which of the pair's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source's.
    Source,
    /// The receiver's.
    Receiver,
}
