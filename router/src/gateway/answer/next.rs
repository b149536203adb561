//! What becomes of a client's connection.

/// What happens to the client's connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Next {
    /// It reads its next request.
    KeepAlive,
    /// It is closed, after the client has had time to read the answer.
    Close,
    /// It is closed at once: the client left, or must see that its answer is incomplete.
    Drop,
    /// It is reset: a mere close would look like a complete answer.
    Reset,
}
