//! Voters that lose their votes, move to a spare, and come home.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::labels::{FAILOVER, MANAGED_BY_AGENT, MANAGED_BY_LABEL, PREFLIGHT_LABEL},
    multiclusterzookeeper::ClusterStatus,
};
use serde_json::json;

use super::{NAME, PATIENCE, Step, StoryContext, records};
use crate::{
    members::{
        quorum::{Recorder, Samples, Source},
        writer::serves,
    },
    patience::wait_for,
    scene::is_settled,
};

/// Each declared time, in seconds: the shortest one.
const AFTER: u32 = 60;
/// The longest time between a power loss and the loss of all votes.
const DEMOTED_WITHIN: Duration = Duration::from_secs(100);
/// The longest time between the decision to move voters and an ensemble that is whole without their home.
const WHOLE_WITHIN: Duration = Duration::from_secs(150);
/// How much longer the step waits, so that it reports the real time.
/// The time that other agents leave to the one beside the leader. It may run on a node without power.
const BESIDE_THE_LEADER: Duration = Duration::from_secs(30);
const SLACK: Duration = Duration::from_secs(120);
/// The longest time between a power loss and the decision to move. Karmada marks the cluster before.
const DECISION: Duration = Duration::from_secs(240);
/// The longest time of a move that has been decided, on a busy machine.
const MOVE: Duration = Duration::from_secs(600);
/// The longest time until Karmada has removed the object from a cluster that was lost: it tries again after up to 1000 s.
const RELEASE: Duration = Duration::from_secs(1500);
/// The time between two writes. The story is long, and all its znodes must fit into a small heap.
const BETWEEN: Duration = Duration::from_millis(60);
/// More writes than may have been under way when a process was killed.
pub(super) const FEW_WRITES: u64 = 10;
/// The longest time of that many writes. The client may have to find another server first.
const SOON: Duration = Duration::from_secs(30);
/// The component without which Karmada does nothing.
const KARMADA: &str = "karmada-apiserver";
/// How often a process is killed, if it has started again before the writes are acknowledged.
const KILLS: usize = 5;

pub const DEMOTED: Step = step!(
    "demoted",
    votes_taken,
    "two voters lose power and then their votes: writes survive the loss of a third one, and the votes come back"
);
pub const TWO_NODES_DEMOTED: Step = step!(
    "demoted-two-nodes",
    two_nodes_demoted,
    "a node in each of two clusters loses power: its voter loses its vote, as in the loss of a cluster, and gets it back"
);
pub const DEMOTED_WITHOUT_KARMADA: Step = step!(
    "demoted-without-karmada",
    demoted_without_karmada,
    "Karmada, the operator and a cluster with two voters are down: the agents of the others take the two votes alone"
);
pub const EVACUATED: Step = step!(
    "evacuated",
    evacuated,
    "a user moves the voters of a healthy cluster to the spare and home again: there is never a voter less"
);
pub const MOVED_WHEN_LOST: Step = step!(
    "moved-when-lost",
    moved_when_lost,
    "the leader's cluster loses power: its voters move to the spare by themselves, and its servers end when it returns"
);
pub const MOVED_BACK: Step = step!(
    "moved-back",
    moved_back,
    "the cluster that was lost is Ready for long enough: its voters go home by themselves"
);
pub const CALLED_OFF: Step = step!(
    "called-off",
    called_off,
    "a cluster returns after the decision to move its voters, and before the server list names the spare: none moves"
);
pub const RELEASED: Step = Step {
    always: true,
    ..step!(
        "released",
        released,
        "Karmada has removed the object from each cluster without voters, before the deletion"
    )
};

/// Voters of one cluster, and the cluster to which they may move.
pub(super) struct Seat {
    home: String,
    spare: String,
    /// Their ids at the beginning.
    voters: BTreeSet<i32>,
}

impl Seat {
    /// True if all voters are listed at a place, and none elsewhere: the home or the spare.
    fn is_at(&self, object: &MultiClusterZooKeeper, place: &str) -> bool {
        let is_home = place == self.home;
        let (other, pair) = if is_home { (&self.spare, None) } else { (&self.home, Some(self.spare.as_str())) };
        moved_to(object, &self.home) == pair
            && listed(object, place).len() == self.voters.len()
            && listed(object, other).is_empty()
    }
}

