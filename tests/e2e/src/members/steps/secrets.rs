//! What servers prove who they are with: broken by hand.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Step, Story};
use crate::members::writer::acknowledges_nothing;

/// How long there is no majority.
const BROKEN: Duration = Duration::from_secs(15);

pub const MAJORITY_BROKEN: Step = Step {
    name: "majority-broken",
    shows: "the certificates in two clusters are made useless by hand, their servers deleted; the agents mend them",
    always: false,
    run: |story| Box::pin(story.majority_broken()),
};

impl Story<'_> {
    async fn majority_broken(&mut self) -> Result<()> {
        let clusters: Vec<String> = self.members.federation.members.keys().skip(1).cloned().collect();
        let rest = self.pods().servers().await?.into_iter().find(|server| !clusters.contains(&server.cluster));
        for cluster in &clusters {
            self.agents(cluster, 0).await?;
            self.break_certificates(cluster).await?;
            self.members.kubectl(cluster, &self.in_namespace(&["delete", "pods", "--all", "--wait=false"])).await?;
        }
        self.members
            .say(&format!("no agent runs in {}; certificates are useless, servers deleted", clusters.join(", ")));
        // Until the last of them has ended.
        tokio::time::sleep(Duration::from_secs(10)).await;
        if let Some(address) = rest.and_then(|server| server.address) {
            let tried = acknowledges_nothing(&format!("{address}:2181"), BROKEN).await?;
            self.members.say(&format!("{tried} writes were tried at the one that is left, and none was acknowledged"));
        }
        let back = Instant::now();
        for cluster in &clusters {
            self.agents(cluster, 2).await?;
        }
        self.members.say("the agents run again");
        self.all_serve().await?;
        self.members.say(&format!("all serve again after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    fn in_namespace<'b>(&'b self, arguments: &[&'b str]) -> Vec<&'b str> {
        [arguments, &["-n", &self.scene.namespace]].concat()
    }

    async fn agents(&self, cluster: &str, number: u8) -> Result<()> {
        let replicas = format!("--replicas={number}");
        let scale = ["scale", "deployment/mczk-member", "-n", "mczk-system", &replicas];
        self.members.kubectl(cluster, &scale).await?;
        if number == 0 {
            let which = ["pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-member"];
            let gone = [&["wait", "--for=delete", "--timeout=60s"], &which[..]].concat();
            self.members.kubectl(cluster, &gone).await?;
        }
        Ok(())
    }

    async fn break_certificates(&self, cluster: &str) -> Result<()> {
        let of = ["get", "secrets", "-l", "app.kubernetes.io/managed-by=mczk-member", "-o", "name"];
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
