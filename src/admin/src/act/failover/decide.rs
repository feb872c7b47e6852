//! What `mczk failover` writes, and what the operator then does.

use k8s_openapi::jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    homes::VoterHomes,
    preview::{FailoverPreview, preview, problem},
    spare,
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{labels::FAILOVER, requested_places::RequestedPlaces},
};
use mczk_rules::rollout::plan::Observed;

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The voters leave this cluster.
    From { cluster: String, to: Option<String> },
    /// The voters of this cluster are at home.
    Back(String),
    /// Nothing is requested for this cluster any more.
    Release(String),
}

/// A request, as a change of the MultiClusterZooKeeper.
#[derive(Clone, Debug)]
pub(super) struct MoveDecision {
    /// The cluster that the voters belong to.
    pub(super) home: String,
    /// Where they shall be. `None` if nothing is requested any more.
    pub(super) place: Option<String>,
    /// Value of the annotation, before and after.
    pub(super) values: (Option<String>, Option<String>),
    /// Where voters are now.
    pub(super) homes: VoterHomes,
    /// What the operator then does, or why that is unknown.
    pub(super) preview: Result<FailoverPreview, String>,
}

impl MoveDecision {
    /// Merge patch of the MultiClusterZooKeeper.
    pub(super) fn patch(&self) -> Value {
        json!({ "metadata": { "annotations": { FAILOVER: self.values.1 } } })
    }

    /// True if the annotation changes.
    pub(super) fn changes(&self) -> bool {
        self.values.0 != self.values.1
    }

    /// The place of a home once the operator has seen the request.
    pub(super) fn place_of(&self, home: &str) -> String {
        match (&self.preview, &self.place) {
            (Ok(preview), _) => preview.moved.get(home).map_or(home, String::as_str).to_owned(),
            (Err(_), Some(place)) if home == self.home => place.clone(),
            (Err(_), _) => self.homes.voters(home).place,
        }
    }

    /// True if the operator would not carry the request out at once.
    pub(super) fn waits(&self) -> bool {
        self.place.as_ref().is_some_and(|place| self.place_of(&self.home) != *place)
    }
}

/// The request. `seen` is what the operator observes, or why it cannot be read.
///
/// # Errors
/// If the request is refused: why, and what to do.
pub(super) fn decide(
    object: &DynamicObject,
    seen: Result<&Observed, String>,
    wish: &Wish,
    now: Timestamp,
) -> Result<MoveDecision, String> {
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value::<MultiClusterZooKeeper>);
    let parsed = parsed.map_err(|error| format!("this version of mczk cannot parse the object: {error}"))?;
    if object.metadata.deletion_timestamp.is_some() {
        return Err("the object is being deleted: its servers stop for good".to_owned());
    }
    let before = object.annotations().get(FAILOVER).cloned();
    let requested = RequestedPlaces::read(object.annotations()).map_err(|part| {
        format!(
            "the annotation {FAILOVER} has {part:?}, which is no pair CLUSTER=PLACE. Correct it, or remove it: kubectl annotate \
             mczk {} {FAILOVER}-",
            object.name_any()
        )
    })?;
    let homes = VoterHomes::of(&parsed, &requested);
    let (home, place) = match wish {
        Wish::From { cluster, to } => {
            let home = homes.meant_by(cluster)?.to_owned();
            let problem = |spare: &str| seen.as_ref().ok().and_then(|seen| problem(seen, spare, now));
            let choose = || spare::choose(&homes, &requested, (&home, cluster), problem);
            let place = to.clone().map_or_else(choose, Ok)?;
            (home, Some(place))
        }
        Wish::Back(cluster) => {
            let home = homes.meant_by(cluster)?.to_owned();
            (home.clone(), Some(home))
        }
        Wish::Release(cluster) if requested.names(cluster) => (cluster.clone(), None),
        Wish::Release(cluster) => (homes.meant_by(cluster)?.to_owned(), None),
    };
    let after = match &place {
        Some(place) => requested.with(&home, place),
        None => requested.without(&home),
    };
    // A value that says the same stays as it is written.
    let after = if after == requested { before.clone() } else { after.value() };
    let preview = seen.map(|seen| preview(seen, after.as_deref(), now));
    let decision = MoveDecision { home, place, values: (before, after), homes, preview };
    refusal(&decision).map_or(Ok(decision), Err)
}

/// Why a request is not written: the operator's own sentence, or what the object itself tells. Pairs may always be removed.
fn refusal(decision: &MoveDecision) -> Option<String> {
    let (home, place) = (&decision.home, decision.place.as_ref()?);
    if let Ok(preview) = &decision.preview {
        return preview.refused.clone();
    }
    let homes = &decision.homes;
    let is_in_use = homes.voters(home).place == *place;
    if place == home || is_in_use || homes.spares().contains(place) {
        return None;
    }
    let declared = if homes.spares().is_empty() { "none".to_owned() } else { homes.spares().join(", ") };
    Some(format!("{place} is no spare. failover.spares has {declared}. Add {place} there, or name another place"))
}

#[cfg(test)]
pub(super) mod tests;
