//! The spec of the deploying cluster, and when the cluster is complete.

use crate::rollout::{
    advance::{draft::Draft, inputs::Inputs},
    completion::complete,
    override_rules::Overrides,
    report::ClusterReport,
    scheduled::Scheduled,
    stuck::Stuck,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, naming},
    multiclusterzookeeper::Record,
    mutation::broken,
    zookeeper::{Role, ZooKeeperSpec},
};

/// The spec of the deploying cluster, and what the cluster waits for.
#[derive(Default)]
pub(super) struct Deployment {
    /// The spec that the cluster gets.
    pub(super) spec: Option<ZooKeeperSpec>,
    /// Why the next cluster does not start; `None` if the cluster is complete and its hold is over.
    pub(super) waits: Option<Cause>,
    /// Seconds until the hold is over.
    pub(super) requeue: Option<i64>,
}

impl From<Cause> for Deployment {
    fn from(cause: Cause) -> Self {
        Self { waits: Some(cause), ..Self::default() }
    }
}

impl Inputs<'_> {
    /// The spec of the deploying cluster.
    pub(super) fn deploy(
        &self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        draft: &Draft,
    ) -> serde_json::Result<Deployment> {
        let overrides = &draft.overrides;
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            return Ok(Cause::new(Reason::ClusterGone, format!("Cluster {cluster} is no longer scheduled")).into());
        };
        // S2: without a report its servers are unknown.
        let is_unknown = self.quorum.formed
            && self.fresh_status(cluster).is_none()
            && !overrides.cluster_specs.contains_key(cluster);
        if is_unknown || (self.may_restart_unseen(cluster, overrides) && !broken!(RestartUnseen)) {
            return Ok(self.waiting_for_report(cluster).into());
        }
        let existing = self.existing_voters(cluster, overrides);
        let keeps_voters = existing > replicas
            && !self.has_released_voters(cluster, replicas, overrides)
            && !broken!(LowerBeforeRemoved);
        let spec = self.cluster_spec(cluster, if keeps_voters { existing } else { replicas }, overrides)?;
        let complete = if keeps_voters {
            Err(self.why_voters_stay())
        } else if let Some(id) = self.voter_that_ends_the_record(last, overrides) {
            Err(format!("server {id} has to leave the ensemble before the rollout is done"))
        } else {
            let reports = &self.known.reports;
            complete(reports.get(cluster), &spec, &overrides.ensemble, self.quorum, reports)
        };
        let (waits, requeue) = match complete {
            Err(message) => (Some(waiting_for_completion(cluster, &message, draft.stuck.as_ref())), None),
            Ok(()) => self.hold(cluster).unzip(),
        };
        Ok(Deployment { spec: Some(spec), waits, requeue })
    }

    /// S3: true if another spec restarts servers that no report shows. They may be the only quorum. The template of a record
    /// is another one after a client deleted it. A spec that Karmada cannot apply starts no server.
    fn may_restart_unseen(&self, cluster: &str, overrides: &Overrides) -> bool {
        let revision = self.desired.get(cluster).map(|desired| &desired.revision);
        let restarts = overrides.cluster_specs.get(cluster).is_some_and(|spec| Some(&spec.revision) != revision);
        let report = self.known.reports.get(cluster);
        restarts && report.is_none_or(|report| report.status.is_none() && report.apply_error.is_none())
    }

    /// Voters in the spec of a cluster or in its report, whichever are more.
    pub(super) fn existing_voters(&self, cluster: &str, overrides: &Overrides) -> i32 {
        let declared = overrides.cluster_specs.get(cluster).map_or(0, |spec| spec.replicas);
        let reported = self.last_status(cluster).map_or(&[][..], |status| &status.servers);
        reported
            .iter()
            .filter_map(|server| naming::role_and_ordinal(self.naming, server.pod.as_deref()?))
            .filter(|(role, _)| *role == Role::Voter)
            .map(|(_, ordinal)| ordinal.saturating_add(1))
            .fold(declared, i32::max)
    }

    /// The voter that the last cluster of a record waits for. There is none while a completed cluster has yet to grow: the
    /// voter may wait for servers of the next record.
    fn voter_that_ends_the_record(&self, last: &Record, overrides: &Overrides) -> Option<i32> {
        let state = &last.current_state;
        let grows_later = state.completed.iter().any(|name| self.grows(name, overrides));
        self.leaving_voter(overrides).filter(|_| state.pending.is_empty() && !grows_later)
    }

    fn why_voters_stay(&self) -> String {
        let text = if self.quorum.epoch.is_none() && self.quorum.holds() {
            "waiting until an agent reports that the ensemble has the newest server list (publishedEpoch): update the agents"
        } else {
            "waiting until ZooKeeper's configuration no longer has the voters that leave"
        };
        text.to_owned()
    }

    fn waiting_for_report(&self, cluster: &str) -> Cause {
        if let Some(refusal) = self.known.reports.get(cluster).and_then(ClusterReport::refusal) {
            return refusal;
        }
        let message = format!("Cluster {cluster}: waiting for its agent to report its servers");
        Cause::new(Reason::ClusterNotReported, message)
    }

    /// Why a complete cluster is held, and the seconds that are left of `rollout.holdSeconds`.
    fn hold(&self, cluster: &str) -> Option<(Cause, i64)> {
        let hold = i64::from(self.known.rollout.hold_seconds.unwrap_or(0));
        let before = self.known.status.clusters.iter().find(|c| c.name == cluster);
        let since = before.and_then(|c| c.complete_since.as_ref()).map_or(self.known.now, |time| time.0);
        let left = hold - (self.known.now.as_second() - since.as_second());
        let message = format!("Cluster {cluster} is complete; the next cluster starts after a hold of {hold} s");
        (left > 0).then(|| (Cause::new(Reason::Holding, message), left))
    }
}

fn waiting_for_completion(cluster: &str, message: &str, stuck: Option<&Stuck>) -> Cause {
    match stuck {
        Some(stuck) if stuck.cluster == cluster => {
            Cause::new(stuck.why.reason, format!("{}; {message}", stuck.why.message))
        }
        _ => Cause::new(Reason::Deploying, format!("Cluster {cluster}: {message}")),
    }
}
