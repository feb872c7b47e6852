//! Networks that are broken before the first server starts.

use anyhow::{Context, Result, ensure};
use mczk::api::MultiClusterZooKeeper;
use serde_json::json;

use super::{NAME, PATIENCE, Step, StoryContext, records};
use crate::{members::spec, scene::ensemble};

/// The table of nftables.
const TABLE: &str = "mczk_preflight";

pub const BROKEN_NETWORK: Step = step!(
    "broken-network",
    broken_network,
    "a missing name, a wrong cluster id and a blocked port each keep every server from starting, and the status names the pair"
);

/// The message of `Progressing`, if it names a problem of the network.
fn broken(object: &MultiClusterZooKeeper, cluster: &str, problem: &str) -> Option<String> {
    let conditions = &object.status.as_ref()?.conditions;
    let progressing = conditions.iter().find(|c| c.type_ == "Progressing" && c.reason == "NetworkBroken")?;
    let names = |text: &str| progressing.message.contains(text);
    (names(&format!(" to {cluster}: ")) && names(problem)).then(|| progressing.message.clone())
}

impl StoryContext<'_> {
    async fn broken_network(&mut self) -> Result<()> {
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        let [_, cluster, other, ..] = all.as_slice() else { anyhow::bail!("the story needs three clusters") };
        for (id, problem) in
            [("nowhere", "NoSuchName".to_owned()), (other.as_str(), format!("WrongServer (cluster {other} answers)"))]
        {
            let mut more = spec::first(self.image, &self.clusters, self.quorum_tls);
            *more.pointer_mut("/network").context("the spec has no network")? =
                json!({ "mode": "MCS", "preflight": "Required", "clusterIds": [{ "cluster": cluster, "id": id }] });
            self.scene.create(&ensemble(NAME, i32::try_from(self.voters)?, &more)).await?;
            self.keeps_servers_away(cluster, &problem).await?;
            let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await?;
            ensure!(volumes.is_empty(), "a check left {volumes:?}");
        }
        let rules = "chain forward {\n type filter hook forward priority 0; policy accept;\n tcp dport 3888 drop\n }";
        self.on_nodes_of(Some(cluster), &format!("printf '%s' 'table inet {TABLE} {{\n {rules}\n }}\n' | nft -f -"))
            .await?;
        let generation = self.create().await?;
        let blocked = self.keeps_servers_away(cluster, "port 3888: TimedOut").await;
        self.on_nodes_of(Some(cluster), &format!("nft delete table inet {TABLE}")).await?;
        blocked?;
        self.members.report("the port is open again");
        self.rolled_out(generation, |_| {}).await?;
        self.start_writer().await?;
        self.end_incarnation().await?;
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        Ok(())
    }

    /// Waits until the status names the problem, and checks that no server exists.
    async fn keeps_servers_away(&self, cluster: &str, problem: &str) -> Result<()> {
        let is_broken = |object: &MultiClusterZooKeeper| broken(object, cluster, problem).is_some();
        let object = self.members.until(&self.scene, NAME, PATIENCE, is_broken).await?;
        self.members.report(&broken(&object, cluster, problem).unwrap_or_default());
        let servers = self.pods().servers().await?;
        ensure!(
            servers.is_empty() && records(&object).is_empty(),
            "servers exist on a broken network: {}",
            servers.len()
        );
        Ok(())
    }
}
