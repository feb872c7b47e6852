//! A probe, as the agent observes it.

use mczk_api::preflight::{NetworkProblem, RoundTrip};

/// A probe in this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of its pod.
    pub name: String,
    /// Uid of its pod.
    pub uid: String,
    /// Its incarnation of the ensemble.
    pub incarnation: String,
    /// Hash of its pod as created.
    pub hash: Option<String>,
    /// True if its pod is being deleted, or has ended.
    pub ends: bool,
    /// Why its pod does not start, or does not answer.
    pub failure: Option<String>,
    /// Service mesh that has a proxy in its pod.
    pub mesh: Option<&'static str>,
    /// What it found, once it knows.
    pub problems: Option<Vec<NetworkProblem>>,
    /// The longest of the round trips that it measured.
    pub round_trip: Option<RoundTrip>,
}
