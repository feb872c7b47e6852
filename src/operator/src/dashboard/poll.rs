//! One poll of the control plane for all listeners. It reads only what has a listener: each namespace that one follows, and
//! all namespaces together.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{
    rendered::Ensembles,
    source::{PollSource, RoundClusters},
};
use mczk_runtime::shutdown::Shutdown;

/// Time for one read of everything.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of texts of all namespaces. A read of one of them holds its texts twice.
const MOST_BYTES: usize = 16 << 20;
/// Namespaces that share these bytes, also while there are fewer.
const SHARES: usize = 8;
/// Most namespaces without a listener that are remembered.
const MOST_UNUSED: usize = 64;

/// What viewers read in place of an error.
const HIDDEN: &str = "The operator cannot read the ensembles: its log has the cause";

/// The result of one read.
#[derive(Clone, Debug)]
pub struct PolledEnsembles {
    /// The ensembles, or why none of them can be read.
    pub ensembles: Result<Ensembles, String>,
    read: Instant,
}

/// The newest result of each namespace; the key `None` stands for all together.
type Snapshots = BTreeMap<Option<String>, watch::Sender<Option<Arc<PolledEnsembles>>>>;

/// Hands the newest snapshot to listeners.
#[derive(Clone)]
pub struct Poll {
    snapshots: Arc<Mutex<Snapshots>>,
    /// A listener has come.
    wanted: Arc<Notify>,
    interval: Duration,
}

/// A listener. The poll reads its namespace while it exists.
pub struct Listener {
    receiver: watch::Receiver<Option<Arc<PolledEnsembles>>>,
    /// Age up to which a snapshot counts as current.
    limit: Duration,
}

impl Poll {
    /// A poll that reads every `interval`.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { snapshots: Arc::default(), wanted: Arc::default(), interval }
    }

    /// Reads until the shutdown is requested.
    pub async fn run(self, source: PollSource, shutdown: Shutdown) {
        let reads = async {
            loop {
                let (due, next) = self.due();
                let clusters = RoundClusters::new();
                for namespace in &due {
                    self.read(&source, &clusters, namespace.as_deref()).await;
                }
                if due.is_empty() {
                    let _ = timeout_at(next, self.wanted.notified()).await;
                }
            }
        };
        tokio::select! {
            () = reads => {}
            () = shutdown.requested() => {}
        }
    }

    async fn read(&self, source: &PollSource, clusters: &RoundClusters, namespace: Option<&str>) {
        let most = MOST_BYTES / self.snapshots.lock().len().max(SHARES);
        let ensembles = match timeout(READ_TIMEOUT, Box::pin(source.read(namespace, clusters, most))).await {
            Ok(ensembles) => ensembles.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the API server does not answer within {} s", READ_TIMEOUT.as_secs())),
        };
        let ensembles = ensembles.map_err(|error| {
            tracing::warn!(%error, namespace, "Cannot read the ensembles for the dashboard");
            if source.shows_errors { error } else { HIDDEN.to_owned() }
        });
        self.publish(namespace, ensembles);
    }

    /// The namespaces to read now, and when others follow. One without a listener is forgotten then, and not before: clients
    /// that come again and again cause no more reads.
    fn due(&self) -> (Vec<Option<String>>, Instant) {
        let (now, mut snapshots) = (Instant::now(), self.snapshots.lock());
        let at = |snapshot: &watch::Sender<Option<Arc<PolledEnsembles>>>| {
            snapshot.borrow().as_ref().map_or(now, |snapshot| snapshot.read + self.interval)
        };
        snapshots.retain(|_, snapshot| snapshot.receiver_count() > 0 || at(snapshot) > now);
        let (due, later): (Vec<_>, Vec<_>) = snapshots.iter().partition(|(_, snapshot)| at(snapshot) <= now);
        let next = later.iter().map(|(_, snapshot)| at(snapshot)).min();
        (due.into_iter().map(|(namespace, _)| namespace.clone()).collect(), next.unwrap_or(now + self.interval))
    }

    /// Hands a result to all listeners of a namespace, or of all together.
    pub fn publish(&self, namespace: Option<&str>, ensembles: Result<Ensembles, String>) {
        let snapshot = Arc::new(PolledEnsembles { ensembles, read: Instant::now() });
        self.snapshots.lock().entry(namespace.map(str::to_owned)).or_default().send_replace(Some(snapshot));
    }

    /// A new listener of a namespace, or of all together.
    #[must_use]
    pub fn listen(&self, namespace: Option<&str>) -> Listener {
        let mut snapshots = self.snapshots.lock();
        if snapshots.len() >= MOST_UNUSED {
            snapshots.retain(|_, snapshot| snapshot.receiver_count() > 0);
        }
        let receiver = snapshots.entry(namespace.map(str::to_owned)).or_default().subscribe();
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

    /// The newest snapshot, if one was read. [`Listener::next`] does not leave it out.
    pub(super) fn newest(&self) -> Option<Arc<PolledEnsembles>> {
        self.receiver.borrow().clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use kube::Client;
    use tokio::time::sleep;

    use super::*;
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
        let (mut one, mut two) = (poll.listen(None), poll.listen(None));
        let (first, second) = tokio::join!(one.current(), two.current());
        assert!(first.unwrap().ensembles.as_ref().unwrap_err().contains("listing MultiClusterZooKeepers"));
        assert!(second.unwrap().ensembles.is_err());
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        stop.request_shutdown();
        run.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_namespace_is_read_while_it_has_a_listener() {
        let (client, count) = silent();
        let poll = Poll::every(Duration::from_secs(10));
        let (stop, stopped) = shutdown::channel();
        let run = tokio::spawn(poll.clone().run(PollSource { client, namespace: None, shows_errors: true }, stopped));
        let reads = || count.load(std::sync::atomic::Ordering::Relaxed);
        let (mut all, mut one, mut same) = (poll.listen(None), poll.listen(Some("a")), poll.listen(Some("a")));
        tokio::join!(all.current(), one.current(), same.current());
        assert_eq!(reads(), 2, "all together, and one namespace");
        drop((one, same));
        sleep(Duration::from_secs(25)).await;
        assert_eq!(reads(), 4, "all together alone");
        assert_eq!(poll.snapshots.lock().len(), 1, "the other is forgotten");
        drop(all);
        sleep(Duration::from_secs(100)).await;
        assert_eq!((reads(), poll.snapshots.lock().len()), (4, 0));
        stop.request_shutdown();
        run.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_are_asked_once_are_bounded() {
        let poll = Poll::every(Duration::from_secs(3600));
        for number in 0..1000 {
            let _ = poll.listen(Some(&number.to_string()));
            poll.publish(Some(&number.to_string()), Ok(Ensembles::default()));
        }
        assert!(poll.snapshots.lock().len() <= MOST_UNUSED + 1);
    }
}
