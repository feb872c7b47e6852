//! The HTTP service of the webhook, with limits on requests.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::{
    Json, Router,
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::BodyExt;
use hyper::body::Frame;
use jiff::Timestamp;
use tokio::time::timeout;
use tracing::{Instrument as _, Span, field, info_span};

use super::{
    bodies::{Bodies, BodyReading, Complete, Full},
    metrics::{AnswerOutcome, Metrics},
    rejection::Rejection,
    request_id::RequestId,
};
use mczk_rules::interpreter::{
    handler::{Answered, answer},
    wire::Operation,
};
use mczk_runtime::{panics::caught, traces::SPANS};

/// Limits on requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Largest body in bytes. `AggregateStatus` carries one status for each cluster: at least 7 MiB are needed.
    pub max_body_bytes: usize,
    /// Time for a body.
    pub body_timeout: Duration,
    /// Largest number of bodies that are read at the same time. A further one ends that of the slowest client.
    pub concurrency: usize,
}

/// Bytes of all bodies at the same time; at least one largest body. An answer takes memory besides, on as many threads as
/// the machine has cores.
const BODIES: usize = 24 << 20;

impl Default for RequestLimits {
    fn default() -> Self {
        Self { max_body_bytes: 8 << 20, body_timeout: Duration::from_secs(10), concurrency: 64 }
    }
}

/// Bytes of a refused body that are still read. A client that reads only after it has written then receives the answer
/// instead of a broken connection.
const MAX_DISCARDED: usize = 64 << 20;
/// Time for which a refused body is read.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

struct WebhookState {
    limits: RequestLimits,
    bodies: Bodies,
    metrics: Metrics,
}

/// The service: POST on `path`, which starts with `/`. Errors are JSON in the form of Kubernetes' `Status`, whose
/// message Karmada logs.
pub fn router(path: &str, limits: RequestLimits, metrics: Metrics) -> Router {
    let count = metrics.clone();
    let astray = move |rejection: Rejection, headers: &HeaderMap| {
        count.ended(None, rejection.outcome(), Duration::ZERO);
        let id = RequestId::of(headers);
        tracing::debug!(request_id = id.as_str(), ?rejection, "Request refused");
        let response = rejection.response(&id);
        id.mark(response)
    };
    let (not_post, not_found) = (astray.clone(), astray);
    let bodies = Bodies::new(limits.concurrency, BODIES.max(limits.max_body_bytes));
    let webhook = Arc::new(WebhookState { limits, bodies, metrics });
    Router::new()
        .route(path, post(interpret))
        .with_state(webhook)
        .method_not_allowed_fallback(async move |headers: HeaderMap| not_post(Rejection::NotPost, &headers))
        .fallback(async move |headers: HeaderMap| not_found(Rejection::NotFound, &headers))
}

async fn interpret(State(webhook): State<Arc<WebhookState>>, request: Request) -> Response {
    let id = RequestId::of(request.headers());
    let span = info_span!(
        target: SPANS, "webhook", otel.kind = "server", request_id = id.as_str(), operation = field::Empty,
        status = field::Empty
    );
    // A panic leaves behind only counters and permits, which are returned.
    let handled = caught(handle(&webhook, request, &id)).instrument(span).await;
    let response = handled.unwrap_or_else(|_| {
        // Standard error has the text of the panic. It may contain parts of the body, so the log does not repeat it.
        tracing::error!(request_id = id.as_str(), "The interpreter panicked");
        webhook.metrics.ended(None, Rejection::Panicked.outcome(), Duration::ZERO);
        Rejection::Panicked.response(&id)
    });
    id.mark(response)
}

async fn handle(webhook: &WebhookState, request: Request, id: &RequestId) -> Response {
    let started = Instant::now();
    let _counted = InFlightCount::new(&webhook.metrics);
    let (head, mut body) = request.into_parts();
    let (operation, outcome, response) = match webhook.admit(&head.headers, &mut body).await {
        Ok((body, _place)) => respond(&body, id),
        Err(rejection) => {
            if rejection.leaves_body() && !head.headers.contains_key(header::EXPECT) {
                discard(body).await;
            }
            refuse(rejection, id)
        }
    };
    webhook.metrics.ended(operation, outcome, started.elapsed());
    Span::current().record("operation", operation.map(Operation::name)).record("status", response.status().as_u16());
    response
}

