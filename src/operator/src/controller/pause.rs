//! The pause of all routine reads while the API server is overloaded.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The shortest and the longest pause after failures.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What all routine reads share.
#[derive(Debug, Default)]
pub(super) struct Routine {
    /// One read at a time.
    pub(super) one_at_a_time: tokio::sync::Mutex<()>,
    pub(super) pause: Mutex<Pause>,
}

/// When routine reads go on after failures in a row.
#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    pub(super) fn ended(&mut self, failed: bool, now: Instant) {
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
        let (shortest, longest) = PAUSES;
        let pause = shortest.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(longest);
        self.until = now.checked_add(pause).filter(|_| failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_a_limit_and_ends_with_a_success() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        assert_eq!(pause.left(now), None);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pause.ended(true, now);
            pauses.push(pause.left(now).unwrap_or_default().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause.left(now + PAUSES.1), None);
        pause.ended(false, now);
        assert_eq!(pause.left(now), None);
    }
}
