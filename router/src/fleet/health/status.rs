//! What speaks against an instance.

/// What speaks against an instance; nothing when it is [available](Self::available).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub(super) u32);

impl Status {
    pub(super) const DOWN: u32 = 1;
    pub(super) const EJECTED: u32 = 2;
    pub(super) const DRAINING: u32 = 4;
    pub(super) const REMOVED: u32 = 8;
    pub(super) const UNRESOLVED: u32 = 16;
    pub(super) const OVERLOADED: u32 = 32;
    pub(super) const SUSPECT: u32 = 64;
    const LOADING: u32 = 128;
    /// What does not keep requests from an instance, but sends them elsewhere first.
    const BUT_ABLE: u32 = Self::OVERLOADED | Self::SUSPECT;

    /// The same of one that is no longer in the configuration.
    pub(in crate::fleet) const fn removed(self) -> Self {
        Self(self.0 | Self::REMOVED)
    }

    /// The same of an adapter that its server has not loaded.
    pub(in crate::fleet) const fn not_loaded(self) -> Self {
        Self(self.0 | Self::LOADING)
    }

    /// Its server has not loaded it, whatever else is known.
    pub const fn loading(self) -> bool {
        self.0 & Self::LOADING != 0
    }

    /// It may get new requests.
    pub const fn available(self) -> bool {
        self.0 & !Self::BUT_ABLE == 0
    }

    /// Nothing speaks against it, or only that it is [suspect](Self::suspect), which leaves it a few
    /// requests.
    pub const fn preferred(self) -> bool {
        self.0 & !Self::SUSPECT == 0
    }

    /// It can be reached as far as is known, and is to get requests. That its requests failed
    /// lately says nothing against it here.
    pub const fn reachable(self) -> bool {
        self.0 & (Self::DOWN | Self::DRAINING | Self::REMOVED | Self::UNRESOLVED) == 0
    }

    /// Its health checks fail.
    pub const fn down(self) -> bool {
        self.0 & Self::DOWN != 0
    }

    /// Its requests failed, and it gets none for a while.
    pub const fn ejected(self) -> bool {
        self.0 & Self::EJECTED != 0
    }

    /// It said that it has more requests than it can take, and gets fewer for a moment.
    pub const fn overloaded(self) -> bool {
        self.0 & Self::OVERLOADED != 0
    }

    /// Requests wait for its first byte until their clients give up. It gets no more than
    /// [`TRIALS`](super::TRIALS) at the same time, until one is answered.
    pub const fn suspect(self) -> bool {
        self.0 & Self::SUSPECT != 0
    }

    /// It is to get no new requests, or is no longer in the configuration.
    pub const fn leaving(self) -> bool {
        self.0 & (Self::DRAINING | Self::REMOVED) != 0
    }

    /// Its host name has no known address.
    pub const fn unresolved(self) -> bool {
        self.0 & Self::UNRESOLVED != 0
    }

    /// The most important of all that speaks against it, or `up`.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            0 => "up",
            s if s & Self::REMOVED != 0 => "removed",
            s if s & Self::DRAINING != 0 => "draining",
            s if s & Self::UNRESOLVED != 0 => "unresolved",
            s if s & Self::DOWN != 0 => "down",
            s if s & Self::LOADING != 0 => "loading",
            s if s & Self::EJECTED != 0 => "ejected",
            s if s & Self::SUSPECT != 0 => "suspect",
            _ => "overloaded",
        }
    }
}
