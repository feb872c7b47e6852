//! The conditions of a MultiClusterZooKeeper.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{
    certificates, cluster_names, failover, imports,
    inputs::{MAX_MESSAGE, StatusInputs, messages},
    votes,
};
use crate::rollout::{binding, missing_secrets::MissingSecrets, report::ClusterReport, tolerance::Tolerance};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::{ConditionStatus, ConditionType, Reason},
        tested_versions::{is_tested_kubernetes, kubernetes},
        zookeeper_versions::{NEWEST, TESTED, known_loss},
    },
    multiclusterzookeeper::ClusterStatus,
    zookeeper::Role,
};

/// Every condition.
pub(super) fn conditions(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Vec<Condition> {
    let all = [
        (ConditionType::Ready, ready(inputs, clusters)),
        (ConditionType::Progressing, progressing(inputs)),
        (ConditionType::Degraded, degraded(inputs, clusters)),
        (ConditionType::QuorumSafe, quorum_safe(inputs)),
        (ConditionType::FailedOver, failover::failed_over(inputs)),
        (ConditionType::FailoverReady, failover::ready(inputs)),
        (ConditionType::Scheduled, scheduled(inputs)),
        (ConditionType::UnsafeVersion, unsafe_version(inputs)),
        (ConditionType::UntestedVersion, untested_version(inputs)),
        (ConditionType::Paused, paused(inputs)),
        (ConditionType::CertificatesExpire, certificates::expire(inputs)),
    ];
    all.into_iter().map(|(type_, cause)| condition(inputs, type_, &cause)).collect()
}

/// A condition. The reason determines its status.
fn condition(inputs: &StatusInputs<'_>, type_: ConditionType, cause: &Cause) -> Condition {
    debug_assert!(cause.reason.status_in(type_).is_some(), "{} is no reason of {type_}", cause.reason);
    let status = cause.reason.status_in(type_).unwrap_or(ConditionStatus::False).as_str();
    let before = inputs.old.conditions.iter().find(|before| before.type_ == type_.as_str() && before.status == status);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: cause.reason.as_str().to_owned(),
        message: cause.message.chars().take(MAX_MESSAGE).collect(),
        last_transition_time: before.map_or(Time(inputs.known.now), |before| before.last_transition_time.clone()),
        observed_generation: inputs.known.object.metadata.generation,
    }
}

fn ready(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Cause {
    if inputs.known.object.metadata.deletion_timestamp.is_some() {
        return Cause::new(Reason::Deleting, "The ensemble is being deleted");
    }
    if let Some(needs) = &inputs.findings.needs {
        return needs.clone();
    }
    if let Some(rollout) = inputs.findings.unfinished.clone() {
        return Cause { reason: Reason::RollingOut, ..rollout };
    }
    if let Some(cause) = unscheduled_change(inputs) {
        return Cause::new(Reason::RollingOut, format!("The newest spec waits for a schedule: {}", cause.message));
    }
    match clusters.iter().find(|cluster| !cluster.voters.is_empty() && !cluster.ready) {
        Some(first) => {
            let cause = first.message.as_deref().unwrap_or("Not complete");
            Cause::new(Reason::ClusterNotReady, format!("Cluster {}: {cause}", first.name))
        }
        None => Cause::new(Reason::Serving, "Every cluster is complete and serves"),
    }
}

/// Why the newest spec is not rolled out, if no record covers it yet because the schedule for it is missing.
fn unscheduled_change<'a>(inputs: &StatusInputs<'a>) -> Option<&'a Cause> {
    let covered = inputs.next.records.last().map(|record| record.observed_generations.multiclusterzookeeper);
    let is_newer = covered < inputs.known.object.metadata.generation;
    inputs.findings.unscheduled.as_ref().filter(|_| is_newer)
}

/// The first step that is not done.
fn progressing(inputs: &StatusInputs<'_>) -> Cause {
    let findings = inputs.findings;
    let done = || Cause::new(Reason::Done, "The last record is rolled out");
    let mut cause = findings.progressing.clone().unwrap_or_else(done);
    if let Some(newer) = &findings.newer_change {
        cause.message = format!("{}. {}", cause.message, newer.message);
    }
    cause
}

