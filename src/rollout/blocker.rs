//! Why something does not move: a reason and a message of a condition.

use crate::contract::conditions::Reason;

/// Why something does not move, as a condition reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// Reason of the condition.
    pub(crate) reason: Reason,
    /// State, cause and what a user can do.
    pub(crate) message: String,
}

/// A blocker.
pub(crate) fn because(reason: Reason, message: impl Into<String>) -> Blocker {
    Blocker { reason, message: message.into() }
}
