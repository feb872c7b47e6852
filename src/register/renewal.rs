//! The operator renews its own token: the leader replaces it in the Secret of the host. All operators read the Secret as files.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    credential::{self, TOKEN, Validity},
    expiry_notice::ExpiryNotice,
};
use crate::runtime::{election::Leadership, jitter::jittered};

/// Time between two looks at the token.
const LOOK: Duration = Duration::from_secs(600);

/// Renews the token in a Secret.
pub(crate) struct Renewal {
    /// Client of karmada-apiserver.
    pub(crate) karmada: Client,
    /// Client of the host.
    pub(crate) host: Client,
    /// Namespace and name of the Secret.
    pub(crate) secret: (String, String),
    /// Whether this process acts.
    pub(crate) leadership: Leadership,
    /// Warnings about a token that is not renewed.
    pub(crate) notice: ExpiryNotice,
}

impl Renewal {
    /// Renews the token whenever it is due, without end.
    pub(crate) async fn run(mut self) {
        loop {
            if self.leadership.term().is_some()
                && let Err(error) = self.attempt().await
            {
                warn!(error = format!("{error:#}"), "Cannot renew the operator's token: mczk install renews it too");
            }
            sleep(jittered(LOOK)).await;
        }
    }

    /// Renews the token if that is due, and warns if it then still expires soon.
    async fn attempt(&mut self) -> anyhow::Result<()> {
        let (namespace, name) = &self.secret;
        let api: Api<Secret> = Api::namespaced(self.host.clone(), namespace);
        let secret = api.get(name).await.with_context(|| format!("reading Secret {namespace}/{name}"))?;
        let token = secret.data.as_ref().and_then(|data| data.get(TOKEN)).map(|ByteString(bytes)| bytes.as_slice());
        let validity = token.and_then(|token| std::str::from_utf8(token).ok()).and_then(Validity::of);
        if validity.is_some_and(|validity| !validity.is_due(Timestamp::now())) {
            return Ok(());
        }
        let renewed = self.renew(&api, &secret).await;
        if let (Err(_), Some(validity)) = (&renewed, validity) {
            self.notice.check(validity.span(), Timestamp::now()).await;
        }
        renewed
    }

    async fn renew(&self, api: &Api<Secret>, secret: &Secret) -> anyhow::Result<()> {
        let (namespace, name) = &self.secret;
        let token = credential::request(&self.karmada).await.context("requesting a token")?;
        let end = Validity::of(&token).map(Validity::end);
        let patch = json!({
            "metadata": { "resourceVersion": secret.metadata.resource_version },
            "data": { TOKEN: ByteString(token.into_bytes()) },
        });
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.with_context(|| format!("writing Secret {namespace}/{name}"))?;
        info!(secret = format!("{namespace}/{name}"), end = ?end, "Token renewed");
        Ok(())
    }
}
