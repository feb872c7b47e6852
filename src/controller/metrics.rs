//! Counters of the controller.

use std::time::Duration;

use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Registry, Unit},
};

use crate::runtime::reconcile;

/// Bounds of the buckets of transition times, in seconds.
const TRANSITION_BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0];

/// Counters of the controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciles and writes.
    pub(super) shell: reconcile::Metrics,
    transition: Histogram,
}

impl Metrics {
    /// Registers the counters.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics =
            Self { shell: reconcile::Metrics::new(registry, "mczk"), transition: Histogram::new(TRANSITION_BUCKETS) };
        registry.register_with_unit(
            "mczk_cluster_transition",
            "Time from the watch event of an agent's report until the API server has stored the OverridePolicy that begins the next cluster",
            Unit::Seconds,
            metrics.transition.clone(),
        );
        metrics
    }

    pub(super) fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.shell.wrote(kind, verb);
    }

    pub(super) fn transition(&self, time: Duration) {
        self.transition.observe(time.as_secs_f64());
    }
}
