//! Calls of the webhook while its pods or its authority are replaced. The clients call as Karmada does: they reuse connections,
//! follow the registration, and repeat no call. Some open a connection for each call.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::http::Request;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::scene;

/// A question that the webhook answers without a change.
const QUESTION: &str = r#"{"request":{"uid":"load","kind":{"group":"mczk.io","version":"v1alpha1","kind":"ZooKeeper"},"operation":"ReviseReplica","object":{"spec":{"replicas":0}}}}"#;
/// The timeout of one call.
const CALL: Duration = Duration::from_secs(10);
/// Pauses, in milliseconds, between two calls of clients that keep their connection. After the last one, a connection was idle for long.
const KEPT: [u64; 6] = [20, 20, 50, 100, 1000, 4000];
/// Pauses, in milliseconds, between two calls of clients that open a connection for each call.
const NEW: [u64; 2] = [50, 100];

/// The time between two looks at the registration, which Karmada watches.
const LOOK: Duration = Duration::from_millis(200);

/// The webhook as it is registered.
#[derive(Clone)]
struct Webhook {
    /// The authorities that Karmada trusts, in base64.
    authority: String,
    config: Config,
    path: String,
}

/// Calls and their results.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Number of answers.
    pub(super) answered: usize,
    /// How often a client found another authority in the registration.
    pub(super) authorities: usize,
    /// The error of each failed call.
    pub(super) failed: Vec<String>,
}

/// Clients that call until [`Load::stop`].
pub(super) struct Load {
    stop: watch::Sender<bool>,
    clients: JoinSet<Calls>,
}

impl Load {
    /// Starts the clients of the webhook that is registered in Karmada.
    ///
    /// # Errors
    /// If none is registered.
    pub(super) async fn start(karmada: &Client) -> Result<Self> {
        let (registered, webhook) = watch::channel(Webhook::registered(karmada).await?);
        tokio::spawn(follow(karmada.clone(), registered));
        let (stop, stopped) = watch::channel(false);
        let mut clients = JoinSet::new();
        let kept = KEPT.into_iter().map(|pause| (pause, false));
        for (pause, is_new) in kept.chain(NEW.into_iter().map(|pause| (pause, true))) {
            let pause = Duration::from_millis(pause);
            clients.spawn(calls(webhook.clone(), pause, is_new, stopped.clone()));
        }
        Ok(Self { stop, clients })
    }

    /// Stops the clients, and returns all calls.
    pub(super) async fn stop(self) -> Calls {
        self.stop.send_replace(true);
        let mut all = Calls::default();
        for calls in self.clients.join_all().await {
            all.answered += calls.answered;
            all.authorities += calls.authorities;
            all.failed.extend(calls.failed);
        }
        all
    }
}

/// Looks at the registration until no client needs it. What cannot be read stays as it was.
async fn follow(karmada: Client, registered: watch::Sender<Webhook>) {
    while !registered.is_closed() {
        tokio::time::sleep(LOOK).await;
        let Ok(now) = Webhook::registered(&karmada).await else { continue };
        registered.send_if_modified(|before| {
            let is_new = now.authority != before.authority;
            *before = now;
            is_new
        });
    }
}

async fn calls(
    mut webhook: watch::Receiver<Webhook>,
    pause: Duration,
    is_new: bool,
    mut stopped: watch::Receiver<bool>,
) -> Calls {
    let mut calls = Calls::default();
    let mut client = None;
    while !*stopped.borrow() {
        let is_replaced = webhook.has_changed().unwrap_or_default();
        calls.authorities += usize::from(is_replaced);
        if is_new || is_replaced {
            client = None;
        }
        let registered = webhook.borrow_and_update().clone();
        match registered.call(&mut client).await {
            Ok(()) => calls.answered += 1,
            Err(error) => {
                let connection = if is_new { "a new connection" } else { "a kept connection" };
                calls.failed.push(format!("{connection}, pause {pause:?}: {error:#}"));
            }
        }
        let _ = timeout(pause, stopped.wait_for(|stopped| *stopped)).await;
    }
    calls
}

impl Webhook {
    async fn registered(karmada: &Client) -> Result<Self> {
        let kind = scene::kind(
            "config.karmada.io/v1alpha1",
            "ResourceInterpreterWebhookConfiguration",
            "resourceinterpreterwebhookconfigurations",
        );
        let api: Api<DynamicObject> = Api::all_with(karmada.clone(), &kind);
        let all = api.list(&ListParams::default()).await?;
        let webhook = all.iter().find_map(|object| object.data.pointer("/webhooks/0/clientConfig"));
        let text = |field: &str| webhook.and_then(|webhook| webhook.get(field)).and_then(Value::as_str);
        let (url, authority) = (text("url").context("no URL")?, text("caBundle").context("no authority")?);
        let (server, path) = split(url).context("not a URL with a path")?;
        let cluster = json!({ "server": server, "certificate-authority-data": authority });
        let file: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "webhook",
            "clusters": [{ "name": "webhook", "cluster": cluster }],
            "users": [{ "name": "webhook", "user": {} }],
            "contexts": [{ "name": "webhook", "context": { "cluster": "webhook", "user": "webhook" } }],
        }))?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        config.default_retry = false;
        Ok(Self { authority: authority.to_owned(), config, path: path.to_owned() })
    }

    /// One call, by the client if there is one.
    async fn call(&self, client: &mut Option<Client>) -> Result<()> {
        if client.is_none() {
            *client = Some(Client::try_from(self.config.clone())?);
        }
        let client = client.as_ref().context("no client")?;
        let request = Request::builder()
            .method("POST")
            .uri(&self.path)
            .header("content-type", "application/json")
            .body(Body::from(QUESTION.as_bytes().to_vec()))?;
        let answer = async {
            let answer = client.send(request).await?;
            let status = answer.status();
            anyhow::Ok((status, answer.into_body().collect_bytes().await?))
        };
        let (status, body) = timeout(CALL, answer).await.context("no answer in time")??;
        let body = String::from_utf8_lossy(&body);
        ensure!(status.is_success() && body.contains("\"successful\":true"), "{status}: {body}");
        Ok(())
    }
}

/// A URL as its server, and its path with the slash.
fn split(url: &str) -> Option<(&str, &str)> {
    let host = url.find("://")? + 3;
    let path = host + url.get(host..)?.find('/')?;
    Some((url.get(..path)?, url.get(path..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_server_and_a_path() {
        assert_eq!(split("https://10.0.0.1:30443/interpreter"), Some(("https://10.0.0.1:30443", "/interpreter")));
        assert_eq!(split("https://10.0.0.1:30443"), None);
    }
}
