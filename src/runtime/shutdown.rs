//! The wish to end, as one side utters it and all others wait for it.

use tokio::sync::watch;

/// Utters the wish; dropped, it counts as uttered.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Waits for the wish. Clones wait for the same.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Both sides.
#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// It is time to end.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns when it is time to end.
    pub async fn requested(mut self) {
        // An error means that the trigger is gone, and with it whoever could still want this to go on.
        let _ = self.0.wait_for(|wanted| *wanted).await;
    }
}
