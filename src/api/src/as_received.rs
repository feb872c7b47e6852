//! A server list passes every hop as it arrived, so that its hash matches in every version of mczk.
//!
//! Operator, agents and servers may have different versions, above all during an upgrade. Each decides by the fields that it
//! knows, and passes on, stores and hashes what it received.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::zookeeper::{Ensemble, EnsemblePhase};

impl Ensemble {
    /// A list that this version cannot read, except for what tells its age. It names no server.
    fn not_understood(received: &Value) -> Self {
        let text = |field: &str| received.get(field).and_then(Value::as_str).map(str::to_owned);
        Self {
            hash: text("hash"),
            incarnation: text("incarnation"),
            epoch: received.get("epoch").and_then(Value::as_i64),
            phase: EnsemblePhase::Unreadable,
            ..Self::default()
        }
    }

    /// The list in a text. A text that is no JSON is a list that this version does not understand.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Self {
        let received = serde_json::from_slice(text);
        Self::from_received(received.unwrap_or_else(|_| Value::String(String::from_utf8_lossy(text).into_owned())))
    }

    fn from_received(received: Value) -> Self {
        let known = Self::deserialize(&received).unwrap_or_else(|_| Self::not_understood(&received));
        let written = Self::serialize(&known, serde_json::value::Serializer);
        let as_received = written.map_or(true, |written| written != received).then(|| Box::new(received));
        Self { as_received, ..known }
    }
}

impl<'de> Deserialize<'de> for Ensemble {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from_received)
    }
}

impl Serialize for Ensemble {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.as_received {
            Some(received) => received.serialize(serializer),
            None => Self::serialize(self, serializer),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// M4: the list is part of every observation, so a server that failed to read it would not be ready.
    #[test]
    fn a_list_that_this_version_does_not_understand_is_read() {
        let text = br#"{"incarnation":"abc","epoch":7,"phase":"Moving","servers":{"m1":2}}"#;
        let list = Ensemble::from_text(text);
        assert_eq!((list.incarnation.as_deref(), list.epoch), (Some("abc"), Some(7)));
        assert_eq!(serde_json::to_value(&list).unwrap(), serde_json::from_slice::<Value>(text).unwrap());
        for damaged in ["", "[7]", "{"] {
            let list = Ensemble::from_text(damaged.as_bytes());
            assert_eq!((list.epoch, list.phase), (None, EnsemblePhase::Unreadable));
            assert!(serde_json::to_string(&list).is_ok());
        }
    }

    #[test]
    fn a_list_of_this_version_is_equal_to_the_one_that_was_written() {
        let list = Ensemble { epoch: Some(7), ..Ensemble::default() };
        assert_eq!(Ensemble::from_text(&serde_json::to_vec(&list).unwrap()), list);
    }
}
