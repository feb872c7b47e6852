//! The spec of the deploying cluster, and when the cluster is complete.

use crate::{
    api::{multiclusterzookeeper::Record, zookeeper::Role},
    contract::{conditions::Reason, naming},
    mutation::broken,
    rollout::{advance::pass::Pass, binding::Scheduled, completion::complete, override_rules::Overrides},
};

impl Pass<'_> {
    /// Gives the deploying cluster its spec. Returns true if the cluster is complete and its hold is over.
    pub(super) fn deploy(
        &mut self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        overrides: &mut Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            self.wait_for(Reason::ClusterGone, format!("Cluster {cluster} is no longer scheduled"));
            return Ok(false);
        };
        // S2: without a report its servers are unknown.
        if self.quorum.formed && self.fresh_status(cluster).is_none() && !overrides.cluster_specs.contains_key(cluster)
        {
            self.wait_for_report(cluster);
            return Ok(false);
        }
        if self.may_restart_unseen(cluster, overrides) && !broken!(RestartUnseen) {
            self.wait_for_report(cluster);
            return Ok(false);
        }
        let existing = self.existing_voters(cluster, overrides);
        let keeps_voters = existing > replicas
            && !self.has_released_voters(cluster, replicas, overrides)
            && !broken!(LowerBeforeRemoved);
        let spec = self.cluster_spec(cluster, if keeps_voters { existing } else { replicas }, overrides)?;
        overrides.cluster_specs.insert(cluster.to_owned(), spec.clone());
        let complete = if keeps_voters {
            Err(self.why_voters_stay())
        } else if let Some(id) = self.voter_that_ends_the_record(last, overrides) {
            Err(format!("server {id} has to leave the ensemble before the rollout is done"))
        } else {
            complete(self.reports.get(cluster), &spec, &overrides.ensemble, self.quorum, self.reports)
        };
        match complete {
            Err(message) => {
                self.wait_for_completion(cluster, &message);
                Ok(false)
            }
            Ok(()) => Ok(self.hold_is_over(cluster)),
        }
    }

    /// S3: true if another spec restarts servers that no report shows. They may be the only quorum. The template of a record
    /// is another one after a client deleted it. A spec that Karmada cannot apply starts no server.
    fn may_restart_unseen(&self, cluster: &str, overrides: &Overrides) -> bool {
        let revision = self.desired.get(cluster).map(|desired| &desired.revision);
        let restarts = overrides.cluster_specs.get(cluster).is_some_and(|spec| Some(&spec.revision) != revision);
        let report = self.reports.get(cluster);
        restarts && report.is_none_or(|report| report.status.is_none() && report.apply_error.is_none())
    }

    /// Voters in the spec of a cluster or in its report, whichever are more.
    fn existing_voters(&self, cluster: &str, overrides: &Overrides) -> i32 {
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

    fn wait_for_report(&mut self, cluster: &str) {
        let refused = self.reports.get(cluster).filter(|report| !report.applied);
        if let Some(why) = refused.and_then(|report| report.apply_error.as_deref()) {
            let message = format!("Karmada could not apply the object in cluster {cluster}: {why}");
            self.wait_for(Reason::NotApplied, message);
        } else {
            let message = format!("Cluster {cluster}: waiting for its agent to report its servers");
            self.wait_for(Reason::ClusterNotReported, message);
        }
    }

    fn wait_for_completion(&mut self, cluster: &str, message: &str) {
        match &self.stuck {
            Some(stuck) if stuck.cluster == cluster => {
                let message = format!("{}; {message}", stuck.why.message);
                self.wait_for(stuck.why.reason, message);
            }
            _ => self.wait_for(Reason::Deploying, format!("Cluster {cluster}: {message}")),
        }
    }

    /// True if a complete cluster has been held for `rollout.holdSeconds`.
    fn hold_is_over(&mut self, cluster: &str) -> bool {
        let hold = i64::from(self.rollout.hold_seconds.unwrap_or(0));
        let before = self.status.clusters.iter().find(|c| c.name == cluster);
        let since = before.and_then(|c| c.complete_since.as_ref()).map_or(self.now, |time| time.0);
        let left = hold - (self.now.as_second() - since.as_second());
        if left <= 0 {
            return true;
        }
        let message = format!("Cluster {cluster} is complete; the next cluster starts after a hold of {hold} s");
        self.wait_for(Reason::Holding, message);
        self.requeue_in(left);
        false
    }
}
