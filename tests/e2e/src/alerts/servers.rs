//! Faults of the webhook, of the operator's rights, and of what agents and simulated servers report.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use mczk_api::contract::{
    control_api::Disk,
    labels::{ENSEMBLE_LABEL, FAILOVER, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL},
};
use serde_json::json;

use super::{Stage, stage::ENSEMBLES};
use crate::{
    agent::{Agents, Condition},
    programs,
    scene::ensemble,
};

/// Time between two malformed requests.
const PACE: Duration = Duration::from_millis(300);
/// The cluster whose servers report faults.
const CLUSTER: &str = "m1";
/// The cluster without an agent.
const SILENT: &str = "m2";
/// The binding of the operator's rights outside of single namespaces.
const BINDING: &str = "mczk-operator";
/// A ConfigMap and a claim of an incarnation that no server list names. Without a claim the agent deletes the ConfigMap.
const FORMER: &str = "former-incarnation";

/// Sends a request that the webhook does not understand.
async fn send(ca: &str, url: &str) -> Result<()> {
    let json = "Content-Type: application/json";
    let quiet = ["--silent", "--show-error", "--output", "/dev/null", "--max-time", "5"];
    let request = ["--cacert", ca, "--header", json, "--data", "{}", url];
    programs::run(Path::new("curl"), &[&quiet[..], &request[..]].concat()).await.map(drop)
}

