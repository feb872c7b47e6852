//! Clusters whose clients get no Service, although the user names them.

use crate::rollout::{
    known::Known,
    services::{MCS_API_VERSION, SERVE_BOTH, serves_newer_alone},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    karmada::cluster::Cluster,
};

/// The clusters of `network.importClusters` that Karmada cannot bring the import to, and why. What Karmada does not know of a
/// cluster is no reason.
pub(super) fn not_imported(known: &Known<'_>) -> Option<Cause> {
    let network = known.object.spec.network.as_ref()?;
    let reasons: Vec<String> = network
        .import_clusters
        .iter()
        .filter_map(|name| {
            let cluster = known.clusters.iter().find(|cluster| cluster.name() == name);
            Some(format!("{name} ({})", why_not(cluster)?))
        })
        .collect();
    (!reasons.is_empty()).then(|| Cause {
        reason: Reason::NotImported,
        message: format!(
            "These clusters of network.importClusters have no Service derived-{}, or keep an old one: {}",
            known.name,
            reasons.join(", ")
        ),
    })
}

/// Why a cluster gets no import.
fn why_not(cluster: Option<&Cluster>) -> Option<String> {
    const KIND: &str = "ServiceImport";
    let Some(cluster) = cluster else { return Some("Karmada has no cluster of this name".to_owned()) };
    if !cluster.ready() {
        return Some("not Ready in Karmada".to_owned());
    }
    if serves_newer_alone(cluster, KIND) {
        return Some(SERVE_BOTH.to_owned());
    }
    let is_known = !cluster.status.api_enablements.is_empty();
    (is_known && !cluster.serves(MCS_API_VERSION, KIND)).then(|| format!("it does not serve {KIND}"))
}
