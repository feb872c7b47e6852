//! YAML as users write it, and as files of this project hold it.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Options, SerializeError, UserMessageFormatter, budget, options, ser_options};

/// Bytes of a text that is read: many times what etcd stores of one object.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Text that is no YAML of objects: the cause, with the line and the column.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The documents in a text of YAML or JSON, without the empty ones.
///
/// # Errors
/// If the text is no YAML, repeats a key, or is larger or deeper than any file of objects.
pub fn read(text: &str) -> Result<Vec<Value>, Error> {
    if text.len() > MAX_BYTES {
        return Err(Error(format!("the text has {} bytes, and at most {MAX_BYTES} are read", text.len())));
    }
    serde_saphyr::from_multiple_with_options(text, reader())
        .map_err(|error| Error(error.render_with_formatter(&UserMessageFormatter)))
}

/// Scalars mean what they mean to kubectl: `on` and `yes` are true, and `0644` is octal. Every object in a cluster is less
/// deep than 64 levels and has fewer than 250,000 values: the default limits of the parser.
fn reader() -> Options {
    options! {
        budget: budget! { max_total_scalar_bytes: MAX_BYTES },
        legacy_octal_numbers: true,
        // A message has one line.
        with_snippet: false,
    }
}

/// One value as a YAML document.
///
/// # Errors
/// If the value cannot be serialized.
pub fn write<T: Serialize>(value: &T) -> Result<String, SerializeError> {
    // A long line stays whole: a change of a word changes one line of a generated file.
    serde_saphyr::to_string_with_options(value, ser_options! { folded_wrap_chars: usize::MAX })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::documents("# c\n---\na: 1\n---\n---\n# d\n---\nb: 2\n", json!([{ "a": 1 }, { "b": 2 }]))]
    #[case::json(r#"{ "a": [1, null] }"#, json!([{ "a": [1, null] }]))]
    #[case::nothing("", json!([]))]
    #[case::as_kubectl("a: 0644\nb: on\nc: \"on\"\nd: TRUE\n", json!([{ "a": 420, "b": true, "c": "on", "d": true }]))]
    #[case::alias("a: &x [1]\nb: *x\n", json!([{ "a": [1], "b": [1] }]))]
    fn a_text_is_read(#[case] text: &str, #[case] expected: Value) {
        assert_eq!(json!(read(text).unwrap()), expected);
    }

    #[rstest]
    #[case::bracket("a: 1\nb: [\n", "unclosed bracket '[' at line 2, column 4")]
    #[case::twice("a: 1\na: 2\n", "duplicate mapping key: a not allowed here at line 2, column 1")]
    #[case::second_document("a: 1\n---\nb: {\nc: d: e\n", "at line 4, column 5")]
    #[case::infinite("a: .inf", "not a finite number at line 1, column 4")]
    fn an_error_names_the_line(#[case] text: &str, #[case] expected: &str) {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    /// Small texts whose values would fill the memory, and texts that are too large.
    #[test]
    fn the_input_is_bounded() {
        let lists = (1..12).fold("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned(), |text, n| {
            let before = vec![format!("*a{}", n - 1); 9].join(", ");
            format!("{text}a{n}: &a{n} [{before}]\n")
        });
        for text in [lists, "[".repeat(100), "a".repeat(MAX_BYTES + 1)] {
            assert!(read(&text).is_err());
        }
    }

    #[test]
    fn what_is_written_is_read_unchanged() {
        let value = json!({
            "long": "word ".repeat(60), "lines": "a\n\n  b\n", "text": ["yes", "1", "null", "a: b", "# c", "", "0644", "'\""],
            "empty": [{}, [], null, ""], "nested": [[1, { "b": [{ "c": 1.5 }] }]],
        });
        let text = write(&value).unwrap();
        assert_eq!(read(&text).unwrap(), [value]);
        assert!(text.lines().any(|line| line.len() > 300), "{text}");
    }
}
