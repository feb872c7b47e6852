//! What listeners get: the text of each ensemble, rendered once and shared by all of them.

use std::{collections::BTreeMap, ops::Bound};

use axum::body::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

use mczk_rules::card::Card;
use mczk_runtime::reconcile::ObjectKey;

/// Largest object or card of one ensemble in bytes. A larger one is left out: it would take the place of many others.
pub(super) const MOST_OF_ONE: usize = 256 << 10;

/// A digest of what a listener has got, in place of the text itself.
pub(super) type Seen = [u8; 32];

/// The ensembles of one read as JSON, by namespace and name. A listener refers to the texts and copies none.
#[derive(Clone, Debug, Default)]
pub struct Ensembles {
    texts: BTreeMap<ObjectKey, Bytes>,
    /// Bytes for further texts.
    room: usize,
    /// Says how many ensembles are shown and how to see the others, if these are not all.
    pub(super) bound: Option<String>,
    /// The digest of everything.
    pub(super) digest: Seen,
}

impl Ensembles {
    /// No ensembles, and room for some.
    pub(super) fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Adds a card, if there is room.
    pub(super) fn add(&mut self, card: &Card) {
        let text = json!(card).to_string();
        if text.len() <= self.room.min(MOST_OF_ONE) {
            self.room -= text.len();
            self.texts.insert(card.key(), text.into());
        }
    }

    /// The ensembles, if no other ones follow. There are `total` in all, or an unknown number.
    #[must_use]
    pub(super) fn of_total(mut self, total: Option<usize>) -> Self {
        let shown = self.texts.len();
        let all = total.map_or_else(|| format!("more than {shown}"), |total| total.to_string());
        let words = || format!("Only {shown} of {all} ensembles are shown: name a namespace, or run mczk status");
        self.bound = (total != Some(shown)).then(words);
        let mut hasher = Sha256::new_with_prefix(self.bound.as_deref().unwrap_or_default());
        self.texts.values().for_each(|text| hasher.update(text));
        self.digest = hasher.finalize().into();
        self
    }

    /// The next ensemble after one, or the first one, and its text.
    pub(super) fn after(&self, key: Option<&ObjectKey>) -> Option<(&ObjectKey, &Bytes)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.texts.range::<ObjectKey, _>((from, Bound::Unbounded)).next()
    }
}

/// An event that only has a message.
pub(super) fn event(kind: &str, message: &str) -> Bytes {
    format!("event: {kind}\ndata: {}\n\n", json!({ "message": message })).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_rules::card::card;

    fn named(namespace: &str, name: &str) -> Card {
        card(&multi_cluster_zookeeper(json!({ "metadata": { "namespace": namespace, "name": name } })), None, None)
    }

    fn ensembles(names: &[(&str, &str)], room: usize) -> Ensembles {
        let mut all = Ensembles::with_room(room);
        for (namespace, name) in names {
            all.add(&named(namespace, name));
        }
        all.of_total(Some(names.len()))
    }

    fn names(ensembles: &Ensembles) -> Vec<String> {
        let keys = std::iter::successors(ensembles.after(None), |(key, _)| ensembles.after(Some(*key)));
        keys.map(|((_, name), _)| name.clone()).collect()
    }

    #[test]
    fn a_digest_changes_with_a_text_and_with_the_number_of_all() {
        let before = ensembles(&[("a", "one"), ("b", "two")], 1 << 20);
        let same = ensembles(&[("b", "two"), ("a", "one")], 1 << 20);
        assert_eq!(before.digest, same.digest);
        assert_ne!(before.digest, ensembles(&[("a", "one"), ("b", "other")], 1 << 20).digest);
        assert_ne!(before.digest, same.of_total(Some(3)).digest);
    }

    /// 64 listeners hold one copy of a text.
    #[test]
    fn listeners_share_one_text() {
        let all = ensembles(&[("a", "one"), ("b", "two")], 1 << 20);
        let text = || all.after(None).unwrap().1.clone();
        assert_eq!(text().as_ptr(), text().as_ptr());
    }

    #[test]
    fn texts_are_bounded_and_what_is_shown_says_so() {
        let names_of_all = [("a", "one"), ("a", "two"), ("b", "three")];
        let all = ensembles(&names_of_all, 1 << 20);
        assert_eq!((names(&all), all.bound.clone()), (vec!["one".to_owned(), "two".into(), "three".into()], None));
        let text = all.after(None).unwrap().1.len();
        let some = ensembles(&names_of_all, 2 * text + 10);
        assert_eq!(names(&some), ["one", "two"]);
        let words = "Only 2 of 3 ensembles are shown: name a namespace, or run mczk status";
        assert_eq!(some.bound.as_deref(), Some(words));
        let unknown = some.of_total(None).bound.unwrap();
        assert!(unknown.starts_with("Only 2 of more than 2 "), "{unknown}");
    }

    /// One ensemble with long texts does not take the place of others.
    #[test]
    fn a_large_card_is_left_out() {
        let mut all = Ensembles::with_room(1 << 20);
        all.add(&named("a", "large").without("Something", &"x".repeat(MOST_OF_ONE), "Do"));
        all.add(&named("b", "small"));
        assert_eq!(names(&all), ["small"]);
        assert!(all.of_total(Some(2)).bound.unwrap().starts_with("Only 1 of 2 ensembles"));
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        assert_eq!(event("failure", "no\nanswer"), "event: failure\ndata: {\"message\":\"no\\nanswer\"}\n\n");
    }
}
