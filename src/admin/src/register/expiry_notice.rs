//! Warns once a day that a credential of the operator itself expires soon: in the log and as an event. No ensemble has a
//! condition for it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::time::timeout;
use tracing::warn;

use mczk_api::contract::certificate_expiry::{Validity, phrase};
use mczk_runtime::{election::Leadership, shutdown::Shutdown};

/// Reason of the event.
const REASON: &str = "CertificateExpires";
/// Time between two warnings. An API server forgets an event after an hour, and a log rotates.
const INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// Time between two looks at the certificate.
const LOOK: Duration = Duration::from_secs(60);
/// Time limit for one event.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the event goes. Only the operator that leads publishes it.
#[derive(Clone)]
pub struct EventTarget {
    recorder: Recorder,
    about: ObjectReference,
    leadership: Leadership,
}

impl EventTarget {
    /// Events about an object in the control plane of the client.
    #[must_use]
    pub fn new(client: Client, about: ObjectReference, leadership: Leadership) -> Self {
        let reporter = Reporter { controller: "mczk".to_owned(), instance: std::env::var("HOSTNAME").ok() };
        Self { recorder: Recorder::new(client, reporter), about, leadership }
    }
}

/// The warnings about one credential.
pub struct ExpiryNotice {
    /// The credential, as the subject of a sentence.
    subject: &'static str,
    /// What the user does.
    remedy: &'static str,
    target: Option<EventTarget>,
    last: Option<Timestamp>,
    /// The last event.
    last_event: Option<Timestamp>,
}

impl ExpiryNotice {
    /// Warnings about the credential; without a target in the log alone.
    #[must_use]
    pub const fn new(subject: &'static str, remedy: &'static str, target: Option<EventTarget>) -> Self {
        Self { subject, remedy, target, last: None, last_event: None }
    }

    /// Looks at the credential every minute until the shutdown is requested.
    pub async fn watch(mut self, validity: impl Fn() -> Validity, shutdown: Shutdown) {
        let shutdown = shutdown.requested();
        tokio::pin!(shutdown);
        loop {
            self.check(validity(), Timestamp::now()).await;
            if timeout(LOOK, &mut shutdown).await.is_ok() {
                return;
            }
        }
    }

    /// Warns if the credential expires soon and the last warning is a day old.
    pub async fn check(&mut self, validity: Validity, now: Timestamp) {
        let message = || format!("{} {}. {}", self.subject, phrase(validity.end, now), self.remedy);
        if is_due(validity, self.last, now) {
            warn!(not_after = %validity.end, "{}", message());
            self.last = Some(now);
        }
        // A process may begin to lead after its first warning.
        let Some(target) = self.target.as_ref().filter(|target| target.leadership.term().is_some()) else { return };
        if !is_due(validity, self.last_event, now) {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: REASON.to_owned(),
            note: Some(message()),
            action: "Renew".to_owned(),
            secondary: None,
        };
        match timeout(PUBLISH_TIMEOUT, target.recorder.publish(&event, &target.about)).await {
            Ok(Ok(())) => self.last_event = Some(now),
            Ok(Err(error)) => warn!(%error, reason = REASON, "Event not published"),
            Err(_) => warn!(reason = REASON, "Event not published: no answer in {} s", PUBLISH_TIMEOUT.as_secs()),
        }
    }
}

/// True if a warning is due.
fn is_due(validity: Validity, last: Option<Timestamp>, now: Timestamp) -> bool {
    validity.is_ending(now) && last.is_none_or(|last| now.duration_since(last) >= INTERVAL)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http_body_util::BodyExt as _;
    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    #[tokio::test]
    async fn one_event_a_day_names_the_date_and_the_remedy() {
        let events: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let stored = events.clone();
        let service = service_fn(move |request: Request<Body>| {
            let stored = stored.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                stored.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                Ok::<_, Infallible>(Response::new(Body::from(body)))
            }
        });
        let about = ObjectReference { kind: Some("X".to_owned()), name: Some("mczk".to_owned()), ..Default::default() };
        let client = Client::new(service, "default");
        let target = EventTarget::new(client, about, Leadership::without_election());
        let mut notice = ExpiryNotice::new("The certificate", "Renew it", Some(target));
        let end: Timestamp = "2026-12-31T00:00:00Z".parse().unwrap();
        let validity = Validity::ending(end, DAY * 365);
        for left in [31, 29, 29, 28] {
            notice.check(validity, end - DAY * left).await;
        }
        let events = events.lock().unwrap();
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[0].0.contains("/namespaces/default/events"), "{events:?}");
        assert_eq!(events[0].1["reason"], REASON);
        assert_eq!(events[0].1["note"], "The certificate expires on 2026-12-31 00:00 UTC. Renew it");
    }

    #[test]
    fn a_certificate_that_is_valid_for_long_needs_no_warning() {
        let now: Timestamp = "2026-11-23T00:00:00Z".parse().unwrap();
        assert!(!is_due(Validity::ending(now + DAY * 200, DAY * 365), None, now));
    }
}
