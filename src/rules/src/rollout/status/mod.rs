//! The status of a MultiClusterZooKeeper: its conditions, its clusters, and the ensemble as a whole.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    agent::render::amount::bytes,
    rollout::{known::Known, outcome::NextState, record, steps::Findings},
};
use mczk_api::{
    contract::{
        conditions::{ConditionStatus, ConditionType, Reason},
        labels::ENSEMBLE_LABEL,
        pod_layout::endpoints,
    },
    multiclusterzookeeper::{ClusterStatus, EnsembleStatus, LeaderStatus, MultiClusterZooKeeperStatus},
    quantity::Quantity,
};

mod certificates;
mod cluster_names;
mod clusters;
mod conditions;
mod failover;
mod imports;
mod inputs;
mod votes;

use inputs::StatusInputs;

/// The status if the operator decides nothing: the status before, with the conditions that explain why.
pub(super) fn undecided(known: &Known<'_>, findings: &Findings) -> MultiClusterZooKeeperStatus {
    let old = known.object.status.clone().unwrap_or_default();
    let next = NextState { records: old.records.clone(), ..NextState::default() };
    let inputs = StatusInputs { known, findings, next: &next, old: &old, reports: &BTreeMap::new() };
    let conditions = conditions::conditions(&inputs, &old.clusters)
        .into_iter()
        .map(|condition| if is_evaluated(&condition) { condition } else { unevaluated(condition, &old) })
        .collect();
    MultiClusterZooKeeperStatus { observed_generation: known.object.metadata.generation, conditions, ..old.clone() }
}

/// True if the operator evaluates the condition although it decides nothing.
fn is_evaluated(condition: &Condition) -> bool {
    let unevaluated = [
        ConditionType::Degraded,
        ConditionType::QuorumSafe,
        ConditionType::FailedOver,
        ConditionType::FailoverReady,
        ConditionType::Scheduled,
        ConditionType::CertificatesExpire,
    ];
    !unevaluated.iter().any(|type_| type_.as_str() == condition.type_)
}

/// The condition as it was before.
fn unevaluated(condition: Condition, old: &MultiClusterZooKeeperStatus) -> Condition {
    let before = old.conditions.iter().find(|before| before.type_ == condition.type_).cloned();
    before.unwrap_or_else(|| Condition {
        status: ConditionStatus::Unknown.as_str().to_owned(),
        reason: Reason::NotEvaluated.as_str().to_owned(),
        message: "The operator has not evaluated this condition yet".to_owned(),
        ..condition
    })
}

/// The whole status, with what follows from `next`.
pub(super) fn status(known: &Known<'_>, findings: &Findings, next: &NextState) -> MultiClusterZooKeeperStatus {
    let inputs = &StatusInputs { known, findings, next, old: &known.status, reports: &known.reports };
    let clusters = clusters::clusters(inputs);
    let incarnation = next.ensemble.incarnation.as_deref();
    let reported = inputs.reports.values().filter_map(|report| report.status.as_ref());
    let current = reported.filter(|status| incarnation.is_none_or(|incarnation| status.may_be_of(incarnation)));
    MultiClusterZooKeeperStatus {
        observed_generation: known.object.metadata.generation,
        conditions: conditions::conditions(inputs, &clusters),
        records: next.records.clone(),
        rollout: next.records.last().map(record::summary),
        replicas: Some(sum(current.map(|status| status.replicas.unwrap_or(0)))),
        ready_replicas: Some(sum(clusters.iter().map(|cluster: &ClusterStatus| cluster.serving))),
        smallest_volume: smallest_volume(inputs),
        selector: Some(format!("{ENSEMBLE_LABEL}={}", known.name)),
        clusters,
        ensemble: ensemble(inputs),
    }
}

/// The size of the smallest volume. `None` if a cluster with servers does not report it, like one with an older agent.
fn smallest_volume(inputs: &StatusInputs<'_>) -> Option<Quantity> {
    let list = &inputs.next.ensemble;
    let clusters: BTreeSet<&String> = list.servers.iter().map(|server| &server.cluster).collect();
    let sizes = clusters.into_iter().map(|cluster| {
        let status = inputs.reports.get(cluster)?.status.as_ref()?;
        status.smallest_volume.clone().filter(|_| list.incarnation.as_deref().is_some_and(|of| status.may_be_of(of)))
    });
    sizes.collect::<Option<Vec<Quantity>>>()?.into_iter().min_by_key(|size| bytes(&size.0))
}

fn sum(numbers: impl Iterator<Item = i32>) -> i32 {
    numbers.fold(0, i32::saturating_add)
}

fn ensemble(inputs: &StatusInputs<'_>) -> Option<EnsembleStatus> {
    if inputs.has_lost_the_list() {
        return inputs.old.ensemble.clone();
    }
    let (list, quorum) = (&inputs.next.ensemble, &inputs.next.quorum);
    let leader = quorum.leader.and_then(|id| {
        let server = list.servers.iter().find(|server| server.id == id)?;
        Some(LeaderStatus { id, cluster: server.cluster.clone() })
    });
    Some(EnsembleStatus {
        incarnation: list.incarnation.clone()?,
        epoch: list.epoch.unwrap_or(0),
        hash: list.hash.clone(),
        highest_id: list.highest_id,
        tls: list.tls.clone(),
        formed: quorum.formed,
        voters: votes::last_reported(inputs),
        demoted: votes::demoted(inputs),
        leader,
        endpoints: endpoints(&list.servers, inputs.known.object.spec.tls.client.as_ref()),
    })
}
