//! The server list's hash, and what a majority of its voters is.

use crate::{api::zookeeper::Ensemble, contract::canonical_json::hash};

/// Voters that make a majority of `voters`.
#[must_use]
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Adds the hash by which agents see whether the list arrived whole.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn with_hash(mut ensemble: Ensemble) -> serde_json::Result<Ensemble> {
    ensemble.hash = None;
    ensemble.hash = Some(hash(&ensemble)?);
    Ok(ensemble)
}

/// Whether a list is as it was sealed.
#[must_use]
pub fn hash_matches(ensemble: &serde_json::Value) -> bool {
    let mut unsealed = ensemble.clone();
    let told = unsealed.as_object_mut().and_then(|members| members.remove("hash"));
    let told = told.as_ref().and_then(serde_json::Value::as_str);
    told.is_some_and(|told| hash(&unsealed).is_ok_and(|hash| hash == told))
}

#[cfg(test)]
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
