//! What the operator knows of the ensemble before it decides.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        ZooKeeper,
        multiclusterzookeeper::{
            EnsembleStatus, MultiClusterZooKeeperStatus, ObservedGenerations, Record, RecordStatus, Rollout,
        },
        preflight::PreflightMode,
        zookeeper::{Ensemble, EnsemblePhase, ZooKeeperSpec},
    },
    contract::naming::Naming,
    mutation::broken,
    rollout::{
        advance::{Stuck, stuck},
        cluster_selection::ClusterSelection,
        incarnation,
        observed::Observed,
        override_rules::{self, Overrides},
        quorum::ReportedQuorum,
        recovery::recover_records,
        report::{self, ClusterReport},
        reported_list::newest_reported,
    },
};

/// What the operator knows of the ensemble before it decides.
pub(super) struct State<'a> {
    pub(super) observed: &'a Observed,
    pub(super) now: Timestamp,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) rollout: Rollout,
    /// The status before this plan.
    pub(super) status: MultiClusterZooKeeperStatus,
    /// The clusters that an earlier plan selected.
    pub(super) selection: Option<ClusterSelection>,
    pub(super) incarnation: Incarnation,
    /// The OverridePolicy's content; empty if it is lost, or of a former incarnation.
    pub(super) overrides: Overrides,
    pub(super) records: Vec<Record>,
    pub(super) reports: BTreeMap<String, ClusterReport>,
    /// The newest server list of this incarnation that an agent reports.
    pub(super) reported_list: Option<Ensemble>,
    pub(super) quorum: ReportedQuorum,
    /// Why the last record cannot move.
    pub(super) stuck: Option<Stuck>,
}

/// The incarnation of the ensemble.
pub(super) struct Incarnation {
    pub(super) id: String,
    /// True if a tombstone ended the incarnation before it, and this one starts.
    pub(super) is_next: bool,
    /// True if status or OverridePolicy show that a quorum formed.
    pub(super) formed: bool,
}

/// Recovers the state from status, OverridePolicy and reports.
pub(super) fn recover_state(observed: &Observed, now: Timestamp) -> State<'_> {
    let object = &observed.object;
    let status = no_time_ahead(object.status.clone().unwrap_or_default(), now);
    let rollout = object.spec.rollout.clone().unwrap_or_default();
    let selection = ClusterSelection::recover(observed);
    let policy = observed.overrides.as_ref().map(|policy| override_rules::read(&policy.spec)).unwrap_or_default();
    let selected = selection.as_ref().map(ClusterSelection::clusters).unwrap_or_default();
    let named: Vec<String> = selected.iter().chain(policy.cluster_specs.keys()).cloned().collect();
    let reports = report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &named);
    let incarnation = incarnation(observed, &status, &policy, &reports);
    // What a policy says of a former incarnation does not hold for the next one.
    let overrides = if incarnation.is_next { Overrides::default() } else { policy };
    let mut records = if broken!(ForgetRecords) { status.records.clone() } else { recover_records(observed, &status) };
    for record in &mut records {
        record.last_transition_time.0 = record.last_transition_time.0.min(now);
    }
    let stuck = records.last().and_then(|last| stuck(last, &reports, &overrides, &rollout, &status, now));
    let quorum = ReportedQuorum::of(&incarnation.id, &reports, &overrides.ensemble.servers, incarnation.formed);
    State {
        observed,
        now,
        name: object.name_any(),
        namespace: object.namespace().unwrap_or_default(),
        rollout,
        selection,
        reported_list: newest_reported(&incarnation.id, &reports).cloned(),
        overrides,
        records,
        reports,
        quorum,
        stuck,
        status,
        incarnation,
    }
}

/// The status without a time that is yet to come: the clock was ahead and is right again. Holds and deadlines then start
/// again instead of waiting for that time.
fn no_time_ahead(mut status: MultiClusterZooKeeperStatus, now: Timestamp) -> MultiClusterZooKeeperStatus {
    for since in status.clusters.iter_mut().filter_map(|cluster| cluster.complete_since.as_mut()) {
        since.0 = since.0.min(now);
    }
    status
}

/// The current incarnation, or the next one if a tombstone ended it before a quorum formed.
fn incarnation(
    observed: &Observed,
    status: &MultiClusterZooKeeperStatus,
    policy: &Overrides,
    reports: &BTreeMap<String, ClusterReport>,
) -> Incarnation {
    let in_status = status.ensemble.as_ref().filter(|ensemble| !ensemble.incarnation.is_empty());
    let known = policy.ensemble.incarnation.as_ref().or_else(|| Some(&in_status?.incarnation));
    let formed_in_status =
        status.ensemble.as_ref().is_some_and(|ensemble| ensemble.formed && Some(&ensemble.incarnation) == known);
    let phase = policy.ensemble.phase;
    let formed = formed_in_status
        || (policy.ensemble.incarnation.is_some() && !phase.is_bootstrap())
        || phase == EnsemblePhase::Formed;
    let uid = observed.object.uid().unwrap_or_default();
    let id = incarnation::current(&uid, known.map(String::as_str), formed, &observed.tombstones, reports.values());
    Incarnation { is_next: known.is_some_and(|known| *known != id), id, formed }
}

impl State<'_> {
    /// The ensemble in the status, if it is of this incarnation.
    pub(super) fn status_ensemble(&self) -> Option<&EnsembleStatus> {
        self.status.ensemble.as_ref().filter(|ensemble| ensemble.incarnation == self.incarnation.id)
    }

    /// The live template.
    pub(super) fn template(&self) -> Option<&ZooKeeper> {
        self.observed.template.as_deref()
    }

    pub(super) fn naming<'a>(&'a self, template: &'a ZooKeeperSpec) -> Naming<'a> {
        Naming {
            name: &self.name,
            namespace: &self.namespace,
            incarnation: &self.incarnation.id,
            names: template.source.as_ref().and_then(|source| source.names.as_ref()),
        }
    }

    pub(super) fn generations(&self) -> ObservedGenerations {
        ObservedGenerations {
            multiclusterzookeeper: self.observed.object.metadata.generation.unwrap_or(0),
            zookeeper: self.template().and_then(|template| template.metadata.generation).unwrap_or(0),
        }
    }

    /// True if the network is checked before the first server starts.
    pub(super) fn checks_network(&self) -> bool {
        let network = self.observed.object.spec.network.as_ref();
        network.and_then(|network| network.preflight).unwrap_or_default() == PreflightMode::Required
    }

    /// S6: true if no record is deploying, or the one that is cannot finish. Only then selection and template change.
    pub(super) fn record_allows_change(&self) -> bool {
        !self.is_deploying() || self.stuck.is_some() || self.incarnation.is_next || broken!(TemplateDuringRecord)
    }

    /// True if the last record is deploying. One of a former incarnation, which has no server list, does not count.
    pub(super) fn is_deploying(&self) -> bool {
        let has_list = self.overrides.ensemble.incarnation.is_some()
            || self.status_ensemble().is_some()
            || self.reported_list.is_some();
        has_list && self.records.last().is_some_and(|record| record.status == RecordStatus::Deploying)
    }
}
