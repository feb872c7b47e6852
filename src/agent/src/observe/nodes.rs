//! Reads the nodes of servers: which are gone, which are being drained, and what decides whether servers can leave them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tracing::debug;

use mczk_rules::agent::decide::drain::{
    Drain, PodVolume, Stay, Surroundings, claims_of, drains, has_room, node_of, other_nodes,
};
use mczk_runtime::failure::{is_forbidden, is_not_found, refusal};

/// Nodes that the agent reads to find one that fits a pod. Any fitting node is enough.
const MOST_NODES: u32 = 100;
/// Nodes of them whose room the agent checks.
const MOST_CHECKED: usize = 20;

/// What the agent reads nodes for.
pub(super) struct DrainedServers<'a> {
    /// Pods of the ensemble.
    pub(super) pods: &'a [Pod],
    /// Claims of the ensemble.
    pub(super) claims: &'a [PersistentVolumeClaim],
    /// Labels that a node must have.
    pub(super) labels: &'a BTreeMap<String, String>,
    /// Voters that the server list names.
    pub(super) voters: usize,
}

/// The nodes of pods.
#[derive(Default)]
pub(super) struct PodNodes {
    /// The drains that concern pods, by the pod's uid.
    pub(super) drains: BTreeMap<String, Drain>,
    /// Uids of pods whose node exists no longer.
    pub(super) gone: BTreeSet<String>,
    /// Why the agent may not read nodes, in the words of the API server. Absent if it may.
    pub(super) unread: Option<String>,
}

/// The nodes of pods. If the agent cannot read nodes, no pod leaves its node, and everything else continues.
pub(super) async fn read(servers: &DrainedServers<'_>, client: &Client) -> PodNodes {
    match find(servers, client).await {
        Ok(nodes) => nodes,
        Err(error) => {
            debug!(%error, "cannot read nodes: no server leaves a node that is drained");
            // A missing right lasts: the status reports it. Other failures pass.
            let unread = refusal(&error).filter(|_| is_forbidden(&error)).map(str::to_owned);
            PodNodes { unread, ..PodNodes::default() }
        }
    }
}

async fn find(servers: &DrainedServers<'_>, client: &Client) -> kube::Result<PodNodes> {
    let nodes = in_use(servers.pods, client).await?;
    let exists = |name: &str| nodes.iter().any(|node| node.name_any() == name);
    let is_gone = |pod: &&Pod| node_of(pod).is_some_and(|name| !exists(name));
    let gone = servers.pods.iter().filter(is_gone).filter_map(ResourceExt::uid).collect();
    Ok(PodNodes { drains: drains_of(servers, nodes, client).await?, gone, unread: None })
}

async fn drains_of(
    servers: &DrainedServers<'_>,
    mut nodes: Vec<Node>,
    client: &Client,
) -> kube::Result<BTreeMap<String, Drain>> {
    let is_drained =
        |pod: &&Pod| nodes.iter().any(|node| Some(node.name_any().as_str()) == node_of(pod) && drains(node, pod));
    let drained: Vec<&Pod> = servers.pods.iter().filter(is_drained).collect();
    if drained.is_empty() {
        return Ok(BTreeMap::new());
    }
    add_others(&mut nodes, servers.labels, client).await?;
    let volumes = volumes(&drained, servers.claims, client).await?;
    let surroundings = Surroundings { pods: servers.pods, nodes: &nodes, volumes: &volumes };
    let mut found = BTreeMap::new();
    for pod in drained {
        let (Some(uid), Some(node)) = (pod.uid(), node_of(pod)) else { continue };
        let stays = match other_nodes(pod, surroundings) {
            Err(why) => Some(Stay::NoOtherNode(why)),
            Ok(fitting) if !any_has_room(&fitting, pod, client).await? => {
                Some(Stay::NoOtherNode("no other node that fits has room for its requests".to_owned()))
            }
            // An ensemble of one or two voters can spare none.
            Ok(_) => (servers.voters <= 2).then_some(Stay::TooFewVoters),
        };
        found.insert(uid, Drain { node: node.to_owned(), stays });
    }
    Ok(found)
}

/// Nodes that run these pods.
async fn in_use(pods: &[Pod], client: &Client) -> kube::Result<Vec<Node>> {
    let api: Api<Node> = Api::all(client.clone());
    let names: BTreeSet<&str> = pods.iter().filter_map(node_of).collect();
    let mut nodes = Vec::new();
    for name in names {
        // Kubernetes deletes the pods of a deleted node after a while.
        nodes.extend(api.get_opt(name).await?);
    }
    Ok(nodes)
}

/// Adds nodes that are not cordoned and have these labels.
async fn add_others(nodes: &mut Vec<Node>, labels: &BTreeMap<String, String>, client: &Client) -> kube::Result<()> {
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let params = ListParams::default().fields("spec.unschedulable=false").labels(&selector.join(",")).limit(MOST_NODES);
    let known: BTreeSet<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let others = Api::<Node>::all(client.clone()).list(&params).await?.items;
    nodes.extend(others.into_iter().filter(|node| !known.contains(&node.name_any())));
    Ok(())
}

/// Bound volumes of pods, by the name of their claim.
async fn volumes(
    pods: &[&Pod],
    claims: &[PersistentVolumeClaim],
    client: &Client,
) -> kube::Result<BTreeMap<String, PodVolume>> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let mut found = BTreeMap::new();
    for name in pods.iter().flat_map(|pod| claims_of(pod)) {
        let claim = claims.iter().find(|claim| claim.name_any() == name);
        let Some(volume) = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.clone()) else { continue };
        let volume = match api.get(&volume).await {
            Ok(read) => PodVolume::Known(Box::new(read)),
            Err(error) if is_not_found(&error) => continue,
            Err(error) if is_forbidden(&error) => PodVolume::Unreadable(volume),
            Err(error) => return Err(error),
        };
        found.insert(name.to_owned(), volume);
    }
    Ok(found)
}

/// True if one of these nodes has room for a pod. An agent that may not read all pods does not check it.
async fn any_has_room(nodes: &[&Node], pod: &Pod, client: &Client) -> kube::Result<bool> {
    let api: Api<Pod> = Api::all(client.clone());
    for node in nodes.iter().take(MOST_CHECKED) {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", node.name_any())).match_any();
        match api.list(&on_node).await {
            Ok(running) if !has_room(node, &running.items, pod) => {}
            Err(error) if !is_forbidden(&error) => return Err(error),
            _ => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::context::tests::answering;

    /// It stood in the log alone, at debug.
    #[rstest]
    #[case::no_right(403, Some("nodes are forbidden"))]
    #[case::overload(503, None)]
    #[tokio::test]
    async fn a_missing_right_to_nodes_is_reported(#[case] code: u16, #[case] expected: Option<&str>) {
        let failure = json!({ "status": "Failure", "reason": "Any", "code": code, "message": "nodes are forbidden" });
        let requests = Arc::<AtomicUsize>::default();
        let context = answering(&requests, move |_| (code, failure.clone()));
        let pod: Pod = serde_json::from_value(json!({ "spec": { "nodeName": "n1", "containers": [] } })).unwrap();
        let servers = DrainedServers { pods: &[pod], claims: &[], labels: &BTreeMap::new(), voters: 3 };
        assert_eq!(read(&servers, &context.client).await.unread.as_deref(), expected);
    }
}
