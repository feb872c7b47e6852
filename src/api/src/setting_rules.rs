//! The rules of the definitions about settings of `ZooKeeper`, from the table of all settings. Agent and `mczk server` check the
//! values of flags too.

use std::collections::BTreeMap;

use schemars::Schema;
use serde_json::{Value, json};

use crate::contract::settings::{
    BELONGS_IN_FLAGS, BELONGS_IN_ZOO_CFG, EQUAL, NO_FLAG, REFUSED_OPTIONS, SETTINGS, SettingField, SettingGroup,
    SettingUse, SettingValue, UNKNOWN,
};

/// Rules of the name of an entry of `zooCfg`.
pub(crate) fn of_names() -> Value {
    let mut rules: Vec<_> =
        refused().map(|group| rule(&is_any("self", "self", &names([group], "", "")), group.why)).collect();
    rules.push(rule(&is_any("self", "self", &names(allowed(SettingField::Flag), "", "")), BELONGS_IN_FLAGS));
    rules.push(rule(&format!("!{}", is_any("self", "self", &names(SETTINGS, "", ""))), UNKNOWN));
    Value::Array(rules)
}

/// Adds the rules of the value of each entry to the schema of `zooCfg`. Overrides have none: they would cost an API server too
/// much for so many clusters. Agents refuse such values too.
pub(crate) fn of_values(schema: &mut Schema) {
    let mut by_rule: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for group in allowed(SettingField::ZooCfg) {
        let Some(message) = group.value.must() else { continue };
        let is_value = match group.value {
            SettingValue::Number(least, most) => format!(
                "self.value.matches('^(0|[1-9][0-9]{{0,9}})$') && int(self.value) >= {least} && int(self.value) <= {most}"
            ),
            SettingValue::LimitOrNone(least) => format!(
                "self.value.matches('^(0|[1-9][0-9]{{0,9}})$') && (int(self.value) == 0 || int(self.value) >= {least} && int(self.value) <= {})",
                i32::MAX
            ),
            SettingValue::Share => {
                "self.value.matches('^([0-9]+|[0-9]*[.][0-9]+)$') && double(self.value) > 0.0 && double(self.value) <= 1.0".to_owned()
            }
            _ => r"self.value.matches('^\\s*(?i:true|false)\\s*$')".to_owned(),
        };
        by_rule.entry((is_value, message)).or_default().extend(names([group], "", ""));
    }
    let refused = |((is_value, message), names): ((String, String), Vec<String>)| {
        rule(&format!("{} && !({is_value})", is_any("self.name", "self.name", &names)), &message)
    };
    set_rules_of_items(schema, by_rule.into_iter().map(refused).collect());
}

/// Adds the rules of each flag to the schema of `jvmFlags`.
pub(crate) fn of_flags(schema: &mut Schema) {
    const NAME: &str = "self.split('=')[0]";
    const PREFIX: &str = "-Dzookeeper.";
    let options: Vec<_> = REFUSED_OPTIONS.split_whitespace().map(ToOwned::to_owned).collect();
    let mut rules = vec![rule(&format!("!self.startsWith('-') || {}", is_any(NAME, "self", &options)), NO_FLAG)];
    rules.extend(refused().map(|group| rule(&is_any(NAME, "self", &names([group], PREFIX, "-D")), group.why)));
    rules.push(rule(&is_any(NAME, "self", &names(allowed(SettingField::Flag), "", PREFIX)), BELONGS_IN_FLAGS));
    let mut misplaced = names(allowed(SettingField::ZooCfg), "-D", "");
    // Another program may have properties that begin so.
    misplaced.retain(|name| !name.ends_with('.'));
    misplaced.extend(names(allowed(SettingField::ZooCfg), PREFIX, ""));
    rules.push(rule(&is_any(NAME, "self", &misplaced), BELONGS_IN_ZOO_CFG));
    set_rules_of_items(schema, rules);
}

fn set_rules_of_items(schema: &mut Schema, rules: Vec<Value>) {
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        items.insert("x-kubernetes-validations".to_owned(), Value::Array(rules));
    }
}

/// Rules of `zooCfg` of one cluster.
pub(crate) fn of_one_cluster() -> Value {
    let equal = SETTINGS.iter().filter(|group| group.allowed == SettingUse::Ensemble);
    json!([rule(&format!("self.exists(e, {})", is_any("e.name", "e.name", &names(equal, "", ""))), EQUAL)])
}

/// Adds the rules of changes of settings to the schema of a template. They stand there, since `zooCfg` may be absent before a
/// change or after it.
pub(crate) fn of_changes(schema: &mut Schema) {
    let mut rules = Vec::new();
    for group in SETTINGS {
        for name in group.names() {
            let is = |object: &str, value: bool| {
                let other = if value { "" } else { "!" };
                format!(
                    r"(has({object}.zooCfg) && {object}.zooCfg.exists(e, e.name == '{name}' && {other}e.value.matches('^\\s*(?i:true)\\s*$')))"
                )
            };
            let refused = match group.value {
                SettingValue::Fixed(default) => format!("{} != {}", is("self", !default), is("oldSelf", !default)),
                SettingValue::OnceTrue => format!("{} && !{}", is("oldSelf", true), is("self", true)),
                _ => continue,
            };
            rules.push(rule(&refused, &format!("{name}: {}", group.why)));
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        let all = schema.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        all.as_array_mut().into_iter().for_each(|all| all.append(&mut rules));
    }
}

fn refused() -> impl Iterator<Item = &'static SettingGroup> {
    SETTINGS.iter().filter(|group| group.allowed == SettingUse::Refused)
}

fn allowed(field: SettingField) -> impl Iterator<Item = &'static SettingGroup> {
    SETTINGS.iter().filter(move |group| group.allowed != SettingUse::Refused && group.field == field)
}

/// The names of groups: those of `zooCfg` after one prefix, and properties of Java after another one.
fn names<'a>(groups: impl IntoIterator<Item = &'a SettingGroup>, prefix: &str, of_java: &str) -> Vec<String> {
    let with_prefix = |group: &SettingGroup| {
        let prefix = if group.field == SettingField::Flag { of_java } else { prefix };
        group.names().map(|name| format!("{prefix}{name}")).collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(with_prefix).collect()
}

/// An expression that is true if `value` is one of the names, or `text` begins with one that ends with a dot.
fn is_any(value: &str, text: &str, names: &[String]) -> String {
    let (prefixes, whole): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.ends_with('.'));
    let quoted: Vec<_> = whole.iter().map(|name| format!("'{name}'")).collect();
    let begins = prefixes.iter().map(|prefix| format!(" || {text}.startsWith('{prefix}')"));
    format!("({value} in [{}]{})", quoted.join(","), begins.collect::<String>())
}

/// A rule that refuses what the expression is true for.
fn rule(refused: &str, message: &str) -> Value {
    json!({ "rule": format!("!({refused})"), "message": message })
}
