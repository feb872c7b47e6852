//! Karmada and Kubernetes become another version under a living ensemble, one component after another, on the same data.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::{task::spawn_blocking, time::sleep};

use super::{PATIENCE, Step, StoryContext};
use crate::patience::wait_for;

/// The components of Karmada, in the order of an upgrade. Those of clusters in Pull mode follow.
const KARMADA_COMPONENTS: [&str; 6] = [
    "karmada-apiserver",
    "karmada-kube-controller-manager",
    "karmada-aggregated-apiserver",
    "karmada-controller-manager",
    "karmada-webhook",
    "karmada-scheduler",
];
/// The components of a member cluster, in the order of an upgrade: no kubelet is newer than its API server. The node has
/// the name of its cluster.
const KUBERNETES_COMPONENTS: [&str; 5] =
    ["apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"];
/// The variable with the module of the next Kubernetes.
const NEXT_KUBERNETES: &str = "MCZK_NEXT_KUBERNETES_MODULE";
/// The time in which a replaced component would make mczk restart a server.
const QUIET: Duration = Duration::from_secs(15);

pub const KARMADA: Step = step!(
    "karmada-upgrade",
    karmada_upgrade,
    "Karmada becomes a newer version, one component after another: no server restarts"
);
pub const KUBERNETES: Step = step!(
    "kubernetes-upgrade",
    kubernetes_upgrade,
    "Kubernetes becomes a newer version, one member cluster after another: no server restarts"
);

impl StoryContext<'_> {
    async fn karmada_upgrade(&mut self) -> Result<()> {
        let before = self.running().await?;
        let rig = &self.members.federation.rig;
        let tools = spawn_blocking(|| rig::tools(None)).await??;
        ensure!(rig.tool("karmadactl") != tools.join("karmadactl"), "the federation has this Karmada already");
        rig.define_karmada(&tools).await?;
        let agents = rig.pull_members().iter().map(|member| format!("{member}/karmada-agent"));
        for component in KARMADA_COMPONENTS.map(str::to_owned).into_iter().chain(agents) {
            rig.replace(&component, &tools).await?;
            self.federation_is_healthy(&component).await?;
        }
        sleep(QUIET).await;
        ensure!(self.running().await? == before, "the upgrade of Karmada restarted a server");
        self.nothing_rolled().await
    }

    async fn kubernetes_upgrade(&mut self) -> Result<()> {
        let before = self.running().await?;
        let module = std::env::var_os(NEXT_KUBERNETES).with_context(|| format!("{NEXT_KUBERNETES} names no module"))?;
        let kubernetes = spawn_blocking(move || rig::kubernetes(Path::new(&module))).await??;
        for cluster in self.members.federation.members.keys() {
            let former = self.kubelet_version(cluster).await?;
            for component in KUBERNETES_COMPONENTS {
                let component = format!("{cluster}/{component}");
                self.members.federation.rig.replace(&component, &kubernetes).await?;
                self.federation_is_healthy(&component).await?;
            }
            let next = wait_for("the node reports another version", PATIENCE, || async {
                let now = self.kubelet_version(cluster).await?;
                ensure!(now != former, "the node still reports {former}");
                Ok(now)
            });
            self.members.report(&format!("Kubernetes of {cluster} became {} from {former}", next.await?));
            sleep(QUIET).await;
            ensure!(self.running().await? == before, "the upgrade of Kubernetes in {cluster} restarted a server");
        }
        self.nothing_rolled().await
    }

    /// Waits until all components run, and all nodes and member clusters are ready.
    async fn federation_is_healthy(&self, replaced: &str) -> Result<()> {
        wait_for(&format!("the federation is healthy with another {replaced}"), PATIENCE, || async {
            let status = self.members.federation.rig.status().await?;
            ensure!(status.healthy(), "{status}");
            Ok(())
        })
        .await?;
        self.members.report(&format!("{replaced} is replaced"));
        Ok(())
    }

    async fn kubelet_version(&self, cluster: &str) -> Result<String> {
        let get = ["get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}"];
        self.members.kubectl(cluster, &get).await.context("the version of the kubelet")
    }
}
