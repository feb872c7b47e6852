//! Times that differ a little, so that many waits do not end at once.

use std::time::Duration;

/// Between half of a time and all of it.
#[must_use]
pub fn jittered(time: Duration) -> Duration {
    time.mul_f64(rand::random_range(0.5..1.0))
}
