//! The tables, in Markdown, and the bars.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::table::table;

use crate::operator::Requests;

/// What was measured beside one number of ensembles.
#[derive(Default)]
pub(crate) struct Measured {
    /// Number of ensembles.
    pub(crate) ensembles: usize,
    /// Time until the operator was ready.
    pub(crate) ready: Duration,
    /// Time until every ensemble was reconciled.
    pub(crate) resync: Duration,
    /// Requests until then.
    pub(crate) start: Requests,
    /// Requests a second at rest.
    pub(crate) rest: Option<f64>,
    /// Writes of the whole window at rest.
    pub(crate) rest_writes: Option<f64>,
    /// Requests after a label changed on a Cluster that no ensemble uses.
    pub(crate) unused_label: Option<f64>,
    /// The same of a Cluster that every fifth ensemble uses.
    pub(crate) label: Option<f64>,
    /// Requests after that Cluster was lost.
    pub(crate) flip: Option<f64>,
    /// Writes among them.
    pub(crate) flip_writes: Option<f64>,
    /// Requests after Karmada wrote the status of a template.
    pub(crate) status: Option<f64>,
    /// Requests for a new ensemble.
    pub(crate) new: Option<f64>,
    /// Resident memory at the end, in MiB.
    pub(crate) resident: f64,
    /// Most resident memory, in MiB.
    pub(crate) most: f64,
    /// Requests per minute for each fault, in the order of `stages::overload`.
    pub(crate) overload: Vec<f64>,
    /// Most resident memory while ten pages are open, in MiB.
    pub(crate) pages: Option<f64>,
}

impl Measured {
    fn overload(&self, fault: usize) -> Option<f64> {
        self.overload.get(fault).map(|requests| requests / as_number(self.ensembles))
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn as_number(number: usize) -> f64 {
    number as f64
}

type Value = fn(&Measured) -> Option<f64>;

/// A line of the table: its name, its value, its digits, and the bar of ten thousand ensembles.
const LINES: [(&str, Value, usize, Option<f64>); 17] = [
    ("ready after, s", |m| Some(m.ready.as_secs_f64()), 1, Some(30.0)),
    ("every ensemble reconciled after, s", |m| Some(m.resync.as_secs_f64()), 1, Some(60.0)),
    ("requests until then", |m| Some(m.start.all()), 0, None),
    ("VmHWM, MiB", |m| Some(m.most), 0, Some(200.0)),
    ("VmRSS at the end, MiB", |m| Some(m.resident), 0, Some(200.0)),
    ("at rest, requests/s", |m| m.rest, 1, Some(20.0)),
    ("at rest, writes in the window", |m| m.rest_writes, 0, Some(0.0)),
    ("label of an unused Cluster, requests", |m| m.unused_label, 0, Some(MOST_AFTER_IGNORED_CHANGE)),
    ("label of a used Cluster, requests", |m| m.label, 0, None),
    ("a used Cluster is lost, requests", |m| m.flip, 0, None),
    ("a used Cluster is lost, writes", |m| m.flip_writes, 0, None),
    ("status of a template, requests", |m| m.status, 0, Some(MOST_AFTER_IGNORED_CHANGE)),
    ("a new ensemble, requests", |m| m.new, 0, None),
    ("429 to all, requests per object and minute", |m| m.overload(0), 2, Some(MOST_UNDER_OVERLOAD)),
    ("500 to all, requests per object and minute", |m| m.overload(1), 2, Some(MOST_UNDER_OVERLOAD)),
    ("5 s latency, requests per object and minute", |m| m.overload(2), 2, Some(MOST_UNDER_OVERLOAD)),
    ("VmHWM with ten open pages, MiB", |m| m.pages, 0, Some(256.0)),
];

/// The bar of requests per object and minute while the API server is overloaded: a healthy reconcile makes as many.
const MOST_UNDER_OVERLOAD: f64 = 12.0;
/// The bar of requests after a change that the operator ignores. Reads at rest continue, and their number varies.
const MOST_AFTER_IGNORED_CHANGE: f64 = 50.0;
/// The number of ensembles at which the bars hold.
const BARS_AT: usize = 10_000;

/// All measurements.
#[derive(Default)]
pub(crate) struct Report(Vec<Measured>);

impl Report {
    /// Adds one.
    pub(crate) fn add(&mut self, measured: Measured) {
        self.0.push(measured);
    }

    /// One column for each number of ensembles.
    pub(crate) fn table(&self) -> String {
        let heads: Vec<String> = self.0.iter().map(|m| format!("{} ensembles", m.ensembles)).collect();
        let head: Vec<&str> = [""].into_iter().chain(heads.iter().map(String::as_str)).collect();
        let row = |(name, value, digits, _): &(&str, Value, usize, Option<f64>)| {
            let cells = self.0.iter().map(|m| value(m).map_or("-".to_owned(), |value| format!("{value:.digits$}")));
            [(*name).to_owned()].into_iter().chain(cells).collect()
        };
        table(1, &head, &LINES.iter().map(row).collect::<Vec<_>>())
    }

    /// The bars, and whether they hold.
    pub(crate) fn bars(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .checked()
            .map(|(name, value, bar)| {
                let holds = if value <= bar { "yes" } else { "no" };
                vec![name.to_owned(), format!("{bar:.0}"), format!("{value:.1}"), holds.to_owned()]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        table(1, &["bar at 10,000 ensembles", "at most", "measured", "holds"], &rows)
    }

    fn checked(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        let measured = self.0.iter().filter(|m| m.ensembles == BARS_AT);
        measured.flat_map(|m| LINES.iter().filter_map(|(name, value, _, bar)| Some((*name, value(m)?, (*bar)?))))
    }

    /// Checks the bars.
    ///
    /// # Errors
    /// If one does not hold.
    pub(crate) fn check(&self) -> Result<()> {
        let broken: Vec<&str> = self.checked().filter(|(_, value, bar)| value > bar).map(|(name, ..)| name).collect();
        ensure!(broken.is_empty(), "bars that do not hold: {}", broken.join("; "));
        Ok(())
    }
}
