//! The first step: every agent stops its servers for good.

use std::collections::BTreeSet;

use super::{
    deletion::TeardownReport,
    lost_clusters::{has_left_selection, tombstone_of_left},
};
use crate::rollout::{
    binding, certificates,
    cluster_selection::ClusterSelection,
    completion::progressing,
    known::{Ending, Known},
    outcome::{Content, ObjectWrite, Objects, Propagation},
    override_rules::{self, Overrides},
    ownership,
    quorum::ReportedQuorum,
    recovery::{Recovered, add_missing_specs, recover_ensemble},
    render,
    report::ClusterReport,
    reported_list::in_phase,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        labels::ABANDON_CLUSTERS,
    },
    mutation::broken,
    zookeeper::Role,
};

/// Decommissions the server list, and waits until every cluster reports it. `None` once all have.
pub(super) fn decommission(
    known: &Known<'_>,
    ending: &Ending,
    template: &ZooKeeper,
) -> serde_json::Result<Option<TeardownReport>> {
    let mut current = match recall(known, template)? {
        Recalled::Known(current) => *current,
        Recalled::Unreported(clusters) => {
            let message = format!(
                "Waiting for the server list of these clusters, because status and OverridePolicy are gone: {}",
                clusters.join(", ")
            );
            return Ok(Some(waiting(&message)));
        }
    };
    if ending.concerned.is_empty() && current.cluster_specs.is_empty() {
        return Ok(None);
    }
    let reported = known.reported_list.as_ref().filter(|list| list.incarnation == current.ensemble.incarnation);
    // After an older OverridePolicy was restored, agents report a newer server list: the epoch has to be above it, and its clusters
    // have to end too.
    let newer = reported.filter(|list| list.epoch > current.ensemble.epoch);
    if !current.ensemble.phase.is_ending() || newer.is_some() {
        current.ensemble = newer.cloned().unwrap_or(current.ensemble);
        return start(known, current).map(Some);
    }
    Ok(wait(known, ending, &current))
}

/// Waits until every cluster that may have servers reports their end. `None` once all have. A tombstone ends those of a cluster that
/// has left the selection.
fn wait(known: &Known<'_>, ending: &Ending, current: &Overrides) -> Option<TeardownReport> {
    let is_done =
        |cluster: &str| known.reports.get(cluster).is_some_and(|report| report.has_decommissioned(&current.ensemble));
    let mut concerned = ending.concerned.clone();
    concerned.extend(current.cluster_specs.keys().cloned());
    let has_tombstone = known.tombstones.contains(&known.incarnation.id);
    let ends = |cluster: &str| is_done(cluster) || has_tombstone && has_left_selection(known, cluster);
    concerned.retain(|cluster| !known.abandoned.contains(cluster.as_str()) && !ends(cluster));
    if concerned.is_empty() || broken!(DeleteBeforeDecommissioned) {
        return None;
    }
    let state = |cluster: &String| {
        let report = known.reports.get(cluster);
        let is_reachable = report.map_or_else(|| known.is_ready(cluster), |report| report.reachable);
        let status = report.and_then(|report| report.status.as_ref());
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        // What the agent says of servers that are still to run is no reason to wait.
        let ends = status.is_some_and(|status| status.ensemble.as_ref().is_some_and(|list| list.phase.is_ending()));
        let waits = || progressing(status.filter(|_| ends)?).filter(|said| said.reason == Reason::Waiting.as_str());
        match find(conditions, ConditionType::Blocked, ConditionStatus::True).or_else(waits) {
            _ if !is_reachable => format!("{cluster} ({})", ClusterReport::absence(report).message),
            Some(said) => format!("{cluster} ({})", said.message),
            None => cluster.clone(),
        }
    };
    let left: Vec<String> = concerned.iter().map(state).collect();
    let message = format!("Waiting for these clusters to decommission their servers: {}", left.join(", "));
    let is_lacking = |selection: &ClusterSelection| {
        concerned.iter().any(|cluster| binding::lacks(known, selection, cluster)) && !broken!(LeaveUnscheduled)
    };
    let selection = known.selection.as_ref();
    Some(TeardownReport {
        objects: Objects { policy: restored_policy(known), ..Objects::default() },
        request: selection.and_then(|selection| binding::request(known, selection, is_lacking(selection))),
        tombstone: tombstone_of_left(known, ending),
        ..waiting(&message)
    })
}

/// The policy of the known selection, unless another owner has its name.
fn restored_policy(known: &Known<'_>) -> ObjectWrite<Propagation> {
    let is_foreign = known.policy.is_some_and(|policy| !known.is_ours(&policy.metadata));
    let restored = known.selection.clone().filter(|_| !is_foreign && !broken!(KeepEditedAtEnd));
    restored.map_or(ObjectWrite::Leave, |selection| ObjectWrite::Apply(Propagation { selection, releases: false }))
}

