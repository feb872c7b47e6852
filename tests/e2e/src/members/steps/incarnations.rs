//! Bootstraps under failure, and deletions after which the name is used again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mczk_api::MultiClusterZooKeeper;
use serde_json::json;

use super::{NAME, PATIENCE, Step, StoryContext, records};
use crate::{members::writer::children, patience::wait_for, scene::is_settled};

/// How long a cluster has no power.
const LATE: Duration = Duration::from_secs(120);

pub const LATE_CLUSTER: Step = Step {
    always: true,
    ..step!(
        "late-cluster",
        late_cluster,
        "one cluster has no node for the first two minutes: the status names it, the others serve, and it joins later"
    )
};
pub const NAMESPACE: Step = step!(
    "namespace",
    namespace_deleted,
    "the namespace of one cluster is deleted with everything in it: its server returns with another id"
);
pub const RECREATED: Step = step!(
    "recreated",
    recreated,
    "the ensemble is deleted and created again with the same name: the new incarnation has no data of the former"
);
pub const RECREATED_OFFLINE: Step = step!(
    "recreated-offline",
    recreated_offline,
    "the ensemble is recreated while a cluster has no power: the cluster returns, stops its former servers, and joins"
);
pub const REBOOTSTRAP: Step = step!(
    "rebootstrap",
    rebootstrap,
    "two of three clusters have no node before a quorum forms, and are abandoned: the third one bootstraps again"
);

/// The reason and the message of `Progressing`, if the message contains a text.
fn progressing(object: &MultiClusterZooKeeper, text: &str) -> Option<String> {
    let conditions = &object.status.as_ref()?.conditions;
    let progressing = conditions.iter().find(|c| c.type_ == "Progressing" && c.message.contains(text))?;
    Some(format!("{}: {}", progressing.reason, progressing.message))
}

fn beginning(text: Option<String>, length: usize) -> String {
    text.unwrap_or_default().chars().take(length).collect()
}

