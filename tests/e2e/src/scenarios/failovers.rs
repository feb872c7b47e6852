//! Voters move to a spare and home again, on a real Karmada.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use mczk_api::{MultiClusterZooKeeper, contract::labels::FAILOVER};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::{Federation, KARMADA},
    patience::wait_for,
    scene::{Scene, ensemble, is_settled, merge},
};

/// The longest wait for a move. Karmada needs a minute to mark a cluster, and each declared time is a minute.
const MOVE: Duration = Duration::from_secs(480);
/// How often the objects are read, all at once.
const PACE: Duration = Duration::from_secs(1);

/// A number from the environment.
fn number(variable: &str, default: usize) -> Result<usize> {
    std::env::var(variable).map_or(Ok(default), |text| {
        text.parse().with_context(|| format!("{variable} is {text:?}: set it to a number, or unset it"))
    })
}

/// How many ensembles lose a cluster.
fn count() -> Result<usize> {
    number("E2E_ENSEMBLES", 1)
}

/// How many processes are killed meanwhile. The cluster is lost until that is done.
fn kills() -> Result<usize> {
    number("E2E_KILLS", 0)
}

/// How much longer the scenario takes with them. A value that is no number adds nothing: the scenario reports it.
pub(super) fn time() -> Duration {
    let more = count().and_then(|count| Ok(count + 2 * kills()?)).unwrap_or_default();
    Duration::from_secs(10) * u32::try_from(more).unwrap_or(u32::MAX)
}

/// An ensemble of 2 voters in m1 and 1 in m2, whose spare is m3.
fn with_spare(name: &str, failover: &Value) -> Value {
    let placement = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] } });
    ensemble(name, 3, &json!({ "placement": placement, "failover": failover }))
}

/// The number of listed voters of each cluster that has some.
fn voters(object: &MultiClusterZooKeeper) -> BTreeMap<&str, usize> {
    let clusters = object.status.iter().flat_map(|status| &status.clusters);
    clusters.map(|cluster| (cluster.name.as_str(), cluster.voters.len())).filter(|(_, count)| *count > 0).collect()
}

fn moved(object: &MultiClusterZooKeeper) -> bool {
    object.status.iter().flat_map(|status| &status.clusters).any(|cluster| cluster.moved_to.is_some())
}

async fn are_at(scene: &Scene<'_>, clusters: [&str; 2]) -> Result<()> {
    let object = scene.get("zoo").await?;
    let expected: BTreeMap<&str, usize> = clusters.into_iter().zip([2, 1]).collect();
    ensure!(voters(&object) == expected, "the voters are {:?}, expected {expected:?}", voters(&object));
    Ok(())
}

pub(super) async fn moved_by_command(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "moved", Behaviour::default()).await?;
    scene.create(&with_spare("zoo", &json!({ "spares": ["m3"] }))).await?;
    scene.settled("zoo").await?;
    scene.condition("zoo", "FailoverReady", "True", "SparesUsable").await?;
    let shown = scene.command(&["failover", "zoo", "--from", "m2", "--dry-run"]).await?;
    ensure!(shown.contains("the voters of m2 shall be in m3"), "the dry run shows {shown}");
    are_at(&scene, ["m1", "m2"]).await?;

    scene.command(&["failover", "zoo", "--from", "m2", "--wait"]).await?;
    are_at(&scene, ["m1", "m3"]).await?;
    let status = scene.command(&["status", "zoo"]).await?;
    ensure!(status.contains("moved to m3"), "the status shows {status}");
    scene.command(&["failover", "zoo", "--back", "m3", "--wait"]).await?;
    are_at(&scene, ["m1", "m2"]).await?;
    scene.command(&["failover", "zoo", "--release", "m2"]).await?;
    let left = scene.get("zoo").await?.annotations().get(FAILOVER).cloned();
    ensure!(left.is_none(), "the annotation is {left:?}");

    // The spare had servers a moment ago.
    wait_for("the spare is free", MOVE, || async {
        let ready = scene.condition("zoo", "FailoverReady", "True", "SparesUsable").await;
        ready.map(drop)
    })
    .await?;
    let rehearsed = scene.command(&["failover", "zoo", "--rehearse", "m1"]).await?;
    ensure!(rehearsed.contains("Rehearsed: the voters of m1 left in"), "the rehearsal shows {rehearsed}");
    are_at(&scene, ["m1", "m2"]).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await.map(drop)
}

