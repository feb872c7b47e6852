//! The operator of Karmada, from its manifests, and an object `Karmada` with its defaults. Only karmada-metrics-adapter
//! has no replicas: the rig does not build its program.

use std::{path::Path, time::Duration};

use anyhow::Result;
use rig::{KARMADA_CRDS, KARMADA_OPERATOR, Rig};
use serde_json::json;

use super::{
    control_plane::{ControlPlane, NAMESPACE},
    ground::{Ground, HOST, display},
    story,
};
use crate::{
    patience::wait_for,
    programs::{self, Process},
};

const PATIENCE: Duration = Duration::from_secs(300);

/// Installs Karmada, joins a member, and plays the story.
pub(super) async fn run(ground: &Ground) -> Result<()> {
    ground.report("the operator of Karmada");
    install(ground).await?;
    let karmada = ControlPlane::forwarded(ground, "karmada-admin-config", "karmada.config").await?;
    ground.report("karmadactl join");
    karmada.join_members(ground).await?;
    story::play(ground, &karmada).await
}

async fn install(ground: &Ground) -> Result<()> {
    ground.import_control_plane().await?;
    let archive = display(&ground.rig.tool(KARMADA_OPERATOR));
    programs::run(Path::new("tar"), &["--extract", "--file", &archive, "--directory", &display(&ground.folder)])
        .await?;
    ground.kubectl(HOST, &["create", "namespace", NAMESPACE]).await?;
    for folder in ["config/crds", "config/deploy"] {
        let folder = display(&ground.folder.join(folder));
        ground.kubectl(HOST, &["apply", "--server-side", "-f", &folder]).await?;
    }
    // It reads the definitions from a server, and by default from the internet.
    let port = ground.rig.free_port()?;
    let address = format!("{}:{port}", Rig::machine_address());
    let definitions = ground.rig.tool(KARMADA_CRDS);
    let folder = definitions.parent().map(display).unwrap_or_default();
    let serve = ["httpd", "-f", "-p", &address, "-h", &folder].map(str::to_owned);
    let server = Process::start(Path::new("busybox"), &serve, &ground.folder.join("httpd.log"))?;
    let file = ground.file("karmada.json", &object(&format!("http://{address}/{KARMADA_CRDS}")))?;
    // The definition of the kind may not be served yet.
    let apply = ["apply", "-f", &file];
    wait_for("the host takes the object", PATIENCE, || ground.kubectl(HOST, &apply)).await?;
    let ready =
        ["-n", NAMESPACE, "wait", "--for=condition=Ready", "--timeout=10s", "karmadas.operator.karmada.io/karmada"];
    wait_for("the operator has installed Karmada", PATIENCE, || ground.kubectl(HOST, &ready)).await?;
    drop(server);
    Ok(())
}

/// An object with the tags of images and the Service that [`ControlPlane::forwarded`] expects.
fn object(definitions: &str) -> String {
    json!({
        "apiVersion": "operator.karmada.io/v1alpha1", "kind": "Karmada",
        "metadata": { "name": "karmada", "namespace": NAMESPACE },
        "spec": {
            "crdTarball": { "httpSource": { "url": definitions } },
            // A list of components must have etcd.
            "components": {
                "etcd": { "local": {} },
                "karmadaAPIServer": { "serviceType": "ClusterIP" },
                "karmadaMetricsAdapter": { "replicas": 0 },
            },
        },
    })
    .to_string()
}
