//! Karmada's components, and the objects that its control plane needs before a cluster can join.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::api::{Api, wait_for};
use crate::command::run;
use crate::control_plane::{Cluster, KARMADA, Plan};
use crate::layout::{Component, write};
use crate::pki;
use crate::progress::Progress;
use crate::tools::{KARMADA_RESOURCES, KARMADA_WEBHOOKS};

pub(crate) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const AGGREGATED: &str = "karmada-aggregated-apiserver";

/// Karmada notices the state of a member cluster within seconds; with its defaults, a test would wait for minutes.
/// karmada-controller-manager and karmada-agent take the same flags.
pub(crate) const CLUSTER_FLAGS: [&str; 3] =
    ["--cluster-status-update-frequency=5s", "--cluster-failure-threshold=10s", "--cluster-success-threshold=10s"];

impl Plan {
    /// The feature gates: Karmada's defaults, or all.
    pub(crate) fn gates(&self) -> Option<String> {
        self.state.all_feature_gates.then(|| "--feature-gates=AllAlpha=true,AllBeta=true".to_owned())
    }

    /// A component that is a client of Karmada's API server, as its own user.
    fn karmada_component(&self, name: &str, flags: Vec<String>) -> Component {
        let mut all = vec![format!("--kubeconfig={}", self.layout.kubeconfig(name).display())];
        all.extend(flags);
        self.component(&self.karmada(), name, name, all)
    }

    fn aggregated_apiserver(&self) -> Component {
        let cluster = self.karmada();
        let kubeconfig = self.layout.kubeconfig(AGGREGATED);
        let pki = self.layout.pki(&cluster.name);
        let mut flags = self.etcd_flags(&cluster, "karmada-aggregated");
        flags.extend([
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
            format!("--tls-cert-file={}/server.crt", pki.display()),
            format!("--tls-private-key-file={}/server.key", pki.display()),
            // Karmada's API server reaches it as `localhost`, and not by the address of a node.
            format!("--bind-address={}", if cluster.place.is_some() { Ipv4Addr::UNSPECIFIED } else { cluster.address }),
            format!("--secure-port={}", self.ports.aggregated_apiserver()),
        ]);
        flags.extend(self.gates());
        self.karmada_component(AGGREGATED, flags)
    }

    fn webhook(&self) -> Result<Component> {
        let cluster = self.karmada();
        let mut flags = vec![
            format!("--bind-address={}", cluster.address),
            format!("--secure-port={}", self.ports.webhook()),
            format!("--cert-dir={}", pki::webhook_folder(&self.layout.pki(&cluster.name))?.display()),
        ];
        flags.extend(probes(&cluster, self.ports.webhook_probes()));
        flags.extend(self.gates());
        Ok(self.karmada_component("karmada-webhook", flags))
    }

    fn controller_manager(&self) -> Component {
        let mut flags: Vec<String> = CLUSTER_FLAGS.map(str::to_owned).into();
        flags.extend([
            "--leader-elect=false".into(),
            "--cluster-monitor-grace-period=20s".into(),
            // Without this flag and the gate, a NoExecute taint evicts nothing.
            "--enable-no-execute-taint-eviction=true".into(),
            self.gates().unwrap_or_else(|| "--feature-gates=Failover=true".to_owned()),
        ]);
        flags.extend(probes(&self.karmada(), self.ports.controllers_probes()));
        self.karmada_component("karmada-controller-manager", flags)
    }

    fn scheduler(&self) -> Component {
        let mut flags = vec!["--leader-elect=false".to_owned()];
        flags.extend(probes(&self.karmada(), self.ports.scheduler_probes()));
        flags.extend(self.gates());
        self.karmada_component("karmada-scheduler", flags)
    }

    fn webhook_url(&self) -> String {
        format!("https://{}:{}", self.karmada().address, self.ports.webhook())
    }

    async fn apply(&self, manifest: &str, from: &str, server_side: bool) -> Result<()> {
        let source = self.state.tools.join(manifest);
        let text = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
        let text =
            text.replace("{{caBundle}}", &pki::bundle(&self.layout, KARMADA)?).replace(from, &self.webhook_url());
        let file = self.layout.etc().join(manifest);
        write(&file, text.as_bytes())?;
        let mut kubectl = Command::new(self.state.tools.join("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(self.layout.kubeconfig(KARMADA))
            .args(["apply", &format!("--server-side={server_side}"), "-f"])
            .arg(file);
        run(kubectl).await.map(drop)
    }

    /// Applies Karmada's definitions.
    pub(crate) async fn define(&self) -> Result<()> {
        let applied = self.apply(KARMADA_RESOURCES, "https://{{name}}.{{namespace}}.svc:443", true).await;
        applied.context("cannot apply Karmada's definitions")
    }

    /// Applies Karmada's admission webhooks.
    pub(crate) async fn admit(&self) -> Result<()> {
        let applied = self.apply(KARMADA_WEBHOOKS, "https://karmada-webhook.karmada-system.svc:443", false).await;
        applied.context("cannot apply Karmada's admission webhooks")
    }

    /// Starts Karmada's components except its API server. Returns when clusters can join.
    pub(crate) async fn start_karmada(&self, progress: &Progress) -> Result<()> {
        let api = Api::of(&self.layout.kubeconfig(KARMADA)).await?;
        api.wait_ready("karmada-apiserver").await?;
        progress.print("karmada-apiserver ready");
        self.launch(&self.kube_controllers(&self.karmada()))?;
        self.launch(&self.aggregated_apiserver())?;

        api.create("/api/v1/namespaces", &json!({"metadata": {"name": "karmada-system"}})).await?;
        api.create(
            "/api/v1/namespaces/karmada-system/services",
            &json!({"metadata": {"name": AGGREGATED}, "spec": {"type": "ExternalName", "externalName": "localhost"}}),
        )
        .await?;
        api.create(
            "/apis/apiregistration.k8s.io/v1/apiservices",
            &json!({
                "metadata": {"name": "v1alpha1.cluster.karmada.io"},
                "spec": {
                    "caBundle": pki::bundle(&self.layout, KARMADA)?,
                    "group": "cluster.karmada.io",
                    "version": "v1alpha1",
                    "groupPriorityMinimum": 2000,
                    "versionPriority": 10,
                    "service": {
                        "namespace": "karmada-system",
                        "name": AGGREGATED,
                        "port": self.ports.aggregated_apiserver(),
                    },
                },
            }),
        )
        .await?;
        self.define().await?;
        wait_for("the aggregated API answers", || async { api.get(CLUSTERS).await.map(Some) }).await?;
        progress.print("Karmada's APIs ready");

        // karmada-webhook exits unless the aggregated API answers.
        self.launch(&self.webhook()?)?;
        self.launch(&self.controller_manager())?;
        self.launch(&self.scheduler())?;
        let authority = self.layout.pki(KARMADA).join("ca.crt");
        Api::at(&self.webhook_url(), &authority)?.wait_ready("karmada-webhook").await?;
        self.admit().await?;
        progress.print("Karmada's components started");
        Ok(())
    }
}

pub(crate) fn probes(cluster: &Cluster, (metrics, health): (u16, u16)) -> [String; 2] {
    [
        format!("--metrics-bind-address={}:{metrics}", cluster.address),
        format!("--health-probe-bind-address={}:{health}", cluster.address),
    ]
}
