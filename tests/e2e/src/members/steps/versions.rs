//! Operator, agents and servers of two versions, in every combination.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::{sync::Mutex, time::sleep};

use super::{NAME, PATIENCE, Step, StoryContext, records};
use crate::{
    members::Pods,
    patience::wait_for,
    scene::is_settled,
    versions::Part::{self, Agents, Operator, Servers},
};

/// Changes from one combination to the next. With the first one, in which only the operator is newer, they are all eight.
const CHANGES: [Part; 7] = [Agents, Servers, Operator, Agents, Operator, Servers, Operator];
/// The field that a newer version adds to the server list.
const NEWER_FIELD: &str = "addedLater";
/// The time in which another version of the operator or the agents would restart a server.
const QUIET: Duration = Duration::from_secs(15);
/// The time between two looks at the pods.
const PACE: Duration = Duration::from_millis(500);

pub const NEWER_OPERATOR: Step =
    Step { always: true, ..step!("newer-operator", newer_operator, "the operator is of a newer version") };
pub const COMBINATIONS: Step = step!(
    "combinations",
    combinations,
    "operator, agents and servers are of two versions in every combination: in each, a setting is rolled out while a \
     server is killed, and nothing else restarts"
);

/// The uids of all pods that a server has had, by cluster and name.
type Uids = Arc<Mutex<BTreeMap<(String, String), BTreeSet<String>>>>;

/// Collects the uids of all pods until it is aborted.
async fn collect_uids(pods: Pods, uids: Uids) {
    loop {
        // A cluster that does not answer shows its pods at the next look.
        for server in pods.servers().await.unwrap_or_default() {
            uids.lock().await.entry((server.cluster, server.name)).or_default().insert(server.uid);
        }
        sleep(PACE).await;
    }
}

/// The identity of each server's pod and of its ZooKeeper, by cluster and name.
pub(super) type Running = BTreeMap<(String, String), (String, String)>;

impl StoryContext<'_> {
    async fn newer_operator(&mut self) -> Result<()> {
        self.members.federation.switch(Operator).await.map(drop)
    }

    async fn combinations(&mut self) -> Result<()> {
        ensure!(self.has_newer_field().await?, "the newer operator does not write {NEWER_FIELD}");
        for part in CHANGES {
            self.change_version(part).await?;
            self.roll_while_a_server_is_killed().await?;
        }
        // The older operator did not change the list, so it is the one that the newer operator wrote.
        ensure!(self.has_newer_field().await?, "the list lost {NEWER_FIELD} on its way");
        Ok(())
    }

    /// Changes the version of a part. Only another version of the servers' parents restarts servers.
    async fn change_version(&mut self, part: Part) -> Result<()> {
        let (before, records_before) = (self.running().await?, self.records);
        let is_other = self.members.federation.switch(part).await?;
        self.members.report(&format!("{part:?} change to the {} version", if is_other { "newer" } else { "older" }));
        if part == Servers {
            let restarted = |object: &_| is_settled(object) && records(object).len() == records_before + 1;
            let settled = self.members.until(&self.scene, NAME, PATIENCE, restarted).await?;
            self.records = records(&settled).len();
            return self.all_serve().await;
        }
        if part == Agents {
            self.agents_are_replaced().await?;
        }
        sleep(QUIET).await;
        self.nothing_rolled().await?;
        ensure!(self.running().await? == before, "another version of the {part:?} restarted a server");
        Ok(())
    }

    /// Waits until the agents of all clusters run the declared image.
    async fn agents_are_replaced(&self) -> Result<()> {
        let image = self.members.federation.agent_image();
        for cluster in self.members.federation.members.keys() {
            wait_for(&format!("Karmada propagates {image} to {cluster}"), PATIENCE, || async {
                let of = "jsonpath={.spec.template.spec.containers[*].image}";
                let get = ["get", "deployment/mczk-agent", "-n", "mczk-system", "-o", of];
                let now = self.members.kubectl(cluster, &get).await?;
                ensure!(now == image, "{cluster} has {now}");
                Ok(())
            })
            .await?;
            let wait = ["rollout", "status", "deployment/mczk-agent", "-n", "mczk-system", "--timeout=120s"];
            self.members.kubectl(cluster, &wait).await?;
        }
        Ok(())
    }

    /// Rolls a setting out, and kills a ZooKeeper in the middle. Each pod is replaced once, and no container restarts.
    async fn roll_while_a_server_is_killed(&mut self) -> Result<()> {
        let before = self.running().await?;
        let setting = self.another_setting();
        let generation = self.declare(setting).await?;
        let uids = Arc::new(Mutex::new(BTreeMap::new()));
        let watch = tokio::spawn(collect_uids(self.pods(), uids.clone()));
        let changed = wait_for("the first server is replaced", PATIENCE, || async {
            let now = self.pods().servers().await?;
            let new = now.into_iter().find(|server| {
                let key = (server.cluster.clone(), server.name.clone());
                server.ready && before.get(&key).is_some_and(|(uid, _)| *uid != server.uid)
            });
            new.context("no server is replaced")
        });
        let victim = changed.await?;
        self.kill(&victim).await?;
        self.members.report(&format!("kill -9 of {} in {}", victim.name, victim.cluster));
        self.rolled_out(generation, |_| {}).await?;
        self.all_serve().await?;
        watch.abort();
        for server in self.pods().servers().await? {
            let of = "jsonpath={.status.containerStatuses[*].restartCount}";
            let get = ["get", "pod", &server.name, "-n", &self.scene.namespace, "-o", of];
            let restarts = self.members.kubectl(&server.cluster, &get).await?;
            ensure!(restarts.split(' ').all(|count| count == "0"), "{} restarted {restarts} times", server.name);
        }
        for (server, uids) in uids.lock().await.iter() {
            ensure!(uids.len() == 2, "{server:?} had {} pods during the rollout", uids.len());
        }
        Ok(())
    }

    /// The pods of all servers, and the process ids of their ZooKeepers.
    pub(super) async fn running(&self) -> Result<Running> {
        let mut running = Running::new();
        for server in self.pods().servers().await? {
            let id = self.shell(&server, "pidof java").await?;
            running.insert((server.cluster, server.name), (server.uid, id));
        }
        Ok(running)
    }

    /// True if the list in every cluster has the newer field.
    async fn has_newer_field(&self) -> Result<bool> {
        let mut all = true;
        for cluster in self.members.federation.members.keys() {
            let of = format!("jsonpath={{.spec.ensemble.{NEWER_FIELD}}}");
            let get = ["get", "zookeepers.mczk.io", NAME, "-n", &self.scene.namespace, "-o", &of];
            all &= self.members.kubectl(cluster, &get).await? == "true";
        }
        Ok(all)
    }
}
