//! An HTTP proxy between one operator and karmada-apiserver. It can hold the operator's writes: they have passed all
//! checks of the operator, and the API server has not received them. It can also play an overloaded API server.

use std::{
    fmt,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{
        self, Method, StatusCode,
        header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    },
    response::{IntoResponse, Response},
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::patience::wait_for;

/// Longest time for the answers of released writes.
const ANSWERS: Duration = Duration::from_secs(30);

/// A running proxy. It ends with this value.
#[derive(Debug)]
pub struct ApiProxy {
    /// Kubeconfig of the operator behind the proxy.
    pub kubeconfig: PathBuf,
    gate: Arc<Gate>,
    server: JoinHandle<()>,
}

/// What an overloaded API server does with every request but those of Leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It refuses the request with this status.
    Status(u16),
    /// It answers after this time.
    Delay(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(formatter, "{code} to every request"),
            Self::Delay(time) => write!(formatter, "a latency of {} s", time.as_secs()),
        }
    }
}

/// What holds or breaks requests.
#[derive(Debug)]
struct Gate {
    closed: watch::Sender<bool>,
    fault: watch::Sender<Option<Fault>>,
    /// Writes that were held, and are not answered yet.
    held: AtomicUsize,
    /// Writes that were answered.
    answered: AtomicUsize,
}

/// A write that was held, until its answer.
struct Held<'g>(&'g Gate);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// Waits while writes are held.
    async fn pass(&self) -> Option<Held<'_>> {
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() {
            return None;
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        let held = Held(self);
        // An error means that the proxy ends.
        let _ = closed.wait_for(|closed| !closed).await;
        Some(held)
    }
}

impl ApiProxy {
    /// Starts a proxy for the user of a kubeconfig. `folder` holds the kubeconfig for the operator.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used, or no port is free.
    pub async fn start(kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let file =
            Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        // Each request reaches the API server once.
        config.default_retry = false;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (closed, held, answered) = (watch::Sender::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let fault = watch::Sender::new(None);
        let gate = Arc::new(Gate { closed, fault, held, answered });
        let forward = Forward { client: Client::try_from(config)?, gate: gate.clone() };
        let router = Router::new().fallback(answer).with_state(forward);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the proxy ended: {error}");
            }
        });
        let kubeconfig = folder.join(format!("proxy-{port}.kubeconfig"));
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{ "name": "proxy", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "proxy", "user": {} }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
        });
        std::fs::write(&kubeconfig, content.to_string())?;
        Ok(Self { kubeconfig, gate, server })
    }

    /// Plays an overloaded API server from now on, or a healthy one. Watches that run go on.
    pub fn fail(&self, fault: Option<Fault>) {
        self.gate.fault.send_replace(fault);
    }

    /// Holds all writes from now on, but not those of Leases and events. True if one came in time.
    pub async fn hold(&self, patience: Duration) -> bool {
        self.gate.closed.send_replace(true);
        let held = wait_for("a write is held", patience, || async {
            (self.gate.held.load(Ordering::Relaxed) > 0).then_some(()).context("none")
        });
        held.await.is_ok()
    }

    /// Sends the held writes, and waits for their answers.
    ///
    /// # Errors
    /// If the API server does not answer in time.
    pub async fn release(&self) -> Result<()> {
        self.gate.closed.send_replace(false);
        wait_for("held writes are answered", ANSWERS, || async {
            let left = self.gate.held.load(Ordering::Relaxed);
            (left == 0).then_some(()).with_context(|| format!("{left} are not"))
        })
        .await
    }

    /// Number of writes that the API server has answered.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.gate.answered.load(Ordering::Relaxed)
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What a request needs.
#[derive(Clone)]
struct Forward {
    client: Client,
    gate: Arc<Gate>,
}

async fn answer(State(forward): State<Forward>, request: Request) -> Response {
    // A task of its own: the operator may close its connection, and the request is on its way all the same.
    let answer = tokio::spawn(async move { forward.pass(request).await });
    match answer.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

impl Forward {
    async fn pass(&self, request: Request) -> Result<Response> {
        let (mut parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await?;
        let fault = self.gate.fault.borrow().filter(|_| !parts.uri.path().contains("/leases"));
        match fault {
            Some(Fault::Status(code)) => return refusal(code),
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            None => {}
        }
        let is_write = is_write(&parts.method, parts.uri.path());
        let held = if is_write { self.gate.pass().await } else { None };
        for name in [HOST, CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING] {
            parts.headers.remove(name);
        }
        let mut next = http::Request::new(kube::client::Body::from(body.to_vec()));
        *next.method_mut() = parts.method;
        *next.uri_mut() = parts.uri;
        *next.headers_mut() = parts.headers;
        let answer = self.client.send(next).await?;
        if is_write {
            self.gate.answered.fetch_add(1, Ordering::Relaxed);
        }
        drop(held);
        let (mut parts, body) = answer.into_parts();
        parts.version = http::Version::HTTP_11;
        for name in [CONNECTION, TRANSFER_ENCODING] {
            parts.headers.remove(name);
        }
        Ok(Response::from_parts(parts, Body::new(body)))
    }
}

/// The answer of an API server that refuses a request.
fn refusal(code: u16) -> Result<Response> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "overloaded", "code": code,
        "reason": if code == 429 { "TooManyRequests" } else { "InternalError" },
    });
    Ok((StatusCode::from_u16(code)?, status.to_string()).into_response())
}

/// True if a request changes an object of an ensemble.
fn is_write(method: &Method, path: &str) -> bool {
    let is_read = [Method::GET, Method::HEAD].contains(method);
    !is_read && !path.contains("/leases") && !path.contains("/events")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_events_are_never_held() {
        let of = |path: &str| format!("/apis/{path}");
        assert!(is_write(&Method::PUT, &of("policy.karmada.io/v1alpha1/namespaces/n/overridepolicies/zk")));
        assert!(!is_write(&Method::GET, &of("policy.karmada.io/v1alpha1/namespaces/n/overridepolicies/zk")));
        assert!(!is_write(&Method::PUT, &of("coordination.k8s.io/v1/namespaces/karmada-system/leases/mczk-operator")));
        assert!(!is_write(&Method::POST, &of("events.k8s.io/v1/namespaces/n/events")));
    }
}
