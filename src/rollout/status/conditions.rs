//! The conditions of a MultiClusterZooKeeper.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{
    certificates,
    inputs::{MAX_MESSAGE, StatusInputs, messages},
};
use crate::{
    api::{multiclusterzookeeper::ClusterStatus, zookeeper::Role},
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason},
        server_list::majority,
        supported_versions::{kubernetes, supports_kubernetes},
        zookeeper_versions::{SAFE_SINCE, known_loss},
    },
    rollout::blocker::{Blocker, because},
};

/// Every condition.
pub(super) fn conditions(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Vec<Condition> {
    let all = [
        (ConditionType::Ready, ready(inputs, clusters)),
        (ConditionType::Progressing, progressing(inputs)),
        (ConditionType::Degraded, degraded(inputs, clusters)),
        (ConditionType::QuorumSafe, quorum_safe(inputs)),
        (ConditionType::Scheduled, scheduled(inputs)),
        (ConditionType::UnsafeVersion, unsafe_version(inputs)),
        (ConditionType::Paused, paused(inputs)),
        (ConditionType::CertificatesExpire, certificates::expire(inputs)),
    ];
    all.into_iter().map(|(type_, blocker)| condition(inputs, type_, &blocker)).collect()
}

/// A condition. The reason determines its status.
fn condition(inputs: &StatusInputs<'_>, type_: ConditionType, blocker: &Blocker) -> Condition {
    debug_assert!(blocker.reason.status_in(type_).is_some(), "{} is no reason of {type_}", blocker.reason);
    let status = blocker.reason.status_in(type_).unwrap_or(ConditionStatus::False).as_str();
    let before = inputs.old.conditions.iter().find(|before| before.type_ == type_.as_str() && before.status == status);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: blocker.reason.as_str().to_owned(),
        message: blocker.message.chars().take(MAX_MESSAGE).collect(),
        last_transition_time: before.map_or(Time(inputs.known.now), |before| before.last_transition_time.clone()),
        observed_generation: inputs.known.object.metadata.generation,
    }
}

