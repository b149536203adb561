//! Whether a request goes out again whose connection broke before a response began.
//!
//! A request must not be carried out twice. It may go out again if the instance cannot have begun with
//! it, or if its method says that twice is as good as once (RFC 9110 section 9.2.2).

use crate::{
    gateway::{read::Request, relay::Relay},
    http::Method,
};

/// What is known of a request whose connection broke before its response began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Whether the connection had been at rest in the pool.
    pooled: bool,
    /// Whether the instance's kernel has acknowledged a byte of the request. One that has not did not
    /// give its process any: the instance had closed the connection, or does not know it.
    ///
    /// There is one exception. A kernel may delay its acknowledgement for some 40 ms, and a process that
    /// resets the connection within that time may have read the request.
    acknowledged: bool,
    /// Whether a byte of a response came.
    answered: bool,
    /// Whether everything that was read of the request is still here.
    held: bool,
    idempotent: bool,
}

/// How to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    /// To the same instance, on a fresh connection.
    Anew,
    /// To another instance.
    Elsewhere,
    /// Not at all.
    Never,
}

impl Evidence {
    pub(super) fn of(request: &Request, relay: &Relay<'_>, pooled: bool) -> Self {
        Self {
            pooled,
            acknowledged: relay.is_acknowledged(),
            answered: relay.is_answered(),
            held: relay.holds_request(),
            idempotent: is_idempotent(request),
        }
    }

    /// The rule.
    pub(super) const fn resend(self) -> Resend {
        match self {
            Self { answered: true, .. } | Self { held: false, .. } => Resend::Never,
            // It is the connection that was stale, not the instance.
            Self { pooled: true, acknowledged: false, .. } => Resend::Anew,
            Self { pooled: true, idempotent: true, .. } => Resend::Anew,
            Self { pooled: false, acknowledged: false, .. } => Resend::Elsewhere,
            // A request that was read on a fresh connection may be what broke it: it is not for another
            // instance to try.
            Self { acknowledged: true, .. } => Resend::Never,
        }
    }
}

/// Whether the request's method is idempotent (RFC 9110 section 9.2.2).
pub(super) fn is_idempotent(request: &Request) -> bool {
    match request.head.method {
        Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete => true,
        Method::Other => request.head.method_bytes(request.raw()) == b"TRACE",
        Method::Post | Method::Patch | Method::Connect => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_out_again_only_if_nothing_can_be_done_twice() {
        use Resend::{Anew, Elsewhere, Never};
        #[rustfmt::skip]
        let table = [
            // pooled, acknowledged, idempotent
            (true,  false, false, Anew),
            (true,  false, true,  Anew),
            (true,  true,  false, Never),
            (true,  true,  true,  Anew),
            (false, false, false, Elsewhere),
            (false, false, true,  Elsewhere),
            (false, true,  false, Never),
            (false, true,  true,  Never),
        ];
        for (pooled, acknowledged, idempotent, expected) in table {
            let evidence =
                Evidence { pooled, acknowledged, idempotent, answered: false, held: true };
            assert_eq!(evidence.resend(), expected, "{evidence:?}");
            assert_eq!(Evidence { answered: true, ..evidence }.resend(), Never, "{evidence:?}");
            assert_eq!(Evidence { held: false, ..evidence }.resend(), Never, "{evidence:?}");
        }
    }
}
