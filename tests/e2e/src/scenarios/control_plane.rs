//! The loss of the whole control plane, and the return of an older copy of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use mczk_api::{
    ZooKeeper,
    contract::{
        certificate_names::numbered,
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, REPLACE_AUTHORITY},
    },
    zookeeper::Ensemble,
};
use serde_json::{Value, json};

use super::faults::deployed;
use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

const NAME: &str = "zoo";
/// The clusters of an ensemble when the control plane is copied, and later.
const FIRST: [&str; 2] = ["m1", "m2"];
const LATER: [&str; 2] = ["m2", "m3"];

pub(super) async fn adopted(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "adopted", 5).await?;
    let (pods, list) = (pods(&scene).await?, list(&scene).await?);
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "adopted").await?;
    scene.create(&ensemble(NAME, 5, &json!({}))).await?;
    let former = list.incarnation.clone().context("the list has no incarnation")?;
    waits_for(&scene, &former).await?;
    let waited = scene.get(NAME).await?.uid().context("no uid")?;
    let waited = mczk_api::contract::naming::incarnation(&waited, 0);
    scene.command(&["adopt", NAME, &former]).await?;
    scene.settled(NAME).await?;
    let now = self::list(&scene).await?;
    ensure!(now.servers == list.servers && now.incarnation == list.incarnation, "the servers are {now:?}");
    let tls = |list: &Ensemble| list.tls.as_ref().map(|tls| tls.trust.clone());
    ensure!(tls(&now) != tls(&list), "the key of the authority is lost, and it was not replaced");
    ensure!(self::pods(&scene).await? == pods, "pods were restarted");
    wait_for("nothing is left of the incarnation that waited", PATIENCE, || async {
        let left = left_in_members(&scene, &waited).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    scene.image(NAME, super::faults::SECOND).await?;
    scene.settled(NAME).await?;
    scene.one_after_the_other(NAME)
}

/// The former server is where the new object would get no voter, and so no object in the member cluster.
pub(super) async fn adopted_elsewhere(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "elsewhere", Behaviour::default()).await?;
    let only = federation.members.keys().next_back().context("there is no cluster")?;
    let there = json!({ "placement": { "clusterAffinity": { "clusterNames": [only] } } });
    scene.create(&ensemble(NAME, 1, &there)).await?;
    scene.settled(NAME).await?;
    let (pods, list) = (pods(&scene).await?, list(&scene).await?);
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "elsewhere").await?;
    scene.create(&ensemble(NAME, 1, &json!({}))).await?;
    let former = list.incarnation.clone().context("the list has no incarnation")?;
    waits_for(&scene, &former).await?;
    ensure!(self::pods(&scene).await? == pods, "servers started beside the former one");
    scene.command(&["adopt", NAME, &former]).await?;
    scene.settled(NAME).await?;
    ensure!(self::pods(&scene).await? == pods, "pods were restarted");
    only_in(&scene, &[only]).await
}

pub(super) async fn declared_over(federation: &Federation) -> Result<()> {
    let scene = deployed(federation, "over", 5).await?;
    let former = list(&scene).await?.incarnation.context("the list has no incarnation")?;
    let volumes = volumes(&scene, &former).await?;
    federation.rebuild_control_plane().await?;
    let scene = again(&scene, "over").await?;
    scene.create(&ensemble(NAME, 5, &json!({ "template": { "storage": { "reclaim": "Delete" } } }))).await?;
    waits_for(&scene, &former).await?;
    scene.command(&["declare-over", NAME, &former, "--yes"]).await?;
    scene.settled(NAME).await?;
    ensure!(list(&scene).await?.incarnation.as_ref() != Some(&former), "the former incarnation runs on");
    wait_for("the former servers stop", PATIENCE, || async {
        let pods = pods(&scene).await?;
        ensure!(!pods.keys().any(|(_, pod)| pod.contains(&former)), "{pods:?}");
        Ok(())
    })
    .await?;
    ensure!(self::volumes(&scene, &former).await? == volumes, "volumes of the former incarnation are gone");
    Ok(())
}

/// Three ensembles change after the copy: one grows, one moves, and one gets another authority.
pub(super) async fn restored(federation: &Federation) -> Result<()> {
    let (growing, moving, renewing) = futures::try_join!(
        deployed(federation, "restored", 5),
        three(federation, "restored-moved", in_clusters(FIRST)),
        three(federation, "restored-renewed", json!({})),
    )?;
    let copy = federation.folder.join("karmada.json");
    federation.rig.copy_karmada(&copy).await?;
    let (grown, moved, renewed) = futures::try_join!(grow(&growing), move_on(&moving), renew(&renewing))?;
    federation.restore_control_plane(&copy).await?;
    for (scene, newest) in [(&growing, &grown), (&moving, &moved), (&renewing, &renewed)] {
        newest.runs_on(scene).await.with_context(|| scene.namespace.clone())?;
    }
    futures::try_join!(grow_again(&growing, &grown), move_again(&moving, &moved), renew_again(&renewing, &renewed))?;
    Ok(())
}

