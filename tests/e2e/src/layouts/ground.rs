//! The clusters before Karmada, and the programs that run against them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use rig::{NodeOptions, Rig};
use tokio::process::Command;

use super::control_plane::ControlPlane;
use crate::programs;

/// The cluster in which Karmada and the operator run.
pub(super) const HOST: &str = "host";
/// The member cluster of mode Push.
pub(super) const PUSH: &str = "m1";
/// The member cluster of mode Pull.
pub(super) const PULL: &str = "m2";
/// The Kubernetes of Karmada's control plane: the default tag of all installers.
pub(super) const KUBERNETES_TAG: &str = "v1.35.2";
/// The default tag of etcd of all installers.
pub(super) const ETCD_TAG: &str = "3.6.6-0";
/// Programs of Karmada, which are also the names of their images.
const KARMADA: [&str; 5] = [
    "karmada-aggregated-apiserver",
    "karmada-controller-manager",
    "karmada-operator",
    "karmada-scheduler",
    "karmada-webhook",
];
/// Programs of Kubernetes in a control plane of Karmada, which are also the names of their images.
const KUBERNETES: [&str; 2] = ["kube-apiserver", "kube-controller-manager"];
/// The images of the jobs and init containers of Karmada's chart.
const JOBS: [&str; 2] = ["bitnamisecure/kubectl", "cfssl/cfssl"];
/// The programs that those run.
const PROGRAMS_OF_JOBS: [&str; 3] = ["kubectl", "bash", "curl"];

/// The host and two clusters, without Karmada.
pub(super) struct Ground {
    pub(super) rig: Rig,
    mczk: PathBuf,
    /// Files of the story. It stays if the story fails.
    pub(super) folder: PathBuf,
    begun: Instant,
}

/// How `mczk` ended.
pub(super) struct Ended {
    /// 0, or 3 if something does not run or a fault is found.
    pub(super) code: i32,
    /// Its standard output.
    pub(super) text: String,
}

