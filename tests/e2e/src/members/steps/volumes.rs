//! Volumes that grow: disks of the rig's class `growing`, with file systems that kubelets make and grow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, ResourceExt, api::ListParams};
use mczk_api::contract::{control_api::RestartLock, naming::claim_of, pod_layout::RESTART_LOCK_ZNODE};
use serde_json::{Value, json};
use zookeeper_client::Error;

use super::{NAME, Step, StoryContext, records};
use crate::{
    members::{Pods, Server, writer::connect},
    scene::is_settled,
};

/// The class whose volumes grow, in the rig.
pub const CLASS: &str = "growing";
/// The first size: XFS needs 300 MiB.
pub const FIRST_SIZE: &str = "320Mi";
const IN_USE: &str = "448Mi";
const BY_MOUNT: &str = "576Mi";
/// The most that the class allows, and a size above it.
const LIMIT: &str = "640Mi";
const ABOVE: &str = "704Mi";
/// The longest growth of three volumes. Each volume waits two minutes for the kubelet, and then for a restart of its server.
const PATIENCE: Duration = Duration::from_secs(1200);
const PACE: Duration = Duration::from_millis(250);

pub const GROW_IN_USE: Step = step!(
    "grow-in-use",
    in_use,
    "file systems grow in use, one after another, before the object is complete; no server restarts"
);
pub const GROW_BY_MOUNT: Step = step!(
    "grow-by-mount",
    by_mount,
    "file systems grow only at a mount: every server restarts under the lock, one at a time"
);
pub const SIZE_REFUSED: Step = step!(
    "size-refused",
    refused,
    "storage refuses a size: the status repeats its words, nothing else changes, and a smaller size is declared instead"
);

/// What is seen while volumes grow.
#[derive(Debug, Default)]
struct Growth {
    /// The volumes in the order in which they began.
    began: Vec<String>,
    /// Servers for which an agent held the restart lock while a pod ended.
    locked: BTreeSet<i32>,
}

impl StoryContext<'_> {
    async fn in_use(&mut self) -> Result<()> {
        let before = self.uids().await?;
        self.grows_to(IN_USE).await?;
        ensure!(self.uids().await? == before, "a growth in use restarted servers");
        // The kubelet unmounts the disks of servers that leave, and the last step cannot read them.
        self.gather()?;
        self.nothing_rolled().await
    }

    async fn by_mount(&mut self) -> Result<()> {
        let before = self.uids().await?;
        self.annotate_class("rig.local/offline=true").await?;
        let growth = self.grows_to(BY_MOUNT).await;
        self.annotate_class("rig.local/offline-").await?;
        let growth = growth?;
        for (server, uid) in self.uids().await? {
            ensure!(before.get(&server) != Some(&uid), "the file system of {server:?} grew without a restart");
        }
        ensure!(growth.locked.len() == self.servers(), "the lock was seen for servers {:?} only", growth.locked);
        self.members.report(&format!("an agent held the restart lock for each of servers {:?}", growth.locked));
        self.all_serve().await
    }

    async fn refused(&mut self) -> Result<()> {
        self.annotate_class(&format!("rig.local/limit={LIMIT}")).await?;
        let words = format!("ControllerResizeError: {ABOVE} is more than {LIMIT}");
        self.mistake(size(ABOVE), size(LIMIT), &words).await?;
        self.have(LIMIT).await
    }

    /// Changes an annotation of the class, in every cluster.
    async fn annotate_class(&self, annotation: &str) -> Result<()> {
        for cluster in self.members.federation.members.keys() {
            let arguments = ["annotate", "storageclass", CLASS, annotation, "--overwrite"];
            self.members.kubectl(cluster, &arguments).await?;
        }
        Ok(())
    }

    /// Declares a size, and waits until the object is complete. Fails if two volumes grow, or two servers are down, at once.
    async fn grows_to(&mut self, wanted: &str) -> Result<Growth> {
        let begun = Instant::now();
        let before = self.file_systems().await?;
        let generation = self.declare(size(wanted)).await?;
        let (clients, pods) = (&self.members.federation.members, self.pods());
        let mut growth = Growth::default();
        let settled = tokio::select! {
            settled = self.members.until(&self.scene, NAME, PATIENCE, |object| {
                object.metadata.generation == Some(generation) && is_settled(object)
            }) => settled?,
            failed = watch(clients, &pods, &self.scene.namespace, &mut growth) => { failed?; bail!("nothing watches") }
        };
        // At once: the object must not be complete before every volume is.
        self.have(wanted).await?;
        self.records = records(&settled).len();
        let after = self.file_systems().await?;
        for (server, kib) in &after {
            let was = before.get(server).with_context(|| format!("{server} is new"))?;
            self.members.report(&format!("the file system of {server}: {was} KiB before, {kib} KiB now"));
        }
        let grown: BTreeSet<u64> = after
            .iter()
            .map(|(server, kib)| kib.saturating_sub(before.get(server).copied().unwrap_or_default()))
            .collect();
        ensure!(grown == [128 << 10].into(), "file systems grew by {grown:?} KiB");
        let (took, order) = (begun.elapsed().as_secs_f64(), growth.began.join(", then "));
        self.members.report(&format!("all volumes have {wanted} after {took:.1} s: {order}"));
        ensure!(growth.began.len() == self.servers(), "volumes were seen to grow in {:?} only", growth.began);
        Ok(growth)
    }

    /// Checks that the claim of every server has this size.
    async fn have(&self, wanted: &str) -> Result<()> {
        let claims = claims(&self.members.federation.members, &self.scene.namespace).await?;
        for server in self.pods().servers().await? {
            let is_own = |(cluster, claim): &&(String, PersistentVolumeClaim)| {
                *cluster == server.cluster && claim.name_any() == claim_of(&server.name)
            };
            let has = claims.iter().find(is_own).map(|(_, claim)| capacity(claim));
            ensure!(has.as_deref() == Some(wanted), "the volume of {server} has {has:?} and not {wanted}");
        }
        Ok(())
    }

    /// The size of each server's file system in KiB, as its container sees it.
    async fn file_systems(&self) -> Result<BTreeMap<String, u64>> {
        let mut sizes = BTreeMap::new();
        for server in self.pods().servers().await? {
            let line = self.shell(&server, "df -P -k /data | tail -n 1").await?;
            let size = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok());
            sizes.insert(server.to_string(), size.with_context(|| format!("df answers {line}"))?);
        }
        Ok(sizes)
    }
}

