//! The pairs of home and spare, as they are before a decision.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::{cluster_selection::ClusterSelection, known::Known};
use mczk_api::{mutation::broken, zookeeper::Role};

/// The pairs of the selection. If that is lost, or older than the server list, those that the list shows.
pub(super) fn current(known: &Known<'_>) -> BTreeMap<String, String> {
    if known.incarnation.is_next || broken!(ForgetMoved) {
        return BTreeMap::new();
    }
    match &known.selection {
        Some(selection) if !known.is_outdated && !known.is_restored() => selection.moved.clone(),
        selection => {
            let homes = selection.as_ref().map_or_else(|| known.matching.clone(), ClusterSelection::homes);
            listed(known, &homes, selection.as_ref().map(|selection| &selection.moved))
        }
    }
}

/// The pairs that the newest server list shows: a home without listed voters has them at the spare of its pair, else at the first
/// spare with voters that is the place of no home.
fn listed(known: &Known<'_>, homes: &[String], before: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let with_voters: BTreeSet<&str> = known
        .list_or_reported()
        .servers
        .iter()
        .filter(|server| server.role == Role::Voter)
        .map(|server| server.cluster.as_str())
        .collect();
    let in_status = known.status.clusters.iter();
    let in_status = in_status.filter_map(|cluster| Some((cluster.name.as_str(), cluster.moved_to.as_deref()?)));
    let before: BTreeMap<&str, &str> = match before {
        Some(before) => before.iter().map(|(home, spare)| (home.as_str(), spare.as_str())).collect(),
        None => in_status.collect(),
    };
    let is_home = |cluster: &str| homes.iter().any(|home| home == cluster);
    let away: Vec<&String> = homes.iter().filter(|home| !with_voters.contains(home.as_str())).collect();
    let holds = |spare: &&str| with_voters.contains(spare) && !is_home(spare);
    let mut pairs: BTreeMap<String, String> = BTreeMap::new();
    for home in &away {
        if let Some(spare) = before.get(home.as_str()).filter(|spare| holds(spare)) {
            pairs.insert((*home).clone(), (*spare).to_owned());
        }
    }
    for home in away {
        let mut free = known.spares().iter().filter(|spare| holds(&spare.as_str()));
        if !pairs.contains_key(home)
            && let Some(spare) = free.find(|spare| !pairs.values().any(|used| used == *spare)).cloned()
        {
            pairs.insert(home.clone(), spare);
        }
    }
    pairs
}
