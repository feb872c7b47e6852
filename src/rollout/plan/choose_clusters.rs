//! The clusters that the operator selects for the ensemble.

use crate::{
    api::{API_VERSION, karmada::cluster::Cluster},
    contract::conditions::Reason,
    mutation::broken,
    rollout::{
        blocker::Blocker,
        desired::{ClusterSelection, MCS_API_VERSION},
        objects, placement,
        plan::recover_state::State,
    },
};

/// The clusters, or why there are none or no other ones.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) selection: Option<ClusterSelection>,
    /// True if a newer placement waits until the current record is done.
    pub(super) waits: bool,
    /// Why the placement cannot be used.
    pub(super) unscheduled: Option<Blocker>,
}

/// Selects the clusters once for each `spec.placement`, and keeps them. A selected cluster serves the operator's kinds (R).
///
/// A new incarnation selects again, without abandoned clusters.
pub(super) fn choose_clusters(state: &State<'_>, may_change: bool) -> serde_json::Result<Choice> {
    let declared = state.observed.object.spec.placement.as_ref();
    let hash = placement::placement_hash(declared)?;
    let current = state.selection.as_ref().filter(|_| !state.incarnation.is_next);
    let kept = Choice { selection: current.cloned(), ..Choice::default() };
    if current.is_some_and(|current| current.hash == hash) {
        return Ok(kept);
    }
    if current.is_some() && !may_change {
        return Ok(Choice { waits: true, ..kept });
    }
    let mut matching = placement::matching(declared, &state.observed.clusters);
    if state.incarnation.is_next {
        let abandoned = objects::abandoned(&state.observed.object);
        matching.retain(|name| !abandoned.contains(name.as_str()));
    }
    if matching.is_empty() {
        let message = "No cluster matches spec.placement; the operator leaves what runs as it is. Change spec.placement, or label or join a cluster";
        let unscheduled = Some(Blocker { reason: Reason::NoClusterMatches, message: message.to_owned() });
        return Ok(Choice { unscheduled, ..kept });
    }
    let lacking = clusters_without_kinds(state, &matching);
    if !lacking.is_empty() && !broken!(IgnoreEnablements) {
        let message = format!(
            "Waiting until these clusters serve ZooKeeper and ServiceExport: {}. Without the kinds Karmada's scheduler leaves a cluster out for good. Run mczk register for them, or exclude them by spec.placement.clusterAffinity.exclude",
            lacking.join(", ")
        );
        return Ok(Choice { unscheduled: Some(Blocker { reason: Reason::KindsNotServed, message }), ..kept });
    }
    let selection = ClusterSelection { hash, placement: placement::for_karmada(declared, &matching) };
    Ok(Choice { selection: Some(selection), ..Choice::default() })
}

/// New clusters that do not serve the operator's kinds.
fn clusters_without_kinds(state: &State<'_>, matching: &[String]) -> Vec<String> {
    let selected = state.selection.as_ref().map(ClusterSelection::clusters).unwrap_or_default();
    let has_kinds = |cluster: &Cluster| {
        cluster.serves(API_VERSION, "ZooKeeper") && cluster.serves(MCS_API_VERSION, "ServiceExport")
    };
    let serves = |name: &&String| state.observed.clusters.iter().any(|c| c.name() == name.as_str() && has_kinds(c));
    matching.iter().filter(|name| !selected.contains(name)).filter(|name| !serves(name)).cloned().collect()
}
