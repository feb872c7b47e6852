//! The inputs of a status.

use std::collections::BTreeMap;

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record, RecordStatus},
        zookeeper::{Ensemble, ZooKeeperSpec},
    },
    rollout::{binding::Scheduled, observed::Observed, outcome::Findings, quorum::Quorum, report::ClusterReport},
};

/// Length of the longest message in characters. The schema allows 1024; the API server would refuse the whole status
/// because of a longer one.
pub(super) const MAX_MESSAGE: usize = 1000;

/// The inputs of a status.
pub struct StatusInputs<'a> {
    /// All observations.
    pub observed: &'a Observed,
    /// The status before this reconcile.
    pub old: &'a MultiClusterZooKeeperStatus,
    /// The records after this reconcile.
    pub records: &'a [Record],
    /// The findings of the rules.
    pub findings: &'a Findings,
    /// The server list after this reconcile.
    pub ensemble: &'a Ensemble,
    /// The cluster specs after this reconcile.
    pub cluster_specs: &'a BTreeMap<String, ZooKeeperSpec>,
    /// The schedule; empty if the operator cannot use it.
    pub schedule: &'a [Scheduled],
    /// Reports of the member clusters.
    pub reports: &'a BTreeMap<String, ClusterReport>,
    /// The quorum that the reports show.
    pub quorum: &'a Quorum,
    /// Clusters of the schedule.
    pub bound: &'a [String],
    /// The cluster specs that the schedule requires.
    pub desired: &'a BTreeMap<String, ZooKeeperSpec>,
}

impl StatusInputs<'_> {
    /// True if the last record is rolled out.
    pub(super) fn is_done(&self) -> bool {
        self.records.last().is_some_and(|record| record.status == RecordStatus::Ready)
    }
}
