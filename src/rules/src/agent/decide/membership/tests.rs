//! A world of servers that accepts or refuses every step as `ZooKeeper` does, and its invariants.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::TestRunner};
use rstest::rstest;

use super::*;
use crate::agent::decide::fixtures::report;
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Reconfiguration, RestartLock, ServerReport},
        server_list::majority,
    },
    mutation::Mutation,
    zookeeper::{EnsemblePhase, Role, Server},
};

fn server(id: i32, role: Role) -> Server {
    // Each cluster has two ids.
    let cluster = format!("m{}", (id + 1) / 2);
    let host = format!("zk-abc-{}.{cluster}.svc", (id + 1) % 2);
    Server { id, ordinal: (id + 1) % 2, host, role, cluster }
}

fn configured(id: i32, role: Role) -> ConfiguredServer {
    ConfiguredServer { id, host: server(id, role).host, role }
}

#[derive(Clone, Debug)]
struct World {
    list: Ensemble,
    configuration: Configuration,
    up: BTreeSet<i32>,
    /// Servers that the agent cannot reach, up or not.
    hidden: BTreeSet<i32>,
    /// Voters that the agent has missed for long, as far as they are down.
    lapsed: BTreeSet<i32>,
    leader: Option<i32>,
}

impl World {
    fn new(voters: &[i32], listed: &[i32], observers: &[i32], up: &[i32]) -> Self {
        let mut servers: Vec<Server> = listed.iter().map(|id| server(*id, Role::Voter)).collect();
        servers.extend(observers.iter().map(|id| server(*id, Role::Observer)));
        let mut world = Self {
            list: Ensemble { incarnation: Some("abc".into()), epoch: Some(5), servers, ..Ensemble::default() },
            configuration: Configuration {
                version: 100,
                servers: voters.iter().map(|id| configured(*id, Role::Voter)).collect(),
            },
            up: up.iter().copied().collect(),
            hidden: BTreeSet::new(),
            lapsed: BTreeSet::new(),
            leader: None,
        };
        world.elect();
        world
    }

    fn voters(&self) -> BTreeSet<i32> {
        self.configuration.voters().collect()
    }

    /// Servers that are up and that the agent can reach.
    fn reachable(&self) -> BTreeSet<i32> {
        self.up.difference(&self.hidden).copied().collect()
    }

    fn quorum(&self) -> bool {
        let voters = self.voters();
        voters.intersection(&self.up).count() >= majority(voters.len())
    }

    fn elect(&mut self) {
        let voters = self.voters();
        if !self.quorum() {
            self.leader = None;
        } else if self.leader.is_none_or(|id| !voters.contains(&id) || !self.up.contains(&id)) {
            self.leader = voters.intersection(&self.up).copied().max();
        }
    }

    fn views(&self) -> Vec<ServerReport> {
        let serving = self.quorum();
        let named: BTreeSet<i32> =
            self.list.servers.iter().map(|s| s.id).chain(self.configuration.servers.iter().map(|s| s.id)).collect();
        named
            .intersection(&self.reachable())
            .map(|id| {
                let is_observer = |s: &Server| s.id == *id && s.role == Role::Observer;
                let mode = match self.leader {
                    None => Mode::Looking,
                    Some(leader) if leader == *id => Mode::Leader,
                    Some(_) if self.list.servers.iter().any(is_observer) => Mode::Observer,
                    Some(_) => Mode::Follower,
                };
                let leads = mode == Mode::Leader && !self.lapsed.is_empty();
                let followers = self.voters().intersection(&self.up).count().saturating_sub(1);
                // A server without a quorum may still report the configuration that it knew. It must not count.
                ServerReport {
                    configuration: Some(self.configuration.clone()),
                    synced_voters: leads.then(|| i32::try_from(followers).unwrap()),
                    short_seconds: leads.then_some(3600),
                    ..report(*id, mode, serving)
                }
            })
            .collect()
    }

