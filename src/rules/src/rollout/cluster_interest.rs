//! The member clusters whose changes may change what the operator decides for an ensemble.

use std::collections::BTreeSet;

use crate::rollout::placement;
use mczk_api::{
    MultiClusterZooKeeper,
    karmada::{cluster::Cluster, policy::OverridePolicy, resource_binding::ResourceBinding},
    placement::ClusterAffinity,
};

/// The clusters that matter to an ensemble: those that its placement matches, and those that it or its objects name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterInterest {
    /// `None` matches every cluster.
    affinity: Option<Box<ClusterAffinity>>,
    named: BTreeSet<Box<str>>,
}

impl ClusterInterest {
    /// The clusters that matter to an ensemble.
    pub fn of(
        object: &MultiClusterZooKeeper,
        binding: Option<&ResourceBinding>,
        overrides: Option<&OverridePolicy>,
    ) -> Self {
        let placement = object.spec.placement.as_ref();
        let affinity = placement.and_then(|placement| placement.cluster_affinity.clone()).map(Box::new);
        let status = object.status.iter().flat_map(|status| &status.clusters).map(|cluster| &cluster.name);
        let scheduled = binding.iter().flat_map(|binding| &binding.spec.clusters).map(|target| &target.name);
        let overridden = overrides.iter().flat_map(|policy| &policy.spec.override_rules);
        let overridden = overridden.filter_map(|rule| rule.target_cluster.as_ref()).flat_map(|t| &t.cluster_names);
        let imported = object.spec.network.iter().flat_map(|network| &network.import_clusters);
        let spares = object.spec.failover.iter().flat_map(|failover| &failover.spares);
        let named =
            status.chain(scheduled).chain(overridden).chain(imported).chain(spares).map(|name| name.as_str().into());
        Self { affinity, named: named.collect() }
    }

    /// True if the change of a cluster may change a decision. It is absent before it joins, and after it leaves.
    #[must_use]
    pub fn includes(&self, before: Option<&Cluster>, after: Option<&Cluster>) -> bool {
        before.into_iter().chain(after).any(|cluster| {
            self.named.contains(cluster.name())
                || self.affinity.as_ref().is_none_or(|affinity| placement::matches(affinity, cluster))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, labels: &Value) -> Cluster {
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": {}, "status": {} }))
            .unwrap()
    }

    fn interest(affinity: &Value, named: &[&str]) -> ClusterInterest {
        let affinity = serde_json::from_value(affinity.clone()).unwrap();
        ClusterInterest { affinity, named: named.iter().map(|name| (*name).into()).collect() }
    }

    #[test]
    fn a_cluster_that_no_rule_reads_does_not_matter() {
        let (m1, other) = (cluster("m1", &json!({})), cluster("other", &json!({})));
        let of_names = interest(&json!({ "clusterNames": ["m1", "m2"] }), &["m7"]);
        assert!(of_names.includes(Some(&m1), Some(&m1)));
        assert!(of_names.includes(None, Some(&cluster("m7", &json!({})))), "an object names it");
        assert!(!of_names.includes(Some(&other), Some(&other)));
        assert!(!of_names.includes(None, Some(&other)));
        assert!(interest(&Value::Null, &[]).includes(Some(&other), None), "every cluster matches");
    }

    #[test]
    fn a_cluster_whose_labels_change_matters_before_and_after() {
        let of_labels = interest(&json!({ "labelSelector": { "matchLabels": { "tier": "a" } } }), &[]);
        let (matching, other) = (cluster("m1", &json!({ "tier": "a" })), cluster("m1", &json!({ "tier": "b" })));
        assert!(of_labels.includes(Some(&other), Some(&matching)) && of_labels.includes(Some(&matching), Some(&other)));
        assert!(!of_labels.includes(Some(&other), Some(&other)));
    }
}
