//! Invariants of every restart in random states. Every broken variant of the rule must violate one.

use proptest::{prelude::*, test_runner::TestRunner};
use rstest::rstest;
use std::collections::BTreeSet;

use super::*;
use crate::agent::decide::{
    drain::{Drain, Stay},
    fixtures::report,
    local_server::LocalServer,
    quorum::Quorum,
};
use mczk_api::{
    contract::control_api::{Configuration, ConfiguredServer, RestartLock, ServerReport},
    mutation::Mutation,
    zookeeper::Role,
};

const HOLDER: &str = "m1";

/// State of a server, as the agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serves,
    Leads,
    /// It has just come back and serves.
    Returned,
    Silent,
    /// It follows, and its disk is too slow to serve.
    Slow,
    Looking,
    /// It serves, but the agent cannot reach it.
    Unreachable,
    Absent,
    /// Its container ended just now.
    Vanished,
    /// It runs, and the agent cannot reach it. Nor does the kubelet find it ready: clients use up its connections.
    Unasked,
    /// Its `ZooKeeper` runs, and does not answer its parent process.
    Hung,
    Terminating,
}

fn server(id: i32, current: bool, state: State) -> LocalServer {
    let view = match state {
        State::Serves | State::Terminating => Some(report(id, Mode::Follower, true)),
        State::Leads => Some(report(id, Mode::Leader, true)),
        State::Returned => Some(ServerReport { settled: false, ..report(id, Mode::Follower, true) }),
        State::Slow => Some(report(id, Mode::Follower, false)),
        State::Silent | State::Looking => Some(report(id, Mode::Looking, false)),
        State::Hung => Some(ServerReport { mode: None, ..report(id, Mode::Follower, false) }),
        State::Unreachable | State::Unasked | State::Absent | State::Vanished => None,
    };
    LocalServer {
        pod: format!("zk-{id}"),
        uid: format!("u{id}"),
        role: Role::Voter,
        ordinal: id,
        id: Some(id),
        // An outdated server differs by its revision or by its node.
        revision: if current || id % 2 == 0 { "new".into() } else { "old".into() },
        drain: (!current && id % 2 == 0).then(|| Drain { node: "n1".into(), stays: None }),
        needs_mount: false,
        ready: matches!(state, State::Serves | State::Leads | State::Returned | State::Unreachable),
        runs: !matches!(state, State::Absent | State::Vanished),
        terminating: state == State::Terminating,
        orphaned: false,
        overdue: false,
        failure: None,
        view,
        unready_for: if matches!(state, State::Looking | State::Vanished) { Duration::from_secs(1) } else { SILENCE },
    }
}

#[derive(Clone, Debug)]
struct World {
    /// Servers of this cluster: whether each is current, and its state.
    servers: Vec<(bool, State)>,
    /// True if another voter joins.
    joins: bool,
    /// Server of this cluster on a drained node that it cannot leave.
    stays: Option<i32>,
    /// Voters of other clusters: whether each serves.
    others: Vec<bool>,
    /// The restart lock: whether this agent holds it, and for which server.
    lock: Option<(bool, i32)>,
}

