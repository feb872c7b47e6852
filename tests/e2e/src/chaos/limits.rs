//! What a cluster or the control plane does not let through: packets, or requests that a quota or a policy refuses.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::json;

use super::{
    apply::{Applied, Undo},
    operations::{Kind, Operation},
    world::World,
};
use crate::admission_policy::refusing;

/// The name of the quota.
const QUOTA: &str = "nothing-more";
/// Everything that Karmada and the agent create in the namespace.
const HARD: &str = "--hard=pods=0,persistentvolumeclaims=0,services=0,secrets=0,configmaps=0,count/statefulsets.apps=0,\
                    count/poddisruptionbudgets.policy=0";
/// The name of the admission policy.
const POLICY: &str = "nothing-more";
/// The table of the firewall that forgets connections.
const FORGOTTEN: &str = "inet mczk_forgotten";
/// The table of the firewall that drops large packets.
const LARGE_PACKETS: &str = "inet mczk_large";
/// A certificate is larger, and so is most of what a server copies.
const LARGE: &str = "chain forward {
    type filter hook forward priority 0; policy accept;
    tcp dport { 2888, 3888 } ip length > 600 drop
    tcp sport { 2888, 3888 } ip length > 600 drop
}";
/// Packets of connections that were open when the table was made are dropped. New connections are remembered.
const REMEMBERED: &str =
    "set open { type ipv4_addr . inet_service . ipv4_addr . inet_service; flags dynamic; size 65535; }
chain forward {
    type filter hook forward priority 0; policy accept;
    tcp dport { 2888, 3888 } tcp flags & (syn | ack) == syn update @open { ip saddr . tcp sport . ip daddr . tcp dport }
    tcp dport { 2888, 3888 } ip saddr . tcp sport . ip daddr . tcp dport != @open drop
    tcp sport { 2888, 3888 } ip daddr . tcp dport . ip saddr . tcp sport != @open drop
}";

impl World<'_> {
    /// Limits a cluster.
    pub(super) async fn limit(&self, operation: &Operation) -> Result<Applied> {
        let cluster = operation.of(&self.clusters).context("there are no clusters")?.clone();
        if operation.kind == Kind::Refuse {
            if let Err(error) = self.kubectl(&cluster, &["create", "quota", QUOTA, HARD]).await {
                // The quota may be there although no answer came.
                drop(self.no_quota(&cluster).await);
                return Err(error);
            }
            return Ok(Applied::new(cluster.clone(), Some(Undo::Refused(cluster))));
        }
        let (table, rules) = match operation.kind {
            Kind::DropLargePackets => (LARGE_PACKETS, LARGE),
            _ => (FORGOTTEN, REMEMBERED),
        };
        let line = format!("printf '%s' 'table {table} {{\n{rules}\n}}\n' | nft -f -");
        if let Err(error) = self.soon(self.members.on_nodes_of(Some(&cluster), &line)).await {
            // Some of its nodes may have it.
            drop(self.no_firewall(&cluster, table).await);
            return Err(error);
        }
        Ok(Applied::new(cluster.clone(), Some(Undo::Firewall(cluster, table))))
    }

    /// Makes an admission policy that refuses everything that operator and Karmada write for the ensemble. A user may still
    /// change the spec.
    pub(super) async fn refuse_all(&self) -> Result<Applied> {
        let rule = |groups: &[&str], resources: &[&str]| json!({ "apiGroups": groups, "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": resources, "scope": "Namespaced" });
        let rules = [
            rule(&["policy.karmada.io", "multicluster.x-k8s.io"], &["*"]),
            rule(&["mczk.io"], &["zookeepers", "multiclusterzookeepers/status"]),
            rule(&[""], &["secrets"]),
        ];
        let list =
            json!({ "apiVersion": "v1", "kind": "List", "items": refusing(POLICY, &self.scene.namespace, &rules) });
        let file = self.members.federation.folder.join("policy.json");
        fs::write(&file, list.to_string())?;
        // The policy may be there although no answer came.
        let created = self.kubectl("karmada", &["create", "-f", &file.display().to_string()]).await;
        let failed = created.err().map(|error| format!("{error:#}")).unwrap_or_default();
        Ok(Applied::new(failed, Some(Undo::RefusedAll(file))))
    }

    /// Removes the admission policy.
    pub(super) async fn no_policy(&self, policy: &Path) -> Result<()> {
        let file = policy.display().to_string();
        self.kubectl("karmada", &["delete", "-f", &file, "--ignore-not-found"]).await.map(drop)
    }

    /// Removes the quota.
    pub(super) async fn no_quota(&self, cluster: &str) -> Result<()> {
        self.kubectl(cluster, &["delete", "quota", QUOTA, "--ignore-not-found"]).await.map(drop)
    }

    /// Removes the firewall. A node that lost power meanwhile has none.
    pub(super) async fn no_firewall(&self, cluster: &str, table: &str) -> Result<()> {
        let line = format!("nft list table {table} >/dev/null 2>&1 || exit 0; nft delete table {table}");
        self.soon(self.members.on_nodes_of(Some(cluster), &line)).await
    }
}
