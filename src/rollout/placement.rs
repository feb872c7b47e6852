//! Which clusters match a placement, and the placement that Karmada is given.

use crate::api::{
    karmada::cluster::Cluster,
    placement::{
        ClusterAffinity, Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType, Requirement,
        SelectorOperator, StaticClusterWeight, WeightPreference,
    },
    pod::{TaintEffect, Toleration, TolerationOperator},
};

/// Names of the clusters that match, sorted. Clusters that are being deleted never match.
#[must_use]
pub fn matching(placement: Option<&Placement>, clusters: &[Cluster]) -> Vec<String> {
    let affinity = placement.and_then(|p| p.cluster_affinity.as_ref());
    let mut names: Vec<String> = clusters
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none())
        .filter(|c| affinity.is_none_or(|a| matches(a, c)))
        .map(|c| c.name().to_owned())
        .collect();
    names.sort();
    names
}

/// Whether one cluster matches one affinity: all of its parts that are given.
#[must_use]
pub fn matches(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    let name = cluster.name();
    if affinity.exclude_clusters.iter().any(|e| e == name) {
        return false;
    }
    if !affinity.cluster_names.is_empty() && !affinity.cluster_names.iter().any(|n| n == name) {
        return false;
    }
    let labels = cluster.labels();
    if let Some(selector) = &affinity.label_selector {
        let exact = selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        let expressions = selector.match_expressions.iter().all(|e| {
            let values: Vec<&str> = labels.get(&e.key).map(String::as_str).into_iter().collect();
            holds(e, &values)
        });
        if !exact || !expressions {
            return false;
        }
    }
    affinity.field_selector.as_ref().is_none_or(|selector| {
        selector.match_expressions.iter().all(|e| {
            let values: Vec<&str> = match e.key.as_str() {
                "provider" => cluster.spec.provider.as_deref().into_iter().collect(),
                "region" => cluster.spec.region.as_deref().into_iter().collect(),
                "zone" => cluster.spec.zones.iter().map(String::as_str).collect(),
                _ => return false,
            };
            // A cluster of several zones is in a set of zones only if all of its zones are: Karmada's rule.
            match (e.key.as_str(), e.operator) {
                ("zone", SelectorOperator::In) => {
                    !values.is_empty() && values.iter().all(|v| e.values.iter().any(|w| w == v))
                }
                _ => holds(e, &values),
            }
        })
    })
}

fn holds(requirement: &Requirement, values: &[&str]) -> bool {
    let any = values.iter().any(|v| requirement.values.iter().any(|w| w == v));
    match requirement.operator {
        SelectorOperator::In => any,
        SelectorOperator::NotIn => !any,
        SelectorOperator::Exists => !values.is_empty(),
        SelectorOperator::DoesNotExist => values.is_empty(),
    }
}

/// The placement that Karmada is given for these clusters: by name, so that it stays when labels or the federation change;
/// `NoExecute` tolerated without end, because Karmada's webhook adds no such toleration by itself and a failover must not
/// move voters; equal static weights where the person gave none.
#[must_use]
pub fn for_karmada(placement: Option<&Placement>, clusters: &[String]) -> Placement {
    let mut tolerations = vec![Toleration {
        operator: Some(TolerationOperator::Exists),
        effect: Some(TaintEffect::NoExecute),
        ..Toleration::default()
    }];
    tolerations.extend(placement.map(|p| p.cluster_tolerations.clone()).unwrap_or_default());
    let asked = placement.and_then(|p| p.replica_scheduling.clone()).unwrap_or_default();
    let kind = asked.replica_scheduling_type.unwrap_or(ReplicaSchedulingType::Divided);
    let scheduling = match kind {
        ReplicaSchedulingType::Duplicated => ReplicaScheduling {
            replica_scheduling_type: Some(kind),
            replica_division_preference: None,
            weight_preference: None,
        },
        ReplicaSchedulingType::Divided => {
            let preference = asked.replica_division_preference.unwrap_or(ReplicaDivisionPreference::Weighted);
            let weights = match (preference, asked.weight_preference) {
                (ReplicaDivisionPreference::Aggregated, given) => given,
                (ReplicaDivisionPreference::Weighted, Some(given)) => Some(given),
                (ReplicaDivisionPreference::Weighted, None) => Some(equal_weights(clusters)),
            };
            ReplicaScheduling {
                replica_scheduling_type: Some(kind),
                replica_division_preference: Some(preference),
                weight_preference: weights,
            }
        }
    };
    Placement {
        cluster_affinity: Some(ClusterAffinity { cluster_names: clusters.to_vec(), ..ClusterAffinity::default() }),
        cluster_tolerations: tolerations,
        replica_scheduling: Some(scheduling),
        ..Placement::default()
    }
}

fn equal_weights(clusters: &[String]) -> WeightPreference {
    WeightPreference {
        static_weight_list: clusters
            .iter()
            .map(|name| StaticClusterWeight {
                target_cluster: ClusterAffinity { cluster_names: vec![name.clone()], ..ClusterAffinity::default() },
                weight: 1,
            })
            .collect(),
        dynamic_weight: None,
    }
}

/// Whether each selected cluster gets the whole number of replicas.
#[must_use]
pub fn duplicated(placement: Option<&Placement>) -> bool {
    placement
        .and_then(|p| p.replica_scheduling.as_ref())
        .and_then(|s| s.replica_scheduling_type)
        .is_some_and(|kind| kind == ReplicaSchedulingType::Duplicated)
}