impl World {
    fn decide(&self) -> (Vec<LocalServer>, RestartStep) {
        let mut servers: Vec<LocalServer> =
            (1..).zip(&self.servers).map(|(id, (current, state))| server(id, *current, *state)).collect();
        for (server, (current, _)) in servers.iter_mut().zip(&self.servers).filter(|(o, _)| o.id == self.stays) {
            server.drain = Some(Drain { node: "n1".into(), stays: Some(Stay::NoOtherNode("it is full".into())) });
            server.revision = if *current { "new".into() } else { "old".into() };
        }
        let others: Vec<i32> = (101..).take(self.others.len()).collect();
        let ids: Vec<i32> = servers.iter().filter_map(|o| o.id).chain(others.iter().copied()).collect();
        let following = servers.iter().filter(|o| o.serving()).filter_map(|o| o.id);
        let settled =
            servers.iter().filter(|o| o.view.as_ref().is_some_and(|v| v.serving && v.settled)).filter_map(|o| o.id);
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
            leader: servers.iter().find(|o| o.leads()).and_then(|o| o.id).or(others.first().copied()),
            ..Quorum::default()
        };
        let lock = self
            .lock
            .map(|(ours, server)| RestartLock { holder: if ours { HOLDER.into() } else { "m2".into() }, server });
        let inputs = RestartInputs {
            revision: "new",
            servers: &servers,
            expected_servers: servers.len(),
            listed: &ids.iter().copied().chain(self.joins.then_some(99)).collect(),
            quorum: Some(&quorum),
            formed: true,
            synced_voters: Some(i32::MAX),
            pods_that_stay: &BTreeMap::new(),
            election: Duration::ZERO,
            lock: lock.as_ref(),
            holder: HOLDER,
        };
        let step = next_step(inputs);
        (servers, step)
    }

    fn check(&self) -> Result<(), String> {
        let (servers, step) = self.decide();
        let (pod, held) = match &step {
            RestartStep::Restart { pod, .. } => (pod, None),
            RestartStep::RestartServing { pod, held, .. } => (pod, Some(*held)),
            _ => return Ok(()),
        };
        let server = servers.iter().find(|o| o.pod == *pod).unwrap();
        let others = || servers.iter().filter(|o| o.pod != *pod);
        let wrong = |why: &str| Err(format!("{why}: {step:?}"));
        if !server.outdated("new") || server.terminating {
            return wrong("restarts a current or a terminating server");
        }
        if others().any(|o| o.terminating) {
            return wrong("two at once");
        }
        if server.view.is_none() && server.unready_for < SILENCE && held.is_none() {
            return wrong("at once");
        }
        let may_serve = |view: &ServerReport| view.serving || view.mode != Some(Mode::Looking);
        let may_serve = server.view.as_ref().map_or(server.runs, may_serve);
        if !may_serve {
            return Ok(());
        }
        if server.cannot_leave().is_some() {
            return wrong("a server that no node fits");
        }
        let Some(held) = held else { return wrong("without the lock") };
        if held != self.lock.is_some_and(|(ours, id)| ours && Some(id) == server.id) {
            return wrong("with the lock of another agent");
        }
        if others().any(|o| !o.serving()) || self.others.iter().any(|up| !up) {
            return wrong("while another server is down");
        }
        if self.joins && servers.len() + self.others.len() <= 2 {
            return wrong("one of too few voters");
        }
        // A server that cannot leave its node is not awaited.
        if server.leads() && !held && others().any(|o| o.outdated("new") && o.cannot_leave().is_none()) {
            return wrong("the leader is not the last");
        }
        if server.leads() && others().any(|o| o.view.as_ref().is_some_and(|v| !v.settled)) {
            return wrong("the leader restarts although another server has just come back");
        }
        Ok(())
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let state = prop_oneof![
        8 => Just(State::Serves), 2 => Just(State::Returned), 1 => Just(State::Silent), 1 => Just(State::Slow),
        1 => Just(State::Looking), 1 => Just(State::Unasked), 1 => Just(State::Hung),
        1 => Just(State::Unreachable), 1 => Just(State::Absent), 1 => Just(State::Vanished),
        1 => Just(State::Terminating),
    ];
    let servers = proptest::collection::vec((any::<bool>(), state), 1..4);
    let others = proptest::collection::vec(prop_oneof![5 => Just(true), 1 => Just(false)], 1..4);
    let flags = (any::<bool>(), any::<bool>(), proptest::option::of(1..4_i32));
    (servers, others, proptest::option::of((any::<bool>(), 1..4_i32)), flags, any::<prop::sample::Index>()).prop_map(
        |(mut servers, others, lock, (leads, joins, stays), index)| {
            let at = index.index(servers.len());
            if leads && servers[at].1 == State::Serves {
                servers[at].1 = State::Leads;
            }
            World { servers, joins, stays, others, lock }
        },
    )
}

