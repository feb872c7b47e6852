//! The clusters that match a placement, and the placement that Karmada gets.

use k8s_openapi::api::core::v1::Taint;
use mczk_api::{
    contract::canonical_json::short_hash,
    karmada::cluster::Cluster,
    placement::{
        ClusterAffinity, Placement, ReplicaDivisionPreference, ReplicaScheduling, ReplicaSchedulingType, Requirement,
        SelectorOperator, StaticClusterWeight, WeightPreference,
    },
    pod::{TaintEffect, Toleration},
};

/// Hash of `spec.placement`.
///
/// # Errors
/// As [`short_hash`].
pub(super) fn placement_hash(placement: Option<&Placement>) -> serde_json::Result<String> {
    short_hash(&placement)
}

/// Names of the matching clusters, sorted. A cluster that is being deleted never matches, nor does a spare.
#[must_use]
pub(super) fn matching(placement: Option<&Placement>, spares: &[String], clusters: &[Cluster]) -> Vec<String> {
    let affinity = placement.and_then(|p| p.cluster_affinity.as_ref());
    let mut names: Vec<String> = clusters
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none())
        .filter(|c| affinity.is_none_or(|a| matches(a, c)))
        .filter(|c| !spares.iter().any(|spare| spare == c.name()))
        .map(|c| c.name().to_owned())
        .collect();
    names.sort();
    names
}

/// True if a cluster matches every given part of an affinity.
#[must_use]
pub(super) fn matches(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
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
            // Karmada's rule: `In` matches a cluster of several zones only if it lists all of them.
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

/// True if the operator decides how many voters each cluster gets: the user has not said how Karmada divides them.
#[must_use]
pub(super) fn operator_divides(placement: Option<&Placement>) -> bool {
    placement.and_then(|placement| placement.replica_scheduling.as_ref()).is_none_or(|scheduling| {
        scheduling.replica_scheduling_type != Some(ReplicaSchedulingType::Duplicated)
            && scheduling.replica_division_preference != Some(ReplicaDivisionPreference::Aggregated)
            && scheduling.weight_preference.is_none()
    })
}

/// The first taint of a cluster that keeps Karmada's scheduler from placing something there.
#[must_use]
pub(super) fn repelling_taint<'a>(cluster: &'a Cluster, tolerated: &[Toleration]) -> Option<&'a Taint> {
    let mut taints = cluster.spec.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule.as_str());
    taints.find(|taint| !tolerated.iter().any(|all| all.tolerates(taint)))
}

/// The placement that Karmada gets for these clusters.
///
/// It lists clusters by name, so that it stays when labels or the federation change. It tolerates `NoExecute` without end: a
/// failover must not move voters, and Karmada's webhook adds no such toleration. Its static weights are those given if the operator
/// divides the voters, else what `spec.placement` says.
#[must_use]
pub(super) fn for_karmada(placement: Option<&Placement>, clusters: &[(String, i32)], divided: bool) -> Placement {
    let mut tolerations = vec![Toleration::of_all(TaintEffect::NoExecute)];
    tolerations.extend(placement.map(|p| p.cluster_tolerations.clone()).unwrap_or_default());
    let declared = placement.and_then(|p| p.replica_scheduling.clone()).unwrap_or_default();
    let kind = declared.replica_scheduling_type.unwrap_or(ReplicaSchedulingType::Divided);
    let (preference, weights) = match kind {
        ReplicaSchedulingType::Duplicated => (None, None),
        ReplicaSchedulingType::Divided if divided => {
            (Some(ReplicaDivisionPreference::Weighted), Some(static_weights(clusters)))
        }
        ReplicaSchedulingType::Divided => {
            let preference = declared.replica_division_preference.unwrap_or(ReplicaDivisionPreference::Weighted);
            (Some(preference), declared.weight_preference)
        }
    };
    let cluster_names = clusters.iter().map(|(name, _)| name.clone()).collect();
    Placement {
        cluster_affinity: Some(ClusterAffinity { cluster_names, ..ClusterAffinity::default() }),
        cluster_tolerations: tolerations,
        replica_scheduling: Some(ReplicaScheduling {
            replica_scheduling_type: Some(kind),
            replica_division_preference: preference,
            weight_preference: weights,
        }),
        ..Placement::default()
    }
}

/// Weights of the clusters. A cluster without a weight gets no replica; the schema allows no weight of 0.
fn static_weights(clusters: &[(String, i32)]) -> WeightPreference {
    let weighted = clusters.iter().filter(|(_, weight)| *weight > 0);
    WeightPreference {
        static_weight_list: weighted
            .map(|(name, weight)| StaticClusterWeight {
                target_cluster: ClusterAffinity { cluster_names: vec![name.clone()], ..ClusterAffinity::default() },
                weight: i64::from(*weight),
            })
            .collect(),
        dynamic_weight: None,
    }
}

