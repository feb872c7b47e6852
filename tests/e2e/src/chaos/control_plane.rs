//! The loss of the control plane, and its return to an older copy. Users do what the documentation tells them.

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use anyhow::{Context, Result, ensure};
use mczk_api::MultiClusterZooKeeper;
use serde_json::json;

use super::{
    apply::{Applied, Undo},
    moves::placed,
    operations::Kind,
    world::{Declared, NAME, World},
};
use crate::{agent::Behaviour, patience::wait_for, scene::Scene};

/// The longest time until the API server takes the adoption.
const ADOPTS: Duration = Duration::from_secs(60);
/// The longest time until every cluster of the adopted list has reported.
const TAKES_OVER: Duration = Duration::from_secs(600);

impl World<'_> {
    /// Loses Karmada's data, or copies them so that they can return.
    pub(super) async fn lose_control_plane(&self, kind: Kind) -> Result<Applied> {
        let rig = &self.members.federation.rig;
        if kind == Kind::RestoreControlPlane {
            let copy = self.members.federation.folder.join("karmada.json");
            self.soon(rig.copy_karmada(&copy)).await?;
            // A later authority is lost with the data.
            self.has_lost_secrets.store(true, Ordering::Relaxed);
            return Ok(Applied::new("a copy", Some(Undo::Restored(copy))));
        }
        let object = self.soon(self.scene.get(NAME)).await?;
        let incarnation = object.status.and_then(|status| status.ensemble).context("no server list")?.incarnation;
        let _starts = self.operator.lock().await;
        self.has_lost_secrets.store(true, Ordering::Relaxed);
        // Half of Karmada may be lost now: it is built again in any case.
        let lost = rig.lose_karmada().await;
        let failed = lost.err().map(|error| format!(", {error:#}")).unwrap_or_default();
        Ok(Applied::new(format!("incarnation {incarnation}{failed}"), Some(Undo::Rebuilt(incarnation))))
    }

    /// Builds a new control plane, creates the ensemble again, and adopts its servers. It may be called again.
    pub(super) async fn rebuild_control_plane(&self, incarnation: &str) -> Result<()> {
        let _starts = self.operator.lock().await;
        self.members.federation.rebuild_control_plane().await?;
        let name = self.scene.namespace.trim_start_matches("e2e-");
        Scene::new(self.members.federation, name, Behaviour::default()).await?;
        self.members.install_agents().await?;
        let _order = self.changing.lock().await;
        // The last change of the placement may not have reached the servers: they are adopted where they are.
        let everywhere = Declared { placement: self.clusters.clone(), ..self.declared().clone() };
        let object = everywhere.object(&self.clusters)?;
        if self.scene.get(NAME).await.is_err() {
            self.scene.create(&object).await?;
        }
        let adopt = ["adopt", NAME, incarnation];
        wait_for("the ensemble is adopted", ADOPTS, || self.scene.command(&adopt)).await?;
        wait_for("the operator takes the server list over", TAKES_OVER, || async {
            let status = self.scene.get(NAME).await?.status.and_then(|status| status.ensemble);
            ensure!(status.is_some_and(|ensemble| ensemble.incarnation == incarnation), "it has not");
            Ok(())
        })
        .await?;
        let placement = self.declared().placement.clone();
        let wanted = placed(&placement, &self.clusters);
        self.declare(wanted).await
    }

    /// Takes the control plane back to a copy, and declares again what the user has declared since. It may be called again.
    pub(super) async fn restore_control_plane(&self, copy: &Path) -> Result<()> {
        let _starts = self.operator.lock().await;
        self.members.federation.restore_control_plane(copy).await?;
        let _order = self.changing.lock().await;
        let mut object = self.object()?;
        let mut spec = object.get_mut("spec").map(serde_json::Value::take).context("the object has no spec")?;
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("rollout".to_owned(), json!({ "paused": false }));
        }
        self.declare(spec).await
    }

    /// Deletes the Secrets of an authority that was lost from the member clusters, as documented, once nothing uses them.
    pub(super) async fn delete_lost_secrets(&self, object: &MultiClusterZooKeeper) -> Result<()> {
        let list = object.status.as_ref().and_then(|status| status.ensemble.as_ref()).context("no server list")?;
        let used: Vec<&String> = list.tls.iter().flat_map(mczk_api::tls::EnsembleTls::secrets).collect();
        for cluster in &self.clusters {
            let secrets = self.soon(self.scene.secrets(cluster, NAME)).await?;
            let of_quorum = secrets.keys().filter(|name| name.contains("-identity-") || name.contains("-trust-"));
            for secret in of_quorum.filter(|name| !used.contains(name)) {
                self.kubectl(cluster, &["delete", "secret", secret, "--ignore-not-found"]).await?;
            }
        }
        Ok(())
    }
}
