//! The HTTP service: the page, the ensembles as JSON, and the stream of their changes. It answers only GET.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::Semaphore;

use super::{
    access::{Access, Caller},
    events::ChangeStream,
    poll::Poll,
    refusal::PageRefusal,
    requested_name::RequestedName,
    steps::OpenSteps,
};
use mczk_runtime::{panics::caught, shutdown::Shutdown};

/// Largest number of open streams.
const MAX_LISTENERS: usize = 64;

/// The page loads nothing of another origin, runs no script in its text, and no other page frames it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                                       connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                                       require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 8] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The files of the page: path, type and content.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/script.js", "text/javascript; charset=utf-8", include_str!("page/script.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// What requests share.
#[derive(Clone)]
struct DashboardState {
    access: Access,
    poll: Poll,
    steps: OpenSteps,
    listeners: Arc<Semaphore>,
    shutdown: Shutdown,
}

/// The service. Streams end when the shutdown is requested.
pub fn router(access: Access, poll: Poll, steps: OpenSteps, shutdown: Shutdown) -> Router {
    let gate = access.clone();
    let dashboard =
        DashboardState { access, poll, steps, listeners: Arc::new(Semaphore::new(MAX_LISTENERS)), shutdown };
    let mut router = Router::new()
        .route("/api/v1/ensembles", get(ensembles_of_all))
        .route("/api/v1/events", get(events_of_all))
        .route("/api/v1/namespaces/{namespace}/ensembles", get(ensembles_of_one))
        .route("/api/v1/namespaces/{namespace}/events", get(events_of_one))
        .route("/api/v1/namespaces/{namespace}/ensembles/{name}/steps", get(steps_of_one))
        .with_state(dashboard);
    for (path, content_type, content) in FILES {
        router = router.route(path, get(async move || ([(header::CONTENT_TYPE, content_type)], content)));
    }
    router
        .layer(middleware::from_fn(move |request: Request, next: Next| check_host(gate.clone(), request, next)))
        .layer(middleware::from_fn(catch_panics))
        .layer(middleware::map_response(with_headers))
}

/// A panic leaves behind only permits, which are returned.
async fn catch_panics(request: Request, next: Next) -> Response {
    caught(next.run(request)).await.unwrap_or_else(|_| {
        tracing::error!("The web page panicked");
        (StatusCode::INTERNAL_SERVER_ERROR, "this request caused a panic, which is a defect of mczk").into_response()
    })
}

async fn check_host(access: Access, request: Request, next: Next) -> Response {
    match access.check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn ensembles_of_all(State(dashboard): State<DashboardState>, caller: Caller) -> Response {
    dashboard.ensembles(caller, None).await
}

async fn ensembles_of_one(
    State(dashboard): State<DashboardState>,
    Path(RequestedName(namespace)): Path<RequestedName>,
    caller: Caller,
) -> Response {
    dashboard.ensembles(caller, Some(namespace)).await
}

async fn events_of_all(State(dashboard): State<DashboardState>, caller: Caller) -> Response {
    dashboard.events(caller, None).await
}

async fn events_of_one(
    State(dashboard): State<DashboardState>,
    Path(RequestedName(namespace)): Path<RequestedName>,
    caller: Caller,
) -> Response {
    dashboard.events(caller, Some(namespace)).await
}

async fn steps_of_one(
    State(dashboard): State<DashboardState>,
    Path((RequestedName(namespace), RequestedName(name))): Path<(RequestedName, RequestedName)>,
    caller: Caller,
) -> Response {
    let permit = match dashboard.admit(&caller, Some(&namespace)).await {
        Ok(permit) => permit,
        Err(refusal) => return refusal.into_response(),
    };
    let answer = dashboard.steps.get(namespace, name).await;
    drop(permit);
    match answer {
        Ok(steps) => ([(header::CONTENT_TYPE, "application/json")], steps).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error).into_response(),
    }
}

impl DashboardState {
    async fn ensembles(self, caller: Caller, namespace: Option<String>) -> Response {
        let mut stream = match self.stream(caller, namespace).await {
            Ok(stream) => stream,
            Err(refusal) => return refusal.into_response(),
        };
        let snapshot = stream.listener.current().await;
        match snapshot.as_ref().map(|snapshot| &snapshot.ensembles) {
            Some(Ok(ensembles)) => {
                let bound = ensembles.bound.as_ref().map(|bound| [(header::WARNING, format!("299 mczk \"{bound}\""))]);
                (bound, stream.into_array()).into_response()
            }
            Some(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, error.clone()).into_response(),
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    async fn events(self, caller: Caller, namespace: Option<String>) -> Response {
        self.stream(caller, namespace).await.map_or_else(PageRefusal::into_response, ChangeStream::into_response)
    }

    /// A stream for a caller that may see the namespace. The caller has its place among the listeners until the stream ends.
    async fn stream(self, caller: Caller, namespace: Option<String>) -> Result<ChangeStream, PageRefusal> {
        let permit = self.admit(&caller, namespace.as_deref()).await?;
        let (access, listener, shutdown) = (self.access, self.poll.listen(namespace.as_deref()), self.shutdown);
        Ok(ChangeStream { access, caller, namespace, listener, shutdown, _permit: permit })
    }

    /// A place among the listeners for a request that may see the namespace.
    async fn admit(
        &self,
        caller: &Caller,
        namespace: Option<&str>,
    ) -> Result<tokio::sync::OwnedSemaphorePermit, PageRefusal> {
        self.access.check(caller, namespace).await?;
        self.listeners.clone().try_acquire_owned().map_err(|_| PageRefusal::Busy)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
