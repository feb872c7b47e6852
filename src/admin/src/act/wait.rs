//! Waits until what a command has requested is done, and shows how far it is.

use std::{
    fmt::Display,
    io::{self, Write},
    time::{Duration, Instant},
};

use crate::{
    see::status,
    terminal::{error::Error, output::print},
};

/// How far it is.
pub(super) struct Shown {
    /// What the user reads, again only if it changes.
    pub(super) text: String,
    /// What follows if the time is over.
    pub(super) late: String,
    pub(super) is_done: bool,
}

/// Looks until it is done. False if the time is over before. A look that fails is repeated, because what was requested goes on
/// without this command.
///
/// # Errors
/// The error that a look returns as its result, or if standard output is closed.
pub(super) async fn until_done<E: Display>(
    mut look: impl AsyncFnMut() -> Result<Result<Shown, Error>, E>,
    limit: Duration,
) -> Result<bool, Error> {
    let begin = Instant::now();
    let (mut shown, mut late, mut failure) = (String::new(), String::new(), String::new());
    loop {
        match look().await {
            Ok(now) => {
                failure.clear();
                let Shown { text, is_done, late: now_late } = now?;
                late = now_late;
                if text != shown {
                    print(&text)?;
                    shown = text;
                }
                if is_done {
                    print(&format!("Complete after {} s.\n", begin.elapsed().as_secs()))?;
                    return Ok(true);
                }
            }
            Err(error) => {
                let text = error.to_string();
                if text != failure {
                    // Standard error may be closed. The exit code remains.
                    let _ = writeln!(io::stderr(), "mczk: {text}: trying again");
                    failure = text;
                }
            }
        }
        if begin.elapsed() > limit {
            print(&format!("Not complete after {} s. {late}\n", limit.as_secs()))?;
            return Ok(false);
        }
        tokio::time::sleep(status::WATCH_INTERVAL).await;
    }
}
