//! Whether servers of a cluster may restart now, and for which cluster another one waits.

use crate::rollout::{advance::inputs::Inputs, override_rules::Overrides, scheduled::Scheduled};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason, find},
        server_list::majority,
    },
    multiclusterzookeeper::Record,
    mutation::broken,
    zookeeper::{EnsemblePhase, Role, UNKNOWN_MODE, ZooKeeperSpec, ZooKeeperStatus},
};

impl Inputs<'_> {
    /// S1: true if a serving cluster may be changing: it has a spec, or has observed one that the policy lost, and has not
    /// reported that spec as completed.
    pub(super) fn may_be_changing(&self, cluster: &str, overrides: &Overrides) -> bool {
        let status = self.last_status(cluster);
        if status.is_none() && !self.desired.contains_key(cluster) {
            // Karmada has removed its object.
            return false;
        }
        self.quorum.formed
            && match overrides.cluster_specs.get(cluster) {
                Some(spec) => status.is_none_or(|s| s.completed_spec_hash != spec.spec_hash),
                None => status
                    .is_some_and(|s| s.observed_spec_hash.is_some() && s.completed_spec_hash != s.observed_spec_hash),
            }
    }

    /// S1: true if another cluster may be changing.
    pub(super) fn another_may_be_changing(&self, cluster: &str, overrides: &Overrides) -> bool {
        let names = overrides.cluster_specs.keys().chain(self.known.reports.keys());
        names.into_iter().any(|name| name != cluster && self.may_be_changing(name, overrides))
    }

    /// S1: a cluster that was changing when the schedule left it, and that Karmada still writes to.
    pub(super) fn unscheduled_may_be_changing(&self, overrides: &Overrides) -> Option<&String> {
        let unscheduled = |name: &String| !self.desired.contains_key(name);
        let mut fresh = self.known.reports.iter().filter(|(_, report)| report.fresh()).map(|(name, _)| name);
        fresh.find(|name| unscheduled(name) && self.may_be_changing(name, overrides))
    }

    /// True if a cluster has the spec that it gets in the end.
    pub(super) fn has_desired_spec(&self, cluster: &str, overrides: &Overrides) -> bool {
        let current = overrides.cluster_specs.get(cluster).map(|spec| &spec.spec_hash);
        current.is_some() && current == self.desired.get(cluster).map(|spec| &spec.spec_hash)
    }

    /// True if a cluster reports that it has no servers: the rollout to it restarts none.
    pub(super) fn has_no_servers(&self, cluster: &str) -> bool {
        self.fresh_status(cluster).is_some_and(|status| status.servers.is_empty())
    }

    /// True if a cluster gets more voters than its current spec has.
    pub(super) fn grows(&self, cluster: &str, overrides: &Overrides) -> bool {
        let current = overrides.cluster_specs.get(cluster);
        current.zip(self.desired.get(cluster)).is_some_and(|(current, desired)| current.replicas < desired.replicas)
    }

    /// S3, S9: whether a quorum remains while servers of this cluster restart one by one.
    ///
    /// # Errors
    /// Why they must not restart now.
    pub(super) fn can_start(&self, cluster: &str, overrides: &Overrides) -> Result<(), Cause> {
        let Some(desired) = self.desired.get(cluster) else { return Ok(()) };
        let restarts_none = overrides.cluster_specs.get(cluster).is_some_and(|s| s.revision == desired.revision);
        if !self.quorum.formed || restarts_none || broken!(BeginWithoutQuorum) {
            return Ok(());
        }
        let (voters, serving) = (self.quorum.voters.len(), self.quorum.serving.len());
        let needed = majority(voters);
        // Servers that do not serve can restart without harm, and no other way leads out of a broken image. The agent stops
        // no serving voter that the quorum needs.
        if self.restart_harms_no_server(cluster, overrides) {
            return Ok(());
        }
        if voters > 0 && serving.saturating_sub(1) >= needed {
            return Ok(());
        }
        // Ensembles of one or two voters cannot restart without an outage; without one they could never change.
        if needed == voters && serving == needed {
            return Ok(());
        }
        Err(Cause::new(
            Reason::NoQuorum,
            format!(
                "Cluster {cluster} is next, but only {serving} of {voters} voters serve, and {needed} must serve while one restarts: bring servers back first"
            ),
        ))
    }

    /// True if a server of a cluster does not serve, or none of its listed voters has a vote yet. An agent that cannot continue,
    /// or cannot read its object, does not know whether they serve.
    fn restart_harms_no_server(&self, cluster: &str, overrides: &Overrides) -> bool {
        let halts = [Reason::RequestRefused, Reason::UnsupportedSpec];
        let halted = |status: &ZooKeeperStatus| {
            let blocked = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True);
            blocked.is_some_and(|blocked| halts.iter().any(|reason| blocked.reason == reason.as_str()))
                && status.servers.iter().all(|server| server.mode.as_deref() == Some(UNKNOWN_MODE))
        };
        let status = self.last_status(cluster);
        if status.is_some_and(halted) {
            return false;
        }
        let mut reported = status.into_iter().flat_map(|status| &status.servers);
        let votes = || listed_voters(cluster, overrides).filter(|id| self.quorum.voters.contains(id));
        reported.any(|server| !server.serving)
            || !votes().all(|id| self.quorum.serving.contains(&id))
            || votes().next().is_none()
    }

    /// S3: true if a deploying cluster without its new spec must be pending again: another cluster is changing, or a restart
    /// would cost the quorum.
    pub(super) fn yields(
        &self,
        cluster: &str,
        last: &Record,
        schedule: &[Scheduled],
        overrides: &Overrides,
    ) -> serde_json::Result<bool> {
        let Some(replicas) = schedule.iter().find(|s| s.cluster == cluster).map(|s| s.replicas) else {
            return Ok(false);
        };
        let current = overrides.cluster_specs.get(cluster).map(|spec| &spec.spec_hash);
        let has_spec = current == Some(&self.cluster_spec(cluster, replicas, overrides)?.spec_hash);
        if has_spec || !self.quorum.formed {
            return Ok(false);
        }
        // Another operator, or a late write, may have given another cluster its spec meanwhile (S1).
        let mut pending = last.current_state.pending.iter();
        let overtaken = !self.has_no_servers(cluster)
            && pending.any(|other| self.has_desired_spec(other, overrides) && self.may_be_changing(other, overrides));
        Ok(overtaken || self.can_start(cluster, overrides).is_err())
    }

    /// True if a cluster with this spec keeps its replicas until voters have left, while its other voters serve. The voters that leave may
    /// wait for servers of clusters that come later.
    pub(super) fn waits_for_joiners(&self, cluster: &str, spec: Option<&ZooKeeperSpec>, overrides: &Overrides) -> bool {
        let desired = self.desired.get(cluster).map_or(0, |spec| spec.replicas);
        let Some(spec) = spec.filter(|spec| spec.replicas > desired) else { return false };
        self.fresh_status(cluster).is_some_and(|status| status.observed_spec_hash == spec.spec_hash)
            && listed_voters(cluster, overrides).all(|id| self.quorum.serving.contains(&id))
            && self.quorum.formed
            && !broken!(NoJoinersFirst)
            && !self.is_paused()
    }

    /// True if a pending cluster lost its servers, and the policy its spec: only a spec brings its voters back, and agents
    /// restart no server before. A cluster without servers yields to no other one, or two would yield for ever.
    pub(super) fn awaits_lost_servers(&self, cluster: &str, last: &Record, overrides: &Overrides) -> bool {
        let votes = |name: &str| listed_voters(name, overrides).any(|id| self.quorum.voters.contains(&id));
        let is_lost =
            |name: &str| self.has_no_servers(name) && votes(name) && !overrides.cluster_specs.contains_key(name);
        overrides.ensemble.phase == EnsemblePhase::Running
            && !self.is_paused()
            && !self.has_no_servers(cluster)
            && !broken!(NoJoinersFirst)
            && last.current_state.pending.iter().any(|name| is_lost(name))
    }

    /// True if the agent of a serving cluster restarts no voter before others have joined: the ensemble has one or two voters,
    /// and the server list names more. Or a voter that leaves does not serve, and stays until others have joined.
    pub(super) fn restarts_wait_for_joiners(&self, cluster: &str, overrides: &Overrides) -> bool {
        let voters = self.quorum.voters.len();
        let listed = |id: &i32| overrides.ensemble.servers.iter().any(|s| s.id == *id && s.role == Role::Voter);
        let count = overrides.ensemble.servers.iter().filter(|server| server.role == Role::Voter).count();
        let few = voters <= majority(voters) && count > voters;
        let dead_leaver = self.quorum.voters.difference(&self.quorum.serving).any(|id| !listed(id))
            && self.quorum.voters.iter().filter(|id| listed(id)).count() < count;
        let mut own = listed_voters(cluster, overrides).peekable();
        own.peek().is_some()
            && own.all(|id| self.quorum.serving.contains(&id))
            && self.quorum.formed
            && voters > 0
            && (few || dead_leaver)
            && !broken!(NoJoinersFirst)
            && !self.is_paused()
    }
}

/// Ids of the voters that the server list names in a cluster.
fn listed_voters<'a>(cluster: &'a str, overrides: &'a Overrides) -> impl Iterator<Item = i32> + 'a {
    let listed = overrides.ensemble.servers.iter();
    listed.filter(move |s| s.cluster == cluster && s.role == Role::Voter).map(|server| server.id)
}
