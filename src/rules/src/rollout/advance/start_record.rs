//! Whether a record starts, and in which order.

use crate::rollout::{
    advance::{draft::Draft, inputs::Inputs},
    override_rules::Overrides,
    record::{self, Rank, RecordInputs, Start},
    stuck::Stuck,
};
use mczk_api::{
    multiclusterzookeeper::{Record, RecordStatus, RolloutOrder},
    mutation::broken,
};

/// How the records continue.
pub(super) enum NextRecord {
    /// With the last one.
    Same,
    /// With the last one, which is done, under the current generations.
    NewGenerations,
    /// With a new one.
    New(Record),
}

impl Inputs<'_> {
    /// The record that rolls out `changes`.
    pub(super) fn next_record(&self, draft: &Draft, scheduled: &[String], changes: bool) -> NextRecord {
        let Draft { records, overrides, stuck, .. } = draft;
        // Records without a server list are those of a former incarnation.
        let last = records.last().filter(|_| !overrides.ensemble.servers.is_empty());
        let generations = self.known.generations();
        let inputs = RecordInputs {
            generations,
            scheduled,
            changes,
            stuck: stuck.is_some() || self.changes_completed(records, overrides),
        };
        match record::start(last, &inputs) {
            Start::Continue => NextRecord::Same,
            Start::Unchanged => NextRecord::NewGenerations,
            Start::First | Start::NewGeneration | Start::Superseded | Start::Rescheduled | Start::ClusterGone => {
                let order = self.order(scheduled, last, stuck.as_ref());
                NextRecord::New(record::new(generations, order, self.known.now))
            }
        }
    }

    /// True if a cluster that the last record completed is due for another spec.
    fn changes_completed(&self, records: &[Record], overrides: &Overrides) -> bool {
        records.last().is_some_and(|last| {
            last.current_state.completed.iter().any(|cluster| {
                let current = overrides.cluster_specs.get(cluster).map(|spec| &spec.spec_hash);
                self.desired.get(cluster).is_some_and(|desired| current != Some(&desired.spec_hash))
            })
        })
    }

    /// The order of a new record. It starts where the last record stands: a cluster that is half changed comes before any
    /// other (S1).
    fn order(&self, scheduled: &[String], last: Option<&Record>, stuck: Option<&Stuck>) -> Vec<String> {
        let deploying = last
            .filter(|last| last.status == RecordStatus::Deploying)
            .and_then(|last| last.current_state.deploying.first());
        let stuck_at = deploying.or_else(|| stuck.map(|stuck| &stuck.cluster)).filter(|_| !broken!(BeginElsewhere));
        let listed =
            (self.known.rollout.order == Some(RolloutOrder::Listed)).then_some(self.known.rollout.clusters.as_slice());
        record::order(scheduled, listed, !self.quorum.formed, |cluster| {
            let status = self.last_status(cluster);
            let servers = status.map(|status| status.servers.as_slice()).unwrap_or_default();
            let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
            Rank {
                reachable: self.is_reachable(cluster),
                // A cluster that lacks servers comes early too: voters that join make room for voters that leave.
                healthy: !servers.is_empty()
                    && servers.iter().all(|server| server.serving)
                    && self.desired.get(cluster).is_none_or(|desired| ready >= desired.replicas),
                leader: self.quorum.leader.is_some_and(|id| servers.iter().any(|server| server.id == id)),
                stuck: stuck_at.map(String::as_str) == Some(cluster),
            }
        })
    }
}
