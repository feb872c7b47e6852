//! The API server that a subcommand uses.

use std::path::PathBuf;

use clap::Args;
use http::header::USER_AGENT;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::error::Error;
use mczk_runtime::{
    api_requests,
    election::{HolderOnly, Leadership},
    user_agent::user_agent,
};

/// The API server, and the user: always Karmada's, not those of the cluster in which Karmada's pods run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Kubeconfig of karmada-apiserver [default: $KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, env = "MCZK_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig [default: its current one]
    #[arg(long, env = "MCZK_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Identity of this process for audit logs. Only processes that share a user have one.
    #[arg(skip)]
    pub identity: Option<String>,
}

impl Connection {
    /// The same connection for a process with this identity.
    #[must_use]
    pub fn of_process(&self, identity: &str) -> Self {
        Self { identity: Some(identity.to_owned()), ..self.clone() }
    }

    /// Configuration of a client. The client retries nothing itself: kube's default would retry for many minutes,
    /// writes included.
    ///
    /// # Errors
    /// [`Error::Usage`] if the kubeconfig or context does not exist.
    pub async fn config(&self) -> Result<Config, Error> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(file) => {
                let usage = |error| {
                    Error::Usage(format!(
                        "cannot use the kubeconfig {} (--kubeconfig): {}",
                        file.display(),
                        brief(&error)
                    ))
                };
                let kubeconfig = Kubeconfig::read_from(file).map_err(usage)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(usage)?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await.map_err(|error| {
                Error::Usage(format!("cannot use the context (--context) of the default kubeconfig: {}", brief(&error)))
            })?,
            None => Config::infer().await.map_err(|error| {
                Error::Usage(format!(
                    "no kubeconfig: name that of karmada-apiserver with --kubeconfig ({})",
                    brief(&error)
                ))
            })?,
        };
        if config.proxy_url.is_some() {
            let why =
                "proxy-url in the kubeconfig, or HTTPS_PROXY: mczk uses no proxy: remove it, and name a server without";
            return Err(Error::Usage(why.to_owned()));
        }
        config.default_retry = false;
        config.headers.push((USER_AGENT, user_agent(self.identity.as_deref())));
        Ok(config)
    }

    /// A client, and its URL for messages.
    ///
    /// # Errors
    /// As [`Connection::config`], and if the certificates in the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<(Client, String), Error> {
        let config = self.config().await?;
        let url = config.cluster_url.to_string();
        Ok((Client::try_from(config).map_err(unusable)?, url))
    }

    /// A client whose requests are counted, and that writes only while this process may act.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub async fn client_of_holder(
        &self,
        leadership: Leadership,
        metrics: &api_requests::Metrics,
    ) -> Result<Client, Error> {
        client_of_holder(self.config().await?, leadership, metrics)
    }
}

/// A client whose requests are counted.
///
/// # Errors
/// [`Error::Usage`] if the certificates in the kubeconfig cannot be read.
pub fn counted_client(config: Config, metrics: &api_requests::Metrics) -> Result<Client, Error> {
    Ok(ClientBuilder::try_from(config).map_err(unusable)?.with_layer(metrics).build())
}

/// As [`counted_client`], and it writes only while this process may act.
///
/// # Errors
/// As [`counted_client`].
pub fn client_of_holder(
    config: Config,
    leadership: Leadership,
    metrics: &api_requests::Metrics,
) -> Result<Client, Error> {
    let builder = ClientBuilder::try_from(config).map_err(unusable)?;
    Ok(builder.with_layer(metrics).with_layer(&HolderOnly::new(leadership)).build())
}

// `map_err` passes values.
#[allow(clippy::needless_pass_by_value)]
pub(super) fn unusable(error: kube::Error) -> Error {
    Error::Usage(format!("cannot use the kubeconfig: {error}"))
}

/// The first line of an error. The parser's further lines quote the file, and a kubeconfig holds secrets.
fn brief(error: &impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().trim_end().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_does_not_quote_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\nMIGHAgEAsecret\n-----END PRIVATE KEY-----\n").unwrap();
        let connection = Connection { kubeconfig: Some(file.path().to_owned()), ..Connection::default() };
        let error = connection.config().await.unwrap_err().to_string();
        assert!(error.contains("failed to parse kubeconfig YAML") && error.contains("line 1"), "{error}");
        assert!(!error.contains("BEGIN") && !error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn a_proxy_is_refused_without_its_password() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": { "server": "https://a", "proxy-url": "http://u:secret@b:3128" } }],
            "users": [{ "name": "a", "user": {} }], "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        });
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let connection = Connection { kubeconfig: Some(file.path().to_owned()), ..Connection::default() };
        let Err(Error::Usage(error)) = connection.client().await.map(|_| ()) else { panic!("it is accepted") };
        assert!(error.contains("proxy-url") && !error.contains("secret"), "{error}");
    }
}
