//! Whether a live object already holds every field that a writer wants, and which other writer changed one.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

/// Members that count as a whole: one more label selects fewer pods. The API server adds nothing to them.
const SELECTORS: [&str; 4] = ["selector", "podSelector", "namespaceSelector", "labelSelector"];

/// The path of the first wanted member that a live value does not hold. Members that the API server added are no difference,
/// except in selectors. Lists must have the same items in the same order, and a path ends at a list. `same` decides whether two texts have one meaning.
pub fn differing_path(live: &Value, wanted: &Value, same: fn(&str, &str) -> bool) -> Option<Vec<String>> {
    let is_same = match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            return wanted.iter().find_map(|(key, value)| {
                let live = live.get(key).unwrap_or(&Value::Null);
                if SELECTORS.contains(&key.as_str()) {
                    return (live != value).then(|| vec![key.clone()]);
                }
                let rest = differing_path(live, value, same)?;
                Some([vec![key.clone()], rest].concat())
            });
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let mut pairs = live.iter().zip(wanted);
            live.len() == wanted.len() && pairs.all(|(live, wanted)| differing_path(live, wanted, same).is_none())
        }
        (Value::String(live), Value::String(wanted)) => same(live, wanted),
        _ => live == wanted,
    };
    (!is_same).then(Vec::new)
}

/// The managers that own the field of a path.
#[must_use]
pub fn managers(entries: &[ManagedFieldsEntry], path: &[String]) -> BTreeSet<String> {
    let owned = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let owned = path.iter().try_fold(fields?, |fields, name| fields.get(format!("f:{name}").as_str()));
        owned.and(entry.manager.clone())
    };
    entries.iter().filter_map(owned).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_that_the_api_server_added_are_no_difference() {
        let live = json!({ "a": { "x": 1, "y": 2 }, "cpu": "500m", "list": [{ "n": 1, "d": true }] });
        let holds = |wanted: &Value| differing_path(&live, wanted, |live, wanted| live == wanted).is_none();
        assert!(holds(&json!({ "a": { "x": 1 }, "b": null, "list": [{ "n": 1 }] })));
        assert!(!holds(&json!({ "a": { "x": 2 } })));
        assert!(!holds(&json!({ "list": [] })));
        assert!(!holds(&json!({ "cpu": "0.5" })));
    }

    /// Such a Service selects no server: its clients lost the ensemble, and nothing reverted it.
    #[test]
    fn a_label_that_another_client_adds_to_a_selector_is_a_difference() {
        let wanted = json!({ "spec": { "selector": { "app": "zk" } } });
        let path = |live: &Value| differing_path(live, &wanted, |live, wanted| live == wanted);
        assert_eq!(path(&json!({ "spec": { "selector": { "app": "zk" }, "type": "ClusterIP" } })), None);
        let narrower = path(&json!({ "spec": { "selector": { "app": "zk", "other": "x" } } }));
        assert_eq!(narrower.unwrap(), ["spec", "selector"]);
    }

    #[test]
    fn the_other_writer_of_a_field_has_a_name() {
        let live = json!({ "metadata": { "name": "zk" }, "spec": { "template": { "tolerations": [{ "key": "a" }] }, "replicas": 3 } });
        let differs = |wanted: &Value| differing_path(&live, wanted, |live, wanted| live == wanted);
        let path = |wanted: Value| differs(&wanted).map(|path| path.join("."));
        assert_eq!(path(json!({ "spec": { "replicas": 3 } })), None);
        assert_eq!(path(json!({ "spec": { "replicas": 2 } })).as_deref(), Some("spec.replicas"));
        assert_eq!(path(json!({ "spec": { "x": { "y": 1 } } })).as_deref(), Some("spec.x"));
        let list = differs(&json!({ "spec": { "template": { "tolerations": [] } } })).unwrap();
        assert_eq!(list, ["spec", "template", "tolerations"]);
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(json!([
            { "manager": "mczk-agent", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
            { "manager": "tuner", "fieldsV1": { "f:spec": { "f:template": { "f:tolerations": {} } } } },
        ]))
        .unwrap();
        assert_eq!(managers(&entries, &list), BTreeSet::from(["tuner".to_owned()]));
        assert_eq!(managers(&entries, &["spec".to_owned(), "x".to_owned()]), BTreeSet::new());
    }
}
