//! What a server answers: to agents and other servers, and to the kubelet.

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

use crate::{
    api::zookeeper::Ensemble,
    contract::control_api::{Problem, Reconfiguration, RestartLock},
    runtime::telemetry,
    server::{
        session::{Refused, Sessions},
        supervisor::Server,
    },
};

/// How many bytes a request's body may have: a list of 254 servers with the longest names has a third of that.
const LONGEST: usize = 512 << 10;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many requests are answered at a time.
const AT_A_TIME: usize = 32;

/// What agents and other servers ask.
pub fn router(server: Arc<Server>) -> Router {
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    let look = server.clone();
    let (reconfigure, list, turn, back) = (server.clone(), server.clone(), server.clone(), server);
    Router::new()
        .route("/v1/server", get(async move || json(StatusCode::OK, &look.view().await)))
        .route(
            "/v1/reconfigure",
            post(async move |request: Request<Body>| {
                act(&reconfigure, request, async |sessions, step: Reconfiguration| sessions.reconfigure(&step).await)
                    .await
            }),
        )
        .route(
            "/v1/server-list",
            post(async move |request: Request<Body>| {
                let incarnation = list.incarnation();
                act(&list, request, async |sessions, list: Ensemble| sessions.publish(&list, &incarnation).await).await
            }),
        )
        .route(
            "/v1/restart-lock",
            post(async move |request: Request<Body>| {
                act(&turn, request, async |sessions, turn: RestartLock| sessions.take_turn(&turn).await).await
            })
            .delete(async move |request: Request<Body>| {
                act(&back, request, async |sessions, turn: RestartLock| sessions.give_turn_back(&turn).await).await
            }),
        )
        .fallback(async || problem(StatusCode::NOT_FOUND, "path", "there is nothing at this path"))
        .method_not_allowed_fallback(async || problem(StatusCode::METHOD_NOT_ALLOWED, "method", "not with this method"))
        .layer(axum::middleware::from_fn(move |request: Request<Body>, next: axum::middleware::Next| {
            let room = room.clone();
            async move {
                match room.try_acquire() {
                    Ok(_one) => next.run(request).await,
                    Err(_) => problem(StatusCode::TOO_MANY_REQUESTS, "busy", "too many requests at a time"),
                }
            }
        }))
}

/// What the kubelet and Prometheus ask.
pub fn probes(server: Arc<Server>, registry: Registry) -> Router {
    let registry = Arc::new(registry);
    let live = server.clone();
    Router::new()
        .route("/livez", get(async move || told(live.alive())))
        .route("/readyz", get(async move || told(server.ready().await)))
        .route(
            "/metrics",
            get(async move || match telemetry::exposition(&registry) {
                Ok((content_type, body)) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }),
        )
}

fn told(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not yet: {reason}\n")).into_response(),
    }
}

async fn act<Asked: DeserializeOwned, Answer: Serialize>(
    server: &Server,
    request: Request<Body>,
    act: impl AsyncFnOnce(Arc<Sessions>, Asked) -> Result<Answer, Refused>,
) -> Response {
    let asked = match read(request).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let Some(sessions) = server.sessions() else {
        return refused(Refused::unavailable("ZooKeeper does not run here"));
    };
    match act(sessions, asked).await {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(error) => refused(error),
    }
}

async fn read<Asked: DeserializeOwned>(request: Request<Body>) -> Result<Asked, Response> {
    let body = match timeout(PATIENCE, to_bytes(request.into_body(), LONGEST)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "body", &format!("the body cannot be read: {error}")));
        }
        Err(_) => return Err(problem(StatusCode::REQUEST_TIMEOUT, "body", "the body takes too long")),
    };
    serde_json::from_slice(&body).map_err(|error| {
        problem(StatusCode::BAD_REQUEST, "body", &format!("the body is not what it should be: {error}"))
    })
}

fn refused(refused: Refused) -> Response {
    match refused {
        Refused::Invalid(problem) => json(StatusCode::BAD_REQUEST, &problem),
        Refused::Conflict(problem) => json(StatusCode::CONFLICT, &problem),
        Refused::Unavailable(problem) => json(StatusCode::SERVICE_UNAVAILABLE, &problem),
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
