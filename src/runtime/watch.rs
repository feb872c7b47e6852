//! Watches all objects of a kind.
//!
//! The first objects come as events of the watch itself. The API server sends them from its cache, and neither side holds
//! all of them at once. Pages of a list come from etcd where the cache cannot serve them: at 10,000 ensembles they took four
//! times as long. An API server older than 1.32, or without the feature `WatchList`, refuses such a watch. Then pages
//! replace it.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use http::StatusCode;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Config, Error, Event},
};
use serde::de::DeserializeOwned;
use tracing::info;

/// How long the API server keeps a watch, in seconds: shorter than the idle timeouts of common proxies.
const TIMEOUT_SECONDS: u32 = 200;

/// Watches the objects that the configuration selects.
pub(crate) fn watch<K>(api: Api<K>, config: Config) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = config.timeout(TIMEOUT_SECONDS);
    let streamed = watcher::watcher(api.clone(), config.clone().streaming_lists());
    or_else(streamed.boxed(), move || watcher::watcher(api, config).boxed()).boxed()
}

/// The events of `streamed`, or those of `paged` from the moment at which the API server refuses to stream a list.
fn or_else<'a, K: Send + 'a>(
    streamed: BoxStream<'a, watcher::Result<Event<K>>>,
    paged: impl FnOnce() -> BoxStream<'a, watcher::Result<Event<K>>> + Send + 'a,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'a {
    stream::unfold((streamed, Some(paged)), |(mut events, mut paged)| async move {
        loop {
            let event = events.next().await?;
            match paged.take_if(|_| event.as_ref().is_err_and(is_refused)) {
                None => return Some((event, (events, paged))),
                Some(paged) => {
                    info!("This API server does not stream lists: reading them in pages");
                    events = paged();
                }
            }
        }
    })
}

/// True if the API server does not know a field of the request, or forbids it.
fn is_refused(error: &Error) -> bool {
    let Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
    [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_REQUEST].iter().any(|code| status.code == code.as_u16())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, client::Body};
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    fn object(version: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": version } })
    }

    /// An API server of an older version refuses to stream.
    fn answer(streams: bool, query: &str) -> (u16, String) {
        let end = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "", "resourceVersion": "2", "annotations": { "k8s.io/initial-events-end": "true" },
        } });
        let events = [json!({ "type": "ADDED", "object": object("1") }), json!({ "type": "BOOKMARK", "object": end })];
        match (query.contains("sendInitialEvents=true"), query.contains("watch=true")) {
            (true, _) if streams => (200, events.map(|event| event.to_string() + "\n").concat()),
            (true, _) => {
                let refused = json!({ "status": "Failure", "code": 422, "reason": "Invalid", "message": "forbidden" });
                (422, refused.to_string())
            }
            (false, true) => (200, String::new()),
            (false, false) => {
                let list = json!({ "metadata": { "resourceVersion": "2" }, "items": [object("1")] });
                (200, list.to_string())
            }
        }
    }

    #[rstest]
    #[case::streams(true, 0)]
    #[case::refuses(false, 1)]
    #[tokio::test]
    async fn objects_come_with_and_without_streamed_lists(#[case] streams: bool, #[case] lists: usize) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (status, body) = answer(streams, &query);
            all.lock().unwrap().push(query);
            async move { Ok::<_, tower::BoxError>(Response::builder().status(status).body(Body::from(body.into_bytes()))?) }
        });
        let api: Api<ConfigMap> = Api::all(Client::new(service, "n"));
        let events: Vec<_> = watch(api, Config::default().labels("a=b")).take(3).collect().await;
        let events: Vec<_> = events.into_iter().map(Result::unwrap).collect();
        assert!(matches!(&*events, [Event::Init, Event::InitApply(_), Event::InitDone]), "{events:?}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.iter().filter(|query| !query.contains("watch=true")).count(), lists, "{asked:?}");
        assert!(asked.iter().all(|query| query.contains("labelSelector=a%3Db")), "{asked:?}");
    }

    #[test]
    fn an_overloaded_api_server_may_stream_later() {
        let status = kube::core::Status::failure("overloaded", "TooManyRequests").with_code(429).boxed();
        assert!(!is_refused(&Error::WatchStartFailed(kube::Error::Api(status))));
    }
}
