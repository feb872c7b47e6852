//! The status of a MultiClusterZooKeeper: what people are told, and why nothing moves.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::ResourceExt;

use crate::{
    agent::decide::status::CLIENT_CERTIFICATES_KEPT,
    api::{
        multiclusterzookeeper::{
            ClusterStatus, EnsembleStatus, LeaderStatus, MultiClusterZooKeeperStatus, Record, RecordStatus,
        },
        zookeeper::{Ensemble, Role, ZooKeeperSpec},
    },
    contract::{labels::ENSEMBLE_LABEL, pod_layout::endpoints, server_list::majority},
    rollout::{
        binding::Scheduled,
        ensemble::Quorum,
        observed::Observed,
        outcome::Findings,
        rebootstrap, record,
        report::{self, ClusterReport},
    },
};

/// Longest message of a cluster or condition, in characters: below the bound of the CRD, else no status could be written.
const MAX_MESSAGE: usize = 1000;

/// What a status is made of.
pub struct Known<'a> {
    /// Everything that was seen.
    pub observed: &'a Observed,
    /// The status before.
    pub old: &'a MultiClusterZooKeeperStatus,
    /// The records as they are now.
    pub records: &'a [Record],
    /// What the rules found out.
    pub findings: &'a Findings,
    /// The list of servers as it is now.
    pub ensemble: &'a Ensemble,
    /// The cluster_specs as they are now.
    pub cluster_specs: &'a BTreeMap<String, ZooKeeperSpec>,
    /// The schedule, if it could be used.
    pub schedule: &'a [Scheduled],
    /// What clusters reported.
    pub reports: &'a BTreeMap<String, ClusterReport>,
    /// What is known of the quorum.
    pub quorum: &'a Quorum,
    /// Clusters of the schedule.
    pub bound: &'a [String],
    /// The cluster_specs that the schedule asks for.
    pub desired: &'a BTreeMap<String, ZooKeeperSpec>,
}

/// The status, when nothing could be decided: as before, and why.
#[must_use]
pub fn failed(observed: &Observed, findings: &Findings, now: Timestamp) -> MultiClusterZooKeeperStatus {
    let old = observed.object.status.clone().unwrap_or_default();
    let mut status =
        MultiClusterZooKeeperStatus { observed_generation: observed.object.metadata.generation, ..old.clone() };
    let known = Known {
        observed,
        old: &old,
        records: &old.records,
        findings,
        ensemble: &Ensemble::default(),
        cluster_specs: &BTreeMap::new(),
        schedule: &[],
        reports: &BTreeMap::new(),
        quorum: &Quorum::default(),
        bound: &[],
        desired: &BTreeMap::new(),
    };
    status.conditions = conditions(&known, &old.clusters, now)
        .into_iter()
        .map(|condition| {
            // Nothing was looked at that these speak of: what they said stands, or nothing is known.
            if !matches!(condition.type_.as_str(), "Degraded" | "QuorumSafe" | "Scheduled") {
                return condition;
            }
            old.conditions.iter().find(|c| c.type_ == condition.type_).cloned().unwrap_or_else(|| Condition {
                status: "Unknown".to_owned(),
                reason: "NotAsked".to_owned(),
                message: "nothing was looked at yet".to_owned(),
                ..condition
            })
        })
        .collect();
    status
}

/// The status.
#[must_use]
pub fn status(known: &Known<'_>, now: Timestamp) -> MultiClusterZooKeeperStatus {
    let object = &known.observed.object;
    let clusters = clusters(known, now);
    let voters =
        |list: &[ClusterStatus], of: fn(&ClusterStatus) -> i32| list.iter().map(of).fold(0, i32::saturating_add);
    let existing: i32 = known
        .reports
        .values()
        .filter_map(|m| m.status.as_ref())
        .map(|s| s.replicas.unwrap_or(0))
        .fold(0, i32::saturating_add);
    let ensemble = known.ensemble.incarnation.clone().map(|id| EnsembleStatus {
        incarnation: id,
        epoch: known.ensemble.epoch.unwrap_or(0),
        hash: known.ensemble.hash.clone(),
        highest_id: known.ensemble.highest_id,
        tls: known.ensemble.tls.clone(),
        formed: known.quorum.formed,
        voters: known.quorum.voters.iter().copied().collect(),
        leader: known.quorum.leader.and_then(|id| {
            let server = known.ensemble.servers.iter().find(|s| s.id == id)?;
            Some(LeaderStatus { id, cluster: server.cluster.clone() })
        }),
        endpoints: endpoints(&known.ensemble.servers, object.spec.tls.client.as_ref()),
    });
    MultiClusterZooKeeperStatus {
        observed_generation: object.metadata.generation,
        conditions: conditions(known, &clusters, now),
        records: known.records.to_vec(),
        rollout: known.records.last().map(record::summary),
        replicas: Some(existing),
        ready_replicas: Some(voters(&clusters, |c| c.serving)),
        selector: Some(format!("{ENSEMBLE_LABEL}={}", object.name_any())),
        clusters,
        ensemble,
    }
}

