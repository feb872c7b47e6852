//! The HTTP service of the webhook, with limits on requests.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::{
    Json, Router,
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::json;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tower_http::catch_panic::CatchPanicLayer;

use super::{
    handler::{Answered, answer},
    metrics::{Metrics, Outcome},
    wire::Operation,
};

/// Limits on requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body in bytes. `AggregateStatus` carries one status for each cluster: at least 7 MiB are needed.
    pub max_body_bytes: usize,
    /// Time for a body.
    pub body_timeout: Duration,
    /// Largest number of concurrent requests. Together with `max_body_bytes` it bounds the memory.
    pub concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body_bytes: 8 << 20, body_timeout: Duration::from_secs(10), concurrency: 64 }
    }
}

/// Bytes of a refused body that are still read. A client that reads only after it has written then receives the answer
/// instead of a broken connection.
const MAX_DISCARDED: usize = 64 << 20;
/// Time for which a refused body is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

struct Webhook {
    limits: Limits,
    permits: Semaphore,
    metrics: Metrics,
}

/// The service: POST on `path`, which starts with `/`. Errors are JSON in the form of Kubernetes' `Status`, whose
/// message Karmada logs.
pub fn router(path: &str, limits: Limits, metrics: Metrics) -> Router {
    let count = metrics.clone();
    let rejected = move |rejection: Rejection| {
        count.ended(None, rejection.outcome(), Duration::ZERO);
        rejection.into_response()
    };
    let (not_post, not_found, panicked) = (rejected.clone(), rejected.clone(), rejected);
    let webhook = Arc::new(Webhook { limits, permits: Semaphore::new(limits.concurrency), metrics });
    Router::new()
        .route(path, post(interpret))
        .with_state(webhook)
        .method_not_allowed_fallback(async move || not_post(Rejection::NotPost))
        .fallback(async move || not_found(Rejection::NotFound))
        .layer(CatchPanicLayer::custom(move |_: Box<dyn Any + Send>| {
            // Standard error has the text of the panic. It may contain parts of the body, so the log does not repeat it.
            tracing::error!("The interpreter panicked");
            panicked(Rejection::Panicked)
        }))
}

async fn interpret(State(webhook): State<Arc<Webhook>>, request: Request) -> Response {
    let started = Instant::now();
    let _counted = InFlight::new(&webhook.metrics);
    let (head, mut body) = request.into_parts();
    let (operation, outcome, response) = match webhook.admit(&head.headers, &mut body).await {
        Ok(Admitted { body, .. }) => respond(&body),
        Err(rejection) => {
            if rejection.leaves_body() && !head.headers.contains_key(header::EXPECT) {
                discard(body).await;
            }
            (None, rejection.outcome(), rejection.into_response())
        }
    };
    webhook.metrics.ended(operation, outcome, started.elapsed());
    response
}

/// Counts a request while it exists, also if its client disconnects and it is dropped early.
struct InFlight<'a>(&'a Metrics);

impl<'a> InFlight<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

fn respond(body: &[u8]) -> (Option<Operation>, Outcome, Response) {
    match answer(body, Timestamp::now()) {
        Ok(Answered { operation, object: (namespace, name), refusal, reply }) => {
            let label = operation.map(Operation::name);
            let outcome = if let Some(refusal) = refusal {
                tracing::info!(operation = label, ?namespace, ?name, reason = ?refusal.message, "Question refused");
                Outcome::Refused
            } else {
                tracing::debug!(operation = label, ?namespace, ?name, "Question answered");
                Outcome::Answered
            };
            (operation, outcome, Json(reply).into_response())
        }
        Err(malformed) => {
            let rejection = Rejection::Malformed(malformed.to_string());
            (None, rejection.outcome(), rejection.into_response())
        }
    }
}

/// An admitted body, with a permit until it is answered.
struct Admitted<'a> {
    body: Vec<u8>,
    _permit: SemaphorePermit<'a>,
}

