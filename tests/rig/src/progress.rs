//! Prints the steps of a start on standard error, with the seconds since the start. Standard output holds only lines for a
//! shell.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// After so long without a line, another one shows that the step still runs.
const PAUSE: Duration = Duration::from_secs(15);
/// The end of a shorter step needs no line.
const SHORT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    start: Instant,
    silent: bool,
    /// The time of the last line.
    last: Arc<Mutex<Instant>>,
}

impl Progress {
    pub(crate) fn new(silent: bool) -> Self {
        let now = Instant::now();
        Self { start: now, silent, last: Arc::new(Mutex::new(now)) }
    }

    /// Prints a line.
    pub(crate) fn print(&self, what: impl AsRef<str>) {
        if !self.silent {
            eprintln!("{:6.1} s  {}", self.start.elapsed().as_secs_f64(), what.as_ref());
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Runs a step. Prints a line every 15 s, and the time that the step took.
    pub(crate) fn during<T>(&self, what: &str, step: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        self.print(what);
        let (done, ended) = channel::<()>();
        let result = thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    self.print(format!("{what} ... {} s", begun.elapsed().as_secs()));
                }
            });
            let result = step();
            // Ends the thread.
            drop(done);
            result
        });
        if begun.elapsed() >= SHORT {
            self.print(format!("{what}: {:.0} s", begun.elapsed().as_secs_f64()));
        }
        result
    }

    /// Prints a line after every 15 s without one. Never returns.
    pub(crate) async fn repeat(&self) {
        loop {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match PAUSE.checked_sub(last.elapsed()) {
                Some(rest) if !rest.is_zero() => tokio::time::sleep(rest).await,
                _ => self.print("the last step still runs"),
            }
        }
    }
}
