//! The incarnation that an ensemble is in.

use std::collections::BTreeSet;

use crate::rollout::report::ClusterReport;
use mczk_api::contract::naming::incarnation;

/// Incarnations of one object that are considered. No object is bootstrapped so often.
const MOST_INCARNATIONS: u32 = 1000;

/// The incarnation that an ensemble is in.
///
/// It is the recorded one, or else the last one that an agent reports, or else the first one. A later one that an agent reports
/// wins over a recorded one in which no quorum formed: an older copy of the control plane was restored. If a tombstone ended it
/// before a quorum formed in it, it is the next one. After a quorum has formed, such a tombstone is not from this operator.
#[must_use]
pub(crate) fn current<'a>(
    uid: &str,
    recorded: Option<&str>,
    formed: bool,
    tombstones: &BTreeSet<String>,
    reports: impl IntoIterator<Item = &'a ClusterReport>,
) -> String {
    let all = || (0..MOST_INCARNATIONS).map(|number| incarnation(uid, number));
    if let Some(recorded) = recorded.filter(|_| formed) {
        return recorded.to_owned();
    }
    let lists = reports.into_iter().filter_map(|report| report.status.as_ref()?.ensemble.as_ref());
    let reported: BTreeSet<&str> = lists.filter_map(|list| list.incarnation.as_deref()).collect();
    let is_known = |id: &String| recorded == Some(id.as_str()) || reported.contains(id.as_str());
    let known = if reported.is_empty() { None } else { all().rfind(is_known) };
    let id = known.or_else(|| recorded.map(str::to_owned)).unwrap_or_else(|| incarnation(uid, 0));
    if formed { id } else { without_tombstone(uid, id, tombstones) }
}

/// The incarnation that an ensemble is in if nothing records or reports one.
#[must_use]
pub(crate) fn first(uid: &str, tombstones: &BTreeSet<String>) -> String {
    without_tombstone(uid, incarnation(uid, 0), tombstones)
}

/// The incarnation, or the next one if a tombstone ended it.
fn without_tombstone(uid: &str, id: String, tombstones: &BTreeSet<String>) -> String {
    if !tombstones.contains(&id) {
        return id;
    }
    let all = || (0..MOST_INCARNATIONS).map(|number| incarnation(uid, number));
    let after = all().position(|incarnation| incarnation == id).map_or(0, |number| number + 1);
    all().skip(after).find(|incarnation| !tombstones.contains(incarnation)).unwrap_or(id)
}

/// True if an incarnation is one of an object.
#[must_use]
pub(crate) fn is_of(uid: &str, id: &str) -> bool {
    (0..MOST_INCARNATIONS).any(|number| incarnation(uid, number) == id)
}

/// An incarnation of an object that is not used, and will not begin.
#[must_use]
pub(crate) fn unused(uid: &str, is_used: impl Fn(&String) -> bool) -> Option<String> {
    (0..MOST_INCARNATIONS).rev().map(|number| incarnation(uid, number)).find(|id| !is_used(id))
}

/// The incarnations before and after one, whose objects the operator may have to create or remove.
#[must_use]
pub(crate) fn neighbours(uid: &str, id: &str) -> Vec<String> {
    let number = (0..MOST_INCARNATIONS).find(|number| incarnation(uid, *number) == id);
    let numbers = number.into_iter().flat_map(|number| number.checked_sub(1).into_iter().chain([number + 1]));
    numbers.map(|number| incarnation(uid, number)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "u1";

    #[test]
    fn a_tombstone_of_an_unformed_incarnation_leads_to_the_next_one() {
        let [first, second, third] = [0, 1, 2].map(|number| incarnation(UID, number));
        let decided = |recorded: Option<&str>, formed: bool, tombstones: &[&str], reported: Option<&str>| {
            let tombstones = tombstones.iter().map(|incarnation| (*incarnation).to_owned()).collect();
            let status = serde_json::from_value(json!({ "ensemble": { "incarnation": reported } })).unwrap();
            let report = ClusterReport { status, ..ClusterReport::default() };
            current(UID, recorded, formed, &tombstones, [&report])
        };
        let (first, second) = (first.as_str(), second.as_str());
        assert_eq!(decided(None, false, &[], None), first);
        assert_eq!(decided(None, false, &[first], None), second);
        assert_eq!(decided(None, false, &[first, second], None), third);
        assert_eq!(decided(Some(first), false, &[first], None), second);
        assert_eq!(decided(Some(second), false, &[first], None), second);
        assert_eq!(decided(Some(first), true, &[first], None), first, "a quorum has formed in it");
        assert_eq!(decided(Some("foreign"), false, &["foreign"], None), first);
        assert_eq!(decided(Some(first), false, &[], Some(second)), second, "an older copy was restored");
        assert_eq!(decided(Some(first), true, &[], Some(second)), first);
        assert_eq!(decided(Some(second), false, &[], Some(first)), second);
        assert_eq!(decided(Some("foreign"), false, &[], Some(first)), first, "it is no incarnation of this object");
        assert_eq!(decided(None, false, &[], Some(second)), second, "status, policy and tombstone are lost");
        assert_eq!(decided(None, false, &[], Some("foreign")), first);
        assert_eq!(neighbours(UID, second), [first.to_owned(), third]);
    }
}