impl Webhook {
    /// Reads the body if it is admitted. The permit is taken before the first byte is read, and never waited for: a
    /// waiting request holds nothing, so no deadlock is possible.
    async fn admit(&self, headers: &HeaderMap, body: &mut Body) -> Result<Admitted<'_>, Rejection> {
        if !is_json(headers) {
            return Err(Rejection::NotJson);
        }
        let permit = self.permits.try_acquire().map_err(|_| Rejection::Shed(self.limits.concurrency))?;
        let reading = collect(body, self.limits.max_body_bytes);
        let body = timeout(self.limits.body_timeout, reading).await.unwrap_or(Err(Rejection::TooSlow))?;
        Ok(Admitted { body, _permit: permit })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

async fn collect(body: &mut Body, max_bytes: usize) -> Result<Vec<u8>, Rejection> {
    let too_large = || Rejection::TooLarge(max_bytes);
    // A body that is announced as too large is not read. A client that waits for "100 Continue" then sends nothing.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(too_large());
    }
    // An announcement costs its sender nothing, so memory is allocated only for bytes that arrive.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Rejection::Malformed("the body is incomplete".to_owned()))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len().saturating_add(data.len()) > max_bytes {
            return Err(too_large());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// Reads and drops the rest of a body; see [`MAX_DISCARDED`].
async fn discard(mut body: Body) {
    let mut left = MAX_DISCARDED;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // A slower client receives no answer.
    let _ = timeout(DISCARD_TIMEOUT, reading).await;
}

/// Why a request gets no answer of the interpreter.
#[derive(Debug)]
enum Rejection {
    NotFound,
    NotPost,
    NotJson,
    /// With the limit of concurrent requests.
    Shed(usize),
    /// With the largest body in bytes.
    TooLarge(usize),
    TooSlow,
    Malformed(String),
    Panicked,
}

impl Rejection {
    const fn outcome(&self) -> Outcome {
        match self {
            Self::NotFound | Self::NotPost => Outcome::Astray,
            Self::NotJson => Outcome::NotJson,
            Self::Shed(_) => Outcome::Shed,
            Self::TooLarge(_) => Outcome::TooLarge,
            Self::TooSlow => Outcome::TooSlow,
            Self::Malformed(_) => Outcome::Malformed,
            Self::Panicked => Outcome::Panicked,
        }
    }

    /// True if the client may still be writing the body.
    const fn leaves_body(&self) -> bool {
        matches!(self, Self::NotJson | Self::Shed(_) | Self::TooLarge(_))
    }

    /// HTTP status, Kubernetes' reason for it, and a text for the user.
    fn describe(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "NotFound",
                "nothing is served at this path: check the path of the registered URL".to_owned(),
            ),
            Self::NotPost => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only POST is allowed".to_owned()),
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "the Content-Type must be application/json".to_owned(),
            ),
            Self::Shed(concurrency) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                format!("{concurrency} requests are already in flight: try again"),
            ),
            Self::TooLarge(bytes) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                format!("the body is larger than {bytes} bytes: raise --max-body-bytes if Karmada sent it"),
            ),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "Timeout", "the body did not arrive in time".to_owned()),
            Self::Malformed(message) => (StatusCode::BAD_REQUEST, "BadRequest", message),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "this request caused a panic, which is a defect of mczk".to_owned(),
            ),
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let more = match self {
            // Karmada repeats the request within its own timeout only if this header is present.
            Self::Shed(_) => Some((header::RETRY_AFTER, "1")),
            Self::NotPost => Some((header::ALLOW, "POST")),
            // The rest of the body is not read.
            Self::TooSlow | Self::TooLarge(_) => Some((header::CONNECTION, "close")),
            _ => None,
        };
        let (code, reason, message) = self.describe();
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code.as_u16(), "reason": reason, "message": message,
        });
        let mut response = (code, Json(status)).into_response();
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
