//! The steps of one pass over a rollout.

use std::collections::BTreeMap;

use crate::{
    api::{multiclusterzookeeper::Record, zookeeper::ZooKeeperSpec},
    contract::conditions::Reason,
    rollout::{
        advance::{pass::Pass, server_list::Target},
        binding::Scheduled,
        blocker::Blocker,
        certificates,
        override_rules::Overrides,
    },
};

impl Pass<'_> {
    /// Moves records, server list and cluster specs towards the schedule, as far as the rules allow now.
    pub(in crate::rollout) fn roll(
        &mut self,
        schedule: &[Scheduled],
        records: &mut Vec<Record>,
        overrides: &mut Overrides,
    ) -> serde_json::Result<()> {
        self.check_observers(schedule);
        let Some(target) = self.target(schedule, overrides) else { return Ok(()) };
        self.desired = self.desired_specs(&target, overrides)?;
        if self.lacks_certificates(&target, overrides) {
            self.findings.waiting = Some(certificates::being_made());
            return Ok(());
        }
        if !self.may_use_network(&target.schedule, overrides)? {
            return Ok(());
        }
        let list_changes = self.list_changes(&target, overrides);
        // A list that cannot change starts no record: the record would be done at once, and start again for ever.
        let list_may_change = self.list_may_change(&overrides.ensemble, &target.servers);
        let changes = self.specs_change(overrides) || (list_changes && list_may_change);
        let (frozen, schedule) = (target.frozen, target.schedule.clone());
        let scheduled: Vec<String> = schedule.iter().map(|s| s.cluster.clone()).collect();
        self.start_record(records, &scheduled, changes, overrides);
        if list_changes && !list_may_change && self.findings.waiting.is_none() {
            self.wait_for_quorum();
        }
        if list_changes {
            self.change_list(target, records, overrides)?;
        }
        self.move_clusters(records, &schedule, overrides)?;
        if frozen && self.findings.waiting.is_none() {
            self.wait_for_first_quorum();
        }
        self.end_bootstrap(records, overrides)?;
        self.mark_formed(overrides)?;
        self.drop_unused_specs(&scheduled, overrides);
        Ok(())
    }

    /// Observers need a voter in their cluster, since the schedule places voters only.
    fn check_observers(&mut self, schedule: &[Scheduled]) {
        let observers = self.template.source.as_ref().map(|s| s.observers.as_slice()).unwrap_or_default();
        if let Some(lonely) = observers.iter().find(|o| !schedule.iter().any(|s| s.cluster == o.cluster)) {
            self.findings.action_required = Some(Blocker {
                reason: Reason::ObserversWithoutVoter,
                message: format!(
                    "spec.observers names cluster {}, which has no voter: add a voter there, or remove the entry",
                    lonely.cluster
                ),
            });
        }
    }

    fn desired_specs(
        &self,
        target: &Target,
        overrides: &Overrides,
    ) -> serde_json::Result<BTreeMap<String, ZooKeeperSpec>> {
        let specs = target.schedule.iter().map(|s| {
            let spec = self.cluster_spec(&s.cluster, s.replicas, overrides)?;
            Ok((s.cluster.clone(), spec))
        });
        specs.collect()
    }

    /// True if the first server list has to wait for its certificates.
    fn lacks_certificates(&self, target: &Target, overrides: &Overrides) -> bool {
        target.tls.is_none() && self.template.tls.quorum && overrides.ensemble.servers.is_empty()
    }

    /// True if a scheduled cluster is due for another spec. With `rollout.onFailure: Continue` an unreachable cluster gets a
    /// record of its own when it is back.
    fn specs_change(&self, overrides: &Overrides) -> bool {
        self.desired.iter().any(|(cluster, desired)| {
            let left_out = self.continues() && !self.is_reachable(cluster);
            let current = overrides.cluster_specs.get(cluster).map(|spec| &spec.spec_hash);
            !left_out && current != Some(&desired.spec_hash)
        })
    }

    /// Drops the specs of clusters that the schedule left. They stay while servers of such a cluster may vote.
    fn drop_unused_specs(&self, scheduled: &[String], overrides: &mut Overrides) {
        let may_vote = !self.quorum.holds() || self.leaving_voter(overrides).is_some();
        let Overrides { cluster_specs, ensemble, .. } = overrides;
        cluster_specs.retain(|cluster, _| {
            may_vote || scheduled.contains(cluster) || ensemble.servers.iter().any(|s| s.cluster == *cluster)
        });
    }
}
