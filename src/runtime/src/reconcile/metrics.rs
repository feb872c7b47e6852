//! Metrics of reconciles and writes.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::telemetry::register_family;

/// Bounds of the buckets of a reconcile's time, in seconds. The longest one ends after 60 seconds.
const BUCKETS: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    kind: &'static str,
    verb: &'static str,
}

/// Metrics of reconciles and writes. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ResultLabel, Counter>,
    seconds: Histogram,
    writes: Family<WriteLabel, Counter>,
}

impl Metrics {
    /// Registers the metrics with this prefix of their names.
    #[must_use]
    pub fn new(registry: &mut Registry, prefix: &str) -> Self {
        let metrics =
            Self { reconciles: Family::default(), seconds: Histogram::new(BUCKETS), writes: Family::default() };
        register_family(
            registry,
            format!("{prefix}_reconciles"),
            "Reconciles, by result: `ok`, or the kind of failure",
            metrics.reconciles.clone(),
        );
        registry.register_with_unit(
            format!("{prefix}_reconcile_duration"),
            "Time of a reconcile",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        register_family(
            registry,
            format!("{prefix}_writes"),
            "Objects written to the API server, by kind and verb",
            metrics.writes.clone(),
        );
        metrics
    }

    /// Counts a write.
    pub fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { kind, verb }).inc();
    }

    /// Counts a reconcile.
    pub fn reconciled(&self, result: &'static str, time: Duration) {
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
        self.seconds.observe(time.as_secs_f64());
    }
}