    /// Applies a step as `ZooKeeper` does, or returns what is wrong with it.
    fn apply(&mut self, step: &Reconfiguration) -> Result<(), String> {
        if step.from_version != self.configuration.version || Some(step.epoch) != self.list.epoch {
            return Err(format!("is not conditional: {step:?}"));
        }
        if !self.quorum() {
            return Err(format!("without a quorum: {step:?}"));
        }
        let (before, reachable) = (self.voters(), self.reachable());
        if before.intersection(&reachable).count() < majority(before.len()) {
            return Err(format!("without a reachable quorum: {step:?}"));
        }
        let mut servers: BTreeMap<i32, ConfiguredServer> =
            self.configuration.servers.iter().map(|s| (s.id, s.clone())).collect();
        match (&step.add, step.remove) {
            (Some(server), None) => {
                if server.role == Role::Voter && !self.up.contains(&server.id) {
                    return Err(format!("adds a server that does not follow: {step:?}"));
                }
                servers.insert(server.id, server.clone());
            }
            (None, Some(id)) => {
                let is_listed = self.list.servers.iter().any(|s| s.id == id);
                if is_listed && !self.may_be_demoted(id) {
                    return Err(format!("removes a listed server: {step:?}"));
                }
                servers.remove(&id);
            }
            other => return Err(format!("is not one step: {other:?}")),
        }
        self.configuration.servers = servers.into_values().collect();
        self.configuration.version += 1;
        let after = self.voters();
        if after.is_empty() || after.intersection(&reachable).count() < majority(after.len()) {
            return Err(format!("leaves no majority: {step:?}"));
        }
        self.check_departure(&before, &after).map_err(|why| format!("{why}: {step:?}"))?;
        self.elect();
        Ok(())
    }

    /// True if a voter is dead as far as the agent can know. A leader that counts shows that a server runs that the agent does
    /// not reach.
    fn is_dead(&self, id: i32) -> bool {
        let counts = !self.lapsed.is_empty() && self.leader.is_some_and(|leader| self.reachable().contains(&leader));
        let hides = self.voters().iter().any(|id| self.up.contains(id) && !self.reachable().contains(id));
        !(self.reachable().contains(&id) || counts && hides)
    }

    /// True if a listed voter is missing, and fewer voters make a majority without all that are missing and may leave.
    fn may_be_demoted(&self, id: i32) -> bool {
        self.lapsed.contains(&id) && self.is_dead(id) && self.gains(&self.voters())
    }

    fn gains(&self, voters: &BTreeSet<i32>) -> bool {
        let wanted = self.wanted();
        let may_leave = |id: &&i32| self.is_dead(**id) && (self.lapsed.contains(id) || !wanted.contains(id));
        let dead = voters.iter().filter(may_leave).count();
        majority(voters.len() - dead) < majority(voters.len())
    }

    fn wanted(&self) -> BTreeSet<i32> {
        self.list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect()
    }

    /// True if the list names a voter of the same cluster.
    fn is_beside_a_listed_server(&self, id: i32) -> bool {
        self.list.servers.iter().any(|other| (other.id + 1) / 2 == (id + 1) / 2)
    }