impl StoryContext<'_> {
    async fn late_cluster(&mut self) -> Result<()> {
        let begun = Instant::now();
        let generation = self.create().await?;
        // A record exists once every cluster has reported. The last cluster of its order is the late one.
        let last = |object: &MultiClusterZooKeeper| {
            let record = records(object).last()?;
            record.current_state.pending.last().cloned()
        };
        let object = self.members.until(&self.scene, NAME, PATIENCE, |object| last(object).is_some()).await?;
        let late = last(&object).context("no cluster is pending")?;
        let late = late.as_str();
        let nodes = self.stop_nodes(&[late.to_owned()]).await?;
        self.members.report(&format!("{} of {late} lost power before it has servers", nodes.join(", ")));
        let named = self
            .members
            .until(&self.scene, NAME, LATE, |object| {
                let names_cluster = progressing(object, late).is_some();
                let serving = object.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
                names_cluster && usize::try_from(serving).is_ok_and(|serving| serving + 1 == self.voters)
            })
            .await?;
        let message = beginning(progressing(&named, late), 200);
        self.members
            .report(&format!("the others serve after {:.1} s; status: {message}", begun.elapsed().as_secs_f64()));
        tokio::time::sleep(LATE.saturating_sub(begun.elapsed())).await;
        self.start_nodes(&nodes).await?;
        self.members.report(&format!("{late} has power after {:.0} s", begun.elapsed().as_secs_f64()));
        self.rolled_out(generation, |_| {}).await?;
        self.start_writer().await
    }

    /// Takes the power from all nodes of these clusters; returns the nodes.
    async fn stop_nodes(&self, clusters: &[String]) -> Result<Vec<String>> {
        let rig = &self.members.federation.rig;
        let is_of = |node: &String| clusters.iter().any(|cluster| node.starts_with(cluster.as_str()));
        let nodes: Vec<String> = rig.nodes().into_iter().filter(is_of).collect();
        ensure!(!nodes.is_empty(), "{clusters:?} have no node: {:?}", rig.nodes());
        for node in &nodes {
            rig.stop_node(node).await?;
        }
        Ok(nodes)
    }

    async fn start_nodes(&self, nodes: &[String]) -> Result<()> {
        for node in nodes {
            self.members.federation.rig.start_node(node).await?;
        }
        Ok(())
    }

    async fn namespace_deleted(&mut self) -> Result<()> {
        let cluster = self.members.federation.members.keys().next().context("no cluster exists")?.clone();
        // The last step compares also the log of the deleted volume.
        self.gather()?;
        let before = self.uids().await?;
        let namespace = self.scene.namespace.clone();
        // The volumes of former incarnations there go too. The new server of this one has a new volume.
        let claims = ["get", "persistentvolumeclaims", "-n", &namespace, "-o", "name"];
        let volumes = self.members.kubectl(&cluster, &claims).await?.lines().count();
        self.volumes -= volumes - before.keys().filter(|(of, _)| *of == cluster).count();
        self.members.kubectl(&cluster, &["delete", "namespace", &namespace, "--wait=false"]).await?;
        let begun = Instant::now();
        self.members.report(&format!("the namespace {namespace} of {cluster} is being deleted"));
        let others = |all: &BTreeMap<(String, String), String>| {
            all.iter().filter(|((of, _), _)| *of != cluster).map(|(_, uid)| uid.clone()).collect::<Vec<_>>()
        };
        wait_for("the cluster has a new server", Duration::from_secs(180), || async {
            let after = self.uids().await?;
            let is_new = after.iter().any(|(key, uid)| key.0 == cluster && before.get(key) != Some(uid));
            ensure!(is_new, "{cluster} has no new server");
            Ok(())
        })
        .await?;
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        self.records = records(&settled).len();
        self.all_serve().await?;
        ensure!(others(&self.uids().await?) == others(&before), "a server of another cluster was restarted");
        self.members.report(&format!("all servers serve after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Ends this incarnation. The next one holds no acknowledged write.
    pub(super) async fn end_incarnation(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.acknowledged.extend(writer.stop().await?.acknowledged);
        }
        self.nothing_is_lost().await?;
        self.gather()?;
        self.acknowledged.clear();
        self.volumes += self.most;
        self.most = self.voters;
        Ok(())
    }

    async fn recreated(&mut self) -> Result<()> {
        let former = self.incarnation().await?;
        self.end_incarnation().await?;
        let begun = Instant::now();
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        self.members.report(&format!("deleted after {:.1} s, and created again", begun.elapsed().as_secs_f64()));
        let generation = self.create().await?;
        self.rolled_out(generation, |_| {}).await?;
        self.has_other_incarnation(former.as_deref()).await?;
        self.start_writer().await?;
        for address in self.addresses().await? {
            let written = children(&address, "/written").await?;
            ensure!(written.len() < 100, "{address} holds {} writes of a former incarnation", written.len());
        }
        Ok(())
    }

    async fn recreated_offline(&mut self) -> Result<()> {
        let former = self.incarnation().await?;
        self.end_incarnation().await?;
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        let (offline, others) = all.split_last().context("no cluster exists")?;
        let rig = &self.members.federation.rig;
        rig.stop_cluster(offline).await?;
        self.members.report(&format!("{offline} lost power; the user abandons it and deletes the ensemble"));
        let begun = Instant::now();
        let namespace = self.scene.namespace.clone();
        self.abandon(std::slice::from_ref(offline)).await?;
        let delete = ["delete", "mczk", NAME, "-n", &namespace, "--timeout=180s"];
        self.members.kubectl("karmada", &delete).await?;
        self.members.report(&format!("deleted after {:.1} s, and created again", begun.elapsed().as_secs_f64()));
        self.clusters = others.to_vec();
        let generation = self.create().await?;
        // The API server of one member cluster does not answer, so only the status is checked.
        let is_done =
            |object: &MultiClusterZooKeeper| object.metadata.generation == Some(generation) && is_settled(object);
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_done).await?;
        self.records = records(&settled).len();
        self.has_other_incarnation(former.as_deref()).await?;
        self.start_writer().await?;
        rig.start_cluster(offline).await?;
        rig.ready(offline).await?;
        let back = Instant::now();
        self.members.report(&format!("{offline} has power again, and servers of the former incarnation"));
        wait_for("the former servers stop", PATIENCE, || async {
            let servers = self.pods().servers().await?;
            let left = servers.iter().filter(|server| server.cluster == *offline).count();
            ensure!(left == 0, "{offline} still has {left} servers");
            Ok(())
        })
        .await?;
        self.members.report(&format!("the former servers stopped after {:.1} s", back.elapsed().as_secs_f64()));
        // One of the voters moves there, and leaves its volume.
        self.place_everywhere(1).await?;
        let servers = self.pods().servers().await?;
        ensure!(servers.iter().any(|server| server.cluster == *offline), "{offline} has no server");
        self.all_serve().await
    }

    async fn abandon(&self, clusters: &[String]) -> Result<()> {
        let annotation = format!("mczk.io/abandon-clusters={}", clusters.join(","));
        let annotate = ["annotate", "mczk", NAME, "-n", &self.scene.namespace, &annotation];
        self.members.kubectl("karmada", &annotate).await.map(drop)
    }

    /// Removes the placement. So many voters move, and leave their volumes.
    async fn place_everywhere(&mut self, moves: usize) -> Result<()> {
        self.clusters.clear();
        self.volumes += moves;
        let generation = self.declare(json!({ "placement": null })).await?;
        self.rolled_out(generation, |_| {}).await
    }

    /// The incarnation in the status.
    pub(super) async fn incarnation(&self) -> Result<Option<String>> {
        Ok(self.scene.get(NAME).await?.status.and_then(|status| status.ensemble).map(|ensemble| ensemble.incarnation))
    }

    async fn has_other_incarnation(&self, former: Option<&str>) -> Result<()> {
        let incarnation = self.incarnation().await?;
        let is_other = incarnation.is_some() && incarnation.as_deref() != former;
        ensure!(is_other, "the incarnation is {incarnation:?}, and was {former:?}");
        Ok(())
    }

    async fn rebootstrap(&mut self) -> Result<()> {
        self.end_incarnation().await?;
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        self.create().await?;
        // A record exists once every cluster has reported.
        let order = |object: &MultiClusterZooKeeper| records(object).last().map(|record| record.order.clone());
        let object = self.members.until(&self.scene, NAME, PATIENCE, |object| order(object).is_some()).await?;
        let order = order(&object).context("no record exists")?;
        let (first, others) = order.split_first().context("no cluster exists")?;
        let nodes = self.stop_nodes(others).await?;
        self.members.report(&format!("{} lost power before a quorum formed", nodes.join(", ")));
        // The second cluster cannot start servers, whether it receives its spec before Karmada sees that its nodes are gone or not.
        let names_second =
            |object: &MultiClusterZooKeeper| others.iter().any(|name| progressing(object, name).is_some());
        self.members.until(&self.scene, NAME, PATIENCE, names_second).await?;
        let former = self.incarnation().await?.context("the status names no incarnation")?;
        let status = self.scene.get(NAME).await?.status;
        let has_formed = status.and_then(|status| status.ensemble).map(|ensemble| ensemble.formed);
        ensure!(has_formed == Some(false), "a quorum formed before the nodes lost power");

        self.rebootstrap_in(first, others, &former).await?;
        self.start_nodes(&nodes).await?;
        self.members.report("the nodes have power again");
        self.former_is_gone(&order, &former).await?;
        // Two of the voters move.
        self.place_everywhere(2).await?;
        let annotate = ["annotate", "mczk", NAME, "-n", &self.scene.namespace, "mczk.io/abandon-clusters-"];
        self.members.kubectl("karmada", &annotate).await?;
        self.all_serve().await
    }

    /// Places the ensemble in one cluster and abandons the others, upon which the operator bootstraps it again.
    async fn rebootstrap_in(&mut self, first: &str, others: &[String], former: &str) -> Result<()> {
        let begun = Instant::now();
        self.clusters = vec![first.to_owned()];
        let placement = json!({ "clusterAffinity": { "clusterNames": self.clusters } });
        let generation = self.declare(json!({ "placement": placement })).await?;
        // The message names the clusters that have not reported yet, and no other one.
        let waits = |object: &MultiClusterZooKeeper| {
            let message = others.iter().find_map(|cluster| progressing(object, cluster))?;
            (message.starts_with("BootstrapSuspended") && !message.contains(first)).then_some(message)
        };
        let suspended = self.members.until(&self.scene, NAME, PATIENCE, |object| waits(object).is_some()).await?;
        self.members.report(&format!("the placement is {first} alone; {}", beginning(waits(&suspended), 300)));
        self.abandon(others).await?;
        let is_done = |object: &MultiClusterZooKeeper| {
            let ensemble = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
            ensemble.is_some_and(|ensemble| ensemble.incarnation != former)
                && object.metadata.generation == Some(generation)
                && is_settled(object)
        };
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_done).await?;
        self.records = records(&settled).len();
        self.members.report(&format!(
            "the others are abandoned, and another incarnation serves in {first} after {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        self.start_writer().await
    }

    /// Waits until nothing but volumes is left of a former incarnation, and counts the volumes.
    async fn former_is_gone(&mut self, clusters: &[String], former: &str) -> Result<()> {
        let begun = Instant::now();
        let label = format!("mczk.io/incarnation={former}");
        let namespace = self.scene.namespace.clone();
        let list = async |cluster: &String, kinds: &str| {
            let arguments = ["get", kinds, "-n", &namespace, "-l", &label, "-o", "name"];
            self.members.kubectl(cluster, &arguments).await
        };
        wait_for("nothing is left of the former incarnation", PATIENCE, || async {
            for cluster in clusters {
                let left = list(cluster, "statefulsets,pods").await?;
                ensure!(left.trim().is_empty(), "{cluster} has {left}");
            }
            Ok(())
        })
        .await?;
        let mut volumes = 0;
        for cluster in clusters {
            volumes += list(cluster, "persistentvolumeclaims").await?.lines().count();
        }
        self.volumes += volumes;
        let took = begun.elapsed().as_secs_f64();
        self.members.report(&format!("only volumes of the former incarnation are left after {took:.1} s"));
        Ok(())
    }
}
