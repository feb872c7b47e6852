//! Why something does not move: a reason and a message of a condition.

/// Why something does not move, as a condition reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Reason of the condition.
    pub reason: &'static str,
    /// State, cause and what a user can do.
    pub message: String,
}
