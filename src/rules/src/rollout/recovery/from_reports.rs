//! Recovery of the server list from the reports of agents, when neither OverridePolicy nor status has one.

use std::collections::BTreeMap;

use crate::rollout::{report::ClusterReport, reported_list::newest_reported};
use mczk_api::{
    contract::naming::Naming,
    mutation::broken,
    zookeeper::{Ensemble, EnsemblePhase},
};

/// What the operator has recovered of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rollout) enum Recovered {
    /// Nothing: no cluster knows of an ensemble, so this is a first deployment.
    Nothing,
    /// The ensemble.
    Ensemble(Box<Ensemble>),
    /// Nothing yet: these clusters have not reported, and one of them may know a newer server list.
    Unreported(Vec<String>),
    /// Nothing: every cluster reported, and some report servers, but none reports the server list that they accept.
    ServerListUnknown,
}

/// The ensemble of the newest server list that an agent reports as the one that it accepts.
pub(super) fn ensemble(
    naming: Naming<'_>,
    clusters: &[String],
    reports: &BTreeMap<String, ClusterReport>,
) -> Recovered {
    if broken!(AllocateBeforeReports) {
        return Recovered::Nothing;
    }
    let statuses = || {
        let statuses = reports.values().filter_map(|report| report.status.as_ref());
        statuses.filter(|status| status.may_be_of(naming.incarnation))
    };
    let exists = statuses().any(|s| s.ensemble.is_some() || !s.servers.is_empty() || !s.voting_members.is_empty());
    // If one cluster reports an ensemble, every other cluster must report before the operator allocates an id: it may know a
    // newer list. A first deployment waits only for clusters that Karmada reaches, so that each of them gets the object first.
    let unreported = clusters.iter().filter(|name| !reports.get(*name).is_some_and(ClusterReport::fresh));
    let unreported: Vec<String> =
        unreported.filter(|name| exists || reports.get(*name).is_none_or(|report| report.reachable)).cloned().collect();
    if !unreported.is_empty() {
        return Recovered::Unreported(unreported);
    }
    match newest_reported(naming.incarnation, reports) {
        Some(list) => {
            let formed = list.phase == EnsemblePhase::Formed || statuses().any(|s| s.config_version.is_some());
            Recovered::Ensemble(Box::new(in_new_epoch(list, formed)))
        }
        None if exists => Recovered::ServerListUnknown,
        None => Recovered::Nothing,
    }
}

/// The newest reported list in the epoch after it. The lost policy may have held another list of that epoch or of the next:
/// two lists must not share an epoch.
fn in_new_epoch(list: &Ensemble, formed: bool) -> Ensemble {
    let epoch = list.epoch.unwrap_or(0).saturating_add(i64::from(!broken!(SameEpoch)));
    Ensemble {
        epoch: Some(epoch),
        phase: match list.phase {
            _ if formed => EnsemblePhase::Running,
            EnsemblePhase::Abandoned => EnsemblePhase::Suspended,
            EnsemblePhase::Decommissioning => EnsemblePhase::Running,
            phase => phase,
        },
        as_received: None,
        ..list.clone()
    }
}
