//! The loss of the control plane, under a client that writes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mczk_api::{MultiClusterZooKeeper, tls::EnsembleTls};
use zookeeper_client::{Acls, Client, CreateMode};

use super::{NAME, Step, StoryContext, records};
use crate::{
    agent::Behaviour,
    scene::{Scene, is_settled},
};

/// The znode of a session that lasts through the step.
const SESSION: &str = "/session";
/// The longest time of the adoption. A kubelet takes a minute to update a mounted Secret.
const ADOPTED: Duration = Duration::from_secs(600);

pub const LOST: Step = step!(
    "control-plane-lost",
    control_plane_lost,
    "the control plane is lost and built again: the object that is created again adopts the servers, and none restarts"
);

fn certificates(object: &MultiClusterZooKeeper) -> Option<EnsembleTls> {
    object.status.as_ref()?.ensemble.as_ref()?.tls.clone()
}

impl StoryContext<'_> {
    async fn control_plane_lost(&mut self) -> Result<()> {
        let former = self.incarnation().await?.context("the status names no incarnation")?;
        let before = self.uids().await?;
        let tls = certificates(&self.scene.get(NAME).await?).context("the status names no certificates")?;
        let addresses = self.addresses().await?.join(",");
        let session = Client::connect(&addresses).await?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        session.create(SESSION, b"", &ephemeral).await?;

        self.members.federation.rebuild_control_plane().await?;
        self.members.report("the control plane is lost, and another one serves the same member clusters");
        let name = self.scene.namespace.trim_start_matches("e2e-").to_owned();
        self.scene = Scene::new(self.members.federation, &name, Behaviour::default()).await?;
        self.members.install_agents().await?;
        self.create().await?;
        let message = self.scene.condition(NAME, "Ready", "False", "IncarnationLives").await?;
        self.members.report(&message.chars().take(120).collect::<String>());

        let begun = Instant::now();
        self.scene.command(&["adopt", NAME, &former]).await?;
        let is_new = |now: EnsembleTls| now.trust.len() == 1 && now.trust != tls.trust;
        let is_done = |object: &MultiClusterZooKeeper| certificates(object).is_some_and(is_new) && is_settled(object);
        let adopted = self.members.until(&self.scene, NAME, ADOPTED, is_done).await?;
        self.records = records(&adopted).len();
        self.members.report(&format!("adopted after {:.1} s", begun.elapsed().as_secs_f64()));
        ensure!(self.uids().await? == before, "a server was restarted");
        ensure!(session.check_stat(SESSION).await?.is_some(), "a client has lost its session");
        session.delete(SESSION, None).await?;
        self.former_secrets_deleted(&tls).await?;
        self.scene.members_match(NAME).await?;
        // Every server opens new connections, with the new authority.
        let setting = self.another_setting();
        self.roll(setting).await
    }

    /// The user deletes the Secrets of the authority whose key was lost, as the documentation says.
    async fn former_secrets_deleted(&self, tls: &EnsembleTls) -> Result<()> {
        let names: Vec<&str> = tls.secrets().map(String::as_str).collect();
        for cluster in self.members.federation.members.keys() {
            let delete = [&["delete", "secrets", "--ignore-not-found"][..], &names].concat();
            self.members.kubectl(cluster, &self.in_namespace(&delete)).await?;
        }
        Ok(())
    }
}