/// Whatever else is wrong, it names a private key that travels: the longer it does, the more may have it.
fn degraded(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Cause {
    match (trouble(inputs, clusters), certificates::exposed(inputs)) {
        (Some(trouble), Some(exposed)) => {
            Cause { message: format!("{}. {}", exposed.message, trouble.message), ..trouble }
        }
        (trouble, exposed) => trouble.or(exposed).unwrap_or_else(|| unusual(inputs)),
    }
}

/// Why fewer servers serve than declared.
fn trouble(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Option<Cause> {
    let quorum = &inputs.next.quorum;
    if let Some(cause) = unreachable(inputs, clusters) {
        return Some(cause);
    }
    if inputs.next.ensemble.phase.is_bootstrap() && !quorum.formed {
        return Some(Cause::new(Reason::Bootstrapping, "The first quorum has not formed yet"));
    }
    let unusable = reported(inputs, ConditionType::VolumeUnusable);
    if quorum.formed && !quorum.holds() {
        let message = "No cluster reports a quorum: agents stop no serving voter, and the membership does not change. Restore servers until a majority serves";
        let volumes: Vec<&str> = unusable.iter().map(|volume| volume.message.as_str()).collect();
        return Some(Cause::new(Reason::QuorumNotSeen, [&[message], &volumes[..]].concat().join(". ")));
    }
    if let Some(unusable) = unusable.into_iter().next() {
        return Some(unusable);
    }
    let tolerance = Tolerance::of(&inputs.next.ensemble.servers, quorum, inputs.known);
    let follows = |id: &i32| tolerance.as_ref().is_some_and(|tolerance| tolerance.following().contains(id));
    let down: Vec<i32> = quorum.voters.iter().copied().filter(|id| !follows(id)).collect();
    let named =
        [("Ids of voters that do not serve: ", down), ("Voters that have lost their votes: ", votes::demoted(inputs))];
    let parts: Vec<String> =
        named.iter().filter(|(_, of)| !of.is_empty()).map(|(what, of)| format!("{what}{}", votes::ids(of))).collect();
    if !parts.is_empty() {
        return Some(Cause::new(Reason::VotersDown, parts.join(". ")));
    }
    let is_absent = inputs.next.ensemble.servers.is_empty() && !quorum.formed;
    is_absent.then(|| Cause::new(Reason::NoEnsemble, "No ensemble exists yet"))
}

/// What users should know of an ensemble that serves.
fn unusual(inputs: &StatusInputs<'_>) -> Cause {
    let kept = reported(inputs, ConditionType::ClientCertificatesKept);
    if !kept.is_empty() {
        let messages: Vec<String> = kept.into_iter().map(|kept| kept.message).collect();
        return Cause::new(Reason::ClientCertificates, messages.join("; "));
    }
    let missing = MissingSecrets::of(inputs.reports, inputs.next.ensemble.tls.as_ref());
    if let Some(missing) = missing.describe(&inputs.known.namespace) {
        return missing;
    }
    if let Some(full) = reported(inputs, ConditionType::DiskPressure).into_iter().next() {
        return full;
    }
    let named = binding::held_back(inputs.known)
        .or_else(|| imports::not_imported(inputs.known))
        .or_else(|| cluster_names::unknown_clusters(inputs.known));
    if let Some(without_effect) = named {
        return without_effect;
    }
    Cause::new(Reason::Healthy, "Every voter of the ensemble serves")
}

/// The clusters with voters that Karmada does not reach, or whose report is of another cluster.
fn unreachable(inputs: &StatusInputs<'_>, clusters: &[ClusterStatus]) -> Option<Cause> {
    let is_unreachable = |name: &&str| inputs.reports.get(*name).is_none_or(|report| !report.reachable);
    let with_voters = clusters.iter().filter(|cluster| !cluster.voters.is_empty());
    let names: Vec<&str> = with_voters.map(|cluster| cluster.name.as_str()).filter(is_unreachable).collect();
    let absence = |name: &&str| ClusterReport::absence(inputs.reports.get(*name));
    if names.iter().map(absence).any(|absence| absence.reason == Reason::ClusterUnreachable) {
        let message = format!("Not Ready in Karmada, or without a Ready node: {}", names.join(", "));
        return Some(Cause::new(Reason::ClusterUnreachable, message));
    }
    let first = names.first()?;
    let Cause { reason, message } = absence(first);
    Some(Cause::new(reason, format!("Cluster {first} is {message}")))
}

/// What agents report under a condition, as reasons of `Degraded`.
fn reported(inputs: &StatusInputs<'_>, type_: ConditionType) -> Vec<Cause> {
    let degrades = |reason: &Reason| reason.status_in(ConditionType::Degraded).is_some();
    let cause = |(reason, message)| {
        let reason: Option<Reason> = reason;
        Cause::new(reason.filter(degrades).unwrap_or(Reason::VotersDown), message)
    };
    messages(inputs, type_).into_iter().map(cause).collect()
}

fn quorum_safe(inputs: &StatusInputs<'_>) -> Cause {
    let list = &inputs.next.ensemble.servers;
    let Some(tolerance) = Tolerance::of(list, &inputs.next.quorum, inputs.known) else {
        return Cause::new(Reason::NoEnsemble, "No ensemble exists yet");
    };
    let is_even = list.iter().filter(|server| server.role == Role::Voter).count() % 2 == 0;
    let even = if is_even {
        ". An even number of voters survives no more losses than one voter fewer: declare an odd number"
    } else {
        ""
    };
    if let Some((place, count)) = tolerance.holder_of_the_majority() {
        let message =
            format!("Without {place}, which holds {count} of {} votes, no majority is left", tolerance.voters());
        let demoted = votes::demoted(inputs);
        if !demoted.is_empty() {
            let message = format!("{message}. Voters that have lost their votes: {}", votes::ids(&demoted));
            return Cause::new(Reason::VotesLost, message);
        }
        let message = format!("{message}: spread the voters over three clusters or more{even}");
        return Cause::new(Reason::ClusterHoldsMajority, message);
    }
    if let Some(place) = tolerance.exposed() {
        return Cause::new(
            Reason::VotersDown,
            format!("With the voters that serve now, the loss of {place} would lose the quorum{even}"),
        );
    }
    let reason = if is_even { Reason::EvenVoters } else { Reason::Spread };
    Cause::new(reason, format!("The ensemble survives the loss of any one cluster{even}"))
}

fn scheduled(inputs: &StatusInputs<'_>) -> Cause {
    if let Some(cause) = &inputs.findings.unscheduled {
        return cause.clone();
    }
    if inputs.next.schedule.is_empty() {
        return Cause::new(Reason::NotEvaluated, "The operator has not evaluated the schedule");
    }
    let mut voters: Vec<String> =
        inputs.next.schedule.iter().map(|s| format!("{} {}", s.cluster, s.replicas)).collect();
    voters.sort();
    Cause::new(Reason::Placed, format!("Voters by cluster: {}", voters.join(", ")))
}

fn unsafe_version(inputs: &StatusInputs<'_>) -> Cause {
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
        let message = "No server reports a version that is known to lose acknowledged writes";
        return Cause::new(Reason::NoKnownLoss, message);
    }
    let message = format!(
        "These servers run a version that is known to lose acknowledged writes: {}. Upgrade spec.template.image to {NEWEST} or newer",
        unsafe_servers.join(", ")
    );
    Cause::new(Reason::LosesWrites, message)
}

/// The versions of `ZooKeeper` and Kubernetes with which mczk has no run.
fn untested_version(inputs: &StatusInputs<'_>) -> Cause {
    let reports = inputs.reports.values().filter_map(|report| Some((&report.cluster, report.status.as_ref()?)));
    let of_servers = reports.flat_map(|(cluster, status)| {
        let versions = status.servers.iter().filter_map(|server| server.version.as_deref());
        versions
            .filter(|version| !TESTED.contains(version))
            .map(move |version| format!("ZooKeeper {version} in {cluster}"))
    });
    let used = inputs.known.clusters.iter().filter(|cluster| inputs.next.cluster_specs.contains_key(cluster.name()));
    let untested = used.filter(|cluster| !is_tested_kubernetes(&cluster.status.kubernetes_version));
    let of_clusters =
        untested.map(|cluster| format!("Kubernetes {} in {}", cluster.status.kubernetes_version, cluster.name()));
    let all: BTreeSet<String> = of_servers.chain(of_clusters).collect();
    if all.is_empty() {
        return Cause::new(Reason::Tested, "Every version that is reported is tested");
    }
    let message = format!(
        "mczk has no run with {}. It is tested with ZooKeeper {} and Kubernetes {}",
        all.into_iter().collect::<Vec<_>>().join(", "),
        TESTED.join(", "),
        kubernetes()
    );
    Cause::new(Reason::NotTested, message)
}

fn paused(inputs: &StatusInputs<'_>) -> Cause {
    let rollout = inputs.known.object.spec.rollout.as_ref();
    if rollout.and_then(|rollout| rollout.paused) == Some(true) {
        Cause::new(Reason::PausedBySpec, "rollout.paused is set: no further cluster starts")
    } else {
        Cause::new(Reason::NotPaused, "rollout.paused is not set")
    }
}