    /// What is wrong with the departure of a voter, if one left.
    fn check_departure(&self, before: &BTreeSet<i32>, after: &BTreeSet<i32>) -> Result<(), &'static str> {
        let (wanted, reachable) = (self.wanted(), self.reachable());
        let Some(left) = before.difference(after).next() else { return Ok(()) };
        let dead = before.iter().filter(|id| !wanted.contains(id) && self.is_dead(**id)).count();
        let joins = wanted.difference(before).any(|id| reachable.contains(id));
        if reachable.contains(left) {
            if joins {
                return Err("removes a voter before a following server joined");
            }
            // The servers of a cluster that leaves as a whole stay until as many others follow as the list names.
            if !self.is_beside_a_listed_server(*left) && after.len() < wanted.len() {
                return Err("removes too many");
            }
            return if dead > 0 { Err("removes a voter that runs before one that does not") } else { Ok(()) };
        }
        if wanted.contains(left) {
            return Ok(());
        }
        let gain = self.gains(before);
        let mut others = before.iter().filter(|id| !wanted.contains(id));
        let awaits = before.len() <= wanted.len() && !others.any(|id| self.is_beside_a_listed_server(*id));
        if !gain && (joins || awaits) { Err("removes a dead voter for no gain") } else { Ok(()) }
    }

    /// Voters, voters that follow, and how many of these the ensemble can lose.
    fn tolerance(&self) -> (usize, usize, usize) {
        let alive = self.voters().intersection(&self.up).count();
        (self.voters().len(), alive, alive - majority(self.voters().len()))
    }

    /// [`Self::tolerance`] from here to the last step.
    fn trace(&mut self) -> Vec<(usize, usize, usize)> {
        let mut trace = vec![self.tolerance()];
        while let MembershipStep::Reconfigure(step) = step(&self.list, &self.views(), Some(5), &self.lapsed) {
            self.apply(&step).unwrap();
            trace.push(self.tolerance());
        }
        trace
    }

    /// Takes steps until none is left. Returns the last step and the number of steps.
    fn run(&mut self) -> Result<(MembershipStep, usize), String> {
        for count in 0..60 {
            match step(&self.list, &self.views(), Some(5), &self.lapsed) {
                MembershipStep::Reconfigure(step) => self.apply(&step)?,
                other => return Ok((other, count)),
            }
        }
        Err("does not end".into())
    }

    /// Checks every invariant, from this world on.
    fn check(mut self) -> Result<(), String> {
        let (end, _) = self.run()?;
        let reachable = self.reachable();
        let had = self.voters().intersection(&reachable).count() >= majority(self.voters().len());
        // A voter beside a listed server leaves, even while a server that joins does not run. So does every other one as soon
        // as all listed servers have joined.
        if had {
            let wanted = self.wanted();
            let stays = |id: &&i32| !wanted.contains(id);
            let blocked = self.voters();
            let stuck = blocked.iter().filter(stays).find(|id| {
                let beside = self.is_beside_a_listed_server(**id) || wanted.is_subset(&blocked);
                let after: BTreeSet<i32> = blocked.iter().copied().filter(|other| other != *id).collect();
                beside && after.intersection(&reachable).count() >= majority(after.len()) && !after.is_empty()
            });
            if let Some(id) = stuck {
                return Err(format!("{id} waits for a server that does not run: {end:?}"));
            }
        }
        // Now every server runs, and the agent can reach it.
        self.hidden.clear();
        self.lapsed.clear();
        self.up.extend(self.list.servers.iter().map(|s| s.id));
        self.up.extend(self.configuration.servers.iter().map(|s| s.id));
        self.elect();
        let (end, _) = self.run()?;
        if end != MembershipStep::Done {
            return Err(format!("ends as {end:?}"));
        }
        let ids = |role: Role| -> Vec<i32> {
            self.configuration.servers.iter().filter(|s| s.role == role).map(|s| s.id).collect()
        };
        let listed = |role: Role| -> Vec<i32> {
            let mut ids: Vec<i32> = self.list.servers.iter().filter(|s| s.role == role).map(|s| s.id).collect();
            ids.sort_unstable();
            ids
        };
        if ids(Role::Voter) != listed(Role::Voter) || ids(Role::Observer) != listed(Role::Observer) {
            return Err("ends elsewhere".into());
        }
        Ok(())
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let some = |from: i32, to: i32, least: usize, most: usize| {
        proptest::sample::subsequence((from..=to).collect::<Vec<i32>>(), least..=most)
    };
    let servers = (some(1, 10, 1, 7), some(1, 10, 1, 7), some(11, 13, 0, 2));
    let unseen = (some(1, 10, 0, 3), some(1, 10, 0, 4));
    (servers, some(1, 13, 4, 13), unseen).prop_map(|((voters, listed, observers), up, (hidden, lapsed))| {
        let mut world = World {
            hidden: hidden.into_iter().collect(),
            lapsed: lapsed.into_iter().collect(),
            ..World::new(&voters, &listed, &observers, &up)
        };
        world.list.demote_after_seconds = Some(60);
        world
    })
}

