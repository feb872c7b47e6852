//! One line for each step, with the seconds since the start, for the person who waits.

use std::time::Instant;

/// Where the steps are told: on standard error, so that standard output holds only what a shell may evaluate.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    start: Instant,
    silent: bool,
}

impl Progress {
    pub(crate) fn new(silent: bool) -> Self {
        Self { start: Instant::now(), silent }
    }

    pub(crate) fn tell(&self, what: impl AsRef<str>) {
        if !self.silent {
            eprintln!("{:6.1} s  {}", self.start.elapsed().as_secs_f64(), what.as_ref());
        }
    }
}
