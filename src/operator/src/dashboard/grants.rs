//! Decisions about users, remembered for a short time and in a bounded number.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a decision counts: so long a withdrawn right still works, and a new right does not.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);
/// Largest number of remembered decisions.
const CAPACITY: usize = 1024;

/// What a decision is about: the digest of a token, and the namespace, `None` for all.
pub(super) type Question = ([u8; 32], Option<String>);

/// Whether a user may see the ensembles of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The user may.
    Allowed,
    /// The API server does not know the token.
    UnknownToken,
    /// The user lacks the right.
    Forbidden,
}

/// The remembered decisions.
#[derive(Debug, Default)]
pub(super) struct Grants(HashMap<Question, (Verdict, Instant)>);

impl Grants {
    /// A decision that still counts.
    pub(super) fn get(&self, question: &Question, now: Instant) -> Option<Verdict> {
        self.0.get(question).filter(|(_, until)| *until > now).map(|(verdict, _)| *verdict)
    }

    /// Remembers a decision. If there are too many, the oldest one is forgotten.
    pub(super) fn put(&mut self, question: Question, verdict: Verdict, now: Instant) {
        if self.0.len() >= CAPACITY {
            self.0.retain(|_, (_, until)| *until > now);
        }
        if self.0.len() >= CAPACITY {
            let oldest = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(question, _)| question.clone());
            oldest.and_then(|question| self.0.remove(&question));
        }
        self.0.insert(question, (verdict, now + LIFETIME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Question {
        ([1; 32], Some(number.to_string()))
    }

    #[test]
    fn a_decision_expires() {
        let (mut grants, now) = (Grants::default(), Instant::now());
        grants.put(question(1), Verdict::Forbidden, now);
        assert_eq!(grants.get(&question(1), now + LIFETIME / 2), Some(Verdict::Forbidden));
        assert_eq!(grants.get(&question(1), now + LIFETIME), None);
        assert_eq!(grants.get(&question(2), now), None, "another namespace");
        assert_eq!(grants.get(&([2; 32], Some("1".to_owned())), now), None, "another token");
    }

    #[test]
    fn the_number_is_bounded_and_the_oldest_goes_first() {
        let (mut grants, start) = (Grants::default(), Instant::now());
        let at = |number: usize| start + Duration::from_micros(u64::try_from(number).unwrap_or(0));
        for number in 0..=CAPACITY {
            grants.put(question(number), Verdict::Allowed, at(number));
        }
        assert_eq!(grants.0.len(), CAPACITY);
        assert_eq!(grants.get(&question(0), start), None);
        assert_eq!(grants.get(&question(1), start), Some(Verdict::Allowed));
    }
}
