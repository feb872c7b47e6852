//! The CustomResourceDefinitions: current files, promises of the schema, and every rule in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod crd_cases;

use std::collections::BTreeSet;
use std::path::Path;

use crd_cases::{CASES, Outcome};
use kube_cel::Validator;
use mczk_api::{
    contract::settings::{SETTINGS, SettingField, SettingGroup, SettingUse, refusal_in_zoo_cfg, refusal_of_flag},
    crd,
};
use serde_json::{Value, json};

fn schemas() -> [Value; 2] {
    let schemas: Vec<_> = crd::definitions()
        .unwrap()
        .into_iter()
        .map(|definition| {
            let version = &definition.spec.versions[0];
            serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap()
        })
        .collect();
    schemas.try_into().unwrap()
}

/// Calls `visit` with the path and the schema of every value inside a value, and with the schemas above it.
fn walk<'a>(
    path: &str,
    schema: &'a Value,
    above: &mut Vec<&'a Value>,
    visit: &mut impl FnMut(&str, &Value, &[&Value]),
) {
    visit(path, schema, above);
    above.push(schema);
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, above, visit);
    }
    if let Some(values) = schema.get("additionalProperties") {
        walk(&format!("{path}{{}}"), values, above, visit);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, above, visit);
    }
    above.pop();
}

fn walk_both(visit: &mut impl FnMut(&str, &Value, &[&Value])) {
    for (kind, schema) in ["multiclusterzookeeper", "zookeeper"].into_iter().zip(&schemas()) {
        walk(kind, schema, &mut vec![], visit);
    }
}

fn assert_empty(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_files_are_current() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("manifests/crds");
    let mut names = BTreeSet::new();
    for (name, text) in crd::files().unwrap() {
        let file = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(file == text, "manifests/crds/{name} differs from the types: run `make crds` and commit the result");
        names.insert(name);
    }
    let found: BTreeSet<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, names, "manifests/crds holds files without a type");
}

#[test]
fn everything_has_a_bound() {
    let mut wrong = vec![];
    walk_both(&mut |path, schema, _| {
        let has = |key: &str| schema.get(key).is_some();
        let bounded = match schema.get("type").and_then(Value::as_str) {
            Some("string") => has("maxLength") || has("enum") || schema["format"] == "date-time",
            Some("array") => has("maxItems"),
            Some("object") => has("properties") || has("maxProperties") || path.ends_with(".metadata"),
            Some("integer" | "boolean") => true,
            _ => has("x-kubernetes-int-or-string") && has("maxLength"),
        };
        if !bounded {
            wrong.push(format!("{path} has no bound: {schema}"));
        }
    });
    assert_empty(&wrong);
}

#[test]
fn nothing_is_null() {
    walk_both(&mut |path, schema, _| assert!(schema.get("nullable").is_none(), "{path}"));
}

#[test]
fn zookeeper_has_no_default_and_no_status_has() {
    let mut with = vec![];
    walk_both(&mut |path, schema, _| {
        if schema.get("default").is_some() {
            with.push(path.to_owned());
        }
    });
    let expected = ["network.mode", "tls", "tls.quorum"].map(|field| format!("multiclusterzookeeper.spec.{field}"));
    assert_eq!(with, expected, "a member cluster with a newer definition would change an object whose hash is fixed");
}

#[test]
fn every_field_is_described() {
    let mut wrong = vec![];
    walk_both(&mut |path, schema, above| {
        let is_property = above.last().is_some_and(|parent| parent.get("properties").is_some());
        let own = !path.ends_with(".metadata") && path.split('.').count() > 2;
        if is_property && own && schema["description"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("{path} has no description: write a doc comment"));
        }
    });
    assert_empty(&wrong);
}

/// Users must see the effect of a change on a running ensemble before they make it.
#[test]
fn every_field_of_the_spec_names_the_effect_of_a_change() {
    const EFFECTS: [&str; 8] = [
        "restarts servers",
        "restarts the servers",
        "restarts no server",
        "changes membership",
        "change membership",
        "refused",
        "Immutable",
        "takes effect with the next record",
    ];
    let names_effect = |schema: &Value, any: bool| {
        schema["description"].as_str().is_some_and(|text| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            EFFECTS.iter().any(|effect| text.contains(effect)) && (!any || text.contains("any field"))
        })
    };
    let mut wrong = vec![];
    let spec = &schemas()[0]["properties"]["spec"];
    walk("spec", spec, &mut vec![], &mut |path, schema, above| {
        let is_property = above.last().is_some_and(|parent| parent.get("properties").is_some());
        // The effect of a list or map holds for its elements.
        let inherited = above
            .iter()
            .any(|parent| names_effect(parent, true) || (parent["type"] == "array" && names_effect(parent, false)));
        if is_property && !names_effect(schema, false) && !inherited {
            wrong.push(format!("{path}: {}", schema["description"]));
        }
    });
    assert_empty(&wrong);
}