fn ready(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Blocker {
    if inputs.known.object.metadata.deletion_timestamp.is_some() {
        return because(Reason::Deleting, "The ensemble is being deleted");
    }
    if let Some(required) = &inputs.findings.action_required {
        return required.clone();
    }
    if !inputs.is_done() {
        return because(Reason::RollingOut, inputs.rollout());
    }
    if let Some(blocker) = inputs.unscheduled_change() {
        return because(Reason::RollingOut, format!("The newest spec waits for a schedule: {}", blocker.message));
    }
    match clusters.iter().find(|cluster| !cluster.voters.is_empty() && !cluster.ready) {
        Some(first) => {
            let cause = first.message.as_deref().unwrap_or("Not complete");
            because(Reason::ClusterNotReady, format!("Cluster {}: {cause}", first.name))
        }
        None => because(Reason::Serving, "Every cluster is complete and serves"),
    }
}

fn progressing(inputs: &StatusInputs<'_>) -> Blocker {
    let mut blocker = progress(inputs);
    if inputs.findings.newer_change {
        blocker.message += ". A newer change of spec waits until the current record is done";
    }
    blocker
}

/// The progress of the current record.
fn progress(inputs: &StatusInputs<'_>) -> Blocker {
    let findings = inputs.findings;
    if let Some(failure) = inputs.known.failure {
        return because(Reason::ApplyFailed, failure);
    }
    if let Some(required) = &findings.action_required {
        return required.clone();
    }
    if findings.paused {
        return because(Reason::Paused, "The rollout is paused (rollout.paused): no further cluster starts");
    }
    if let Some(blocker) = &findings.waiting {
        return blocker.clone();
    }
    if let Some(blocker) = &findings.unscheduled {
        return because(Reason::WaitingForSchedule, format!("Waiting for a schedule: {}", blocker.message));
    }
    if !inputs.is_done() {
        return because(Reason::Deploying, inputs.rollout());
    }
    match &findings.replacing {
        Some(replacing) => replacing.clone(),
        None => because(Reason::Done, "The last record is rolled out"),
    }
}

fn degraded(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Blocker {
    let quorum = inputs.quorum;
    let is_unreachable = |name: &str| inputs.reports.get(name).is_none_or(|report| !report.reachable);
    let with_voters = clusters.iter().filter(|cluster| !cluster.voters.is_empty());
    let unreachable: Vec<&str> =
        with_voters.map(|cluster| cluster.name.as_str()).filter(|n| is_unreachable(n)).collect();
    if !unreachable.is_empty() {
        return because(
            Reason::ClusterUnreachable,
            format!("Not Ready in Karmada, or without a Ready node: {}", unreachable.join(", ")),
        );
    }
    if inputs.ensemble.phase.is_bootstrap() && !quorum.formed {
        return because(Reason::Bootstrapping, "The first quorum has not formed yet");
    }
    let unusable = reported(inputs, ConditionType::VolumeUnusable);
    if quorum.formed && !quorum.holds() {
        let message = "No cluster reports a quorum: agents stop no serving voter, and the membership does not change. Restore servers until a majority serves";
        let volumes: Vec<&str> = unusable.iter().map(|volume| volume.message.as_str()).collect();
        return because(Reason::QuorumNotSeen, [&[message], &volumes[..]].concat().join(". "));
    }
    if let Some(unusable) = unusable.into_iter().next() {
        return unusable;
    }
    let down: Vec<String> =
        quorum.voters.iter().filter(|id| !quorum.serving.contains(id)).map(ToString::to_string).collect();
    if !down.is_empty() {
        return because(Reason::VotersDown, format!("Ids of voters that do not serve: {}", down.join(", ")));
    }
    if inputs.ensemble.servers.is_empty() && !quorum.formed {
        return because(Reason::NoEnsemble, "No ensemble exists yet");
    }
    let kept = reported(inputs, ConditionType::ClientCertificatesKept);
    if !kept.is_empty() {
        let messages: Vec<String> = kept.into_iter().map(|kept| kept.message).collect();
        return because(Reason::ClientCertificates, messages.join("; "));
    }
    if let Some(full) = reported(inputs, ConditionType::DiskPressure).into_iter().next() {
        return full;
    }
    because(Reason::Healthy, "Every voter of the ensemble serves")
}

/// What agents report under a condition, as reasons of `Degraded`.
fn reported(inputs: &StatusInputs<'_>, type_: ConditionType) -> Vec<Blocker> {
    let degrades = |reason: &Reason| reason.status_in(ConditionType::Degraded).is_some();
    let blocker = |(reason, message)| {
        let reason: Option<Reason> = reason;
        because(reason.filter(degrades).unwrap_or(Reason::VotersDown), message)
    };
    messages(inputs, type_).into_iter().map(blocker).collect()
}

fn quorum_safe(inputs: &StatusInputs<'_>) -> Blocker {
    let voters: Vec<_> = inputs.ensemble.servers.iter().filter(|server| server.role == Role::Voter).collect();
    if voters.is_empty() {
        return because(Reason::NoEnsemble, "No ensemble exists yet");
    }
    let is_even = voters.len() % 2 == 0;
    let even = if is_even {
        ". An even number of voters survives no more losses than one voter fewer: declare an odd number"
    } else {
        ""
    };
    let needed = majority(voters.len());
    let mut by_cluster: BTreeMap<&str, usize> = BTreeMap::new();
    for server in &voters {
        *by_cluster.entry(server.cluster.as_str()).or_default() += 1;
    }
    if let Some((cluster, count)) = by_cluster.iter().find(|(_, count)| voters.len() - **count < needed) {
        return because(
            Reason::ClusterHoldsMajority,
            format!(
                "Without cluster {cluster}, which holds {count} of {} voters, no majority is left: spread the voters over three clusters or more{even}",
                voters.len()
            ),
        );
    }
    let is_exposed = |cluster: &str| {
        let rest = voters.iter().filter(|s| s.cluster != cluster && inputs.quorum.serving.contains(&s.id)).count();
        rest < needed
    };
    if let Some(cluster) = by_cluster.keys().find(|cluster| is_exposed(cluster)) {
        return because(
            Reason::VotersDown,
            format!("With the voters that serve now, the loss of cluster {cluster} would lose the quorum{even}"),
        );
    }
    let reason = if is_even { Reason::EvenVoters } else { Reason::Spread };
    because(reason, format!("The ensemble survives the loss of any one cluster{even}"))
}

fn scheduled(inputs: &StatusInputs<'_>) -> Blocker {
    if let Some(blocker) = &inputs.findings.unscheduled {
        return blocker.clone();
    }
    if inputs.schedule.is_empty() {
        return because(Reason::NotEvaluated, "The operator has not evaluated the schedule");
    }
    let mut voters: Vec<String> = inputs.schedule.iter().map(|s| format!("{} {}", s.cluster, s.replicas)).collect();
    voters.sort();
    because(Reason::Placed, format!("Voters by cluster: {}", voters.join(", ")))
}

fn unsafe_version(inputs: &StatusInputs<'_>) -> Blocker {
    let reported = inputs.reports.values().filter_map(|report| Some((&report.cluster, report.status.as_ref()?)));
    let servers = reported.flat_map(|(cluster, status)| status.servers.iter().map(move |server| (cluster, server)));
    let unsafe_servers: Vec<String> = servers
        .filter_map(|(cluster, server)| {
            let version = server.version.as_deref()?;
            let issue = known_loss(version)?;
            Some(format!("server {} in cluster {cluster} ({version}, {issue})", server.id))
        })
        .collect();
    if unsafe_servers.is_empty() {
        if let Some(message) = unsupported_clusters(inputs) {
            return because(Reason::UnsupportedVersion, message);
        }
        return because(Reason::NoKnownLoss, "No server reports a version that is known to lose acknowledged writes");
    }
    let message = format!(
        "These servers run a version that is known to lose acknowledged writes: {}. Upgrade spec.template.image to {SAFE_SINCE} or newer",
        unsafe_servers.join(", ")
    );
    because(Reason::LosesWrites, message)
}

/// The clusters of the ensemble with a version of Kubernetes that mczk does not support.
fn unsupported_clusters(inputs: &StatusInputs<'_>) -> Option<String> {
    let used = inputs.known.clusters.iter().filter(|cluster| inputs.cluster_specs.contains_key(cluster.name()));
    let unsupported: Vec<String> = used
        .filter(|cluster| !supports_kubernetes(&cluster.status.kubernetes_version))
        .map(|cluster| format!("{} ({})", cluster.name(), cluster.status.kubernetes_version))
        .collect();
    (!unsupported.is_empty()).then(|| {
        format!(
            "These clusters run a version of Kubernetes that mczk does not support: {}. Supported are {}: upgrade the clusters or mczk",
            unsupported.join(", "),
            kubernetes()
        )
    })
}

fn paused(inputs: &StatusInputs<'_>) -> Blocker {
    let rollout = inputs.known.object.spec.rollout.as_ref();
    if rollout.and_then(|rollout| rollout.paused) == Some(true) {
        because(Reason::PausedBySpec, "rollout.paused is set: no further cluster starts")
    } else {
        because(Reason::NotPaused, "rollout.paused is not set")
    }
}
