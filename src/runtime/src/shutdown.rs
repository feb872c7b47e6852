//! The request to shut down: one side makes it, and all others wait for it.

use tokio::sync::watch;

/// Requests the shutdown. Dropping it counts as a request.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Waits for the request. Clones wait for the same one.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Both sides.
#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Requests the shutdown.
    pub fn request_shutdown(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// True if the shutdown is requested.
    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns once the shutdown is requested.
    pub async fn requested(mut self) {
        // An error means that the trigger was dropped.
        let _ = self.0.wait_for(|requested| *requested).await;
    }
}
