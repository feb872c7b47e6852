//! The stream of changes, as server-sent events: `ensembles` with all cards, `bound` before it if these are not all, and
//! `failure` with a message.
//!
//! A stream keeps a digest of its last event, and the place in it. It takes each text from the newest read when the client
//! is ready for it, so a client that reads slowly holds no text of an older read. If the read has changed meanwhile, another
//! event follows.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures::stream;
use sha2::{Digest, Sha256};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};

use super::{
    access::{Access, Caller},
    poll::{Listener, PolledEnsembles},
    refusal::PageRefusal,
    rendered::{Seen, event},
};
use mczk_runtime::{reconcile::ObjectKey, shutdown::Shutdown};

/// Time between two checks of the listener's right.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time until the next check if the API server does not decide.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time for which a stream goes on without a decision: longer than a short failure, and short for a withdrawn right.
const MOST_UNDECIDED: Duration = Duration::from_secs(30);
/// Time between two comments in a quiet stream: proxies close silent connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A comment, which clients ignore.
const COMMENT: &[u8] = b":\n\n";

pub(super) struct ChangeStream {
    pub(super) access: Access,
    pub(super) caller: Caller,
    pub(super) namespace: Option<String>,
    pub(super) listener: Listener,
    pub(super) shutdown: Shutdown,
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What a stream knows between two parts of its text.
struct StreamState {
    changes: ChangeStream,
    /// Digest of the last event.
    last: Option<Seen>,
    /// What the client has not got yet of the last event, or of the array.
    parts: VecDeque<StreamPart>,
    /// True if the stream ends after these parts.
    ends: bool,
    check_at: Instant,
    /// The stream ends if there is no decision until then.
    decided_until: Instant,
    comment_at: Instant,
}

/// A part of what a stream sends.
enum StreamPart {
    Text(Bytes),
    /// The ensembles of the newest read, or those after one.
    Ensembles(Option<ObjectKey>),
}

impl StreamPart {
    /// An array of all ensembles between two texts.
    fn array(begin: &'static [u8], end: &'static [u8]) -> [Self; 3] {
        [Self::Text(Bytes::from_static(begin)), Self::Ensembles(None), Self::Text(Bytes::from_static(end))]
    }
}

impl ChangeStream {
    /// The events: first the current state, then each change.
    pub(super) fn into_response(self) -> Response {
        let body = StreamState::of(self, VecDeque::new(), false).into_body();
        ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
    }

    /// The newest state alone, as an array.
    pub(super) fn into_array(self) -> Response {
        let body = StreamState::of(self, StreamPart::array(b"[", b"]").into(), true).into_body();
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl StreamState {
    fn of(changes: ChangeStream, parts: VecDeque<StreamPart>, ends: bool) -> Self {
        let now = Instant::now();
        let (check_at, comment_at) = (now + CHECK_INTERVAL, now + KEEP_ALIVE);
        Self { changes, last: None, parts, ends, check_at, decided_until: check_at + MOST_UNDECIDED, comment_at }
    }

    fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, async |mut state| {
            let part = state.part().await?;
            Some((Ok::<_, Infallible>(part), state))
        }))
    }

    /// The next part of the text; `None` at its end.
    async fn part(&mut self) -> Option<Bytes> {
        loop {
            // A client that reads slowly keeps no right that is withdrawn.
            if Instant::now() >= self.check_at {
                self.check().await?;
            }
            match self.parts.pop_front() {
                Some(StreamPart::Text(text)) => {
                    self.comment_at = Instant::now() + KEEP_ALIVE;
                    return Some(text);
                }
                Some(StreamPart::Ensembles(before)) => self.take_after(before.as_ref())?,
                None if self.ends => return None,
                None => self.wait().await?,
            }
        }
    }

    /// Puts the ensembles of the newest read after one before the other parts. `None` if that read failed: the stream ends
    /// within the event, which clients ignore then.
    fn take_after(&mut self, before: Option<&ObjectKey>) -> Option<()> {
        let newest = self.changes.listener.newest()?;
        if let Some((key, text)) = newest.ensembles.as_ref().ok()?.after(before) {
            self.parts.push_front(StreamPart::Ensembles(Some(key.clone())));
            self.parts.push_front(StreamPart::Text(text.clone()));
            if before.is_some() {
                self.parts.push_front(StreamPart::Text(Bytes::from_static(b",")));
            }
        }
        Some(())
    }

    /// Waits for more parts, or until a check is due. `None` at the end.
    async fn wait(&mut self) -> Option<()> {
        let is_first = self.last.is_none();
        let ChangeStream { listener, shutdown, .. } = &mut self.changes;
        let snapshot = async { if is_first { listener.current().await } else { listener.next().await } };
        tokio::select! {
            () = shutdown.clone().requested() => return None,
            () = sleep_until(self.comment_at) => self.parts.push_back(StreamPart::Text(Bytes::from_static(COMMENT))),
            () = sleep_until(self.check_at) => {}
            snapshot = snapshot => {
                let snapshot = snapshot?;
                self.show(&snapshot);
            }
        }
        Some(())
    }

    /// Checks the right again. `None` if the stream ends, and the page connects again with its token.
    async fn check(&mut self) -> Option<()> {
        let ChangeStream { access, caller, namespace, .. } = &self.changes;
        let checked = access.check(caller, namespace.as_deref()).await;
        let now = Instant::now();
        self.check_at = now + CHECK_INTERVAL;
        match checked {
            Ok(()) => self.decided_until = self.check_at + MOST_UNDECIDED,
            Err(PageRefusal::Busy | PageRefusal::Failed) if now < self.decided_until => {
                self.check_at = now + RETRY_INTERVAL;
            }
            Err(PageRefusal::Busy | PageRefusal::Failed) => return None,
            // No event fits into another one, or into an array.
            Err(_) if self.ends || !self.parts.is_empty() => return None,
            Err(refusal) => {
                self.parts.push_back(StreamPart::Text(event("refused", &refusal.message())));
                self.ends = true;
            }
        }
        Some(())
    }

    /// Sends the snapshot if it differs from the last event.
    fn show(&mut self, snapshot: &PolledEnsembles) {
        let seen = match &snapshot.ensembles {
            Ok(ensembles) => ensembles.digest,
            Err(error) => Sha256::digest(error).into(),
        };
        if self.last.replace(seen) == Some(seen) {
            return;
        }
        match &snapshot.ensembles {
            Ok(ensembles) => {
                self.parts.extend(ensembles.bound.as_deref().map(|bound| StreamPart::Text(event("bound", bound))));
                self.parts.extend(StreamPart::array(b"event: ensembles\ndata: [", b"]\n\n"));
            }
            Err(error) => self.parts.push_back(StreamPart::Text(event("failure", error))),
        }
    }
}
