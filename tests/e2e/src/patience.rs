//! Polls a condition, with a deadline and an error that holds the last result.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The time between two polls.
const PACE: Duration = Duration::from_millis(150);

/// Polls until `poll` succeeds. Its error describes the current state.
///
/// # Errors
/// If it does not succeed in time, with the condition and the last state.
pub async fn wait_for<T, F>(what: &str, patience: Duration, mut poll: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + patience;
    loop {
        match poll().await {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= end => {
                bail!("not after {} s: {what}. Last state: {last:#}", patience.as_secs())
            }
            Err(_) => tokio::time::sleep(PACE).await,
        }
    }
}
