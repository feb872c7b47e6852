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
                    sessions.reconfigure(&change).await
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
    let registry = Arc::new(registry);
    let live = server.clone();
    Router::new()
        .route("/livez", get(async move || probe_response(live.alive())))
        .route("/readyz", get(async move || probe_response(server.ready().await)))
        .route("/metrics", get(async move || telemetry::answer(Arc::clone(&registry))))
}

fn probe_response(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not yet: {reason}\n")).into_response(),
    }
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
