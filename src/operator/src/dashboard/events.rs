//! The stream of changes, as server-sent events: `ensembles` with all cards, and `failure` with a message.
//!
//! A stream keeps a digest of its last event. The texts are shared with all other streams, and go out in parts: a
//! client that reads slowly has few bytes in buffers of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use sha2::{Digest, Sha256};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};

use super::{
    access::Access,
    poll::{Listener, PolledEnsembles},
    refusal::PageRefusal,
    rendered::{Seen, event, message},
};
use mczk_runtime::shutdown::Shutdown;

/// Time between two checks of the listener's right.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two comments in a quiet stream: proxies close silent connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A comment, which clients ignore.
const COMMENT: &[u8] = b":\n\n";

/// One stream.
pub(super) struct ChangeStream {
    pub(super) access: Access,
    pub(super) headers: HeaderMap,
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
    /// Parts of the last event that the client has not got yet.
    parts: VecDeque<Bytes>,
    /// True if the stream ends after these parts.
    ends: bool,
    check_at: Instant,
    comment_at: Instant,
}

/// Why a stream that has no more parts goes on.
enum Wake {
    /// The program ends.
    Shutdown,
    /// The stream was silent for long.
    Comment,
    /// Rights end while a stream is open.
    Check,
    /// A read. `None` if no further one comes.
    Snapshot(Option<Arc<PolledEnsembles>>),
}

impl ChangeStream {
    /// The events: first the current state, then each change.
    pub(super) fn into_response(self) -> Response {
        let now = Instant::now();
        let state = StreamState {
            changes: self,
            last: None,
            parts: VecDeque::new(),
            ends: false,
            check_at: now + CHECK_INTERVAL,
            comment_at: now + KEEP_ALIVE,
        };
        let parts = stream::unfold(state, async |mut state| {
            let part = state.part().await?;
            Some((Ok::<_, Infallible>(part), state))
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response()
    }
}

impl StreamState {
    /// The next part of the text; `None` at its end.
    async fn part(&mut self) -> Option<Bytes> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                self.comment_at = Instant::now() + KEEP_ALIVE;
                return Some(part);
            }
            if self.ends {
                return None;
            }
            match self.wake().await {
                Wake::Shutdown => return None,
                Wake::Comment => self.parts.push_back(Bytes::from_static(COMMENT)),
                Wake::Check => self.check().await?,
                Wake::Snapshot(snapshot) => {
                    let snapshot = snapshot?;
                    self.show(&snapshot);
                }
            }
        }
    }

    async fn wake(&mut self) -> Wake {
        let is_first = self.last.is_none();
        let ChangeStream { listener, shutdown, .. } = &mut self.changes;
        let snapshot = async { if is_first { listener.current().await } else { listener.next().await } };
        tokio::select! {
            () = shutdown.clone().requested() => Wake::Shutdown,
            () = sleep_until(self.comment_at) => Wake::Comment,
            () = sleep_until(self.check_at) => Wake::Check,
            snapshot = snapshot => Wake::Snapshot(snapshot),
        }
    }

    /// Checks the right again. `None` without a decision: the stream ends, and the page connects again with its token.
    async fn check(&mut self) -> Option<()> {
        let ChangeStream { access, headers, namespace, .. } = &self.changes;
        match access.check(headers, namespace.as_deref()).await {
            Ok(()) => self.check_at = Instant::now() + CHECK_INTERVAL,
            Err(PageRefusal::Busy | PageRefusal::Failed) => return None,
            Err(refusal) => {
                self.parts = event("refused", [message(&refusal.message())]).into();
                self.ends = true;
            }
        }
        Some(())
    }

    /// Sends the snapshot if it differs from the last event.
    fn show(&mut self, snapshot: &PolledEnsembles) {
        let namespace = self.changes.namespace.as_deref();
        let seen = match &snapshot.ensembles {
            Ok(ensembles) => ensembles.digest(namespace),
            Err(error) => Sha256::digest(error).into(),
        };
        if self.last.replace(seen) == Some(seen) {
            return;
        }
        self.parts = match &snapshot.ensembles {
            Ok(ensembles) => event("ensembles", ensembles.array(namespace)),
            Err(error) => event("failure", [message(error)]),
        }
        .into();
    }
}
