//! Killed servers, a lost volume, and clusters without power, without a network, or with a slow one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{NAME, PATIENCE, Step, StoryContext};
use crate::{
    members::{Server, writer::acknowledges_nothing},
    patience::wait_for,
    scene::is_settled,
};

/// How long every cluster is cut off.
const CUT: Duration = Duration::from_secs(20);
/// Milliseconds that a packet takes between two clusters, each way.
const DELAY: f64 = 200.0;

pub const LEADER_KILLED: Step = Step {
    name: "leader-killed",
    shows: "the leader's process ends by kill -9",
    always: false,
    run: |story| Box::pin(story.leader_signalled("KILL")),
};
pub const LEADER_TERMINATED: Step = Step {
    name: "leader-terminated",
    shows: "the leader's process ends by kill -TERM",
    always: false,
    run: |story| Box::pin(story.leader_signalled("TERM")),
};
pub const EACH_KILLED: Step = step!("each-killed", each_killed, "each server's process ends by kill -9, one by one");
pub const VOLUME_LOST: Step =
    step!("volume-lost", volume_lost, "a server's volume is lost: it returns with another id");
pub const POWER_LOST: Step =
    step!("power-lost", power_lost, "the leader's whole cluster loses power and returns; no record begins");
pub const CUT_OFF: Step = step!(
    "cut-off",
    cut,
    "a cluster is cut off from all others: it acknowledges no write, the others continue, and it returns"
);

pub const ALL_CUT_OFF: Step = step!(
    "all-cut-off",
    cut_all,
    "every cluster is cut off from every other: no server acknowledges a write, no agent stops one, and all return"
);
pub const LATENCY: Step = step!(
    "latency",
    delayed,
    "a packet takes 200 ms between any two clusters: a changed setting is rolled out, and no server counts as dead"
);

impl StoryContext<'_> {
    pub(super) async fn kill(&self, server: &Server) -> Result<()> {
        self.signal(server, "KILL").await
    }

    async fn signal(&self, server: &Server, signal: &str) -> Result<()> {
        self.members.signal(&self.scene.namespace, server, signal).await
    }

    async fn leader_signalled(&mut self, signal: &str) -> Result<()> {
        let (leader, id) = self.leader().await?;
        self.signal(&leader, signal).await?;
        let killed = Instant::now();
        self.members.report(&format!("kill -{signal} of the leader, server {id} in {}", leader.cluster));
        self.all_serve().await?;
        self.members.report(&format!("all servers serve after {:.1} s", killed.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn each_killed(&mut self) -> Result<()> {
        for server in self.pods().servers().await? {
            self.kill(&server).await?;
            let killed = Instant::now();
            self.all_serve().await?;
            let (took, of) = (killed.elapsed().as_secs_f64(), &server.cluster);
            self.members.report(&format!("kill -9 of {} in {of}: all servers serve after {took:.1} s", server.name));
        }
        self.nothing_rolled().await
    }

    async fn volume_lost(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let victim = servers.into_iter().find(|server| *server != leader).context("no server but the leader exists")?;
        let (cluster, name) = (victim.cluster.as_str(), victim.name.as_str());
        let status = self.scene.member(cluster, NAME).await?.status.unwrap_or_default();
        let reported = status.servers.iter().find(|server| server.pod.as_deref() == Some(name));
        let id = reported.context("the status names no id of the server")?.id;
        // The last step compares also the log of the lost volume.
        self.gather()?;
        self.members.delete_volume(&self.scene.namespace, &victim).await?;
        let lost = Instant::now();
        self.members.report(&format!("volume and pod of server {id} in {cluster} are deleted"));
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
        self.members.report(&format!("after {took:.1} s the voters are {:?}", voters.unwrap_or_default()));
        Ok(())
    }

    async fn power_lost(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let leader = leader.cluster.as_str();
        let rig = &self.members.federation.rig;
        rig.stop_cluster(leader).await?;
        self.members.report(&format!("{leader}, the leader's cluster, lost power"));
        let lost = Instant::now();
        let pods = self.pods();
        wait_for("the others serve without it", Duration::from_secs(120), || async {
            let servers = pods.servers().await?;
            let ready = servers.iter().filter(|server| server.ready).count();
            let all = servers.len();
            // The kubelet takes some seconds to report that servers do not serve during the election.
            ensure!(ready == all && lost.elapsed() > Duration::from_secs(30), "{ready} of {all} are ready");
            Ok(())
        })
        .await?;
        rig.start_cluster(leader).await?;
        rig.ready(leader).await?;
        self.members.report(&format!("{leader} has power again"));
        let back = Instant::now();
        self.all_serve().await?;
        self.members.report(&format!("its servers serve after {:.1} s", back.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn cut(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let servers = self.pods().servers().await?;
        let mut followers = servers.into_iter().filter(|server| server.cluster != leader.cluster);
        let follower = followers.next().context("no follower exists")?;
        let address = format!("{}:2181", follower.address.context("the follower has no address")?);
        let rig = &self.members.federation.rig;
        rig.cut(&follower.cluster, None).await?;
        self.members
            .report(&format!("{} is cut off from all other clusters, but not from the client", follower.cluster));
        let tried = acknowledges_nothing(&address, Duration::from_secs(35)).await?;
        rig.heal(Some(&follower.cluster), None).await?;
        self.members.report(&format!("it acknowledged none of {tried} writes; the network is restored"));
        let restored = Instant::now();
        self.all_serve().await?;
        self.members.report(&format!("all servers serve after {:.1} s", restored.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    async fn cut_all(&mut self) -> Result<()> {
        let before = self.uids().await?;
        let rig = &self.members.federation.rig;
        let clusters: Vec<&String> = self.members.federation.members.keys().collect();
        for cluster in &clusters {
            rig.cut(cluster, None).await?;
        }
        self.members.report("every cluster is cut off from every other, but not from the client");
        let tried = self.nothing_acknowledged(&self.addresses().await?, CUT).await?;
        for cluster in &clusters {
            rig.heal(Some(cluster), None).await?;
        }
        self.members.report(&format!("no server acknowledged any of {tried} writes; the network is restored"));
        let restored = Instant::now();
        self.all_serve().await?;
        self.members.report(&format!("all servers serve after {:.1} s", restored.elapsed().as_secs_f64()));
        ensure!(self.uids().await? == before, "a server was stopped while there was no quorum");
        self.nothing_rolled().await
    }

    /// Checks that none of these servers acknowledges a write for some time; returns the number of attempts.
    pub(super) async fn nothing_acknowledged(&self, addresses: &[String], time: Duration) -> Result<u32> {
        // ZooKeeper may still commit writes that were under way.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let tried = addresses.iter().map(|address| acknowledges_nothing(address, time));
        Ok(futures::future::try_join_all(tried).await?.into_iter().sum())
    }

    async fn delayed(&mut self) -> Result<()> {
        self.between_all(DELAY).await?;
        self.members.report(&format!("{DELAY} ms between any two clusters, each way"));
        let setting = self.another_setting();
        let rolled = self.roll(setting).await;
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
