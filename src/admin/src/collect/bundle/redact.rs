//! Takes secrets out of what a bundle stores. Everything here is pure.
//!
//! It rather removes too much: a Secret keeps its name, type and keys alone, and a text that only looks like a credential
//! goes too.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// What stands in place of a credential.
pub(super) const REDACTED: &str = "[REDACTED]";

/// Words in names of credentials.
const WORDS: &str = r"(?i:pass(?:word|wd|phrase)|pwd|token|secret|credential|(?:api|access|private)[_.-]?key)";
/// Ends of names that only refer to a credential, without separators.
const REFERENCES: [&str; 9] = ["name", "names", "ref", "refs", "path", "file", "namespace", "seconds", "pullsecrets"];
/// A value: in quotes, which a string in JSON escapes, or up to a space. Without an end, a quote reaches to the end of the line.
const VALUE: &str = r#"\\+"[^"\n]*"?|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\S+"#;

/// A JSON document without secrets. A text that is no JSON is not stored.
///
/// # Errors
/// If the text cannot be parsed.
pub(super) fn document(text: &str) -> Result<Value, String> {
    // The error may quote the text.
    let mut value: Value = serde_json::from_str(text).map_err(|_| "it is no JSON document".to_owned())?;
    redact(&mut value);
    Ok(value)
}

/// Removes secrets from a value, at every depth: a Work holds whole objects.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => redact_object(members),
        Value::Array(items) => redact_items(items),
        Value::String(string) => redact_string(string),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Items of a list. In arguments, the value of a flag is an item of its own.
fn redact_items(items: &mut [Value]) {
    let mut is_value = false;
    for item in items {
        if is_value {
            hide(item);
        }
        is_value =
            item.as_str().is_some_and(|text| text.starts_with('-') && !text.contains('=') && is_credential(text));
        redact(item);
    }
}

