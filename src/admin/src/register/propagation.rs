//! The policies that propagate definitions to every member cluster.
//!
//! There are two, because the definitions have two owners. `zookeepers.mczk.io` belongs to mczk alone. An upgrade must
//! replace it even if Karmada does not recognize it as its own any more. A cluster that leaves the federation keeps the
//! definition (it is preserved, since the deletion of a definition deletes all its objects), but without Karmada's
//! labels; with `Abort` it would keep that old version forever after it joins again. The definitions of multi-cluster
//! services may belong to another implementation in the member cluster, which then keeps them: `Abort`. If Karmada
//! created them itself, `Abort` still lets it update them (`allowUpdate` in Karmada's `pkg/util/objectwatcher`).

use kube::core::ObjectMeta;

use mczk_api::{
    karmada::{
        ResourceSelector,
        policy::{ClusterPropagationPolicy, ClusterPropagationPolicySpec},
    },
    placement::Placement,
    pod::{TaintEffect, Toleration},
};

/// Name of the policy for our own definition.
const CRDS: &str = "mczk-crds";
/// Name of the policy for the definitions of multi-cluster services.
const SERVICE_CRDS: &str = "mczk-service-crds";

/// Both policies.
#[must_use]
pub(crate) fn policies() -> [ClusterPropagationPolicy; 2] {
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
    let of = |name: &&str| {
        ResourceSelector::named("apiextensions.k8s.io/v1", "CustomResourceDefinition", (*name).to_owned(), None)
    };
    names.iter().map(of).collect()
}

/// A policy that propagates the selected objects to every member cluster, and preserves them when it is deleted.
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
                // A failing cluster keeps its definitions, and a new one receives them at once: without them the scheduler
                // would leave it out of the placement of an ensemble permanently.
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
    fn our_definition_is_replaced_and_foreign_ones_are_kept() {
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
