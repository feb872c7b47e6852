//! Whether a record starts, and in which order.

use crate::rollout::{
    advance::{draft::Draft, inputs::Inputs},
    override_rules::Overrides,
    record::{self, Rank, RecordInputs, Start},
    stuck::Stuck,
};
use mczk_api::{multiclusterzookeeper::Record, mutation::broken};

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
            joins: last.is_some_and(|last| scheduled.iter().any(|cluster| self.joins(cluster, last, overrides))),
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

    /// True if a cluster gets its first servers by a list that is newer than the last record: its network was not checked when the
    /// record began.
    fn joins(&self, cluster: &String, last: &Record, overrides: &Overrides) -> bool {
        let is_listed = overrides.ensemble.servers.iter().any(|server| server.cluster == *cluster);
        let is_new = !last.order.contains(cluster) && !overrides.cluster_specs.contains_key(cluster);
        self.quorum.formed && is_listed && is_new && self.has_no_servers(cluster)
    }

    /// True if a cluster that the last record completed is due for another spec.
    fn changes_completed(&self, records: &[Record], overrides: &Overrides) -> bool {
        records.last().is_some_and(|last| {
            let mut completed = last.current_state.completed.iter();
            completed.any(|name| self.desired.contains_key(name) && !self.has_desired_spec(name, overrides))
        })
    }

    /// The order of a new record. It starts where the last record stands: a cluster that is half changed comes before any
    /// other (S1).
    fn order(&self, scheduled: &[String], last: Option<&Record>, stuck: Option<&Stuck>) -> Vec<String> {
        let stuck_at = record::stuck_at(last, stuck).filter(|_| !broken!(BeginElsewhere));
        let listed = record::listed(&self.known.rollout);
        record::order(scheduled, listed, !self.quorum.formed, |cluster| {
            let desired = self.desired.get(cluster).map(|desired| desired.replicas);
            let is_stuck = stuck_at == Some(cluster);
            Rank::of(self.known.reports.get(cluster), desired, self.quorum.leader, is_stuck)
        })
    }
}
