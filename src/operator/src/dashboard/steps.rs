//! The steps of the ensembles that viewers have open. Each is read and computed at most once in [`INTERVAL`], however many
//! viewers ask.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use axum::body::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, timeout},
};

use super::source::PollSource;
use mczk_reading::read_only::{self, ReadOutcome};
use mczk_rules::{rollout::plan::plan, view::steps};

/// Time for which computed steps serve every viewer.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time for one read.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
/// Ensembles that are read at the same time: each read holds all around one, and the member clusters.
const CONCURRENCY: usize = 2;
/// Most ensembles whose steps are in memory.
const MOST: usize = 64;

/// Steps as JSON, or why they cannot be computed.
pub(crate) type StepsAnswer = Result<Bytes, String>;
/// Namespace and name.
type EnsembleKey = (String, String);
/// The newest answer about one ensemble. A viewer that comes during a read waits for it.
type Slot = Arc<Mutex<Option<(Instant, StepsAnswer)>>>;

/// The steps of the ensembles that viewers have open.
#[derive(Clone)]
pub struct OpenSteps {
    source: PollSource,
    slots: Arc<Mutex<HashMap<EnsembleKey, (Instant, Slot)>>>,
    reads: Arc<Semaphore>,
}

impl OpenSteps {
    /// Steps that are computed from reads of this source.
    #[must_use]
    pub fn of(source: PollSource) -> Self {
        Self { source, slots: Arc::default(), reads: Arc::new(Semaphore::new(CONCURRENCY)) }
    }

    /// The steps of one ensemble.
    pub(crate) async fn get(&self, namespace: String, name: String) -> StepsAnswer {
        let read = async { self.read(&namespace, &name).await };
        self.shared((namespace.clone(), name.clone()), read).await
    }

    /// The answer of a read, unless a recent one is there.
    async fn shared(&self, key: EnsembleKey, read: impl Future<Output = StepsAnswer>) -> StepsAnswer {
        let slot = self.slot(key).await;
        let mut newest = slot.lock().await;
        if let Some((at, answer)) = newest.as_ref()
            && at.elapsed() < INTERVAL
        {
            return answer.clone();
        }
        let began = Instant::now();
        let answer = read.await;
        *newest = Some((began, answer.clone()));
        answer
    }

    async fn slot(&self, key: EnsembleKey) -> Slot {
        let mut slots = self.slots.lock().await;
        if !slots.contains_key(&key) && slots.len() >= MOST {
            let oldest = slots.iter().min_by_key(|(_, (asked, _))| *asked).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| slots.remove(&oldest));
        }
        let (asked, slot) = slots.entry(key).or_insert_with(|| (Instant::now(), Slot::default()));
        *asked = Instant::now();
        slot.clone()
    }

    async fn read(&self, namespace: &str, name: &str) -> StepsAnswer {
        let answer = timeout(READ_TIMEOUT, Box::pin(self.compute(namespace, name))).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", READ_TIMEOUT.as_secs())));
        answer.map_err(|error| {
            tracing::warn!(error, namespace, name, "Cannot compute the steps of an ensemble for the dashboard");
            if self.source.shows_errors { error } else { "the operator's log has the cause".to_owned() }
        })
    }

    async fn compute(&self, namespace: &str, name: &str) -> StepsAnswer {
        let _permit = self.reads.acquire().await;
        let PollSource { client, namespace: only, .. } = &self.source;
        let is_shown = only.as_ref().is_none_or(|only| only == namespace);
        let object = if is_shown { read_only::ensemble(client, namespace, name).await } else { Ok(None) };
        let Some(object) = object.map_err(|error| error.to_string())? else {
            return Err("the object does not exist".to_owned());
        };
        let outcome = read_only::observe(client, &object, None).await.map_err(|error| error.to_string())?;
        match outcome {
            ReadOutcome::Observed(observed) => {
                let steps = steps::view(&plan(&observed, Timestamp::now()).steps);
                Ok(Bytes::from(json!(steps).to_string()))
            }
            ReadOutcome::Gone => Err("the object has just been deleted".to_owned()),
            ReadOutcome::Unreadable(_, error) => Err(format!("this version of mczk cannot parse the object: {error}")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::Client;
    use tokio::time::{advance, sleep};

    use super::*;

    fn steps() -> OpenSteps {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no route")))
        });
        let client = Client::new(service, "n");
        OpenSteps::of(PollSource { client, namespace: Some("n".to_owned()), shows_errors: true })
    }

    fn key(name: &str) -> EnsembleKey {
        ("n".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_in_ten_seconds_serves_all_viewers() {
        let (steps, reads) = (steps(), AtomicUsize::new(0));
        let ask = |name: &'static str| {
            steps.shared(key(name), async {
                sleep(Duration::from_secs(1)).await;
                let number = reads.fetch_add(1, Ordering::Relaxed);
                Ok(Bytes::from(number.to_string()))
            })
        };
        let (first, second, other) = tokio::join!(ask("a"), ask("a"), ask("b"));
        assert_eq!(first, second, "the second viewer waits for the read of the first one");
        assert_ne!(first, other);
        advance(Duration::from_secs(8)).await;
        assert_eq!(ask("a").await, first);
        advance(Duration::from_secs(2)).await;
        assert_ne!(ask("a").await, first);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let steps = steps();
        for number in 0..MOST + 3 {
            let _ = steps.shared(key(&number.to_string()), async { Ok(Bytes::new()) }).await;
            advance(Duration::from_millis(1)).await;
        }
        let slots = steps.slots.lock().await;
        assert_eq!(slots.len(), MOST);
        assert!(!slots.contains_key(&key("0")) && slots.contains_key(&key(&MOST.to_string())));
    }

    #[tokio::test]
    async fn an_ensemble_of_another_namespace_is_not_read() {
        let answer = steps().get("other".to_owned(), "zk".to_owned()).await;
        assert_eq!(answer, Err("the object does not exist".to_owned()));
    }
}
