//! The rule of an election by a Lease, as client-go has it: a pure state machine.
//!
//! Each candidate measures time on its own monotonic clock, and never compares clocks of two machines. A holder stops to
//! act [`Timing::renew_deadline`] after it sent its last accepted renewal. Another candidate takes the Lease over only if it
//! has seen the same version of it for [`Timing::duration`]. It saw that version after the holder had sent it, and the
//! duration is longer than the deadline: so the holder has stopped by then.

use std::time::{Duration, Instant};

use mczk_api::{mutation::broken, term};

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long other candidates wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long the holder acts after its last accepted renewal.
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew.
    pub retry_period: Duration,
}

impl Default for Timing {
    /// The times of Kubernetes' own components.
    fn default() -> Self {
        let [duration, renew_deadline, retry_period] = [15, 10, 2].map(Duration::from_secs);
        Self { duration, renew_deadline, retry_period }
    }
}

impl Timing {
    /// Checks that a holder stops before another candidate may begin, and has two attempts before it stops.
    ///
    /// # Errors
    /// The rule that the times break.
    pub fn check(&self) -> Result<(), String> {
        let in_words = |time: Duration| format!("{} s", time.as_secs_f64());
        if self.duration <= self.renew_deadline {
            return Err(format!(
                "the duration of the lease ({}) must be longer than the renew deadline ({})",
                in_words(self.duration),
                in_words(self.renew_deadline)
            ));
        }
        if self.renew_deadline < self.retry_period * 2 {
            return Err(format!(
                "the renew deadline ({}) must be at least twice the retry period ({})",
                in_words(self.renew_deadline),
                in_words(self.retry_period)
            ));
        }
        if self.retry_period.is_zero() { Err("the retry period must not be 0".to_owned()) } else { Ok(()) }
    }

    /// The longest time of one request: a second attempt still fits before the deadline.
    #[must_use]
    pub(crate) fn attempt_limit(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// A Lease as the API server stores it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    /// Resource version.
    pub version: String,
    /// Identity of the holder; none after a release.
    pub holder: Option<String>,
    /// Number of the holder's term. It rises with every change of the holder.
    pub term: i32,
    /// How long other candidates wait, as the holder wrote it.
    pub(crate) duration: Duration,
}

/// A write of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// The version that the write replaces. `None` creates the Lease.
    pub(crate) replaces: Option<String>,
    /// The holder; none to release.
    pub holder: Option<String>,
    /// Number of the term.
    pub term: i32,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Reads the Lease.
    Read,
    /// Writes the Lease.
    Write(Write),
    /// Waits for the next attempt.
    Wait,
}

/// The Lease as a candidate saw it last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenLease {
    /// Version; `None` if the Lease does not exist.
    version: Option<String>,
    /// When the candidate received this version for the first time.
    since: Instant,
    duration: Duration,
}

/// The candidate's own term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeldLease {
    term: i32,
    version: String,
    /// When the candidate sent the last accepted renewal.
    confirmed: Instant,
    /// True if a request failed since: the API server may have stored it.
    is_uncertain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidacy {
    identity: String,
    timing: Timing,
    seen: Option<SeenLease>,
    held: Option<HeldLease>,
    /// The next term is higher than this one.
    above: i32,
}

impl Candidacy {
    /// A candidate that knows nothing yet. No other process may have the same identity.
    #[must_use]
    pub(crate) fn new(identity: String, timing: Timing) -> Self {
        Self { identity, timing, seen: None, held: None, above: 0 }
    }

    /// The term of the candidate and its end, if it may act now.
    #[must_use]
    pub(crate) fn term(&self, now: Instant) -> Option<(i32, Instant)> {
        let held = self.held.as_ref()?;
        let end = held.confirmed + self.timing.renew_deadline;
        (now < end || broken!(ActWithoutRenewal)).then_some((held.term, end))
    }

