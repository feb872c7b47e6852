//! Watches the objects of a kind that a selector matches.
//!
//! A watch starts with the objects that exist, as events (`sendInitialEvents`). The API server sends them from its cache.
//! They may be old: later events correct them.
//!
//! An API server without the feature `WatchList` refuses such a watch. The feature is off by default before Kubernetes 1.32,
//! and in 1.33. If its etcd does not report progress (before 3.4.31, or 3.5.0 to 3.5.12), the API server accepts the watch and
//! ends it with an error. In both cases this process lists the objects in pages until it ends.
//!
//! Pages cost the API server more. After a compaction of etcd, its cache may lack the state of the first page. Then it
//! reads the later pages from etcd, and decodes each object.
//!
//! A watch that fails is begun again after a short pause, until it succeeds. It delays no other stream: `kube`'s controller
//! would stop all of its triggers after an error, for up to a minute.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use http::StatusCode;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        utils::Backoff,
        watcher::{self, Config, DefaultBackoff, Error, Event},
    },
};
use serde::de::DeserializeOwned;
use tracing::{debug, info, warn};

use crate::jitter::jittered;

/// How long the API server keeps a watch, in seconds: shorter than the idle timeouts of common proxies.
const TIMEOUT_SECONDS: u32 = 200;

/// Streams of one list in a row that end before the list does. Then pages follow: one connection may break.
const MOST_BROKEN: usize = 2;

/// Longest pause after a failure, however long an API server was away.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Least time between two warnings of one watch.
const WARNED_EVERY: Duration = Duration::from_secs(60);

/// The events of the objects that the configuration selects. The first ones may be old.
#[must_use]
pub fn events<K>(api: Api<K>, config: Config) -> BoxStream<'static, Event<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (url, config) = (api.resource_url().to_owned(), config.timeout(TIMEOUT_SECONDS));
    let streamed = watcher::watcher(api.clone(), config.clone().streaming_lists());
    let paged = move || {
        info!(url = api.resource_url(), "The API server does not stream these objects: listing them in pages");
        watcher::watcher(api, config).boxed()
    };
    retried(url, with_fallback(streamed.boxed(), paged))
}

/// The same, from the newest state on.
#[must_use]
pub fn newest<K>(api: Api<K>, config: Config) -> BoxStream<'static, Event<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    retried(api.resource_url().to_owned(), watcher::watcher(api, config.timeout(TIMEOUT_SECONDS)))
}

/// The events without the failures. A pause follows each failure, and the log has one a minute.
fn retried<K: Send + 'static>(
    url: String,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
) -> BoxStream<'static, Event<K>> {
    let mut warned: Option<Instant> = None;
    let mut log = move |error: &Error| {
        if warned.is_none_or(|at| at.elapsed() >= WARNED_EVERY) {
            warned = Some(Instant::now());
            warn!(url, %error, "Watch failed");
        } else {
            debug!(url, %error, "Watch failed again");
        }
    };
    let events = events.backoff(Pauses::default());
    events.filter_map(move |event| std::future::ready(event.inspect_err(&mut log).ok())).boxed()
}

/// Pauses after failures, longer ones while each follows the last one within two minutes.
#[derive(Default)]
struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| jittered(pause.min(LONGEST_PAUSE)))
    }
}

impl Backoff for Pauses {
    /// An event is no success: one comes before each list, and the list may fail.
    fn reset(&mut self) {}
}

/// The events of `streamed`. Once the API server does not stream, those of `paged`.
fn with_fallback<'a, K: Send + 'a>(
    streamed: BoxStream<'a, watcher::Result<Event<K>>>,
    paged: impl FnOnce() -> BoxStream<'a, watcher::Result<Event<K>>> + Send + 'a,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'a {
    stream::unfold((streamed, Some((Listing::default(), paged))), |(mut events, mut fallback)| async move {
        loop {
            let event = events.next().await?;
            match fallback.take_if(|(listing, _)| listing.is_refused(&event)) {
                None => return Some((event, (events, fallback))),
                // The event is dropped: pages begin with one of their own.
                Some((_, paged)) => events = paged(),
            }
        }
    })
}

/// How far the streamed list is.
#[derive(Debug, Default)]
struct Listing {
    /// True from its begin to its end.
    is_open: bool,
    /// How many times in a row it ended too early.
    broken: usize,
}

impl Listing {
    /// Notes an event. True if the API server does not stream.
    fn is_refused<K>(&mut self, event: &watcher::Result<Event<K>>) -> bool {
        match event {
            Ok(Event::Init) => self.broken += usize::from(std::mem::replace(&mut self.is_open, true)),
            Ok(Event::InitDone) => *self = Self::default(),
            Err(error) => return refuses_to_stream(error),
            Ok(_) => {}
        }
        self.broken >= MOST_BROKEN
    }
}

