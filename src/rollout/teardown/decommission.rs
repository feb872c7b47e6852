//! The first step: every agent stops its servers for good.

use kube::ResourceExt as _;

use super::{
    context::{Teardown, is_decommissioned},
    recall::{Recalled, recall},
};
use crate::{
    api::ZooKeeper,
    contract::{conditions::Reason, labels::ABANDON_CLUSTERS},
    mutation::broken,
    rollout::{
        binding, certificates,
        cluster_selection::ClusterSelection,
        desired::{self, override_policy},
        objects,
        outcome::{ObjectWrite, Plan},
        override_rules::Overrides,
        ownership,
        quorum::ReportedQuorum,
        recovery::recover_records,
        render, report,
        reported_list::{in_phase, newest_reported},
    },
};

/// Decommissions the server list, and waits until every cluster reports it. `None` once all have.
pub(super) fn decommission(teardown: &Teardown<'_>, template: &ZooKeeper) -> serde_json::Result<Option<Plan>> {
    if teardown.is_released() {
        // All clusters reported before the release. Their objects may be gone now.
        return Ok(None);
    }
    let current = match recall(teardown, template)? {
        Recalled::Known(current) => *current,
        Recalled::Unreported(clusters) => {
            let message = format!(
                "Waiting for the server list of these clusters, because status and OverridePolicy are gone: {}",
                clusters.join(", ")
            );
            return Ok(Some(waiting(teardown, &message)));
        }
    };
    let mut concerned = teardown.concerned();
    concerned.extend(current.cluster_specs.keys().cloned());
    if concerned.is_empty() {
        return Ok(None);
    }
    let observed = teardown.observed;
    let named: Vec<String> = concerned.iter().cloned().collect();
    let reports = report::cluster_reports(observed.binding.as_ref(), &observed.clusters, &named);
    let incarnation = current.ensemble.incarnation.as_deref().unwrap_or_default();
    let newest = newest_reported(incarnation, &reports).and_then(|list| list.epoch);
    // After an older OverridePolicy was restored, agents report a newer server list: the epoch has to be above it.
    if !current.ensemble.phase.is_ending() || newest > current.ensemble.epoch {
        let ensemble = in_phase(&current.ensemble, current.ensemble.phase.ended(), incarnation, &reports)?;
        let quorum = ReportedQuorum::of(incarnation, &reports, &current.ensemble.servers, true);
        let status = observed.object.status.clone().unwrap_or_default();
        // Karmada must deliver the list to objects that it has released too.
        let owned = &current.owned | &ownership::owned(&status, &current, &reports, &quorum);
        return start(teardown, &Overrides { ensemble, owned, ..current }).map(Some);
    }
    let abandoned = objects::abandoned(&observed.object);
    let (mut left, mut waits_for) = (Vec::new(), Vec::new());
    for cluster in concerned.iter().filter(|cluster| !abandoned.contains(cluster.as_str())) {
        let report = reports.get(cluster);
        let status = report.filter(|report| report.fresh()).and_then(|report| report.status.as_ref());
        if status.is_some_and(|status| is_decommissioned(status, &current.ensemble)) {
            continue;
        }
        waits_for.push(cluster);
        let is_reachable = report.is_some_and(|report| report.reachable);
        left.push(if is_reachable { cluster.clone() } else { format!("{cluster} (not Ready in Karmada)") });
    }
    if left.is_empty() || broken!(DeleteBeforeDecommissioned) {
        return Ok(None);
    }
    let message = format!("Waiting for these clusters to decommission their servers: {}", left.join(", "));
    let mut plan = waiting(teardown, &message);
    let selection = ClusterSelection::recover(observed);
    let is_foreign = observed.policy.as_ref().is_some_and(|policy| !teardown.is_ours(&policy.metadata));
    if selection.is_some() && !is_foreign && !broken!(KeepEditedAtEnd) {
        plan.policy = ObjectWrite::Apply(teardown.propagation_policy()?);
    }
    if let Some(binding) = &observed.binding
        && selection.is_some_and(|selection| must_reschedule(teardown, &selection, &waits_for))
    {
        plan.reschedule = binding::next_request(binding, observed.asked, teardown.now);
        plan.requeue_after = Some(binding::RESCHEDULE_INTERVAL);
    }
    Ok(Some(plan))
}

/// True if Karmada has to schedule again: it reaches every selected cluster, and its schedule lacks one that has servers.
/// Without a Work that cluster would never learn of the end.
fn must_reschedule(teardown: &Teardown<'_>, selection: &ClusterSelection, waits_for: &[&String]) -> bool {
    let observed = teardown.observed;
    let Some(binding) = observed.binding.as_ref().filter(|_| !broken!(LeaveUnscheduled)) else { return false };
    let voters = selection.voters();
    let is_selected = |name: &str| {
        selection.clusters().iter().any(|selected| selected == name)
            && voters.as_ref().is_none_or(|voters| voters.contains_key(name))
    };
    let is_placed = |name: &str| binding.spec.clusters.iter().any(|placed| placed.name == name);
    let is_ready = |name: &String| observed.clusters.iter().any(|cluster| cluster.name() == name && cluster.ready());
    waits_for.iter().any(|name| is_selected(name) && !is_placed(name)) && selection.clusters().iter().all(is_ready)
}

/// A plan that waits for clusters, with the remedy for one that never reports.
fn waiting(teardown: &Teardown<'_>, message: &str) -> Plan {
    let remedy = format!("Abandon a cluster that never comes back with the annotation {ABANDON_CLUSTERS}");
    teardown.waiting(Reason::Decommissioning, format!("{message}. {remedy}"))
}

/// Writes the server list in its last phase.
fn start(teardown: &Teardown<'_>, wanted: &Overrides) -> serde_json::Result<Plan> {
    let observed = teardown.observed;
    let old = observed.object.status.clone().unwrap_or_default();
    let records = recover_records(observed, &old);
    let selection = ClusterSelection::recover(observed);
    let message = "Agents decommission the servers of every cluster".to_owned();
    let mut plan = teardown.waiting(Reason::Decommissioning, message);
    if let Ok(policy) = override_policy(observed, wanted, &records, selection.as_ref())? {
        plan.overrides = ObjectWrite::Apply(policy);
    }
    Ok(plan)
}

/// Restores a template that another client deleted: only through it agents receive the server list.
pub(super) fn restore_template(teardown: &Teardown<'_>) -> serde_json::Result<Option<Plan>> {
    let observed = teardown.observed;
    if observed.template.is_some()
        || (teardown.overrides().is_none() && teardown.policy().is_none())
        || teardown.is_released()
        || teardown.concerned().is_empty()
    {
        return Ok(None);
    }
    let current = teardown.current();
    let certificates = certificates::dependencies(current.ensemble.tls.as_ref(), None);
    let spec = render::template(&observed.object, &observed.server_image, certificates, &current.cluster_specs)?;
    let message = format!(
        "Another client deleted the template {}: the operator restores it, to reach the clusters with servers",
        observed.object.name_any()
    );
    let mut plan = teardown.waiting(Reason::Decommissioning, message);
    if teardown.policy().is_none() {
        plan.policy = ObjectWrite::Apply(teardown.propagation_policy()?);
    }
    plan.template = ObjectWrite::Apply(desired::template(observed, &spec)?);
    Ok(Some(plan))
}
