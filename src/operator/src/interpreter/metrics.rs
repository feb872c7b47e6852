//! Counters of the webhook.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use mczk_rules::interpreter::wire::Operation;
use mczk_runtime::telemetry::register_family;

/// Counters of the webhook. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<QuestionLabels, Counter>,
    seconds: Family<OperationLabels, Histogram, fn() -> Histogram>,
    /// Requests that are being read or answered.
    pub in_flight: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerOutcome {
    /// Answered.
    Answered,
    /// Answered with a refusal.
    Refused,
    /// The body is not a question.
    Malformed,
    /// The body is too large.
    TooLarge,
    /// The body took too long.
    TooSlow,
    /// The Content-Type is not JSON.
    NotJson,
    /// The body arrived slowly, and a newer request took its place.
    Evicted,
    /// The requests that are answered take all memory for bodies.
    Full,
    /// Wrong path or method.
    Astray,
    /// A defect of mczk.
    Panicked,
}

impl AnswerOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::NotJson => "not_json",
            Self::Evicted => "evicted",
            Self::Full => "full",
            Self::Astray => "astray",
            Self::Panicked => "panicked",
        }
    }
}

/// Bounds of the buckets of request times, in seconds. An answer takes tens of microseconds; Karmada waits at most 30
/// seconds.
const BUCKETS: [f64; 12] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

impl Metrics {
    /// Registers the counters.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            in_flight: Gauge::default(),
        };
        register_family(
            registry,
            "mczk_webhook_requests",
            "Requests to the interpreter webhook, by operation and result",
            metrics.requests.clone(),
        );
        register_family(
            registry,
            "mczk_webhook_request_duration_seconds",
            "Time from the head of a request until its answer, by operation",
            metrics.seconds.clone(),
        );
        registry.register(
            "mczk_webhook_requests_in_flight",
            "Requests that the webhook is reading or answering",
            metrics.in_flight.clone(),
        );
        metrics
    }

    /// Counts a request, and its time if Karmada sends such a request. The operation is one that the webhook answers,
    /// or `None`: a label of foreign names would have no bound.
    pub fn ended(&self, operation: Option<Operation>, result: AnswerOutcome, duration: Duration) {
        let name = operation.map_or("none", Operation::name);
        self.requests.get_or_create(&QuestionLabels { operation: name, result: result.name() }).inc();
        if operation.is_some() {
            self.seconds.get_or_create(&OperationLabels { operation: name }).observe(duration.as_secs_f64());
        }
    }
}