    /// The first request of an attempt.
    #[must_use]
    pub(crate) fn begin(&mut self, now: Instant) -> Request {
        if self.term(now).is_none() {
            self.held = None;
        }
        match &self.held {
            Some(held) if !held.is_uncertain => Request::Write(self.renewal(held)),
            _ => Request::Read,
        }
    }

    /// The request after the Lease was read at `received`. `None` means that it does not exist.
    #[must_use]
    pub(crate) fn read(&mut self, stored: Option<&Stored>, received: Instant) -> Request {
        let is_own = stored.is_some_and(|lease| lease.holder.as_ref() == Some(&self.identity));
        if let Some(mut held) = self.held.take() {
            match stored {
                Some(lease) if is_own => {
                    held.version.clone_from(&lease.version);
                    let write = self.renewal(&held);
                    self.held = Some(held);
                    return Request::Write(write);
                }
                // Another client deleted it. Other candidates wait: see below.
                None => {
                    let term = held.term.max(self.above).saturating_add(1);
                    self.held = Some(held);
                    return Request::Write(self.acquisition(None, term));
                }
                Some(_) => {}
            }
        }
        let version = stored.map(|lease| lease.version.clone());
        let first_time = self.seen.is_none();
        if self.seen.as_ref().is_none_or(|seen| seen.version != version) {
            let duration = stored.map_or(self.timing.duration, |lease| lease.duration.max(self.timing.duration));
            self.seen = Some(SeenLease { version: version.clone(), since: received, duration });
        }
        let expired = self.seen.as_ref().is_some_and(|seen| received.duration_since(seen.since) >= seen.duration);
        let is_free = match stored {
            // A holder whose Lease was deleted may still act, unless there was never one.
            None => first_time || expired || broken!(ForgetDeleted),
            Some(lease) => lease.holder.is_none() || is_own || expired || broken!(TakeOverAtOnce),
        };
        if !is_free {
            return Request::Wait;
        }
        // A number that no leader wrote means that another client has lost the count, as with a deleted Lease. Objects show
        // the terms so far: see [`Candidacy::rise_above`].
        let last = stored.map_or(0, |lease| term::counted(lease.term));
        let next = last.max(self.above).saturating_add(1);
        Request::Write(self.acquisition(version, next))
    }

    /// The API server has accepted a write that was sent at `sent`, and stores it as this version. The answer came at `received`.
    pub(crate) fn wrote(&mut self, write: &Write, version: String, sent: Instant, received: Instant) {
        if write.holder.is_none() || write.replaces.as_ref() == Some(&version) {
            // A version that does not change renews nothing: no other candidate sees it.
            return;
        }
        let confirmed = if broken!(CountFromAnswer) { received } else { sent };
        // Another candidate may hold the Lease before this one reads it again.
        self.seen = Some(SeenLease { version: Some(version.clone()), since: sent, duration: self.timing.duration });
        self.held = Some(HeldLease { term: write.term, version, confirmed, is_uncertain: false });
    }

    /// A write failed, or its result is unknown. The next attempt reads.
    pub(crate) fn failed(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_uncertain = true;
        }
    }

    /// The next term is higher than `term`: something shows a term that the Lease no longer knows, as after another client
    /// deleted it.
    pub(crate) fn rise_above(&mut self, term: i32) {
        self.above = self.above.max(term);
    }

    /// The write that releases the Lease. The candidate acts no more.
    #[must_use]
    pub(crate) fn release(&mut self) -> Option<Write> {
        let held = self.held.take()?;
        Some(Write { replaces: Some(held.version), holder: None, term: held.term })
    }

    fn renewal(&self, held: &HeldLease) -> Write {
        let term = if self.above >= held.term { self.above.saturating_add(1) } else { held.term };
        self.acquisition(Some(held.version.clone()), term)
    }

    fn acquisition(&self, replaces: Option<String>, term: i32) -> Write {
        Write { replaces, holder: Some(self.identity.clone()), term }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#[path = "tests.rs"]
mod tests;