impl Stage<'_> {
    pub(super) async fn send_malformed_requests(&mut self) -> Result<()> {
        let (ca, url) = (self.federation.authority().display().to_string(), self.federation.webhook_url());
        // The first failure is the test's: curl is missing, or cannot connect.
        send(&ca, &url).await?;
        self.client = Some(tokio::spawn(async move {
            loop {
                // The alert does not fire if too many fail.
                let _ = send(&ca, &url).await;
                tokio::time::sleep(PACE).await;
            }
        }));
        Ok(())
    }

    pub(super) async fn end_malformed_requests(&mut self) -> Result<()> {
        if let Some(client) = self.client.take() {
            client.abort();
            // It ends with the error that it was aborted.
            let _ = client.await;
        }
        Ok(())
    }

    async fn certificate(&self, days: &str) -> Result<()> {
        let folder = self.federation.folder.join("certs").display().to_string();
        self.federation.run(&["certs", "--dir", &folder, "--renew", "--validity-days", days]).await.map(drop)
    }

    pub(super) async fn shorten_certificate(&mut self) -> Result<()> {
        self.certificate("7").await
    }

    pub(super) async fn renew_certificate(&mut self) -> Result<()> {
        self.certificate("365").await
    }

    pub(super) async fn remove_rights(&mut self) -> Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.federation.karmada.clone());
        bindings.delete(BINDING, &DeleteParams::default()).await?;
        // At rest the operator writes nothing, and nothing would fail.
        for name in ENSEMBLES {
            self.change_image(name).await?;
        }
        Ok(())
    }

    pub(super) async fn restore_rights(&mut self) -> Result<()> {
        self.federation.register().await?;
        for name in ENSEMBLES {
            self.scene()?.settled(name).await?;
        }
        Ok(())
    }

    fn agents(&self) -> Result<&Agents> {
        self.federation.agents.as_ref().context("the agents do not run in this process")
    }

    pub(super) async fn silence_agent(&mut self) -> Result<()> {
        self.agents()?.kill(SILENT);
        self.scene()?.create(&ensemble("late", 3, &json!({}))).await.map(drop)
    }

    pub(super) async fn restart_silent_agent(&mut self) -> Result<()> {
        let client = self.federation.members.get(SILENT).cloned().context("there is no such cluster")?;
        self.agents()?.restart(SILENT, client);
        self.scene()?.settled("late").await?;
        self.scene()?.delete("late").await
    }

    /// An ensemble of m1 and m2, with voters that shall be elsewhere.
    async fn create_with_spare(&self, name: &str, spare: &str, places: Option<&str>) -> Result<()> {
        let more = json!({
            "placement": { "clusterAffinity": { "clusterNames": ["m1", "m2"] } }, "failover": { "spares": [spare] },
        });
        let mut object = ensemble(name, 3, &more);
        let metadata = object.pointer_mut("/metadata").context("an object has metadata")?;
        let annotations: BTreeMap<&str, &str> = places.into_iter().map(|places| (FAILOVER, places)).collect();
        *metadata = json!({ "name": name, "annotations": annotations });
        self.scene()?.create(&object).await.map(drop)
    }

    pub(super) async fn request_unknown_spare(&mut self) -> Result<()> {
        self.create_with_spare("waits", "m9", Some("m2=m9")).await?;
        self.create_with_spare("unready", "m9", None).await
    }

    pub(super) async fn delete_waiting(&mut self) -> Result<()> {
        self.scene()?.delete("waits").await?;
        self.scene()?.delete("unready").await
    }

    pub(super) async fn move_voters(&mut self) -> Result<()> {
        self.create_with_spare("moved", "m3", Some("m1=m3")).await
    }

    /// A deletion leaves a tombstone for a home whose voters are elsewhere.
    pub(super) async fn delete_moved(&mut self) -> Result<()> {
        self.scene()?.command(&["failover", "moved", "--back", "m1", "--wait"]).await?;
        self.scene()?.settled("moved").await?;
        self.scene()?.delete("moved").await
    }

    fn member(&self) -> Result<Client> {
        self.federation.members.get(CLUSTER).cloned().context("there is no such cluster")
    }

    pub(super) async fn leave_former_incarnation(&mut self) -> Result<()> {
        let labels = json!({ ENSEMBLE_LABEL: "zoo", MANAGED_BY_LABEL: MANAGED_BY_AGENT, INCARNATION_LABEL: "former" });
        let metadata = json!({ "name": FORMER, "labels": labels });
        let storage = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        let claim = serde_json::from_value(json!({ "metadata": metadata, "spec": storage }))?;
        let config = serde_json::from_value(json!({ "metadata": metadata }))?;
        let (client, namespace) = (self.member()?, &self.scene()?.namespace);
        Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace)
            .create(&PostParams::default(), &claim)
            .await?;
        Api::<ConfigMap>::namespaced(client, namespace).create(&PostParams::default(), &config).await?;
        Ok(())
    }

    pub(super) async fn remove_former_incarnation(&mut self) -> Result<()> {
        let (client, namespace) = (self.member()?, &self.scene()?.namespace);
        Api::<ConfigMap>::namespaced(client.clone(), namespace).delete(FORMER, &DeleteParams::default()).await?;
        Api::<PersistentVolumeClaim>::namespaced(client, namespace).delete(FORMER, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The servers of a cluster report this, until a condition of an ensemble shows it.
    async fn servers_report(&self, condition: Condition, shown: [&str; 3]) -> Result<()> {
        let scene = self.scene()?;
        self.agents()?.set_condition(CLUSTER, &scene.namespace, condition);
        let [type_, status, reason] = shown;
        scene.condition("zoo", type_, status, reason).await.map(drop)
    }

    pub(super) async fn fill_volumes(&mut self) -> Result<()> {
        let full = Condition { disk: Some(disk(100)?), ..Condition::default() };
        self.servers_report(full, ["Degraded", "True", "DiskFillsUp"]).await
    }

    pub(super) async fn corrupt_volumes(&mut self) -> Result<()> {
        let corrupt = Condition { corrupt: true, ..Condition::default() };
        self.servers_report(corrupt, ["Degraded", "True", "VolumeCorrupt"]).await
    }

    pub(super) async fn report_unsafe_version(&mut self) -> Result<()> {
        let version = Condition { version: Some("3.9.3".to_owned()), ..Condition::default() };
        self.servers_report(version, ["UnsafeVersion", "True", "LosesWrites"]).await
    }

    pub(super) async fn restore_servers(&mut self) -> Result<()> {
        let whole = Condition { disk: Some(disk(900)?), version: Some("3.9.4".to_owned()), ..Condition::default() };
        self.servers_report(whole, ["Degraded", "False", "Healthy"]).await
    }
}

/// A volume of 1000 bytes with this many left. The type has no constructor for other crates.
fn disk(available: u32) -> Result<Disk> {
    Ok(serde_json::from_value(json!({ "size": 1000, "available": available, "setAside": [] }))?)
}
