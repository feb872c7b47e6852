//! What `mczk replace` sees: the operator's status, and the live objects of every cluster.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::{Api, ResourceExt, api::ListParams};

use crate::terminal::proxy::{Proxy, answer, clusters};
use mczk_api::{
    ZooKeeper,
    contract::labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
    multiclusterzookeeper::MultiClusterZooKeeperStatus,
    zookeeper::ServerStatus,
};

/// Everything that the decision depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Namespace of the ensemble.
    pub(super) namespace: String,
    /// Name of the ensemble.
    pub(super) name: String,
    /// True if the MultiClusterZooKeeper is being deleted.
    pub(super) terminating: bool,
    /// True if the status is of the newest generation.
    pub(super) current: bool,
    /// The operator's status.
    pub(super) status: MultiClusterZooKeeperStatus,
    /// The live objects of each cluster, or why they are unknown.
    pub(super) clusters: BTreeMap<String, Result<ClusterObjects, String>>,
}

/// The live objects of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClusterObjects {
    /// What the agent reports of each server.
    pub(super) reports: Vec<ServerStatus>,
    /// The agent's conditions.
    pub(super) conditions: Vec<Condition>,
    /// Pods of the ensemble, by name.
    pub(super) pods: BTreeMap<String, Object>,
    /// Claims of the ensemble, by name.
    pub(super) claims: BTreeMap<String, Object>,
}

impl ClusterObjects {
    /// What the agent reports of a server.
    pub(super) fn report(&self, id: i32) -> Option<&ServerStatus> {
        self.reports.iter().find(|report| report.id == id)
    }
}

/// A pod or a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    /// Its uid: a deletion meets no later object of the same name.
    pub(super) uid: String,
    /// Incarnation of the ensemble, by its label.
    pub(super) incarnation: Option<String>,
    /// True if it is being deleted.
    pub(super) terminating: bool,
    /// True if the kubelet finds the pod ready. Always false for a claim.
    pub(super) ready: bool,
}

impl Object {
    fn new(metadata: &ObjectMeta, ready: bool) -> Self {
        let labels = metadata.labels.as_ref();
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            incarnation: labels.and_then(|labels| labels.get(INCARNATION_LABEL)).cloned(),
            terminating: metadata.deletion_timestamp.is_some(),
            ready,
        }
    }
}

/// Reads the objects of every cluster of the ensemble.
pub(super) async fn read(
    proxy: &Proxy,
    namespace: &str,
    name: &str,
    status: &MultiClusterZooKeeperStatus,
) -> BTreeMap<String, Result<ClusterObjects, String>> {
    let reads = clusters(status).into_iter().map(async |cluster| {
        let objects = read_cluster(proxy, &cluster, namespace, name).await;
        (cluster, objects)
    });
    join_all(reads).await.into_iter().collect()
}

async fn read_cluster(proxy: &Proxy, cluster: &str, namespace: &str, name: &str) -> Result<ClusterObjects, String> {
    let client = proxy.client(cluster).map_err(|error| error.to_string())?;
    let params = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name}"));
    let zookeepers: Api<ZooKeeper> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, namespace);
    let zookeeper = answer(zookeepers.get_opt(name)).await?;
    let pods = answer(pods.list(&params)).await?;
    let claims = answer(claims.list(&params)).await?;
    let status = zookeeper.and_then(|object| object.status).unwrap_or_default();
    Ok(ClusterObjects {
        reports: status.servers,
        conditions: status.conditions,
        pods: pods.iter().map(|pod| (pod.name_any(), Object::new(&pod.metadata, is_ready(pod)))).collect(),
        claims: claims.iter().map(|claim| (claim.name_any(), Object::new(&claim.metadata, false))).collect(),
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
