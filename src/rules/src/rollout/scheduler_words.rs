//! What a user changes when Karmada's scheduler refuses: it names the cause in words alone.

/// Words of the scheduler of Karmada 1.16 to 1.18 (`pkg/scheduler`, `pkg/webhook/resourcebinding`), and what the user changes.
const CHANGES: [(&str, &str); 10] = [
    (
        "untolerated taint",
        "spec.placement.clusterTolerations, or spec.taints of the Cluster and its ClusterTaintPolicy",
    ),
    ("placement cluster affinity", "spec.placement.clusterAffinity, or labels and names of the Clusters"),
    ("did not have the API resource", "the definitions in the member clusters: run mczk register"),
    (
        "in the process of eviction",
        "nothing: wait until Karmada has evicted, and wait longer if a NoExecute taint stays",
    ),
    (" property", "spec.provider, spec.region or spec.zones of the Cluster, or spec.placement.spreadConstraints"),
    ("MinGroups", "minGroups in spec.placement.spreadConstraints, or join more clusters"),
    ("affinity group", "workloadAffinity in spec.placement"),
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
mod tests {
    use rstest::rstest;

    use super::*;

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
    #[case::region("0/1 clusters are available: 1 cluster(s) did not have region property.", &["spec.region", "spreadConstraints"])]
    #[case::groups("the number of feasible region is less than spreadConstraint.MinGroups", &["minGroups"])]
    #[case::same_group("1 cluster(s) already has workload with the same anti-affinity group", &["workloadAffinity"])]
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
