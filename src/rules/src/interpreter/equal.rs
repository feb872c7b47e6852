//! Compares a JSON text with a value, and stops at the first difference. The text may be large and foreign: as a value it
//! would take many times its size.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Value, value::RawValue};

/// True if the text holds this value.
pub(super) fn equal(text: &RawValue, value: &Value) -> bool {
    Deserializer::from_str(text.get()).deserialize_any(Expected(value)).is_ok()
}

/// Accepts this value alone.
struct Expected<'a>(&'a Value);

fn only_if<E: Error>(equal: bool) -> Result<(), E> {
    if equal { Ok(()) } else { Err(E::custom("another value")) }
}

impl<'de> DeserializeSeed<'de> for Expected<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Expected<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        only_if(self.0.is_null())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        only_if(self.0.as_bool() == Some(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        only_if(self.0.as_i64() == Some(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        only_if(self.0.as_u64() == Some(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        only_if(self.0.is_f64() && self.0.as_f64().is_some_and(|expected| expected.total_cmp(&value).is_eq()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        only_if(self.0.as_str() == Some(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let expected = self.0.as_array().ok_or_else(|| A::Error::custom("a list"))?;
        for value in expected {
            only_if(list.next_element_seed(Expected(value))?.is_some())?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let expected = self.0.as_object().ok_or_else(|| A::Error::custom("an object"))?;
        let mut fields = 0;
        while let Some(value) = map.next_key_seed(Field(expected))? {
            map.next_value_seed(Expected(value))?;
            fields += 1;
        }
        only_if(fields == expected.len())
    }
}

/// Accepts the name of a field, and finds its value.
struct Field<'a>(&'a Map<String, Value>);

impl<'a, 'de> DeserializeSeed<'de> for Field<'a> {
    type Value = &'a Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Field<'a> {
    type Value = &'a Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.0.get(name).ok_or_else(|| E::custom("another field"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2..3_i64).prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-4..4_i32).prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
            "[a\"\u{e9}\\\\]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_text_is_equal_to_its_value_alone(one in value(), other in value()) {
            let text = serde_json::value::to_raw_value(&one).unwrap();
            prop_assert!(equal(&text, &one));
            prop_assert_eq!(equal(&text, &other), one == other);
        }
    }

    #[test]
    fn spaces_and_escapes_make_no_difference() {
        let text = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(equal(&text("{ \"b\" : [ 1, {} ], \"a\": \"\\u003c\" }"), &json!({"a": "<", "b": [1, {}]})));
        assert!(!equal(&text("1e999"), &json!(1)));
        assert!(!equal(&text(r#"{"a":1,"a":1}"#), &json!({"a": 1})));
    }
}