/// A text, or an object in a text, as in annotations.
fn redact_string(string: &mut String) {
    if let Ok(mut nested @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(string) {
        redact(&mut nested);
        *string = nested.to_string();
    } else if let Cow::Owned(redacted) = text(string) {
        *string = redacted;
    }
}

fn redact_object(members: &mut Map<String, Value>) {
    let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    // A reference to a Secret has its kind too, but no content.
    let has_content = ["metadata", "data", "stringData"].into_iter().any(|field| members.contains_key(field));
    if kind == "secret" && has_content {
        *members = keys_only(members);
        return;
    }
    members.retain(|key, _| key != "managedFields" && !key.contains("last-applied"));
    // Environment variables and settings of zoo.cfg.
    let names_credential =
        ["name", "key"].into_iter().any(|field| members.get(field).and_then(Value::as_str).is_some_and(is_credential));
    for (key, value) in members.iter_mut() {
        if kind == "secretlist" && key == "items" {
            // Items of a list have no kind.
            for item in value.as_array_mut().into_iter().flatten() {
                *item = item.as_object().map_or(Value::Null, |item| Value::Object(keys_only(item)));
            }
            continue;
        }
        if (is_credential(key) && !is_reference(key, value)) || (names_credential && key == "value") {
            hide(value);
        }
        redact(value);
    }
}

/// Name, type and keys of a Secret.
fn keys_only(secret: &Map<String, Value>) -> Map<String, Value> {
    let metadata = |field: &str| secret.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let mut kept = Map::new();
    for field in ["name", "namespace", "labels", "creationTimestamp", "ownerReferences"] {
        if let Some(mut value) = metadata(field) {
            redact(&mut value);
            kept.insert(field.to_owned(), value);
        }
    }
    let keys: Vec<&String> = ["data", "stringData"]
        .into_iter()
        .filter_map(|field| secret.get(field)?.as_object())
        .flat_map(Map::keys)
        .collect();
    let fields = [
        ("kind", json!("Secret")),
        ("metadata", Value::Object(kept)),
        ("type", json!(secret.get("type").and_then(Value::as_str))),
        ("keys", json!(keys)),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Replaces a value of any type. A PIN is a number, and a credential may be an object.
fn hide(value: &mut Value) {
    if !value.is_null() {
        *value = Value::from(REDACTED);
    }
}

/// Members of Kubernetes and mczk that have the name of a credential, and only refer to one: with their own members.
const REFERENCE_OBJECTS: [(&str, &[&str]); 3] = [
    ("secret", &["secretName", "name", "items", "defaultMode", "optional"]),
    ("serviceAccountToken", &["audience", "expirationSeconds", "path"]),
    ("secrets", &["name"]),
];

/// True if a member with the name of a credential only refers to one, by its exact name and shape.
fn is_reference(key: &str, value: &Value) -> bool {
    match value {
        Value::Bool(_) => key == "automountServiceAccountToken",
        Value::Array(_) if key == "missingSecrets" => true,
        Value::Array(items) => key == "secrets" && items.iter().all(|item| item.is_object() && is_reference(key, item)),
        Value::Object(members) => REFERENCE_OBJECTS
            .iter()
            .any(|(name, known)| *name == key && members.keys().all(|member| known.contains(&member.as_str()))),
        Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

/// True if a name is that of a credential, and not of a reference to one.
fn is_credential(name: &str) -> bool {
    static CREDENTIAL: LazyLock<Regex> = LazyLock::new(|| regex(&format!("{WORDS}|(?i:authorization)")));
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    CREDENTIAL.is_match(name) && !REFERENCES.iter().any(|end| plain.ends_with(end))
}

/// A pattern, and what replaces it.
type Pattern = (Regex, fn(&Captures<'_>) -> String);

fn regex(pattern: &str) -> Regex {
    // Every pattern is a constant, and the tests compile all of them.
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

/// In this order: a key in PEM contains words of other patterns.
static PATTERNS: LazyLock<[Pattern; 10]> = LazyLock::new(|| {
    let all: fn(&Captures<'_>) -> String = |_| REDACTED.to_owned();
    let rest: fn(&Captures<'_>) -> String = |found| format!("{}{REDACTED}", group(found, 1));
    let end = "-----END [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----";
    [
        // Without its end, a key reaches to the end of the text.
        (regex(&format!(r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----.*?(?:{end}|\z)")), all),
        // Without its beginning, from the start of the text.
        (regex(&format!(r"(?s)\A.*{end}")), all),
        // PEM in base64, as in a kubeconfig.
        (regex(r"LS0tLS1CRUdJTi[A-Za-z0-9+/_=-]*"), all),
        // JSON Web Tokens.
        (regex(r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), all),
        (regex(r"(?i)(\bbearer\s+)\S+"), rest),
        // The rest of the line of a header.
        (regex(r#"(?i)(authorization[\\"']*\s*[=:]\s*)[^\n]+"#), rest),
        // A line of `mczk plan` whose path names a credential: both values.
        (regex(&format!(r"(?m)^(\s*[+~-] [^\s:]*{WORDS}[^\s:]*: ).*$")), rest),
        // User and password in a URL.
        (regex(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s]+@"), |found| format!("{}{REDACTED}@", group(found, 1))),
        // NAME=VALUE and NAME: VALUE.
        (regex(&format!(r#"([A-Za-z0-9_.-]*{WORDS}[A-Za-z0-9_.-]*)([\\"']*\s*[=:]\s*)({VALUE})"#)), assignment),
        // Flags with a value of its own.
        (regex(&format!(r"(--?[A-Za-z0-9_.-]*{WORDS}[A-Za-z0-9_.-]*)(\s+)({VALUE})")), assignment),
    ]
});

fn group<'a>(found: &'a Captures<'_>, number: usize) -> &'a str {
    found.get(number).map_or("", |group| group.as_str())
}

/// A name with its value. What a reference refers to may be followed by a credential.
fn assignment(found: &Captures<'_>) -> String {
    let [name, separator, value] = [1, 2, 3].map(|number| group(found, number));
    let value = if is_credential(name) { Cow::Borrowed(REDACTED) } else { text(value) };
    format!("{name}{separator}{value}")
}

/// A text without keys, tokens and passwords.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    PATTERNS.iter().fold(Cow::Borrowed(text), |text, (pattern, replacement)| {
        if !pattern.is_match(&text) {
            return text;
        }
        Cow::Owned(pattern.replace_all(&text, |found: &Captures<'_>| replacement(found)).into_owned())
    })
}

#[cfg(test)]
#[path = "redact_tests.rs"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