/// What the cluster of a spare would refuse is known before any voter needs the spare.
pub(super) async fn unusable_spare(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "unfit", Behaviour::default()).await?;
    let m3 = federation.members.get("m3").cloned().context("there is no m3")?;
    let quotas: Api<ResourceQuota> = Api::namespaced(m3, &scene.namespace);
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    let quota: ResourceQuota = serde_json::from_value(quota)?;
    wait_for("Karmada brings the namespace to m3", MOVE, || async {
        quotas.create(&PostParams::default(), &quota).await.map(drop).map_err(Into::into)
    })
    .await?;
    let mut object = with_spare("zoo", &json!({ "spares": ["m3"] }));
    merge(&mut object, &json!({ "spec": { "overrides": [{ "cluster": "m3", "storageClassName": "absent" }] } }));
    scene.create(&object).await?;
    scene.settled("zoo").await?;
    let says = scene.condition("zoo", "FailoverReady", "False", "SpareUnusable").await?;
    wait_for("the message names class and quota", MOVE, || async {
        let says = scene.condition("zoo", "FailoverReady", "False", "SpareUnusable").await?;
        for part in ["m3 would not accept servers", "The storage class absent does not exist", "Pod zoo-"] {
            ensure!(says.contains(part), "the message does not say {part:?}: {says}");
        }
        Ok(())
    })
    .await?;
    println!("unusable_spare: {says}");
    let moved = scene.command(&["failover", "zoo", "--from", "m2"]).await;
    let refused = moved.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(
        refused.contains("no spare can take the voters of m2 now. m3 would not accept servers"),
        "the command says {refused}"
    );
    are_at(&scene, ["m1", "m2"]).await?;

    quotas.delete("none", &DeleteParams::default()).await?;
    scene.change("zoo", json!({ "overrides": null })).await?;
    scene.condition("zoo", "FailoverReady", "True", "SparesUsable").await?;
    scene.settled("zoo").await?;
    scene.delete("zoo").await
}

/// A cluster that left is selected again while Karmada and the agent are still at work on what is there.
pub(super) async fn moved_there_and_back(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "to-and-fro", Behaviour::default()).await?;
    scene.create(&with_spare("zoo", &json!({ "spares": ["m3"] }))).await?;
    scene.settled("zoo").await?;
    scene.condition("zoo", "FailoverReady", "True", "SparesUsable").await?;
    let chosen = number("E2E_SEED", 1)?;
    println!("moved_there_and_back: E2E_SEED={chosen}");
    let mut random = StdRng::seed_from_u64(u64::try_from(chosen)?);
    for round in 0..4 {
        // The annotation asks for what the command would refuse while the spare still has servers.
        scene.annotate("zoo", FAILOVER, "m2=m3").await?;
        if round % 2 == 0 {
            wait_for("the voters are at the spare", MOVE, || are_at(&scene, ["m1", "m3"])).await?;
            scene.settled("zoo").await?;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..6_000))).await;
        scene.annotate("zoo", FAILOVER, "m2=m2").await?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..9_000))).await;
    }
    wait_for("the voters are at home", MOVE, || are_at(&scene, ["m1", "m2"])).await?;
    scene.settled("zoo").await?;
    scene.annotate("zoo", FAILOVER, "m2=m3").await?;
    wait_for("the voters are at the spare", MOVE, || are_at(&scene, ["m1", "m3"])).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await.map(drop)
}

/// `E2E_ENSEMBLES` lose one cluster at the same time, while `E2E_KILLS` processes are killed one after the other.
pub(super) async fn moved_when_lost(federation: &Federation) -> Result<()> {
    let count = count()?;
    let scene = Scene::new(federation, "lost", Behaviour::default()).await?;
    let declared = json!({ "spares": ["m3"], "moveAfterSeconds": 60, "moveBackAfterSeconds": 60 });
    for number in 0..count {
        scene.create(&with_spare(&format!("zoo-{number}"), &declared)).await?;
    }
    let settled = |object: &MultiClusterZooKeeper| is_settled(object) && voters(object).contains_key("m2");
    until_all(&scene, count, "is deployed", settled).await?;

    let (kills, killed) = (kills()?, AtomicUsize::new(0));
    let losses = async {
        loop {
            lose_m2(federation, &scene, count).await?;
            if killed.load(Ordering::Relaxed) >= kills {
                return Ok(());
            }
        }
    };
    tokio::try_join!(losses, kill_parts(federation, (kills, &killed))).map(drop)
}

