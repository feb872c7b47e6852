//! The policies that bring definitions to every member cluster.
//!
//! Two, because the definitions have two owners. `zookeepers.mczk.io` is ours alone, and must be replaceable after an
//! upgrade even where Karmada no longer knows it as its own: a cluster that left the federation and came back keeps the
//! definition (it is preserved, since a deleted definition takes all its objects with it) but without Karmada's labels, and
//! with `Abort` it would keep that old version for good. The definitions of multi-cluster services may belong to another
//! implementation in the member, which then keeps them: `Abort`. Where Karmada made them itself, `Abort` still lets it
//! update them (`allowUpdate` in Karmada's `pkg/util/objectwatcher`).

use kube::core::ObjectMeta;

use crate::api::{
    karmada::{
        ResourceSelector,
        policy::{ClusterPropagationPolicy, ClusterPropagationPolicySpec},
    },
    placement::Placement,
    pod::{TaintEffect, Toleration},
};

/// Name of the policy for our own definition.
pub const CRDS: &str = "mczk-crds";
/// Name of the policy for the definitions of multi-cluster services.
pub const SERVICE_CRDS: &str = "mczk-service-crds";

/// Both policies.
#[must_use]
pub fn policies() -> [ClusterPropagationPolicy; 2] {
    [
        policy(CRDS, definitions(&["zookeepers.mczk.io"]), "Overwrite"),
        policy(
            SERVICE_CRDS,
            definitions(&["serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"]),
            "Abort",
        ),
    ]
}

fn definitions(names: &[&str]) -> Vec<ResourceSelector> {
    let of = |name: &&str| ResourceSelector {
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        name: Some((*name).to_owned()),
        namespace: None,
    };
    names.iter().map(of).collect()
}

/// A policy that brings what is selected to every member, and leaves it there when it goes.
pub(super) fn policy(
    name: &str,
    resource_selectors: Vec<ResourceSelector>,
    conflict_resolution: &str,
) -> ClusterPropagationPolicy {
    ClusterPropagationPolicy {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: ClusterPropagationPolicySpec {
            resource_selectors,
            placement: Placement {
                // A cluster in trouble keeps its definitions, and one that is new gets them at once: without them the
                // scheduler would leave it out of an ensemble's placement for good.
                cluster_tolerations: [TaintEffect::NoExecute, TaintEffect::NoSchedule].map(Toleration::of_all).into(),
                ..Placement::default()
            },
            conflict_resolution: Some(conflict_resolution.to_owned()),
            preserve_resources_on_deletion: Some(true),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn our_definition_is_replaced_and_that_of_others_is_left_alone() {
        let [own, services] = policies();
        assert_eq!(
            to_value(&own).unwrap(),
            json!({
                "apiVersion": "policy.karmada.io/v1alpha1",
                "kind": "ClusterPropagationPolicy",
                "metadata": {"name": "mczk-crds"},
                "spec": {
                    "resourceSelectors": [{
                        "apiVersion": "apiextensions.k8s.io/v1",
                        "kind": "CustomResourceDefinition",
                        "name": "zookeepers.mczk.io",
                    }],
                    "placement": {"clusterTolerations": [
                        {"operator": "Exists", "effect": "NoExecute"},
                        {"operator": "Exists", "effect": "NoSchedule"},
                    ]},
                    "conflictResolution": "Overwrite",
                    "preserveResourcesOnDeletion": true,
                },
            })
        );
        assert_eq!(services.spec.conflict_resolution.as_deref(), Some("Abort"));
        assert_eq!(services.spec.preserve_resources_on_deletion, Some(true));
        assert_eq!(services.spec.placement, own.spec.placement);
        let names: Vec<_> = services.spec.resource_selectors.iter().filter_map(|s| s.name.as_deref()).collect();
        assert_eq!(names, ["serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"]);
    }
}
