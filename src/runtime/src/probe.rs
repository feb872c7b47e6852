//! Probes for the kubelet and metrics for Prometheus, on their own port: `/livez`, `/readyz` and `/metrics`.

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::{
    http_server::{self, Limits, Transport},
    readiness::Gates,
    shutdown::Shutdown,
    telemetry,
};

/// The service. `/livez` always succeeds: the end of any task ends the process.
pub fn router(gates: Gates, registry: Registry) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || readyz(&gates)))
        .route("/metrics", telemetry::pages(registry))
}

/// Serves the probes until the shutdown is requested.
pub async fn serve(listener: TcpListener, router: Router, shutdown: Shutdown) {
    let limits = Limits::of_probes();
    http_server::serve(listener, Transport::Plain, router, limits, http_server::Metrics::default(), shutdown).await;
}

fn readyz(gates: &Gates) -> Response {
    let closed = gates.closed();
    if closed.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", closed.join("\nnot ready: "))).into_response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use prometheus_client::metrics::gauge::Gauge;
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_when_the_last_gate_opens() {
        let gates = Gates::new();
        let mut registry = Registry::default();
        let in_flight = Gauge::<i64>::default();
        registry.register("mczk_webhook_requests_in_flight", "Requests in flight", in_flight.clone());
        in_flight.set(2);
        let router = router(gates.clone(), registry);
        let (one, two) = (gates.gate("the webhook does not listen yet"), gates.gate("the process is shutting down"));
        assert_eq!(get(&router, "/livez").await, (StatusCode::OK, "ok\n".into()));
        assert_eq!(
            get(&router, "/readyz").await,
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: the webhook does not listen yet\nnot ready: the process is shutting down\n".into()
            )
        );
        one.open();
        two.open();
        assert_eq!(get(&router, "/readyz").await, (StatusCode::OK, "ok\n".into()));
        let (status, text) = get(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("mczk_webhook_requests_in_flight 2"), "{text}");
        assert_eq!(get(&router, "/").await.0, StatusCode::NOT_FOUND);
    }
}
