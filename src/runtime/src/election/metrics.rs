//! Metrics of an election.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// Metrics of one candidate.
#[derive(Clone, Debug)]
pub struct Metrics {
    holds: Gauge,
    term: Gauge,
    failures: Counter,
    lost_counts: Counter,
}

impl Metrics {
    /// Registers the metrics with this prefix of their names.
    #[must_use]
    pub fn new(registry: &mut Registry, prefix: &str) -> Self {
        let metrics = Self {
            holds: Gauge::default(),
            term: Gauge::default(),
            failures: Counter::default(),
            lost_counts: Counter::default(),
        };
        let mut gauge = |name, help: &str, gauge: &Gauge| {
            registry.register(format!("{prefix}_lease_{name}"), help, gauge.clone());
        };
        gauge("held", "1 if this process holds the lease and acts", &metrics.holds);
        gauge("term", "Number of this process's last term", &metrics.term);
        registry.register(
            format!("{prefix}_lease_failures"),
            "Attempts to read or write the lease that failed",
            metrics.failures.clone(),
        );
        registry.register(
            format!("{prefix}_lease_lost_counts"),
            "Takeovers of a lease whose number of terms another client had changed",
            metrics.lost_counts.clone(),
        );
        metrics
    }

    /// Shows the current term; none if this process may not act.
    pub fn show(&self, term: Option<i32>) {
        self.holds.set(term.is_some().into());
        if let Some(term) = term {
            self.term.set(term.into());
        }
    }

    /// Counts a failed request.
    pub fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn lost_count(&self) {
        self.lost_counts.inc();
    }
}
