//! Whose resources these are, as ARNs have it.

/// The parts of an ARN that are the same for all resources of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Region, such as `us-east-1`.
    pub region: String,
    /// Account number, 12 digits.
    pub account: String,
}