fn clusters(object: &MultiClusterZooKeeper) -> &[ClusterStatus] {
    object.status.as_ref().map(|status| status.clusters.as_slice()).unwrap_or_default()
}

/// The spare that has the voters of a cluster, or gets them.
fn moved_to<'o>(object: &'o MultiClusterZooKeeper, home: &str) -> Option<&'o str> {
    clusters(object).iter().find(|cluster| cluster.name == home)?.moved_to.as_deref()
}

/// Ids of the listed voters of a cluster.
pub(super) fn listed(object: &MultiClusterZooKeeper, cluster: &str) -> BTreeSet<i32> {
    let of_cluster = clusters(object).iter().find(|status| status.name == cluster);
    of_cluster.map(|status| status.voters.iter().copied().collect()).unwrap_or_default()
}

/// Ids of the listed voters, by cluster.
fn all_listed(object: &MultiClusterZooKeeper) -> BTreeMap<String, Vec<i32>> {
    let with_voters = clusters(object).iter().filter(|cluster| !cluster.voters.is_empty());
    with_voters.map(|cluster| (cluster.name.clone(), cluster.voters.clone())).collect()
}

/// The epoch, and the number of records.
fn numbers(object: &MultiClusterZooKeeper) -> String {
    let ensemble = object.status.as_ref().and_then(|status| status.ensemble.as_ref());
    format!("epoch {}, {} records", ensemble.map_or(0, |ensemble| ensemble.epoch), records(object).len())
}

/// Ids that have a vote, and ids that have lost it.
fn votes(object: &MultiClusterZooKeeper) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let ensemble = object.status.clone().unwrap_or_default().ensemble.unwrap_or_default();
    (ensemble.voters.into_iter().collect(), ensemble.demoted.into_iter().collect())
}

fn condition<'o>(object: &'o MultiClusterZooKeeper, type_: &str) -> Option<&'o Condition> {
    object.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

fn has(object: &MultiClusterZooKeeper, type_: &str, reason: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition.reason == reason)
}

/// What a move waits for, in the words of the status.
fn awaited(object: &MultiClusterZooKeeper) -> String {
    let message = condition(object, "FailoverReady").map(|ready| ready.message.as_str()).unwrap_or_default();
    let from = message.find("Moves that wait").and_then(|at| message.get(at..));
    from.unwrap_or("the status names nothing").to_owned()
}

