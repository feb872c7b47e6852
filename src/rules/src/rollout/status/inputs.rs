//! The inputs of a status.

use std::collections::BTreeMap;

use crate::rollout::{known::Known, outcome::NextState, report::ClusterReport, steps::Findings};
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, Reason, find},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
};

/// Length of the longest message in characters. The schema allows 1024; the API server would refuse the whole status
/// because of a longer one.
pub(super) const MAX_MESSAGE: usize = 1000;

pub(super) struct StatusInputs<'a> {
    /// What the operator knows.
    pub(super) known: &'a Known<'a>,
    /// What follows from the reports of all steps.
    pub(super) findings: &'a Findings,
    /// The state after this plan.
    pub(super) next: &'a NextState,
    /// The status before this plan.
    pub(super) old: &'a MultiClusterZooKeeperStatus,
    /// Reports of the member clusters; empty if they are not evaluated.
    pub(super) reports: &'a BTreeMap<String, ClusterReport>,
}

impl StatusInputs<'_> {
    /// True if the server list of this incarnation is lost, and not recovered yet. The old status may then be the only record
    /// of it.
    pub(super) fn has_lost_the_list(&self) -> bool {
        let old = self.old.ensemble.as_ref().map(|ensemble| ensemble.incarnation.as_str());
        self.next.ensemble.incarnation.is_none() && old == Some(self.known.incarnation.id.as_str())
    }
}

/// What agents report under a condition, as far as the operator may rely on it.
pub(super) fn messages(inputs: &StatusInputs<'_>, type_: ConditionType) -> Vec<(Option<Reason>, String)> {
    messages_of(inputs.reports.values().filter(|report| report.fresh()), type_)
}

/// What these reports say under a condition: each message once, with its clusters. The reason is absent if another version wrote
/// it.
pub(super) fn messages_of<'a>(
    reports: impl Iterator<Item = &'a ClusterReport>,
    type_: ConditionType,
) -> Vec<(Option<Reason>, String)> {
    let mut reported: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for report in reports {
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
