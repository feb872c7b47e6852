//! What the rules of a rollout read.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{
    cluster_spec, known::Known, override_rules::Overrides, quorum::ReportedQuorum, recovery::last_generation,
};
use mczk_api::{
    contract::naming::Naming,
    multiclusterzookeeper::OnFailure,
    mutation::broken,
    tls::EnsembleTls,
    zookeeper::{Ensemble, ZooKeeperSpec, ZooKeeperStatus},
};

/// Most former incarnations that a server list names. Clusters learn of others from their tombstones alone.
const MAX_FORMER: usize = 64;

/// What the rules of a rollout read. They write nothing: each returns what changes.
pub(in crate::rollout) struct Inputs<'a> {
    pub(in crate::rollout) known: &'a Known<'a>,
    /// The template that the rollout gives to the clusters.
    pub(in crate::rollout) template: &'a ZooKeeperSpec,
    pub(in crate::rollout) naming: Naming<'a>,
    /// The quorum of the recovered server list.
    pub(in crate::rollout) quorum: &'a ReportedQuorum,
    /// The certificates that servers shall use, if they exist.
    pub(in crate::rollout) tls: Option<EnsembleTls>,
    /// The spec that each scheduled cluster gets in the end. Empty until `roll` has chosen the target.
    pub(in crate::rollout) desired: BTreeMap<String, ZooKeeperSpec>,
}

impl Inputs<'_> {
    /// The last status of a cluster, even a stale one.
    pub(super) fn last_status(&self, cluster: &str) -> Option<&ZooKeeperStatus> {
        self.known.reports.get(cluster)?.status.as_ref()
    }

    /// The status of a cluster, if the rules may rely on it (S8).
    pub(super) fn fresh_status(&self, cluster: &str) -> Option<&ZooKeeperStatus> {
        self.known.reports.get(cluster)?.fresh_status()
    }

    pub(super) fn is_reachable(&self, cluster: &str) -> bool {
        self.known.reports.get(cluster).is_some_and(|report| report.reachable)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.known.rollout.paused == Some(true)
    }

    /// True if the rollout continues without clusters that Karmada does not reach.
    pub(super) fn leaves_out_unreachable(&self) -> bool {
        self.known.rollout.on_failure == Some(OnFailure::Continue)
    }

    /// The spec that gives a cluster the template. Its hash is new unless the cluster has this very spec.
    pub(super) fn cluster_spec(
        &self,
        cluster: &str,
        replicas: i32,
        overrides: &Overrides,
    ) -> serde_json::Result<ZooKeeperSpec> {
        let before = overrides.cluster_specs.get(cluster).and_then(|spec| spec.spec_hash.as_deref());
        if broken!(SameGeneration) {
            return cluster_spec::for_cluster(self.template, cluster, replicas, None, 0);
        }
        cluster_spec::for_cluster(self.template, cluster, replicas, before, self.last_generation(cluster))
    }

    /// The last spec generation of a cluster that status and reports know.
    pub(super) fn last_generation(&self, cluster: &str) -> i64 {
        last_generation(cluster, Some(&self.known.status), &self.known.reports)
    }

    /// Incarnations that are over: those of tombstones, and those that the list names already. Agents remove what is left of
    /// them in a cluster that comes back.
    pub(super) fn former_incarnations(&self, list: &Ensemble) -> Vec<String> {
        let all = self.known.ended.iter().chain(&list.former_incarnations);
        let former: BTreeSet<&String> = all.filter(|id| id.as_str() != self.naming.incarnation).collect();
        former.into_iter().take(MAX_FORMER).cloned().collect()
    }

    /// True if the user has declared an incarnation over that the list does not name yet.
    pub(super) fn is_declared_since(&self, list: &Ensemble) -> bool {
        let is_new =
            |id: &&str| *id != self.naming.incarnation && !list.former_incarnations.iter().any(|over| over == id);
        let room = list.former_incarnations.len() < MAX_FORMER;
        !list.servers.is_empty() && room && self.known.former_incarnations.over.iter().any(is_new)
    }
}
