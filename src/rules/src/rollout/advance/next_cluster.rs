//! Which cluster starts next.

use crate::rollout::{
    advance::{
        clusters::{Move, RecordChange},
        inputs::Inputs,
    },
    cluster_spec,
    override_rules::Overrides,
    report::ClusterReport,
    stuck::half_changed,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    multiclusterzookeeper::Record,
    mutation::broken,
    zookeeper::ZooKeeperSpec,
};

impl Inputs<'_> {
    /// Starts the next cluster, or finds why none starts.
    pub(super) fn start_next(&self, last: &Record, overrides: &Overrides) -> serde_json::Result<RecordChange> {
        if self.is_paused() {
            let message = "The rollout is paused (rollout.paused): no further cluster starts";
            return Ok(RecordChange::waits(Cause::new(Reason::Paused, message)));
        }
        if let Some(cause) = self.change_elsewhere(last, overrides) {
            return Ok(RecordChange::waits(cause));
        }
        let Some(next) = self.next_reachable(last, overrides) else { return Ok(self.without_first(last)) };
        let Err(cause) = self.can_start(&next, overrides) else { return Ok(Move::Start(next).into()) };
        if let Some(other) = self.next_without_risk(last, overrides) {
            return Ok(Move::Start(other).into());
        }
        let specs = self.grown_pending(last, overrides)?.into_iter().collect();
        Ok(RecordChange { specs, ..RecordChange::waits(cause) })
    }

    /// S1: a change that an agent may still be applying although Karmada cannot report its end.
    fn change_elsewhere(&self, last: &Record, overrides: &Overrides) -> Option<Cause> {
        if self.quorum.formed
            && let Some(cluster) =
                half_changed(last, &self.known.reports, overrides).filter(|_| !broken!(BeginElsewhere))
        {
            let Cause { reason, message } = ClusterReport::absence(self.known.reports.get(cluster));
            let message = format!(
                "Waiting for cluster {cluster}, which has not completed its last change and is {message}; its agent may still be applying it. If the cluster is lost for good, remove it from spec.placement"
            );
            return Some(Cause { reason, message });
        }
        let cluster = self.unscheduled_may_be_changing(overrides).filter(|_| !broken!(ForgetUnscheduled))?;
        let message = format!(
            "Waiting for Karmada to remove ZooKeeper from unscheduled cluster {cluster}; its agent may still be applying a change"
        );
        Some(Cause { reason: Reason::ClusterGone, message })
    }

    /// The next pending cluster that Karmada reaches. Clusters with a change in progress come first, and among them the one
    /// that has its spec already.
    fn next_reachable(&self, last: &Record, overrides: &Overrides) -> Option<String> {
        let reachable = || last.current_state.pending.iter().filter(|name| self.is_reachable(name));
        let may_be_changing = || reachable().filter(|name| self.may_be_changing(name, overrides));
        may_be_changing()
            .find(|name| self.has_desired_spec(name, overrides))
            .or_else(|| may_be_changing().next())
            .or_else(|| reachable().next())
            .cloned()
    }

    /// Another pending cluster that can start, when the next one must not restart. A cluster that lacks servers may bring back
    /// the voters that the next one waits for.
    fn next_without_risk(&self, last: &Record, overrides: &Overrides) -> Option<String> {
        let mut reachable = last.current_state.pending.iter().filter(|name| self.is_reachable(name));
        let changes_alone = |name: &str| self.has_no_servers(name) || !self.another_may_be_changing(name, overrides);
        reachable.find(|name| self.can_start(name, overrides).is_ok() && changes_alone(name)).cloned()
    }

    /// Karmada reaches no pending cluster: leaves the first one out of the record, if `rollout.onFailure` says so.
    fn without_first(&self, last: &Record) -> RecordChange {
        let Some(absent) = last.current_state.pending.first() else { return Move::Stop.into() };
        if self.leaves_out_unreachable() && !last.current_state.completed.is_empty() {
            return Move::LeaveOut(absent.clone()).into();
        }
        let advice = if self.leaves_out_unreachable() {
            "No cluster of the record is complete yet, and rollout.onFailure leaves out no cluster before one is"
        } else {
            "To continue without it, set rollout.onFailure to Continue"
        };
        let Cause { reason, message } = ClusterReport::absence(self.known.reports.get(absent));
        RecordChange::waits(Cause::new(reason, format!("Waiting for cluster {absent}, which is {message}. {advice}")))
    }

    /// A pending cluster that scales up without any other change, since that restarts nothing. Voters that join may be what
    /// voters that leave wait for.
    pub(super) fn grown_pending(
        &self,
        last: &Record,
        overrides: &Overrides,
    ) -> serde_json::Result<Option<(String, ZooKeeperSpec)>> {
        let can_grow = |name: &&String| {
            self.grows(name, overrides) && self.fresh_status(name).is_some() && !self.may_be_changing(name, overrides)
        };
        let Some(cluster) = last.current_state.pending.iter().find(can_grow) else { return Ok(None) };
        let specs = overrides.cluster_specs.get(cluster).zip(self.desired.get(cluster));
        let last = self.last_generation(cluster);
        let grown = specs.map(|(current, desired)| cluster_spec::grown(current, desired.replicas, last)).transpose()?;
        Ok(grown.map(|spec| (cluster.clone(), spec)))
    }

    /// The next pending cluster that brings voters and has none to restart.
    pub(super) fn next_joiner(&self, last: &Record, overrides: &Overrides) -> Option<String> {
        let mut pending = last.current_state.pending.iter();
        pending.find(|name| self.has_no_servers(name) && self.can_start(name, overrides).is_ok()).cloned()
    }
}
