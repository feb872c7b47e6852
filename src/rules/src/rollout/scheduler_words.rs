//! What a user changes when Karmada's scheduler refuses: it names the cause in words alone.

/// What the user changes if the scheduler refuses by a field that mczk never writes.
const NOT_OURS: &str = "what else writes to the PropagationPolicy or the binding: mczk sets no spread constraints and no workload \
                        affinity";

/// Words of the scheduler of Karmada 1.16 to 1.18 (`pkg/scheduler`, `pkg/webhook/resourcebinding`), and what the user changes.
const CHANGES: [(&str, &str); 11] = [
    (
        "untolerated taint",
        "spec.placement.clusterTolerations, or spec.taints of the Cluster and its ClusterTaintPolicy",
    ),
    ("placement cluster affinity", "spec.placement.clusterAffinity, or labels and names of the Clusters"),
    (
        "did not have the API resource",
        "the definitions in the member clusters: run `mczk install` of this version again, or `mczk register --only \
         crds,propagation`",
    ),
    (
        "in the process of eviction",
        "nothing: wait until Karmada has evicted, and wait longer if a NoExecute taint stays",
    ),
    (" property", "spec.provider, spec.region or spec.zones of the Cluster"),
    (" property", NOT_OURS),
    ("MinGroups", NOT_OURS),
    ("affinity group", NOT_OURS),
    ("available replicas", "spec.replicas, spec.template.resources, or the room on the nodes of the clusters"),
    ("FederatedResourceQuota", "the FederatedResourceQuota named, spec.replicas or spec.template.resources"),
    ("no cluster exists", "the federation: join a cluster"),
];

/// The message of the scheduler, and what the user changes.
pub(super) fn explain(message: &str, reason: &str) -> String {
    let named = CHANGES.iter().filter(|(words, _)| message.contains(words)).map(|(_, change)| *change);
    let changes: Vec<&str> = named.collect();
    let changes =
        if changes.is_empty() { "see the log of karmada-scheduler".to_owned() } else { changes.join("; or ") };
    format!("Karmada's scheduler: {message} ({reason}). To change: {changes}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A user can take every remedy: its path is one of the definition, and no rule refuses it.
    #[test]
    fn every_field_that_is_named_exists_and_can_be_set() {
        let definition = serde_json::to_value(&mczk_api::crd::definitions().unwrap()[0]).unwrap();
        let object = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
        let mut named = 0;
        for (_, change) in CHANGES {
            // Those of Karmada's Cluster are in the same part of a text.
            for part in change.split(", or ").filter(|part| !part.contains(" of the Cluster")) {
                let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
                for path in words.filter(|word| word.starts_with("spec.")) {
                    named += 1;
                    let schema = path.trim_end_matches('.').split('.').try_fold(object, |schema, field| {
                        schema.get("properties").and_then(|properties| properties.get(field))
                    });
                    let text = schema.and_then(|schema| schema["description"].as_str());
                    assert!(text.is_some_and(|text| !text.starts_with("Not supported")), "{path}: {text:?}");
                }
            }
        }
        assert!(named >= 5, "{named}");
    }

    #[rstest]
    #[case::taint("0/3 clusters are available: 3 cluster(s) had untolerated taint {a: b}.", &["clusterTolerations", "ClusterTaintPolicy"])]
    #[case::affinity(
        "0/3 clusters are available: 3 cluster(s) did not match the placement cluster affinity constraint.",
        &["spec.placement.clusterAffinity"],
    )]
    #[case::two_causes(
        "0/3 clusters are available: 1 cluster(s) did not have the API resource, 2 cluster(s) had untolerated taint {a: b}.",
        &["mczk register", "ClusterTaintPolicy"],
    )]
    #[case::evicted("0/1 clusters are available: 1 cluster(s) is in the process of eviction.", &["wait until Karmada has evicted"])]
    #[case::region("0/1 clusters are available: 1 cluster(s) did not have region property.", &["spec.region", "sets no spread constraints"])]
    #[case::groups("the number of feasible region is less than spreadConstraint.MinGroups", &["sets no spread constraints"])]
    #[case::same_group("1 cluster(s) already has workload with the same anti-affinity group", &["no workload affinity"])]
    #[case::capacity("Clusters available replicas 2 are not enough to schedule.", &["spec.replicas", "resources"])]
    #[case::quota(
        "FederatedResourceQuota(ns/q) exceeded for resource cpu: requested sum 3, limit 2.",
        &["FederatedResourceQuota named"],
    )]
    #[case::no_cluster("0/0 clusters are available: no cluster exists.", &["join a cluster"])]
    #[case::unknown_words("the estimator did not answer", &["log of karmada-scheduler"])]
    fn the_scheduler_speaks_for_itself_and_names_what_to_change(#[case] message: &str, #[case] changes: &[&str]) {
        let text = explain(message, "NoClusterFit");
        assert!(text.starts_with(&format!("Karmada's scheduler: {message} (NoClusterFit). To change: ")), "{text}");
        for change in changes {
            assert!(text.contains(change), "{text}");
        }
    }
}
