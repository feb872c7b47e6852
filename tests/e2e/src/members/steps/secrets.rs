//! Certificates between servers: a new authority, and damage by hand.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mczk_api::MultiClusterZooKeeper;

use super::{NAME, Step, StoryContext};
use crate::{members::writer::acknowledges_nothing, patience::wait_for, scene::is_settled};

/// How long there is no quorum.
const NO_QUORUM: Duration = Duration::from_secs(15);
/// The longest time of the three steps. A kubelet takes a minute to update a mounted Secret.
const REPLACED: Duration = Duration::from_secs(600);
/// The longest time until agents have ended.
const AGENTS_END: Duration = Duration::from_secs(90);

pub const BROKEN_CERTIFICATES: Step = step!(
    "broken-certificates",
    certificates_broken,
    "in two clusters the certificates are overwritten by hand and the servers deleted; the agents repair them"
);

pub const AUTHORITY: Step = step!(
    "authority",
    authority_replaced,
    "the quorum's authority is replaced in three steps over all clusters, without a restart"
);

impl StoryContext<'_> {
    async fn authority_replaced(&mut self) -> Result<()> {
        let before = self.uids().await?;
        let certificates = |object: &MultiClusterZooKeeper| {
            let tls = object.status.as_ref()?.ensemble.as_ref()?.tls.clone()?;
            Some((tls.identity, tls.trust))
        };
        let (identity, trust) =
            certificates(&self.scene.get(NAME).await?).context("the status names no certificates")?;
        let annotate = ["annotate", "mczk", NAME, "mczk.io/replace-authority=now"];
        self.members.kubectl("karmada", &self.in_namespace(&annotate)).await?;
        let begun = Instant::now();
        let mut reported = String::new();
        let replaced = self
            .members
            .until(&self.scene, NAME, REPLACED, |object| {
                let Some((now, trusted)) = certificates(object) else { return false };
                let text = format!("identity {now}, trusted: {}", trusted.join(" and "));
                if text != reported {
                    self.members.report(&format!("after {:.1} s: {text}", begun.elapsed().as_secs_f64()));
                    reported = text;
                }
                now != identity && trusted.len() == 1 && trusted != trust && is_settled(object)
            })
            .await?;
        // Each step is a server list, which a record brings to all clusters.
        self.records = super::records(&replaced).len();
        ensure!(self.uids().await? == before, "a server was restarted");
        self.all_serve().await?;
        // After its restart a server opens new connections, with the new authority.
        for server in self.pods().servers().await? {
            self.kill(&server).await?;
            self.all_serve().await?;
        }
        self.members.report("every server was killed, and joined the others again");
        self.nothing_rolled().await
    }

    async fn certificates_broken(&mut self) -> Result<()> {
        let clusters: Vec<String> = self.members.federation.members.keys().skip(1).cloned().collect();
        let rest = self.pods().servers().await?.into_iter().find(|server| !clusters.contains(&server.cluster));
        self.agents(0).await?;
        for cluster in &clusters {
            self.break_certificates(cluster).await?;
            self.members.kubectl(cluster, &self.in_namespace(&["delete", "pods", "--all", "--wait=false"])).await?;
        }
        self.members.report(&format!(
            "no agent runs; in {} the certificates are overwritten and the servers deleted",
            clusters.join(" and ")
        ));
        // The last of them ends after its grace period.
        tokio::time::sleep(Duration::from_secs(10)).await;
        if let Some(address) = rest.and_then(|server| server.address) {
            let tried = acknowledges_nothing(&format!("{address}:2181"), NO_QUORUM).await?;
            self.members.report(&format!("the remaining server acknowledged none of {tried} writes"));
        }
        let back = Instant::now();
        self.agents(2).await?;
        self.members.report("the agents run again");
        self.all_serve().await?;
        self.members.report(&format!("all servers serve after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    pub(super) fn in_namespace<'b>(&'b self, arguments: &[&'b str]) -> Vec<&'b str> {
        [arguments, &["-n", &self.scene.namespace]].concat()
    }

    /// Scales the agents of all clusters. With none, Karmada must not restore them.
    async fn agents(&self, number: u8) -> Result<()> {
        let suspension = format!(r#"{{"spec":{{"suspension":{{"dispatching":{}}}}}}}"#, number == 0);
        let policy = ["patch", "clusterpropagationpolicy", "mczk-agents", "--type=merge", "-p", &suspension];
        self.members.kubectl("karmada", &policy).await?;
        // Karmada suspends every Work.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let replicas = format!("--replicas={number}");
        for cluster in self.members.federation.members.keys() {
            let scale = ["scale", "deployment/mczk-agent", "-n", "mczk-system", &replicas];
            self.members.kubectl(cluster, &scale).await?;
        }
        if number > 0 {
            return Ok(());
        }
        for cluster in self.members.federation.members.keys() {
            wait_for(&format!("the agents of {cluster} end"), AGENTS_END, || async {
                let list =
                    ["get", "pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-agent", "-o", "name"];
                let left = self.members.kubectl(cluster, &list).await?;
                ensure!(left.trim().is_empty(), "these exist: {left}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn break_certificates(&self, cluster: &str) -> Result<()> {
        let of = ["get", "secrets", "-l", "app.kubernetes.io/managed-by=mczk-agent", "-o", "name"];
        let names = self.members.kubectl(cluster, &self.in_namespace(&of)).await?;
        ensure!(!names.trim().is_empty(), "{cluster} has no Secret of an agent");
        // No certificate.
        let patch = r#"{"stringData":{"tls.crt":"broken","ca.crt":"broken"}}"#;
        for name in names.split_whitespace() {
            self.members.kubectl(cluster, &self.in_namespace(&["patch", name, "-p", patch])).await?;
        }
        Ok(())
    }
}
