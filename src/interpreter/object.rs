//! Reads only those fields of an object that an operation needs. Other fields cannot make the answer fail, and a later
//! version of the kind is readable as far as it is the same.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::refusal::Refusal;

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