fn clusters(known: &Known<'_>, now: Timestamp) -> Vec<ClusterStatus> {
    // A cluster that may hold servers, but was never given anything, is left out: a federation may have many.
    let heard = known.reports.values().filter(|m| m.applied || m.status.is_some() || m.refusal.is_some());
    let mut names: Vec<&String> = heard
        .map(|m| &m.cluster)
        .chain(known.cluster_specs.keys())
        .chain(known.schedule.iter().map(|s| &s.cluster))
        .chain(known.ensemble.servers.iter().map(|s| &s.cluster))
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| cluster(known, name, now)).collect()
}

fn cluster(known: &Known<'_>, name: &str, now: Timestamp) -> ClusterStatus {
    let old = known.old.clusters.iter().find(|c| c.name == name);
    let member = known.reports.get(name);
    let report = member.and_then(|m| m.status.as_ref());
    let pin = known.cluster_specs.get(name);
    let ids = |role: Role| -> Vec<i32> {
        let mut servers: Vec<_> =
            known.ensemble.servers.iter().filter(|s| s.cluster == name && s.role == role).collect();
        servers.sort_by_key(|s| s.ordinal);
        servers.iter().map(|s| s.id).collect()
    };
    let refusal = member.filter(|m| !m.applied).and_then(|m| m.refusal.as_deref());
    let outcome = match (pin, refusal) {
        (None, Some(why)) => Err(format!("Karmada could not apply the object: {why}")),
        (None, None) if known.schedule.iter().any(|s| s.cluster == name) => Err("waits for its turn".to_owned()),
        (None, None) if member.is_some_and(|m| m.applied && m.status.is_none()) => {
            Err("has not reported yet: its agent must run there".to_owned())
        }
        (None, None) => Err("holds no servers".to_owned()),
        (Some(pin), _) => report::complete(member, pin, known.ensemble, known.quorum, known.reports),
    };
    let current = known.desired.get(name).is_none_or(|desired| pin.is_some_and(|p| p.spec_hash == desired.spec_hash));
    let ready = outcome.is_ok() && current;
    let mut message = outcome.err();
    if message.is_none() && !current {
        message = Some("complete; a change waits for its turn".to_owned());
    }
    // Nothing of the rollout, but what a person who drains a node waits for.
    let draining = || report?.conditions.iter().find(|c| c.type_ == "Draining" && c.status == "True");
    let message = message.or_else(|| draining().map(|c| c.message.clone()));
    ClusterStatus {
        name: name.to_owned(),
        desired: pin.map_or(0, |p| p.replicas),
        started: report.and_then(|s| s.started_replicas).unwrap_or(0),
        serving: report.and_then(|s| s.ready_replicas).unwrap_or(0),
        revision: pin.map(|p| p.revision.clone()),
        spec_hash: pin.and_then(|p| p.spec_hash.clone()).or_else(|| lost_pin(known, name)),
        voters: ids(Role::Voter),
        observers: ids(Role::Observer),
        ready,
        complete_since: ready
            .then(|| old.filter(|o| o.ready).and_then(|o| o.complete_since.clone()).unwrap_or(Time(now))),
        reported: old.is_some_and(|o| o.reported) || member.is_some_and(|m| m.applied && m.status.is_some()),
        message: message.map(|m| m.chars().take(MAX_MESSAGE).collect()),
    }
}

