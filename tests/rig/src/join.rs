//! Joins a member cluster to Karmada, in Push mode or, with a karmada-agent, in Pull mode.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::api::{Api, wait_for};
use crate::command::run;
use crate::control_plane::{Cluster, KARMADA, Plan};
use crate::karmada::{CLUSTER_FLAGS, CLUSTERS, probes};
use crate::layout::Component;

impl Plan {
    pub(crate) async fn join(&self, member: &Cluster) -> Result<()> {
        if self.state.pull.contains(&member.name) {
            return self.launch(&self.agent(member));
        }
        run(self.karmadactl("join", member)).await.with_context(|| format!("{} cannot join", member.name)).map(drop)
    }

    /// Removes a member cluster in Push mode from Karmada.
    pub(crate) async fn unjoin(&self, member: &Cluster) -> Result<()> {
        let name = &member.name;
        ensure!(!self.state.pull.contains(name), "{name} is in Pull mode: its karmada-agent would join it again");
        run(self.karmadactl("unjoin", member)).await.with_context(|| format!("{name} cannot unjoin")).map(drop)
    }

    fn karmadactl(&self, verb: &str, member: &Cluster) -> Command {
        let mut karmadactl = Command::new(self.state.tools.join("karmadactl"));
        karmadactl
            .args([verb, &member.name, "--kubeconfig"])
            .arg(self.layout.kubeconfig("karmadactl"))
            .arg("--cluster-kubeconfig")
            .arg(self.layout.kubeconfig(&member.name));
        karmadactl
    }

    /// karmada-agent, which registers its cluster itself.
    fn agent(&self, member: &Cluster) -> Component {
        let name = format!("{}-karmada-agent", member.name);
        let mut flags: Vec<String> = CLUSTER_FLAGS.map(str::to_owned).into();
        flags.extend([
            format!("--karmada-kubeconfig={}", self.layout.kubeconfig(&name).display()),
            format!("--kubeconfig={}", self.layout.kubeconfig(&member.name).display()),
            format!("--cluster-name={}", member.name),
            format!("--cluster-api-endpoint={}", self.url(member)),
            "--leader-elect=false".into(),
            // Karmada regards a cluster as lost 20 s after its last lease; by default the agent renews it every 10 s.
            "--cluster-lease-duration=20s".into(),
        ]);
        flags.extend(probes(member, self.ports.agent_probes(member.index.into())));
        flags.extend(self.gates());
        self.component(member, &format!("{}/karmada-agent", member.name), "karmada-agent", flags)
    }

    /// Waits until all member clusters are Ready in Karmada.
    pub(crate) async fn wait_members_ready(&self) -> Result<()> {
        let api = Api::of(&self.layout.kubeconfig(KARMADA)).await?;
        wait_for("all member clusters are Ready in Karmada", || async {
            let joined = joined(&api).await?;
            let all = self.state.names().iter().all(|name| joined.iter().any(|c| c.name == *name && c.ready));
            Ok(all.then_some(()))
        })
        .await
    }
}

/// The state of a member cluster in Karmada.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The name of the cluster, as in `m1`.
    pub name: String,
    /// `Push` or `Pull`.
    pub mode: String,
    /// True if its condition `Ready` is `True`.
    pub ready: bool,
    /// The reason of that condition.
    pub reason: String,
    /// True while Karmada removes it.
    pub leaves: bool,
}

pub(crate) async fn joined(api: &Api) -> Result<Vec<Joined>> {
    let list = api.get(CLUSTERS).await?;
    let items = list.get("items").and_then(Value::as_array).context("not a list of clusters")?;
    Ok(items.iter().map(read).collect())
}

fn read(item: &Value) -> Joined {
    let text = |path: &str| item.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned();
    let ready = item
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .and_then(|all| all.iter().find(|c| c.get("type").is_some_and(|t| t == "Ready")));
    Joined {
        name: text("/metadata/name"),
        mode: text("/spec/syncMode"),
        ready: ready.and_then(|c| c.get("status")).is_some_and(|s| s == "True"),
        leaves: item.pointer("/metadata/deletionTimestamp").is_some(),
        reason: ready.and_then(|c| c.get("reason")).and_then(Value::as_str).unwrap_or("NoStatusYet").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_without_a_status_is_not_ready() {
        let fresh = read(&json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Push"}}));
        assert!(!fresh.ready);
        assert_eq!(fresh.reason, "NoStatusYet");
        let ready = read(&json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}, "status": {"conditions": [
            {"type": "Other", "status": "False", "reason": "X"},
            {"type": "Ready", "status": "True", "reason": "ClusterReady"}]}}));
        assert!(ready.ready);
        assert_eq!((ready.mode.as_str(), ready.reason.as_str()), ("Pull", "ClusterReady"));
    }
}
