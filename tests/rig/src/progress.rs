//! The steps of a start on standard error, each with the seconds since the start. Standard output holds only what a shell
//! may evaluate.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A step that lasts prints a line this often.
const PAUSE: Duration = Duration::from_secs(15);
/// A step that takes less is not worth a second line.
const SHORT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    start: Instant,
    silent: bool,
}

impl Progress {
    pub(crate) fn new(silent: bool) -> Self {
        Self { start: Instant::now(), silent }
    }

    /// Prints a step.
    pub(crate) fn tell(&self, what: impl AsRef<str>) {
        if !self.silent {
            eprintln!("{:6.1} s  {}", self.start.elapsed().as_secs_f64(), what.as_ref());
        }
    }

    /// Runs a step, and prints now and then how long it has been running.
    pub(crate) fn during<T>(&self, what: &str, step: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        self.tell(what);
        let (done, ended) = channel::<()>();
        let result = thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    self.tell(format!("{what} ... {} s", begun.elapsed().as_secs()));
                }
            });
            let result = step();
            // Ends the thread.
            drop(done);
            result
        });
        if begun.elapsed() >= SHORT {
            self.tell(format!("{what}: {:.0} s", begun.elapsed().as_secs_f64()));
        }
        result
    }
}
