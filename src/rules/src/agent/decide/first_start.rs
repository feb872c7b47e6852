//! The first start of a voter in a bootstrap: the volume with which it may vote while it holds nothing.
//!
//! A server that voted and lost its volume looks like one that never started. Together with a server that never started it
//! would be a majority without the writes that it acknowledged. So the agent records the volume in its status before the server
//! starts, once for each server. The server gives its volume a new identity by that start. Thus the record never fits another
//! volume, and never one that returns as it was before that start.

use crate::agent::decide::local_server::LocalServer;
use mczk_api::{
    mutation::broken,
    zookeeper::{Ensemble, FirstStart, ZooKeeperStatus},
};

/// The record after `before`, with the servers that ask for their first start.
#[must_use]
pub fn record(before: &ZooKeeperStatus, list: &Ensemble, servers: &[LocalServer]) -> Vec<FirstStart> {
    if !list.phase.is_bootstrap() {
        return Vec::new();
    }
    let mut all = recorded(before, list).to_vec();
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

/// What the agent answers to the servers that ask, from the status that the API server has stored.
#[must_use]
pub fn answers(before: &ZooKeeperStatus, list: &Ensemble, servers: &[LocalServer]) -> Vec<FirstStart> {
    let asks =
        |id: i32| servers.iter().filter_map(|s| s.view.as_ref()).any(|v| v.id == Some(id) && v.first_start.is_some());
    recorded(before, list).iter().filter(|first| asks(first.id)).cloned().collect()
}

fn recorded<'a>(before: &'a ZooKeeperStatus, list: &Ensemble) -> &'a [FirstStart] {
    let incarnation = before.ensemble.as_ref().and_then(|list| list.incarnation.as_ref());
    if incarnation == list.incarnation.as_ref() { &before.first_starts } else { &[] }
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
        zookeeper::{EnsemblePhase, Role},
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
        (record(&status, &list, &servers).pop().map(|first| first.volume), !answered.is_empty())
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
        assert_eq!(record(&status, &list, &[]), []);
    }

    #[test]
    fn the_broken_variant_begins_with_another_volume() {
        let _active = Mutation::RecordAgain.activate();
        assert_eq!(after(BOOTSTRAP, Some("n"), Some("m")).0.as_deref(), Some("m"));
    }
}
