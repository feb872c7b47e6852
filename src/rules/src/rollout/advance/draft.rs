//! What a rollout writes: records, OverridePolicy and reports. In `advance` only `roll` changes it; `plan` limits it afterwards.

use std::time::Duration;

use crate::rollout::{override_rules::Overrides, steps::Steps, stuck::Stuck};
use mczk_api::{
    multiclusterzookeeper::{Record, RecordStatus},
    zookeeper::ZooKeeperSpec,
};

/// What a rollout writes.
pub(in crate::rollout) struct Draft {
    pub(in crate::rollout) records: Vec<Record>,
    pub(in crate::rollout) overrides: Overrides,
    /// Why the last record cannot move, until a cluster or a new record starts.
    pub(in crate::rollout) stuck: Option<Stuck>,
    pub(in crate::rollout) steps: Steps,
    pub(in crate::rollout) requeue_after: Option<Duration>,
}

impl Draft {
    /// True if the last record is deploying.
    pub(super) fn is_deploying(&self) -> bool {
        self.records.last().is_some_and(|record| record.status == RecordStatus::Deploying)
    }

    /// The specs of some clusters.
    pub(super) fn assign(&mut self, specs: impl IntoIterator<Item = (String, ZooKeeperSpec)>) {
        self.overrides.cluster_specs.extend(specs);
    }

    /// Decides again after this many seconds at the latest.
    pub(super) fn requeue_in(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1));
        self.requeue_after = Some(self.requeue_after.map_or(wait, |w| w.min(wait)));
    }
}
