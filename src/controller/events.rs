//! Publishes events, in a task of its own: the next cluster does not wait until people have been told of the last one.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, Recorder, Reporter},
};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tracing::warn;

/// Events that wait to be published, at most: some hundred rollouts' in one moment.
const QUEUE: usize = 256;
/// What one event may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What everything that is queued at the end may take.
const LAST: Duration = Duration::from_secs(2);
/// How long an event of the same text counts as the same one again.
const SAME: Duration = Duration::from_secs(360);

/// The way to the task that publishes. The task ends with this value at the latest.
pub(super) struct Queue {
    sender: mpsc::Sender<Item>,
}

/// The task that publishes.
pub(super) struct Publishing(JoinSet<()>);

/// What is queued.
enum Item {
    /// An event about an object.
    Event(Box<(Event, ObjectReference)>),
    /// Nothing comes after this.
    End,
}

/// Starts the task that publishes.
pub(super) fn start(client: Client, reporter: Reporter) -> (Queue, Publishing) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut task = JoinSet::new();
    task.spawn(publish(client, reporter, receiver));
    (Queue { sender }, Publishing(task))
}

impl Queue {
    /// Queues an event. One that finds no place is logged and lost: it is no reason to stop a rollout, nor to remember
    /// events without end while the API server takes none.
    pub(super) fn put(&self, event: Event, about: ObjectReference) {
        let reason = event.reason.clone();
        let item = Item::Event(Box::new((event, about)));
        if self.sender.try_send(item).is_err() {
            warn!(reason, "event not published: too many wait for it already");
        }
    }

    /// Ends the task, once it has published what is queued, and after 2 seconds in any case.
    pub(super) async fn end(&self, mut publishing: Publishing) {
        let published = async {
            // An error means that the task has ended, and nothing is left to wait for.
            let _ = self.sender.send(Item::End).await;
            publishing.0.join_next().await;
        };
        if timeout(LAST, published).await.is_err() {
            warn!("not all events were published in time");
        }
    }
}

async fn publish(client: Client, reporter: Reporter, mut queue: mpsc::Receiver<Item>) {
    // A recorder takes events of one reason for one that comes again, and keeps the first one's text. So each text has a
    // recorder of its own.
    let mut recorders: HashMap<String, (Recorder, Instant)> = HashMap::new();
    while let Some(Item::Event(item)) = queue.recv().await {
        let (event, about) = *item;
        recorders.retain(|_, (_, used)| used.elapsed() < SAME);
        let (recorder, used) = recorders
            .entry(event.note.clone().unwrap_or_default())
            .or_insert_with(|| (Recorder::new(client.clone(), reporter.clone()), Instant::now()));
        *used = Instant::now();
        match timeout(PATIENCE, recorder.publish(&event, &about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, reason = event.reason, "event not published"),
            Err(_) => warn!(reason = event.reason, "event not published: no answer in {} s", PATIENCE.as_secs()),
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
    use kube::{client::Body, runtime::events::EventType};
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    fn event(reason: &str, note: &str) -> Event {
        Event {
            type_: EventType::Normal,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        }
    }

    fn about() -> ObjectReference {
        let text = |text: &str| Some(text.to_owned());
        ObjectReference { name: text("zoo"), namespace: text("n"), uid: text("u"), ..ObjectReference::default() }
    }

    fn reporter() -> Reporter {
        "mczk".into()
    }

    /// Methods and notes.
    type Taken = Arc<Mutex<Vec<(Method, String)>>>;

    /// An API server that takes every event.
    fn server() -> (Client, Taken) {
        let taken = Taken::default();
        let all = Arc::clone(&taken);
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
        (Client::new(service, "default"), taken)
    }

    #[tokio::test]
    async fn what_is_queued_is_published_before_the_end_in_order_and_each_with_its_text() {
        let (client, taken) = server();
        let (queue, publishing) = start(client, reporter());
        for note in ["m1 is complete", "m2 is complete", "m1 is complete"] {
            queue.put(event("ClusterCompleted", note), about());
        }
        queue.end(publishing).await;
        let taken = taken.lock().unwrap();
        let said: Vec<_> = taken.iter().map(|(method, note)| (method.as_str(), note.as_str())).collect();
        // The third one is the first one again: the API server is told to count it.
        assert_eq!(said, [("POST", "m1 is complete"), ("POST", "m2 is complete"), ("PATCH", "m1 is complete")]);
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_holds_nothing_up() {
        let service = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let (queue, publishing) = start(Client::new(service, "default"), reporter());
        for n in 0..2 * QUEUE {
            queue.put(event("Attention", &n.to_string()), about());
        }
        let begun = Instant::now();
        queue.end(publishing).await;
        assert!(begun.elapsed() >= LAST && begun.elapsed() < LAST + PATIENCE);
    }
}
