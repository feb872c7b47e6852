//! One step of the end of an ensemble.

use crate::rollout::{binding::Request, outcome::Objects};
use mczk_api::contract::{cause::Cause, conditions::Reason, tombstone::Tombstone};

/// What a step of the deletion decides while it waits.
pub(super) struct TeardownReport {
    /// What the step waits for.
    pub(super) cause: Cause,
    pub(super) objects: Objects,
    pub(super) tombstone: Option<Tombstone>,
    pub(super) request: Option<Request>,
}

impl TeardownReport {
    /// A step that waits and writes nothing.
    pub(super) fn waits(reason: Reason, message: impl Into<String>) -> Self {
        Self { cause: Cause::new(reason, message), objects: Objects::default(), tombstone: None, request: None }
    }
}
