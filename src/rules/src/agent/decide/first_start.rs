//! The first start of a voter in a bootstrap: the volume with which it may vote while it holds nothing.
//!
//! A server that voted and lost its volume looks like one that never started. Together with a server that never started it
//! would be a majority without the writes that it acknowledged. So the agent records the volume in its status before the server
//! starts, once for each server. The server gives its volume a new identity by that start. Thus the record never fits another
//! volume, and never one that returns as it was before that start.

use crate::agent::decide::local_server::LocalServer;
use mczk_api::{
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
    /// True if there are StatefulSets or pods: servers may have begun.
    pub exist: bool,
}

/// The record after `before`, with the servers that ask for their first start.
#[must_use]
pub fn record(before: &ZooKeeperStatus, list: &Ensemble, local: LocalServers<'_>) -> Vec<FirstStart> {
    if !list.phase.is_bootstrap() {
        return Vec::new();
    }
    let mut all = if local.exist && is_record_lost(before, list) {
        unknown(list, local.cluster)
    } else {
        recorded(before, list).to_vec()
    };
    let servers = local.servers;
    let views = servers.iter().filter(|server| !server.terminating).filter_map(|server| server.view.as_ref());
    // A server of a bootstrap asks before its first start, whether a quorum has formed or not. So one without a record is new.
    for view in views.filter(|_| !list.phase.is_suspended()) {
        let (Some(id), Some(volume)) = (view.id, view.first_start.clone()) else { continue };
        match all.iter_mut().find(|first| first.id == id) {
            Some(first) if broken!(RecordAgain) => first.volume = volume,
            Some(_) => {}
            None => all.push(FirstStart { id, volume }),
        }
    }
    all
}

/// True if the record may have gone with an earlier object: no status of this one knew the incarnation before. Until a quorum has
/// formed, the earlier object would have stayed.
fn is_record_lost(before: &ZooKeeperStatus, list: &Ensemble) -> bool {
    !knows(before, list) && list.phase == EnsemblePhase::Formed && !broken!(ForgetRecreated)
}

/// The record of servers that may have begun with any volume.
fn unknown(list: &Ensemble, cluster: &str) -> Vec<FirstStart> {
    let own = list.servers.iter().filter(|server| server.cluster == cluster && server.role == Role::Voter);
    own.map(|server| FirstStart { id: server.id, volume: UNKNOWN.to_owned() }).collect()
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
    recorded(before, list).iter().filter(|first| asks(first.id)).cloned().collect()
}

fn recorded<'a>(before: &'a ZooKeeperStatus, list: &Ensemble) -> &'a [FirstStart] {
    if knows(before, list) { &before.first_starts } else { &[] }
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
        LocalServers { cluster: "m1", servers, exist: !servers.is_empty() }
    }

    /// The object is new, or was created again, and a server asks.
    #[rstest]
    #[case::a_new_server(EnsemblePhase::Formed, false, None, "m")]
    #[case::servers_that_ran_before(EnsemblePhase::Formed, true, None, UNKNOWN)]
    #[case::before_a_quorum_the_object_stays(BOOTSTRAP, true, None, "m")]
    #[case::broken(EnsemblePhase::Formed, true, Some(Mutation::ForgetRecreated), "m")]
    fn a_record_that_went_with_an_object_is_unknown(
        #[case] phase: EnsemblePhase,
        #[case] exist: bool,
        #[case] mutation: Option<Mutation>,
        #[case] expected: &str,
    ) {
        let _active = mutation.map(Mutation::activate);
        let server_of = |id, cluster: &str| Server {
            id,
            cluster: cluster.into(),
            ordinal: 0,
            host: String::new(),
            role: Role::Voter,
        };
        let servers = vec![server_of(1, "m1"), server_of(2, "m2")];
        let list = Ensemble { incarnation: Some("abc".into()), phase, servers, ..Ensemble::default() };
        let asks = server(ServerReport { first_start: Some("m".into()), ..report(1, Mode::Looking, false) });
        let local = LocalServers { cluster: "m1", servers: &[asks], exist };
        let found = record(&ZooKeeperStatus::default(), &list, local);
        assert_eq!(found, [FirstStart { id: 1, volume: expected.into() }]);
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
