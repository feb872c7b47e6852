//! A world of servers that accepts or refuses every step as `ZooKeeper` does, and its invariants.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::TestRunner};
use rstest::rstest;

use super::*;
use crate::{
    agent::decide::fixtures::report,
    api::zookeeper::{EnsemblePhase, Role, Server},
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Reconfiguration, ServerReport},
        server_list::majority,
    },
    mutation::Mutation,
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
                // A server without a quorum may still report the configuration that it knew. It must not count.
                ServerReport { configuration: Some(self.configuration.clone()), ..report(*id, mode, serving) }
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
        let (before, fewest, reachable) = (self.voters(), self.voters().len(), self.reachable());
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
                if self.list.servers.iter().any(|s| s.id == id) {
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
        let listed: BTreeSet<i32> = self.list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        let joins = listed.difference(&before).any(|id| reachable.contains(id));
        let left = before.difference(&after).next().filter(|id| reachable.contains(id));
        if joins && left.is_some() {
            return Err(format!("removes a voter before a following server joined: {step:?}"));
        }
        // The servers of a cluster that leaves as a whole stay until enough others follow.
        if let Some(id) = left
            && !listed.iter().any(|other| (other + 1) / 2 == (id + 1) / 2)
            && !listed.is_subset(&reachable)
            && fewest <= listed.len().min(3)
            && !listed.is_subset(&before)
        {
            return Err(format!("removes too many: {step:?}"));
        }
        self.elect();
        Ok(())
    }

    /// Takes steps until none is left. Returns the last step and the number of steps.
    fn run(&mut self) -> Result<(MembershipStep, usize), String> {
        for count in 0..60 {
            match step(&self.list, &self.views(), Some(5)) {
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
        // A voter beside a listed server leaves, even while a server that joins does not run.
        let wanted: BTreeSet<i32> = self.list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        if had {
            let stays = |id: &&i32| !wanted.contains(id) && reachable.contains(id);
            let blocked = self.voters();
            let stuck = blocked.iter().filter(stays).find(|id| {
                let beside = wanted.iter().any(|other| (other + 1) / 2 == (**id + 1) / 2);
                let after: BTreeSet<i32> = blocked.iter().copied().filter(|other| other != *id).collect();
                beside && after.intersection(&reachable).count() >= majority(after.len()) && !after.is_empty()
            });
            if let Some(id) = stuck {
                return Err(format!("{id} waits for a server that does not run: {end:?}"));
            }
        }
        // Now every server runs, and the agent can reach it.
        self.hidden.clear();
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
    (servers, some(1, 13, 4, 13), some(1, 10, 0, 3)).prop_map(|((voters, listed, observers), up, hidden)| World {
        hidden: hidden.into_iter().collect(),
        ..World::new(&voters, &listed, &observers, &up)
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
    match step(&world.list, &world.views(), Some(5)) {
        MembershipStep::Reconfigure(step) => (step.add.map(|s| s.id), step.remove),
        _ => (None, None),
    }
}

#[rstest]
#[case::dead_leaver_before_joiner(&[1, 2, 3], &[1, 2, 4], &[1, 2, 4], (None, Some(3)))]
#[case::joiner_before_live_leaver(&[1, 2, 3], &[1, 2, 4], &[1, 2, 3, 4], (Some(4), None))]
#[case::leaver_beside_a_listed_server_does_not_wait(&[1, 2, 3], &[1, 3, 5], &[1, 2, 3], (None, Some(2)))]
#[case::a_cluster_that_leaves_as_a_whole_waits(&[1, 3, 5], &[1, 3, 7], &[1, 3, 5], (None, None))]
#[case::enough_voters_remain(&[1, 2, 3, 4, 5], &[1, 2, 3, 7], &[1, 2, 3, 4, 5], (None, Some(4)))]
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
        assert_eq!(step(&world.list, &world.views(), published), MembershipStep::Publish);
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
