//! Takes secrets out of what a bundle stores. Everything here is pure.
//!
//! It rather removes too much: a Secret keeps its name, type and keys alone, and a text that only looks like a credential
//! goes too.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use mczk_api::yaml;
use mczk_rules::credential_name::is_credential;

/// What stands in place of a credential.
pub(super) const REDACTED: &str = "[REDACTED]";

/// A name of a setting, a member, a flag or a variable.
const NAME: &str = "[A-Za-z0-9_.-]+";
/// A name that may be that of a credential.
const HINT: &str = r"[\w.-]*(?i:pass|pwd|pw|token|secret|cred|auth|digest|key|cookie|sig|docker|user_)[\w.-]*";
/// A value: in quotes, which a string in JSON escapes, or up to a space. Without an end, a quote reaches to the end of the line.
/// Rust and Go print some quotes in brackets.
const VALUE: &str = r#"\\"(?:[^"\\\n]|\\\\\\"|\\[^"\n])*\\"|\\+"[^"\n]*"?|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\n]|'')*'?|\w+[({]\\*"(?:[^"\\\n]|\\.)*"?\S*|\S+"#;
/// Begin of the names of mczk's own variables, whose values are settings.
const OWN_VARIABLES: &str = "MCZK_";

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
        is_value = item.as_str().is_some_and(|text| {
            text.starts_with('-') && !text.contains('=') && (is_credential(text) || ["-u", "--user"].contains(&text))
        });
        redact(item);
    }
}

