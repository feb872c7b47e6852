//! Decisions about users, remembered for a short time and in a bounded number.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a decision counts: so long a withdrawn right still works, and a new right does not.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);
/// Time for which a right is remembered after it was granted: to ask again then costs no budget.
const KNOWN_FOR: Duration = Duration::from_secs(600);
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

/// The remembered decisions, and when each was asked.
#[derive(Debug, Default)]
pub(super) struct Grants(HashMap<Question, (Verdict, Instant)>);

impl Grants {
    /// A decision that still counts.
    pub(super) fn get(&self, question: &Question, now: Instant) -> Option<Verdict> {
        self.0.get(question).filter(|(_, asked)| now < *asked + LIFETIME).map(|(verdict, _)| *verdict)
    }

    /// True if the last decision was a right that was granted a short time ago.
    pub(super) fn was_allowed(&self, question: &Question, now: Instant) -> bool {
        self.0.get(question).is_some_and(|decision| decision.0 == Verdict::Allowed && is_remembered(decision, now))
    }

    /// Remembers a decision. If there are too many, the oldest refusal is forgotten: callers without rights can cause any
    /// number. Without refusals it is the oldest right.
    pub(super) fn put(&mut self, question: Question, verdict: Verdict, asked: Instant) {
        if self.0.len() >= CAPACITY {
            self.0.retain(|_, decision| is_remembered(decision, asked));
        }
        if self.0.len() >= CAPACITY {
            let rank = |(verdict, asked): &(Verdict, Instant)| (*verdict == Verdict::Allowed, *asked);
            let first = self.0.iter().min_by_key(|(_, decision)| rank(decision)).map(|(question, _)| question.clone());
            first.and_then(|question| self.0.remove(&question));
        }
        self.0.insert(question, (verdict, asked));
    }
}

fn is_remembered((verdict, asked): &(Verdict, Instant), now: Instant) -> bool {
    now < *asked + if *verdict == Verdict::Allowed { KNOWN_FOR } else { LIFETIME }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

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

    /// A client can invent any number of tokens, and the operator still remembers the rights of others.
    #[test]
    fn refusals_are_forgotten_before_rights() {
        let (mut grants, start) = (Grants::default(), Instant::now());
        grants.put(question(0), Verdict::Allowed, start);
        for number in 1..=2 * CAPACITY {
            let token: [u8; 32] = Sha256::digest(number.to_string()).into();
            grants.put((token, None), Verdict::UnknownToken, start + Duration::from_secs(1));
        }
        assert_eq!(grants.0.len(), CAPACITY);
        assert_eq!(grants.get(&question(0), start), Some(Verdict::Allowed));
    }

    #[test]
    fn a_right_is_remembered_longer_than_it_counts() {
        let (mut grants, now) = (Grants::default(), Instant::now());
        grants.put(question(1), Verdict::Allowed, now);
        assert_eq!(grants.get(&question(1), now + LIFETIME), None);
        assert!(grants.was_allowed(&question(1), now + LIFETIME));
        assert!(!grants.was_allowed(&question(1), now + KNOWN_FOR));
        assert!(!grants.was_allowed(&question(2), now), "another namespace");
        // The token has expired.
        grants.put(question(1), Verdict::UnknownToken, now);
        assert!(!grants.was_allowed(&question(1), now));
    }
}
