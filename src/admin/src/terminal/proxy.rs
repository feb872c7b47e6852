//! Member clusters, through Karmada's cluster proxy: one kubeconfig reaches all of them.

use std::time::Duration;

use anyhow::anyhow;
use kube::{Client, Config};
use tokio::time::timeout;

use super::error::Error;
use mczk_api::{karmada::cluster, multiclusterzookeeper::MultiClusterZooKeeperStatus};

/// Longest wait for one answer of a member cluster. The proxy itself waits longer for a cluster that is gone.
const LIMIT: Duration = Duration::from_secs(15);

/// The member clusters behind karmada-apiserver.
#[derive(Clone)]
pub(crate) struct Proxy {
    karmada: Config,
}

impl Proxy {
    /// The proxy of this karmada-apiserver.
    pub(crate) const fn new(karmada: Config) -> Self {
        Self { karmada }
    }

    /// A client of one cluster. It needs the right to `clusters/proxy` in karmada-apiserver.
    ///
    /// # Errors
    /// [`Error::Usage`] if the name of the cluster or the kubeconfig cannot be used.
    pub(crate) fn client(&self, cluster: &str) -> Result<Client, Error> {
        let mut config = self.karmada.clone();
        config.cluster_url = url(&config.cluster_url.to_string(), cluster)
            .parse()
            .map_err(|error| Error::Usage(format!("cannot reach a cluster named {cluster:?}: {error}")))?;
        Client::try_from(config).map_err(|error| Error::Usage(format!("cannot use the kubeconfig: {error}")))
    }
}

fn url(karmada: &str, cluster: &str) -> String {
    format!("{}/apis/{}/clusters/{cluster}/proxy", karmada.trim_end_matches('/'), cluster::API_VERSION)
}

/// The answer, or why there is none, as the part of a sentence.
///
/// # Errors
/// If the cluster refuses, or does not answer in time.
pub(crate) async fn answer<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(LIMIT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(why(error)),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    }
}

/// Why a request failed: the message of the API server, or the cause of a broken connection.
pub(crate) fn why(error: kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => format!("{} ({})", status.message, status.code),
        other => format!("{:#}", anyhow!(other)),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The clusters in which an ensemble has or had servers, by name.
pub(crate) fn clusters(status: &MultiClusterZooKeeperStatus) -> Vec<String> {
    status.clusters.iter().map(|cluster| cluster.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_the_api_server_stays() {
        let path = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";
        assert_eq!(url("https://karmada:5443/", "m1"), format!("https://karmada:5443{path}"));
        assert_eq!(url("https://gateway/k8s/c-1", "m1"), format!("https://gateway/k8s/c-1{path}"));
    }
}
