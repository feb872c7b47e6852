//! Beginnings and ends: a cluster that comes late, a namespace that is deleted, a name that is used again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mczk::api::MultiClusterZooKeeper;

use super::{NAME, PATIENCE, Step, Story};
use crate::scene::is_settled;

/// How long a cluster is late.
const LATE: Duration = Duration::from_secs(120);

pub const FORMS_LATE: Step = Step {
    name: "one-late",
    shows: "one cluster has no node when its turn comes, for two minutes: it is named, the others serve, and it joins",
    always: true,
    run: |story| Box::pin(story.forms_late()),
};
pub const NAMESPACE: Step = Step {
    name: "namespace",
    shows: "the namespace of one cluster is deleted with everything in it: its server comes back under another id",
    always: false,
    run: |story| Box::pin(story.namespace_deleted()),
};
pub const AGAIN: Step = Step {
    name: "again",
    shows: "it is deleted and declared again at once under the same name: another life, which knows nothing of the former",
    always: false,
    run: |story| Box::pin(story.again()),
};

pub const AGAIN_AWAY: Step = Step {
    name: "again-while-away",
    shows: "deleted and declared again while a cluster has no power: it returns, its former servers end, and it takes part",
    always: false,
    run: |story| Box::pin(story.again_while_away()),
};

pub const BEGUN_ANEW: Step = Step {
    name: "begun-anew",
    shows: "two of three clusters have no node before a quorum formed, and are given up: it begins anew in the third one",
    always: false,
    run: |story| Box::pin(story.begun_anew()),
};

fn says(object: &MultiClusterZooKeeper, word: &str) -> Option<String> {
    let conditions = &object.status.as_ref()?.conditions;
    let progressing = conditions.iter().find(|c| c.type_ == "Progressing" && c.message.contains(word))?;
    Some(format!("{}: {}", progressing.reason, progressing.message))
}

