//! The tables, in Markdown.

use anyhow::Result;
use e2e::table::table;

use crate::{
    cases::{Case, aggregate},
    servers::{Kind, Server},
};

/// What one measurement says about a server in a case.
pub(crate) struct Sample {
    /// Name of the case.
    pub(crate) case: String,
    /// The server.
    pub(crate) kind: Kind,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Processor time of the server for a request, in microseconds.
    pub(crate) cpu: f64,
    /// Latency that half of the requests do not exceed, in milliseconds.
    pub(crate) p50: f64,
    /// The same of 99 %.
    pub(crate) p99: f64,
    /// The same of 99.9 %.
    pub(crate) p999: f64,
    /// Resident memory of the server at the end, in MiB.
    pub(crate) resident: f64,
}

/// All measurements.
#[derive(Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a measurement.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Median over the rounds, or the higher one of two in the middle. Not a number if nothing was measured.
    fn median(&self, case: &str, kind: Kind, of: fn(&Sample) -> f64) -> f64 {
        let of_case = self.0.iter().filter(|sample| sample.case == case && sample.kind == kind);
        let mut values: Vec<f64> = of_case.map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The medians of every case and server.
    pub(crate) fn loads(&self, cases: &[Case]) -> String {
        let mut rows = Vec::new();
        for case in cases {
            for kind in Kind::ALL {
                let median = |of: fn(&Sample) -> f64| self.median(&case.name, kind, of);
                if median(|sample| sample.rate).is_nan() {
                    continue;
                }
                rows.push(vec![
                    case.name.clone(),
                    kind.name().to_owned(),
                    case.body(kind).len().to_string(),
                    number(median(|sample| sample.rate), 0),
                    number(median(|sample| sample.cpu), 1),
                    number(median(|sample| sample.p50), 2),
                    number(median(|sample| sample.p99), 2),
                    number(median(|sample| sample.p999), 2),
                    number(median(|sample| sample.resident), 1),
                ]);
            }
        }
        let head = ["case", "server", "bytes", "requests/s", "CPU µs", "p50 ms", "p99 ms", "p99.9 ms", "resident MiB"];
        table(2, &head, &rows)
    }

    /// mczk in proportion to the other servers.
    pub(crate) fn ratios(&self, cases: &[Case]) -> String {
        let row = |case: &Case| {
            let to = |other: Kind, of: fn(&Sample) -> f64| {
                self.median(&case.name, Kind::Mczk, of) / self.median(&case.name, other, of)
            };
            vec![
                case.name.clone(),
                number(to(Kind::Example, |sample| sample.rate), 2),
                number(to(Kind::Example, |sample| sample.cpu), 2),
                number(to(Kind::Null, |sample| sample.cpu), 2),
            ]
        };
        let rows: Vec<Vec<String>> = cases.iter().map(row).collect();
        table(1, &["mczk in proportion", "requests/s / example", "CPU / example", "CPU / null"], &rows)
    }

    /// How the processor time of `AggregateStatus` grows with the number of clusters.
    pub(crate) fn growth(&self) -> String {
        let row = |kind: Kind| {
            let cpu = |clusters| self.median(&aggregate(clusters), kind, |sample| sample.cpu);
            vec![kind.name().to_owned(), number(cpu(254) / cpu(20), 2)]
        };
        table(1, &["AggregateStatus", "CPU of 254 clusters / of 20"], &Kind::ALL.map(row))
    }
}

/// Memory of each server over the whole run.
///
/// # Errors
/// If a server has ended.
pub(crate) fn memory(servers: &[Server]) -> Result<String> {
    let mut rows = Vec::new();
    for server in servers {
        let (resident, most) = (server.memory("VmRSS:")?, server.memory("VmHWM:")?);
        let cells = [server.idle, resident, most].map(|mebibytes| number(mebibytes, 1));
        rows.push([vec![server.kind.name().to_owned()], cells.to_vec()].concat());
    }
    Ok(table(1, &["server", "MiB at the start", "VmRSS MiB at the end", "VmHWM MiB"], &rows))
}

/// A number that was not measured is a hyphen.
pub(crate) fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "-".to_owned() }
}
