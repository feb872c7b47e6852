//! Fields of both kinds.

use std::collections::BTreeMap;

use mczk_api::crd;
use serde_json::Value;

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
`kubectl explain` prints the same descriptions. Users declare a MultiClusterZooKeeper. The operator and Karmada write the
ZooKeeper objects; a user only reads them.";

/// Lists and objects whose members have a reference of their own.
const ELSEWHERE: [(&str, &str); 2] =
    [("conditions", "[Conditions](conditions.md)"), ("affinity", "the API reference of Kubernetes")];

/// Rows of the table of fields: path, type, default, bounds, description.
type Row = [String; 5];

/// Objects that the page has described, by their schema: their kind and path.
type Described = BTreeMap<String, String>;

#[derive(Default)]
struct Rows {
    fields: Vec<Row>,
    rules: Vec<[String; 2]>,
}

pub fn page() -> String {
    let mut described = Described::new();
    let sections = crd::definitions().unwrap();
    let sections = sections.iter().map(|definition| {
        let definition = serde_json::to_value(definition).unwrap();
        section(&definition, &mut described)
    });
    head("Fields", INTRODUCTION) + &sections.collect::<String>()
}

fn section(definition: &Value, described: &mut Described) -> String {
    let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str).unwrap();
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
    let mut text = format!("\n## {kind}\n\n{}\n", schema["description"].as_str().unwrap_or_default());
    for part in ["spec", "status"] {
        let Some(schema) = schema["properties"].get(part) else { continue };
        let mut rows = Rows::default();
        rules(part, schema, &mut rows);
        children(kind, part, schema, &mut rows, described);
        text += &format!("\n### `{part}` of {kind}\n");
        text += &table(["field", "type", "default", "bounds", "description"], &rows.fields);
        if !rows.rules.is_empty() {
            text += "\nRules:\n";
            text += &table(["field", "rule"], &rows.rules);
        }
    }
    text
}

/// Adds the rows of everything below an object, in the order of their names.
fn children(kind: &str, path: &str, schema: &Value, rows: &mut Rows, described: &mut Described) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, schema) in properties {
        field(kind, &format!("{path}.{name}"), schema, required.contains(&name.as_str()), rows, described);
    }
}

fn field(kind: &str, path: &str, schema: &Value, required: bool, rows: &mut Rows, described: &mut Described) {
    let default = match &schema["default"] {
        Value::Null if required => "required".to_owned(),
        Value::Null => String::new(),
        Value::String(text) => code(text),
        other => code(&other.to_string()),
    };
    let (inner, inner_path) = match schema["type"].as_str() {
        Some("array") => (&schema["items"], format!("{path}[]")),
        Some("object") if schema["additionalProperties"].is_object() => {
            (&schema["additionalProperties"], format!("{path}.*"))
        }
        _ => (schema, path.to_owned()),
    };
    let mut description = schema["description"].as_str().unwrap_or_default().to_owned();
    let name = path.rsplit('.').next().unwrap_or(path);
    let elsewhere = ELSEWHERE.iter().find(|(list, _)| *list == name).map(|(_, page)| format!("See {page}"));
    let known = described.get(&inner["properties"].to_string()).map(|first| format!("Fields as in {first}"));
    let reference = elsewhere.or(known).filter(|_| inner["properties"].is_object());
    if let Some(reference) = &reference {
        description = format!("{description} {reference}.");
    }
    rows.fields.push([code(path), type_of(schema), default, bounds(schema), description]);
    rules(path, schema, rows);
    if reference.is_some() {
        return;
    }
    if inner["properties"].as_object().is_some_and(|properties| properties.len() > 1) {
        described.insert(inner["properties"].to_string(), format!("`{inner_path}` of {kind}"));
    }
    if inner_path != path {
        rules(&inner_path, inner, rows);
    }
    children(kind, &inner_path, inner, rows, described);
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match schema["type"].as_str().unwrap_or("any") {
        "array" => format!("[]{}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

/// What the API server checks of the value.
fn bounds(schema: &Value) -> String {
    // The types of Kubernetes hold some bounds as floating-point numbers.
    let number = |name: &str| schema.get(name).and_then(Value::as_f64).map(|number| number.to_string());
    let range = |least: &str, most: &str, unit: &str| match (number(least), number(most)) {
        (Some(least), Some(most)) if least == most => Some(format!("{least}{unit}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    let choices = schema["enum"].as_array().map(|all| {
        let all: Vec<_> = all.iter().filter_map(Value::as_str).map(code).collect();
        all.join(", ")
    });
    let all = [
        choices,
        range("minimum", "maximum", ""),
        range("minLength", "maxLength", " characters"),
        range("minItems", "maxItems", " items"),
        range("minProperties", "maxProperties", " entries"),
        schema["pattern"].as_str().map(code),
        schema["items"]
            .is_object()
            .then(|| bounds(&schema["items"]))
            .filter(|of_item| !of_item.is_empty())
            .map(|of_item| format!("each: {of_item}")),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Adds the rules of a value that its schema states as expressions.
fn rules(path: &str, schema: &Value, rows: &mut Rows) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().or(rule["rule"].as_str()).unwrap_or_default();
        rows.rules.push([code(path), message.to_owned()]);
    }
}