/// Counts a request while it exists, also if its client disconnects and it is dropped early.
struct InFlightCount<'a>(&'a Metrics);

impl<'a> InFlightCount<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.in_flight.inc();
        Self(metrics)
    }
}

impl Drop for InFlightCount<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

fn respond(body: &[u8], id: &RequestId) -> (Option<Operation>, AnswerOutcome, Response) {
    match answer(body, Timestamp::now()) {
        Ok(Answered { operation, object: (namespace, name), refusal, mut reply }) => {
            let (label, request_id) = (operation.map(Operation::name), id.as_str());
            let outcome = if let Some(refusal) = refusal {
                let (uid, reason) = (reply.uid(), refusal.message);
                tracing::info!(request_id, uid, operation = label, ?namespace, ?name, ?reason, "Question refused");
                reply.extend_message(|message| id.end(message));
                AnswerOutcome::Refused
            } else {
                tracing::debug!(
                    request_id,
                    uid = reply.uid(),
                    operation = label,
                    ?namespace,
                    ?name,
                    "Question answered"
                );
                AnswerOutcome::Answered
            };
            (operation, outcome, Json(reply).into_response())
        }
        Err(malformed) => refuse(Rejection::Malformed(malformed.to_string()), id),
    }
}

fn refuse(rejection: Rejection, id: &RequestId) -> (Option<Operation>, AnswerOutcome, Response) {
    let request_id = id.as_str();
    // Too many requests must not become as many lines.
    if matches!(rejection, Rejection::Evicted | Rejection::Full) {
        tracing::debug!(request_id, ?rejection, "Request refused");
    } else {
        tracing::info!(request_id, ?rejection, "Request refused");
    }
    (None, rejection.outcome(), rejection.response(id))
}

impl WebhookState {
    /// Reads the body, which keeps its place until it is answered.
    async fn admit(&self, headers: &HeaderMap, body: &mut Body) -> Result<(Bytes, Complete<'_>), Rejection> {
        if !is_json(headers) {
            return Err(Rejection::NotJson);
        }
        // A body that is announced as too large is not read. A client that waits for "100 Continue" then sends nothing.
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > self.limits.max_body_bytes {
            return Err(Rejection::TooLarge(self.limits.max_body_bytes));
        }
        // A small body mostly arrives with the head. Then it needs no place among those that are read, and no timer.
        let first = futures::poll!(body.frame());
        if let Poll::Ready(Some(Ok(frame))) = &first
            && let Some(data) = frame.data_ref().filter(|_| body.is_end_stream())
            && data.len() <= self.limits.max_body_bytes
        {
            let place = self.bodies.hold(data.len()).map_err(|Full| Rejection::Full)?;
            return Ok((data.clone(), place));
        }
        let place = self.bodies.begin();
        let bytes = tokio::select! {
            read = timeout(self.limits.body_timeout, self.collect(first, body, announced, &place)) => {
                read.unwrap_or(Err(Rejection::TooSlow))?
            }
            () = place.evicted() => return Err(Rejection::Evicted),
        };
        Ok((bytes.into(), place.complete()))
    }

    async fn collect(
        &self,
        mut first: Poll<Option<Result<Frame<Bytes>, axum::Error>>>,
        body: &mut Body,
        announced: usize,
        place: &BodyReading<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        // An announcement costs its sender nothing, so memory is allocated only for bytes that arrive.
        let mut bytes = Vec::new();
        loop {
            let next = match std::mem::replace(&mut first, Poll::Pending) {
                Poll::Ready(frame) => frame,
                Poll::Pending => body.frame().await,
            };
            let Some(frame) = next else { return Ok(bytes) };
            let frame = frame.map_err(|_| Rejection::Malformed("the body is incomplete".to_owned()))?;
            let Some(data) = frame.data_ref() else { continue };
            let length = bytes.len().saturating_add(data.len());
            if length > self.limits.max_body_bytes {
                return Err(Rejection::TooLarge(self.limits.max_body_bytes));
            }
            if length > bytes.capacity() {
                // Twice as much each time, as a vector does, but not more than there is to come.
                let capacity = (2 * bytes.capacity()).min(announced).max(length);
                place.holds(capacity).map_err(|Full| Rejection::Full)?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(data);
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
