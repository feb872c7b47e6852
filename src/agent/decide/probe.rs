//! A probe, as the agent observes it.

use crate::api::preflight::NetworkProblem;

/// A probe in this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of its pod.
    pub(crate) name: String,
    /// Uid of its pod.
    pub(crate) uid: String,
    /// Its incarnation of the ensemble.
    pub(crate) incarnation: String,
    /// Hash of its pod as created.
    pub(crate) hash: Option<String>,
    /// True if its pod is being deleted, or has ended.
    pub(crate) ends: bool,
    /// Why its pod does not start, or does not answer.
    pub(crate) failure: Option<String>,
    /// What it found, once it knows.
    pub(crate) problems: Option<Vec<NetworkProblem>>,
}