/// What agents and servers have when the control plane returns to an older copy.
struct Newest {
    list: Ensemble,
    pods: BTreeMap<(String, String), Option<String>>,
}

impl Newest {
    async fn of(scene: &Scene<'_>) -> Result<Self> {
        scene.settled(NAME).await?;
        let list = wait_for("the member clusters follow one list", PATIENCE, || list(scene)).await?;
        Ok(Self { list, pods: pods(scene).await? })
    }

    /// Checks that no agent has gone back, although Karmada has brought the objects of the copy. The operator has only started.
    async fn runs_on(&self, scene: &Scene<'_>) -> Result<()> {
        self.keeps_servers(scene).await?;
        let (now, newest) = (list(scene).await?, &self.list);
        ensure!(now.epoch >= newest.epoch, "agents follow {now:?}, and followed {newest:?}");
        let trusted = authorities(&now);
        let is_trusted = authorities(newest).iter().all(|authority| trusted.contains(authority));
        ensure!(is_trusted, "servers trust the authorities {trusted:?}");
        Ok(())
    }

    /// A cluster that has left since the copy gets its object again, and with it pods, until the user moves it away again.
    async fn keeps_servers(&self, scene: &Scene<'_>) -> Result<()> {
        let now = pods(scene).await?;
        let is_kept = self.pods.iter().all(|(pod, uid)| now.get(pod) == Some(uid));
        ensure!(is_kept, "servers restarted: {now:?}, before {:?}", self.pods);
        Ok(())
    }

    async fn restarts_nothing(&self, scene: &Scene<'_>) -> Result<()> {
        let now = pods(scene).await?;
        ensure!(now == self.pods, "servers restarted or moved: {now:?}, before {:?}", self.pods);
        Ok(())
    }
}

async fn grow(scene: &Scene<'_>) -> Result<Newest> {
    scene.change(NAME, json!({ "replicas": 7 })).await?;
    Newest::of(scene).await
}

async fn grow_again(scene: &Scene<'_>, Newest { list: newest, .. }: &Newest) -> Result<()> {
    // The restored object declares five voters.
    wait_for("the operator follows the newest server list", PATIENCE, || async {
        let now = list(scene).await?;
        ensure!(now.epoch > newest.epoch && now.servers.len() == 5, "the list is {now:?}");
        Ok(())
    })
    .await?;
    scene.settled(NAME).await?;
    scene.change(NAME, json!({ "replicas": 7 })).await?;
    scene.settled(NAME).await?;
    let now = list(scene).await?;
    let reused = now.servers.iter().find(|server| {
        newest.servers.iter().all(|known| known.id != server.id) && Some(server.id) <= newest.highest_id
    });
    ensure!(reused.is_none() && now.servers.len() == 7, "server {reused:?} has an id that was given out before");
    scene.members_match(NAME).await.map(drop)
}

fn in_clusters(names: [&str; 2]) -> Value {
    json!({ "placement": { "clusterAffinity": { "clusterNames": names } } })
}

async fn move_on(scene: &Scene<'_>) -> Result<Newest> {
    scene.change(NAME, in_clusters(LATER)).await?;
    scene.settled(NAME).await?;
    only_in(scene, &LATER).await?;
    Newest::of(scene).await
}

/// The copy gives servers to the cluster that they have left, and the operator waits for the one that they have joined.
async fn move_again(scene: &Scene<'_>, newest: &Newest) -> Result<()> {
    let message = scene.condition(NAME, "Progressing", "False", "NewerServerList").await?;
    ensure!(message.contains("spec.placement does not select: m3"), "the message is {message}");
    newest.keeps_servers(scene).await?;
    scene.change(NAME, in_clusters(LATER)).await?;
    scene.settled(NAME).await?;
    only_in(scene, &LATER).await?;
    let now = list(scene).await?;
    let continues = now.epoch > newest.list.epoch && now.servers == newest.list.servers;
    ensure!(continues, "the list is {now:?}, and was {:?}", newest.list);
    newest.restarts_nothing(scene).await?;
    scene.members_match(NAME).await.map(drop)
}

async fn renew(scene: &Scene<'_>) -> Result<Newest> {
    replace_authority(scene, 1).await?;
    Newest::of(scene).await
}

/// The copy lacks the key of the authority in use. The operator replaces it by itself, and once more for the user's request.
async fn renew_again(scene: &Scene<'_>, newest: &Newest) -> Result<()> {
    let lost = authorities(&newest.list).into_iter().max().context("servers trust no authority")?;
    let own = later_authority(scene, lost).await?;
    scene.settled(NAME).await?;
    newest.restarts_nothing(scene).await?;
    replace_authority(scene, own).await?;
    scene.settled(NAME).await?;
    let now = list(scene).await?;
    ensure!(now.servers == newest.list.servers, "the list is {now:?}, and was {:?}", newest.list);
    newest.restarts_nothing(scene).await
}

