//! Publishes events in a task of its own, so that no reconcile waits for the API server to store them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tracing::warn;

use mczk_api::contract::event_reasons::Severity;

/// Longest note of an event, in bytes: the API server's limit is 1024.
const MAX_NOTE: usize = 1000;
/// Longest queue: the events of about a hundred rollouts at once.
const QUEUE: usize = 256;
/// Time limit for one event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit at the end for all events in the queue.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which events with the same text count as one that recurs.
const SAME_EVENT: Duration = Duration::from_secs(360);

/// An event with the longest part of the message that an API server accepts.
#[must_use]
pub fn event(severity: Severity, reason: &str, message: &str) -> Event {
    Event {
        type_: match severity {
            Severity::Normal => EventType::Normal,
            Severity::Warning => EventType::Warning,
        },
        reason: reason.to_owned(),
        note: Some(prefix(message, MAX_NOTE)),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

/// The longest prefix of at most this many bytes.
fn prefix(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// The queue to the task that publishes. The task ends when this value is dropped, if not before.
pub struct Queue {
    sender: mpsc::Sender<QueueItem>,
}

/// The task that publishes.
pub struct Publisher(JoinSet<()>);

enum QueueItem {
    /// An event about an object.
    Event(Box<(Event, ObjectReference)>),
    /// Nothing follows.
    End,
}

/// Starts the task that publishes.
#[must_use]
pub fn start(client: Client, reporter: Reporter) -> (Queue, Publisher) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut task = JoinSet::new();
    task.spawn(publish(client, reporter, receiver));
    (Queue { sender }, Publisher(task))
}

impl Queue {
    /// Queues an event. If the queue is full, the event is logged and lost: it must neither stop a rollout nor fill the
    /// memory while the API server stores none.
    pub fn put(&self, event: Event, about: ObjectReference) {
        let reason = event.reason.clone();
        let item = QueueItem::Event(Box::new((event, about)));
        if self.sender.try_send(item).is_err() {
            warn!(reason, "Event not published: the queue is full");
        }
    }

    /// Ends the task once it has published the queue, and after 2 seconds in any case.
    pub async fn end(&self, mut publisher: Publisher) {
        let done = async {
            // An error means that the task has already ended.
            let _ = self.sender.send(QueueItem::End).await;
            publisher.0.join_next().await;
        };
        if timeout(END_TIMEOUT, done).await.is_err() {
            warn!("Not every event was published in time");
        }
    }
}

async fn publish(client: Client, reporter: Reporter, mut queue: mpsc::Receiver<QueueItem>) {
    // A recorder counts events of one reason as one event that recurs, and keeps the first text. So each text has its own
    // recorder.
    let mut recorders: HashMap<String, (Recorder, Instant)> = HashMap::new();
    while let Some(QueueItem::Event(item)) = queue.recv().await {
        let (event, about) = *item;
        recorders.retain(|_, (_, used)| used.elapsed() < SAME_EVENT);
        let (recorder, used) = recorders
            .entry(event.note.clone().unwrap_or_default())
            .or_insert_with(|| (Recorder::new(client.clone(), reporter.clone()), Instant::now()));
        *used = Instant::now();
        match timeout(PUBLISH_TIMEOUT, recorder.publish(&event, &about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, reason = event.reason, "Event not published"),
            Err(_) => warn!(reason = event.reason, "Event not published: no answer in {} s", PUBLISH_TIMEOUT.as_secs()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http_body_util::BodyExt as _;
    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    fn event(reason: &str, note: &str) -> Event {
        super::event(Severity::Normal, reason, note)
    }

    fn about() -> ObjectReference {
        let text = |text: &str| Some(text.to_owned());
        ObjectReference { name: text("zoo"), namespace: text("n"), uid: text("u"), ..ObjectReference::default() }
    }

    fn reporter() -> Reporter {
        "mczk".into()
    }

    /// Methods and notes.
    type Stored = Arc<Mutex<Vec<(Method, String)>>>;

    /// An API server that stores every event.
    fn server() -> (Client, Stored) {
        let stored = Stored::default();
        let all = Arc::clone(&stored);
        let service = service_fn(move |request: Request<Body>| {
            let all = Arc::clone(&all);
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let event: Value = serde_json::from_slice(&body).unwrap();
                all.lock().unwrap().push((method, event["note"].as_str().unwrap().to_owned()));
                Ok::<_, Infallible>(Response::new(Body::from(body)))
            }
        });
        (Client::new(service, "default"), stored)
    }

    #[tokio::test]
    async fn the_queue_is_published_before_the_end_in_order_and_with_every_text() {
        let (client, stored) = server();
        let (queue, publisher) = start(client, reporter());
        for note in ["m1 is complete", "m2 is complete", "m1 is complete"] {
            queue.put(event("ClusterCompleted", note), about());
        }
        queue.end(publisher).await;
        let requests = stored.lock().unwrap();
        let texts: Vec<_> = requests.iter().map(|(method, note)| (method.as_str(), note.as_str())).collect();
        // The third event repeats the first: the API server counts it.
        assert_eq!(texts, [("POST", "m1 is complete"), ("POST", "m2 is complete"), ("PATCH", "m1 is complete")]);
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_delays_nothing() {
        let service = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let (queue, publisher) = start(Client::new(service, "default"), reporter());
        for n in 0..2 * QUEUE {
            queue.put(event("Attention", &n.to_string()), about());
        }
        let begun = Instant::now();
        queue.end(publisher).await;
        assert!(begun.elapsed() >= END_TIMEOUT && begun.elapsed() < END_TIMEOUT + PUBLISH_TIMEOUT);
    }
}
