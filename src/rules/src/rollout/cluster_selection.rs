//! The clusters that the operator selected, and how it divided the voters over them.

use std::collections::BTreeMap;

use kube_core::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::rollout::placement::{self, operator_divides};
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::{
        canonical_json::short_hash,
        labels::{FAILOVER, PLACEMENT_HASH, SELECTED_PLACEMENT},
    },
    karmada::policy::{OverridePolicy, PropagationPolicy},
    placement::Placement,
};

/// The placement that Karmada gets. The operator selects it once for each `spec.placement`, and keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClusterSelection {
    /// Hash of the `spec.placement` that it follows.
    pub(super) hash: String,
    /// The placement, with the clusters by name.
    pub(super) placement: Placement,
    /// True if the operator decided the voters of each cluster: they are the static weights of the placement.
    #[serde(default)]
    pub(super) divided: bool,
    /// How far the survey of these clusters is.
    #[serde(default, skip_serializing_if = "Survey::is_pending")]
    pub(super) survey: Survey,
    /// The spare in the place of each cluster whose voters are not at home.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) moved: BTreeMap<String, String>,
    /// A request of the annotation `mczk.io/failover` that is older than the operator's own objects, which were lost or restored: it
    /// does nothing.
    #[serde(default, rename = "outdatedRequest", skip_serializing_if = "Option::is_none")]
    pub(super) outdated_request: Option<String>,
}

/// Whether the agents of all selected clusters have reported which incarnations live there (S14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Survey {
    /// Not all have. Every selected cluster gets voters, and so the object, or the ensemble has a server list.
    #[default]
    Pending,
    /// Not all have. Every selected cluster gets the object without voters. No server starts before the operator has selected
    /// again.
    Open,
    /// All have.
    Done,
}

impl Survey {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_pending(&self) -> bool {
        *self == Self::Pending
    }
}

impl ClusterSelection {
    /// The selected clusters.
    #[must_use]
    pub(super) fn clusters(&self) -> &[String] {
        self.placement.cluster_affinity.as_ref().map(|a| a.cluster_names.as_slice()).unwrap_or_default()
    }

    /// The clusters that the voters belong to: the selected ones, without the spares.
    #[must_use]
    pub(super) fn homes(&self) -> Vec<String> {
        let home =
            |cluster: &String| self.moved.iter().find(|(_, spare)| *spare == cluster).map(|(home, _)| home.clone());
        self.clusters().iter().map(|cluster| home(cluster).unwrap_or_else(|| cluster.clone())).collect()
    }

    /// The cluster that is selected for the voters of a home.
    #[must_use]
    pub(super) fn place<'a>(&'a self, home: &'a str) -> &'a str {
        self.moved.get(home).map_or(home, String::as_str)
    }

    /// The voters of each cluster, if the operator decided them.
    #[must_use]
    pub(super) fn voters(&self) -> Option<BTreeMap<&str, i32>> {
        let scheduling = self.placement.replica_scheduling.as_ref().filter(|_| self.divided)?;
        let weights = scheduling.weight_preference.iter().flat_map(|preference| &preference.static_weight_list);
        Some(
            weights
                .filter_map(|weight| {
                    let cluster = weight.target_cluster.cluster_names.first()?;
                    Some((cluster.as_str(), i32::try_from(weight.weight).ok()?))
                })
                .collect(),
        )
    }

    /// True if Karmada may give no voter, and so no object, to a selected cluster.
    #[must_use]
    pub(super) fn may_leave_out(&self) -> bool {
        let voters = self.voters();
        let has_voters = |name: &String| voters.as_ref().is_some_and(|voters| voters.contains_key(name.as_str()));
        !placement::duplicated(Some(&self.placement)) && !self.clusters().iter().all(has_voters)
    }

    /// True if the selection is for this placement and number of voters, and divides as [`divides`] says.
    #[must_use]
    pub(super) fn is_for(&self, hash: &str, object: &MultiClusterZooKeeper, divides: bool) -> bool {
        self.hash == hash
            && self.divided == divides
            && self.voters().is_none_or(|voters| voters.values().sum::<i32>() == object.spec.replicas)
    }

