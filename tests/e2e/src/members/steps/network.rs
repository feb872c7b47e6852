//! Networks that are broken before the first server starts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mczk_api::MultiClusterZooKeeper;
use serde_json::json;
use zookeeper_client::{Acls, CreateMode};

use super::{NAME, PATIENCE, Step, StoryContext, records};
use crate::{
    members::{spec, writer::connect},
    patience::wait_for,
    scene::ensemble,
};

/// The table of nftables.
const TABLE: &str = "mczk_preflight";
/// How long nothing of a server may exist after the status has named the problem.
const CLOSED: Duration = Duration::from_secs(15);
/// The data of the narrow path: the leader's cluster reports 64 MiB, so it needs 1.1 MiB a second.
const LARGE: (i32, usize) = (40, 900_000);
/// What a narrow path carries.
const NARROW: &str = "chain forward {\n type filter hook forward priority 0; policy accept;\n \
                      tcp sport 2888 limit rate over 128 kbytes/second burst 64 kbytes drop\n }";

pub const BROKEN_NETWORK: Step = step!(
    "broken-network",
    broken_network,
    "a missing name, a wrong cluster id and a blocked port each keep every server from starting, and the status names the pair"
);

pub const NARROW_PATH: Step = step!(
    "narrow-path",
    narrow_path,
    "no voter moves to clusters that could not copy the snapshot in time; once the path is wider, all move"
);

/// The problem of a pair in the message of `Progressing`, as in `m1 to m2: zoo-abc123-0.m2... port 3888: TimedOut`:
/// another cluster does not reach this one, and the pair, the name of its first server and the problem are in one part
/// of the message.
fn broken(object: &MultiClusterZooKeeper, cluster: &str, problem: &str) -> Option<String> {
    let conditions = &object.status.as_ref()?.conditions;
    let progressing = conditions.iter().find(|c| c.type_ == "Progressing" && c.reason == "NetworkBroken")?;
    part(&progressing.message, cluster, problem).map(str::to_owned)
}

fn part<'a>(message: &'a str, cluster: &str, problem: &str) -> Option<&'a str> {
    let (_, parts) = message.split_once("do not reach each other: ")?;
    parts.split("; ").find(|part| {
        let Some((pair, rest)) = part.split_once(": ") else { return false };
        let Some((from, to)) = pair.split_once(" to ") else { return false };
        from != cluster && to == cluster && rest.starts_with(&format!("{NAME}-")) && rest.contains(problem)
    })
}

