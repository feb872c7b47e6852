//! Whether a record starts, and in which order.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::multiclusterzookeeper::{Record, RecordStatus, RolloutOrder},
    mutation::broken,
    rollout::{
        advance::pass::Pass,
        override_rules::Overrides,
        record::{self, Rank, RecordInputs, Start},
    },
};

impl Pass<'_> {
    /// Appends a record, or moves the generations of the last one, if that is due.
    pub(super) fn start_record(
        &mut self,
        records: &mut Vec<Record>,
        scheduled: &[String],
        changes: bool,
        overrides: &Overrides,
    ) {
        // Records without a server list are those of a former incarnation.
        let is_first = overrides.ensemble.servers.is_empty();
        let inputs = RecordInputs {
            generations: self.generations,
            scheduled,
            changes,
            stuck: self.stuck.is_some() || self.changes_completed(records, overrides),
        };
        match record::start(records.last().filter(|_| !is_first), &inputs) {
            Start::Continue => {}
            Start::Unchanged => {
                if let Some(last) = records.last_mut() {
                    last.observed_generations = self.generations;
                    last.last_transition_time = Time(self.now);
                }
            }
            Start::First | Start::NewGeneration | Start::Superseded | Start::Rescheduled | Start::ClusterGone => {
                let unfinished = records.last().filter(|_| !is_first);
                let order = self.order(scheduled, unfinished);
                self.stuck = None;
                records.push(record::new(self.generations, order, self.now));
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
    fn order(&self, scheduled: &[String], last: Option<&Record>) -> Vec<String> {
        let deploying = last
            .filter(|last| last.status == RecordStatus::Deploying)
            .and_then(|last| last.current_state.deploying.first());
        let stuck_at =
            deploying.or_else(|| self.stuck.as_ref().map(|stuck| &stuck.cluster)).filter(|_| !broken!(BeginElsewhere));
        let listed = (self.rollout.order == Some(RolloutOrder::Listed)).then_some(self.rollout.clusters.as_slice());
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