    /// The selection that the OverridePolicy stores, or, if that is lost, the one in PropagationPolicy and template.
    #[must_use]
    pub(super) fn recover(
        overrides: Option<&OverridePolicy>,
        policy: Option<&PropagationPolicy>,
        template: Option<&ZooKeeper>,
        object: &MultiClusterZooKeeper,
    ) -> Option<Self> {
        let stored = overrides.and_then(|o| o.annotations().get(SELECTED_PLACEMENT));
        let stored = stored.and_then(|text| serde_json::from_str::<StoredSelection>(text).ok());
        // To Karmada an empty list means all clusters. The operator writes none.
        let is_valid = |selection: &Self| !selection.clusters().is_empty();
        stored.and_then(StoredSelection::intact).filter(is_valid).or_else(|| {
            let policy = policy?;
            let hash = policy.annotations().get(PLACEMENT_HASH)?.clone();
            let declared = object.spec.placement.as_ref();
            // The template of servers that may run is none of a survey, and they never go back to one. Without Secrets it may be
            // that of a selection whose clusters have not been asked.
            let has_begun = |template: &ZooKeeper| {
                !template.spec.dependencies.is_empty() || object.status.as_ref().is_some_and(|s| s.ensemble.is_some())
            };
            let survey = match template {
                Some(template) if template.spec.surveys() => Survey::Open,
                Some(template) if has_begun(template) => Survey::Done,
                _ => Survey::Pending,
            };
            // Another client may have edited the policy: only the clusters and the operator's weights count.
            let placement = policy.spec.placement.clone();
            let request = Some(object.annotations().get(FAILOVER).cloned().unwrap_or_default());
            let stored =
                Self { hash, placement, divided: true, survey, moved: BTreeMap::new(), outdated_request: request };
            let moved = stored.recovered_pairs(object);
            let divided = divides(declared, &moved);
            let voters = stored.voters().unwrap_or_default();
            let weight = |name: &String| (name.clone(), voters.get(name.as_str()).copied().unwrap_or(0));
            let clusters: Vec<(String, i32)> = stored.clusters().iter().map(weight).collect();
            let placement = placement::for_karmada(declared, &clusters, divided);
            Some(Self { placement, divided, moved, ..stored }).filter(is_valid)
        })
    }

    /// The pairs of the status whose spares the policy still names. For the others, each home that `placement` names and the policy
    /// does not, in order.
    fn recovered_pairs(&self, object: &MultiClusterZooKeeper) -> BTreeMap<String, String> {
        let selected = self.clusters();
        let in_status = object.status.iter().flat_map(|status| &status.clusters);
        let in_status = in_status.filter_map(|cluster| Some((cluster.name.clone(), cluster.moved_to.clone()?)));
        let mut pairs: BTreeMap<String, String> = in_status.filter(|(_, spare)| selected.contains(spare)).collect();
        let declared = object.spec.failover.iter().flat_map(|failover| &failover.spares);
        let unpaired: Vec<&String> =
            declared.filter(|spare| selected.contains(spare) && !pairs.values().any(|used| used == *spare)).collect();
        let affinity = object.spec.placement.iter().flat_map(|placement| &placement.cluster_affinity);
        let homes = affinity.flat_map(|affinity| &affinity.cluster_names);
        let away: Vec<String> =
            homes.filter(|home| !selected.contains(home) && !pairs.contains_key(*home)).cloned().collect();
        pairs.extend(away.into_iter().zip(unpaired.into_iter().cloned()));
        pairs
    }

    /// The text that the OverridePolicy stores.
    ///
    /// # Errors
    /// As [`short_hash`].
    pub(super) fn stored(&self) -> serde_json::Result<String> {
        serde_json::to_string(&StoredSelection { selection: self.clone(), checksum: Some(short_hash(self)?) })
    }
}

/// True if the operator decides the voters of each cluster: the user has not said how Karmada divides them, or a spare holds some,
/// so that the numbers of the other clusters stay.
pub(super) fn divides(declared: Option<&Placement>, moved: &BTreeMap<String, String>) -> bool {
    operator_divides(declared) || !moved.is_empty() && !placement::duplicated(declared)
}

/// A selection as the OverridePolicy stores it.
#[derive(Serialize, Deserialize)]
struct StoredSelection {
    #[serde(flatten)]
    selection: ClusterSelection,
    /// Hash of the selection. An operator of version 0.1.0 stored none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl StoredSelection {
    /// The selection, unless another client has changed it: voters would move.
    fn intact(self) -> Option<ClusterSelection> {
        let is_intact = |checksum| short_hash(&self.selection).is_ok_and(|hash| hash == checksum);
        self.checksum.is_none_or(is_intact).then_some(self.selection)
    }
}
