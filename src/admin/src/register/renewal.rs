//! The operator renews its own token: the leader replaces it in the Secret of the host. All operators read the Secret as files.

use std::fs;
use std::path::PathBuf;
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
    credential::{self, TOKEN, TokenValidity},
    expiry_notice::ExpiryNotice,
};
use mczk_runtime::{election::Leadership, jitter::jittered};

/// Time between two looks at the token.
const LOOK: Duration = Duration::from_secs(600);

/// Renews the token in a Secret.
pub struct Renewal {
    /// Client of karmada-apiserver.
    pub karmada: Client,
    /// Client of the host.
    pub host: Client,
    /// Namespace and name of the Secret.
    pub secret: (String, String),
    /// Whether this process acts.
    pub leadership: Leadership,
    /// Warnings about a token that is not renewed.
    pub notice: ExpiryNotice,
    /// The token as a mounted file, to know its end if the Secret cannot be read.
    pub token_file: Option<PathBuf>,
    /// Validity of the token when it was last read.
    pub known: Option<TokenValidity>,
}

impl Renewal {
    /// Renews the token whenever it is due, without end.
    pub async fn run(mut self) {
        loop {
            if self.leadership.term().is_some()
                && let Err(error) = self.attempt().await
            {
                warn!(error = format!("{error:#}"), "Cannot renew the operator's token: mczk install renews it too");
            }
            sleep(jittered(LOOK)).await;
        }
    }

    /// Renews the token if that is due. If that fails, also because the Secret cannot be read, it warns if the token then
    /// expires soon.
    async fn attempt(&mut self) -> anyhow::Result<()> {
        let renewed = self.renew_if_due().await;
        if renewed.is_err() && self.known.is_none() {
            // The Secret was never read. The kubelet may have mounted it in time.
            self.known = self.token_file.as_ref().and_then(|file| TokenValidity::of(&fs::read_to_string(file).ok()?));
        }
        if let (Err(_), Some(validity)) = (&renewed, self.known) {
            self.notice.check(validity.span(), Timestamp::now()).await;
        }
        renewed
    }

    async fn renew_if_due(&mut self) -> anyhow::Result<()> {
        let (namespace, name) = &self.secret;
        let api: Api<Secret> = Api::namespaced(self.host.clone(), namespace);
        let secret = api.get(name).await.with_context(|| format!("reading Secret {namespace}/{name}"))?;
        let token = secret.data.as_ref().and_then(|data| data.get(TOKEN)).map(|ByteString(bytes)| bytes.as_slice());
        self.known = token.and_then(|token| std::str::from_utf8(token).ok()).and_then(TokenValidity::of);
        if self.known.is_some_and(|validity| !validity.is_due(Timestamp::now())) {
            return Ok(());
        }
        self.renew(&api, &secret).await
    }

    async fn renew(&self, api: &Api<Secret>, secret: &Secret) -> anyhow::Result<()> {
        let (namespace, name) = &self.secret;
        let token = credential::request(&self.karmada).await.context("requesting a token")?;
        let end = TokenValidity::of(&token).map(TokenValidity::end);
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use hyper::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use tempfile::NamedTempFile;
    use tower::service_fn;

    use super::*;
    use crate::register::expiry_notice::EventTarget;

    /// A client that records the paths of its requests, and whose requests all fail.
    fn failing(paths: &Arc<Mutex<Vec<String>>>) -> Client {
        let paths = paths.clone();
        let service = service_fn(move |request: Request<Body>| {
            paths.lock().unwrap().push(request.uri().path().to_owned());
            async { Ok::<_, Infallible>(Response::builder().status(500).body(Body::empty()).unwrap()) }
        });
        Client::new(service, "default")
    }

    fn ending_token() -> String {
        let now = Timestamp::now().as_second();
        let payload = json!({ "iat": now - 1_000_000, "exp": now + 60 });
        format!("e30.{}.signature", URL_SAFE_NO_PAD.encode(payload.to_string()))
    }

    #[rstest]
    #[case::read_before(true, false)]
    #[case::never_read_but_mounted(false, true)]
    #[tokio::test]
    async fn an_unreadable_secret_does_not_hide_the_end_of_the_token(#[case] was_read: bool, #[case] is_mounted: bool) {
        let (paths, file) = (Arc::default(), NamedTempFile::new().unwrap());
        fs::write(&file, ending_token()).unwrap();
        let target = EventTarget::new(failing(&paths), credential::account(), Leadership::without_election());
        let mut renewal = Renewal {
            karmada: failing(&Arc::default()),
            host: failing(&Arc::default()),
            secret: ("mczk-system".to_owned(), "credential".to_owned()),
            leadership: Leadership::without_election(),
            notice: ExpiryNotice::new("The token", "Renew it", Some(target)),
            token_file: is_mounted.then(|| file.path().to_owned()),
            known: was_read.then(|| TokenValidity::of(&ending_token()).unwrap()),
        };
        let error = renewal.attempt().await.unwrap_err();
        assert!(error.to_string().contains("reading Secret mczk-system/credential"), "{error}");
        let paths = paths.lock().unwrap();
        assert!(paths.iter().any(|path| path.ends_with("/events")), "{paths:?}");
    }
}