/// The pin that a cluster of a bootstrap's list was given, where the policy lost it: it may have servers, and be the only one
/// that knows.
fn lost_pin(known: &Known<'_>, name: &str) -> Option<String> {
    let list = known.ensemble;
    let same_life =
        known.old.ensemble.as_ref().is_some_and(|told| Some(&told.incarnation) == list.incarnation.as_ref());
    let listed = || list.servers.iter().any(|server| server.cluster == name);
    let told = known.old.clusters.iter().find(|told| told.name == name).filter(|_| list.phase.is_bootstrap());
    told.filter(|_| same_life && listed())?.spec_hash.clone()
}

struct Verdict {
    status: &'static str,
    reason: String,
    message: String,
}

fn verdict(status: &'static str, reason: &str, message: impl Into<String>) -> Verdict {
    Verdict { status, reason: reason.to_owned(), message: message.into() }
}

fn conditions(known: &Known<'_>, clusters: &[ClusterStatus], now: Timestamp) -> Vec<Condition> {
    let all = [
        ("Ready", ready(known, clusters)),
        ("Progressing", progressing(known)),
        ("Degraded", degraded(known, clusters)),
        ("QuorumSafe", quorum_safe(known)),
        ("Scheduled", scheduled(known)),
        ("Paused", paused(known)),
    ];
    all.into_iter()
        .map(|(type_, v)| {
            let before = known.old.conditions.iter().find(|c| c.type_ == type_);
            let since = before.filter(|b| b.status == v.status).map_or(Time(now), |b| b.last_transition_time.clone());
            Condition {
                type_: type_.to_owned(),
                status: v.status.to_owned(),
                reason: v.reason,
                message: v.message.chars().take(MAX_MESSAGE).collect(),
                last_transition_time: since,
                observed_generation: known.observed.object.metadata.generation,
            }
        })
        .collect()
}

fn done(known: &Known<'_>) -> bool {
    known.records.last().is_some_and(|r| r.status == RecordStatus::Ready)
}

fn ready(known: &Known<'_>, clusters: &[ClusterStatus]) -> Verdict {
    if let Some(refused) = &known.findings.action_required {
        return verdict("False", refused.reason, refused.message.clone());
    }
    if !done(known) {
        return verdict(
            "False",
            "RollingOut",
            known.records.last().map_or_else(|| "nothing is rolled out yet".to_owned(), record::summary),
        );
    }
    let lacking: Vec<_> = clusters.iter().filter(|c| !c.voters.is_empty() && !c.ready).collect();
    if let Some(first) = lacking.first() {
        let why = first.message.as_deref().unwrap_or("not complete");
        return verdict("False", "ClusterNotReady", format!("cluster {}: {why}", first.name));
    }
    verdict("True", "Serving", "every cluster is complete and serves")
}

fn progressing(known: &Known<'_>) -> Verdict {
    if let Some(failure) = &known.observed.failure {
        return verdict("False", "ApplyFailed", failure.clone());
    }
    if let Some(refused) = &known.findings.action_required {
        return verdict("False", refused.reason, refused.message.clone());
    }
    if known.findings.paused {
        return verdict("False", "Paused", "rollout.paused is set: no further cluster begins");
    }
    if let Some(wait) = &known.findings.waiting {
        let moving = matches!(
            wait.reason,
            "Deploying" | "Holding" | "AfterCurrentRecord" | "ClusterNotReported" | rebootstrap::REASON
        );
        return verdict(if moving { "True" } else { "False" }, wait.reason, wait.message.clone());
    }
    if let Some(wait) = &known.findings.unscheduled {
        return verdict("False", "Waiting", format!("waits for a schedule: {}", wait.message));
    }
    if done(known)
        && let Some(replacing) = &known.findings.replacing
    {
        return verdict("True", replacing.reason, replacing.message.clone());
    }
    if done(known) {
        return verdict("False", "Done", "the last record is rolled out");
    }
    verdict("True", "Deploying", known.records.last().map_or_else(|| "begins".to_owned(), record::summary))
}

