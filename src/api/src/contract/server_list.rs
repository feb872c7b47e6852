//! The hash of the server list, the majority of its voters, and when they lose their votes.

use std::time::Duration;

use serde_json::Value;

use crate::{
    contract::canonical_json,
    zookeeper::{Ensemble, EnsemblePhase},
};

/// Highest server id of ZooKeeper.
pub const MAX_ID: i32 = 254;

/// Voters that make a majority of `voters`.
#[must_use]
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// How much later than an agent a leader may begin to measure. It counts a lost voter for `syncLimit`, and a new leader begins after
/// its election.
const LEADER_LAG: Duration = Duration::from_secs(20);

/// For how long a leader must have missed voters before it takes the vote of a listed one. `None` if the list forbids it.
#[must_use]
pub fn demotion_guard(list: &Ensemble) -> Option<Duration> {
    let declared = list.demote_after_seconds.filter(|_| list.phase == EnsemblePhase::Running)?;
    Some(Duration::from_secs(u64::try_from(declared).ok()?).saturating_sub(LEADER_LAG))
}

/// Adds the hash by which agents check that the server list arrived intact. Fields that this version does not know are not
/// part of a list that it writes.
///
/// # Errors
/// If a newer version wrote the list, and this version cannot read it.
pub fn with_hash(mut ensemble: Ensemble) -> serde_json::Result<Ensemble> {
    ensemble.as_received = None;
    ensemble.hash = Some(hash_of(&serde_json::to_value(&ensemble)?)?);
    if cfg!(feature = "newer-list") { with_newer_field(&ensemble) } else { Ok(ensemble) }
}

/// The list as a newer version writes it: with a field that other builds do not know.
fn with_newer_field(list: &Ensemble) -> serde_json::Result<Ensemble> {
    let mut newer = serde_json::to_value(list)?;
    if let Some(fields) = newer.as_object_mut() {
        fields.insert("addedLater".to_owned(), Value::from(true));
    }
    let hash = hash_of(&newer)?;
    if let Some(fields) = newer.as_object_mut() {
        fields.insert("hash".to_owned(), Value::from(hash));
    }
    serde_json::from_value(newer)
}

/// The hash of a server list as it arrived, with fields that this version does not know.
///
/// # Errors
/// Never for a value that came from JSON.
pub fn hash_of(list: &Value) -> serde_json::Result<String> {
    Ok(canonical_json::hash_text(&canonical_json::canonical_json_without(list, &["hash"])?))
}

/// True if the content of a server list matches its hash.
#[must_use]
pub fn hash_matches(list: &Value) -> bool {
    let stored = list.get("hash").and_then(Value::as_str);
    stored.is_some_and(|stored| hash_of(list).is_ok_and(|computed| computed == stored))
}

/// As [`hash_matches`], for a parsed list.
#[must_use]
pub fn is_intact(list: &Ensemble) -> bool {
    serde_json::to_value(list).is_ok_and(|list| hash_matches(&list))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(1, 1)]
    #[case(2, 2)]
    #[case(3, 2)]
    #[case(4, 3)]
    #[case(5, 3)]
    fn majorities(#[case] voters: usize, #[case] needed: usize) {
        assert_eq!(majority(voters), needed);
    }
}
