//! One attempt at an object, as the controller and the agent make it: bounded in time, its panics caught, and what comes after
//! a failure.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;

/// Why an attempt did not come to its own end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It took too long.
    Timeout,
    /// It panicked, with this message.
    Panic(String),
}

/// Runs an attempt for so long at most. A panic in it harms nothing else.
///
/// # Errors
/// Why it was cut.
pub async fn bounded<F: Future>(limit: Duration, work: F) -> Result<F::Output, Cut> {
    match Box::pin(tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind())).await {
        Err(_) => Err(Cut::Timeout),
        Ok(Err(panic)) => Err(Cut::Panic(message(panic.as_ref()))),
        Ok(Ok(output)) => Ok(output),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

/// The time until the next attempt, after so many failures in a row: twice as long each time, between the shortest and the
/// longest, and jittered.
#[must_use]
pub fn backoff((shortest, longest): (Duration, Duration), failures: u32) -> Duration {
    jittered(shortest.saturating_mul(1 << failures.min(10)).min(longest))
}

/// Between half of a time and all of it, so that many objects do not come back at once.
#[must_use]
pub fn jittered(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.5..1.0))
}

/// Whether somebody else was there first.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    // 422 with this: an object was there that had not been seen.
    matches!(error, kube::Error::Api(status) if status.code == 409
        || status.code == 422 && status.message.contains("must be specified for an update"))
}

/// Whether nothing can be made because the namespace is being deleted.
#[must_use]
pub fn is_namespace_going(error: &kube::Error) -> bool {
    let going = |details: &kube::core::response::StatusDetails| {
        details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    };
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.details.as_ref().is_some_and(going))
}

/// Whether the object is not there any more.
#[must_use]
pub fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attempt_is_cut_and_its_panic_told() {
        let long = Duration::from_secs(60);
        assert_eq!(bounded(long, async { 7 }).await, Ok(7));
        assert_eq!(bounded(Duration::from_millis(1), std::future::pending::<()>()).await, Err(Cut::Timeout));
        let told = |text: &str| Err::<(), _>(Cut::Panic(text.to_owned()));
        assert_eq!(bounded(long, async { panic!("a defect") }).await, told("a defect"));
        assert_eq!(bounded(long, async { panic!("defect {}", 7) }).await, told("defect 7"));
    }

    #[test]
    fn attempts_come_later_and_later() {
        let bounds = (Duration::from_millis(200), Duration::from_secs(60));
        for (failures, longest) in [(0, 200), (1, 400), (3, 1600), (9, 60_000), (u32::MAX, 60_000)] {
            let longest = Duration::from_millis(longest);
            let wait = backoff(bounds, failures);
            assert!(wait >= longest / 2 && wait <= longest, "{wait:?} after {failures}");
        }
    }
}
