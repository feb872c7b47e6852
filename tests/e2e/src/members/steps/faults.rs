//! What nobody wants: servers killed, a volume lost, clusters without power, without a network, or far away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{NAME, PATIENCE, Step, Story};
use crate::{
    members::{Server, writer::acknowledges_nothing},
    patience::wait_for,
    scene::is_settled,
};

/// How long every cluster is alone.
const ALONE: Duration = Duration::from_secs(20);
/// How long a packet takes between two clusters, each way.
const FAR: f64 = 200.0;

pub const LEADER_KILLED: Step = Step {
    name: "leader-killed",
    shows: "the leader's process is killed with kill -9",
    always: false,
    run: |story| Box::pin(story.leader_signalled("KILL")),
};
pub const LEADER_ENDED: Step = Step {
    name: "leader-ended",
    shows: "the leader's process is asked to end",
    always: false,
    run: |story| Box::pin(story.leader_signalled("TERM")),
};
pub const EACH_KILLED: Step = Step {
    name: "each-killed",
    shows: "each server's process is killed with kill -9, one after the other",
    always: false,
    run: |story| Box::pin(story.each_killed()),
};
pub const VOLUME_LOST: Step = Step {
    name: "volume-lost",
    shows: "a server's volume is lost: it comes back under another id",
    always: false,
    run: |story| Box::pin(story.volume_lost()),
};
pub const SILENCE: Step = Step {
    name: "power-lost",
    shows: "the leader's whole cluster loses its power and comes back; nothing rolls",
    always: false,
    run: |story| Box::pin(story.silence()),
};
pub const CUT: Step = Step {
    name: "cut-off",
    shows: "a whole cluster is cut off from all others: it acknowledges no write, the others go on, and it comes back",
    always: false,
    run: |story| Box::pin(story.cut()),
};

pub const CUT_ALL: Step = Step {
    name: "all-cut-off",
    shows: "every cluster is cut off from every other: nobody acknowledges a write, no server is stopped, and all come back",
    always: false,
    run: |story| Box::pin(story.cut_all()),
};
pub const DELAYED: Step = Step {
    name: "far-away",
    shows: "a packet takes 200 ms from each cluster to each other: a changed setting rolls, and nobody is taken for dead",
    always: false,
    run: |story| Box::pin(story.delayed()),
};

