//! Waiting, with an end, and a message that tells what was seen last.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often something is looked at.
const PACE: Duration = Duration::from_millis(150);

/// Looks again and again until there is an answer. `look` tells in its error what it saw instead.
///
/// # Errors
/// If there is none in time: what was waited for, and what was seen last.
pub async fn wait_for<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let end = Instant::now() + patience;
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() >= end => {
                bail!("not after {} s: {what}. Seen last: {seen:#}", patience.as_secs())
            }
            Err(_) => tokio::time::sleep(PACE).await,
        }
    }
}
