//! The kinds without which Karmada's scheduler leaves a cluster out.

use mczk_api::{API_VERSION, karmada::cluster::Cluster};

/// Group and version of Karmada's ServiceExport and ServiceImport.
pub const MCS_API_VERSION: &str = "multicluster.x-k8s.io/v1alpha1";

/// What brings the kinds to a cluster.
pub(super) const BRING_KINDS: &str = "`mczk install` of this version again, or `mczk register --only crds,propagation`";

/// True if a cluster serves the operator's kinds: without one of them Karmada's scheduler leaves it out.
pub(super) fn serves_kinds(cluster: &Cluster) -> bool {
    cluster.serves(API_VERSION, "ZooKeeper") && cluster.serves(MCS_API_VERSION, "ServiceExport")
}
