//! A control plane of Karmada in pods of the host.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::json;

use super::ground::{Ground, HOST, PULL, PUSH, display};
use crate::{federation::client, patience::wait_for, programs::Process};

/// The namespace of Karmada in the host.
pub(super) const NAMESPACE: &str = "karmada-system";
const SERVICE: &str = "service/karmada-apiserver";
const PORT: u16 = 5443;
const PATIENCE: Duration = Duration::from_secs(120);

/// What an administrator knows after the installation of Karmada.
pub(super) struct ControlPlane {
    /// The administrator's kubeconfig, as `docs/how-to/install-layouts.md` finds it.
    pub(super) kubeconfig: PathBuf,
    /// The flags of `mczk install` that this page names for the layout.
    pub(super) flags: Vec<String>,
    /// True if the cluster [`PULL`] joins.
    pub(super) has_pull: bool,
    /// Forwards a port of the machine to karmada-apiserver. It ends with this value.
    pub(super) _forward: Option<Process>,
}

impl ControlPlane {
    /// The commands of `docs/how-to/install-layouts.md` for a server that only the host resolves: the kubeconfig of a
    /// Secret, through a forwarded port.
    ///
    /// # Errors
    /// If there is no such Secret, or karmada-apiserver does not answer.
    pub(super) async fn forwarded(ground: &Ground, secret: &str, key: &str) -> Result<Self> {
        let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
        let text = ground.kubectl(HOST, &["-n", NAMESPACE, "get", "secret", secret, "-o", &path]).await?;
        let secret = serde_json::from_value::<ByteString>(json!(text)).context("the Secret holds no base64 text")?;
        let file = ground.file("karmada.kubeconfig", &String::from_utf8(secret.0)?)?;
        let clusters = ground.tool("kubectl", &["--kubeconfig", &file, "config", "get-clusters"]).await?;
        let cluster = clusters.lines().nth(1).context("the kubeconfig has no cluster")?;
        let port = ground.rig.free_port()?;
        let server = format!("https://127.0.0.1:{port}");
        let change = ["--kubeconfig", &file, "config", "set-cluster", cluster, "--server", &server];
        ground.tool("kubectl", &change).await?;
        let forward = ["-n", NAMESPACE, "port-forward", SERVICE, &format!("{port}:{PORT}")].map(str::to_owned);
        let arguments = [vec!["--kubeconfig".to_owned(), ground.kubeconfig(HOST)], forward.to_vec()].concat();
        let forward = Process::start(&ground.rig.tool("kubectl"), &arguments, &ground.folder.join("forward.log"))?;
        let inside = format!("https://karmada-apiserver.{NAMESPACE}.svc.cluster.local:{PORT}");
        let flags = vec!["--karmada-server".to_owned(), inside];
        let karmada = Self { kubeconfig: file.into(), flags, has_pull: false, _forward: Some(forward) };
        wait_for("karmada-apiserver answers through the forwarded port", PATIENCE, || async {
            let answer = karmada.kubectl(ground, &["get", "--raw", "/readyz"]).await?;
            ensure!(answer == "ok", "{answer}");
            Ok(())
        })
        .await?;
        Ok(karmada)
    }

    /// A client with the administrator's rights.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub(super) async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// Runs `kubectl` against karmada-apiserver.
    ///
    /// # Errors
    /// If it fails, with its standard error.
    pub(super) async fn kubectl(&self, ground: &Ground, arguments: &[&str]) -> Result<String> {
        let kubeconfig = display(&self.kubeconfig);
        ground.tool("kubectl", &[&["--kubeconfig", kubeconfig.as_str()][..], arguments].concat()).await
    }

    /// Joins [`PUSH`] by `karmadactl join`. With [`ControlPlane::has_pull`] it also joins [`PULL`] by `karmadactl
    /// register`, whose karmada-agent runs in a pod there. Waits until Karmada reports them Ready.
    ///
    /// # Errors
    /// If a cluster cannot join or is not Ready in time.
    pub(super) async fn join_members(&self, ground: &Ground) -> Result<()> {
        let kubeconfig = display(&self.kubeconfig);
        let member = ground.kubeconfig(PUSH);
        let join = ["join", PUSH, "--kubeconfig", &kubeconfig, "--cluster-kubeconfig", &member];
        ground.tool("karmadactl", &join).await.context("a cluster of mode Push cannot join")?;
        let mut wait = vec!["wait", "--for=condition=Ready", "--timeout=5s", "cluster", PUSH];
        if self.has_pull {
            register(ground, &kubeconfig).await.context("a cluster of mode Pull cannot join")?;
            wait.push(PULL);
        }
        // kubectl fails at once if a cluster is unknown: a karmada-agent registers its own after its start.
        wait_for("the members are Ready", PATIENCE, || self.kubectl(ground, &wait)).await.map(drop)
    }
}

async fn register(ground: &Ground, kubeconfig: &str) -> Result<()> {
    let image = format!("docker.io/karmada/karmada-agent:{}", ground.karmada_version().await?);
    ground.rig.import_tools(&["karmada-agent"], &[&image], &[PULL]).await?;
    let token = ["token", "create", "--print-register-command", "--kubeconfig", kubeconfig];
    let printed = ground.tool("karmadactl", &token).await?;
    let member = ground.kubeconfig(PULL);
    let mut command = arguments(&printed).with_context(|| format!("no command in {printed}"))?;
    command.extend(["--cluster-name", PULL, "--kubeconfig", &member]);
    ground.tool("karmadactl", &command).await.map(drop)
}

/// The arguments of the command that `karmadactl token create` prints.
fn arguments(printed: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = printed.split_whitespace().skip_while(|word| *word != "register").collect();
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_command_is_run_without_its_program() {
        let printed = "karmadactl register 10.0.0.1:32443 --token a.b --discovery-token-ca-cert-hash sha256:c\n";
        let expected = ["register", "10.0.0.1:32443", "--token", "a.b", "--discovery-token-ca-cert-hash", "sha256:c"];
        assert_eq!(arguments(printed).as_deref(), Some(&expected[..]));
        assert_eq!(arguments("a.b"), None);
    }
}
