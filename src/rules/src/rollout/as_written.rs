//! Whether a live object is exactly as the operator writes it, apart from what Karmada adds.
//!
//! A field of another client may move voters (`clusterAffinity.exclude`) or change what agents read (an image overrider), so
//! the comparison covers whole objects, and the operator replaces what differs.

use serde::Serialize;
use serde_json::{Map, Value, json};

use mczk_api::{
    karmada::additions::{is_karmada_key, policy_defaults, webhook_tolerations},
    mutation::broken,
};

/// The object to write: a new one, or the one that replaces the live one. `None` if the live one is as wanted.
#[must_use]
pub fn replacement(live: Option<&Value>, wanted: &Value) -> Option<Value> {
    let mut next = wanted.clone();
    remove_nulls(&mut next);
    let Some(live) = live else { return Some(next) };
    for field in ["labels", "annotations"] {
        keep_karmada_keys(live, &mut next, field);
    }
    keep_finalizers(live, &mut next);
    let namespace = next.pointer("/metadata/namespace").cloned();
    if let (Some(live), Some(next)) = (live.get("spec"), next.get_mut("spec")) {
        keep_defaults(live, next);
        keep_namespaces(live, next, namespace.as_ref());
        if let (Some(live), Some(next)) = (live.get("placement"), next.get_mut("placement")) {
            keep_tolerations(live, next);
        }
    }
    let parts =
        ["/metadata/labels", "/metadata/annotations", "/metadata/finalizers", "/metadata/ownerReferences", "/spec"];
    let as_wanted = if broken!(KeepForeignFields) { has_wanted } else { is_same };
    if parts.iter().all(|part| as_wanted(live.pointer(part), next.pointer(part))) {
        return None;
    }
    if broken!(WithoutVersion) {
        members(&mut next, "metadata")?.remove("resourceVersion");
        return Some(next);
    }
    for field in ["uid", "resourceVersion"] {
        if let (Some(value), Some(meta)) = (live.pointer(&format!("/metadata/{field}")), members(&mut next, "metadata"))
        {
            meta.insert(field.to_owned(), value.clone());
        }
    }
    Some(next)
}

/// True if a placement is the operator's, apart from tolerations that Karmada's webhook adds.
#[must_use]
pub(super) fn has_placement<T: Serialize>(live: &Value, wanted: &T) -> bool {
    let mut wanted = json!(wanted);
    remove_nulls(&mut wanted);
    keep_tolerations(live, &mut wanted);
    let same = if broken!(BelieveEditedPlacement) { has_wanted } else { is_same };
    same(Some(live), Some(&wanted))
}

/// The comparison of a broken variant: it ignores fields that the operator does not write.
fn has_wanted(live: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (live, wanted) {
        (Some(Value::Object(live)), Some(Value::Object(wanted))) => {
            wanted.iter().all(|(key, value)| has_wanted(live.get(key), Some(value)))
        }
        (_, None) => true,
        (live, wanted) => is_same(live, wanted),
    }
}

fn members<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(field).and_then(Value::as_object_mut)
}

