//! One poll of the control plane for all listeners. It reads only while there is a listener.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kube::{Client, ResourceExt};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::card::{Card, card};
use crate::{
    controller::read_only,
    runtime::{
        failure::{Error, is_forbidden},
        shutdown::Shutdown,
    },
};

/// Time for one read of everything.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Bindings that are read at the same time.
const CONCURRENCY: usize = 8;

/// What viewers read in place of an error.
const HIDDEN: &str = "The operator cannot read the ensembles: its log has the cause";

/// What the poll reads.
#[derive(Clone)]
pub(crate) struct Source {
    /// The user whose rights the reads have.
    pub(crate) client: Client,
    /// Namespace of the ensembles; `None` for all.
    pub(crate) namespace: Option<String>,
    /// True if viewers may read errors. They name objects of other namespaces.
    pub(crate) shows_errors: bool,
}

/// The result of one read.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The ensembles, or why they cannot be read.
    pub(super) cards: Result<Vec<Card>, String>,
    read: Instant,
}

/// Hands the newest snapshot to listeners.
#[derive(Clone)]
pub(crate) struct Poll {
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    /// A listener has come.
    wanted: Arc<Notify>,
    interval: Duration,
}

/// A listener. The poll reads while one exists.
pub(super) struct Listener {
    receiver: watch::Receiver<Option<Arc<Snapshot>>>,
    /// Age up to which a snapshot counts as current.
    limit: Duration,
}

impl Poll {
    /// A poll that reads every `interval`.
    pub(crate) fn every(interval: Duration) -> Self {
        Self { snapshots: watch::Sender::new(None), wanted: Arc::default(), interval }
    }

    /// Reads until the shutdown is requested.
    pub(crate) async fn run(self, source: Source, shutdown: Shutdown) {
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
    pub(super) fn publish(&self, cards: Result<Vec<Card>, String>) {
        self.snapshots.send_replace(Some(Arc::new(Snapshot { cards, read: Instant::now() })));
    }

    /// A new listener.
    pub(super) fn listen(&self) -> Listener {
        let receiver = self.snapshots.subscribe();
        self.wanted.notify_one();
        Listener { receiver, limit: self.interval * 2 }
    }
}

impl Listener {
    /// A current snapshot. The first one may have to be read; one that is left of earlier listeners does not count.
    pub(super) async fn current(&mut self) -> Option<Arc<Snapshot>> {
        let limit = self.limit;
        let is_current =
            |snapshot: &Option<Arc<Snapshot>>| snapshot.as_ref().is_some_and(|s| s.read.elapsed() <= limit);
        self.receiver.wait_for(is_current).await.ok()?.clone()
    }

    /// The next snapshot.
    pub(super) async fn next(&mut self) -> Option<Arc<Snapshot>> {
        self.receiver.changed().await.ok()?;
        self.receiver.borrow_and_update().clone()
    }
}

impl Source {
    async fn read(&self) -> Result<Vec<Card>, Error> {
        let objects = read_only::ensembles(&self.client, self.namespace.as_deref()).await?;
        // The clusters only show which reports may be old.
        let clusters = match read_only::member_clusters(&self.client).await {
            Err(Error::Api { source, .. }) if is_forbidden(&source) => None,
            other => Some(other?),
        };
        let known = clusters.as_deref();
        let cards = objects.into_iter().map(|object| async move {
            let namespace = object.namespace().unwrap_or_default();
            let binding = read_only::binding(&self.client, &namespace, &object.name_any()).await?;
            Ok::<_, Error>(card(&object, binding.as_ref(), known))
        });
        stream::iter(cards).buffered(CONCURRENCY).try_collect().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::runtime::shutdown;

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
        let run = tokio::spawn(poll.clone().run(Source { client, namespace: None, shows_errors: true }, stopped));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 0, "without a listener");
        let (mut one, mut two) = (poll.listen(), poll.listen());
        let (first, second) = tokio::join!(one.current(), two.current());
        assert!(first.unwrap().cards.as_ref().unwrap_err().contains("listing MultiClusterZooKeepers"));
        assert!(second.unwrap().cards.is_err());
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        stop.request_shutdown();
        run.await.unwrap();
    }
}
