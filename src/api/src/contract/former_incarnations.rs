//! What a user says of the incarnations that lived under the name of an ensemble before its object.
//!
//! If the control plane is lost and its objects are created again, they have other uids, so each ensemble begins with another
//! incarnation. The servers and volumes of the former one are still there. The operator starts no server beside them until the
//! user has said whether the ensemble continues the former incarnation, or that it is over.

use std::collections::{BTreeMap, BTreeSet};

use crate::contract::labels::{ADOPT, DECLARE_OVER};

/// Longest identifier of an incarnation.
const LONGEST: usize = 10;
/// Most incarnations that a user may declare over at once: as many as a server list names.
const MOST_OVER: usize = 64;

/// What the annotations of a MultiClusterZooKeeper say of former incarnations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerIncarnations<'a> {
    /// The incarnation that the ensemble continues.
    pub adopted: Option<&'a str>,
    /// The incarnations that are over.
    pub over: BTreeSet<&'a str>,
    /// Why an annotation does not count, and what to do.
    pub malformed: Option<String>,
}

impl<'a> FormerIncarnations<'a> {
    /// Reads the annotations.
    #[must_use]
    pub fn of(annotations: &'a BTreeMap<String, String>) -> Self {
        let adopted = annotations.get(ADOPT).map(|text| text.trim());
        let over = annotations.get(DECLARE_OVER).map(String::as_str).unwrap_or_default();
        let over: BTreeSet<&str> = over.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
        let malformed = malformed(adopted, &over);
        Self {
            adopted: adopted.filter(|id| is_incarnation(id)),
            over: over.into_iter().filter(|id| is_incarnation(id)).take(MOST_OVER).collect(),
            malformed,
        }
    }
}

impl FormerIncarnations<'_> {
    /// The incarnations that ended: those with a tombstone, and those that are declared over.
    #[must_use]
    pub fn ended(&self, tombstones: &BTreeSet<String>) -> BTreeSet<String> {
        tombstones.iter().cloned().chain(self.over.iter().map(|id| (*id).to_owned())).collect()
    }
}

fn malformed(adopted: Option<&str>, over: &BTreeSet<&str>) -> Option<String> {
    if let Some(wrong) = adopted.filter(|id| !is_incarnation(id)) {
        return Some(wrong_identifier(ADOPT, wrong));
    }
    if let Some(both) = adopted.filter(|id| over.contains(id)) {
        return Some(format!("{ADOPT} and {DECLARE_OVER} both name incarnation {both}: remove it from one of them"));
    }
    let wrong = over.iter().find(|id| !is_incarnation(id));
    let count = over.len();
    let too_many = || {
        (count > MOST_OVER)
            .then(|| format!("{DECLARE_OVER} names {count} incarnations, and at most {MOST_OVER} count: shorten it"))
    };
    wrong.map(|wrong| wrong_identifier(DECLARE_OVER, wrong)).or_else(too_many)
}

fn wrong_identifier(annotation: &str, wrong: &str) -> String {
    let shown: String = wrong.chars().take(2 * LONGEST).collect();
    format!(
        "{annotation}: {shown:?} is no incarnation, which has 1 to {LONGEST} lowercase letters and digits: correct the annotation"
    )
}

/// True if a text can be the identifier of an incarnation.
#[must_use]
pub fn is_incarnation(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(None, None, None, &[], None)]
    #[case::adopted(Some(" abc123 "), None, Some("abc123"), &[], None)]
    #[case::two_over(None, Some("abc123, def456,"), None, &["abc123", "def456"], None)]
    #[case::no_incarnation(Some("zk-abc123-0"), None, None, &[], Some("mczk.io/adopt: \"zk-abc123-0\" is no incarnation"))]
    #[case::one_of_two(None, Some("abc123,UPPER"), None, &["abc123"], Some("mczk.io/declare-over: \"UPPER\""))]
    #[case::both(Some("abc123"), Some("abc123"), Some("abc123"), &["abc123"], Some("both name incarnation abc123"))]
    fn annotations_name_incarnations(
        #[case] adopt: Option<&str>,
        #[case] declare: Option<&str>,
        #[case] adopted: Option<&str>,
        #[case] over: &[&str],
        #[case] malformed: Option<&str>,
    ) {
        let named = |annotation: &str, text: Option<&str>| text.map(|text| (annotation.to_owned(), text.to_owned()));
        let annotations = named(ADOPT, adopt).into_iter().chain(named(DECLARE_OVER, declare)).collect();
        let life = FormerIncarnations::of(&annotations);
        assert_eq!((life.adopted, life.over.into_iter().collect::<Vec<_>>()), (adopted, over.to_vec()));
        assert_eq!(malformed.is_some(), life.malformed.is_some(), "{:?}", life.malformed);
        assert!(life.malformed.unwrap_or_default().contains(malformed.unwrap_or_default()));
    }
}
