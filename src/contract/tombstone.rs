//! What is left in the control plane of a life that ended while a cluster could not be told: a note, for when that cluster is
//! back.
//!
//! The MultiClusterZooKeeper is gone by then, and another one may have its name; Karmada deletes the object of a cluster that
//! comes back, but the cluster's agent cannot tell that from a deletion by hand, after which servers must run on. So the note
//! has no owner. It is a Secret without content, whose name and labels say which life is over, and a policy by which Karmada
//! brings it to those clusters. There the agent ends what is left of that life as it would on `dissolve`, and an ensemble of
//! the same name lists the life in `former`. A Secret because the operator may list and make those already; nothing in it is
//! secret.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ObjectMeta;

use crate::{
    api::{
        karmada::{
            ResourceSelector,
            policy::{PropagationPolicy, PropagationPolicySpec},
        },
        placement::{ClusterAffinity, Placement},
        pod::{TaintEffect, Toleration},
    },
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, TOMBSTONE},
        naming::policy_name,
    },
};

/// A life that ended, and the clusters that have still to hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Namespace of the ensemble.
    pub namespace: String,
    /// Name of the ensemble.
    pub name: String,
    /// The life.
    pub incarnation: String,
    /// The clusters.
    pub clusters: BTreeSet<String>,
}

/// Name of the Secret that says that a life of an ensemble is over.
#[must_use]
pub fn secret_name(name: &str, incarnation: &str) -> String {
    format!("{name}-{incarnation}-tombstone")
}

/// The life that a Secret says is over, if it is such a note of this ensemble.
#[must_use]
pub fn read(meta: &ObjectMeta, name: &str) -> Option<String> {
    let labels = meta.labels.as_ref()?;
    let incarnation =
        labels.get(INCARNATION_LABEL).filter(|_| labels.get(ENSEMBLE_LABEL).is_some_and(|l| l == name))?;
    meta.annotations.as_ref()?.get(TOMBSTONE)?;
    (meta.name.as_ref() == Some(&secret_name(name, incarnation))).then(|| incarnation.clone())
}

impl Tombstone {
    /// Metadata of the Secret: without an owner, since it has to outlive the MultiClusterZooKeeper.
    #[must_use]
    pub fn secret(&self) -> ObjectMeta {
        self.metadata(secret_name(&self.name, &self.incarnation))
    }

    /// The policy that brings the Secret to the clusters, also while Karmada does not reach them.
    #[must_use]
    pub fn policy(&self) -> PropagationPolicy {
        let spec = PropagationPolicySpec {
            resource_selectors: vec![ResourceSelector {
                api_version: "v1".to_owned(),
                kind: "Secret".to_owned(),
                name: Some(secret_name(&self.name, &self.incarnation)),
                namespace: Some(self.namespace.clone()),
            }],
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
        // The dots keep it apart from the policies of an ensemble named so: its name has none.
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

    fn ended() -> Tombstone {
        let clusters = BTreeSet::from(["m3".to_owned()]);
        Tombstone { namespace: "ns".into(), name: "zk".into(), incarnation: "abc123".into(), clusters }
    }

    #[test]
    fn a_note_is_read_for_what_it_is_and_nothing_else_is_one() {
        let meta = ended().secret();
        assert_eq!((meta.name.as_deref(), meta.owner_references.is_none()), (Some("zk-abc123-tombstone"), true));
        assert_eq!(read(&meta, "zk").as_deref(), Some("abc123"));
        assert_eq!(read(&meta, "other"), None);
        let unmarked = ObjectMeta { annotations: None, ..meta.clone() };
        assert_eq!(read(&unmarked, "zk"), None);
        let renamed = ObjectMeta { name: Some("zk-def456-tombstone".into()), ..meta };
        assert_eq!(read(&renamed, "zk"), None);
    }

    #[test]
    fn it_goes_to_those_clusters_alone_also_while_they_are_away() {
        let policy = ended().policy();
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
