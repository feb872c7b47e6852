//! What stories and chaos runs do to servers, agents and the operator.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Members, Server};

impl Members<'_> {
    /// Runs a shell command in the container of a server.
    ///
    /// # Errors
    /// If it fails.
    pub async fn shell(&self, namespace: &str, server: &Server, line: &str) -> Result<String> {
        let arguments = ["exec", "-n", namespace, &server.name, "-c", "zookeeper", "--", "sh", "-c", line];
        self.kubectl(&server.cluster, &arguments).await
    }

    /// Sends a signal to the ZooKeeper process of a server.
    ///
    /// # Errors
    /// If there is no process.
    pub async fn signal(&self, namespace: &str, server: &Server, signal: &str) -> Result<()> {
        self.shell(namespace, server, &format!("kill -{signal} $(pidof java)")).await.map(drop)
    }

    /// Kills the agents of a cluster.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn kill_agents(&self, cluster: &str) -> Result<()> {
        let delete = ["delete", "pods", "-n", "mczk-system", "-l", "app.kubernetes.io/name=mczk-agent"];
        let options = ["--grace-period=0", "--force", "--wait=false"];
        self.kubectl(cluster, &[&delete[..], &options].concat()).await.map(drop)
    }

    /// Kills the operator, and starts it again after a second.
    ///
    /// # Errors
    /// If none runs, or it does not become ready.
    pub async fn kill_operator(&self) -> Result<()> {
        self.federation.kill_operator().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.federation.start_operator().await
    }

    /// Deletes the volume of a server with its pod.
    ///
    /// # Errors
    /// If the API server refuses, or the pod has no volume.
    pub async fn delete_volume(&self, namespace: &str, server: &Server) -> Result<()> {
        let of = "jsonpath={.spec.volumes[*].persistentVolumeClaim.claimName}";
        let claim = self.kubectl(&server.cluster, &["get", "pod", "-n", namespace, &server.name, "-o", of]).await?;
        ensure!(!claim.trim().is_empty(), "{} of {} has no volume", server.name, server.cluster);
        for arguments in [["delete", "pvc", claim.trim()], ["delete", "pod", &server.name]] {
            let arguments = [&arguments[..], &["-n", namespace, "--wait=false"]].concat();
            self.kubectl(&server.cluster, &arguments).await?;
        }
        Ok(())
    }
}
