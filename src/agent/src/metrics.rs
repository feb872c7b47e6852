//! Counters of the agent.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::control_client;
use mczk_runtime::{
    reconcile,
    telemetry::{register_build, register_family},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    kind: &'static str,
    result: &'static str,
}

/// Counters of the agent.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciles and writes.
    pub shell: reconcile::Metrics,
    steps: Family<StepLabel, Counter>,
}

impl Metrics {
    /// Registers every counter of the agent.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        register_build(registry, "mczk_agent");
        let metrics = Self { shell: reconcile::Metrics::new(registry, "mczk_agent"), steps: Family::default() };
        register_family(
            registry,
            "mczk_agent_steps",
            "Requests to servers, by kind and by result: `done` or `failed`",
            metrics.steps.clone(),
        );
        metrics
    }

    /// Counts a write.
    pub fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.shell.wrote(kind, verb);
    }

    /// Counts a request to a server.
    pub fn requested<T>(&self, kind: &'static str, result: &Result<T, control_client::Error>) {
        let result = if result.is_ok() { "done" } else { "failed" };
        self.steps.get_or_create(&StepLabel { kind, result }).inc();
    }
}
