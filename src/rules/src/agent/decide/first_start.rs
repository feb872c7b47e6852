//! The first start of a voter in a bootstrap: the volume with which it may vote while it holds nothing.
//!
//! A server that voted and lost its volume looks like one that never started. Together with a server that never started it
//! would be a majority without the writes that it acknowledged. So the agent records the volume in its status before the server
//! starts, once for each server. The server gives its volume a new identity by that start. Thus the record never fits another
//! volume, and never one that returns as it was before that start.

use crate::agent::decide::local_server::LocalServer;
use mczk_api::{
    contract::control_api::ServerReport,
    mutation::broken,
    zookeeper::{Ensemble, EnsemblePhase, FirstStart, Role, ZooKeeperStatus},
};

/// The identity that the agent records for a volume if it has lost the record. No volume has it.
const UNKNOWN: &str = "unknown";

/// What is here of an ensemble.
#[derive(Clone, Copy, Debug)]
pub struct LocalServers<'a> {
    /// Karmada's name of the cluster.
    pub cluster: &'a str,
    /// The servers that have a pod.
    pub servers: &'a [LocalServer],
}

/// The record after `before`, with the servers that ask for their first start.
#[must_use]
pub fn record(before: &ZooKeeperStatus, list: &Ensemble, local: LocalServers<'_>) -> Vec<FirstStart> {
    if !list.phase.is_bootstrap() {
        return Vec::new();
    }
    let mut all = recorded(before, list);
    let own = list.servers.iter().filter(|server| server.cluster == local.cluster && server.role == Role::Voter);
    let without: Vec<i32> = own.map(|server| server.id).filter(|id| all.iter().all(|first| first.id != *id)).collect();
    if is_record_lost(before, list) {
        all.extend(without.into_iter().map(|id| FirstStart { id, volume: UNKNOWN.to_owned() }));
    } else if list.phase == EnsemblePhase::Bootstrapping {
        all.extend(without.into_iter().map(|id| FirstStart::unused(id, list)));
    }
    let servers = local.servers;
    let views = servers.iter().filter(|server| !server.terminating).filter_map(|server| server.view.as_ref());
    // A server of a bootstrap asks before its first start, whether a quorum has formed or not. So one without a record is new.
    for view in views.filter(|_| !list.phase.is_suspended()) {
        let (Some(id), Some(volume)) = (view.id, view.first_start.clone()) else { continue };
        match all.iter_mut().find(|first| first.id == id) {
            Some(first) if first.is_unused(list) || broken!(RecordAgain) => first.volume = volume,
            Some(_) => {}
            None => all.push(FirstStart { id, volume }),
        }
    }
    all
}

/// True if the record may have gone with an earlier object, with its namespace or with the whole cluster: no status of this one
/// knew the incarnation before. Until a quorum has formed, an object that is deleted would have stayed.
fn is_record_lost(before: &ZooKeeperStatus, list: &Ensemble) -> bool {
    !knows(before, list) && list.phase == EnsemblePhase::Formed && !broken!(ForgetRecreated)
}

/// True if the record must not go with the object: without it, a server that lost its volume would look like a new one. Once a
/// quorum has formed, an object that is created again counts that as possible.
#[must_use]
pub fn is_needed(list: &Ensemble) -> bool {
    matches!(list.phase, EnsemblePhase::Bootstrapping | EnsemblePhase::Suspended) && !broken!(ForgetFirstStarts)
}

/// What the agent answers to the servers that ask, from the status that the API server has stored.
#[must_use]
pub fn answers(before: &ZooKeeperStatus, list: &Ensemble, servers: &[LocalServer]) -> Vec<FirstStart> {
    let asks =
        |id: i32| servers.iter().filter_map(|s| s.view.as_ref()).any(|v| v.id == Some(id) && v.first_start.is_some());
    recorded(before, list).into_iter().filter(|first| asks(first.id) && !first.is_unused(list)).collect()
}

