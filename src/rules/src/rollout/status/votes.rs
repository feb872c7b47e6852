//! Who has a vote, and who has lost it.

use super::inputs::StatusInputs;
use mczk_api::{multiclusterzookeeper::EnsembleStatus, zookeeper::Role};

/// Ids as text.
pub(super) fn ids(of: &[i32]) -> String {
    of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The voters that a quorum reported last.
pub(super) fn last_reported(inputs: &StatusInputs<'_>) -> Vec<i32> {
    let (list, quorum) = (&inputs.next.ensemble, &inputs.next.quorum);
    let old = inputs.old.ensemble.as_ref().filter(|old| Some(&old.incarnation) == list.incarnation.as_ref());
    match old {
        Some(old) if quorum.voters.is_empty() => old.voters.clone(),
        _ => quorum.voters.iter().copied().collect(),
    }
}

/// The listed voters that had a vote before and have none now. While no report shows who has one, those that were known last.
pub(super) fn demoted(inputs: &StatusInputs<'_>) -> Vec<i32> {
    let (list, quorum) = (&inputs.next.ensemble, &inputs.next.quorum);
    let is_same = |old: &&EnsembleStatus| Some(&old.incarnation) == list.incarnation.as_ref();
    let Some(old) = inputs.old.ensemble.as_ref().filter(is_same) else { return Vec::new() };
    let listed = list.servers.iter().filter(|server| server.role == Role::Voter).map(|server| server.id);
    if quorum.voters.is_empty() {
        return listed.filter(|id| old.demoted.contains(id)).collect();
    }
    let had_vote = |id: &i32| old.demoted.contains(id) || old.voters.contains(id);
    quorum.without_vote(&list.servers).filter(had_vote).collect()
}
