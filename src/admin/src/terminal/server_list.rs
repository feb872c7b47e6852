//! The servers of an ensemble, as the operator's status lists them.

use mczk_api::{contract::naming::Naming, multiclusterzookeeper::MultiClusterZooKeeperStatus, zookeeper::Role};

/// One server of the server list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedServer {
    /// Id of the server.
    pub(crate) id: i32,
    /// Karmada's name of its cluster.
    pub(crate) cluster: String,
    pub(crate) role: Role,
    /// Name of its pod.
    pub(crate) pod: String,
}

/// The servers of the newest incarnation, by cluster.
pub(crate) fn listed(namespace: &str, name: &str, status: &MultiClusterZooKeeperStatus) -> Vec<ListedServer> {
    let Some(ensemble) = &status.ensemble else { return Vec::new() };
    let naming = Naming { name, namespace, incarnation: &ensemble.incarnation, names: None };
    let mut servers = Vec::new();
    for cluster in &status.clusters {
        for (role, ids) in [(Role::Voter, &cluster.voters), (Role::Observer, &cluster.observers)] {
            // The status lists ids by ordinal.
            servers.extend((0..).zip(ids).map(|(ordinal, id)| ListedServer {
                id: *id,
                cluster: cluster.name.clone(),
                role,
                pod: naming.pod(role, ordinal),
            }));
        }
    }
    servers
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_follows_from_the_place_in_the_list() {
        let status = serde_json::from_value(json!({
            "ensemble": { "incarnation": "abc123", "epoch": 1 },
            "clusters": [{ "name": "m1", "voters": [1, 4] }, { "name": "m2", "voters": [2], "observers": [3] }],
        }));
        let servers = listed("n", "zk", &status.unwrap());
        let names: Vec<String> = servers.iter().map(|s| format!("{} {}/{}", s.id, s.cluster, s.pod)).collect();
        assert_eq!(names, ["1 m1/zk-abc123-0", "4 m1/zk-abc123-1", "2 m2/zk-abc123-0", "3 m2/zk-abc123-o-0"]);
    }
}
