//! Alerts and dashboard: no query is dead, and each alert has its tests and its section of the documentation.
//! `make test-alerts` runs the alerts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use mczk_api::{
    contract::conditions::{ConditionType, Reason},
    yaml,
};
use serde_json::Value;

const RULES: [&str; 2] = ["charts/mczk/alerts/rules.yaml", "charts/mczk-agent/alerts/rules.yaml"];
const DASHBOARD: &str = "charts/mczk/dashboards/mczk.json";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// Every alert, by name.
fn alerts() -> BTreeMap<String, Value> {
    let files = RULES.map(|path| yaml::read(&read(path)).unwrap().remove(0));
    let rules = files.iter().flat_map(|file| list(file, "groups")).flat_map(|group| list(group, "rules")).cloned();
    rules.map(|rule| (rule["alert"].as_str().unwrap().to_owned(), rule)).collect()
}

/// Every query of alerts and dashboard.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let targets = list(&dashboard, "panels").flat_map(|panel| list(panel, "targets")).map(|target| &target["expr"]);
    let variables = list(&dashboard["templating"], "list").map(|variable| &variable["definition"]);
    let alerts = alerts();
    let queries = targets.chain(variables).chain(alerts.values().map(|rule| &rule["expr"]));
    let queries: Vec<_> = queries.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    assert!(queries.len() > alerts.len() + 20, "{}", queries.len());
    queries
}

/// The words of a query that begin so.
fn words<'a>(query: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(move |word| word.starts_with(prefix))
}

/// The names of samples: those of the reference, and the parts of its histograms.
fn samples() -> BTreeSet<String> {
    let page = read("docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
        Some((cells.nth(1)?.to_owned(), cells.next()?.to_owned())).filter(|(name, _)| name.starts_with("mczk_"))
    });
    let of_row = |(name, type_): (String, String)| match type_.as_str() {
        "histogram" => ["bucket", "count", "sum"].map(|part| format!("{name}_{part}")).to_vec(),
        _ => vec![name],
    };
    rows.flat_map(of_row).collect()
}

#[test]
fn every_metric_of_a_query_exists() {
    let samples = samples();
    assert!(samples.contains("mczk_reconciles_total"), "{samples:?}");
    for query in queries() {
        let mut metrics = words(&query, "mczk_").peekable();
        assert!(metrics.peek().is_some(), "{query} names no metric");
        let unknown: Vec<_> = metrics.filter(|metric| !samples.contains(*metric)).collect();
        assert!(unknown.is_empty(), "{query}: docs/reference/metrics.md has no {unknown:?}");
    }
}

/// The alternatives of every matcher of a label, as in `type=~"Blocked|Draining"`.
fn matched(query: &str, label: &str) -> Vec<String> {
    let after = query.split(label).skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches(['=', '!', '~']);
        Some(rest.strip_prefix('"')?.split_once('"')?.0.to_owned())
    });
    after.flat_map(|text| text.split('|').map(ToOwned::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn every_condition_and_reason_of_a_query_exists() {
    let mut found = 0;
    for query in queries() {
        for type_ in matched(&query, "type") {
            assert!(ConditionType::ALL.iter().any(|known| known.as_str() == type_), "{query}: no type {type_}");
            found += 1;
        }
        for reason in matched(&query, "reason") {
            assert!(reason.parse::<Reason>().is_ok(), "{query}: no reason {reason}");
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn every_alert_says_what_to_do() {
    let page = read("docs/how-to/alerts.md");
    let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let alerts = alerts();
    for (name, rule) in &alerts {
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(rule["for"].is_string(), "{name} waits");
        assert!(rule["annotations"]["summary"].as_str().unwrap().ends_with('.'), "{name}");
        let runbook = format!("docs/how-to/alerts.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], *runbook, "{name}");
        assert!(sections.contains(name.as_str()), "docs/how-to/alerts.md has no section {name}");
    }
    let unknown: Vec<_> = sections.iter().filter(|section| !alerts.contains_key(**section)).collect();
    assert!(unknown.is_empty(), "no alerts: {unknown:?}");
}

#[test]
fn every_alert_is_tested_to_fire_and_to_clear() {
    let file: Value = yaml::read(&read("tests/prometheus/alerts_test.yaml")).unwrap().remove(0);
    // Whether an alert fires at the moments of one test, in order.
    let mut moments: Vec<(String, Vec<bool>)> = Vec::new();
    for test in list(&file, "tests") {
        let checks: Vec<&Value> = list(test, "alert_rule_test").collect();
        let fires = checks.iter().map(|check| list(check, "exp_alerts").next().is_some()).collect();
        moments.push((checks[0]["alertname"].as_str().unwrap().to_owned(), fires));
    }
    for name in alerts().keys() {
        let shown =
            moments.iter().any(|(alert, fires)| alert == name && fires.windows(2).any(|two| two == [true, false]));
        assert!(shown, "no test in tests/prometheus/alerts_test.yaml shows {name} firing, then cleared");
    }
}
