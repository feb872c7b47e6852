//! The alert rules of the charts, made faster. A pure function of the files that users install.

use std::{fmt::Write as _, path::Path};

use anyhow::{Context, Result};
use mczk_api::yaml;
use serde_json::{Value, json};

/// The rule files, in the source.
pub const FILES: [&str; 2] = ["charts/mczk/alerts/rules.yaml", "charts/mczk-agent/alerts/rules.yaml"];
/// Alerts wait shorter by this factor: a minute becomes a second.
const WAITS: u64 = 60;
/// Ranges are shorter by this factor. Failed reconciles repeat after up to a minute, which no factor shortens.
const RANGES: u64 = 15;

/// Reads a rule file of the source.
///
/// # Errors
/// If it cannot be read, or is no YAML.
pub fn read(file: &str) -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    yaml::read(&text)?.into_iter().next().with_context(|| format!("{file} is empty"))
}

/// The names of the alerts in a rule file.
#[must_use]
pub fn names(file: &Value) -> Vec<String> {
    let groups = file.pointer("/groups").and_then(Value::as_array).into_iter().flatten();
    let rules = groups.flat_map(|group| group.pointer("/rules").and_then(Value::as_array).into_iter().flatten());
    rules.filter_map(|rule| rule.get("alert")?.as_str().map(str::to_owned)).collect()
}

/// The rules with every `for` and every range of a query shortened. Thresholds stay as they are.
#[must_use]
pub fn faster(mut file: Value) -> Value {
    let groups = file.pointer_mut("/groups").and_then(Value::as_array_mut).into_iter().flatten();
    for group in groups {
        let rules = group.pointer_mut("/rules").and_then(Value::as_array_mut).into_iter().flatten();
        for rule in rules.filter_map(Value::as_object_mut) {
            if let Some(wait) = rule.get("for").and_then(Value::as_str).and_then(seconds) {
                rule.insert("for".to_owned(), json!(format!("{}s", (wait / WAITS).max(1))));
            }
            if let Some(query) = rule.get("expr").and_then(Value::as_str).map(shorter) {
                rule.insert("expr".to_owned(), json!(query));
            }
        }
    }
    file
}

/// A query with shorter ranges.
fn shorter(query: &str) -> String {
    let mut parts = query.split('[');
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let range = part.split_once(']').and_then(|(range, rest)| Some((seconds(range)?, rest)));
        // Writing to a String cannot fail.
        let _ = match range {
            Some((range, rest)) => write!(short, "[{}s]{rest}", (range / RANGES).max(1)),
            None => write!(short, "[{part}"),
        };
    }
    short
}

/// The seconds of a duration with one unit, such as `15m`.
fn seconds(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let of_unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86400,
        _ => return None,
    };
    Some(number * of_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_ranges_shrink_and_nothing_else_changes() {
        let file = |wait: &str, query: &str| {
            let rule = json!({ "alert": "A", "expr": query, "for": wait });
            json!({ "groups": [{ "name": "g", "rules": [rule] }] })
        };
        for (before, after) in [
            (("15m", "sum(increase(a{b!~\"c|d\"}[15m])) > 5"), ("15s", "sum(increase(a{b!~\"c|d\"}[60s])) > 5")),
            (("1h", "min(a) - time() < 60 * 86400"), ("60s", "min(a) - time() < 60 * 86400")),
            (("10s", "rate(a[1s]) + b[c]"), ("1s", "rate(a[1s]) + b[c]")),
        ] {
            assert_eq!(faster(file(before.0, before.1)), file(after.0, after.1));
        }
    }

    /// A rule without `for` would fire at each restart of a program.
    #[test]
    fn every_alert_of_the_charts_becomes_faster() -> Result<()> {
        for name in FILES {
            let before = read(name)?;
            let after = faster(before.clone());
            assert_eq!(names(&before), names(&after));
            let waits = |file: &Value| file.to_string().matches("\"for\":").count();
            assert_eq!(waits(&before), names(&before).len(), "{name}");
            let after = after.to_string();
            let slow = ["\"for\":\"15m\"", "\"for\":\"1h\"", "[15m]"];
            assert!(!slow.iter().any(|old| after.contains(old)), "{name}");
        }
        Ok(())
    }
}
