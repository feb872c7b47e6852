//! Nodes that are drained, and that lose power.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{Step, StoryContext};
use crate::{members::TWO_NODES, patience::wait_for};

/// How long a node has no power.
const OFF: Duration = Duration::from_secs(20);

pub const DRAIN: Step =
    step!("drain", drain, "a node is drained at once: the agent moves its servers one by one, and kubectl drain ends");
pub const THREE_DRAINS: Step = step!(
    "three-drains",
    drains,
    "a node in each of three clusters is cordoned at once: agents move one server at a time over all clusters"
);
pub const NODE_STOPPED: Step =
    step!("node-stopped", node_stopped, "a node with a server loses power and returns; no record begins");

impl StoryContext<'_> {
    async fn drain(&mut self) -> Result<()> {
        let servers = self.pods().servers().await?;
        let node = servers.iter().find(|server| server.cluster == TWO_NODES).and_then(|server| server.node.clone());
        let node = node.with_context(|| format!("no server runs in {TWO_NODES}"))?;
        let begun = Instant::now();
        self.members.report(&format!("kubectl drain {node}, in {TWO_NODES}"));
        let drain = ["drain", node.as_str(), "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s"];
        let moved = match self.members.kubectl(TWO_NODES, &drain).await {
            Ok(_) => {
                self.members.report(&format!("kubectl drain has ended after {:.1} s", begun.elapsed().as_secs_f64()));
                self.moved_from(&[(TWO_NODES.to_owned(), node.clone())].into()).await
            }
            Err(error) => Err(error),
        };
        self.members.kubectl(TWO_NODES, &["uncordon", &node]).await?;
        moved?;
        self.members.report(&format!("{node} is drained after {:.1} s", begun.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    /// Waits until no server runs on these nodes.
    async fn moved_from(&self, nodes: &BTreeMap<String, String>) -> Result<()> {
        wait_for("the servers run on other nodes", Duration::from_secs(240), || async {
            let servers = self.pods().servers().await?;
            let left = servers.iter().filter(|server| nodes.get(&server.cluster) == server.node.as_ref()).count();
            ensure!(left == 0 && servers.len() == self.servers(), "{left} servers still run on {nodes:?}");
            Ok(())
        })
        .await?;
        self.all_serve().await
    }

    async fn drains(&mut self) -> Result<()> {
        let servers = self.pods().servers().await?;
        let nodes: BTreeMap<String, String> =
            servers.into_iter().filter_map(|server| Some((server.cluster, server.node?))).collect();
        let begun = Instant::now();
        for (cluster, node) in &nodes {
            self.members.kubectl(cluster, &["cordon", node]).await?;
        }
        self.members.report(&format!("kubectl cordon {}", nodes.values().cloned().collect::<Vec<_>>().join(", ")));
        let moved = self.moved_from(&nodes).await;
        for (cluster, node) in &nodes {
            self.members.kubectl(cluster, &["uncordon", node]).await?;
        }
        moved?;
        self.members.report(&format!("all servers moved after {:.1} s", begun.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn node_stopped(&mut self) -> Result<()> {
        let servers = self.pods().servers().await?;
        let victim = servers.into_iter().find(|server| server.cluster == TWO_NODES && server.node.is_some());
        let node = victim.and_then(|server| server.node).with_context(|| format!("no server runs in {TWO_NODES}"))?;
        let rig = &self.members.federation.rig;
        rig.stop_node(&node).await?;
        self.members.report(&format!("{node} of {TWO_NODES} lost power"));
        tokio::time::sleep(OFF).await;
        rig.start_node(&node).await?;
        let back = Instant::now();
        self.members.report(&format!("{node} has power again"));
        self.all_serve().await?;
        self.members.report(&format!("all servers serve after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }
}
