//! The status of each cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::inputs::{MAX_MESSAGE, StatusInputs};
use crate::rollout::completion::complete;
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, find},
    multiclusterzookeeper::ClusterStatus,
    zookeeper::{Role, ZooKeeperStatus},
};

/// The status of every cluster that has the object, a cluster spec, a schedule or a server, by name. A cluster that left without
/// power keeps the object until Karmada reaches it. A home whose voters are at a spare is named too.
pub(super) fn clusters(inputs: &StatusInputs<'_>) -> Vec<ClusterStatus> {
    // A federation may have many clusters that could have the object but never received anything.
    let reporting = inputs.reports.values().filter(|r| r.applied || r.status.is_some() || r.apply_error.is_some());
    let lost_list = inputs.has_lost_the_list();
    let left_behind = inputs.old.clusters.iter().filter(|old| inputs.known.is_left_behind(old));
    let mut names: Vec<&String> = reporting
        .map(|report| &report.cluster)
        .chain(inputs.next.cluster_specs.keys())
        .chain(inputs.next.schedule.iter().map(|scheduled| &scheduled.cluster))
        .chain(inputs.next.ensemble.servers.iter().map(|server| &server.cluster))
        .chain(left_behind.map(|cluster| &cluster.name))
        .chain(inputs.next.failover.moved.keys())
        .chain(inputs.next.failover.moved_since.keys())
        .chain(lost_list.then_some(&inputs.old.clusters).into_iter().flatten().map(|cluster| &cluster.name))
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| cluster(inputs, name)).collect()
}

fn cluster(inputs: &StatusInputs<'_>, name: &str) -> ClusterStatus {
    let old = inputs.old.clusters.iter().find(|cluster| cluster.name == name);
    let report = inputs.reports.get(name);
    let status = report.and_then(|report| report.status.as_ref());
    let spec = inputs.next.cluster_specs.get(name);
    let incomplete = incomplete(inputs, name);
    let is_current = inputs
        .next
        .desired
        .get(name)
        .is_none_or(|desired| spec.is_some_and(|spec| spec.spec_hash == desired.spec_hash));
    let ready = incomplete.is_none() && is_current;
    let outdated = || (!is_current).then(|| "Complete; a change waits for earlier clusters in the rollout".to_owned());
    let message = incomplete.or_else(outdated).or_else(|| awaited(status?));
    ClusterStatus {
        name: name.to_owned(),
        desired: spec.map_or(0, |spec| spec.replicas),
        started: status.and_then(|status| status.started_replicas).unwrap_or(0),
        serving: status.and_then(|status| status.ready_replicas).unwrap_or(0),
        revision: spec.map(|spec| spec.revision.clone()),
        spec_hash: spec
            .and_then(|spec| spec.spec_hash.clone())
            .or_else(|| lost_spec_hash(inputs, name))
            .or_else(|| old.filter(|old| inputs.known.is_left_behind(old)).and_then(|old| old.spec_hash.clone())),
        voters: ids(inputs, name, Role::Voter),
        observers: ids(inputs, name, Role::Observer),
        ready,
        complete_since: ready.then(|| {
            old.filter(|old| old.ready).and_then(|old| old.complete_since.clone()).unwrap_or(Time(inputs.known.now))
        }),
        reported: old.is_some_and(|old| old.reported)
            || report.is_some_and(|report| report.applied && report.status.is_some()),
        moved_to: inputs.next.failover.moved.get(name).cloned(),
        moved_since: inputs.next.failover.moved_since.get(name).map(|since| Time(*since)),
        lost_since: inputs.next.failover.lost_since.get(name).map(|since| Time(*since)),
        ready_since: inputs.next.failover.ready_since.get(name).map(|since| Time(*since)),
        message: message.map(|message| message.chars().take(MAX_MESSAGE).collect()),
    }
}

/// Why a cluster is not complete; `None` if it is.
fn incomplete(inputs: &StatusInputs<'_>, name: &str) -> Option<String> {
    let report = inputs.reports.get(name);
    let is_scheduled = || inputs.next.schedule.iter().any(|scheduled| scheduled.cluster == name);
    if let Some(spec) = inputs.next.cluster_specs.get(name) {
        let outcome = complete(report, spec, &inputs.next.ensemble, &inputs.next.quorum, inputs.reports);
        return outcome.err().map(|message| capitalise(&message));
    }
    let refusal = report.filter(|report| !report.applied).and_then(|report| report.apply_error.as_deref());
    Some(match refusal {
        Some(refusal) => format!("Karmada could not apply the object: {refusal}"),
        None if is_scheduled() => "Waiting for earlier clusters in the rollout".to_owned(),
        None if report.is_some_and(|report| report.applied && report.status.is_none()) => {
            "Waiting for the first report: the agent must run there".to_owned()
        }
        None if inputs.old.clusters.iter().any(|old| old.name == name && inputs.known.is_left_behind(old)) => {
            "The cluster has left the ensemble. Karmada removes its object there once it reaches the cluster".to_owned()
        }
        None => "The cluster has no servers".to_owned(),
    })
}

/// Text with a capital first letter.
fn capitalise(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// The message that a user waits for: of a volume that the user wants replaced, or of a server that has to leave its node.
/// Last comes an agent that cannot see drains: nothing waits for it now.
fn awaited(status: &ZooKeeperStatus) -> Option<String> {
    use ConditionStatus::{True, Unknown};
    use ConditionType::{Contested, Draining, Replacing};
    let of = [(Replacing, True), (Draining, True), (Contested, True), (Draining, Unknown)];
    let found = of.into_iter().find_map(|(type_, is)| find(&status.conditions, type_, is))?;
    Some(found.message.clone())
}

/// Ids of a cluster's servers of one role, by ordinal.
fn ids(inputs: &StatusInputs<'_>, cluster: &str, role: Role) -> Vec<i32> {
    if inputs.has_lost_the_list() {
        let old = inputs.old.clusters.iter().find(|old| old.name == cluster);
        let ids = old.map(|old| if role == Role::Voter { &old.voters } else { &old.observers });
        return ids.cloned().unwrap_or_default();
    }
    let of_cluster =
        inputs.next.ensemble.servers.iter().filter(|server| server.cluster == cluster && server.role == role);
    let mut servers: Vec<_> = of_cluster.collect();
    servers.sort_by_key(|server| server.ordinal);
    servers.iter().map(|server| server.id).collect()
}

/// The spec hash of a bootstrap cluster whose cluster spec the OverridePolicy has lost. Its servers may run, and the status
/// may be the only record of them.
fn lost_spec_hash(inputs: &StatusInputs<'_>, name: &str) -> Option<String> {
    let list = &inputs.next.ensemble;
    let same_incarnation =
        inputs.old.ensemble.as_ref().is_some_and(|old| Some(&old.incarnation) == list.incarnation.as_ref());
    let is_listed = || list.servers.iter().any(|server| server.cluster == name);
    let recorded = inputs.old.clusters.iter().find(|cluster| cluster.name == name);
    let recorded = recorded.filter(|_| list.phase.is_bootstrap() && same_incarnation && is_listed())?;
    recorded.spec_hash.clone()
}
