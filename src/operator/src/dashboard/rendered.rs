//! What listeners get: the text of each ensemble, rendered once and shared by all of them.

use std::collections::HashMap;

use axum::body::Bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

use mczk_rules::card::Card;

/// A digest of what a listener has got, in place of the text itself.
pub(super) type Seen = [u8; 32];

/// The ensembles of one read. A listener refers to the texts and copies none.
#[derive(Clone, Debug, Default)]
pub struct Ensembles(Vec<Rendered>);

/// One ensemble as JSON.
#[derive(Clone, Debug)]
struct Rendered {
    namespace: String,
    text: Bytes,
    digest: Seen,
}

impl Ensembles {
    /// Renders the cards. A text that has not changed since the former read is that of the former read: a listener
    /// that reads slowly then holds no second copy of it.
    pub fn of(cards: &[Card], former: Option<&Self>) -> Self {
        let former: HashMap<Seen, &Bytes> =
            former.into_iter().flat_map(|former| &former.0).map(|known| (known.digest, &known.text)).collect();
        Self(cards.iter().map(|card| render(card, &former)).collect())
    }

    /// The ensembles of a namespace, or all, as parts of one JSON array.
    pub(super) fn array(&self, namespace: Option<&str>) -> Vec<Bytes> {
        let mut parts = vec![Bytes::from_static(b"[")];
        for (index, ensemble) in self.of_namespace(namespace).enumerate() {
            if index > 0 {
                parts.push(Bytes::from_static(b","));
            }
            parts.push(ensemble.text.clone());
        }
        parts.push(Bytes::from_static(b"]"));
        parts
    }

    /// The digest of that array.
    pub fn digest(&self, namespace: Option<&str>) -> Seen {
        let mut hasher = Sha256::new();
        self.of_namespace(namespace).for_each(|ensemble| hasher.update(ensemble.digest));
        hasher.finalize().into()
    }

    fn of_namespace(&self, namespace: Option<&str>) -> impl Iterator<Item = &Rendered> {
        self.0.iter().filter(move |ensemble| namespace.is_none_or(|namespace| ensemble.namespace == namespace))
    }
}

fn render(card: &Card, former: &HashMap<Seen, &Bytes>) -> Rendered {
    let text = json!(card).to_string();
    let digest: Seen = Sha256::digest(&text).into();
    let text = former.get(&digest).map_or_else(|| Bytes::from(text), |known| (*known).clone());
    Rendered { namespace: card.namespace().to_owned(), text, digest }
}

/// The parts of a server-sent event. The content is JSON on one line.
pub(super) fn event(kind: &str, content: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    let mut parts = vec![Bytes::from(format!("event: {kind}\ndata: "))];
    parts.extend(content);
    parts.push(Bytes::from_static(b"\n\n"));
    parts
}

/// The content of an event that only has a message.
pub(super) fn message(text: &str) -> Bytes {
    Bytes::from(json!({ "message": text }).to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::fixtures::multi_cluster_zookeeper;
    use mczk_rules::card::card;

    fn cards(names: &[(&str, &str)]) -> Vec<Card> {
        let object = |(namespace, name): &(&str, &str)| {
            card(&multi_cluster_zookeeper(json!({ "metadata": { "namespace": namespace, "name": name } })), None, None)
        };
        names.iter().map(object).collect()
    }

    fn names(parts: &[Bytes]) -> Vec<String> {
        let all: Vec<Value> = serde_json::from_slice(&parts.concat()).unwrap();
        all.iter().map(|ensemble| ensemble["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn an_array_of_all_or_of_a_namespace() {
        let ensembles = Ensembles::of(&cards(&[("a", "one"), ("b", "two"), ("a", "three")]), None);
        assert_eq!(names(&ensembles.array(None)), ["one", "two", "three"]);
        assert_eq!(names(&ensembles.array(Some("a"))), ["one", "three"]);
        assert_eq!(names(&ensembles.array(Some("none"))), Vec::<String>::new());
    }

    #[test]
    fn a_digest_changes_with_its_namespace_alone() {
        let before = Ensembles::of(&cards(&[("a", "one"), ("b", "two")]), None);
        let after = Ensembles::of(&cards(&[("a", "one"), ("b", "other")]), None);
        assert_eq!(before.digest(Some("a")), after.digest(Some("a")));
        assert_ne!(before.digest(Some("b")), after.digest(Some("b")));
        assert_ne!(before.digest(None), after.digest(None));
    }

    /// 64 listeners and any number of reads hold one copy of a text.
    #[test]
    fn listeners_and_reads_share_one_text() {
        let first = Ensembles::of(&cards(&[("a", "one"), ("b", "two")]), None);
        let second = Ensembles::of(&cards(&[("a", "one"), ("b", "other")]), Some(&first));
        let text = |parts: &[Bytes]| parts[1].as_ptr();
        assert_eq!(text(&first.array(None)), text(&first.array(Some("a"))), "two listeners");
        assert_eq!(text(&first.array(None)), text(&second.array(None)), "two reads");
        assert_ne!(text(&first.array(Some("b"))), text(&second.array(Some("b"))), "the text has changed");
    }

    #[test]
    fn an_event_is_one_line_of_data() {
        let text = event("failure", [message("no\nanswer")]).concat();
        assert_eq!(text, b"event: failure\ndata: {\"message\":\"no\\nanswer\"}\n\n");
    }
}