/// True if each selected cluster gets the whole number of replicas.
#[must_use]
pub(super) fn duplicated(placement: Option<&Placement>) -> bool {
    placement
        .and_then(|p| p.replica_scheduling.as_ref())
        .and_then(|s| s.replica_scheduling_type)
        .is_some_and(|kind| kind == ReplicaSchedulingType::Duplicated)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::empty(json!({}), true)]
    #[case::named(json!({ "clusterNames": ["m0", "m1"] }), true)]
    #[case::not_named(json!({ "clusterNames": ["m0"] }), false)]
    #[case::excluded(json!({ "exclude": ["m1"] }), false)]
    #[case::named_and_excluded(json!({ "clusterNames": ["m1"], "exclude": ["m1"] }), false)]
    #[case::label(json!({ "labelSelector": { "matchLabels": { "tier": "one" } } }), true)]
    #[case::other_label(json!({ "labelSelector": { "matchLabels": { "tier": "two" } } }), false)]
    #[case::no_such_label(json!({ "labelSelector": { "matchLabels": { "x": "one" } } }), false)]
    #[case::one_of_two_labels(json!({ "labelSelector": { "matchLabels": { "tier": "one", "x": "y" } } }), false)]
    #[case::label_in(label("tier", "In", &["one", "two"]), true)]
    #[case::label_in_others(label("tier", "In", &["two"]), false)]
    #[case::label_not_in(label("tier", "NotIn", &["two"]), true)]
    #[case::label_not_in_itself(label("tier", "NotIn", &["one"]), false)]
    #[case::absent_label_not_in(label("x", "NotIn", &["one"]), true)]
    #[case::absent_label_in(label("x", "In", &["one"]), false)]
    #[case::label_exists(label("tier", "Exists", &[]), true)]
    #[case::absent_label_exists(label("x", "Exists", &[]), false)]
    #[case::label_does_not_exist(label("tier", "DoesNotExist", &[]), false)]
    #[case::absent_label_does_not_exist(label("x", "DoesNotExist", &[]), true)]
    #[case::provider(field("provider", "In", &["p"]), true)]
    #[case::other_provider(field("provider", "In", &["q"]), false)]
    #[case::region_not_in(field("region", "NotIn", &["us"]), true)]
    #[case::region_not_in_itself(field("region", "NotIn", &["eu"]), false)]
    #[case::all_zones(field("zone", "In", &["z1", "z2", "z3"]), true)]
    #[case::one_zone_of_two(field("zone", "In", &["z1"]), false)]
    #[case::zones_not_in(field("zone", "NotIn", &["z3"]), true)]
    #[case::one_zone_not_in(field("zone", "NotIn", &["z1"]), false)]
    #[case::unknown_field(field("planet", "NotIn", &["earth"]), false)]
    #[case::all_parts_must_hold(json!({ "clusterNames": ["m1"], "labelSelector": { "matchLabels": { "tier": "two" } } }), false)]
    fn a_cluster_matches(#[case] affinity: Value, #[case] expected: bool) {
        let affinity: ClusterAffinity = serde_json::from_value(affinity).unwrap();
        assert_eq!(matches(&affinity, &cluster(json!({}))), expected);
    }

    fn label(key: &str, operator: &str, values: &[&str]) -> Value {
        let expression = json!({ "key": key, "operator": operator, "values": values });
        json!({ "labelSelector": { "matchExpressions": [expression] } })
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        let expression = json!({ "key": key, "operator": operator, "values": values });
        json!({ "fieldSelector": { "matchExpressions": [expression] } })
    }

    fn cluster(more: Value) -> Cluster {
        let mut metadata = json!({ "name": "m1", "labels": { "tier": "one" } });
        if let (Some(metadata), Value::Object(more)) = (metadata.as_object_mut(), more) {
            metadata.extend(more);
        }
        let spec = json!({ "provider": "p", "region": "eu", "zones": ["z1", "z2"] });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn names_are_sorted_and_clusters_being_deleted_are_left_out() {
        let deleted = json!({ "name": "m0", "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let clusters = [cluster(json!({ "name": "m2" })), cluster(json!({})), cluster(deleted)];
        assert_eq!(matching(None, &[], &clusters), ["m1", "m2"]);
        assert_eq!(matching(None, &["m1".to_owned()], &clusters), ["m2"], "a spare matches no placement");
    }
}
