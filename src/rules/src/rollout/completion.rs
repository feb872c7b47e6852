//! When a member cluster is complete.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::rollout::{quorum::ReportedQuorum, report::ClusterReport};
use mczk_api::{
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason, find},
        server_list::majority,
    },
    mutation::broken,
    zookeeper::{Ensemble, Role, ZooKeeperSpec, ZooKeeperStatus},
};

/// Whether a cluster is complete.
///
/// No server serves before a majority of the ensemble has started. Until then a cluster is complete when its servers have
/// started; afterwards when they serve, as voters of the configuration.
///
/// # Errors
/// What the cluster waits for.
pub(super) fn complete(
    report: Option<&ClusterReport>,
    spec: &ZooKeeperSpec,
    ensemble: &Ensemble,
    quorum: &ReportedQuorum,
    reports: &BTreeMap<String, ClusterReport>,
) -> Result<(), String> {
    let (report, status) = reported(report)?;
    // The servers of this cluster begin when those of later ones answer.
    if !quorum.formed && waits_for_voters(status, spec) {
        return Ok(());
    }
    if !broken!(BelieveOtherSpecHash) {
        has_completed(status, spec)?;
    }
    let missing = missing(status);
    let because = missing.map(|words| format!(": {words}")).unwrap_or_default();
    let started = status.started_replicas.unwrap_or(0);
    if started < spec.replicas {
        return Err(format!("{started} of {} servers have started{because}", spec.replicas));
    }
    if !quorum.formed && !majority_has_started(ensemble, reports) && !broken!(ServeBeforeMajority) {
        return Ok(());
    }
    let serving = status.ready_replicas.unwrap_or(0);
    if serving < spec.replicas {
        return Err(format!("{serving} of {} servers serve{because}", spec.replicas));
    }
    if let Some(words) = missing {
        return Err(format!("in progress: {words}"));
    }
    if status.epoch() < ensemble.epoch {
        return Err("waiting for the agent to accept the newest server list".to_owned());
    }
    if quorum.formed { votes_as_listed(&report.cluster, status, ensemble, quorum) } else { Ok(()) }
}

/// The report of a cluster with its status, if the operator may rely on it.
fn reported(report: Option<&ClusterReport>) -> Result<(&ClusterReport, &ZooKeeperStatus), String> {
    let report = report.ok_or("waiting for Karmada to create the Work")?;
    if !report.reachable {
        let absence = ClusterReport::absence(Some(report)).message;
        return Err(format!("the cluster is {absence}, and its last report may be stale"));
    }
    if !report.applied {
        let refusal = report.apply_error.as_deref().unwrap_or("no reason given");
        return Err(format!("Karmada could not apply the object: {refusal}"));
    }
    if report.unreadable {
        return Err("the operator cannot read the agent's report: bring both to one version".to_owned());
    }
    let status = report.status.as_ref().ok_or("waiting for the first report of the agent")?;
    Ok((report, status))
}

/// True if the servers of a cluster have begun once, and wait for the answers of other voters.
fn waits_for_voters(status: &ZooKeeperStatus, spec: &ZooKeeperSpec) -> bool {
    let waits = |progressing: &Condition| progressing.reason == Reason::WaitingForVoters.as_str();
    status.observed_spec_hash == spec.spec_hash && progressing(status).is_some_and(waits)
}

/// What the agent reports of its progress.
pub(super) fn progressing(status: &ZooKeeperStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == ConditionType::AgentProgressing.as_str())
}

/// Whether the agent has completed the cluster spec.
fn has_completed(status: &ZooKeeperStatus, spec: &ZooKeeperSpec) -> Result<(), String> {
    if let Some(condition) = find(&status.conditions, ConditionType::Blocked, ConditionStatus::True) {
        return Err(format!("blocked: {}", condition.message));
    }
    if status.observed_spec_hash != spec.spec_hash {
        return Err("waiting for the agent to observe the new spec".to_owned());
    }
    if status.completed_spec_hash != spec.spec_hash {
        let message = progressing(status).map(|condition| condition.message.as_str());
        return Err(match message {
            Some(message) if !message.is_empty() => format!("in progress: {message}"),
            _ => "in progress".to_owned(),
        });
    }
    Ok(())
}

/// What a server or a volume lacks now, in the agent's words. The completed spec hash says that nothing was lacking once. A
/// server that waits for a restart serves until then.
fn missing(status: &ZooKeeperStatus) -> Option<&str> {
    let progressing = progressing(status)?;
    let lacks = [Reason::ServerFailed, Reason::Starting, Reason::GrowingVolume];
    lacks.iter().any(|reason| reason.as_str() == progressing.reason).then_some(progressing.message.as_str())
}

/// True if fresh reports show that a majority of the listed voters has started.
fn majority_has_started(ensemble: &Ensemble, reports: &BTreeMap<String, ClusterReport>) -> bool {
    let voters = ensemble.servers.iter().filter(|server| server.role == Role::Voter).count();
    let fresh = reports.values().filter_map(ClusterReport::fresh_status);
    let started: i64 = fresh
        .filter(|status| ensemble.incarnation.as_deref().is_none_or(|id| status.may_be_of(id)))
        .map(|status| i64::from(status.started_replicas.unwrap_or(0)))
        .sum();
    usize::try_from(started).unwrap_or(0) >= majority(voters)
}

/// Whether the configuration has each listed voter of a cluster, and no other server of it.
fn votes_as_listed(
    cluster: &str,
    status: &ZooKeeperStatus,
    ensemble: &Ensemble,
    quorum: &ReportedQuorum,
) -> Result<(), String> {
    let mut own = ensemble.servers.iter().filter(|server| server.cluster == cluster && server.role == Role::Voter);
    if let Some(server) = own.find(|server| !quorum.voters.contains(&server.id)) {
        return Err(format!("server {} is not a voter of the ensemble yet", server.id));
    }
    // Only servers of this cluster: one of another cluster may have to stay until a server of a later cluster has joined.
    let listed: BTreeSet<i32> = ensemble.servers.iter().map(|server| server.id).collect();
    let mut ids = status.servers.iter().map(|server| server.id);
    match ids.find(|id| quorum.voters.contains(id) && !listed.contains(id)) {
        Some(id) => Err(format!("server {id} has to leave the ensemble first")),
        None => Ok(()),
    }
}