/// True if the API server refuses the request itself: 422 without the feature `WatchList`, and 400 for a field that it does
/// not know. Other errors may pass.
fn refuses_to_stream(error: &Error) -> bool {
    let Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
    [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_REQUEST].iter().any(|code| status.code == code.as_u16())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, client::Body};
    use rstest::rstest;
    use serde_json::{Value, json};
    use tokio::time::Instant as Virtual;
    use tower::service_fn;

    use super::*;

    fn object(version: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": version } })
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" })
    }

    /// A line of a watch.
    fn event(type_: &str, object: &Value) -> String {
        json!({ "type": type_, "object": object }).to_string() + "\n"
    }

    /// What an API server answers to a watch that streams a list.
    #[derive(Clone, Copy, Debug)]
    enum Streams {
        Yes,
        /// Its version is older, or lacks the feature.
        Refused,
        /// Its etcd does not report progress.
        Broken,
    }

    fn answer(streams: Streams, query: &str) -> (u16, String) {
        let end = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "", "resourceVersion": "2", "annotations": { "k8s.io/initial-events-end": "true" },
        } });
        match (query.contains("sendInitialEvents=true"), query.contains("watch=true"), streams) {
            (true, _, Streams::Yes) => (200, event("ADDED", &object("1")) + &event("BOOKMARK", &end)),
            (true, _, Streams::Refused) => (422, failure(422, "Invalid").to_string()),
            (true, _, Streams::Broken) => (200, event("ERROR", &failure(500, "InternalError"))),
            (false, true, _) => (200, String::new()),
            (false, false, _) => {
                (200, json!({ "metadata": { "resourceVersion": "2" }, "items": [object("1")] }).to_string())
            }
        }
    }

    /// The objects of an API server with these answers to a query.
    fn served<A>(answer: A) -> Api<ConfigMap>
    where
        A: Fn(&str) -> (u16, String) + Clone + Send + 'static,
    {
        let service = service_fn(move |request: Request<Body>| {
            let (status, body) = answer(request.uri().query().unwrap_or_default());
            async move { Ok::<_, tower::BoxError>(Response::builder().status(status).body(Body::from(body.into_bytes()))?) }
        });
        Api::all(Client::new(service, "n"))
    }

    #[rstest]
    #[case(Streams::Yes, 0)]
    #[case(Streams::Refused, 1)]
    #[case(Streams::Broken, 1)]
    #[tokio::test(start_paused = true)]
    async fn objects_come_with_and_without_streamed_lists(#[case] streams: Streams, #[case] lists: usize) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&asked);
        let api = served(move |query| {
            all.lock().unwrap().push(query.to_owned());
            answer(streams, query)
        });
        let mut seen = Vec::new();
        let mut events = events(api, Config::default().labels("a=b"));
        while !matches!(seen.last(), Some(Event::InitDone)) {
            seen.extend(events.next().await);
        }
        assert!(matches!(&*seen, [.., Event::Init, Event::InitApply(_), Event::InitDone]), "{seen:?}");
        let asked = asked.lock().unwrap();
        assert_eq!(asked.iter().filter(|query| !query.contains("watch=true")).count(), lists, "{asked:?}");
        assert!(asked.iter().all(|query| query.contains("labelSelector=a%3Db")), "{asked:?}");
    }

    /// Without a limit, each further failure would cost up to a minute.
    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_was_away_for_long_is_watched_again_soon() {
        const AWAY: Duration = Duration::from_secs(300);
        let (begin, failures) = (Virtual::now(), Arc::new(AtomicUsize::new(0)));
        let api = served(move |query| match begin.elapsed() {
            Duration::ZERO if query.contains("sendInitialEvents=true") => answer(Streams::Yes, query),
            elapsed if elapsed < AWAY => (503, "away".to_owned()),
            _ => match failures.fetch_add(1, Ordering::Relaxed) {
                // It does not know the kind yet, and then not the version.
                0 => (404, "unknown".to_owned()),
                1 => (200, event("ERROR", &failure(410, "Expired"))),
                _ => answer(Streams::Yes, query),
            },
        });
        let mut events = events(api, Config::default());
        for _ in 0..2 {
            while !matches!(events.next().await, Some(Event::InitDone)) {}
        }
        let late = begin.elapsed().saturating_sub(AWAY);
        assert!(late < Duration::from_secs(20), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_failed_lists_grow() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let api = served(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            (503, "overloaded".to_owned())
        });
        let all = newest(api, Config::default()).for_each(async |_| {});
        assert!(tokio::time::timeout(Duration::from_secs(300), all).await.is_err());
        let asked = asked.load(Ordering::Relaxed);
        assert!((60..130).contains(&asked), "{asked}");
    }

    #[test]
    fn an_overloaded_api_server_may_stream_later() {
        let status = kube::core::Status::failure("overloaded", "TooManyRequests").with_code(429).boxed();
        assert!(!refuses_to_stream(&Error::WatchStartFailed(kube::Error::Api(status))));
    }
}
