//! A layer of the client: it refuses writes while this process may not act.
//!
//! A reconcile is cancelled when its term ends, but a process that was stopped in between continues anywhere. This is the
//! last place before a request leaves the process.

use std::task::{Context, Poll};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request};
use tower::{BoxError, Layer, Service};

use super::leadership::Leadership;

/// The write was not sent: another process may act.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process does not hold the lease any more")]
struct NotHolder;

/// Refuses writes while this process may not act.
#[derive(Clone, Debug)]
pub struct HolderOnly<S = ()> {
    leadership: Leadership,
    inner: S,
}

impl HolderOnly {
    /// The layer.
    #[must_use]
    pub fn new(leadership: Leadership) -> Self {
        Self { leadership, inner: () }
    }
}

impl<S> Layer<S> for HolderOnly {
    type Service = HolderOnly<S>;

    fn layer(&self, inner: S) -> HolderOnly<S> {
        HolderOnly { leadership: self.leadership.clone(), inner }
    }
}

impl<S, B> Service<Request<B>> for HolderOnly<S>
where
    S: Service<Request<B>, Response: Send + 'static, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        if !reads && self.leadership.term().is_none() {
            return std::future::ready(Err(NotHolder.into())).boxed();
        }
        self.inner.call(request).map(|answer| answer.map_err(Into::into)).boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, Instant};

    use rstest::rstest;
    use tokio::sync::watch;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::election::Term;

    #[rstest]
    #[case::holder(Some(60), "PATCH", true)]
    #[case::former_holder(Some(0), "PATCH", false)]
    #[case::candidate(None, "DELETE", false)]
    #[case::candidate_reads(None, "GET", true)]
    #[tokio::test]
    async fn only_the_holder_writes(#[case] seconds: Option<u64>, #[case] method: &str, #[case] is_sent: bool) {
        let term = seconds.map(|left| Term { number: 1, end: Some(Instant::now() + Duration::from_secs(left)) });
        let leadership = Leadership::new(watch::channel(term).1, watch::Sender::new(0));
        let service = HolderOnly::new(leadership).layer(service_fn(|_: Request<()>| async { Ok::<_, BoxError>(()) }));
        let answer = service.oneshot(Request::builder().method(method).body(()).unwrap()).await;
        assert_eq!(answer.is_ok(), is_sent);
    }
}