/// `kubectl get NAME` finds a category before a short name, and then refuses the name of an object.
#[test]
fn no_category_is_also_a_name() {
    for definition in crd::definitions().unwrap() {
        let names = definition.spec.names;
        let mut taken = names.short_names.unwrap_or_default();
        taken.extend([names.plural, names.kind.to_lowercase()]);
        for category in names.categories.unwrap_or_default() {
            assert!(!taken.contains(&category), "{category}");
        }
    }
}

#[test]
fn rules_accept_and_refuse_by_the_table() {
    let [schema, _] = schemas();
    let validator = Validator::new();
    let mut wrong = vec![];
    for case in CASES {
        let (before, written) = case.objects();
        let messages: Vec<_> = match validator.validate(&schema, &written, before.as_ref()) {
            Ok(()) => vec![],
            Err(errors) => errors.iter().map(|error| format!("{} ({:?})", error.message, error.kind)).collect(),
        };
        let fine = match case.outcome {
            Outcome::Accepted => messages.is_empty(),
            Outcome::Rule(expected) => messages.len() == 1 && messages[0].starts_with(expected),
            // A rule may fail on a value that the schema refuses.
            Outcome::Schema(_) => true,
        };
        if !fine {
            wrong.push(format!("{}: {:?}, but {messages:?}", case.name, case.outcome));
        }
    }
    assert_empty(&wrong);
}

#[test]
fn every_rule_refuses_something() {
    let mut messages = BTreeSet::new();
    walk("", &schemas()[0], &mut vec![], &mut |_, schema, _| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            messages.insert(rule["message"].as_str().expect("every rule has a message").to_owned());
        }
    });
    assert!(messages.len() > 15, "{messages:?}");
    for message in messages {
        assert!(
            CASES.iter().any(|case| matches!(case.outcome, Outcome::Rule(expected) if message.starts_with(expected))),
            "no case of tests/crd_cases breaks the rule {message:?}"
        );
    }
}

/// The definitions and `mczk server` read one table. The server also refuses values of flags, and other spellings.
#[test]
fn definitions_and_server_refuse_the_same_settings() {
    let [schema, _] = schemas();
    let mut names: Vec<String> = SETTINGS.iter().flat_map(SettingGroup::names).map(str::to_owned).collect();
    assert!(names.len() > 200, "{}", names.len());
    names.iter_mut().filter(|name| name.ends_with('.')).for_each(|name| name.push('x'));
    names.extend(["unknown", "zookeeper.tickTime"].map(str::to_owned));
    let mut wrong = vec![];
    let fields = ["1", "-1", "x", "0.5"].map(|value| ("zooCfg", value));
    for (field, prefix) in fields.into_iter().chain([("jvmFlags", "-Dzookeeper."), ("jvmFlags", "-D")]) {
        for name in &names {
            let (entry, refused) = if field == "zooCfg" {
                (json!({ "name": name, "value": prefix }), refusal_in_zoo_cfg(name, prefix))
            } else {
                let refused = refusal_of_flag(&format!("{prefix}{name}=1"));
                (json!(format!("{prefix}{name}=1")), refused.filter(|why| !why.starts_with("its value must")))
            };
            let mut object = crd_cases::base();
            object["spec"]["template"][field] = json!([entry]);
            let messages: Vec<_> = match Validator::new().validate(&schema, &object, None) {
                Ok(()) => vec![],
                Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
            };
            // A name can also belong to the group of a prefix.
            if messages.first() != refused.as_ref() {
                wrong.push(format!("{field} {prefix}{name}: server {refused:?}, definition {messages:?}"));
            }
        }
    }
    assert_empty(&wrong);
}

/// What clusters must agree on cannot be chosen for one of them.
#[test]
fn a_setting_that_must_be_equal_is_refused_in_an_override() {
    let [schema, _] = schemas();
    let mut wrong = vec![];
    for group in
        SETTINGS.iter().filter(|group| group.allowed != SettingUse::Refused && group.field == SettingField::ZooCfg)
    {
        for name in group.names() {
            let name = if name.ends_with('.') { format!("{name}x") } else { name.to_owned() };
            let mut object = crd_cases::base();
            object["spec"]["overrides"] = json!([{ "cluster": "m1", "zooCfg": [{ "name": name, "value": "1" }] }]);
            // The value may be none of this setting.
            let is_of_name = |message: &str| !message.starts_with("its value must");
            let refused = Validator::new()
                .validate(&schema, &object, None)
                .is_err_and(|errors| errors.iter().any(|error| is_of_name(&error.message)));
            if refused != (group.allowed == SettingUse::Ensemble) {
                wrong.push(format!("{name}: refused {refused}"));
            }
        }
    }
    assert_empty(&wrong);
}