/// A text, or objects in a text, as in annotations and `ConfigMaps`.
fn redact_string(string: &mut String) {
    if let Ok(mut nested @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(string) {
        redact(&mut nested);
        *string = nested.to_string();
    } else if let Some(documents) = redacted_yaml(string) {
        *string = documents;
    } else if let Cow::Owned(redacted) = text(string) {
        *string = redacted;
    }
}

/// A text of YAML objects without secrets; `None` if it is something else, or if it has no secret.
fn redacted_yaml(text: &str) -> Option<String> {
    let documents = text.contains('\n').then(|| yaml::read(text).ok()).flatten()?;
    let mut redacted = documents.clone();
    redacted.iter_mut().for_each(redact);
    if redacted == documents || !documents.iter().all(|document| document.is_object() || document.is_array()) {
        return None;
    }
    let written: Result<Vec<String>, _> = redacted.iter().map(yaml::write).collect();
    Some(written.map_or_else(|_| REDACTED.to_owned(), |documents| documents.join("---\n")))
}

/// Hides the values of environment variables, whatever their names. References stay, and what mczk itself reads.
fn hide_environment(variables: &mut Value) {
    match variables {
        Value::Array(items) => {
            let is_own = |item: &&mut Value| {
                item.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with(OWN_VARIABLES))
            };
            items.iter_mut().filter(|item| !is_own(item)).filter_map(|item| item.get_mut("value")).for_each(hide);
        }
        Value::Object(members) => members.values_mut().filter(|value| !value.is_object()).for_each(hide),
        _ => {}
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
    // Environment variables, settings of zoo.cfg, headers, and rules of an OverridePolicy.
    let names_credential = ["name", "key", "path"].into_iter().any(|field| {
        members.get(field).and_then(Value::as_str).is_some_and(|name| is_credential(name) || name.contains("/env/"))
    });
    // The key of a label, of a taint, or of a file from a Secret.
    let has_label = ["operator", "effect", "path"].into_iter().any(|field| members.contains_key(field));
    for (key, value) in members.iter_mut() {
        if kind == "secretlist" && key == "items" {
            // Items of a list have no kind.
            for item in value.as_array_mut().into_iter().flatten() {
                *item = item.as_object().map_or(Value::Null, |item| Value::Object(keys_only(item)));
            }
            continue;
        }
        if refers_to_key(key, value) {
            continue;
        }
        let is_reference = is_reference(key, value) || (key == "key" && has_label);
        if (is_credential(key) && !is_reference) || (names_credential && key == "value") {
            hide(value);
        } else if key == "env" {
            hide_environment(value);
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

/// True for `secretKeyRef` and the like, which name an object and one of its keys.
fn refers_to_key(key: &str, value: &Value) -> bool {
    let is_known = |member: &String| ["name", "key", "optional"].contains(&member.as_str());
    key.ends_with("KeyRef") && value.as_object().is_some_and(|members| members.keys().all(is_known))
}

/// True if a member with the name of a credential only refers to one, by its exact name and shape.
fn is_reference(key: &str, value: &Value) -> bool {
    match value {
        Value::Bool(_) => key == "automountServiceAccountToken",
        Value::Array(_) if key == "missingSecrets" => true,
        Value::Array(items) => key == "secrets" && items.iter().all(|item| item.is_object() && is_reference(key, item)),
        Value::Object(members) => REFERENCE_OBJECTS
            .iter()
            .any(|(name, known)| *name == key && members.keys().all(|member| known.contains(&member.as_str()))),
        Value::String(text) => is_checksum(key, text),
        Value::Null | Value::Number(_) => false,
    }
}

/// True for the digest of an image.
fn is_checksum(name: &str, value: &str) -> bool {
    name.to_ascii_lowercase().ends_with("digest") && value.trim_start_matches(['"', '\'', '\\']).starts_with("sha256:")
}

/// A pattern, and what replaces it.
type Pattern = (Regex, fn(&Captures<'_>) -> String);

fn regex(pattern: &str) -> Regex {
    // Every pattern is a constant, and the tests compile all of them.
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

/// In this order: a key in PEM contains words of other patterns.
static PATTERNS: LazyLock<[Pattern; 14]> = LazyLock::new(|| {
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
        // JSON Web Tokens, also in base64 again, and other JSON in base64.
        (regex(r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), all),
        (regex(r"\b(?:eyJ|ZXlK)[A-Za-z0-9+/=_-]{24,}"), all),
        // Tokens with a known begin: of AWS, GitHub, GitLab, Slack, Google and Vault, and keys of age.
        (
            regex(
                r"\b(?:AKIA[0-9A-Z]{16}|gh[a-z]_\w{20,}|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|AIza[\w-]{30,}|ya29\.[\w.-]+|hvs\.[\w-]+|AGE-SECRET-KEY-\w+)",
            ),
            all,
        ),
        // A token with which a cluster joins. Names of events have the same shape and end with hexadecimal digits.
        (regex(r"\b[a-z0-9]{6}\.([a-z0-9]{16})\b"), |found| {
            let random = group(found, 1);
            let is_name =
                random.chars().all(|c| c.is_ascii_hexdigit()) || !random.contains(|c: char| c.is_ascii_digit());
            if is_name { group(found, 0) } else { REDACTED }.to_owned()
        }),
        (regex(r"(?i)(\bbearer\s+)\S+"), rest),
        (regex(r"(\bBasic )([A-Za-z0-9+/]{6,}=*)"), |found| {
            let is_word = group(found, 2).chars().all(|c| c.is_ascii_lowercase());
            if is_word { group(found, 0).to_owned() } else { format!("{}{REDACTED}", group(found, 1)) }
        }),
        // Users of ZooKeeper: a digest as ACLs have it, and users with their passwords in commands and in .netrc.
        (regex(r"[\w.@-]+:(?:[A-Za-z0-9+/]{27}=|[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==)"), all),
        (
            regex(
                r#"(?i)(\b(?:addauth\s+\S+\s+["']?|digest[:,]["']?)[\w.@-]+:|\blogin\s+\S+\s+password\s+|\s(?:-u|--user|--proxy-user)[ =])\S+"#,
            ),
            rest,
        ),
        // The rest of the line of a header.
        (regex(r#"(?i)((?:authorization|cookie)[\\"']*\s*[=:]\s*)[^\n]+"#), rest),
        // User and password in a URL.
        (regex(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s]+@"), |found| format!("{}{REDACTED}@", group(found, 1))),
        // The same if the password has a slash. A reference to an image has its digest there.
        (regex(r#"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/:@"']*:[^\s@"']+@(sha256:)?"#), |found| {
            let is_image = !group(found, 2).is_empty();
            if is_image { group(found, 0).to_owned() } else { format!("{}{REDACTED}@", group(found, 1)) }
        }),
    ]
});

/// Patterns of a name, what is between, and its value. Only names of credentials count.
static NAMED: LazyLock<[Regex; 8]> = LazyLock::new(|| {
    [
        // A line of `mczk plan` whose path names a credential: both values.
        regex(r"(?m)^\s*[+~-] ([^\s:]+)(: )(.*)$"),
        // A block, map or list of YAML, up to the next line that is not indented. Without the hint, it would be read again for
        // every member.
        regex(&format!(r#"({HINT})(["']?:[ \t]*(?:[|>][-+0-9]*)?[ \t]*\n)((?:(?:[ \t]+|- )\S[^\n]*\n?|[ \t]*\n)+)"#)),
        // A line of YAML or of a file of properties, whose value may have spaces.
        regex(r#"(?m)^[ \t]*(?:- |export )?([A-Za-z_][\w.-]*)([ \t]*[:=][ \t]*)([^"'\s\[{|>\\][^\n]*)"#),
        // XML.
        regex(&format!(r"<({NAME})((?:\s[^>]*)?>)([^<]+)")),
        regex(&format!(r"<name>\s*({NAME})(\s*</name>\s*<value>)([^<]+)")),
        // name: NAME, value: VALUE.
        regex(&format!(r#"name[\\"']*\s*[=:]\s*[\\"']*({NAME})([\\"',\s]+value[\\"']*\s*[=:]\s*)({VALUE})"#)),
        // NAME=VALUE and NAME: VALUE.
        regex(&format!(r#"({NAME})([\\"'\])]*\s*(?:=>|:=|[=:])\s*)({VALUE})"#)),
        // A flag with a value of its own.
        regex(&format!(r#"(?:^|[\s"'\[(,=])(--?{NAME})(\s+)({VALUE})"#)),
    ]
});

fn group<'a>(found: &'a Captures<'_>, number: usize) -> &'a str {
    found.get(number).map_or("", |group| group.as_str())
}

/// Replaces the values of credentials. A value of another name may hold a credential, so the search goes on within it.
fn hide_values<'a>(text: Cow<'a, str>, pattern: &Regex) -> Cow<'a, str> {
    let (mut hidden, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(found) = pattern.captures_at(&text, at) {
        let (Some(between), Some(value)) = (found.get(2), found.get(3)) else { break };
        at = between.start();
        if is_credential(group(&found, 1)) && !is_checksum(group(&found, 1), value.as_str()) {
            let end = if value.as_str().ends_with('\n') { "\n" } else { "" };
            hidden.extend([text.get(kept..value.start()).unwrap_or_default(), REDACTED, end]);
            (kept, at) = (value.end(), value.end());
        }
    }
    if kept == 0 {
        return text;
    }
    hidden.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(hidden)
}

/// A text without keys, tokens and passwords.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    let text = PATTERNS.iter().fold(Cow::Borrowed(text), |text, (pattern, replacement)| {
        if !pattern.is_match(&text) {
            return text;
        }
        Cow::Owned(pattern.replace_all(&text, |found: &Captures<'_>| replacement(found)).into_owned())
    });
    NAMED.iter().fold(text, hide_values)
}

#[cfg(test)]
#[path = "redact_tests.rs"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests;
