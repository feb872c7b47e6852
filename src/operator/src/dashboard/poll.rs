//! One poll of the control plane for all listeners. It reads only while there is a listener.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::{Client, ResourceExt, api::DynamicObject};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::rendered::Ensembles;
use mczk_api::karmada::cluster::Cluster;
use mczk_reading::read_only;
use mczk_rules::card::{Card, card};
use mczk_runtime::{
    failure::{Error, is_forbidden},
    shutdown::Shutdown,
};

/// Time for one read of everything.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for one binding: one that does not answer must not hold up all others.
const BINDING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bindings that are read at the same time.
const CONCURRENCY: usize = 8;

/// What a user does without the reports of an ensemble.
const REPORTS_HELP: &str = "States of servers are unknown. Read the ResourceBinding of the ensemble with kubectl: a \
                            version of Karmada that mczk does not support may have written it";
/// What a user does without the clusters.
const CLUSTERS_HELP: &str = "Reports may be old. Check that karmada-apiserver answers kubectl get clusters";

/// What viewers read in place of an error.
const HIDDEN: &str = "The operator cannot read the ensembles: its log has the cause";

/// What the poll reads.
#[derive(Clone)]
pub struct PollSource {
    /// The user whose rights the reads have.
    pub client: Client,
    /// Namespace of the ensembles; `None` for all.
    pub namespace: Option<String>,
    /// True if viewers may read errors. They name objects of other namespaces.
    pub shows_errors: bool,
}

/// The result of one read.
#[derive(Clone, Debug)]
pub struct PolledEnsembles {
    /// The ensembles, or why none of them can be read.
    pub ensembles: Result<Ensembles, String>,
    read: Instant,
}

/// Hands the newest snapshot to listeners.
#[derive(Clone)]
pub struct Poll {
    snapshots: watch::Sender<Option<Arc<PolledEnsembles>>>,
    /// A listener has come.
    wanted: Arc<Notify>,
    interval: Duration,
}

/// A listener. The poll reads while one exists.
pub struct Listener {
    receiver: watch::Receiver<Option<Arc<PolledEnsembles>>>,
    /// Age up to which a snapshot counts as current.
    limit: Duration,
}

impl Poll {
    /// A poll that reads every `interval`.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { snapshots: watch::Sender::new(None), wanted: Arc::default(), interval }
    }

    /// Reads until the shutdown is requested.
    pub async fn run(self, source: PollSource, shutdown: Shutdown) {
        let reads = async {
            loop {
                if self.snapshots.receiver_count() == 0 {
                    self.wanted.notified().await;
                }
                let cards = match timeout(READ_TIMEOUT, source.read()).await {
                    Ok(cards) => cards.map_err(|error| error.to_string()),
                    Err(_) => Err(format!("the API server does not answer within {} s", READ_TIMEOUT.as_secs())),
                };
                self.publish(cards.map_err(|error| {
                    tracing::warn!(%error, "Cannot read the ensembles for the dashboard");
                    if source.shows_errors { error } else { HIDDEN.to_owned() }
                }));
                sleep(self.interval).await;
            }
        };
        tokio::select! {
            () = reads => {}
            () = shutdown.requested() => {}
        }
    }

    /// Hands a result to all listeners.
    pub fn publish(&self, cards: Result<Vec<Card>, String>) {
        let former = self.snapshots.borrow().clone();
        let former = former.as_ref().and_then(|snapshot| snapshot.ensembles.as_ref().ok());
        let ensembles = cards.map(|cards| Ensembles::of(&cards, former));
        self.snapshots.send_replace(Some(Arc::new(PolledEnsembles { ensembles, read: Instant::now() })));
    }

    /// A new listener.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let receiver = self.snapshots.subscribe();
        self.wanted.notify_one();
        Listener { receiver, limit: self.interval * 2 }
    }
}

impl Listener {
    /// A current snapshot. The first one may have to be read; one that is left of earlier listeners does not count.
    pub async fn current(&mut self) -> Option<Arc<PolledEnsembles>> {
        let limit = self.limit;
        let is_current =
            |snapshot: &Option<Arc<PolledEnsembles>>| snapshot.as_ref().is_some_and(|s| s.read.elapsed() <= limit);
        self.receiver.wait_for(is_current).await.ok()?.clone()
    }

    /// The next snapshot.
    pub async fn next(&mut self) -> Option<Arc<PolledEnsembles>> {
        self.receiver.changed().await.ok()?;
        self.receiver.borrow_and_update().clone()
    }
}

impl PollSource {
    async fn read(&self) -> Result<Vec<Card>, Error> {
        let objects = read_only::ensembles(&self.client, self.namespace.as_deref()).await?;
        // The clusters only show which reports may be old.
        let clusters = read_only::member_clusters(&self.client).await;
        let known = clusters.as_deref().ok();
        let unknown = clusters.as_ref().err().filter(|error| !is_refused(error)).map(|error| self.why(error));
        let unknown = unknown.as_deref();
        let cards = objects.into_iter().map(|object| async move {
            let card = self.card(&object, known).await;
            match unknown {
                Some(why) => card.without("The state of the clusters", why, CLUSTERS_HELP),
                None => card,
            }
        });
        Ok(stream::iter(cards).buffered(CONCURRENCY).collect().await)
    }