/// An empty list or object is the same as none: Karmada's webhook writes either.
pub(super) fn is_same(live: Option<&Value>, wanted: Option<&Value>) -> bool {
    match (live, wanted) {
        (Some(Value::Object(live)), Some(Value::Object(wanted))) => {
            live.keys().chain(wanted.keys()).all(|key| is_same(live.get(key), wanted.get(key)))
        }
        (Some(Value::Array(live)), Some(Value::Array(wanted))) => {
            live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| is_same(Some(live), Some(wanted)))
        }
        (Some(one), None) | (None, Some(one)) => is_empty(one),
        (live, wanted) => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Keeps labels or annotations that Karmada added.
fn keep_karmada_keys(live: &Value, next: &mut Value, field: &str) {
    let Some(live) = live.pointer(&format!("/metadata/{field}")).and_then(Value::as_object) else { return };
    let Some(meta) = members(next, "metadata") else { return };
    let own = meta.entry(field).or_insert_with(|| json!({}));
    for (key, value) in live.iter().filter(|(key, _)| is_karmada_key(key)) {
        if let Some(own) = own.as_object_mut().filter(|own| !own.contains_key(key)) {
            own.insert(key.clone(), value.clone());
        }
    }
}

/// Keeps finalizers of Karmada, and those of Kubernetes, which have no domain.
fn keep_finalizers(live: &Value, next: &mut Value) {
    let all = live.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    let kept: Vec<&Value> =
        all.filter(|name| name.as_str().is_some_and(|name| is_karmada_key(name) || !name.contains('/'))).collect();
    if let Some(meta) = members(next, "metadata").filter(|_| !kept.is_empty()) {
        meta.insert("finalizers".to_owned(), json!(kept));
    }
}

/// Keeps defaults of a policy where the operator wants nothing else.
fn keep_defaults(live: &Value, next: &mut Value) {
    for (field, default) in policy_defaults() {
        if let Some(next) = next.as_object_mut().filter(|next| !next.contains_key(field))
            && live.get(field) == Some(&default)
        {
            next.insert(field.to_owned(), default);
        }
    }
}

/// Keeps the policy's own namespace in selectors: Karmada's webhook adds it.
fn keep_namespaces(live: &Value, next: &mut Value, namespace: Option<&Value>) {
    let selectors = |spec: &Value| spec.get("resourceSelectors").and_then(Value::as_array).cloned().unwrap_or_default();
    let live = selectors(live);
    let own = next.get_mut("resourceSelectors").and_then(Value::as_array_mut).into_iter().flatten();
    for (next, live) in own.zip(&live) {
        if let Some(next) = next.as_object_mut().filter(|next| !next.contains_key("namespace"))
            && let Some(added) = live.get("namespace").filter(|added| Some(*added) == namespace)
        {
            next.insert("namespace".to_owned(), added.clone());
        }
    }
}

/// Keeps the tolerations that Karmada's webhook appends to a placement.
fn keep_tolerations(live: &Value, next: &mut Value) {
    let Some(live) = live.get("clusterTolerations").and_then(Value::as_array) else { return };
    let own = next.get("clusterTolerations").and_then(Value::as_array).map_or(0, Vec::len);
    let appended: Vec<Value> = live.iter().skip(own).filter(|t| webhook_tolerations().contains(t)).cloned().collect();
    if appended.is_empty() {
        return;
    }
    if let Some(next) = next.as_object_mut()
        && let Some(list) = next.entry("clusterTolerations").or_insert_with(|| json!([])).as_array_mut()
    {
        list.extend(appended);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn wanted() -> Value {
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {
                "name": "zk", "namespace": "ns", "resourceVersion": "7", "labels": { "mczk.io/ensemble": "zk" },
                "annotations": { "mczk.io/applied-hash": "a" }, "ownerReferences": [{ "uid": "u" }],
            },
            "spec": {
                "resourceSelectors": [{ "kind": "ZooKeeper", "name": "zk" }],
                "placement": {
                    "clusterAffinity": { "clusterNames": ["m1", "m2"] },
                    "clusterTolerations": [{ "operator": "Exists", "effect": "NoExecute" }],
                },
                "failover": null,
            },
        })
    }

    fn with(pointer: &str, key: &str, value: Value) -> Value {
        let mut object = wanted();
        object.pointer_mut(pointer).unwrap()[key] = value;
        object
    }

    fn toleration(seconds: i64) -> Value {
        json!([
            { "operator": "Exists", "effect": "NoExecute" },
            { "key": "cluster.karmada.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds },
        ])
    }

    #[rstest]
    #[case::as_written("", "", Value::Null)]
    #[case::generation("/metadata", "generation", json!(3))]
    #[case::label("/metadata/labels", "propagationpolicy.karmada.io/permanent-id", json!("x"))]
    #[case::annotation("/metadata/annotations", "policy.karmada.io/applied-placement", json!("x"))]
    #[case::finalizers("/metadata", "finalizers", json!(["karmada.io/binding-controller", "foregroundDeletion"]))]
    #[case::default("/spec", "preemption", json!("Never"))]
    #[case::status("", "status", json!({ "x": 1 }))]
    #[case::nothing("/spec", "suspension", json!({}))]
    #[case::namespace("/spec/resourceSelectors/0", "namespace", json!("ns"))]
    #[case::toleration("/spec/placement", "clusterTolerations", toleration(300))]
    fn what_karmada_adds_is_no_difference(#[case] pointer: &str, #[case] key: &str, #[case] value: Value) {
        let live = if key.is_empty() { wanted() } else { with(pointer, key, value) };
        assert_eq!(replacement(Some(&live), &wanted()), None);
    }

    #[rstest]
    #[case::label("/metadata/labels", "team", json!("a"))]
    #[case::annotation("/metadata/annotations", "example.com/x", json!("y"))]
    #[case::finalizer("/metadata", "finalizers", json!(["example.com/hold"]))]
    #[case::second_owner("/metadata", "ownerReferences", json!([{ "uid": "u" }, { "uid": "v" }]))]
    #[case::exclude("/spec/placement/clusterAffinity", "exclude", json!(["m1"]))]
    #[case::spread("/spec/placement", "spreadConstraints", json!([{ "spreadByField": "cluster" }]))]
    #[case::unknown_field("/spec/placement", "ofTheFuture", json!(true))]
    #[case::toleration("/spec/placement", "clusterTolerations", toleration(5))]
    #[case::other_namespace("/spec/resourceSelectors/0", "namespace", json!("other"))]
    #[case::other_default("/spec", "preemption", json!("Always"))]
    #[case::scheduler("/spec", "schedulerName", json!("mine"))]
    fn what_another_client_adds_is_removed(#[case] pointer: &str, #[case] key: &str, #[case] value: Value) {
        let mut live = with(pointer, key, value);
        live["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"] = json!("x");
        live["metadata"]["uid"] = json!("u1");
        live["metadata"]["resourceVersion"] = json!("9");
        let mut expected = wanted();
        expected["spec"].as_object_mut().unwrap().remove("failover");
        expected["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"] = json!("x");
        expected["metadata"]["uid"] = json!("u1");
        expected["metadata"]["resourceVersion"] = json!("9");
        assert_eq!(replacement(Some(&live), &wanted()), Some(expected));
    }

    #[test]
    fn a_new_object_has_no_nulls() {
        let mut expected = wanted();
        expected["spec"].as_object_mut().unwrap().remove("failover");
        assert_eq!(replacement(None, &wanted()), Some(expected));
    }

    #[test]
    fn a_missing_or_changed_field_is_a_difference() {
        let mut live = wanted();
        live["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2", "m1"]);
        assert!(replacement(Some(&live), &wanted()).is_some());
        live = wanted();
        live["metadata"]["annotations"] = json!({});
        assert!(replacement(Some(&live), &wanted()).is_some());
    }

    #[rstest]
    #[case::same("", Value::Null, true)]
    #[case::exclude("exclude", json!(["m1"]), false)]
    #[case::empty("exclude", json!([]), true)]
    fn a_placement_is_the_operators(#[case] key: &str, #[case] value: Value, #[case] expected: bool) {
        let ours = wanted()["spec"]["placement"].clone();
        let mut live = ours.clone();
        live["clusterTolerations"] = toleration(300);
        if !key.is_empty() {
            live["clusterAffinity"][key] = value;
        }
        assert_eq!(has_placement(&live, &ours), expected);
    }
}
