//! Clients leave an ending server between two requests, and not during one.
//!
//! A client that keeps its connection may send a request just as the server closes it. Go's client does not repeat such a
//! POST. So each answer after the signal asks the client to close, and its next request opens a connection to another
//! replica.

use axum::{
    Router,
    http::{HeaderValue, header::CONNECTION},
    response::Response,
};
use tower::util::MapResponseLayer;

use crate::shutdown::Shutdown;

/// The router, whose answers end their connections once `leaving` is requested.
pub fn closing(router: Router, leaving: Shutdown) -> Router {
    router.layer(MapResponseLayer::new(move |mut answer: Response| {
        if leaving.is_requested() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::{body::Body, http::Request, routing::get};
    use tower::ServiceExt;

    use super::*;
    use crate::shutdown;

    #[tokio::test]
    async fn answers_end_their_connections_after_the_signal() {
        let (trigger, leaving) = shutdown::channel();
        let router = closing(Router::new().route("/", get(async || "ok")), leaving);
        for (path, is_ending) in [("/", false), ("/", true), ("/none", true)] {
            if is_ending {
                trigger.request_shutdown();
            }
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let close = answer.headers().get(CONNECTION).map(HeaderValue::as_bytes);
            assert_eq!(close, is_ending.then_some(b"close".as_slice()), "{path}");
        }
    }
}
