//! What the agent counts.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::{agent::control_client, runtime::telemetry::register_family};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    kind: &'static str,
    verb: &'static str,
}

/// Counters of the agent.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ResultLabel, Counter>,
    writes: Family<WriteLabel, Counter>,
    steps: Family<WriteLabel, Counter>,
}

impl Metrics {
    /// Registers every counter of the agent.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self { reconciles: Family::default(), writes: Family::default(), steps: Family::default() };
        register_family(
            registry,
            "mczk_agent_reconciles",
            "Reconciles, by result: `ok`, or the kind of failure",
            metrics.reconciles.clone(),
        );
        register_family(
            registry,
            "mczk_agent_writes",
            "Objects written to the API server, by kind and verb",
            metrics.writes.clone(),
        );
        register_family(registry, "mczk_agent_steps", "Requests to servers, by kind and result", metrics.steps.clone());
        metrics
    }

    pub(super) fn reconciled(&self, result: &'static str) {
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { kind, verb }).inc();
    }

    pub(super) fn requested<T>(&self, kind: &'static str, result: &Result<T, control_client::Error>) {
        let verb = if result.is_ok() { "done" } else { "failed" };
        self.steps.get_or_create(&WriteLabel { kind, verb }).inc();
    }
}