#[test]
fn no_restart_violates_the_rules() {
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

fn decided(servers: &[(bool, State)], lock: Option<(bool, i32)>) -> RestartStep {
    World { servers: servers.to_vec(), others: vec![true, true], lock, joins: false, stays: None }.decide().1
}

fn serving(id: i32, held: bool) -> RestartStep {
    RestartStep::RestartServing { pod: format!("zk-{id}"), uid: format!("u{id}"), server: id, held }
}

#[rstest]
#[case::all_as_declared(&[(true, State::Serves), (true, State::Leads)], None, RestartStep::Nothing)]
#[case::the_silent_server_first(&[(false, State::Serves), (false, State::Silent)], None, RestartStep::Restart { pod: "zk-2".into(), uid: "u2".into() })]
#[case::broken_image(&[(false, State::Absent), (false, State::Absent)], None, RestartStep::Restart { pod: "zk-1".into(), uid: "u1".into() })]
#[case::leader_last(&[(false, State::Leads), (false, State::Serves)], None, serving(2, false))]
#[case::finally_the_leader(&[(false, State::Leads), (true, State::Serves)], None, serving(1, false))]
#[case::only_a_leader_waits_for_settled_voters(&[(false, State::Serves), (true, State::Returned)], None, serving(1, false))]
#[case::a_slow_voter_with_the_lock(&[(false, State::Slow), (true, State::Serves)], None, serving(1, false))]
#[case::one_that_runs_and_cannot_be_asked(&[(false, State::Unasked), (true, State::Serves)], None, serving(1, false))]
#[case::one_whose_zookeeper_hangs(&[(false, State::Hung), (true, State::Serves)], None, serving(1, false))]
#[case::the_one_that_is_down_first(&[(false, State::Unasked), (false, State::Absent)], None, RestartStep::Restart { pod: "zk-2".into(), uid: "u2".into() })]
#[case::lock_held(&[(false, State::Serves), (true, State::Serves)], Some((true, 1)), serving(1, true))]
#[case::locked_server_has_left(&[(true, State::Serves)], Some((true, 9)), RestartStep::Release(RestartLock { holder: HOLDER.into(), server: 9 }))]
#[case::done(&[(true, State::Serves), (false, State::Serves)], Some((true, 1)), RestartStep::Release(RestartLock { holder: HOLDER.into(), server: 1 }))]
fn next_restarts(#[case] servers: &[(bool, State)], #[case] lock: Option<(bool, i32)>, #[case] expected: RestartStep) {
    assert_eq!(decided(servers, lock), expected);
}

/// It has no vote: neither the lock nor a quorum is needed, whether it serves or not.
#[rstest]
#[case::one_that_serves(State::Serves)]
#[case::one_that_cannot_be_asked(State::Unasked)]
#[case::one_that_is_down(State::Absent)]
fn an_observer_restarts_before_a_voter_that_serves(#[case] state: State) {
    let observer = LocalServer { role: Role::Observer, ..server(3, false, state) };
    let step = next_step(RestartInputs {
        revision: "new",
        servers: &[server(1, false, State::Serves), observer],
        expected_servers: 2,
        listed: &(1..=3).collect(),
        quorum: None,
        formed: true,
        synced_voters: None,
        pods_that_stay: &BTreeMap::new(),
        election: Duration::ZERO,
        lock: None,
        holder: HOLDER,
    });
    assert_eq!(step, RestartStep::Restart { pod: "zk-3".into(), uid: "u3".into() });
}

/// A server that no other node fits stays, also for another revision. The others restart.
#[rstest]
#[case::alone(&[(false, State::Serves)], None)]
#[case::others_are_current(&[(false, State::Serves), (true, State::Serves)], None)]
#[case::others_restart(&[(false, State::Serves), (false, State::Serves)], Some(serving(2, false)))]
fn a_server_that_cannot_leave_its_node_stays(#[case] servers: &[(bool, State)], #[case] expected: Option<RestartStep>) {
    let world = World { servers: servers.to_vec(), others: vec![true, true], lock: None, joins: false, stays: Some(1) };
    let step = world.decide().1;
    let stays = RestartStep::Wait("zk-1 is not restarted: it cannot leave node n1: it is full".into());
    assert_eq!(step, expected.unwrap_or(stays));
    let held = World { lock: Some((true, 1)), ..world };
    assert!(matches!(held.decide().1, RestartStep::Release(_)), "its lock is for others");
}

/// A federation whose clusters all drain their nodes at once, each with its own agent.
struct Federation {
    /// Cluster of each voter, whether it has moved, and the rounds until it serves again.
    voters: Vec<(usize, bool, u32)>,
    /// Cluster and voter of the restart lock.
    lock: Option<(usize, i32)>,
}

impl Federation {
    fn is_up(&self, id: i32) -> bool {
        self.voters[usize::try_from(id).unwrap() - 1].2 == 0
    }

    fn ids(&self) -> impl Iterator<Item = i32> {
        1..=i32::try_from(self.voters.len()).unwrap()
    }

    /// What the agent of a cluster does. Voter 1 leads until it moves, then voter 5.
    fn step(&self, cluster: usize) -> RestartStep {
        let leader = if self.voters[0].1 { 5 } else { 1 };
        let servers: Vec<LocalServer> = self
            .ids()
            .zip(&self.voters)
            .filter(|(_, (of, ..))| *of == cluster)
            .map(|(id, (_, moved, down))| {
                let state = if id == leader { State::Leads } else { State::Serves };
                let state = if *down > 0 { State::Absent } else { state };
                let drain = (!moved).then(|| Drain { node: "n1".into(), stays: None });
                LocalServer { revision: "new".into(), drain, ..server(id, true, state) }
            })
            .collect();
        let up: std::collections::BTreeSet<i32> = self.ids().filter(|id| self.is_up(*id)).collect();
        let voter = |id| ConfiguredServer { id, host: String::new(), role: Role::Voter };
        let quorum = Quorum {
            configuration: Configuration { version: 1, servers: self.ids().map(voter).collect() },
            settled: up.clone(),
            leader: Some(leader).filter(|leader| up.contains(leader)),
            following: up,
            ..Quorum::default()
        };
        let name = |cluster: usize| format!("m{cluster}");
        let lock = self.lock.map(|(cluster, server)| RestartLock { holder: name(cluster), server });
        next_step(RestartInputs {
            revision: "new",
            servers: &servers,
            expected_servers: servers.len(),
            listed: &self.ids().collect(),
            quorum: Some(&quorum),
            formed: true,
            synced_voters: Some(i32::MAX),
            pods_that_stay: &BTreeMap::new(),
            election: Duration::ZERO,
            lock: lock.as_ref(),
            holder: &name(cluster),
        })
    }

    fn act(&mut self, cluster: usize) {
        match self.step(cluster) {
            RestartStep::Nothing | RestartStep::Wait(_) => {}
            RestartStep::Release(_) => self.lock = None,
            RestartStep::RestartServing { server, held: false, .. } => {
                assert_eq!(self.lock, None);
                self.lock = Some((cluster, server));
            }
            RestartStep::RestartServing { server, held: true, .. } => {
                assert_eq!(self.lock, Some((cluster, server)));
                let voter = &mut self.voters[usize::try_from(server).unwrap() - 1];
                *voter = (cluster, true, 3);
            }
            step @ RestartStep::Restart { .. } => panic!("without the lock: {step:?}"),
        }
    }
}

#[test]
fn three_clusters_that_drain_at_once_move_one_voter_at_a_time() {
    let mut all = Federation { voters: [0, 0, 1, 1, 2].map(|cluster| (cluster, false, 0)).to_vec(), lock: None };
    for _ in 0..60 {
        for cluster in [2, 0, 1] {
            all.act(cluster);
            assert!(all.voters.iter().filter(|(.., down)| *down > 0).count() <= 1, "{:?}", all.voters);
        }
        for (.., down) in &mut all.voters {
            *down = down.saturating_sub(1);
        }
    }
    assert!(all.voters.iter().all(|(_, moved, _)| *moved), "{:?}", all.voters);
    assert_eq!(all.lock, None);
}

/// Without a quorum no server can follow before the next one has started.
#[test]
fn a_broken_majority_restarts_one_after_the_other() {
    let servers = vec![(true, State::Silent), (false, State::Silent), (true, State::Serves)];
    let world = World { servers, others: Vec::new(), lock: None, joins: false, stays: None };
    assert_eq!(world.decide().1, RestartStep::Restart { pod: "zk-2".into(), uid: "u2".into() });
}

#[rstest]
#[case::the_new_pod_does_not_follow(&[(true, State::Silent), (false, State::Silent), (true, State::Serves)], None)]
#[case::lock_of_another_agent(&[(false, State::Serves)], Some((false, 9)))]
#[case::the_leader_while_another_is_not_settled(&[(false, State::Leads), (true, State::Returned)], None)]
#[case::another_is_in_an_election(&[(false, State::Serves), (false, State::Looking)], None)]
#[case::another_cannot_be_asked(&[(false, State::Unasked), (false, State::Unasked)], None)]
#[case::another_hangs(&[(false, State::Serves), (true, State::Hung)], None)]
#[case::another_vanished(&[(false, State::Serves), (false, State::Vanished)], None)]
#[case::the_new_pod_does_not_answer(&[(true, State::Absent), (false, State::Serves)], None)]
#[case::the_new_pod_does_not_serve(&[(true, State::Silent), (false, State::Serves)], None)]
#[case::lock_held_and_server_starting(&[(true, State::Looking), (false, State::Serves)], Some((true, 1)))]
fn waits(#[case] servers: &[(bool, State)], #[case] lock: Option<(bool, i32)>) {
    assert!(matches!(decided(servers, lock), RestartStep::Wait(_)), "{:?}", decided(servers, lock));
}

/// With its pod, a server would lose a volume that is being deleted. The agent that replaces it asks more than a restart does.
#[rstest]
#[case::stays(BTreeSet::new(), true)]
#[case::ends(BTreeSet::from(["zk-1"]), false)]
fn a_server_whose_volume_ends_does_not_restart_under_the_lock(#[case] ending: BTreeSet<&str>, #[case] expected: bool) {
    let step = under_the_lock(&ending, Some(2));
    assert_eq!(matches!(step, RestartStep::RestartServing { held: true, .. }), expected, "{step:?}");
    assert!(expected || matches!(step, RestartStep::Release(_)), "{step:?}");
}

/// The winner of the election reads much data and writes a snapshot. Three agents that drain would stop all three voters.
#[rstest]
#[case::the_election_lasts(State::Silent, 79, false)]
#[case::no_server_wins(State::Silent, 80, true)]
#[case::it_does_not_run(State::Vanished, 20, true)]
#[case::its_process_has_ended(State::Absent, 0, true)]
fn no_server_restarts_while_an_election_lasts(#[case] state: State, #[case] seconds: u64, #[case] expected: bool) {
    let one = LocalServer {
        unready_for: Duration::from_secs(seconds),
        failure: (state == State::Absent).then(|| "its container exited".to_owned()),
        ..server(1, false, state)
    };
    let inputs = RestartInputs {
        revision: "new",
        servers: &[one],
        expected_servers: 1,
        listed: &(1..=3).collect(),
        quorum: None,
        formed: true,
        synced_voters: None,
        pods_that_stay: &BTreeMap::new(),
        election: Duration::from_secs(60),
        lock: None,
        holder: HOLDER,
    };
    let step = next_step(inputs);
    assert_eq!(matches!(step, RestartStep::Restart { .. }), expected, "{step:?}");
}

/// The volume may be the only one with a write. A user who deletes the pod would end it.
#[rstest]
#[case::stays(&[], true)]
#[case::ends(&["zk-1"], false)]
fn no_message_advises_to_delete_a_pod_whose_volume_ends(#[case] ending: &[&str], #[case] advised: bool) {
    let servers = [server(1, false, State::Unasked)];
    let kept: BTreeMap<&str, &str> = ending.iter().map(|pod| (*pod, "its volume ends")).collect();
    let inputs = RestartInputs {
        revision: "new",
        servers: &servers,
        expected_servers: 1,
        listed: &(1..=3).collect(),
        quorum: None,
        formed: true,
        synced_voters: None,
        pods_that_stay: &kept,
        election: Duration::ZERO,
        lock: None,
        holder: HOLDER,
    };
    for step in [next_step(inputs), next_suspended("new", &servers, &kept)] {
        let RestartStep::Wait(why) = &step else { panic!("{step:?}") };
        assert_eq!(why.contains("delete its pod"), advised, "{why}");
    }
}

/// A leader that was cut off counts no follower, and one whose admin server does not answer counts none either.
#[rstest]
#[case::all_follow(Some(2), true)]
#[case::one_does_not(Some(1), false)]
#[case::unknown(None, false)]
fn a_server_restarts_only_while_all_are_known_to_follow(#[case] synced: Option<i32>, #[case] expected: bool) {
    let step = under_the_lock(&BTreeSet::new(), synced);
    assert_eq!(matches!(step, RestartStep::RestartServing { held: true, .. }), expected, "{step:?}");
}

/// The step for server 1 of three, for which this agent holds the lock.
fn under_the_lock(ending: &BTreeSet<&str>, synced_voters: Option<i32>) -> RestartStep {
    let servers = [server(1, false, State::Serves), server(3, true, State::Leads), server(5, true, State::Serves)];
    let voters = BTreeSet::from([1, 3, 5]);
    let voter = |id: &i32| ConfiguredServer { id: *id, host: String::new(), role: Role::Voter };
    let quorum = Quorum {
        configuration: Configuration { version: 1, servers: voters.iter().map(voter).collect() },
        settled: voters.clone(),
        leader: Some(3),
        following: voters,
        without_session: BTreeSet::new(),
        ..Quorum::default()
    };
    let lock = RestartLock { holder: HOLDER.into(), server: 1 };
    next_step(RestartInputs {
        revision: "new",
        servers: &servers,
        expected_servers: 3,
        listed: &(1..=3).collect(),
        quorum: Some(&quorum),
        formed: true,
        synced_voters,
        pods_that_stay: &ending.iter().map(|pod| (*pod, "its volume ends")).collect(),
        election: Duration::ZERO,
        lock: Some(&lock),
        holder: HOLDER,
    })
}

/// Server 2 of this cluster has lost its vote while it was down. It comes back, or others would stop beside it.
#[rstest]
#[case::it_is_down(State::Absent, false)]
#[case::it_follows(State::Serves, true)]
fn a_server_without_a_vote_keeps_others_from_stopping(#[case] state: State, #[case] others_stop: bool) {
    let servers = [server(1, false, State::Serves), server(2, false, state)];
    let voter = |id| ConfiguredServer { id, host: String::new(), role: Role::Voter };
    let quorum = Quorum {
        configuration: Configuration { version: 1, servers: [1, 3, 4, 5].map(voter).into() },
        settled: (1..=5).collect(),
        leader: Some(3),
        following: (1..=5).filter(|id| *id != 2 || state == State::Serves).collect(),
        ..Quorum::default()
    };
    let (listed, none, lock) = ((1..=5).collect(), BTreeMap::new(), RestartLock { holder: HOLDER.into(), server: 2 });
    let is_released = || {
        // Its pod is being made again.
        let inputs = inputs_of_five(&servers[..1], &listed, &quorum, &none, Some(&lock));
        matches!(next_step(inputs), RestartStep::Release(_))
    };
    let stops = || may_stop(inputs_of_five(&servers, &listed, &quorum, &none, None), &servers[0]).is_ok();
    assert_eq!((is_released(), stops()), (false, others_stop));
    let _active = Mutation::ReleaseDemoted.activate();
    assert_eq!((is_released(), stops()), (true, true), "the broken variant");
}

fn inputs_of_five<'a>(
    servers: &'a [LocalServer],
    listed: &'a BTreeSet<i32>,
    quorum: &'a Quorum,
    pods_that_stay: &'a BTreeMap<&'a str, &'a str>,
    lock: Option<&'a RestartLock>,
) -> RestartInputs<'a> {
    RestartInputs {
        revision: "new",
        servers,
        expected_servers: 2,
        listed,
        quorum: Some(quorum),
        formed: true,
        synced_voters: Some(3),
        pods_that_stay,
        election: Duration::ZERO,
        lock,
        holder: HOLDER,
    }
}
