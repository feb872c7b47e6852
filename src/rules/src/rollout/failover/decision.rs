//! Where the voters of each cluster shall be, as one pass decides it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use mczk_api::contract::cause::Cause;

/// Where the voters of each cluster shall be, and what stands against it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::rollout) struct FailoverDecision {
    /// The spare of each home whose voters shall not be there.
    pub(in crate::rollout) moved: BTreeMap<String, String>,
    /// The cluster that has the listed voters of each home.
    pub(in crate::rollout) seats: BTreeMap<String, String>,
    /// As in [`ClusterSelection::outdated_request`].
    pub(in crate::rollout) outdated_request: Option<String>,
    /// When each home got its place that is at a spare, or that the server list does not name yet.
    pub(in crate::rollout) moved_since: BTreeMap<String, Timestamp>,
    /// Since when Karmada has not reached each home, and none of its voters has followed.
    pub(in crate::rollout) lost_since: BTreeMap<String, Timestamp>,
    /// Since when each home is Ready whose voters are at a spare.
    pub(in crate::rollout) ready_since: BTreeMap<String, Timestamp>,
    /// Why the annotation is not followed.
    pub(in crate::rollout) refused: Option<String>,
    /// What stands against moves that are due.
    pub(in crate::rollout) waits: Vec<String>,
    /// When the voters of lost clusters move.
    pub(in crate::rollout) lost: Vec<String>,
    /// Why each spare that holds no voters could hold none now, or what is not known of it.
    pub(in crate::rollout) spares: BTreeMap<String, Option<Cause>>,
    /// The homes that the annotation names.
    pub(in crate::rollout) requested: BTreeSet<String>,
    /// Seconds until a time that is running ends.
    due_in: Option<i64>,
}

impl FailoverDecision {
    /// Time until one that is running ends.
    pub(in crate::rollout) fn requeue_after(&self) -> Option<Duration> {
        self.due_in.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
    }

    pub(super) fn requeue_in(&mut self, seconds: i64) {
        self.due_in = self.due_in.into_iter().chain([seconds]).min();
    }
}