impl StoryContext<'_> {
    /// Declares the spare, demotion, and after which times voters move and move back; returns the generation.
    async fn declare_failover(&self, moves: Option<u32>, moves_back: Option<u32>) -> Result<i64> {
        let spares = self.without_servers();
        let failover = json!({
            "demoteAfterSeconds": AFTER, "spares": spares, "moveAfterSeconds": moves, "moveBackAfterSeconds": moves_back,
        });
        self.declare(json!({ "failover": failover })).await
    }

    /// The beginning of a step: the times are declared, and every voter is at home.
    pub(super) async fn failover_begins(&mut self, moves: Option<u32>) -> Result<()> {
        self.writer()?.pace(BETWEEN);
        let generation = self.declare_failover(moves, None).await?;
        let is_done =
            |object: &MultiClusterZooKeeper| object.metadata.generation == Some(generation) && is_settled(object);
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_done).await?;
        self.records = records(&settled).len();
        let away = clusters(&settled).iter().find(|cluster| cluster.moved_to.is_some());
        ensure!(away.is_none(), "the voters of {:?} are at a spare", away.map(|cluster| &cluster.name));
        self.all_serve().await
    }

    pub(super) async fn seat(&self, home: &str) -> Result<Seat> {
        let spare = self.without_servers().into_iter().next().context("every cluster is in the placement")?;
        let voters = listed(&self.scene.get(NAME).await?, home);
        ensure!(!voters.is_empty(), "{home} has no voters");
        Ok(Seat { home: home.to_owned(), spare, voters })
    }

    /// A cluster with two voters. The leader is in another one.
    async fn seat_without_leader(&self) -> Result<Seat> {
        let (leader, _) = self.leader().await?;
        let object = self.scene.get(NAME).await?;
        let mut others = clusters(&object).iter().filter(|cluster| cluster.name != leader.cluster);
        let home =
            others.find(|cluster| cluster.voters.len() == 2).context("no cluster without the leader has two voters")?;
        self.seat(&home.name).await
    }

    /// The cluster whose voters are at the spare, if there is one.
    async fn seat_away(&self) -> Result<Option<Seat>> {
        let object = self.scene.get(NAME).await?;
        let pair = clusters(&object).iter().find_map(|cluster| Some((cluster.name.clone(), cluster.moved_to.clone()?)));
        Ok(pair.map(|(home, spare)| Seat { voters: listed(&object, &spare), home, spare }))
    }

    pub(super) async fn power_off(&self, cluster: &str) -> Result<Instant> {
        self.members.federation.rig.stop_cluster(cluster).await?;
        self.members.report(&format!("{cluster} lost power"));
        Ok(Instant::now())
    }

    pub(super) async fn power_on(&self, cluster: &str) -> Result<Instant> {
        let rig = &self.members.federation.rig;
        rig.start_cluster(cluster).await?;
        let on = Instant::now();
        rig.ready(cluster).await?;
        self.members.report(&format!("{cluster} has power again"));
        Ok(on)
    }

    /// Waits until so many servers serve, in the clusters that answer.
    async fn so_many_serve(&self, number: usize) -> Result<()> {
        wait_for("the other servers serve", Duration::from_secs(180), || async {
            // A node without power has pods with addresses.
            let addresses = self.pods().addresses().await?;
            let asked = futures::future::join_all(addresses.iter().map(|address| serves(address))).await;
            let serving = asked.iter().filter(|served| served.is_ok()).count();
            ensure!(serving == number, "{serving} servers serve, expected {number}: {asked:?}");
            Ok(())
        })
        .await
    }

    pub(super) fn recorder(&self) -> Recorder {
        Recorder::start(self.source())
    }

    fn source(&self) -> Source {
        Source {
            object: self.scene.api(),
            of: (self.scene.namespace.clone(), NAME),
            pods: self.pods(),
            metrics: self.members.federation.probes(),
        }
    }

    /// Stops a recorder, and reports what changed.
    pub(super) async fn recorded(&self, recorder: Recorder) -> Result<Samples> {
        let samples = recorder.stop().await?;
        for line in samples.changes() {
            self.members.report(&line);
        }
        let lowest = samples.lowest().map_or("unknown".to_owned(), |lowest| lowest.to_string());
        self.members.report(&format!("lowest number of votes in ZooKeeper's configuration: {lowest}"));
        Ok(samples)
    }

    /// Checks that ZooKeeper's configuration never had fewer votes than the spec has voters.
    pub(super) fn never_fewer(&self, samples: &Samples) -> Result<()> {
        let lowest = samples.lowest().context("no server showed its configuration")?;
        ensure!(lowest >= self.voters, "ZooKeeper's configuration had {lowest} votes, expected {}", self.voters);
        Ok(())
    }

    /// The volumes of all clusters. Every cluster must have power.
    pub(super) async fn volumes_left(&self) -> Result<BTreeSet<String>> {
        let left = self.members.left(&self.scene.namespace).await?;
        Ok(left.into_iter().filter(|left| left.starts_with("PersistentVolumeClaim ")).collect())
    }

    /// Checks that no volume was deleted, and counts all for the end of the story.
    async fn volumes_stay(&mut self, before: &BTreeSet<String>) -> Result<()> {
        let after = self.volumes_left().await?;
        let gone: Vec<_> = before.difference(&after).collect();
        ensure!(gone.is_empty(), "volumes are gone: {gone:?}");
        let new: Vec<_> = after.difference(before).collect();
        self.members.report(&format!("all {} volumes stay, and these are new: {new:?}", before.len()));
        self.volumes = after.len().saturating_sub(self.most);
        Ok(())
    }

    /// Waits until the servers of a cluster have ended.
    async fn servers_end(&self, cluster: &str, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let label = format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT},!{PREFLIGHT_LABEL}");
        wait_for("the servers end", patience, || async {
            let get = ["get", "pods", "-n", &self.scene.namespace, "-l", &label, "-o", "name"];
            let pods = self.members.kubectl(cluster, &get).await?;
            ensure!(pods.trim().is_empty(), "{cluster} has {}", pods.trim());
            Ok(())
        })
        .await?;
        let took = begun.elapsed().as_secs_f64();
        self.members.report(&format!("the servers in {cluster} have ended {took:.1} s later"));
        Ok(())
    }

    /// The end of a move: everything is settled, and nothing else runs.
    async fn failover_ends(&mut self) -> Result<()> {
        let settled = self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        self.records = records(&settled).len();
        self.scene.members_match(NAME).await?;
        self.all_serve().await
    }

    async fn votes_taken(&mut self) -> Result<()> {
        self.failover_begins(None).await?;
        let lost = self.seat_without_leader().await?;
        self.votes_of(&lost).await
    }

    /// Takes the power from a cluster with two voters of five until they have lost their votes, and gives it back.
    pub(super) async fn votes_of(&mut self, lost: &Seat) -> Result<()> {
        let of_others = |uids: BTreeMap<(String, String), String>| -> Vec<_> {
            uids.into_iter().filter(|((cluster, _), _)| *cluster != lost.home).collect()
        };
        let before = of_others(self.uids().await?);
        let recorder = self.recorder();
        let done = self.lose_votes_and_return(lost).await;
        let samples = self.recorded(recorder).await;
        done?;
        samples?;
        ensure!(of_others(self.uids().await?) == before, "a pod of another cluster was replaced");
        self.nothing_rolled().await
    }

    async fn lose_votes_and_return(&mut self, lost: &Seat) -> Result<()> {
        let (all, _) = votes(&self.scene.get(NAME).await?);
        let off = self.power_off(&lost.home).await?;
        self.votes_go(off, &lost.voters, &all, DEMOTED_WITHIN).await?;
        self.status_names(&lost.voters).await?;
        let on = self.power_on(&lost.home).await?;
        self.votes_return(on, &all).await
    }

    /// Waits until ids have lost their votes. Then one more server is killed, and writes go on.
    async fn votes_go(
        &mut self,
        off: Instant,
        lost: &BTreeSet<i32>,
        all: &BTreeSet<i32>,
        within: Duration,
    ) -> Result<()> {
        let (left, source) = (all - lost, self.source());
        wait_for("the votes are taken", within + SLACK, || async {
            let configured = source.configured(&mut None).await?;
            ensure!(configured == left, "{configured:?} vote, expected {left:?}");
            Ok(())
        })
        .await?;
        let took = off.elapsed();
        self.members.report(&format!(
            "the votes of {lost:?} are taken {:.1} s after the power loss, which is {:.1} s after demoteAfterSeconds",
            took.as_secs_f64(),
            took.as_secs_f64() - f64::from(AFTER)
        ));
        ensure!(took <= within, "votes were taken after more than {} s", within.as_secs());
        self.write_without_one(left.len()).await?;
        self.so_many_serve(left.len()).await?;
        self.members.report("the killed server serves again");
        Ok(())
    }

    /// Waits until the status says that these ids have lost their votes.
    async fn status_names(&self, demoted: &BTreeSet<i32>) -> Result<()> {
        let names = |object: &MultiClusterZooKeeper| votes(object).1 == *demoted;
        self.members.until(&self.scene, NAME, PATIENCE, names).await.map(drop)
    }

    /// Waits until these ids vote, and the status says so.
    async fn votes_return(&self, on: Instant, all: &BTreeSet<i32>) -> Result<()> {
        let are_back = |object: &MultiClusterZooKeeper| votes(object) == (all.clone(), BTreeSet::new());
        self.members.until(&self.scene, NAME, PATIENCE, are_back).await?;
        self.members.report(&format!("the same ids vote again {:.1} s after power", on.elapsed().as_secs_f64()));
        self.all_serve().await
    }

    async fn two_nodes_demoted(&mut self) -> Result<()> {
        self.failover_begins(None).await?;
        let object = self.scene.get(NAME).await?;
        let ((leader, _), (all, _)) = (self.leads().await?, votes(&object));
        let mut lost = BTreeMap::new();
        for cluster in self.clusters.iter().take(2) {
            let mut found = None;
            for id in listed(&object, cluster) {
                let server = self.server(cluster, id).await?;
                found = server.node.filter(|_| server.uid != leader.uid).map(|node| (id, node)).or(found);
            }
            lost.extend(found);
        }
        ensure!(lost.len() == 2, "no two clusters have a server on a node of its own: {lost:?}");
        let federation = self.members.federation;
        for node in lost.values() {
            federation.rig.stop_node(node).await?;
        }
        let off = Instant::now();
        self.members.report(&format!("these nodes lost power, by the id of their voter: {lost:?}"));
        let ids: BTreeSet<i32> = lost.keys().copied().collect();
        self.votes_go(off, &ids, &all, DEMOTED_WITHIN + BESIDE_THE_LEADER).await?;
        self.status_names(&ids).await?;
        for node in lost.values() {
            federation.rig.start_node(node).await?;
        }
        self.votes_return(Instant::now(), &all).await?;
        self.nothing_rolled().await
    }

    async fn demoted_without_karmada(&mut self) -> Result<()> {
        self.failover_begins(None).await?;
        let lost = self.seat_without_leader().await?;
        let (all, _) = votes(&self.scene.get(NAME).await?);
        let federation = self.members.federation;
        federation.kill_operator().await?;
        federation.rig.stop(KARMADA).await?;
        let off = self.power_off(&lost.home).await?;
        self.members.report("Karmada's API server and the operator are down too");
        self.votes_go(off, &lost.voters, &all, DEMOTED_WITHIN).await?;
        federation.rig.start(KARMADA).await?;
        federation.karmada_ready().await?;
        federation.start_operator().await?;
        self.status_names(&lost.voters).await?;
        let on = self.power_on(&lost.home).await?;
        self.votes_return(on, &all).await?;
        self.nothing_rolled().await
    }

    /// Kills the process of a server that does not lead. Writes are acknowledged before it serves again.
    async fn write_without_one(&mut self, serving: usize) -> Result<()> {
        let (leader, _) = self.leads().await?;
        let servers = self.pods().servers().await?.into_iter();
        let victim = servers.filter(|server| server.ready).find(|server| server.uid != leader.uid);
        let victim = victim.context("no server but the leader is ready")?;
        for _ in 0..KILLS {
            self.kill(&victim).await?;
            let killed = Instant::now();
            self.writer()?.next(FEW_WRITES, SOON).await?;
            let took = killed.elapsed().as_secs_f64();
            // Else it may have been needed: it started before the client had written.
            if victim.mode().await.is_none() {
                let text =
                    format!("kill -9 of {victim}: {FEW_WRITES} writes are acknowledged after {took:.1} s without it");
                self.members.report(&text);
                return Ok(());
            }
            self.so_many_serve(serving).await?;
        }
        bail!("the killed server served each time before {FEW_WRITES} writes were acknowledged")
    }

    async fn evacuated(&mut self) -> Result<()> {
        self.failover_begins(None).await?;
        let home = self.clusters.first().context("the placement names no cluster")?.clone();
        let seat = self.seat(&home).await?;
        let before = self.volumes_left().await?;
        let recorder = self.recorder();
        let done = self.there_and_back(&seat).await;
        let samples = self.recorded(recorder).await;
        done?;
        self.never_fewer(&samples?)?;
        self.volumes_stay(&before).await
    }

    async fn there_and_back(&mut self, seat: &Seat) -> Result<()> {
        for (place, other) in [(&seat.spare, &seat.home), (&seat.home, &seat.spare)] {
            // The last step compares also the logs of data that is set aside.
            self.gather()?;
            let begun = Instant::now();
            let pair = format!("{}={place}", seat.home);
            self.request(Some(&pair)).await?;
            let is_done = |object: &MultiClusterZooKeeper| seat.is_at(object, place) && is_settled(object);
            let object = self.members.until(&self.scene, NAME, MOVE, is_done).await?;
            let (took, ids) = (begun.elapsed().as_secs_f64(), listed(&object, place));
            let text =
                format!("{FAILOVER}={pair}: done after {took:.1} s; the ids were {:?}, and are {ids:?}", seat.voters);
            self.members.report(&text);
            self.servers_end(other, PATIENCE).await?;
            self.failover_ends().await?;
        }
        // It would pin the voters in the next steps.
        self.request(None).await
    }

    /// Sets or removes the annotation that says where voters shall be.
    async fn request(&self, pairs: Option<&str>) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { FAILOVER: pairs } } }));
        self.scene.api::<MultiClusterZooKeeper>().patch(NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn moved_when_lost(&mut self) -> Result<()> {
        self.failover_begins(Some(AFTER)).await?;
        let (leader, _) = self.leader().await?;
        let seat = self.seat(&leader.cluster).await?;
        let before = self.volumes_left().await?;
        self.gather()?;
        let recorder = self.recorder();
        let done = self.move_by_loss(&seat).await;
        let samples = self.recorded(recorder).await;
        let (whole, took) = done?;
        let voted = samples?.voted_since(whole, &seat.voters);
        ensure!(voted.is_empty(), "servers of the lost cluster voted after the move: {voted:?}");
        self.volumes_stay(&before).await?;
        self.failover_ends().await?;
        ensure!(took <= WHOLE_WITHIN, "the move took {:.1} s, expected {}", took.as_secs_f64(), WHOLE_WITHIN.as_secs());
        Ok(())
    }

    /// Loses a cluster until its voters are at the spare, and brings it back. Returns when the ensemble was whole, and how long
    /// after the decision.
    async fn move_by_loss(&self, seat: &Seat) -> Result<(Instant, Duration)> {
        let off = self.power_off(&seat.home).await?;
        let decided = self.decided(seat, off).await?;
        let is_whole = |object: &MultiClusterZooKeeper| {
            let (voters, _) = votes(object);
            let is_ready = condition(object, "Ready").is_some_and(|ready| ready.status == "True");
            is_ready
                && seat.is_at(object, &seat.spare)
                && voters.len() == self.voters
                && voters.is_disjoint(&seat.voters)
        };
        let object = self.members.until(&self.scene, NAME, MOVE, is_whole).await?;
        let (whole, took) = (Instant::now(), decided.elapsed());
        self.so_many_serve(self.voters).await?;
        self.members.report(&format!(
            "Ready {:.1} s after the decision, {:.1} s after the power loss; {:?} vote, {:?} in {}",
            took.as_secs_f64(),
            (whole - off).as_secs_f64(),
            votes(&object).0,
            listed(&object, &seat.spare),
            seat.spare
        ));
        self.power_on(&seat.home).await?;
        self.servers_end(&seat.home, RELEASE).await?;
        Ok((whole, took))
    }

    /// Waits until the operator has decided to move the voters of a cluster without power.
    async fn decided(&self, seat: &Seat, off: Instant) -> Result<Instant> {
        let is_decided = |object: &MultiClusterZooKeeper| {
            moved_to(object, &seat.home) == Some(seat.spare.as_str()) && has(object, "FailedOver", "Moved")
        };
        self.members.until(&self.scene, NAME, DECISION, is_decided).await?;
        let decided = Instant::now();
        let took = (decided - off).as_secs_f64();
        self.members.report(&format!("the operator decided after {took:.1} s: {} to {}", seat.home, seat.spare));
        Ok(decided)
    }

    async fn moved_back(&mut self) -> Result<()> {
        if self.seat_away().await?.is_none() {
            self.moved_when_lost().await?;
        }
        let seat = self.seat_away().await?.context("no voters are at a spare")?;
        self.writer()?.pace(BETWEEN);
        let before = self.volumes_left().await?;
        self.gather()?;
        let recorder = self.recorder();
        let done = self.go_home(&seat).await;
        let samples = self.recorded(recorder).await;
        done?;
        self.never_fewer(&samples?)?;
        self.failover_ends().await?;
        self.volumes_stay(&before).await
    }

    async fn go_home(&self, seat: &Seat) -> Result<()> {
        self.declare_failover(Some(AFTER), Some(AFTER)).await?;
        let begun = Instant::now();
        let mut waits: Vec<(Duration, String)> = Vec::new();
        let is_decided = |object: &MultiClusterZooKeeper| {
            let text = awaited(object);
            if waits.last().is_none_or(|(_, last)| *last != text) {
                waits.push((begun.elapsed(), text));
            }
            moved_to(object, &seat.home).is_none()
        };
        self.members.until(&self.scene, NAME, RELEASE, is_decided).await?;
        let decided = Instant::now();
        for (at, text) in waits {
            self.members.report(&format!("waited from {:.1} s on: {text}", at.as_secs_f64()));
        }
        let is_home = |object: &MultiClusterZooKeeper| seat.is_at(object, &seat.home) && is_settled(object);
        let object = self.members.until(&self.scene, NAME, MOVE, is_home).await?;
        self.members.report(&format!(
            "home after {:.1} s, {:.1} s of them after the decision; the ids in {} are {:?}",
            begun.elapsed().as_secs_f64(),
            decided.elapsed().as_secs_f64(),
            seat.home,
            listed(&object, &seat.home)
        ));
        self.servers_end(&seat.spare, PATIENCE).await
    }

    async fn called_off(&mut self) -> Result<()> {
        if self.seat_away().await?.is_some() {
            self.moved_back().await?;
        }
        self.failover_begins(Some(AFTER)).await?;
        let seat = self.seat_without_leader().await?;
        let (object, before) = (self.scene.get(NAME).await?, self.volumes_left().await?);
        let recorder = self.recorder();
        let done = self.decide_and_return(&seat).await;
        let samples = self.recorded(recorder).await;
        done?;
        let at_spare = |listed: &BTreeMap<String, Vec<i32>>| listed.get(&seat.spare).is_some_and(|ids| !ids.is_empty());
        ensure!(!samples?.all.iter().any(|sample| at_spare(&sample.listed)), "a voter was listed in {}", seat.spare);
        self.servers_end(&seat.spare, PATIENCE).await?;
        let after = self.scene.get(NAME).await?;
        self.members.report(&format!("before: {}; after: {}", numbers(&object), numbers(&after)));
        let (before_list, after_list) = (all_listed(&object), all_listed(&after));
        ensure!(before_list == after_list, "the server list was {before_list:?}, and is {after_list:?}");
        self.volumes_stay(&before).await?;
        self.failover_ends().await
    }

    /// Loses a cluster until the operator decides to move its voters, and brings it back at once.
    async fn decide_and_return(&self, seat: &Seat) -> Result<()> {
        let off = self.power_off(&seat.home).await?;
        let decided = self.decided(seat, off).await?;
        self.power_on(&seat.home).await?;
        let is_called_off = |object: &MultiClusterZooKeeper| moved_to(object, &seat.home).is_none();
        self.members.until(&self.scene, NAME, PATIENCE, is_called_off).await?;
        self.members.report(&format!("called off {:.1} s after the decision", decided.elapsed().as_secs_f64()));
        self.members.until(&self.scene, NAME, PATIENCE, is_settled).await?;
        self.members.report(&format!("settled {:.1} s after the decision", decided.elapsed().as_secs_f64()));
        self.all_serve().await
    }

    async fn released(&mut self) -> Result<()> {
        let begun = Instant::now();
        wait_for("only clusters with voters have the object", RELEASE, || async {
            let with_voters: BTreeSet<String> = all_listed(&self.scene.get(NAME).await?).into_keys().collect();
            let objects: BTreeSet<String> = self.scene.in_members(NAME).await?.into_keys().collect();
            ensure!(objects == with_voters, "{objects:?} have the object, and {with_voters:?} have voters");
            Ok(())
        })
        .await?;
        self.members.report(&format!("no other cluster has the object after {:.1} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }
}