#[test]
fn every_world_reaches_its_list_and_no_step_loses_the_majority() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() });
    let result = runner.run(&worlds(), |world| world.check().map_err(TestCaseError::fail));
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_broken_rule_is_found() {
    for mutation in Mutation::MEMBERSHIP {
        let _active = mutation.activate();
        let config =
            ProptestConfig { cases: 4000, failure_persistence: None, max_shrink_iters: 0, ..Default::default() };
        let found = TestRunner::new(config).run(&worlds(), |world| world.check().map_err(TestCaseError::fail)).is_err();
        assert!(found, "{mutation:?} is not found");
    }
}

fn first(world: &World) -> (Option<i32>, Option<i32>) {
    match step(&world.list, &world.views(), Some(5), &world.lapsed) {
        MembershipStep::Reconfigure(step) => (step.add.map(|s| s.id), step.remove),
        _ => (None, None),
    }
}

#[rstest]
#[case::joiner_before_a_dead_leaver_without_gain(&[1, 2, 3], &[1, 2, 4], &[1, 2, 4], (Some(4), None))]
#[case::dead_leavers_with_gain_before_joiner(&[1, 2, 3, 4, 5], &[3, 4, 5, 7, 8], &[3, 4, 5, 7, 8], (None, Some(1)))]
#[case::a_dead_leaver_without_gain_waits(&[1, 3, 5], &[1, 3, 7], &[1, 3], (None, None))]
#[case::a_dead_leaver_leaves_if_no_server_is_awaited(&[1, 3, 5], &[1, 3], &[1, 3], (None, Some(5)))]
#[case::a_place_that_gets_another_id(&[1, 3, 5], &[1, 3, 6], &[1, 3], (None, Some(5)))]
#[case::dead_leaver_beside_a_listed_server(&[1, 2, 3, 4, 5], &[1, 3, 4, 5, 6], &[1, 3, 4, 5], (None, Some(2)))]
#[case::dead_leaver_before_a_live_one(&[1, 2, 3, 4, 5, 7, 8], &[1, 2, 3, 4, 9], &[1, 2, 3, 4, 7, 8], (None, Some(5)))]
#[case::joiner_before_live_leaver(&[1, 2, 3], &[1, 2, 4], &[1, 2, 3, 4], (Some(4), None))]
#[case::leaver_beside_a_listed_server_does_not_wait(&[1, 2, 3], &[1, 3, 5], &[1, 2, 3], (None, Some(2)))]
#[case::a_cluster_that_leaves_as_a_whole_waits(&[1, 3, 5], &[1, 3, 7], &[1, 3, 5], (None, None))]
#[case::enough_voters_remain(&[1, 2, 3, 4, 5], &[1, 2, 3, 7], &[1, 2, 3, 4, 5], (None, Some(4)))]
#[case::five_stay_until_others_follow(&[1, 2, 3, 4, 5], &[1, 2, 5, 7, 8], &[1, 2, 3, 4, 5], (None, None))]
#[case::five_leave_one_by_one(&[1, 2, 3, 4, 5, 7], &[1, 2, 5, 7, 8], &[1, 2, 3, 4, 5, 7], (None, Some(3)))]
#[case::no_quorum(&[1, 2, 3], &[1, 2], &[1], (None, None))]
#[case::a_joiner_that_would_cost_the_majority(&[1, 2], &[1, 2, 3, 4], &[1, 2], (None, None))]
#[case::leader_last(&[1, 2, 3, 4], &[1, 2], &[1, 2, 3, 4], (None, Some(3)))]
fn steps(
    #[case] voters: &[i32],
    #[case] listed: &[i32],
    #[case] up: &[i32],
    #[case] expected: (Option<i32>, Option<i32>),
) {
    assert_eq!(first(&World::new(voters, listed, &[], up)), expected);
}

/// The names that a user chooses may have one domain for all clusters. An older list names no server that leaves.
#[rstest]
fn the_floor_holds_whatever_the_names_are(#[values(true, false)] named: bool) {
    let mut world = World::new(&[1, 3, 5], &[7, 9, 11], &[], &[1, 3, 5]);
    world.list.leaving = [1, 3, 5].into_iter().filter(|_| named).map(|id| server(id, Role::Voter)).collect();
    let rename = |host: &mut String| *host = host.replacen('.', "-", 1);
    world.list.servers.iter_mut().chain(&mut world.list.leaving).for_each(|server| rename(&mut server.host));
    world.configuration.servers.iter_mut().for_each(|server| rename(&mut server.host));
    assert_eq!(first(&world), (None, None), "{world:?}");
    world.up.extend([7]);
    assert_eq!(first(&world), (Some(7), None), "{world:?}");
}

