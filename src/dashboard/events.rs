//! The stream of changes, as server-sent events: `ensembles` with all cards, and `failure` with a message.

use std::convert::Infallible;
use std::time::Duration;

use axum::{
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use serde_json::json;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};

use super::{
    access::Access,
    card::of_namespace,
    poll::{Listener, Snapshot},
    refusal::Refusal,
};
use crate::runtime::shutdown::Shutdown;

/// Time between two checks of the listener's right.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two comments in a quiet stream: proxies close silent connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One stream.
pub(super) struct Changes {
    pub(super) access: Access,
    pub(super) headers: HeaderMap,
    pub(super) namespace: Option<String>,
    pub(super) listener: Listener,
    pub(super) shutdown: Shutdown,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What a stream knows between two events.
struct State {
    changes: Changes,
    /// Kind and content of the last event.
    last: Option<(&'static str, String)>,
    check_at: Instant,
}

impl Changes {
    /// The events: first the current state, then each change.
    pub(super) fn into_response(self) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        let state = State { changes: self, last: None, check_at: Instant::now() + CHECK_INTERVAL };
        let events = stream::unfold(Some(state), async |state| {
            let mut state = state?;
            let (kind, text, goes_on) = state.next().await?;
            let event = Event::default().event(kind).data(&text);
            state.last = Some((kind, text));
            Some((Ok(event), goes_on.then_some(state)))
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
    }
}

impl State {
    /// The next event that differs from the last one, and whether the stream goes on after it.
    async fn next(&mut self) -> Option<(&'static str, String, bool)> {
        loop {
            let Changes { access, headers, namespace, listener, shutdown, .. } = &mut self.changes;
            let is_first = self.last.is_none();
            let snapshot = async { if is_first { listener.current().await } else { listener.next().await } };
            tokio::select! {
                () = shutdown.clone().requested() => return None,
                () = sleep_until(self.check_at) => {
                    // Rights end while a stream is open.
                    let checked = access.check(headers, namespace.as_deref()).await;
                    // Without a decision the stream ends, and the page connects again with its token.
                    if matches!(checked, Err(Refusal::Busy | Refusal::Failed)) {
                        return None;
                    }
                    if let Err(refusal) = checked {
                        return Some(("refused", json!({ "message": refusal.message() }).to_string(), false));
                    }
                    self.check_at = Instant::now() + CHECK_INTERVAL;
                }
                snapshot = snapshot => {
                    let (kind, text) = event(&*snapshot?, namespace.as_deref());
                    if self.last.as_ref() != Some(&(kind, text.clone())) {
                        return Some((kind, text, true));
                    }
                }
            }
        }
    }
}

/// Kind and content of the event for a snapshot.
fn event(snapshot: &Snapshot, namespace: Option<&str>) -> (&'static str, String) {
    match &snapshot.cards {
        Ok(cards) => ("ensembles", json!(of_namespace(cards, namespace)).to_string()),
        Err(error) => ("failure", json!({ "message": error }).to_string()),
    }
}