/// True if a server has begun, and asks again before it has joined a quorum: only other voters can tell whether it voted.
pub(super) fn waits_for_voters(before: &ZooKeeperStatus, list: &Ensemble, view: &ServerReport) -> bool {
    let begun = |wants: &String| {
        let is_another = |first: &FirstStart| first.volume != *wants && !first.is_unused(list);
        recorded(before, list).iter().any(|first| Some(first.id) == view.id && is_another(first))
    };
    list.phase == EnsemblePhase::Bootstrapping && view.first_start.as_ref().is_some_and(begun)
}

/// The record of this incarnation. A status that does not know it yet can have servers that have not begun.
fn recorded(before: &ZooKeeperStatus, list: &Ensemble) -> Vec<FirstStart> {
    let known = knows(before, list);
    before.first_starts.iter().filter(|first| known || first.is_unused(list)).cloned().collect()
}

/// True if the agent wrote the status about this incarnation.
pub(super) fn knows(before: &ZooKeeperStatus, list: &Ensemble) -> bool {
    before.ensemble.as_ref().is_some_and(|known| known.incarnation == list.incarnation)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::agent::decide::fixtures::report;
    use mczk_api::{
        contract::control_api::{Mode, ServerReport},
        mutation::Mutation,
        zookeeper::Server,
    };

    fn server(view: ServerReport) -> LocalServer {
        LocalServer {
            pod: "zk-0".into(),
            uid: "u".into(),
            role: Role::Voter,
            ordinal: 0,
            id: view.id,
            revision: "r1".into(),
            ready: false,
            runs: false,
            terminating: false,
            orphaned: false,
            overdue: false,
            drain: None,
            needs_mount: false,
            failure: None,
            view: Some(view),
            unready_for: Duration::ZERO,
        }
    }

    /// The record after a server asks to start with the volume `wants`, and if the agent answers.
    fn after(phase: EnsemblePhase, before: Option<&str>, wants: Option<&str>) -> (Option<String>, bool) {
        let list = Ensemble { incarnation: Some("abc".into()), phase, ..Ensemble::default() };
        let first_starts = before.map(|volume| FirstStart { id: 1, volume: volume.into() }).into_iter().collect();
        let status = ZooKeeperStatus { ensemble: Some(list.clone()), first_starts, ..ZooKeeperStatus::default() };
        let first_start = wants.map(str::to_owned);
        let view = ServerReport { first_start, ..report(1, Mode::Looking, false) };
        let servers = [server(view)];
        let answered = answers(&status, &list, &servers);
        assert!(answered.iter().all(|first| Some(first.volume.as_str()) == before), "the answer is what is stored");
        (record(&status, &list, local(&servers)).pop().map(|first| first.volume), !answered.is_empty())
    }

    fn local(servers: &[LocalServer]) -> LocalServers<'_> {
        LocalServers { cluster: "m1", servers }
    }

    fn voter(id: i32, cluster: &str) -> Server {
        Server { id, cluster: cluster.into(), ordinal: 0, host: String::new(), role: Role::Voter }
    }

    /// The object is new, or was created again, perhaps in a cluster that was built again, and a server asks.
    #[rstest]
    #[case::once_a_quorum_has_formed(EnsemblePhase::Formed, None, UNKNOWN)]
    #[case::before_a_quorum_the_object_stays(BOOTSTRAP, None, "m")]
    #[case::broken(EnsemblePhase::Formed, Some(Mutation::ForgetRecreated), "m")]
    fn a_record_that_went_with_an_object_is_unknown(
        #[case] phase: EnsemblePhase,
        #[case] mutation: Option<Mutation>,
        #[case] expected: &str,
    ) {
        let _active = mutation.map(Mutation::activate);
        let servers = vec![voter(1, "m1"), voter(2, "m2")];
        let list = Ensemble { incarnation: Some("abc".into()), phase, servers, ..Ensemble::default() };
        let asks = server(ServerReport { first_start: Some("m".into()), ..report(1, Mode::Looking, false) });
        let found = record(&ZooKeeperStatus::default(), &list, local(&[asks]));
        assert_eq!(found, [FirstStart { id: 1, volume: expected.into() }]);
    }

    /// A cluster that is not opened yet sees the first list, and is opened once a quorum has formed. Its servers may vote.
    #[test]
    fn a_server_that_has_not_begun_is_recorded_as_such() {
        let servers = vec![voter(1, "m1"), voter(2, "m2")];
        let first = Ensemble { incarnation: Some("abc".into()), phase: BOOTSTRAP, servers, ..Ensemble::default() };
        let first_starts = record(&ZooKeeperStatus::default(), &first, local(&[]));
        assert_eq!(first_starts, [FirstStart { id: 1, volume: "unused-abc".into() }]);
        let formed = Ensemble { phase: EnsemblePhase::Formed, ..first.clone() };
        let before = ZooKeeperStatus { first_starts, ..ZooKeeperStatus::default() };
        let asks = [server(ServerReport { first_start: Some("m".into()), ..report(1, Mode::Looking, false) })];
        assert_eq!(answers(&before, &formed, &asks), [], "it has no record yet");
        assert_eq!(record(&before, &formed, local(&asks)), [FirstStart { id: 1, volume: "m".into() }]);
        let later = Ensemble { incarnation: Some("def".into()), ..formed };
        assert_eq!(record(&before, &later, local(&asks)), [FirstStart { id: 1, volume: UNKNOWN.into() }]);
    }

    #[rstest]
    #[case::begun(BOOTSTRAP, "n", true)]
    #[case::its_first_start(BOOTSTRAP, "m", false)]
    #[case::not_begun(BOOTSTRAP, "unused-abc", false)]
    #[case::formed(EnsemblePhase::Formed, "n", false)]
    fn a_server_that_began_waits_for_other_voters(
        #[case] phase: EnsemblePhase,
        #[case] recorded: &str,
        #[case] expected: bool,
    ) {
        let list = Ensemble { incarnation: Some("abc".into()), phase, ..Ensemble::default() };
        let first_starts = vec![FirstStart { id: 1, volume: recorded.into() }];
        let status = ZooKeeperStatus { ensemble: Some(list.clone()), first_starts, ..ZooKeeperStatus::default() };
        let view = ServerReport { first_start: Some("m".into()), ..report(1, Mode::Looking, false) };
        assert_eq!(waits_for_voters(&status, &list, &view), expected);
    }

    const BOOTSTRAP: EnsemblePhase = EnsemblePhase::Bootstrapping;

    #[rstest]
    #[case::a_new_server(BOOTSTRAP, None, Some("n"), (Some("n"), false))]
    #[case::recorded(BOOTSTRAP, Some("n"), Some("n"), (Some("n"), true))]
    #[case::another_volume_or_an_old_copy(BOOTSTRAP, Some("n"), Some("m"), (Some("n"), true))]
    #[case::a_server_that_does_not_ask(BOOTSTRAP, Some("n"), None, (Some("n"), false))]
    #[case::formed(EnsemblePhase::Formed, Some("n"), Some("m"), (Some("n"), true))]
    #[case::formed_without_a_record(EnsemblePhase::Formed, None, Some("m"), (Some("m"), false))]
    #[case::suspended(EnsemblePhase::Suspended, None, Some("m"), (None, false))]
    #[case::after_the_bootstrap(EnsemblePhase::Running, Some("n"), None, (None, false))]
    fn a_server_begins_with_one_volume(
        #[case] phase: EnsemblePhase,
        #[case] before: Option<&str>,
        #[case] wants: Option<&str>,
        #[case] expected: (Option<&str>, bool),
    ) {
        let (volume, answered) = after(phase, before, wants);
        assert_eq!((volume.as_deref(), answered), expected);
    }

    #[test]
    fn a_record_of_another_incarnation_does_not_count() {
        let list = Ensemble { incarnation: Some("abc".into()), phase: BOOTSTRAP, ..Ensemble::default() };
        let former = Ensemble { incarnation: Some("def".into()), ..list.clone() };
        let first_starts = vec![FirstStart { id: 1, volume: "n".into() }];
        let status = ZooKeeperStatus { ensemble: Some(former), first_starts, ..ZooKeeperStatus::default() };
        assert_eq!(record(&status, &list, local(&[])), []);
    }

    #[test]
    fn the_broken_variant_begins_with_another_volume() {
        let _active = Mutation::RecordAgain.activate();
        assert_eq!(after(BOOTSTRAP, Some("n"), Some("m")).0.as_deref(), Some("m"));
    }
}
