//! What nobody wants: processes killed, a volume lost, clusters without power or without a network.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use super::{NAME, PATIENCE, Step, Story};
use crate::{
    members::{Server, TWO_NODES, writer::acknowledges_nothing},
    patience::wait_for,
    scene::is_settled,
};

/// Moments are chosen by chance, the same ones each time.
const SEED: u64 = 5;
/// So many moments of each change.
const MOMENTS: usize = 3;
/// Between two moments at most.
const GAP: Duration = Duration::from_secs(8);

pub const LEADER_KILLED: Step = Step {
    name: "leader-killed",
    shows: "the leader's process is killed with kill -9",
    always: false,
    run: |story| Box::pin(story.leader_killed()),
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
pub const DRAIN: Step = Step {
    name: "drain",
    shows: "a node is cordoned: the agent moves its servers, one after the other, and kubectl drain finds none of them",
    always: false,
    run: |story| Box::pin(story.drain()),
};
pub const AGENTS_KILLED: Step = Step {
    name: "agents-killed",
    shows: "all agents are killed again and again while a change rolls",
    always: false,
    run: |story| Box::pin(story.agents_killed()),
};
pub const OPERATOR_KILLED: Step = Step {
    name: "operator-killed",
    shows: "the operator is killed again and again while a change rolls",
    always: false,
    run: |story| Box::pin(story.operator_killed()),
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

impl Story<'_> {
    async fn kill(&self, server: &Server) -> Result<()> {
        self.shell(server, "kill -9 $(pidof java)").await.map(drop)
    }

    async fn leader_killed(&mut self) -> Result<()> {
        let (leader, id) = self.leader().await?;
        self.kill(&leader).await?;
        let killed = Instant::now();
        self.members.say(&format!("kill -9 of the leader, server {id} in {}", leader.cluster));
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

    async fn drain(&mut self) -> Result<()> {
        let servers = self.pods().servers().await?;
        let there = servers.iter().find(|server| server.cluster == TWO_NODES).and_then(|server| server.node.clone());
        let node = there.with_context(|| format!("no server runs in {TWO_NODES}"))?;
        let begun = Instant::now();
        self.members.kubectl(TWO_NODES, &["cordon", &node]).await?;
        self.members.say(&format!("kubectl cordon {node}, in {TWO_NODES}"));
        let moved = self.moved_from(&node).await;
        let drain = ["drain", node.as_str(), "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"];
        let drained = match moved {
            Ok(()) => {
                let took = begun.elapsed().as_secs_f64();
                self.members.say(&format!("after {took:.1} s all serve, none of them on {node}; kubectl drain {node}"));
                self.members.kubectl(TWO_NODES, &drain).await
            }
            Err(error) => Err(error),
        };
        self.members.kubectl(TWO_NODES, &["uncordon", &node]).await?;
        drained?;
        self.members.say(&format!("{node} is drained after {:.1} s", begun.elapsed().as_secs_f64()));
        self.nothing_rolled().await
    }

    /// Not by kubectl drain itself: an eviction that the PodDisruptionBudget refuses is tried again by the pod's name, and
    /// the pod that the agent made elsewhere has the same one.
    async fn moved_from(&self, node: &str) -> Result<()> {
        wait_for("the servers are on another node", Duration::from_secs(180), || async {
            let servers = self.pods().servers().await?;
            let left = servers.iter().filter(|server| server.node.as_deref() == Some(node)).count();
            ensure!(left == 0 && servers.len() == self.voters, "{left} servers are still on {node}");
            Ok(())
        })
        .await?;
        self.all_serve().await
    }

    /// Moments after which something is killed, the same ones in every run.
    fn moments(&self, nth: u64) -> Vec<Duration> {
        let mut chance = StdRng::seed_from_u64(SEED + nth);
        let moments: Vec<Duration> =
            (0..MOMENTS).map(|_| Duration::from_millis(chance.random_range(500..8000)).min(GAP)).collect();
        let told: Vec<String> = moments.iter().map(|moment| format!("{:.1} s", moment.as_secs_f64())).collect();
        self.members.say(&format!("seed {}: killed after {}", SEED + nth, told.join(", after another ")));
        moments
    }

    async fn agents_killed(&mut self) -> Result<()> {
        let moments = self.moments(0);
        let generation = self.declare(Self::settings(&[("maxClientCnxns", "101")])).await?;
        for moment in moments {
            tokio::time::sleep(moment).await;
            let all = self.members.federation.members.keys().map(|cluster| {
                let members = self.members;
                let arguments = ["delete", "pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-member"];
                async move {
                    let how = ["--grace-period=0", "--force", "--wait=false"];
                    members.kubectl(cluster, &[&arguments[..], &how].concat()).await
                }
            });
            futures::future::try_join_all(all).await?;
            self.members.say("all agents of all clusters are killed");
        }
        self.rolled_out(generation, |_| {}).await
    }

    async fn operator_killed(&mut self) -> Result<()> {
        let moments = self.moments(1);
        let generation = self.declare(Self::settings(&[("maxClientCnxns", "102")])).await?;
        let federation = self.members.federation;
        for moment in moments {
            tokio::time::sleep(moment).await;
            federation.kill_operator().await?;
            self.members.say("the operator is killed, and started again after a second");
            tokio::time::sleep(Duration::from_secs(1)).await;
            federation.start_operator().await?;
        }
        self.rolled_out(generation, |_| {}).await
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
}
