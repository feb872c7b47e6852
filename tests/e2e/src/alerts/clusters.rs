//! Faults of member clusters: their API servers stop. Simulated servers run on, but nothing reports them.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use mczk_api::MultiClusterZooKeeper;

use super::Stage;
use crate::{
    patience::wait_for,
    scene::{PATIENCE, Scene},
};

/// The ensemble that the fault changes.
const CHANGED: &str = "zoo";
/// The ensemble that the fault deletes.
const DELETED: &str = "gone";

impl Stage<'_> {
    async fn stop_api_server(&self, cluster: &str) -> Result<()> {
        self.federation.rig.stop(&format!("{cluster}/apiserver")).await
    }

    async fn start_api_server(&self, cluster: &str) -> Result<()> {
        self.federation.rig.start(&format!("{cluster}/apiserver")).await?;
        self.federation.rig.ready(cluster).await
    }

    pub(super) async fn stop_cluster(&mut self) -> Result<()> {
        self.stop_api_server("m2").await?;
        self.scene()?.condition(CHANGED, "Degraded", "True", "ClusterUnreachable").await?;
        self.change_image(CHANGED).await?;
        let api = self.scene()?.api::<MultiClusterZooKeeper>();
        api.delete(DELETED, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(super) async fn start_cluster(&mut self) -> Result<()> {
        self.start_api_server("m2").await?;
        self.scene()?.settled(CHANGED).await?;
        nothing_is_left(self.scene()?).await
    }

    pub(super) async fn stop_two_clusters(&mut self) -> Result<()> {
        self.stop_api_server("m1").await?;
        self.stop_api_server("m2").await
    }

    pub(super) async fn start_two_clusters(&mut self) -> Result<()> {
        self.start_api_server("m1").await?;
        self.start_api_server("m2").await?;
        self.scene()?.settled(CHANGED).await.map(drop)
    }
}

async fn nothing_is_left(scene: &Scene<'_>) -> Result<()> {
    wait_for(&format!("nothing is left of {DELETED}"), PATIENCE, || async {
        let left = scene.left(DELETED).await?;
        ensure!(left.is_empty(), "{}", left.join(", "));
        Ok(())
    })
    .await
}