impl StoryContext<'_> {
    async fn broken_network(&mut self) -> Result<()> {
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        let [_, cluster, other, ..] = all.as_slice() else { anyhow::bail!("the story needs three clusters") };
        for (id, problem) in [
            ("nowhere", ": NoSuchName".to_owned()),
            (other.as_str(), format!(": WrongServer (cluster {other} answers)")),
        ] {
            let mut more = spec::first(self.image, self.storage, &self.clusters, self.quorum_tls);
            *more.pointer_mut("/network").context("the spec has no network")? =
                json!({ "mode": "MCS", "preflight": "Required", "clusterIds": [{ "cluster": cluster, "id": id }] });
            self.scene.create(&ensemble(NAME, i32::try_from(self.voters)?, &more)).await?;
            self.keeps_servers_away(cluster, &problem).await?;
            let volumes = self.members.delete(&self.scene, NAME, PATIENCE).await?;
            ensure!(volumes.is_empty(), "a check left {volumes:?}");
        }
        let rules = "chain forward {\n type filter hook forward priority 0; policy accept;\n tcp dport 3888 drop\n }";
        self.members
            .on_nodes_of(Some(cluster), &format!("printf '%s' 'table inet {TABLE} {{\n {rules}\n }}\n' | nft -f -"))
            .await?;
        let created = self.create().await;
        let blocked = match created {
            Ok(generation) => self.keeps_servers_away(cluster, " port 3888: TimedOut").await.map(|()| generation),
            Err(error) => Err(error),
        };
        self.members.on_nodes_of(Some(cluster), &format!("nft delete table inet {TABLE}")).await?;
        let generation = blocked?;
        self.members.report("the port is open again");
        self.rolled_out(generation, |_| {}).await?;
        self.all_serve().await?;
        self.start_writer().await?;
        // A write is acknowledged: the ensemble has formed.
        let written = self.writer()?.lap().await?;
        self.acknowledged.extend(&written.acknowledged);
        self.end_incarnation().await?;
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        Ok(())
    }

    async fn narrow_path(&mut self) -> Result<()> {
        let client = connect(&self.addresses().await?.join(",")).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for number in 0..LARGE.0 {
            client.create(&format!("/large-{number}"), &vec![1; LARGE.1], &options).await?;
        }
        wait_for("a cluster reports the size of the data", PATIENCE, || async {
            let objects = self.scene.in_members(NAME).await?;
            let sizes = objects.into_values().filter_map(|object| object.status?.snapshot_bytes);
            ensure!(sizes.max() > Some(32 << 20), "no cluster reports that much");
            Ok(())
        })
        .await?;
        let narrow = self.without_servers().into_iter().next().context("every cluster has servers")?;
        self.members
            .on_nodes_of(Some(&narrow), &format!("printf '%s' 'table inet {TABLE} {{\n {NARROW}\n }}\n' | nft -f -"))
            .await?;
        let held = self.held_by(&narrow).await;
        self.members.on_nodes_of(Some(&narrow), &format!("nft delete table inet {TABLE}")).await?;
        let (others, generation) = held?;
        self.members.report("the path is wide again");
        self.moved(others, generation).await
    }

    /// Declares a move, and checks that it does not begin while the status names the narrow path of a cluster.
    async fn held_by(&mut self, narrow: &str) -> Result<(Vec<String>, i64)> {
        let moves = self.move_away().await?;
        let problem = |object: &MultiClusterZooKeeper| {
            let conditions = &object.status.as_ref()?.conditions;
            let message = &conditions.iter().find(|c| c.type_ == "Progressing" && c.reason == "NetworkBroken")?.message;
            let (_, parts) = message.split_once("do not reach each other: ")?;
            let is_named = |part: &&str| part.starts_with(&format!("{narrow} to ")) && part.contains(": TooSlow (");
            parts.split("; ").find(is_named).map(str::to_owned)
        };
        let object = self.members.until(&self.scene, NAME, PATIENCE, |object| problem(object).is_some()).await?;
        self.members.report(&problem(&object).unwrap_or_default());
        let begun = Instant::now();
        while begun.elapsed() < CLOSED {
            let servers = self.pods().servers().await?;
            let early = servers.iter().find(|server| moves.0.contains(&server.cluster));
            ensure!(early.is_none(), "{} exists", early.map(ToString::to_string).unwrap_or_default());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(moves)
    }

    /// Waits until the status names the problem, and checks for a while that nothing of a server exists.
    async fn keeps_servers_away(&self, cluster: &str, problem: &str) -> Result<()> {
        let is_broken = |object: &MultiClusterZooKeeper| broken(object, cluster, problem).is_some();
        let object = self.members.until(&self.scene, NAME, PATIENCE, is_broken).await?;
        self.members.report(&broken(&object, cluster, problem).unwrap_or_default());
        let begun = Instant::now();
        while begun.elapsed() < CLOSED {
            self.no_server_exists().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // The status still says so. A single report may have been late.
        self.members.until(&self.scene, NAME, PATIENCE, is_broken).await.map(drop)
    }

    /// Checks that no pod of a server, no StatefulSet, no volume and no record exists. A server that came and went
    /// leaves a volume.
    async fn no_server_exists(&self) -> Result<()> {
        let servers = self.pods().servers().await?;
        ensure!(servers.is_empty(), "servers exist on a broken network: {}", servers.len());
        let mut left = self.members.left(&self.scene.namespace).await?;
        left.retain(|object| object.starts_with("StatefulSet ") || object.starts_with("PersistentVolumeClaim "));
        ensure!(left.is_empty(), "a server started on a broken network: {}", left.join(", "));
        let object = self.scene.get(NAME).await?;
        ensure!(records(&object).is_empty(), "a record began on a broken network");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_name_and_problem_are_in_one_part() {
        let message = "No server starts, because clusters do not reach each other: m2 to m1: zoo-a-0.m1 port 3888: \
                       TimedOut; m1 to m2: zoo-a-0.m2 port 2888: Refused. Mend names and routes";
        assert!(part(message, "m2", " port 2888: Refused").is_some());
        assert!(part(message, "m2", " port 3888: TimedOut").is_none(), "of another pair");
        assert!(part("m1 to m2: zoo-a-0.m2 port 2888: Refused", "m2", "Refused").is_none());
    }
}
