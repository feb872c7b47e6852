//! A small client of Kubernetes' API for the rig itself.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::time::Instant;

/// No step takes longer on a machine that is large enough.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one API server.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
}

impl Api {
    pub(crate) async fn of(kubeconfig: &Path) -> Result<Self> {
        let file =
            Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Self::with(config)
    }

    /// A client of any HTTPS server with a certificate of this authority.
    pub(crate) fn at(url: &str, authority: &Path) -> Result<Self> {
        let mut config = Config::new(url.parse()?);
        config.root_cert_file = Some(authority.to_owned());
        Self::with(config)
    }

    /// A client of a server without encryption.
    pub(crate) fn plain(url: &str) -> Result<Self> {
        Self::with(Config::new(url.parse()?))
    }

    fn with(mut config: Config) -> Result<Self> {
        // It fails if the calling program has chosen a provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.proxy_url = None;
        Ok(Self { client: Client::try_from(config)? })
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String> {
        let request = self.client.request_text(Request::get(path).body(vec![])?);
        Ok(tokio::time::timeout(TIMEOUT, request).await??)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.text(path).await?)?)
    }

    pub(crate) async fn wait_ready(&self, what: &str) -> Result<()> {
        wait_for(&format!("{what} answers"), || async { self.text("/readyz").await.map(|_| Some(())) }).await
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        match self.client.request::<Value>(Request::delete(path).body(vec![])?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(e) => Err(e).with_context(|| format!("cannot delete {path}")),
            Ok(_) => Ok(()),
        }
    }

    /// Sends a value. Returns the answer.
    pub(crate) async fn post(&self, path: &str, value: &Value) -> kube::Result<Value> {
        let body = serde_json::to_vec(value).map_err(kube::Error::SerdeError)?;
        let request = Request::post(path).header("Content-Type", "application/json").body(body);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    /// Changes fields of an object.
    pub(crate) async fn patch(&self, path: &str, change: &Value) -> Result<()> {
        let body = serde_json::to_vec(change)?;
        let request = Request::patch(path).header("Content-Type", "application/merge-patch+json").body(body)?;
        let answer = self.client.request::<Value>(request).await;
        answer.map(drop).with_context(|| format!("cannot change {path}"))
    }

    /// Creates an object, unless it exists.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        match self.post(path, object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(e) => Err(e).with_context(|| format!("cannot create an object at {path}")),
            Ok(_) => Ok(()),
        }
    }
}

/// Polls until there is an answer.
pub(crate) async fn wait_for<T, F>(what: &str, mut test: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        let last = match test().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(e) => Some(e),
        };
        if Instant::now() > end {
            let seconds = PATIENCE.as_secs();
            match last {
                Some(e) => return Err(e).with_context(|| format!("not after {seconds} s: {what}")),
                None => bail!("not after {seconds} s: {what}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
