//! The annotation by which a user says where the voters of a cluster shall be.

use std::collections::BTreeMap;

use kube_core::ResourceExt;

use crate::rollout::known::Known;
use mczk_api::{
    contract::{labels::FAILOVER, requested_places::RequestedPlaces},
    mutation::broken,
};

/// The request that does nothing: the one that the object had when the operator's own objects were lost, or older than the server
/// list; empty if it had none. Whether it was carried out since, and taken back, is unknown. One that is made later counts.
pub(super) fn outdated(known: &Known<'_>) -> Option<String> {
    let value = known.object.annotations().get(FAILOVER);
    let before = known.selection.as_ref().and_then(|selection| selection.outdated_request.clone());
    let has_forgotten =
        known.is_outdated || known.is_restored() || known.selection.is_none() && known.incarnation.formed;
    if has_forgotten && !broken!(RepeatRequest) {
        return before.or_else(|| Some(value.cloned().unwrap_or_default()));
    }
    before.filter(|before| value == Some(before))
}

/// Why the request does nothing, if it is the outdated one.
pub(super) fn refusal(known: &Known<'_>, outdated: Option<&String>) -> Option<String> {
    let value = outdated.filter(|outdated| known.object.annotations().get(FAILOVER) == Some(outdated))?;
    Some(format!(
        "{} is older than the operator's own objects, which were lost or restored: {value}. It may have been carried out before, so \
         the voters of these clusters stay where they are. Remove it, and request again what is still wanted",
        annotation()
    ))
}

/// The place of each home that the annotation names.
///
/// # Errors
/// Why it is not followed, with the remedy.
pub(super) fn read(known: &Known<'_>, homes: &[String]) -> Result<BTreeMap<String, String>, String> {
    let (annotation, name) = (annotation(), &known.name);
    let requested = RequestedPlaces::read(known.object.annotations())
        .map_err(|part| format!("{annotation} has {part:?}: write CLUSTER=PLACE, separated by commas"))?;
    let mut places = BTreeMap::new();
    for (home, place) in requested.pairs() {
        if !homes.iter().any(|known| known == home) {
            return Err(format!(
                "{annotation} names {home}, which spec.placement does not select. Selected are {}. Remove it: mczk failover {name} \
                 --release {home}",
                homes.join(", ")
            ));
        }
        let declared = known.spares();
        let is_in_use = known.selection.as_ref().is_some_and(|selection| selection.place(home) == place);
        if place != home && !declared.iter().any(|spare| spare == place) && !is_in_use {
            let declared = if declared.is_empty() { "none".to_owned() } else { declared.join(", ") };
            return Err(format!(
                "{annotation} names {place}, which is no spare. failover.spares has {declared}. Add {place} there, or name another place"
            ));
        }
        if places.insert(home.to_owned(), place.to_owned()).is_some_and(|before| before != place) {
            return Err(format!("{annotation} names {home} twice, with two places: remove one"));
        }
    }
    Ok(places)
}

/// What the annotation asks for, for a message.
fn annotation() -> String {
    format!("the annotation {FAILOVER}")
}
