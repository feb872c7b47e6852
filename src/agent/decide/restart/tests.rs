//! What must hold of whatever is decided, for whatever is seen; and that every broken rule is found.

use proptest::{prelude::*, test_runner::TestRunner};
use rstest::rstest;

use super::*;
use crate::{
    api::zookeeper::Role,
    contract::control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
    mutation::Mutation,
};

const HOLDER: &str = "m1";

fn view(id: i32, mode: Mode, serving: bool) -> ServerReport {
    ServerReport {
        id: Some(id),
        pod: format!("zk-{id}"),
        incarnation: "abc".into(),
        phase: Phase::Running,
        revision: "r".into(),
        mode: Some(mode),
        serving,
        synced: serving,
        settled: serving,
        zxid: None,
        synced_voters: None,
        configuration: None,
        accepted_epoch: 1,
        volume: "v".into(),
        lost: false,
        server_list: None,
        restart_lock: None,
        loaded: None,
    }
}

/// How a server is: revision, and what is seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serves,
    Leads,
    /// It serves, since just now.
    Returned,
    Silent,
    Looking,
    /// It serves, but the agent cannot ask it.
    Unasked,
    Absent,
    /// It was seen to serve until just now, and cannot be asked.
    Vanished,
    Going,
}

fn own(id: i32, current: bool, state: State) -> LocalServer {
    let view = match state {
        State::Serves | State::Going => Some(view(id, Mode::Follower, true)),
        State::Leads => Some(view(id, Mode::Leader, true)),
        State::Returned => Some(ServerReport { settled: false, ..view(id, Mode::Follower, true) }),
        State::Silent | State::Looking => Some(view(id, Mode::Looking, false)),
        State::Unasked | State::Absent | State::Vanished => None,
    };
    LocalServer {
        pod: format!("zk-{id}"),
        uid: format!("u{id}"),
        role: Role::Voter,
        ordinal: id,
        id: Some(id),
        // What is not as declared is so by its revision, or by its node.
        revision: if current || id % 2 == 0 { "new".into() } else { "old".into() },
        drain_from: (!current && id % 2 == 0).then(|| "n1".into()),
        ready: matches!(state, State::Serves | State::Leads | State::Returned | State::Unasked),
        terminating: state == State::Going,
        failure: None,
        view,
        unready_for: if matches!(state, State::Looking | State::Vanished) { Duration::from_secs(1) } else { SILENCE },
    }
}

#[derive(Clone, Debug)]
struct World {
    own: Vec<(bool, State)>,
    /// Whether another voter is to join.
    joins: bool,
    /// Voters of other clusters: whether each serves.
    others: Vec<bool>,
    turn: Option<(bool, i32)>,
}

impl World {
    fn decide(&self) -> (Vec<LocalServer>, Next) {
        let own: Vec<LocalServer> =
            (1..).zip(&self.own).map(|(id, (current, state))| own(id, *current, *state)).collect();
        let others: Vec<i32> = (101..).take(self.others.len()).collect();
        let ids: Vec<i32> = own.iter().filter_map(|o| o.id).chain(others.iter().copied()).collect();
        let following = own.iter().filter(|o| o.serving()).filter_map(|o| o.id);
        let settled =
            own.iter().filter(|o| o.view.as_ref().is_some_and(|v| v.serving && v.settled)).filter_map(|o| o.id);
        let serving = others.iter().zip(&self.others).filter(|(_, up)| **up).map(|(id, _)| *id);
        let quorum = Quorum {
            configuration: Configuration {
                version: 1,
                servers: ids
                    .iter()
                    .map(|id| ConfiguredServer { id: *id, host: String::new(), role: Role::Voter })
                    .collect(),
            },
            settled: settled.chain(serving.clone()).collect(),
            following: following.chain(serving).collect(),
            leader: own.iter().find(|o| o.leads()).and_then(|o| o.id).or(others.first().copied()),
        };
        let turn = self
            .turn
            .map(|(ours, server)| RestartLock { holder: if ours { HOLDER.into() } else { "m2".into() }, server });
        let sight = RestartInputs {
            revision: "new",
            own: &own,
            expected: own.len(),
            listed: ids.len() + usize::from(self.joins),
            quorum: Some(&quorum),
            formed: true,
            synced_voters: None,
            lock: turn.as_ref(),
            holder: HOLDER,
        };
        let next = next(sight);
        (own, next)
    }

