//! Metrics of all programs.

use std::collections::BTreeMap;

use mczk_operator::{controller, interpreter};
use mczk_runtime::{api_requests, election, http_server, telemetry, tls};
use prometheus_client::registry::Registry;

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
Each program serves its metrics at `/metrics` of its probe address, in the OpenMetrics format.";

pub fn page() -> String {
    let mut page = head("Metrics", INTRODUCTION);
    page += &section("`mczk operator`", |registry| {
        let _ = controller::Metrics::new(registry);
        let _ = election::Metrics::new(registry, "mczk");
        let _ = api_requests::Metrics::new(registry, "mczk");
        let _ = interpreter::Metrics::new(registry);
        let _ = http_server::Metrics::new(registry);
        let _ = tls::Metrics::new(registry);
    });
    page += &section("`mczk agent`", |registry| {
        let _ = mczk_agent::Metrics::new(registry);
        let _ = election::Metrics::new(registry, "mczk_agent");
        let _ = api_requests::Metrics::new(registry, "mczk_agent");
    });
    page += &section("`mczk server`", |registry| drop(mczk_server::metrics::Metrics::new(registry)));
    page
}

fn section(title: &str, register: impl Fn(&mut Registry)) -> String {
    let mut registry = Registry::default();
    register(&mut registry);
    let exposition = telemetry::exposition(&registry).unwrap();
    let types: BTreeMap<&str, &str> = lines(&exposition, "# TYPE ").collect();
    let rows: Vec<_> = lines(&exposition, "# HELP ")
        .map(|(name, help)| {
            let type_ = types[name];
            // The format adds these suffixes to the samples.
            let sample = match type_ {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            };
            [code(&sample), type_.to_owned(), help.trim_end_matches('.').to_owned()]
        })
        .collect();
    assert!(!rows.is_empty(), "{title}");
    format!("\n## {title}\n{}", table(["name", "type", "value"], &rows))
}

/// Name and rest of every line that begins so.
fn lines<'a>(exposition: &'a str, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    exposition.lines().filter_map(move |line| line.strip_prefix(prefix)?.split_once(' '))
}
