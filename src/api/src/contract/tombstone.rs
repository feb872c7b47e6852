//! The tombstone of an incarnation that ended while Karmada did not reach a cluster.
//!
//! When such a cluster comes back, Karmada deletes the object there. The agent cannot distinguish that from a deletion by a
//! user, after which servers must continue to run. The MultiClusterZooKeeper is gone, or another one has its name.
//!
//! So the operator leaves a Secret without an owner and without content, whose name and labels name the incarnation. A policy
//! makes Karmada propagate it to those clusters. The agent there decommissions the servers of the incarnation. An ensemble of
//! the same name lists the incarnation in `formerIncarnations`. The tombstone is a Secret because the operator may list and
//! create Secrets anyway; nothing in it is secret.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::ObjectMeta;

use crate::{
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, TOMBSTONE},
        naming::policy_name,
    },
    karmada::{
        ResourceSelector,
        policy::{PropagationPolicy, PropagationPolicySpec},
    },
    placement::{ClusterAffinity, Placement},
    pod::{TaintEffect, Toleration},
};

/// An incarnation that ended, and the clusters that have not reported its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Namespace of the ensemble.
    pub namespace: String,
    /// Name of the ensemble.
    pub name: String,
    /// The incarnation.
    pub incarnation: String,
    /// The clusters that receive the tombstone.
    pub clusters: BTreeSet<String>,
}

/// Name of the Secret of a tombstone.
#[must_use]
pub fn secret_name(name: &str, incarnation: &str) -> String {
    format!("{name}-{incarnation}-tombstone")
}

/// The incarnation of a tombstone, if the Secret is one of this ensemble.
#[must_use]
pub fn read(meta: &ObjectMeta, name: &str) -> Option<String> {
    let labels = meta.labels.as_ref()?;
    let incarnation =
        labels.get(INCARNATION_LABEL).filter(|_| labels.get(ENSEMBLE_LABEL).is_some_and(|l| l == name))?;
    meta.annotations.as_ref()?.get(TOMBSTONE)?;
    (meta.name.as_ref() == Some(&secret_name(name, incarnation))).then(|| incarnation.clone())
}

impl Tombstone {
    /// Metadata of the Secret. It has no owner, because it outlives the MultiClusterZooKeeper.
    #[must_use]
    pub fn secret(&self) -> ObjectMeta {
        self.metadata(secret_name(&self.name, &self.incarnation))
    }

    /// The policy that propagates the Secret. It tolerates all taints, so that it selects unreachable clusters too.
    #[must_use]
    pub fn policy(&self) -> PropagationPolicy {
        let spec = PropagationPolicySpec {
            resource_selectors: vec![ResourceSelector::named(
                "v1",
                "Secret",
                secret_name(&self.name, &self.incarnation),
                Some(self.namespace.clone()),
            )],
            placement: Placement {
                cluster_affinity: Some(ClusterAffinity {
                    cluster_names: self.clusters.iter().cloned().collect(),
                    ..ClusterAffinity::default()
                }),
                cluster_tolerations: [TaintEffect::NoExecute, TaintEffect::NoSchedule].map(Toleration::of_all).into(),
                ..Placement::default()
            },
            propagate_deps: false,
            conflict_resolution: None,
            preserve_resources_on_deletion: None,
            failover: None,
        };
        // No ensemble can have a policy of this name: names of ensembles have no dots.
        let name = format!("{}.{}.tombstone", policy_name(&self.name), self.incarnation);
        PropagationPolicy { metadata: self.metadata(name), spec }
    }

    fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(BTreeMap::from([
                (ENSEMBLE_LABEL.to_owned(), self.name.clone()),
                (INCARNATION_LABEL.to_owned(), self.incarnation.clone()),
            ])),
            annotations: Some(BTreeMap::from([(TOMBSTONE.to_owned(), "true".to_owned())])),
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tombstone() -> Tombstone {
        let clusters = BTreeSet::from(["m3".to_owned()]);
        Tombstone { namespace: "ns".into(), name: "zk".into(), incarnation: "abc123".into(), clusters }
    }

    #[test]
    fn a_tombstone_is_read_back_and_no_other_secret_is_one() {
        let meta = tombstone().secret();
        assert_eq!((meta.name.as_deref(), meta.owner_references.is_none()), (Some("zk-abc123-tombstone"), true));
        assert_eq!(read(&meta, "zk").as_deref(), Some("abc123"));
        assert_eq!(read(&meta, "other"), None);
        let unmarked = ObjectMeta { annotations: None, ..meta.clone() };
        assert_eq!(read(&unmarked, "zk"), None);
        let renamed = ObjectMeta { name: Some("zk-def456-tombstone".into()), ..meta };
        assert_eq!(read(&renamed, "zk"), None);
    }

    #[test]
    fn the_policy_selects_those_clusters_only_even_if_unreachable() {
        let policy = tombstone().policy();
        assert_eq!(policy.metadata.name.as_deref(), Some("mczk-zk.abc123.tombstone"));
        assert!(policy.metadata.owner_references.is_none());
        let placement = policy.spec.placement;
        assert_eq!(placement.cluster_affinity.unwrap().cluster_names, ["m3"]);
        let effects: Vec<_> = placement.cluster_tolerations.iter().map(|t| t.effect).collect();
        assert_eq!(effects, [Some(TaintEffect::NoExecute), Some(TaintEffect::NoSchedule)]);
        let selected = policy.spec.resource_selectors.first().unwrap();
        assert_eq!((selected.kind.as_str(), selected.name.as_deref()), ("Secret", Some("zk-abc123-tombstone")));
    }
}