impl Story<'_> {
    pub(super) async fn kill(&self, server: &Server) -> Result<()> {
        self.signal(server, "KILL").await
    }

    async fn signal(&self, server: &Server, signal: &str) -> Result<()> {
        self.shell(server, &format!("kill -{signal} $(pidof java)")).await.map(drop)
    }

    async fn leader_signalled(&mut self, signal: &str) -> Result<()> {
        let (leader, id) = self.leader().await?;
        self.signal(&leader, signal).await?;
        let killed = Instant::now();
        self.members.say(&format!("kill -{signal} of the leader, server {id} in {}", leader.cluster));
        self.all_serve().await?;
        self.members.say(&format!("all serve again after {:.1} s", killed.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn each_killed(&mut self) -> Result<()> {
        for server in self.pods().servers().await? {
            self.kill(&server).await?;
            let killed = Instant::now();
            self.all_serve().await?;
            let (took, of) = (killed.elapsed().as_secs_f64(), &server.cluster);
            self.members.say(&format!("kill -9 of {} in {of}: all serve again after {took:.1} s", server.name));
        }
        self.nothing_rolled().await
    }

    async fn volume_lost(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let victim = servers.into_iter().find(|server| *server != leader).context("there is a leader alone")?;
        let (cluster, name) = (victim.cluster.as_str(), victim.name.as_str());
        let status = self.scene.member(cluster, NAME).await?.status.unwrap_or_default();
        let known = status.servers.iter().find(|server| server.pod.as_deref() == Some(name));
        let id = known.context("it has no id")?.id;
        // What is in its log is to be compared in the end, too.
        self.gather()?;
        let namespace = self.scene.namespace.as_str();
        let of = "jsonpath={.spec.volumes[*].persistentVolumeClaim.claimName}";
        let claim = self.members.kubectl(cluster, &["get", "pod", "-n", namespace, name, "-o", of]).await?;
        for arguments in [&["delete", "pvc", claim.trim()], &["delete", "pod", name]] {
            let arguments = [&arguments[..], &["-n", namespace, "--wait=false"]].concat();
            self.members.kubectl(cluster, &arguments).await?;
        }
        let lost = Instant::now();
        self.members.say(&format!("volume and pod of server {id} in {cluster} are deleted"));
        let voters = self.voters;
        let settled = self
            .members
            .until(&self.scene, NAME, PATIENCE, |object| {
                let status = object.status.clone().unwrap_or_default();
                let voters_are = status.ensemble.map(|ensemble| ensemble.voters).unwrap_or_default();
                is_settled(object) && voters_are.len() == voters && !voters_are.contains(&id)
            })
            .await?;
        self.records = super::records(&settled).len();
        self.all_serve().await?;
        let voters = settled.status.and_then(|status| status.ensemble).map(|ensemble| ensemble.voters);
        let took = lost.elapsed().as_secs_f64();
        self.members.say(&format!("after {took:.1} s the voters are {:?}", voters.unwrap_or_default()));
        Ok(())
    }

    async fn silence(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let leader = leader.cluster.as_str();
        let rig = &self.members.federation.rig;
        rig.stop_cluster(leader).await?;
        self.members.say(&format!("{leader}, where the leader is, has no power any more"));
        let silent = Instant::now();
        let there = self.pods();
        wait_for("the others serve without it", Duration::from_secs(120), || async {
            let servers = there.servers().await?;
            let ready = servers.iter().filter(|server| server.ready).count();
            let all = servers.len();
            // The kubelet takes some seconds to notice that servers do not serve while they elect.
            ensure!(ready == all && silent.elapsed() > Duration::from_secs(30), "{ready} of {all} are ready");
            Ok(())
        })
        .await?;
        rig.start_cluster(leader).await?;
        rig.ready(leader).await?;
        self.members.say(&format!("{leader} has power again"));
        let back = Instant::now();
        self.all_serve().await?;
        self.members.say(&format!("its servers serve again after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn cut(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let mut followers = servers.into_iter().filter(|server| server.cluster != leader.cluster);
        let follower = followers.next().context("there is a leader alone")?;
        let address = format!("{}:2181", follower.address.context("it has no address")?);
        let rig = &self.members.federation.rig;
        rig.cut(&follower.cluster, None).await?;
        self.members.say(&format!("{} is cut off; the client still reaches it", follower.cluster));
        let tried = acknowledges_nothing(&address, Duration::from_secs(35)).await?;
        rig.heal(Some(&follower.cluster), None).await?;
        self.members.say(&format!("{tried} writes were tried there, and none was acknowledged; the cut is healed"));
        let healed = Instant::now();
        self.all_serve().await?;
        self.members.say(&format!("all serve again after {:.1} s", healed.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn cut_all(&mut self) -> Result<()> {
        let before = self.uids().await?;
        let rig = &self.members.federation.rig;
        let clusters: Vec<&String> = self.members.federation.members.keys().collect();
        for cluster in &clusters {
            rig.cut(cluster, None).await?;
        }
        self.members.say("every cluster is cut off from every other; the client still reaches each");
        // What was under way when the links went may have been committed.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let addresses = self.addresses().await?;
        let tried = addresses.iter().map(|address| acknowledges_nothing(address, ALONE));
        let tried: u32 = futures::future::try_join_all(tried).await?.into_iter().sum();
        for cluster in &clusters {
            rig.heal(Some(cluster), None).await?;
        }
        self.members.say(&format!("{tried} writes were tried, and none was acknowledged; all cuts are healed"));
        let healed = Instant::now();
        self.all_serve().await?;
        self.members.say(&format!("all serve again after {:.1} s", healed.elapsed().as_secs_f64()));
        ensure!(self.uids().await? == before, "a server was stopped while there was no quorum");
        self.nothing_rolled().await
    }

    async fn delayed(&mut self) -> Result<()> {
        self.between_all(FAR).await?;
        self.members.say(&format!("{FAR} ms between any two clusters, each way"));
        let setting = self.another_setting();
        let rolled = self.rolls(setting).await;
        self.between_all(0.0).await?;
        rolled?;
        self.all_serve().await
    }

    async fn between_all(&self, milliseconds: f64) -> Result<()> {
        let clusters: Vec<&String> = self.members.federation.members.keys().collect();
        for (nth, a) in clusters.iter().enumerate() {
            for b in clusters.iter().skip(nth + 1) {
                self.members.federation.rig.delay(a, b, milliseconds).await?;
            }
        }
        Ok(())
    }
}