/// The table of the gain rule: a cluster is lost, and a spare one brings as many voters. No step lowers the tolerance,
/// whether the joining servers follow from the beginning or only when nothing else is left to do.
#[rstest]
#[case::two_of_2_2_1(&[3, 4, 5], &[1, 2], &[7, 8], &[(5, 3, 0), (4, 3, 0), (3, 3, 1), (4, 4, 1), (5, 5, 2)], 3)]
#[case::one_of_2_2_1(&[1, 2, 3, 4], &[5], &[7], &[(5, 4, 1), (6, 5, 1), (5, 5, 2)], 1)]
#[case::one_of_1_1_1(&[1, 3], &[5], &[7], &[(3, 2, 0), (4, 3, 0), (3, 3, 1)], 1)]
#[case::two_of_2_2_2(&[1, 2, 3, 4], &[5, 6], &[7, 8], &[(6, 4, 0), (5, 4, 1), (6, 5, 1), (5, 5, 2), (6, 6, 2)], 2)]
#[case::three_of_3_3_3(
    &[1, 2, 3, 4, 9, 10], &[5, 6, 7], &[11, 12, 13],
    &[(9, 6, 1), (8, 6, 1), (7, 6, 2), (8, 7, 2), (7, 7, 3), (8, 8, 3), (9, 9, 4)], 3
)]
fn a_lost_cluster_is_replaced(
    #[case] survivors: &[i32],
    #[case] lost: &[i32],
    #[case] spare: &[i32],
    #[case] expected: &[(usize, usize, usize)],
    #[case] without_the_spare: usize,
    #[values(true, false)] at_once: bool,
) {
    let (voters, listed) = ([survivors, lost].concat(), [survivors, spare].concat());
    let mut world = World::new(&voters, &listed, &[], survivors);
    let mut trace = Vec::new();
    if !at_once {
        trace = world.trace();
        assert_eq!(trace, expected[..without_the_spare], "before the spare cluster follows");
        trace.pop();
    }
    world.up.extend(spare);
    trace.extend(world.trace());
    assert_eq!(trace, expected);
    assert!(trace.is_sorted_by_key(|(_, _, tolerance)| tolerance), "{trace:?}");
    assert_eq!(world.voters(), world.wanted());
}

/// Listed voters that are lost lose their votes as far as fewer make a majority then, and get them again when they return. No step
/// lowers the tolerance.
#[rstest]
#[case::two_of_2_2_1(&[3, 4, 5], &[1, 2], &[(5, 3, 0), (4, 3, 0), (3, 3, 1)])]
#[case::two_of_3_2(&[1, 2, 3], &[4, 5], &[(5, 3, 0), (4, 3, 0), (3, 3, 1)])]
#[case::two_of_2_2_2(&[1, 2, 3, 4], &[5, 6], &[(6, 4, 0), (5, 4, 1)])]
#[case::three_of_3_3_3(&[1, 2, 3, 4, 9, 10], &[5, 6, 7], &[(9, 6, 1), (8, 6, 1), (7, 6, 2)])]
#[case::one_of_2_2_1(&[1, 2, 3, 4], &[5], &[(5, 4, 1)])]
#[case::one_of_1_1_1(&[1, 3], &[5], &[(3, 2, 0)])]
fn a_lost_cluster_is_demoted(
    #[case] survivors: &[i32],
    #[case] lost: &[i32],
    #[case] expected: &[(usize, usize, usize)],
) {
    let all = [survivors, lost].concat();
    let mut world = World::new(&all, &all, &[], survivors);
    world.list.demote_after_seconds = Some(60);
    world.lapsed = lost.iter().copied().collect();
    assert_eq!(world.trace(), expected);
    world.up.extend(lost);
    world.lapsed.clear();
    let back = world.trace();
    assert!(back.is_sorted_by_key(|(_, _, tolerance)| tolerance), "{back:?}");
    assert_eq!(world.voters(), world.wanted());
}