impl Story<'_> {
    async fn forms_late(&mut self) -> Result<()> {
        let rig = &self.members.federation.rig;
        let begun = Instant::now();
        let generation = self.declared().await?;
        // Every cluster was heard: it is the last of the order that fails.
        let last = |object: &MultiClusterZooKeeper| {
            let record = super::records(object).last()?;
            record.current_state.pending.last().cloned()
        };
        let object = self.members.until(&self.scene, NAME, PATIENCE, |object| last(object).is_some()).await?;
        let late = last(&object).context("no cluster is pending")?;
        let late = late.as_str();
        let nodes: Vec<String> = rig.nodes().into_iter().filter(|node| node.starts_with(late)).collect();
        ensure!(!nodes.is_empty(), "{late} has no node: {:?}", rig.nodes());
        for node in &nodes {
            rig.stop_node(node).await?;
        }
        self.members.say(&format!("{} of {late} lose their power before its servers are made", nodes.join(", ")));
        let named = self
            .members
            .until(&self.scene, NAME, LATE, |object| {
                let cluster = says(object, late).is_some();
                let serving = object.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
                cluster && usize::try_from(serving).is_ok_and(|serving| serving + 1 == self.voters)
            })
            .await?;
        let said: String = says(&named, late).unwrap_or_default().chars().take(200).collect();
        self.members.say(&format!("the others serve after {:.1} s; named: {said}", begun.elapsed().as_secs_f64()));
        tokio::time::sleep(LATE.saturating_sub(begun.elapsed())).await;
        for node in &nodes {
            rig.start_node(node).await?;
        }
        self.members.say(&format!("{late} has power after {:.0} s", begun.elapsed().as_secs_f64()));
        self.rolled_out(generation, |_| {}).await?;
        self.writes().await
    }

    async fn namespace_deleted(&mut self) -> Result<()> {
        let cluster = self.members.federation.members.keys().next().context("there is no cluster")?.clone();
        // What is in its log is to be compared in the end, too.
        self.gather()?;
        let before = self.uids().await?;
        let namespace = self.scene.namespace.clone();
        self.members.kubectl(&cluster, &["delete", "namespace", &namespace, "--wait=false"]).await?;
        let begun = Instant::now();
        self.members.say(&format!("the namespace {namespace} of {cluster} is being deleted"));
        let others = |all: &std::collections::BTreeMap<(String, String), String>| {
            all.iter().filter(|((of, _), _)| *of != cluster).map(|(_, uid)| uid.clone()).collect::<Vec<_>>()
        };
        crate::patience::wait_for("the namespace is gone, or another one", Duration::from_secs(180), || async {
            let after = self.uids().await?;
            let anew = after.iter().any(|(key, uid)| key.0 == cluster && before.get(key) != Some(uid));
            ensure!(anew, "no server was made anew in {cluster}");
            Ok(())
        })
        .await?;
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        self.records = super::records(&settled).len();
        self.all_serve().await?;
        ensure!(others(&self.uids().await?) == others(&before), "a server of another cluster was restarted");
        self.members.say(&format!("all serve again after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Ends this life; the next one has nothing written.
    pub(super) async fn ends(&mut self) -> Result<()> {
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

    async fn again(&mut self) -> Result<()> {
        let former = self.life().await?;
        self.ends().await?;
        let begun = Instant::now();
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        self.members.say(&format!("it is deleted after {:.1} s, and declared again", begun.elapsed().as_secs_f64()));
        let generation = self.declared().await?;
        self.rolled_out(generation, |_| {}).await?;
        let life = self.life().await?;
        ensure!(life.is_some() && life != former, "the life is {life:?}, and was {former:?}");
        self.writes().await?;
        for address in self.addresses().await? {
            let written = crate::members::writer::children(&address, "/written").await?;
            ensure!(written.len() < 100, "{address} holds {} writes of a former life", written.len());
        }
        Ok(())
    }

    async fn again_while_away(&mut self) -> Result<()> {
        let former = self.life().await?;
        self.ends().await?;
        let all: Vec<String> = self.members.federation.members.keys().cloned().collect();
        let (away, there) = all.split_last().context("there is no cluster")?;
        let rig = &self.members.federation.rig;
        rig.stop_cluster(away).await?;
        self.members.say(&format!("{away} has no power any more; it is given up, and the ensemble deleted"));
        let begun = Instant::now();
        let namespace = self.scene.namespace.clone();
        let abandoned = format!("mczk.io/abandon-clusters={away}");
        let annotate = ["annotate", "mczk", NAME, "-n", &namespace, &abandoned];
        self.members.kubectl("karmada", &annotate).await?;
        let delete = ["delete", "mczk", NAME, "-n", &namespace, "--timeout=180s"];
        self.members.kubectl("karmada", &delete).await?;
        self.members.say(&format!("it is gone after {:.1} s, and declared again", begun.elapsed().as_secs_f64()));
        self.clusters = there.to_vec();
        let generation = self.declared().await?;
        // Not all members can be asked what they hold.
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                object.metadata.generation == Some(generation) && is_settled(object)
            })
            .await?;
        self.records = super::records(&settled).len();
        let life = self.life().await?;
        ensure!(life.is_some() && life != former, "the life is {life:?}, and was {former:?}");
        self.writes().await?;
        rig.start_cluster(away).await?;
        rig.ready(away).await?;
        let back = Instant::now();
        self.members.say(&format!("{away} has power again, and servers of the former life"));
        crate::patience::wait_for("the former servers end", PATIENCE, || async {
            let servers = self.pods().servers().await?;
            let left = servers.iter().filter(|server| server.cluster == *away).count();
            ensure!(left == 0, "{left} servers are still in {away}");
            Ok(())
        })
        .await?;
        self.members.say(&format!("they ended after {:.1} s", back.elapsed().as_secs_f64()));
        self.clusters.clear();
        // One of the voters moves there, and leaves its volume.
        self.volumes += 1;
        let generation = self.declare(serde_json::json!({ "placement": null })).await?;
        self.rolled_out(generation, |_| {}).await?;
        let servers = self.pods().servers().await?;
        ensure!(servers.iter().any(|server| server.cluster == *away), "{away} takes no part");
        self.all_serve().await
    }

    /// The life of the ensemble that the status tells.
    async fn life(&self) -> Result<Option<String>> {
        Ok(self.scene.get(NAME).await?.status.and_then(|status| status.ensemble).map(|ensemble| ensemble.incarnation))
    }

    async fn begun_anew(&mut self) -> Result<()> {
        self.ends().await?;
        self.members.delete(&self.scene, NAME, PATIENCE).await?;
        let rig = &self.members.federation.rig;
        self.declared().await?;
        // Every cluster was heard.
        let order = |object: &MultiClusterZooKeeper| super::records(object).last().map(|record| record.order.clone());
        let object = self.members.until(&self.scene, NAME, PATIENCE, |object| order(object).is_some()).await?;
        let order = order(&object).context("there is no record")?;
        let (first, rest) = order.split_first().context("there is no cluster")?;
        let nodes: Vec<String> =
            rig.nodes().into_iter().filter(|node| rest.iter().any(|cluster| node.starts_with(cluster))).collect();
        for node in &nodes {
            rig.stop_node(node).await?;
        }
        self.members.say(&format!("{} lose their power before a quorum formed", nodes.join(", ")));
        // The second one is told to begin, and cannot.
        let second = |object: &MultiClusterZooKeeper| {
            super::records(object).last().is_some_and(|record| record.current_state.deploying.first() == rest.first())
        };
        self.members.until(&self.scene, NAME, PATIENCE, second).await?;
        let former = self.life().await?.context("the ensemble has no life")?;
        let quorum = self.scene.get(NAME).await?.status.and_then(|status| status.ensemble).map(|told| told.formed);
        ensure!(quorum == Some(false), "a quorum formed before the nodes were stopped");

        let namespace = self.scene.namespace.clone();
        let begun = Instant::now();
        self.clusters = vec![first.clone()];
        let generation = self
            .declare(serde_json::json!({ "placement": { "clusterAffinity": { "clusterNames": self.clusters } } }))
            .await?;
        // It names those that have still to report, and only those.
        let waits = |object: &MultiClusterZooKeeper| {
            says(object, "waits until").filter(|said| said.starts_with("BootstrapSuspended") && !said.contains(first))
        };
        let parked = self.members.until(&self.scene, NAME, PATIENCE, |object| waits(object).is_some()).await?;
        let said: String = waits(&parked).unwrap_or_default().chars().take(300).collect();
        self.members.say(&format!("{first} alone is wanted; {said}"));
        let abandoned = format!("mczk.io/abandon-clusters={}", rest.join(","));
        self.members.kubectl("karmada", &["annotate", "mczk", NAME, "-n", &namespace, &abandoned]).await?;
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                let told = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
                told.is_some_and(|told| told.incarnation != former)
                    && object.metadata.generation == Some(generation)
                    && is_settled(object)
            })
            .await?;
        self.records = super::records(&settled).len();
        self.members.say(&format!(
            "they are given up, and another life serves in {first} after {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        self.writes().await?;

        for node in &nodes {
            rig.start_node(node).await?;
        }
        let back = Instant::now();
        self.members.say("the nodes have power again");
        let label = format!("mczk.io/incarnation={former}");
        crate::patience::wait_for("nothing is left of the former life", PATIENCE, || async {
            for cluster in &order {
                let arguments = ["get", "statefulsets,pods", "-n", &namespace, "-l", &label, "-o", "name"];
                let left = self.members.kubectl(cluster, &arguments).await?;
                ensure!(left.trim().is_empty(), "{cluster} has {left}");
            }
            Ok(())
        })
        .await?;
        for cluster in &order {
            let arguments = ["get", "persistentvolumeclaims", "-n", &namespace, "-l", &label, "-o", "name"];
            self.volumes += self.members.kubectl(cluster, &arguments).await?.lines().count();
        }
        self.members.say(&format!("nothing of the former life is left after {:.1} s", back.elapsed().as_secs_f64()));
        self.clusters.clear();
        // Two of the voters move, and leave their volumes.
        self.volumes += 2;
        let generation = self.declare(serde_json::json!({ "placement": null })).await?;
        let take_back = ["annotate", "mczk", NAME, "-n", &namespace, "mczk.io/abandon-clusters-"];
        self.members.kubectl("karmada", &take_back).await?;
        self.rolled_out(generation, |_| {}).await?;
        self.all_serve().await
    }
}
