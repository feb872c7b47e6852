//! A search over every state that the agents and servers of one ensemble can reach.
//!
//! The search calls the rules themselves: `membership::step`, `restart::next_step`, `start::decide` and `replica_floor`. It
//! simulates `ZooKeeper`, the kubelet and Karmada. An agent may pause between a decision and its step, and may forget the
//! decision. Servers and agents may be killed between any two writes. A volume may be lost. Two agents may have different lists.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::must_use_candidate,
    clippy::struct_excessive_bools,
    missing_docs
)]

mod actions;
mod search;
mod state;

use mczk::mutation::Mutation;
use std::collections::BTreeSet;

use mczk::api::zookeeper::Ensemble;
use rstest::rstest;
use search::search;
use state::{Agent, Faults, Lists, Place, State, Volume};

/// The rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// A rule of the program.
    Rule(Mutation),
    /// A step succeeds although the configuration has changed, or the ensemble has a newer list (the fence).
    NoFence,
    /// A server that no list names is stopped although it votes.
    StopVoters,
    /// A pod is deleted some time after the restart lock was confirmed.
    LateDelete,
}

/// A world: lists in the order in which Karmada delivers them, to each cluster at its own pace.
pub struct World {
    pub name: &'static str,
    pub lists: &'static Lists,
    /// The same lists with their hashes.
    pub hashed: Vec<Ensemble>,
    pub places: usize,
    /// True if all servers change to another revision.
    pub rolls: bool,
    pub faults: Faults,
    /// True if the second list comes only after a server has reported a lost volume.
    pub replaces_the_lost: bool,
    pub broken: Broken,
}

const THREE: &[(i32, usize)] = &[(1, 0), (2, 1), (3, 2)];

const fn faults(crashes: u8, wipes: u8, expiries: u8) -> Faults {
    Faults { crashes, wipes, expiries }
}

fn worlds() -> Vec<World> {
    let world = |name, lists, places, rolls, faults| World {
        name,
        lists,
        hashed: state::hashed(lists),
        places,
        rolls,
        faults,
        replaces_the_lost: false,
        broken: Broken::Nothing,
    };
    // Small worlds first: they find most broken rules.
    vec![
        world("a change rolls", &[THREE], 3, true, faults(2, 0, 1)),
        World {
            replaces_the_lost: true,
            ..world("a volume is lost", &[THREE, &[(1, 0), (2, 1), (7, 2)]], 3, false, faults(1, 1, 0))
        },
        world("a place gets another id", &[THREE, &[(1, 0), (2, 1), (7, 2)]], 3, false, faults(2, 0, 0)),
        world("two places get other ids", &[THREE, &[(1, 0), (7, 1), (8, 2)]], 3, false, faults(2, 0, 0)),
        world(
            "a cluster leaves and comes back",
            &[THREE, &[(1, 0), (2, 1)], &[(1, 0), (2, 1), (7, 2)]],
            3,
            false,
            faults(1, 0, 0),
        ),
        world(
            "a move is reverted with another id",
            &[THREE, &[(1, 0), (2, 1), (4, 3)], &[(1, 0), (2, 1), (8, 2)]],
            4,
            false,
            faults(0, 0, 0),
        ),
        world("a server moves to another cluster", &[THREE, &[(1, 0), (2, 1), (4, 3)]], 4, false, faults(2, 0, 0)),
        world("three become five", &[THREE, &[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]], 5, false, faults(1, 0, 0)),
        world("a change rolls while a server moves", &[THREE, &[(1, 0), (2, 1), (4, 3)]], 4, true, faults(0, 0, 1)),
    ]
}

impl World {
    /// Three voters serve, as the first list names them.
    pub fn initial_state(&self) -> State {
        let voters: BTreeSet<i32> = self.lists[0].iter().map(|(id, _)| *id).collect();
        let mut places = vec![Place::default(); self.places];
        for (id, place) in self.lists[0] {
            places[*place] = Place {
                pod: true,
                running: Some(*id),
                new: !self.rolls,
                volume: Some(Volume { id: *id, data: true, voters: voters.clone() }),
                ..Place::default()
            };
        }
        State {
            version: 1,
            voters,
            published: 0,
            fenced: true,
            lock: None,
            places,
            agents: vec![Agent { delivered: 0, published: Some(0), pending: None }; self.places],
            faults: self.faults,
            harmed: false,
            violation: None,
        }
    }

    /// True if the ensemble is as the newest list names it.
    pub fn is_done(&self, state: &State) -> bool {
        let newest = self.lists.len() - 1;
        let wanted: BTreeSet<i32> = self.lists[newest].iter().map(|(id, _)| *id).collect();
        let reached = state.agents.iter().all(|agent| agent.delivered == newest)
            || self.replaces_the_lost && state.agents.iter().all(|agent| agent.delivered == 0);
        let wanted = if state.agents.iter().all(|agent| agent.delivered == 0) {
            self.lists[0].iter().map(|(id, _)| *id).collect()
        } else {
            wanted
        };
        let serves = |id: &i32| {
            let place = &state.places[state::home(self.lists, *id)];
            place.running == Some(*id) && place.new && state.serves(state::home(self.lists, *id))
        };
        reached && state.lock.is_none() && state.voters == wanted && wanted.iter().all(serves)
    }
}

#[test]
fn every_state_is_safe_and_can_complete() {
    for world in worlds() {
        let start = std::time::Instant::now();
        match search(&world) {
            Ok(states) => println!("{:40} {states:8} states, {:.1} s", world.name, start.elapsed().as_secs_f64()),
            Err(why) => panic!("{}: {why}", world.name),
        }
    }
}

#[rstest]
fn every_broken_rule_is_found(
    #[values(
        Broken::Rule(Mutation::AddBeforeItFollows),
        Broken::Rule(Mutation::RemoveListed),
        Broken::Rule(Mutation::WaitForJoiners),
        Broken::Rule(Mutation::WithoutLock),
        Broken::Rule(Mutation::WhileAnotherIsDown),
        Broken::Rule(Mutation::OfTwoVoters),
        Broken::Rule(Mutation::IgnoreLost),
        Broken::Rule(Mutation::AbandonVote),
        Broken::Rule(Mutation::KeepOtherId),
        Broken::Rule(Mutation::JoinByList),
        Broken::NoFence,
        Broken::StopVoters,
        Broken::LateDelete
    )]
    broken: Broken,
) {
    let _active = if let Broken::Rule(mutation) = broken { Some(mutation.activate()) } else { None };
    let found =
        worlds().into_iter().find_map(|world| search(&World { broken, ..world }).err().map(|why| (world.name, why)));
    let Some((world, why)) = found else { panic!("{broken:?} is not found") };
    println!("{broken:?}: in \"{world}\": {}", why.lines().next().unwrap_or_default());
}