fn degraded(known: &Known<'_>, clusters: &[ClusterStatus]) -> Verdict {
    let lost: Vec<&str> = clusters
        .iter()
        .filter(|c| !c.voters.is_empty() && known.reports.get(&c.name).is_none_or(|m| !m.reachable))
        .map(|c| c.name.as_str())
        .collect();
    if !lost.is_empty() {
        return verdict("True", "ClusterUnreachable", format!("not Ready in Karmada: {}", lost.join(", ")));
    }
    if known.ensemble.phase.is_bootstrap() {
        return verdict("False", "Bootstrapping", "the ensemble is being started for the first time");
    }
    if known.quorum.formed && !known.quorum.holds() {
        return verdict(
            "True",
            "QuorumNotSeen",
            "no cluster reports a quorum: no serving voter is stopped and membership does not change; bring servers back until a majority serves",
        );
    }
    let down: Vec<String> =
        known.quorum.voters.iter().filter(|id| !known.quorum.serving.contains(id)).map(ToString::to_string).collect();
    if !down.is_empty() {
        return verdict("True", "VotersDown", format!("voters that do not serve: {}", down.join(", ")));
    }
    if known.ensemble.servers.is_empty() && !known.quorum.formed {
        return verdict("False", "NoEnsemble", "there is no ensemble yet");
    }
    let kept = certificates_kept(known);
    if !kept.is_empty() {
        return verdict("True", "ClientCertificates", kept.join("; "));
    }
    verdict("False", "AsExpected", "every voter that is part of the ensemble serves")
}

/// What clusters say of certificates for clients that they do not take, each thing once, with the clusters that say it.
fn certificates_kept(known: &Known<'_>) -> Vec<String> {
    let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in known.reports.values().filter(|member| member.fresh()) {
        let conditions = member.status.iter().flat_map(|status| &status.conditions);
        for condition in conditions.filter(|c| c.type_ == CLIENT_CERTIFICATES_KEPT && c.status == "True") {
            said.entry(&condition.message).or_default().push(&member.cluster);
        }
    }
    said.into_iter().map(|(message, clusters)| format!("{}: {message}", clusters.join(", "))).collect()
}

fn quorum_safe(known: &Known<'_>) -> Verdict {
    let voters: Vec<_> = known.ensemble.servers.iter().filter(|s| s.role == Role::Voter).collect();
    if voters.is_empty() {
        return verdict("Unknown", "NoEnsemble", "there is no ensemble yet");
    }
    let even = if voters.len() % 2 == 0 {
        "; an even number of voters survives no more losses than one voter less: declare an odd number"
    } else {
        ""
    };
    let needed = majority(voters.len());
    let mut by_cluster: BTreeMap<&str, usize> = BTreeMap::new();
    for server in &voters {
        *by_cluster.entry(server.cluster.as_str()).or_default() += 1;
    }
    if let Some((cluster, count)) = by_cluster.iter().find(|(_, count)| voters.len() - **count < needed) {
        return verdict(
            "False",
            "ClusterHoldsMajority",
            format!(
                "without cluster {cluster}, which holds {count} of {} voters, there is no majority: spread voters over three or more clusters{even}",
                voters.len()
            ),
        );
    }
    let exposed = by_cluster.keys().find(|cluster| {
        let left = voters.iter().filter(|s| s.cluster != **cluster && known.quorum.serving.contains(&s.id)).count();
        left < needed
    });
    if let Some(cluster) = exposed {
        return verdict(
            "False",
            "VotersDown",
            format!("with the voters that serve now, the loss of cluster {cluster} would lose the quorum{even}"),
        );
    }
    if !even.is_empty() {
        return verdict("True", "EvenVoters", format!("survives the loss of any one cluster{even}"));
    }
    verdict("True", "Spread", "survives the loss of any one cluster")
}

fn scheduled(known: &Known<'_>) -> Verdict {
    match &known.findings.unscheduled {
        Some(wait) => verdict("False", wait.reason, wait.message.clone()),
        None if known.findings.action_required.is_some() && known.bound.is_empty() => {
            verdict("Unknown", "NotAsked", "the schedule was not looked at")
        }
        None => {
            let list: Vec<String> = known.schedule.iter().map(|s| format!("{} {}", s.cluster, s.replicas)).collect();
            verdict(
                "True",
                "Placed",
                if list.is_empty() {
                    "placed".to_owned()
                } else {
                    {
                        let mut l = list;
                        l.sort();
                        format!("voters by cluster: {}", l.join(", "))
                    }
                },
            )
        }
    }
}

fn paused(known: &Known<'_>) -> Verdict {
    let asked = known.observed.object.spec.rollout.as_ref().and_then(|r| r.paused) == Some(true);
    if asked {
        verdict("True", "Asked", "rollout.paused is set: no further cluster begins")
    } else {
        verdict("False", "NotAsked", "rollout.paused is not set")
    }
}
