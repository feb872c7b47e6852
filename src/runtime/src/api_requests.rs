//! A layer of the client: it counts requests to the API server, also those that hang and those that are cancelled.

use std::{
    task::{Context, Poll},
    time::Instant,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tower::{Layer, Service};

use crate::telemetry::register_family;

/// Bounds of the buckets of request times, in seconds. A reconcile ends after 60 seconds.
const BUCKETS: [f64; 11] = [0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

/// Metrics of requests to the API server, and the layer that counts them. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    in_flight: Family<MethodLabel, Gauge>,
    seconds: Family<MethodLabel, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Registers the metrics with this prefix of their names.
    #[must_use]
    pub fn new(registry: &mut Registry, prefix: &str) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = Self {
            requests: Family::default(),
            in_flight: Family::default(),
            seconds: Family::new_with_constructor(seconds),
        };
        register_family(
            registry,
            format!("{prefix}_api_requests"),
            "Requests to the API server, by method and result: `ok`, `not_found`, `conflict`, `throttled`, `refused`, `failed`, `unanswered`, or `cancelled`",
            metrics.requests.clone(),
        );
        register_family(
            registry,
            format!("{prefix}_api_requests_in_flight"),
            "Requests to the API server that await the head of their answer, by method",
            metrics.in_flight.clone(),
        );
        register_family(
            registry,
            format!("{prefix}_api_request_duration_seconds"),
            "Time from a request to the API server until the head of its answer or its cancellation, by method",
            metrics.seconds.clone(),
        );
        metrics
    }
}

/// One of a few words: a label of foreign words would have no bound.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

fn result(status: Option<StatusCode>) -> &'static str {
    match status {
        None => "unanswered",
        Some(StatusCode::NOT_FOUND) => "not_found",
        Some(StatusCode::CONFLICT) => "conflict",
        Some(StatusCode::TOO_MANY_REQUESTS) => "throttled",
        Some(status) if status.is_client_error() => "refused",
        Some(status) if status.is_server_error() => "failed",
        Some(_) => "ok",
    }
}

/// A request until the head of its answer. The caller may drop it before, as at the end of a reconcile's time.
struct Pending {
    metrics: Metrics,
    method: &'static str,
    begin: Instant,
    result: &'static str,
}

impl Pending {
    fn new(metrics: Metrics, method: &'static str) -> Self {
        metrics.in_flight.get_or_create(&MethodLabel { method }).inc();
        Self { metrics, method, begin: Instant::now(), result: "cancelled" }
    }

    fn answered(mut self, status: Option<StatusCode>) {
        self.result = result(status);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Self { ref metrics, method, begin, result } = *self;
        let label = MethodLabel { method };
        metrics.in_flight.get_or_create(&label).dec();
        metrics.requests.get_or_create(&RequestLabels { method, result }).inc();
        metrics.seconds.get_or_create(&label).observe(begin.elapsed().as_secs_f64());
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    metrics: Metrics,
    inner: S,
}

impl<S> Layer<S> for Metrics {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { metrics: self.clone(), inner }
    }
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>, Future: Send + 'static>,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<A>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let pending = Pending::new(self.metrics.clone(), method(request.method()));
        let count = move |answer: &Result<Response<A>, S::Error>| {
            pending.answered(answer.as_ref().ok().map(Response::status));
        };
        self.inner.call(request).inspect(count).boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tower::{BoxError, ServiceExt, service_fn};

    use super::*;
    use crate::telemetry::exposition;

    #[tokio::test]
    async fn every_request_counts_with_its_result() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "mczk");
        let answers = [
            ("GET", Some(200), "ok"),
            ("GET", Some(404), "not_found"),
            ("PUT", Some(409), "conflict"),
            ("PATCH", Some(429), "throttled"),
            ("POST", Some(403), "refused"),
            ("DELETE", Some(503), "failed"),
            ("PURGE", None, "unanswered"),
        ];
        for (method, status, _) in answers {
            let answer = service_fn(move |_: Request<()>| async move {
                let status: u16 = status.ok_or("the connection ended")?;
                Ok::<_, BoxError>(Response::builder().status(status).body(())?)
            });
            let request = Request::builder().method(method).body(()).unwrap();
            assert_eq!(metrics.layer(answer).oneshot(request).await.is_ok(), status.is_some());
        }
        let page = exposition(&registry).unwrap();
        for (method, _, result) in answers {
            let method = if method == "PURGE" { "other".to_owned() } else { method.to_lowercase() };
            let sample = format!("mczk_api_requests_total{{method=\"{method}\",result=\"{result}\"}} 1\n");
            assert!(page.contains(&sample), "{sample} is missing in {page}");
        }
        assert!(page.contains("mczk_api_request_duration_seconds_count{method=\"get\"} 2\n"), "{page}");
    }

    #[tokio::test]
    async fn a_request_that_hangs_is_in_flight_and_then_cancelled() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "mczk");
        let silent = service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, BoxError>>());
        let request = Box::pin(metrics.layer(silent).oneshot(Request::get("/").body(()).unwrap()));
        let after = std::time::Duration::from_millis(10);
        let meanwhile = async {
            tokio::time::sleep(after).await;
            exposition(&registry).unwrap()
        };
        let page = tokio::select! {
            _ = request => String::new(),
            page = meanwhile => page,
        };
        assert!(page.contains("mczk_api_requests_in_flight{method=\"get\"} 1\n"), "{page}");
        assert!(!page.contains("mczk_api_requests_total{"), "{page}");
        let page = exposition(&registry).unwrap();
        assert!(page.contains("mczk_api_requests_in_flight{method=\"get\"} 0\n"), "{page}");
        assert!(page.contains("mczk_api_requests_total{method=\"get\",result=\"cancelled\"} 1\n"), "{page}");
    }
}
