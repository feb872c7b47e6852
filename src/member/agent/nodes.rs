//! Which servers are to leave their nodes: those on cordoned ones, while there is another node that could take them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use tracing::debug;

use super::{Context, During, Error};
use crate::attempt::is_gone;

/// Nodes that are looked at for one that could take a server: any will do.
const MOST: u32 = 100;

/// Nodes that pods are to leave, by the pod's uid. `labels` are those that a node must have. Without the right to read nodes
/// nobody is to leave any.
pub(super) async fn cordoned(
    pods: &[Pod],
    labels: &BTreeMap<String, String>,
    context: &Context,
) -> Result<BTreeMap<String, String>, Error> {
    let on = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    let names: BTreeSet<String> = pods.iter().filter_map(on).collect();
    let nodes: Api<Node> = Api::all(context.client.clone());
    let mut closed = BTreeSet::new();
    for name in names {
        match nodes.get(&name).await {
            Ok(node) if is_cordoned(&node) => drop(closed.insert(name)),
            Ok(_) => {}
            // Its pods go with it.
            Err(error) if is_gone(&error) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                debug!(message = status.message, "nodes cannot be read: nobody leaves a cordoned one");
                return Ok(BTreeMap::new());
            }
            Err(error) => return Err(error).during(|| format!("reading Node {name}")),
        }
    }
    if closed.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let params = ListParams::default().fields("spec.unschedulable=false").labels(&wanted.join(",")).limit(MOST);
    let others = nodes.list(&params).await.during(|| "reading nodes".to_owned())?;
    if !others.items.iter().any(|node| takes_pods(node) && !closed.contains(&node.name_any())) {
        return Ok(BTreeMap::new());
    }
    Ok(pods.iter().filter_map(|pod| Some((pod.uid()?, on(pod).filter(|node| closed.contains(node))?))).collect())
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && !is_cordoned(node) && node.metadata.deletion_timestamp.is_none()
}