#[rstest]
#[case::by_declaration(Some(60), Some(40), true)]
#[case::the_leader_has_missed_them_for_less(Some(60), Some(39), false)]
#[case::the_leader_does_not_measure(Some(60), None, false)]
#[case::without_declaration(None, Some(40), false)]
fn the_leader_measures_too(#[case] declared: Option<i32>, #[case] measured: Option<i64>, #[case] takes: bool) {
    let mut world = World::new(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5], &[], &[3, 4, 5]);
    world.list.demote_after_seconds = declared;
    world.lapsed = [1, 2].into();
    let mut views = world.views();
    for view in views.iter_mut().filter(|view| view.mode == Some(Mode::Leader)) {
        view.short_seconds = measured;
    }
    let step = step(&world.list, &views, Some(5), &world.lapsed);
    assert_eq!(matches!(step, MembershipStep::Reconfigure(_)), takes, "{step:?}");
}

/// A lost cluster without a replacement leaves in the end: its voters would keep serving ones from restarting.
#[rstest]
#[case::two_of_2_2_1(&[3, 4, 5], &[1, 2])]
#[case::one_of_2_2_1(&[1, 2, 3, 4], &[5])]
#[case::one_of_1_1_1(&[1, 3], &[5])]
#[case::three_of_3_3_3(&[1, 2, 3, 4, 9, 10], &[5, 6, 7])]
fn a_lost_cluster_without_a_replacement_leaves(#[case] survivors: &[i32], #[case] lost: &[i32]) {
    let mut world = World::new(&[survivors, lost].concat(), survivors, &[], survivors);
    let trace = world.trace();
    assert_eq!(world.voters(), world.wanted());
    assert!(trace.is_sorted_by_key(|(_, _, tolerance)| tolerance), "{trace:?}");
}

/// The server with the restart lock may be about to stop. The others must be a majority without it.
#[rstest]
#[case::two_remain(&[1, 2, 3], &[1, 2], 2, false)]
#[case::it_leaves_itself(&[1, 2, 3], &[1, 2], 3, true)]
#[case::four_remain(&[1, 2, 3, 4, 5], &[1, 2, 3, 4], 2, true)]
#[case::one_joins(&[1, 2], &[1, 2, 3], 2, true)]
fn the_lock_of_a_restart(#[case] voters: &[i32], #[case] listed: &[i32], #[case] server: i32, #[case] steps: bool) {
    let world = World::new(voters, listed, &[], &[1, 2, 3, 4, 5]);
    let mut views = world.views();
    views[0].restart_lock = Some(RestartLock { holder: "m2".into(), server });
    let step = step(&world.list, &views, world.list.epoch, &BTreeSet::new());
    assert_eq!(matches!(step, MembershipStep::Reconfigure(_)), steps, "{step:?}");
}

#[test]
fn a_voter_becomes_an_observer() {
    let mut world = World::new(&[1, 2, 3], &[1, 2], &[3], &[1, 2, 3]);
    let (end, count) = world.run().unwrap();
    assert_eq!((end, count), (MembershipStep::Done, 1));
    assert_eq!(world.configuration.servers[2].role, Role::Observer);
}

#[test]
fn the_list_is_published_before_a_step_depends_on_it() {
    let world = World::new(&[1, 2, 3], &[1, 2, 4], &[], &[1, 2, 3, 4]);
    for published in [None, Some(4)] {
        assert_eq!(step(&world.list, &world.views(), published, &BTreeSet::new()), MembershipStep::Publish);
    }
}

#[test]
fn decommissioning_changes_no_membership() {
    let mut world = World::new(&[1, 2, 3], &[1], &[], &[1, 2, 3]);
    world.list.phase = EnsemblePhase::Decommissioning;
    assert_eq!(first(&world), (None, None));
}

#[test]
fn other_agents_wait_first() {
    assert!(is_ours("m1", Some("m1"), Duration::ZERO));
    assert!(!is_ours("m2", Some("m1"), Duration::from_secs(29)));
    assert!(!is_ours("m2", None, Duration::ZERO));
    assert!(is_ours("m2", Some("m1"), PATIENCE));
}