/// Requests another authority than this one, and waits until it is in use.
async fn replace_authority(scene: &Scene<'_>, former: u32) -> Result<()> {
    scene.annotate(NAME, REPLACE_AUTHORITY, "1").await?;
    later_authority(scene, former).await.map(drop)
}

/// Waits until servers trust one authority alone, which is later than this one. Returns its number.
async fn later_authority(scene: &Scene<'_>, former: u32) -> Result<u32> {
    wait_for(&format!("servers trust an authority after {former} alone"), PATIENCE, || async {
        let trusted = authorities(&list(scene).await?);
        let &[authority] = trusted.as_slice() else { bail!("they trust {trusted:?}") };
        ensure!(authority > former, "they trust authority {authority}");
        Ok(authority)
    })
    .await
}

/// The numbers of the authorities that servers trust.
fn authorities(list: &Ensemble) -> Vec<u32> {
    let trust = list.tls.iter().flat_map(|tls| &tls.trust);
    trust.filter_map(|name| Some(numbered(name)?.1)).collect()
}

/// A scene with an ensemble of three voters.
async fn three<'a>(federation: &'a Federation, name: &str, more: Value) -> Result<Scene<'a>> {
    let scene = Scene::new(federation, name, Behaviour::default()).await?;
    scene.create(&ensemble(NAME, 3, &more)).await?;
    scene.settled(NAME).await?;
    scene.members_match(NAME).await?;
    Ok(scene)
}

/// Waits until only these clusters have the object.
async fn only_in(scene: &Scene<'_>, clusters: &[&str]) -> Result<()> {
    wait_for(&format!("only {clusters:?} have the object"), PATIENCE, || async {
        let objects = scene.in_members(NAME).await?;
        ensure!(objects.keys().eq(clusters), "{:?} have it", objects.keys());
        Ok(())
    })
    .await
}

/// The namespace in the new control plane.
async fn again<'a>(scene: &Scene<'a>, name: &str) -> Result<Scene<'a>> {
    Scene::new(scene.federation, name, Behaviour::default()).await
}

/// Waits until the condition names what lives.
async fn waits_for(scene: &Scene<'_>, former: &str) -> Result<()> {
    let message = scene.condition(NAME, "Ready", "False", "IncarnationLives").await?;
    ensure!(message.contains(&format!("mczk adopt {NAME} {former}")), "{message}");
    Ok(())
}

/// The server list that all member clusters follow.
async fn list(scene: &Scene<'_>) -> Result<Ensemble> {
    let objects = scene.in_members(NAME).await?;
    let mut lists = objects.into_values().filter_map(|object: ZooKeeper| object.status?.ensemble);
    let first = lists.next().context("no member cluster follows a list")?;
    let same = lists.all(|list| list.hash == first.hash);
    ensure!(same, "the member clusters follow different lists");
    Ok(first)
}

/// Uids of all pods, by cluster and name.
pub(super) async fn pods(scene: &Scene<'_>) -> Result<BTreeMap<(String, String), Option<String>>> {
    let mut all = BTreeMap::new();
    for (cluster, client) in &scene.federation.members {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &scene.namespace);
        let own = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={NAME}"));
        all.extend(pods.list(&own).await?.into_iter().map(|pod| ((cluster.clone(), pod.name_any()), pod.uid())));
    }
    Ok(all)
}

/// Uids of all volumes of an incarnation.
async fn volumes(scene: &Scene<'_>, incarnation: &str) -> Result<BTreeSet<Option<String>>> {
    let mut all = BTreeSet::new();
    for client in scene.federation.members.values() {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &scene.namespace);
        let own = ListParams::default().labels(&format!("{INCARNATION_LABEL}={incarnation}"));
        all.extend(claims.list(&own).await?.into_iter().map(|claim| claim.uid()));
    }
    ensure!(!all.is_empty(), "incarnation {incarnation} has no volume");
    Ok(all)
}

/// What Karmada brought for an incarnation, in all member clusters.
async fn left_in_members(scene: &Scene<'_>, incarnation: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (cluster, client) in &scene.federation.members {
        for (version, name, plural) in
            [("v1", "Secret", "secrets"), ("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serviceexports")]
        {
            let of_kind = kind(version, name, plural);
            let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client.clone(), &scene.namespace, &of_kind);
            let all = api.list(&ListParams::default()).await?.into_iter().map(|object| object.name_any());
            left.extend(all.filter(|name| name.contains(incarnation)).map(|name| format!("{name} in {cluster}")));
        }
    }
    Ok(left)
}
