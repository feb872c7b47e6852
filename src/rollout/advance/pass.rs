//! The state of one pass over the rules of a rollout.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, ObservedGenerations, OnFailure, Record, Rollout},
        tls::EnsembleTls,
        zookeeper::{ZooKeeperSpec, ZooKeeperStatus},
    },
    contract::{conditions::Reason, naming::Naming},
    mutation::broken,
    rollout::{
        blocker::Blocker, cluster_spec, outcome::Findings, override_rules::Overrides, quorum::ReportedQuorum, record,
        recovery::last_generation, report::ClusterReport, stuck::Stuck,
    },
};

/// One pass over the rules of a rollout: what they rest on, and what they find.
pub(in crate::rollout) struct Pass<'a> {
    /// `spec.rollout` of the MultiClusterZooKeeper.
    pub(in crate::rollout) rollout: &'a Rollout,
    /// The template that the rollout gives to the clusters.
    pub(in crate::rollout) template: &'a ZooKeeperSpec,
    pub(in crate::rollout) naming: Naming<'a>,
    pub(in crate::rollout) reports: &'a BTreeMap<String, ClusterReport>,
    pub(in crate::rollout) quorum: &'a ReportedQuorum,
    pub(in crate::rollout) now: Timestamp,
    /// True if no first server may start before the network is checked.
    pub(in crate::rollout) checks_network: bool,
    /// The status before this pass.
    pub(in crate::rollout) status: &'a MultiClusterZooKeeperStatus,
    pub(in crate::rollout) generations: ObservedGenerations,
    /// Incarnations that are over although a cluster may still hold servers of them.
    pub(in crate::rollout) former_incarnations: Vec<String>,
    /// The certificates that servers shall use, if they exist.
    pub(in crate::rollout) tls: Option<EnsembleTls>,
    /// Why the last record cannot move, until a new one starts.
    pub(in crate::rollout) stuck: Option<Stuck>,
    pub(in crate::rollout) findings: Findings,
    pub(in crate::rollout) requeue_after: Option<Duration>,
    /// The spec that each scheduled cluster gets in the end.
    pub(in crate::rollout) desired: BTreeMap<String, ZooKeeperSpec>,
}

impl Pass<'_> {
    /// The last status of a cluster, even a stale one.
    pub(super) fn last_status(&self, cluster: &str) -> Option<&ZooKeeperStatus> {
        self.reports.get(cluster)?.status.as_ref()
    }

    /// The status of a cluster, if the rules may rely on it (S8).
    pub(super) fn fresh_status(&self, cluster: &str) -> Option<&ZooKeeperStatus> {
        self.reports.get(cluster).filter(|report| report.fresh())?.status.as_ref()
    }

    pub(super) fn is_reachable(&self, cluster: &str) -> bool {
        self.reports.get(cluster).is_some_and(|report| report.reachable)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.rollout.paused == Some(true)
    }

    /// True if the rollout continues without clusters that Karmada does not reach.
    pub(super) fn continues(&self) -> bool {
        self.rollout.on_failure == Some(OnFailure::Continue)
    }

    /// Starts a pending cluster. The record moves, so it is no longer stuck.
    pub(super) fn start_cluster(&mut self, last: &mut Record, cluster: &str) {
        record::start_cluster(last, cluster, self.now);
        self.stuck = None;
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
        let generation = if before.is_none() { last_generation(cluster, self.status, self.reports) } else { 0 };
        cluster_spec::for_cluster(self.template, cluster, replicas, before, generation)
    }

    pub(super) fn wait_for(&mut self, reason: Reason, message: String) {
        self.findings.waiting = Some(Blocker { reason, message });
    }

    pub(super) fn requeue_in(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1));
        self.requeue_after = Some(self.requeue_after.map_or(wait, |w| w.min(wait)));
    }
}