impl Ground {
    pub(super) async fn up(begun: Instant) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mczk-layouts-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mczk = programs::mczk(&folder).await?;
        let supervisor = std::env::current_exe()?.with_file_name("rig");
        let nodes = NodeOptions { mczk: Some(mczk.clone()), without_karmada: true, ..NodeOptions::default() };
        let rig = Rig::up(rig::Options {
            dir: Some(folder.join("rig")),
            members: 2,
            supervisor: supervisor.exists().then_some(supervisor),
            nodes: Some(nodes),
            ..rig::Options::default()
        })
        .await?;
        Ok(Self { rig, mczk, folder, begun })
    }

    /// Takes everything down. After a failure it writes what the clusters show, and keeps the folder.
    pub(super) async fn down(self, failed: bool) -> Result<()> {
        if failed {
            self.evidence().await;
        }
        self.rig.down().await?;
        if !failed {
            fs::remove_dir_all(&self.folder).context("cannot remove the folder of the story")?;
        }
        Ok(())
    }

    /// Reports a line, with the time.
    pub(super) fn report(&self, text: &str) {
        println!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    /// The kubeconfig of a cluster of the rig.
    pub(super) fn kubeconfig(&self, cluster: &str) -> String {
        self.rig.kubeconfig(cluster).display().to_string()
    }

    /// Runs a tool of the rig to its end.
    ///
    /// # Errors
    /// If it fails, with its standard error.
    pub(super) async fn tool(&self, name: &str, arguments: &[&str]) -> Result<String> {
        programs::run(&self.rig.tool(name), arguments).await
    }

    /// Runs `kubectl` in a cluster of the rig.
    ///
    /// # Errors
    /// As [`Ground::tool`].
    pub(super) async fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.kubeconfig(cluster);
        self.tool("kubectl", &[&["--kubeconfig", kubeconfig.as_str()][..], arguments].concat()).await
    }

    /// The address of the host's node.
    ///
    /// # Errors
    /// As [`Ground::tool`].
    pub(super) async fn host_address(&self) -> Result<String> {
        let path = r#"jsonpath={.status.addresses[?(@.type=="InternalIP")].address}"#;
        self.kubectl(HOST, &["get", "node", HOST, "-o", path]).await
    }

    /// The version of Karmada's programs, such as `v1.18.2`.
    ///
    /// # Errors
    /// If `karmadactl version` prints none.
    pub(super) async fn karmada_version(&self) -> Result<String> {
        let text = self.tool("karmadactl", &["version"]).await?;
        version(&text).with_context(|| format!("no version in {text}"))
    }

    /// Imports the images that the installers name into the host, with the programs of the rig. It is one image with many
    /// names, so that all layouts share its file.
    ///
    /// # Errors
    /// If the image cannot be made or imported.
    pub(super) async fn import_control_plane(&self) -> Result<()> {
        let version = self.karmada_version().await?;
        let karmada = KARMADA
            .iter()
            .flat_map(|name| [version.as_str(), "latest"].map(|tag| format!("docker.io/karmada/{name}:{tag}")));
        let kubernetes = KUBERNETES.iter().map(|name| format!("registry.k8s.io/{name}:{KUBERNETES_TAG}"));
        let names: Vec<String> = karmada
            .chain(kubernetes)
            .chain([format!("registry.k8s.io/etcd:{ETCD_TAG}")])
            .chain(JOBS.map(|name| format!("docker.io/{name}:latest")))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let programs = [&KARMADA[..], &KUBERNETES, &["etcd"], &PROGRAMS_OF_JOBS].concat();
        self.rig.import_tools(&programs, &names, &[HOST]).await
    }

    /// Runs `mczk` with the connections to both control planes.
    ///
    /// # Errors
    /// If it fails with another code than 3, with its standard error.
    pub(super) async fn mczk(&self, karmada: &ControlPlane, command: &str, more: &[&str]) -> Result<Ended> {
        let output = Command::new(&self.mczk)
            .args([command, "--kubeconfig"])
            .arg(&karmada.kubeconfig)
            .args(["--host-kubeconfig", &self.kubeconfig(HOST)])
            .args(more)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot run mczk")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(code @ (0 | 3)) => Ok(Ended { code, text }),
            _ => bail!("mczk {command}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    /// Writes the pods and events of all clusters into the folder.
    async fn evidence(&self) {
        for cluster in [HOST, PUSH, PULL] {
            for (name, arguments) in [
                ("pods", &["get", "pods", "-A", "-o", "wide"][..]),
                ("descriptions", &["describe", "pods", "-A"][..]),
                ("events", &["get", "events", "-A"][..]),
            ] {
                let text = self.kubectl(cluster, arguments).await.unwrap_or_else(|error| format!("{error:#}"));
                self.keep(&format!("{cluster}-{name}.txt"), &text);
            }
        }
        for deployment in ["karmada-apiserver", "karmada-controller-manager", "karmada-webhook"] {
            let name = format!("deployment/{deployment}");
            let arguments = ["-n", "karmada-system", "logs", &name, "--tail=300"];
            let text = self.kubectl(HOST, &arguments).await.unwrap_or_else(|error| format!("{error:#}"));
            self.keep(&format!("host-{deployment}.log"), &text);
        }
    }

    fn keep(&self, name: &str, text: &str) {
        // The failure of the story matters more than that of its evidence.
        let _ = fs::write(self.folder.join(name), text);
    }

    /// Writes a file for a program, and returns its path.
    ///
    /// # Errors
    /// If the disk is full.
    pub(super) fn file(&self, name: &str, content: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(display(&path))
    }
}

/// A path for a command line.
pub(super) fn display(path: &Path) -> String {
    path.display().to_string()
}

/// The version in the output of `karmadactl version`.
fn version(text: &str) -> Option<String> {
    let (version, _) = text.split_once("GitVersion:\"")?.1.split_once('"')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_karmadactl_prints() {
        let text = r#"karmadactl version: version.Info{GitVersion:"v1.18.2", GitCommit:"x", GoVersion:"go1.25"}"#;
        assert_eq!(version(text).as_deref(), Some("v1.18.2"));
        assert_eq!(version("karmadactl"), None);
    }
}
