//! Metrics of the controller.

use std::time::Duration;

use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Registry, Unit},
};

use super::ensemble_metrics::EnsembleMetrics;
use mczk_rules::rollout::measures::Measures;
use mczk_runtime::{reconcile, telemetry::register_build};

/// Bounds of the buckets of transition times, in seconds.
const TRANSITION_BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0];

/// Metrics of the controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciles and writes.
    pub shell: reconcile::Metrics,
    /// Gauges of each ensemble.
    pub ensembles: EnsembleMetrics,
    transition: Histogram,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        register_build(registry, "mczk");
        let metrics = Self {
            shell: reconcile::Metrics::new(registry, "mczk"),
            ensembles: EnsembleMetrics::default(),
            transition: Histogram::new(TRANSITION_BUCKETS),
        };
        // After all families: they are long, and their writer may wait for its client.
        registry.sub_registry_with_labels(std::iter::empty()).register_collector(Box::new(metrics.ensembles.clone()));
        registry.register_with_unit(
            "mczk_cluster_transition",
            "Time from the watch event of an agent's report until the API server has stored the OverridePolicy that begins the next cluster",
            Unit::Seconds,
            metrics.transition.clone(),
        );
        metrics
    }

    /// Shows these numbers of an ensemble until its next reconcile.
    pub fn show(&self, namespace: &str, name: &str, measures: Measures) {
        self.ensembles.set(&(namespace.to_owned(), name.to_owned()), measures);
    }

    /// Counts a write.
    pub fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.shell.wrote(kind, verb);
    }

    /// Records the time from a report to the change that follows.
    pub fn transition(&self, time: Duration) {
        self.transition.observe(time.as_secs_f64());
    }
}
