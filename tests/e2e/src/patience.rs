//! Polls a condition, with a deadline and an error that holds the last result.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

/// The time between two polls: a tenth of the time for which a condition has been awaited, within these bounds. Polls of many
/// scenarios are a load of their own.
const SHORTEST_PACE: Duration = Duration::from_millis(150);
const LONGEST_PACE: Duration = Duration::from_secs(1);
/// Waits from this length on are named if a scenario takes too long.
const LONG: Duration = Duration::from_secs(15);

/// A condition that a scenario waited for.
struct Wait {
    what: String,
    begun: Instant,
    /// `None` while it waits.
    took: Option<Duration>,
}

/// What a scenario waited for, in the order of its begin.
#[derive(Clone, Default)]
pub struct Waits(Arc<Mutex<Vec<Wait>>>);

tokio::task_local! {
    static WAITS: Waits;
}

impl Waits {
    /// Records the waits of a future. They outlive it.
    pub fn of<F: Future>(&self, run: F) -> impl Future<Output = F::Output> {
        WAITS.scope(self.clone(), run)
    }

    /// The long waits, and those that have not ended, a line each.
    #[must_use]
    pub fn long(&self) -> Vec<String> {
        let line = |wait: &Wait| match wait.took {
            None => Some(format!("{:.0} s, to the end: {}", wait.begun.elapsed().as_secs_f64(), wait.what)),
            Some(took) => (took >= LONG).then(|| format!("{:.0} s: {}", took.as_secs_f64(), wait.what)),
        };
        self.lock().iter().filter_map(line).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, what: &str) -> usize {
        let mut waits = self.lock();
        waits.push(Wait { what: what.to_owned(), begun: Instant::now(), took: None });
        waits.len() - 1
    }

    fn end(&self, index: usize) {
        if let Some(wait) = self.lock().get_mut(index) {
            wait.took = Some(wait.begun.elapsed());
        }
    }
}

/// Polls until `poll` succeeds. Its error describes the current state.
///
/// # Errors
/// If it does not succeed in time, with the condition and the last state.
pub async fn wait_for<T, F>(what: &str, patience: Duration, mut poll: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let noted = WAITS.try_with(|waits| (waits.clone(), waits.begin(what)));
    let begun = Instant::now();
    let end = begun + patience;
    let result = loop {
        match poll().await {
            Ok(value) => break Ok(value),
            Err(last) if Instant::now() >= end => {
                break Err(anyhow!("not after {} s: {what}. Last state: {last:#}", patience.as_secs()));
            }
            Err(_) => tokio::time::sleep((begun.elapsed() / 10).clamp(SHORTEST_PACE, LONGEST_PACE)).await,
        }
    };
    if let Ok((waits, index)) = noted {
        waits.end(index);
    }
    result
}
