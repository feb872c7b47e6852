//! The fields in which two JSON values differ.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

/// Longest value in a text, in characters.
const MAX_VALUE: usize = 120;
/// Fields that identify an element of a list, in this order.
const IDENTITIES: [&str; 5] = ["id", "type", "name", "cluster", "kind"];

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FieldChange {
    /// Path, such as `spec.overrides[m2].image`. An element of a list has its own identity, or else its index.
    pub(crate) path: String,
    /// The value before; absent if the field did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Value>,
    /// The value after; absent if the field is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Value>,
}

/// Every field that differs, in the order of the paths. An absent value differs in every field of the other one.
pub(crate) fn field_changes(before: Option<&Value>, after: Option<&Value>) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare("", before, after, &mut changes);
    changes
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    let known = changes.len();
    match (members(before), members(after)) {
        (Some(old), Some(new)) => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                compare(&joined(path, key), old.get(key), new.get(key), changes);
            }
        }
        _ => compare_lists(path, before, after, changes),
    }
    if changes.len() == known {
        changes.push(FieldChange { path: path.to_owned(), before: before.cloned(), after: after.cloned() });
    }
}

/// The members of an object; none of an absent value. `None` for any other value.
fn members(value: Option<&Value>) -> Option<Map<String, Value>> {
    match value {
        None => Some(Map::new()),
        Some(Value::Object(members)) => Some(members.clone()),
        Some(_) => None,
    }
}

fn compare_lists(path: &str, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<FieldChange>) {
    let items = |value: Option<&Value>| match value {
        None => Some(Vec::new()),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Some(items.clone()),
        Some(_) => None,
    };
    let (Some(old), Some(new)) = (items(before), items(after)) else { return };
    let identity = IDENTITIES.into_iter().find(|field| is_identity(field, &old) && is_identity(field, &new));
    let Some(field) = identity else {
        for index in 0..old.len().max(new.len()) {
            compare(&format!("{path}[{index}]"), old.get(index), new.get(index), changes);
        }
        return;
    };
    let own = |item: &Value| name_of(item, field);
    let names: BTreeSet<String> = old.iter().chain(&new).filter_map(own).collect();
    for name in names {
        let of_name = |list: &[Value]| list.iter().find(|item| own(item).as_ref() == Some(&name)).cloned();
        compare(&format!("{path}[{name}]"), of_name(&old).as_ref(), of_name(&new).as_ref(), changes);
    }
}

/// True if every item has the field, each with another value.
fn is_identity(field: &str, items: &[Value]) -> bool {
    let names: BTreeSet<String> = items.iter().filter_map(|item| name_of(item, field)).collect();
    names.len() == items.len()
}

fn name_of(item: &Value, field: &str) -> Option<String> {
    match item.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn joined(path: &str, key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// The change as a line: `+` for a new field, `-` for one that is gone, `~` for another value.
pub(crate) fn line(change: &FieldChange) -> String {
    let FieldChange { path, before, after } = change;
    let path = if path.is_empty() { "(all)" } else { path };
    match (before, after) {
        (None, Some(after)) => format!("+ {path}: {}", brief(after)),
        (Some(before), None) => format!("- {path}: {}", brief(before)),
        (Some(before), Some(after)) => format!("~ {path}: {} -> {}", brief(before), brief(after)),
        (None, None) => format!("~ {path}"),
    }
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::same(json!({ "a": [1] }), json!({ "a": [1] }), &[])]
    #[case::value(json!({ "a": { "b": 1 } }), json!({ "a": { "b": 2 } }), &["~ a.b: 1 -> 2"])]
    #[case::added(json!({}), json!({ "a": { "b": 1, "c": {} } }), &["+ a.b: 1", "+ a.c: {}"])]
    #[case::removed(json!({ "a": { "b": 1 } }), json!({}), &["- a.b: 1"])]
    #[case::type_(json!({ "a": { "b": 1 } }), json!({ "a": 7 }), &["~ a: {\"b\":1} -> 7"])]
    #[case::key(json!({}), json!({ "metadata": { "labels": { "mczk.io/x": "y" } } }), &["+ metadata.labels[mczk.io/x]: \"y\""])]
    #[case::named(
        json!({ "l": [{ "name": "a", "v": 1 }, { "name": "b", "v": 1 }] }),
        json!({ "l": [{ "name": "b", "v": 2 }, { "name": "c", "v": 1 }] }),
        &["- l[a].name: \"a\"", "- l[a].v: 1", "~ l[b].v: 1 -> 2", "+ l[c].name: \"c\"", "+ l[c].v: 1"]
    )]
    #[case::ids(
        json!([{ "id": 1, "cluster": "m1" }, { "id": 2, "cluster": "m1" }]),
        json!([{ "id": 1, "cluster": "m1" }]),
        &["- [2].cluster: \"m1\"", "- [2].id: 2"]
    )]
    #[case::order(
        json!({ "l": [{ "name": "a" }, { "name": "b" }] }), json!({ "l": [{ "name": "b" }, { "name": "a" }] }),
        &["~ l: [{\"name\":\"a\"},{\"name\":\"b\"}] -> [{\"name\":\"b\"},{\"name\":\"a\"}]"]
    )]
    #[case::scalars(json!({ "l": [1, 2] }), json!({ "l": [2] }), &["~ l: [1,2] -> [2]"])]
    #[case::without_identity(json!({ "l": [{ "v": 1 }] }), json!({ "l": [{ "v": 1 }, { "v": 2 }] }), &["+ l[1].v: 2"])]
    fn changes(#[case] before: Value, #[case] after: Value, #[case] expected: &[&str]) {
        let lines: Vec<String> = field_changes(Some(&before), Some(&after)).iter().map(line).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_long_value_is_cut() {
        let after = json!({ "a": "ü".repeat(500) });
        let lines: Vec<String> = field_changes(None, Some(&after)).iter().map(line).collect();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("..."), "{lines:?}");
    }
}
