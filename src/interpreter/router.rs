//! The HTTP service around the handler: what is let in, how much of it at a time, and what is said to the rest.

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

/// How much is let in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body. `AggregateStatus` carries one status for each cluster: at least 7 MiB are needed.
    pub max_body_bytes: usize,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// How many requests are read or answered at a time; with `max_body_bytes` it bounds the memory.
    pub concurrency: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body_bytes: 8 << 20, body_timeout: Duration::from_secs(10), concurrency: 64 }
    }
}

/// How much of a body that is not let in is read on, so that its sender, who reads only when it has written, sees the
/// answer and not a broken connection.
const MAX_DISCARDED: usize = 64 << 20;
/// For how long.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

struct Webhook {
    limits: Limits,
    permits: Semaphore,
    metrics: Metrics,
}

/// The service: POST on `path`, which starts with `/`. Whatever is wrong is said in JSON, in the form of Kubernetes'
/// `Status`, whose message Karmada logs.
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
            // The panic's own text went to standard error; it may hold parts of the body, so it is not repeated.
            tracing::error!("a request made the interpreter panic");
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

/// Counts a request while it lives, also if its client goes away and it is dropped half-way.
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
            let asked = operation.map(Operation::name);
            let outcome = if let Some(refusal) = refusal {
                tracing::info!(operation = asked, ?namespace, ?name, reason = ?refusal.message, "refused");
                Outcome::Refused
            } else {
                tracing::debug!(operation = asked, ?namespace, ?name, "answered");
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

/// A body that was let in, and the room that it takes until it is answered.
struct Admitted<'a> {
    body: Vec<u8>,
    _permit: SemaphorePermit<'a>,
}

impl Webhook {
    /// Reads the body, if it is let in. The permit is taken before the first byte is read, and never waited for: whoever
    /// waits holds nothing, so nothing can lock up.
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
    // What the head announces needs no reading; a client that waits for "100 Continue" then sends nothing.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(too_large());
    }
    // The announcement costs its sender nothing, so no room is made before the bytes are there.
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Rejection::Malformed("the body ended before its end".to_owned()))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len().saturating_add(data.len()) > max_bytes {
            return Err(too_large());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// Reads on, and forgets; see [`MAX_DISCARDED`].
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
    // Whoever is slower does without the answer.
    let _ = timeout(DISCARD_TIMEOUT, reading).await;
}

/// Why a request gets no answer of the interpreter.
#[derive(Debug)]
enum Rejection {
    NotFound,
    NotPost,
    NotJson,
    /// With how many there are.
    Shed(usize),
    /// With how many bytes are let in.
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

    /// Whether its sender may still be writing.
    const fn leaves_body(&self) -> bool {
        matches!(self, Self::NotJson | Self::Shed(_) | Self::TooLarge(_))
    }

    /// HTTP's status, the word that Kubernetes has for it, and what a person should know.
    fn said(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "NotFound",
                "nothing is served here: check the path of the URL that is registered".to_owned(),
            ),
            Self::NotPost => {
                (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only POST is answered here".to_owned())
            }
            Self::NotJson => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "the Content-Type must be application/json".to_owned(),
            ),
            Self::Shed(concurrency) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                format!("{concurrency} requests are being answered already: try again"),
            ),
            Self::TooLarge(bytes) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                format!("the body is larger than {bytes} bytes: raise --max-body-bytes if it is Karmada's"),
            ),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "Timeout", "the body did not arrive in time".to_owned()),
            Self::Malformed(message) => (StatusCode::BAD_REQUEST, "BadRequest", message),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "mczk failed on this request, which is a fault of mczk".to_owned(),
            ),
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let more = match self {
            // Karmada calls again within its own timeout, but only if told when.
            Self::Shed(_) => Some((header::RETRY_AFTER, "1")),
            Self::NotPost => Some((header::ALLOW, "POST")),
            // What is left of the body is not worth reading.
            Self::TooSlow | Self::TooLarge(_) => Some((header::CONNECTION, "close")),
            _ => None,
        };
        let (code, reason, message) = self.said();
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
