//! `karmadactl init`, with its defaults. The command itself runs on the machine, as an administrator's does.

use anyhow::{Context, Result, bail};
use rig::KARMADA_CRDS;
use tokio::process::Command;

use super::{
    control_plane::ControlPlane,
    ground::{ETCD_TAG, Ground, HOST, KUBERNETES_TAG, display},
    story,
};

/// Installs Karmada, joins the members, and plays the story.
pub(super) async fn run(ground: &Ground) -> Result<()> {
    ground.report("karmadactl init");
    let karmada = init(ground).await?;
    ground.report("karmadactl join, and karmadactl register");
    karmada.join_members(ground).await?;
    story::play(ground, &karmada).await
}

async fn init(ground: &Ground) -> Result<ControlPlane> {
    ground.import_control_plane().await?;
    let data = ground.folder.join("karmada");
    let mut command = Command::new(ground.rig.tool("karmadactl"));
    command
        .args(["init", "--kubeconfig", &ground.kubeconfig(HOST)])
        .args(["--karmada-data", &display(&data), "--karmada-pki", &display(&data.join("pki"))])
        .args(["--crds", &display(&ground.rig.tool(KARMADA_CRDS))])
        .args(["--kube-image-tag", KUBERNETES_TAG, "--etcd-image", &format!("registry.k8s.io/etcd:{ETCD_TAG}")])
        // It asks a server in the internet for the address of this machine, and goes on without an answer.
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1,10.210.0.0/15")
        .kill_on_drop(true);
    let output = command.output().await.context("cannot run karmadactl")?;
    let kubeconfig = data.join("karmada-apiserver.config");
    if !output.status.success() || !kubeconfig.exists() {
        bail!("karmadactl init: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(ControlPlane { kubeconfig, flags: Vec::new(), has_pull: true, _forward: None })
}
