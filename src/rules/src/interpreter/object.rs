//! Reads only those fields of an object that an operation needs. Other fields cannot make the answer fail, and a later
//! version of the kind is readable as far as it is the same.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

use super::refusal::Refusal;

/// A value that must be an object. serde would read a list too, with its elements as the fields in order.
#[derive(Debug)]
pub(super) struct MapOnly<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MapOnly<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
            type Value = MapOnly<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(MapOnly)
            }
        }

        deserializer.deserialize_map(OfMap(PhantomData))
    }
}

/// A list of at most `MAX` items. A small item of a body takes a hundred times its size in memory.
#[derive(Debug)]
pub(super) struct List<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfList<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for OfList<T, MAX> {
            type Value = List<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == MAX {
                        return Err(A::Error::custom(format!("more than {MAX} items")));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }

        deserializer.deserialize_seq(OfList(PhantomData))
    }
}

/// Parses `text` as a `T`.
///
/// # Errors
/// A [`Refusal`] that names the field, below `name`.
pub(crate) fn read<'a, T: Deserialize<'a>>(name: &str, text: &'a RawValue) -> Result<T, Refusal> {
    serde_json::from_str(text.get()).map_err(|error| {
        unreadable::<T>(name, text).unwrap_or_else(|| Refusal::unreadable(format!("{name}: {}", reason(&error))))
    })
}

/// The refusal of a text that is no `T`. To know the path of each field costs as much as to parse it, so only a second
/// pass does.
fn unreadable<'a, T: Deserialize<'a>>(name: &str, text: &'a RawValue) -> Option<Refusal> {
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    let error = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err()?;
    let path = error.path().to_string();
    let separator = if path == "." || path.starts_with('[') { "" } else { "." };
    let path = if path == "." { "" } else { &path };
    Some(Refusal::unreadable(format!("{name}{separator}{path}: {}", reason(error.inner()))))
}

/// The error without its position, which counts from the start of a part of the body.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Outer {
        spec: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Inner {
        replicas: i32,
    }

    #[rstest]
    #[case(r#"{"spec":{"replicas":"3"}}"#, "object.spec.replicas: invalid type: string \"3\", expected i32")]
    #[case(r#"{"spec":{}}"#, "object.spec: missing field `replicas`")]
    #[case("{}", "object: missing field `spec`")]
    #[case("7", "object: invalid type: integer `7`, expected struct Outer")]
    #[case(
        r#"{"spec":{"replicas":99999999999}}"#,
        "object.spec.replicas: invalid value: integer `99999999999`, expected i32"
    )]
    fn an_error_names_the_field(#[case] text: &str, #[case] message: &str) {
        let text = RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(read::<Outer>("object", &text).unwrap_err(), Refusal::unreadable(message));
    }
}
