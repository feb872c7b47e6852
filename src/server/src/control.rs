//! The control port for agents and other servers, and the probes for the kubelet and Prometheus.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use prometheus_client::registry::Registry;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::Semaphore, time::timeout};

use crate::{refusal::PortRefusal, session::Sessions, supervisor::Supervisor};
use mczk_api::{
    contract::control_api::{Problem, Reconfiguration, RestartLock},
    zookeeper::Ensemble,
};
use mczk_runtime::telemetry;

/// Longest body of a request, in bytes. A list of 254 servers with the longest names has a third of that.
const MAX_BODY: usize = 512 << 10;
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of simultaneous requests.
const MAX_REQUESTS: usize = 32;

/// Routes of the control port: [`mczk_api::contract::control_api`].
pub fn router(server: Arc<Supervisor>) -> Router {
    let room = Arc::new(Semaphore::new(MAX_REQUESTS));
    let report = server.clone();
    let (reconfigure, publish, acquire, release, first) =
        (server.clone(), server.clone(), server.clone(), server.clone(), server);
    Router::new()
        .route("/v1/server", get(async move || json(StatusCode::OK, &report.report().await)))
        .route(
            "/v1/reconfigure",
            post(async move |request: Request<Body>| {
                act(&reconfigure, request, async |sessions, change: Reconfiguration| {
                    sessions.reconfigure(&change, reconfigure.leading(&change)).await
                })
                .await
            }),
        )
        .route(
            "/v1/server-list",
            post(async move |request: Request<Body>| {
                let incarnation = publish.incarnation();
                act(&publish, request, async |sessions, list: Ensemble| sessions.publish(&list, &incarnation).await)
                    .await
            }),
        )
        .route(
            "/v1/restart-lock",
            post(async move |request: Request<Body>| {
                act(&acquire, request, async |sessions, lock: RestartLock| sessions.acquire_restart_lock(&lock).await)
                    .await
            })
            .delete(async move |request: Request<Body>| {
                act(&release, request, async |sessions, lock: RestartLock| sessions.release_restart_lock(&lock).await)
                    .await
            }),
        )
        .route(
            "/v1/first-start",
            post(async move |request: Request<Body>| match read(request).await {
                Ok(recorded) => {
                    first.take_first_start(recorded);
                    json(StatusCode::OK, &())
                }
                Err(response) => response,
            }),
        )
        .fallback(async || problem(StatusCode::NOT_FOUND, "path", "this path does not exist"))
        .method_not_allowed_fallback(async || {
            problem(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not support the method")
        })
        .layer(axum::middleware::from_fn(move |request: Request<Body>, next: axum::middleware::Next| {
            let room = room.clone();
            async move {
                match room.try_acquire() {
                    Ok(_permit) => next.run(request).await,
                    Err(_) => problem(StatusCode::TOO_MANY_REQUESTS, "busy", "too many simultaneous requests"),
                }
            }
        }))
}

/// Routes of the probe port: liveness, readiness and metrics.
pub fn probes(server: Arc<Supervisor>, registry: Registry) -> Router {
    let live = server.clone();
    Router::new()
        .route("/livez", get(async move || probe_response(live.is_alive(), "not alive")))
        .route("/readyz", get(async move || probe_response(server.is_ready().await, "not ready")))
        .route("/metrics", telemetry::pages(registry))
}

/// A fixed text: everybody may ask, and the reason may quote `ZooKeeper`'s log.
fn probe_response(good: bool, bad: &str) -> Response {
    if good {
        return "ok\n".into_response();
    }
    let text = format!("{bad}: the status of the ZooKeeper object and the log of this server say why\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn act<Content: DeserializeOwned, Answer: Serialize>(
    server: &Supervisor,
    request: Request<Body>,
    act: impl AsyncFnOnce(Arc<Sessions>, Content) -> Result<Answer, PortRefusal>,
) -> Response {
    let body = match read(request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let Some(sessions) = server.sessions() else {
        return refuse(PortRefusal::unavailable("ZooKeeper does not run here"));
    };
    match act(sessions, body).await {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(refusal) => refuse(refusal),
    }
}

async fn read<T: DeserializeOwned>(request: Request<Body>) -> Result<T, Response> {
    let body = match timeout(BODY_TIMEOUT, to_bytes(request.into_body(), MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "body", &format!("the body cannot be read: {error}")));
        }
        Err(_) => return Err(problem(StatusCode::REQUEST_TIMEOUT, "body", "the body took too long")),
    };
    serde_json::from_slice(&body)
        .map_err(|error| problem(StatusCode::BAD_REQUEST, "body", &format!("the body does not parse: {error}")))
}

fn refuse(refusal: PortRefusal) -> Response {
    match refusal {
        PortRefusal::Invalid(problem) => json(StatusCode::BAD_REQUEST, &problem),
        PortRefusal::Conflict(problem) => json(StatusCode::CONFLICT, &problem),
        PortRefusal::Unavailable(problem) => json(StatusCode::SERVICE_UNAVAILABLE, &problem),
    }
}

fn problem(status: StatusCode, reason: &str, message: &str) -> Response {
    json(status, &Problem { reason: reason.to_owned(), message: message.to_owned() })
}

fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::time::Instant;

    use mczk_rules::server::paths::Paths;
    use mczk_runtime::telemetry::LogFormat;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{metrics::Metrics, supervisor::SupervisorOptions};

    fn supervisor(registry: &mut Registry) -> Arc<Supervisor> {
        let nowhere = PathBuf::from("/nowhere");
        let paths = Paths {
            active_data: nowhere.clone(),
            scratch: nowhere.clone(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)).ip(),
            hosts: None,
        };
        let options = SupervisorOptions {
            pod: "zk-0".to_owned(),
            config_dir: nowhere.clone(),
            data: nowhere.clone(),
            paths,
            quorum_tls: nowhere.clone(),
            client_tls: nowhere.clone(),
            java: nowhere.clone(),
            home: nowhere,
            log_format: LogFormat::Text,
        };
        Arc::new(Supervisor::new(options, Metrics::new(registry)))
    }

    #[tokio::test]
    async fn strangers_read_no_line_of_zookeepers_log() {
        let mut registry = Registry::default();
        let server = supervisor(&mut registry);
        server.record_failure("ZooKeeper exited; its last lines:\nh0rse".to_owned());
        server.change_state(|state| state.failing_since = Instant::now().checked_sub(Duration::from_secs(3600)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, probes(server, registry)).await });
        for path in ["/livez", "/readyz"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.0 503") && !answer.contains("h0rse"), "{answer}");
        }
    }
}