/// A step that waits for clusters, with the remedy for one that never reports.
fn waiting(message: &str) -> TeardownReport {
    let remedy = format!("Abandon a cluster that never comes back with the annotation {ABANDON_CLUSTERS}");
    TeardownReport::waits(Reason::Decommissioning, format!("{message}. {remedy}"))
}

/// Writes the server list in its last phase.
fn start(known: &Known<'_>, current: Overrides) -> serde_json::Result<TeardownReport> {
    let reports = &known.reports;
    let incarnation = current.ensemble.incarnation.as_deref().unwrap_or_default();
    let ensemble = in_phase(&current.ensemble, current.ensemble.phase.ended(), incarnation, reports)?;
    let quorum = ReportedQuorum::of(incarnation, reports, &current.ensemble.servers, true);
    // Karmada must deliver the list to objects that it has released too.
    let owned = &current.owned | &ownership::owned(&known.status, &current, reports, &quorum);
    let wanted = Overrides { ensemble, owned, ..current };
    let content = |spec| Content { spec, records: known.records.clone(), selection: known.selection.clone() };
    let spec = override_rules::write(&known.namespace, &known.name, &wanted).ok();
    let overrides = spec.map_or(ObjectWrite::Leave, |spec| ObjectWrite::Apply(content(spec)));
    Ok(TeardownReport {
        objects: Objects { overrides, ..Objects::default() },
        ..TeardownReport::waits(Reason::Decommissioning, "Agents decommission the servers of every cluster")
    })
}

/// Restores a template that another client deleted: only through it agents receive the server list.
pub(super) fn restore_template(known: &Known<'_>, ending: &Ending) -> serde_json::Result<Option<TeardownReport>> {
    let has_policy = known.own_policy().is_some();
    if known.template.is_some()
        || (known.own_override_policy().is_none() && !has_policy)
        || ending.released
        || ending.concerned.is_empty()
    {
        return Ok(None);
    }
    let Overrides { ensemble, cluster_specs, .. } = &known.overrides;
    let certificates = certificates::dependencies(ensemble.tls.as_ref(), None);
    let spec = render::template(known.object, known.server_image, certificates, cluster_specs)?;
    let message = format!(
        "Another client deleted the template {}: the operator restores it, to reach the clusters with servers",
        known.name
    );
    let policy = || ObjectWrite::Apply(Propagation { selection: ending.selection.clone(), releases: false });
    let policy = if has_policy { ObjectWrite::Leave } else { policy() };
    Ok(Some(TeardownReport {
        objects: Objects { policy, template: ObjectWrite::Apply(spec), ..Objects::default() },
        ..TeardownReport::waits(Reason::Decommissioning, message)
    }))
}

/// The state of a lost server list.
enum Recalled {
    /// The server list is known, or no server exists.
    Known(Box<Overrides>),
    /// These clusters have to report their server list first.
    Unreported(Vec<String>),
}

/// The content of the OverridePolicy. If that is lost: the server list of the status or of the reports, because no object may
/// be deleted before its servers are decommissioned.
fn recall(known: &Known<'_>, template: &ZooKeeper) -> serde_json::Result<Recalled> {
    let mut current = known.overrides.clone();
    if !current.ensemble.servers.is_empty() || broken!(DecommissionOnlyKnown) {
        return Ok(Recalled::Known(Box::new(current)));
    }
    let clusters = clusters_that_may_know(known);
    let old = &known.status;
    let tls = certificates::newest(&current.ensemble, known.reported_list.as_ref(), old.ensemble.as_ref());
    match recover_ensemble(known.naming(&template.spec), old, &clusters, &known.reports, tls) {
        Recovered::Nothing => return Ok(Recalled::Known(Box::new(current))),
        Recovered::Unreported(unreported) => return Ok(Recalled::Unreported(unreported)),
        // The user has abandoned every cluster.
        Recovered::ServerListUnknown if clusters.is_empty() => return Ok(Recalled::Known(Box::new(current))),
        // The clusters report servers, but no server list.
        Recovered::ServerListUnknown => return Ok(Recalled::Unreported(clusters)),
        Recovered::Ensemble(found) => current.ensemble = *found,
    }
    let voters = current.ensemble.servers.iter().filter(|server| server.role == Role::Voter);
    let clusters: BTreeSet<String> = voters.map(|server| server.cluster.clone()).collect();
    // This list arrives with the last phase, so the spec restarts nothing.
    add_missing_specs(&mut current, &template.spec, &clusters, old, &known.reports)?;
    Ok(Recalled::Known(Box::new(current)))
}

/// The clusters with a Work whose agents may know the server list, without abandoned ones.
fn clusters_that_may_know(known: &Known<'_>) -> Vec<String> {
    // If Karmada has applied the object and no status was ever written, no agent ever acted on it.
    let is_untouched = |r: &ClusterReport| r.reachable && r.applied && r.status.is_none() && !r.unreadable;
    let may_know =
        |name: &str, report| !known.abandoned.contains(name) && known.has_work(name) && !is_untouched(report);
    known.reports.iter().filter(|(name, report)| may_know(name, report)).map(|(name, _)| name.clone()).collect()
}
