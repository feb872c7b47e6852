//! The Helm chart of Karmada, with its defaults, except for what no machine without the internet has:
//!
//! - The chart needs two templates of Bitnami's chart `common`; [`IMAGES`] stands for them.
//! - The chart's job that makes certificates needs the program cfssl. Here `certs.mode` is `custom`, and openssl makes
//!   certificates with the same names.

use std::{fs, path::Path};

use anyhow::Result;
use rig::KARMADA_CHART;
use serde_json::json;

use super::{
    authority::Authority,
    control_plane::{ControlPlane, NAMESPACE},
    ground::{Ground, HOST, display},
    story,
};
use crate::programs;

/// The two templates of the chart `common` that Karmada's chart includes.
const IMAGES: &str = r#"{{- define "common.images.image" -}}
{{- $registry := .imageRoot.registry -}}
{{- if .global -}}{{- $registry = default $registry .global.imageRegistry -}}{{- end -}}
{{- printf "%s/%s:%s" $registry .imageRoot.repository (toString .imageRoot.tag) -}}
{{- end -}}
{{- define "common.images.pullSecrets" -}}{{- end -}}
"#;
const COMMON: &str = "apiVersion: v2\nname: common\ntype: library\nversion: 2.31.4\n";

/// Installs Karmada, joins a member, and plays the story.
pub(super) async fn run(ground: &Ground) -> Result<()> {
    ground.report("helm install karmada");
    install(ground).await?;
    let karmada = ControlPlane::forwarded(ground, "karmada-kubeconfig", "kubeconfig").await?;
    ground.report("karmadactl join");
    karmada.join_members(ground).await?;
    story::play(ground, &karmada).await
}

async fn install(ground: &Ground) -> Result<()> {
    ground.import_control_plane().await?;
    let chart = chart(ground).await?;
    let values = ground.file("values.json", &values(ground).await?)?;
    let kubeconfig = ground.kubeconfig(HOST);
    let install = ["install", "karmada", &chart, "--namespace", NAMESPACE, "--create-namespace"];
    // The chart is written for Helm 3, whose client makes the changes.
    let flags = ["--server-side=false", "--values", &values, "--kubeconfig", &kubeconfig];
    ground.tool("helm", &[&install[..], &flags].concat()).await?;
    let available = ["-n", NAMESPACE, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=300s"];
    ground.kubectl(HOST, &available).await.map(drop)
}

/// The folder of Karmada's chart, with the chart that it needs.
async fn chart(ground: &Ground) -> Result<String> {
    let archive = display(&ground.rig.tool(KARMADA_CHART));
    programs::run(Path::new("tar"), &["--extract", "--file", &archive, "--directory", &display(&ground.folder)])
        .await?;
    let chart = ground.folder.join("karmada");
    let common = chart.join("charts/common");
    fs::create_dir_all(common.join("templates"))?;
    fs::write(common.join("Chart.yaml"), COMMON)?;
    fs::write(common.join("templates/_images.tpl"), IMAGES)?;
    Ok(display(&chart))
}

/// The values that differ from the defaults. Helm reads YAML, which includes JSON.
async fn values(ground: &Ground) -> Result<String> {
    // As `certs.auto.hosts` of the chart.
    let hosts = format!(
        "DNS:kubernetes.default.svc,DNS:*.etcd.{NAMESPACE}.svc.cluster.local,DNS:*.{NAMESPACE}.svc.cluster.local,\
         DNS:*.{NAMESPACE}.svc,DNS:localhost,IP:127.0.0.1"
    );
    let server = Authority::new(&ground.folder, "server-ca").await?;
    let karmada = server.sign("karmada", "/O=system:masters/CN=system:admin", &hosts).await?;
    let proxy = Authority::new(&ground.folder, "front-proxy-ca").await?;
    let client = proxy.sign("front-proxy-client", "/O=system:masters/CN=front-proxy-client", &hosts).await?;
    let custom = json!({
        "caCrt": server.pair.certificate, "caKey": server.pair.key,
        "crt": karmada.certificate, "key": karmada.key,
        "frontProxyCaCrt": proxy.pair.certificate, "frontProxyCrt": client.certificate, "frontProxyKey": client.key,
    });
    Ok(json!({ "certs": { "mode": "custom", "custom": custom } }).to_string())
}
