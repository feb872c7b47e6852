//! The inputs of a status.

use std::collections::BTreeMap;

use crate::{
    api::{
        multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record, RecordStatus},
        zookeeper::{Ensemble, ZooKeeperSpec},
    },
    contract::conditions::{ConditionStatus, ConditionType, Reason, find},
    rollout::{
        binding::Scheduled, blocker::Blocker, known::Known, outcome::Findings, quorum::ReportedQuorum, record,
        report::ClusterReport,
    },
};

/// Length of the longest message in characters. The schema allows 1024; the API server would refuse the whole status
/// because of a longer one.
pub(super) const MAX_MESSAGE: usize = 1000;

/// The inputs of a status.
pub(crate) struct StatusInputs<'a> {
    /// What the operator knows.
    pub(crate) known: &'a Known<'a>,
    /// The current incarnation.
    pub(crate) incarnation: &'a str,
    /// The status before this reconcile.
    pub(crate) old: &'a MultiClusterZooKeeperStatus,
    /// The records after this reconcile.
    pub(crate) records: &'a [Record],
    /// The findings of the rules.
    pub(crate) findings: &'a Findings,
    /// The server list after this reconcile.
    pub(crate) ensemble: &'a Ensemble,
    /// The cluster specs after this reconcile.
    pub(crate) cluster_specs: &'a BTreeMap<String, ZooKeeperSpec>,
    /// The schedule; empty if the operator cannot use it.
    pub(crate) schedule: &'a [Scheduled],
    /// Reports of the member clusters.
    pub(crate) reports: &'a BTreeMap<String, ClusterReport>,
    /// The quorum that the reports show.
    pub(crate) quorum: &'a ReportedQuorum,
    /// The cluster specs that the schedule requires.
    pub(crate) desired: &'a BTreeMap<String, ZooKeeperSpec>,
}

impl StatusInputs<'_> {
    /// True if the server list of this incarnation is lost, and not recovered yet. The old status may then be the only record
    /// of it.
    pub(super) fn has_lost_the_list(&self) -> bool {
        let old = self.old.ensemble.as_ref().map(|ensemble| ensemble.incarnation.as_str());
        self.ensemble.incarnation.is_none() && old == Some(self.incarnation)
    }

    /// True if the last record is rolled out, and no newer change of spec waits for that.
    pub(super) fn is_done(&self) -> bool {
        self.records.last().is_some_and(|record| record.status == RecordStatus::Ready) && !self.findings.newer_change
    }

    /// Why the newest spec is not rolled out, if no record covers it yet because the schedule for it is missing.
    pub(super) fn unscheduled_change(&self) -> Option<&Blocker> {
        let covered = self.records.last().map(|record| record.observed_generations.multiclusterzookeeper);
        let is_newer = covered < self.known.object.metadata.generation;
        self.findings.unscheduled.as_ref().filter(|_| is_newer)
    }

    /// What the rollout does, if it is not done.
    pub(super) fn rollout(&self) -> String {
        match self.records.last() {
            None => "The rollout starts".to_owned(),
            Some(last) if last.status == RecordStatus::Ready => "The last record is rolled out".to_owned(),
            Some(last) => record::summary(last),
        }
    }
}

/// What agents report under a condition: each message once, with its clusters. The reason is absent if another version wrote
/// it.
pub(super) fn messages(inputs: &StatusInputs<'_>, type_: ConditionType) -> Vec<(Option<Reason>, String)> {
    let mut reported: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for report in inputs.reports.values().filter(|report| report.fresh()) {
        let conditions = report.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
        if let Some(kept) = find(conditions, type_, ConditionStatus::True) {
            reported.entry((&kept.reason, &kept.message)).or_default().push(&report.cluster);
        }
    }
    let message = |((reason, message), clusters): ((&str, &str), Vec<&str>)| {
        (reason.parse().ok(), format!("{}: {message}", clusters.join(", ")))
    };
    reported.into_iter().map(message).collect()
}
