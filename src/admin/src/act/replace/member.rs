//! The member cluster of the server, through Karmada's cluster proxy.

use anyhow::anyhow;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};

use crate::terminal::proxy::answer;
use mczk_api::{ZooKeeper, contract::naming::claim_of, zookeeper::ZooKeeperStatus};

/// A claim that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LiveClaim {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The ensemble in one member cluster.
pub(super) struct Member {
    client: Client,
    cluster: String,
    namespace: String,
    name: String,
}

impl Member {
    pub(super) fn new(client: Client, cluster: &str, namespace: &str, name: &str) -> Self {
        let owned = str::to_owned;
        Self { client, cluster: owned(cluster), namespace: owned(namespace), name: owned(name) }
    }

    /// The claim of a pod.
    ///
    /// # Errors
    /// If there is none, or the cluster does not answer.
    pub(super) async fn claim(&self, pod: &str) -> anyhow::Result<LiveClaim> {
        let absent = || anyhow!("cluster {} has no claim {}: nothing is to replace", self.cluster, claim_of(pod));
        self.find_claim(pod).await?.ok_or_else(absent)
    }

    /// The claim of a pod, if there is one.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub(super) async fn find_claim(&self, pod: &str) -> anyhow::Result<Option<LiveClaim>> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = claim_of(pod);
        let found = answer(api.get_opt(&name)).await.map_err(|why| self.unread(&why))?;
        Ok(found.and_then(|claim| Some(LiveClaim { name, uid: claim.metadata.uid? })))
    }

    /// What the agent reports.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub(super) async fn status(&self) -> anyhow::Result<ZooKeeperStatus> {
        let api: Api<ZooKeeper> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = answer(api.get_opt(&self.name)).await.map_err(|why| self.unread(&why))?;
        Ok(found.and_then(|object| object.status).unwrap_or_default())
    }

    /// The volume that the server of a pod last reported.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub(super) async fn volume(&self, pod: &str) -> anyhow::Result<Option<String>> {
        let servers = self.status().await?.servers;
        Ok(servers.into_iter().find(|server| server.pod.as_deref() == Some(pod)).and_then(|server| server.volume))
    }

    fn unread(&self, why: &str) -> anyhow::Error {
        anyhow!("cannot read cluster {}: {why}", self.cluster)
    }
}
