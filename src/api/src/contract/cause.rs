//! Why something does not move, or how it is: the reason and the message of a condition.

use super::conditions::Reason;

/// The reason and the message of a condition. A rule names both at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Reason of the condition.
    pub reason: Reason,
    /// State, cause and what a user can do.
    pub message: String,
}

impl Cause {
    /// A cause.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