    /// The card of one ensemble. If its reports cannot be read, its card says so, and all others stay.
    async fn card(&self, object: &DynamicObject, known: Option<&[Cluster]>) -> Card {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let binding = timeout(BINDING_TIMEOUT, read_only::binding(&self.client, &namespace, &name)).await;
        let error = match binding.unwrap_or(Err(Error::Timeout(BINDING_TIMEOUT))) {
            Ok(binding) => return card(object, binding.as_ref(), known),
            Err(error) => error,
        };
        tracing::warn!(%error, namespace, name, "Cannot read the reports of an ensemble for the dashboard");
        card(object, None, known).without("The reports of its clusters", &self.why(&error), REPORTS_HELP)
    }

    /// Why something cannot be read, as viewers may read it. Messages of the API server may name the operator's user.
    fn why(&self, error: &Error) -> String {
        match error {
            Error::Api { source: kube::Error::Api(status), .. } if !self.shows_errors => {
                format!("the API server answers {} {}", status.code, status.reason).trim_end().to_owned()
            }
            Error::Api { .. } if !self.shows_errors => "the API server does not answer".to_owned(),
            // This version cannot parse an object of the ensemble's own namespace, or time is over.
            other => other.to_string(),
        }
    }
}

/// True if the reader has no right to what it asked for.
fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Api { source, .. } if is_forbidden(source))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_runtime::shutdown;

    /// A client of an API server that answers nothing, and counts the requests.
    fn silent() -> (Client, Arc<std::sync::atomic::AtomicUsize>) {
        let count = Arc::<std::sync::atomic::AtomicUsize>::default();
        let counted = count.clone();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no route")))
        });
        (Client::new(service, "n"), count)
    }

    #[tokio::test]
    async fn the_poll_reads_only_for_listeners_and_shares_one_read() {
        let (client, count) = silent();
        let poll = Poll::every(Duration::from_secs(3600));
        let (stop, stopped) = shutdown::channel();
        let run = tokio::spawn(poll.clone().run(PollSource { client, namespace: None, shows_errors: true }, stopped));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 0, "without a listener");
        let (mut one, mut two) = (poll.listen(), poll.listen());
        let (first, second) = tokio::join!(one.current(), two.current());
        assert!(first.unwrap().ensembles.as_ref().unwrap_err().contains("listing MultiClusterZooKeepers"));
        assert!(second.unwrap().ensembles.is_err());
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        stop.request_shutdown();
        run.await.unwrap();
    }

    /// A client of an API server with two ensembles. It refuses the clusters, and the binding of `one` cannot be parsed.
    fn partly_readable() -> Client {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let status = |code: u16| {
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": if code == 404 { "NotFound" } else { "Broken" }, "message": "User \"operator\" fails" })
            };
            let named = |name: &str| {
                multi_cluster_zookeeper::<Value>(json!({ "metadata": { "namespace": "a", "name": name } }))
            };
            let (code, body) = if path.ends_with("/multiclusterzookeepers") {
                (200, json!({ "metadata": {}, "items": [named("one"), named("two")] }))
            } else if path.ends_with("/clusters") {
                (500, status(500))
            } else if path.contains("/resourcebindings/one") {
                (
                    200,
                    json!({ "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "metadata": { "namespace": "a", "name": "one" }, "status": { "aggregatedStatus": 7 } }),
                )
            } else {
                (404, status(404))
            };
            let body = kube::client::Body::from(serde_json::to_vec(&body).unwrap());
            std::future::ready(Ok::<_, std::convert::Infallible>(
                http::Response::builder().status(code).body(body).unwrap(),
            ))
        });
        Client::new(service, "n")
    }

    #[tokio::test]
    async fn one_unreadable_object_concerns_its_own_card_alone() {
        let source = PollSource { client: partly_readable(), namespace: None, shows_errors: false };
        let cards = json!(source.read().await.unwrap());
        let messages = |index: usize| {
            let findings = cards[index]["findings"].as_array().unwrap();
            findings.iter().map(|finding| finding["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let of = |index: usize, text: &str| messages(index).into_iter().find(|message| message.starts_with(text));
        let reports = of(0, "The reports of its clusters cannot be read: ").unwrap();
        assert!(reports.contains("parsing ResourceBinding a/one"), "{reports}");
        assert_eq!(of(1, "The reports"), None);
        let summary = cards[0]["summary"].as_str().unwrap();
        assert!(summary.contains("The reports of its clusters cannot be read."), "{summary}");
        for index in [0, 1] {
            // Both depend on the clusters. The operator's user is no business of viewers.
            let clusters = of(index, "The state of the clusters cannot be read: ").unwrap();
            assert!(clusters.ends_with("the API server answers 500 Broken"), "{clusters}");
            assert_eq!(cards[index]["waits"], true);
        }
    }
}
