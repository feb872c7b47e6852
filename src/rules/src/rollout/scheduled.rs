//! What the schedule gives each cluster.

/// The voters that the schedule gives one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scheduled {
    /// Name of the cluster in Karmada.
    pub(crate) cluster: String,
    /// Voters, above 0.
    pub(crate) replicas: i32,
}
