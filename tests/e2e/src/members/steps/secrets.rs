//! What servers prove who they are with: broken by hand.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mczk::api::MultiClusterZooKeeper;

use super::{NAME, Step, Story};
use crate::{members::writer::acknowledges_nothing, patience::wait_for, scene::is_settled};

/// How long there is no majority.
const BROKEN: Duration = Duration::from_secs(15);

/// How long the three steps may take: a kubelet takes a minute to bring a changed Secret into a pod.
const REPLACED: Duration = Duration::from_secs(600);
/// How long agents may take to end.
const AGENTS_END: Duration = Duration::from_secs(90);

pub const MAJORITY_BROKEN: Step = Step {
    name: "majority-broken",
    shows: "the certificates in two clusters are made useless by hand, their servers deleted; the agents mend them",
    always: false,
    run: |story| Box::pin(story.majority_broken()),
};

pub const AUTHORITY: Step = Step {
    name: "authority",
    shows: "another authority takes the place of the quorum's, in three steps over all clusters; no server is restarted",
    always: false,
    run: |story| Box::pin(story.authority_replaced()),
};

impl Story<'_> {
    async fn authority_replaced(&mut self) -> Result<()> {
        let before = self.uids().await?;
        let used = |object: &MultiClusterZooKeeper| {
            let tls = object.status.as_ref()?.ensemble.as_ref()?.tls.clone()?;
            Some((tls.identity, tls.trust))
        };
        let (identity, trust) = used(&self.scene.get(NAME).await?).context("no certificates are told")?;
        let asked = ["annotate", "mczk", NAME, "mczk.io/replace-authority=asked"];
        self.members.kubectl("karmada", &self.in_namespace(&asked)).await?;
        let begun = Instant::now();
        let mut told = String::new();
        let replaced = self
            .members
            .until(&self.scene, NAME, REPLACED, |object| {
                let Some((now, trusted)) = used(object) else { return false };
                let text = format!("identity {now}, trusted: {}", trusted.join(" and "));
                if text != told {
                    self.members.say(&format!("after {:.1} s: {text}", begun.elapsed().as_secs_f64()));
                    told = text;
                }
                now != identity && trusted.len() == 1 && trusted != trust && is_settled(object)
            })
            .await?;
        // Each step is a list of its own, which a record brings to all clusters.
        self.records = super::records(&replaced).len();
        ensure!(self.uids().await? == before, "a server was restarted");
        self.all_serve().await?;
        // All connections between servers are made anew, with what they trust now.
        for server in self.pods().servers().await? {
            self.kill(&server).await?;
            self.all_serve().await?;
        }
        self.members.say("every server was killed, and found the others again");
        self.nothing_rolled().await
    }

    async fn majority_broken(&mut self) -> Result<()> {
        let clusters: Vec<String> = self.members.federation.members.keys().skip(1).cloned().collect();
        let rest = self.pods().servers().await?.into_iter().find(|server| !clusters.contains(&server.cluster));
        self.agents(0).await?;
        for cluster in &clusters {
            self.break_certificates(cluster).await?;
            self.members.kubectl(cluster, &self.in_namespace(&["delete", "pods", "--all", "--wait=false"])).await?;
        }
        self.members
            .say(&format!("no agent runs; in {} certificates are useless and servers deleted", clusters.join(" and ")));
        // Until the last of them has ended.
        tokio::time::sleep(Duration::from_secs(10)).await;
        if let Some(address) = rest.and_then(|server| server.address) {
            let tried = acknowledges_nothing(&format!("{address}:2181"), BROKEN).await?;
            self.members.say(&format!("{tried} writes were tried at the one that is left, and none was acknowledged"));
        }
        let back = Instant::now();
        self.agents(2).await?;
        self.members.say("the agents run again");
        self.all_serve().await?;
        self.members.say(&format!("all serve again after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    fn in_namespace<'b>(&'b self, arguments: &[&'b str]) -> Vec<&'b str> {
        [arguments, &["-n", &self.scene.namespace]].concat()
    }

    /// So many agents in each cluster; while there are none, Karmada is not to bring them back.
    async fn agents(&self, number: u8) -> Result<()> {
        let suspension = format!(r#"{{"spec":{{"suspension":{{"dispatching":{}}}}}}}"#, number == 0);
        let policy = ["patch", "clusterpropagationpolicy", "mczk-agents", "--type=merge", "-p", &suspension];
        self.members.kubectl("karmada", &policy).await?;
        // Until every Work is suspended.
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
                let which =
                    ["get", "pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-agent", "-o", "name"];
                let left = self.members.kubectl(cluster, &which).await?;
                ensure!(left.trim().is_empty(), "there are {left}");
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
        // Nothing that is a certificate.
        let patch = r#"{"stringData":{"tls.crt":"broken","ca.crt":"broken"}}"#;
        for name in names.split_whitespace() {
            self.members.kubectl(cluster, &self.in_namespace(&["patch", name, "-p", patch])).await?;
        }
        Ok(())
    }
}