    fn check(&self) -> Result<(), String> {
        let (own, next) = self.decide();
        let (pod, held) = match &next {
            Next::Take { pod, .. } => (pod, None),
            Next::TakeServing { pod, held, .. } => (pod, Some(*held)),
            _ => return Ok(()),
        };
        let server = own.iter().find(|o| o.pod == *pod).unwrap();
        let others = || own.iter().filter(|o| o.pod != *pod);
        let wrong = |why: &str| Err(format!("{why}: {next:?}"));
        if !server.outdated("new") || server.terminating {
            return wrong("takes one out that is as declared, or goes");
        }
        if others().any(|o| o.terminating) {
            return wrong("two at once");
        }
        if server.view.is_none() && server.unready_for < SILENCE && held.is_none() {
            return wrong("at once");
        }
        let at_work = server.view.as_ref().map_or(server.ready, |v| v.serving);
        if !at_work {
            return Ok(());
        }
        let Some(held) = held else { return wrong("without the turn") };
        if held != self.turn.is_some_and(|(ours, id)| ours && Some(id) == server.id) {
            return wrong("with the turn of another");
        }
        if others().any(|o| !o.serving()) || self.others.iter().any(|up| !up) {
            return wrong("while another one is down");
        }
        if self.joins && own.len() + self.others.len() <= 2 {
            return wrong("one of too few");
        }
        if server.leads() && !held && others().any(|o| o.outdated("new")) {
            return wrong("the leader is not the last");
        }
        if server.leads() && others().any(|o| o.view.as_ref().is_some_and(|v| !v.settled)) {
            return wrong("the leader goes while another one came back only just now");
        }
        Ok(())
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let state = prop_oneof![
        6 => Just(State::Serves), 1 => Just(State::Returned), 1 => Just(State::Silent), 1 => Just(State::Looking),
        1 => Just(State::Unasked), 1 => Just(State::Absent), 1 => Just(State::Vanished),
        1 => Just(State::Going),
    ];
    let own = proptest::collection::vec((any::<bool>(), state), 1..4);
    let others = proptest::collection::vec(prop_oneof![5 => Just(true), 1 => Just(false)], 1..4);
    let flags = (any::<bool>(), any::<bool>());
    (own, others, proptest::option::of((any::<bool>(), 1..4_i32)), flags, any::<prop::sample::Index>()).prop_map(
        |(mut own, others, turn, (leads, joins), index)| {
            let at = index.index(own.len());
            if leads && own[at].1 == State::Serves {
                own[at].1 = State::Leads;
            }
            World { own, joins, others, turn }
        },
    )
}

#[test]
fn nobody_is_taken_out_against_the_rules() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 6000, failure_persistence: None, ..Default::default() });
    let result = runner.run(&worlds(), |world| world.check().map_err(TestCaseError::fail));
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_broken_rule_is_found() {
    for mutation in Mutation::RESTART {
        let _active = mutation.activate();
        let config =
            ProptestConfig { cases: 6000, failure_persistence: None, max_shrink_iters: 0, ..Default::default() };
        let result = TestRunner::new(config).run(&worlds(), |world| world.check().map_err(TestCaseError::fail));
        assert!(result.is_err(), "{mutation:?} is not found");
    }
}

fn taken(own: &[(bool, State)], turn: Option<(bool, i32)>) -> Next {
    World { own: own.to_vec(), others: vec![true, true], turn, joins: false }.decide().1
}

fn serving(id: i32, held: bool) -> Next {
    Next::TakeServing { pod: format!("zk-{id}"), uid: format!("u{id}"), server: id, held }
}

#[rstest]
#[case::all_as_declared(&[(true, State::Serves), (true, State::Leads)], None, Next::Nothing)]
#[case::the_silent_one_first(&[(false, State::Serves), (false, State::Silent)], None, Next::Take { pod: "zk-2".into(), uid: "u2".into() })]
#[case::broken_image(&[(false, State::Absent), (false, State::Absent)], None, Next::Take { pod: "zk-1".into(), uid: "u1".into() })]
#[case::leader_last(&[(false, State::Leads), (false, State::Serves)], None, serving(2, false))]
#[case::at_last_the_leader(&[(false, State::Leads), (true, State::Serves)], None, serving(1, false))]
#[case::only_the_leader_waits(&[(false, State::Serves), (true, State::Returned)], None, serving(1, false))]
#[case::ours(&[(false, State::Serves), (true, State::Serves)], Some((true, 1)), serving(1, true))]
#[case::gone_for_good(&[(true, State::Serves)], Some((true, 9)), Next::Release(RestartLock { holder: HOLDER.into(), server: 9 }))]
#[case::done(&[(true, State::Serves), (false, State::Serves)], Some((true, 1)), Next::Release(RestartLock { holder: HOLDER.into(), server: 1 }))]
fn who_is_next(#[case] own: &[(bool, State)], #[case] turn: Option<(bool, i32)>, #[case] expected: Next) {
    assert_eq!(taken(own, turn), expected);
}

#[rstest]
#[case::of_another(&[(false, State::Serves)], Some((false, 9)))]
#[case::the_leader_and_one_that_came_back(&[(false, State::Leads), (true, State::Returned)], None)]
#[case::one_is_looking(&[(false, State::Serves), (false, State::Looking)], None)]
#[case::one_vanished(&[(false, State::Serves), (false, State::Vanished)], None)]
#[case::the_new_one_is_not_there(&[(true, State::Absent), (false, State::Serves)], None)]
#[case::the_new_one_does_not_serve(&[(true, State::Silent), (false, State::Serves)], None)]
#[case::ours_and_on_its_way(&[(true, State::Looking), (false, State::Serves)], Some((true, 1)))]
fn who_waits(#[case] own: &[(bool, State)], #[case] turn: Option<(bool, i32)>) {
    assert!(matches!(taken(own, turn), Next::Wait(_)), "{:?}", taken(own, turn));
}
