//! Every query of alerts and dashboard, asked of a real Prometheus that scrapes the metrics of all programs.
//!
//! `make test-alerts` builds Prometheus, and names it in `MCZK_PROMETHEUS`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "queries/exporter.rs"]
mod exporter;
mod patience;
#[path = "queries/prometheus.rs"]
mod prometheus;
#[allow(dead_code)] // Other tests use more of it.
#[path = "../src/rules/tests/rules/world.rs"]
mod world;

use std::{collections::BTreeSet, fs, path::Path};

use mczk_api::yaml;
use serde_json::Value;

use crate::{exporter::Exporter, patience::until, prometheus::Prometheus};

const RULES: [&str; 2] = ["charts/mczk/alerts/rules.yaml", "charts/mczk-agent/alerts/rules.yaml"];
const DASHBOARD: &str = "charts/mczk/dashboards/mczk.json";

/// Metrics of other programs that a query may use.
const FOREIGN: [&str; 0] = [];

/// Metrics with samples before any event, or of the ensembles: their labels are those of the programs.
const SAMPLED: usize = 15;

fn path(of: &str) -> String {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(of).to_str().unwrap().to_owned()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// The queries of the dashboard, with values for its variables.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path(DASHBOARD)).unwrap()).unwrap();
    let panels = list(&dashboard, "panels").flat_map(|panel| list(panel, "targets")).map(|target| &target["expr"]);
    let variables = list(&dashboard["templating"], "list").map(|variable| &variable["definition"]);
    let all = panels.chain(variables).filter_map(Value::as_str).map(|query| {
        // Grafana asks for the values of a label by itself.
        let values = query.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(", "));
        let query = values.map_or(query, |(selector, _)| selector);
        query.replace("$namespace", ".*").replace("$ensemble", ".*").replace("$__rate_interval", "1m")
    });
    all.collect()
}

/// The queries of all alerts.
fn alerts() -> Vec<String> {
    let files = RULES.map(|of| yaml::read(&fs::read_to_string(path(of)).unwrap()).unwrap().remove(0));
    let rules = files.iter().flat_map(|file| list(file, "groups")).flat_map(|group| list(group, "rules"));
    rules.map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect()
}

/// Every selector in a parsed query.
fn selectors(node: &Value) -> Vec<&Value> {
    let is_selector = matches!(node["type"].as_str(), Some("vectorSelector" | "matrixSelector"));
    let own = is_selector.then_some(node);
    let nested: Vec<&Value> = match node {
        Value::Object(fields) => fields.values().flat_map(selectors).collect(),
        Value::Array(nodes) => nodes.iter().flat_map(selectors).collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(nested).collect()
}

/// The labels of every series with this name.
fn labels(prometheus: &Prometheus, metric: &str) -> BTreeSet<String> {
    let series = prometheus.get("series", &[("match[]", metric)]).unwrap();
    let labels = series.as_array().unwrap().iter().flat_map(|series| series.as_object().unwrap().keys().cloned());
    labels.collect()
}

/// A parsed query names only metrics that the programs serve, and only labels that their samples have.
fn check(query: &str, prometheus: &Prometheus, served: &BTreeSet<String>, sampled: &mut BTreeSet<String>) {
    let parsed = prometheus.get("parse_query", &[("query", query)]).unwrap_or_else(|error| panic!("{query}: {error}"));
    prometheus.get("query", &[("query", query)]).unwrap_or_else(|error| panic!("{query}: {error}"));
    let selectors = selectors(&parsed);
    assert!(!selectors.is_empty(), "{query} selects nothing");
    for selector in selectors {
        let metric = selector["name"].as_str().unwrap();
        let is_known = served.contains(metric) || FOREIGN.contains(&metric);
        assert!(is_known, "{query}: no program serves {metric}");
        let has = labels(prometheus, metric);
        if has.is_empty() {
            continue;
        }
        sampled.insert(metric.to_owned());
        for matcher in list(selector, "matchers") {
            let label = matcher["name"].as_str().unwrap();
            assert!(label == "__name__" || has.contains(label), "{query}: {metric} has no label {label}, only {has:?}");
        }
    }
}

#[test]
#[ignore = "needs Prometheus: make test-alerts"]
fn every_query_is_answered_by_prometheus() {
    let exporter = Exporter::start();
    let prometheus = Prometheus::start(&exporter, &RULES.map(path));
    until("all programs are scraped", true, || {
        let up = prometheus.get("query", &[("query", "sum(up) == 3")]);
        up.is_ok_and(|up| !up["result"].as_array().unwrap().is_empty())
    });
    let served = prometheus.served();
    let (dashboard, alerts) = (dashboard(), alerts());
    assert!(dashboard.len() > 25 && alerts.len() > 20, "{} {}", dashboard.len(), alerts.len());
    let mut sampled = BTreeSet::new();
    for query in dashboard.iter().chain(&alerts) {
        check(query, &prometheus, &served, &mut sampled);
    }
    assert!(sampled.len() >= SAMPLED, "{sampled:?}");
    // The test itself can fail.
    let wrong =
        std::panic::catch_unwind(|| check("mczk_no_such_metric > 0", &prometheus, &served, &mut BTreeSet::new()));
    assert!(wrong.is_err());
}

#[test]
#[ignore = "needs Prometheus: make test-alerts"]
fn prometheus_evaluates_every_alert_and_none_fires_for_a_healthy_ensemble() {
    let exporter = Exporter::start();
    let prometheus = Prometheus::start(&exporter, &RULES.map(path));
    let rules = || -> Vec<Value> {
        let groups = prometheus.get("rules", &[]).unwrap();
        list(&groups, "groups").flat_map(|group| list(group, "rules")).cloned().collect()
    };
    until("the ensemble is scraped", true, || !labels(&prometheus, "mczk_ensemble_condition").is_empty());
    let scraped = k8s_openapi::jiff::Timestamp::now();
    until("Prometheus evaluates each alert", true, || {
        let late = |rule: &Value| {
            rule["lastEvaluation"].as_str().unwrap().parse::<k8s_openapi::jiff::Timestamp>().unwrap() > scraped
        };
        rules().iter().all(late)
    });
    let all = rules();
    assert_eq!(all.len(), alerts().len());
    for rule in &all {
        assert_eq!(rule["health"], "ok", "{rule}");
        let of_ensemble = rule["query"].as_str().unwrap().contains("mczk_ensemble_");
        assert!(!of_ensemble || rule["state"] == "inactive", "{rule}");
    }
}