fn size(size: &str) -> Value {
    json!({ "template": { "storage": { "size": size } } })
}

/// Watches claims, servers and the lock. It ends only with an error.
async fn watch(clients: &BTreeMap<String, Client>, pods: &Pods, namespace: &str, growth: &mut Growth) -> Result<()> {
    loop {
        let mut grow = Vec::new();
        for (cluster, claim) in claims(clients, namespace).await? {
            if requested(&claim) != capacity(&claim) {
                grow.push(format!("{} in {cluster}", claim.name_any()));
            }
        }
        ensure!(grow.len() < 2, "{grow:?} grow at the same time");
        growth.began.extend(grow.into_iter().filter(|volume| !growth.began.contains(volume)).collect::<Vec<_>>());
        let servers = pods.servers().await?;
        let down: Vec<String> = servers.iter().filter(|server| !server.ready).map(Server::to_string).collect();
        ensure!(down.len() < 2, "{down:?} are down at the same time");
        if servers.iter().any(|server| server.terminating) {
            growth.locked.extend(lock(pods).await?);
        }
        tokio::time::sleep(PACE).await;
    }
}

/// The server for which an agent holds the restart lock. None if no server says so at present, as in an election.
async fn lock(pods: &Pods) -> Result<Option<i32>> {
    let Ok(client) = connect(&pods.addresses().await?.join(",")).await else { return Ok(None) };
    match client.get_data(RESTART_LOCK_ZNODE).await {
        Ok((text, _)) => Ok(Some(serde_json::from_slice::<RestartLock>(&text)?.server)),
        Err(Error::NoNode) => bail!("a pod ends, and no agent holds the restart lock"),
        Err(_) => Ok(None),
    }
}

/// The claims of a namespace in all clusters.
async fn claims(clients: &BTreeMap<String, Client>, namespace: &str) -> Result<Vec<(String, PersistentVolumeClaim)>> {
    let mut all = Vec::new();
    for (cluster, client) in clients {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        all.extend(api.list(&ListParams::default()).await?.into_iter().map(|claim| (cluster.clone(), claim)));
    }
    Ok(all)
}

fn requested(claim: &PersistentVolumeClaim) -> String {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| requests.get("storage")).map(|size| size.0.clone()).unwrap_or_default()
}

fn capacity(claim: &PersistentVolumeClaim) -> String {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).map(|size| size.0.clone()).unwrap_or_default()
}