async fn lose_m2(federation: &Federation, scene: &Scene<'_>, count: usize) -> Result<()> {
    let agents = federation.agents.as_ref().context("the agents do not run in this process")?;
    agents.cut_power("m2");
    federation.rig.stop("m2/apiserver").await?;
    let away = while_m2_is_dark(scene, count).await;
    federation.rig.start("m2/apiserver").await?;
    federation.rig.ready("m2").await?;
    agents.return_power("m2", federation.members.get("m2").cloned().context("there is no m2")?);
    away?;

    let client = federation.members.get("m2").cloned().context("there is no m2")?;
    let home =
        |object: &MultiClusterZooKeeper| !moved(object) && voters(object).contains_key("m2") && is_settled(object);
    let pods: Api<Pod> = Api::namespaced(client, &scene.namespace);
    wait_for("the former servers in m2 end", MOVE, || async {
        let left = pods.list(&ListParams::default()).await?.items.len();
        let object = scene.get("zoo-0").await?;
        ensure!(left == 0 || home(&object), "{left} pods are left");
        Ok(())
    })
    .await?;
    until_all(scene, count, "is home", home).await?;
    let broken = agents.violations(&scene.namespace);
    ensure!(broken.is_empty(), "{broken:?}");
    Ok(())
}

/// Kills the operator, the agent of the spare, or a part of Karmada, each some seconds after the one before. An agent that is killed
/// forgets for how long a voter is missing: that of m1 is killed seldom.
async fn kill_parts(federation: &Federation, (kills, killed): (usize, &AtomicUsize)) -> Result<()> {
    let chosen = number("E2E_SEED", 1)?;
    let mut random = StdRng::seed_from_u64(u64::try_from(chosen)?);
    let agents = federation.agents.as_ref().context("the agents do not run in this process")?;
    for number in 0..kills {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..5_500))).await;
        // A part of Karmada that was killed acts again after the lease of its former process.
        match number % 5 {
            0 | 2 => {
                federation.kill_operator().await?;
                tokio::time::sleep(Duration::from_millis(random.random_range(0..800))).await;
                federation.start_operator_patiently().await?;
            }
            1 | 3 => {
                let cluster = if number % 40 == 1 { "m1" } else { "m3" };
                agents.kill(cluster);
                tokio::time::sleep(Duration::from_millis(random.random_range(0..800))).await;
                agents.restart(cluster, federation.members.get(cluster).cloned().context("there is no such cluster")?);
            }
            _ => {
                federation.rig.kill(KARMADA.get(number / 5 % KARMADA.len()).context("there is no part")?).await?;
            }
        }
        killed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn while_m2_is_dark(scene: &Scene<'_>, count: usize) -> Result<()> {
    until_all(scene, count, "is decided", moved).await?;
    let whole = |object: &MultiClusterZooKeeper| is_settled(object) && voters(object).contains_key("m3");
    until_all(scene, count, "is whole without m2", whole).await
}

/// Waits until it holds for all ensembles, and prints after which times it did.
async fn until_all(
    scene: &Scene<'_>,
    count: usize,
    what: &str,
    holds: impl Fn(&MultiClusterZooKeeper) -> bool,
) -> Result<()> {
    let begun = Instant::now();
    let api = scene.api::<MultiClusterZooKeeper>();
    let mut after: BTreeMap<String, f64> = BTreeMap::new();
    loop {
        let objects = api.list(&ListParams::default()).await?.items;
        let missing: Vec<&MultiClusterZooKeeper> = objects.iter().filter(|object| !holds(object)).collect();
        for object in objects.iter().filter(|object| holds(object)) {
            after.entry(object.name_any()).or_insert_with(|| begun.elapsed().as_secs_f64());
        }
        if missing.is_empty() && objects.len() == count {
            break;
        }
        let first = missing.first().map(|object| (object.name_any(), crate::scene::conditions(object)));
        ensure!(begun.elapsed() < MOVE * 3, "{} of {count} ensembles: not each {what}: {first:?}", missing.len());
        tokio::time::sleep(PACE).await;
    }
    let mut seconds: Vec<f64> = after.into_values().collect();
    seconds.sort_by(f64::total_cmp);
    let at = |part: usize| seconds.get(seconds.len().saturating_sub(1) * part / 2).copied().unwrap_or_default();
    println!(
        "moved_when_lost: each {what} after {:.1} / {:.1} / {:.1} s (first, median, last of {count})",
        at(0),
        at(1),
        at(2)
    );
    Ok(())
}
