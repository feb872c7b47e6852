//! The hash of the server list, and the majority of its voters.

use crate::{api::zookeeper::Ensemble, contract::canonical_json::hash};

/// Voters that make a majority of `voters`.
#[must_use]
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Adds the hash by which agents check that the server list arrived intact.
///
/// # Errors
/// As [`hash`].
pub fn with_hash(mut ensemble: Ensemble) -> serde_json::Result<Ensemble> {
    ensemble.hash = None;
    ensemble.hash = Some(hash(&ensemble)?);
    Ok(ensemble)
}

/// True if the content of a server list matches its hash.
#[must_use]
pub(crate) fn hash_matches(ensemble: &serde_json::Value) -> bool {
    let mut content = ensemble.clone();
    let stored = content.as_object_mut().and_then(|members| members.remove("hash"));
    let stored = stored.as_ref().and_then(serde_json::Value::as_str);
    stored.is_some_and(|stored| hash(&content).is_ok_and(|computed| computed == stored))
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
