//! A search over every state that the agents and servers of one ensemble can reach.
//!
//! The search calls the rules themselves: `membership::step`, `restart::next_step`, `replace::next_step`, `start::decide`,
//! `permitted_step` and `replica_floor`. It simulates `ZooKeeper`, the kubelet and Karmada. An agent may pause between a
//! decision and its step, between a decision and the lock, and may forget the decision. Servers and agents may be killed
//! between any two writes. A volume may be lost. Two agents may have different lists. A voter may lag. A cluster may be cut
//! off, also with a leader that does not know it, and an agent may miss a server that others see. The servers of a cluster may stall:
//! they serve, and no program can ask them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::must_use_candidate,
    clippy::struct_excessive_bools,
    missing_docs,
    clippy::disallowed_methods
)]

mod actions;
mod replace;
mod search;
mod state;

use mczk_api::mutation::Mutation;
use std::collections::BTreeSet;

use mczk_api::zookeeper::Ensemble;
use replace::{Replacements, Requested};
use rstest::rstest;
use search::search;
use state::{Agent, Faults, Layout, Lists, Place, SINGLE, State, Volume};

/// With the allocator of the system the search took a third longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// An agent goes on with what it decided under the restart lock, although its session with the lock has ended since.
    LateConfirmation,
    /// A pod is deleted without a second decision.
    NoConfirmation,
    /// The leader's count of followers is not asked for: a leader that is cut off counts as one that follows.
    BelieveStaleLeader,
}

/// A world: lists in the order in which Karmada delivers them, to each cluster at its own pace.
pub struct World {
    pub name: &'static str,
    pub lists: &'static Lists,
    /// The same lists with their hashes.
    pub hashed: Vec<Ensemble>,
    pub layout: &'static Layout,
    pub places: usize,
    /// Agents that take membership steps: those of the first clusters, whose servers stay. Others would only repeat them.
    pub acting: usize,
    /// True if all servers change to another revision.
    pub rolls: bool,
    /// The cluster whose servers change alone.
    pub rolls_only: Option<usize>,
    /// True if the lists take the votes of listed voters that are missing.
    pub demotes: bool,
    pub faults: Faults,
    /// True if the second list comes only after a server has reported a lost volume.
    pub replaces_the_lost: bool,
    /// The volumes that a user wants replaced, one after another. The lists name every combination of their new ids.
    pub requests: &'static [Requested],
    /// The cluster that has no power.
    pub away: Option<usize>,
    /// The fewest voters that the ensemble may ever have. 0 if servers are replaced in place.
    pub least: usize,
    pub broken: Broken,
}

const THREE: &[(i32, usize)] = &[(1, 0), (2, 1), (3, 2)];
/// The third of three clusters is replaced by a fourth.
const MOVES: &[&[(i32, usize)]] = &[THREE, &[(1, 0), (2, 1), (4, 3)]];
/// A place gets another id.
const REPLACES: &[&[(i32, usize)]] = &[THREE, &[(1, 0), (2, 1), (7, 2)]];
/// The second and the third server get other ids, in either order.
const SUCCESSORS: &[&[(i32, usize)]] =
    &[THREE, &[(1, 0), (2, 1), (7, 2)], &[(1, 0), (8, 1), (3, 2)], &[(1, 0), (8, 1), (7, 2)]];
/// The second server gets another id, and the third one leaves, in either order.
const SHRINKS: &[&[(i32, usize)]] = &[THREE, &[(1, 0), (8, 1), (3, 2)], &[(1, 0), (2, 1)], &[(1, 0), (8, 1)]];
/// Clusters of two, one, two and two servers.
const PAIRS: &Layout = &[(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)];
/// A cluster of two servers is replaced by another one.
const TWO_MOVE: &[&[(i32, usize)]] =
    &[&[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)], &[(1, 0), (2, 1), (3, 2), (6, 5), (7, 6)]];

const FIVE: &[&[(i32, usize)]] = &[&[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]];
/// Three clusters of two servers.
const SIX: &Layout = &[(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];
const SIX_LIST: &[&[(i32, usize)]] = &[&[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5)]];

const fn faults(crashes: u8, wipes: u8, expiries: u8) -> Faults {
    Faults { crashes, wipes, expiries, writes: 0, cuts: 0, hides: 0, stalls: 0, strangers: 0 }
}

const NONE: Faults = faults(0, 0, 0);

fn world(name: &'static str, lists: &'static Lists, places: usize, rolls: bool, faults: Faults) -> World {
    World {
        name,
        lists,
        hashed: Vec::new(),
        layout: SINGLE,
        places,
        acting: 2,
        rolls,
        rolls_only: None,
        demotes: false,
        faults,
        replaces_the_lost: false,
        requests: &[],
        away: None,
        least: 0,
        broken: Broken::Nothing,
    }
}

fn worlds() -> Vec<World> {
    let requests = |name, lists, requests, faults| World { requests, ..world(name, lists, 3, false, faults) };
    let all = vec![
        world("a change rolls", &[THREE], 3, true, faults(2, 0, 1)),
        world(
            "a change rolls, a cluster is cut off",
            &[THREE],
            3,
            true,
            Faults { cuts: 1, hides: 1, ..faults(0, 0, 1) },
        ),
        World {
            layout: PAIRS,
            ..world("a change rolls, two servers in a cluster", &[THREE], 3, true, faults(1, 0, 1))
        },
        World {
            layout: PAIRS,
            ..world("a change rolls, a cluster stalls", &[THREE], 3, true, Faults { stalls: 1, ..faults(1, 0, 1) })
        },
        world("a stranger asks for steps", REPLACES, 3, false, Faults { strangers: 1, ..NONE }),
        World {
            replaces_the_lost: true,
            ..world("a volume is lost, a voter lags", REPLACES, 3, false, Faults { writes: 1, ..faults(1, 1, 0) })
        },
        World { away: Some(2), ..world("a lost cluster leaves", &[THREE, &[(1, 0), (2, 1)]], 3, false, NONE) },
        requests("a volume is replaced", SUCCESSORS, &[(3, 2)], faults(1, 0, 1)),
        requests("a volume is replaced, a cluster stalls", SUCCESSORS, &[(3, 2)], Faults { stalls: 1, ..NONE }),
        requests("two volumes are replaced", SUCCESSORS, &[(3, 2), (2, 1)], NONE),
        requests("a volume is lost, another is replaced", SUCCESSORS, &[(2, 1)], faults(0, 1, 0)),
        requests("a volume is replaced, a voter leaves", SHRINKS, &[(2, 1)], faults(0, 0, 1)),
        requests("a request names another server", SUCCESSORS, &[(3, 1)], faults(1, 0, 1)),
        world("a place gets another id", REPLACES, 3, false, faults(2, 0, 0)),
        world("a place gets another id, a voter lags", REPLACES, 3, false, Faults { writes: 2, ..faults(1, 0, 0) }),
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
            NONE,
        ),
        World { least: 3, ..world("a server moves to another cluster", MOVES, 4, false, faults(2, 0, 0)) },
        World { least: 3, away: Some(2), ..world("a lost cluster is replaced", MOVES, 4, false, faults(1, 0, 0)) },
        World {
            least: 3,
            acting: 1,
            ..world("a server moves, a cluster is cut off", MOVES, 4, false, Faults { writes: 1, cuts: 1, ..NONE })
        },
        World { least: 5, layout: PAIRS, acting: 1, ..world("two servers move", TWO_MOVE, 7, false, NONE) },
        World {
            least: 5,
            layout: PAIRS,
            acting: 1,
            ..world("two servers move, a cluster stalls", TWO_MOVE, 7, false, Faults { stalls: 1, ..NONE })
        },
        World {
            least: 3,
            layout: PAIRS,
            acting: 1,
            away: Some(2),
            ..world("a lost cluster of two is replaced", TWO_MOVE, 7, false, NONE)
        },
        world("three become five", &[THREE, &[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]], 5, false, faults(1, 0, 0)),
        world("a change rolls while a server moves", MOVES, 4, true, faults(0, 0, 1)),
    ];
    all.into_iter().chain(demotions()).map(World::hash_lists).collect()
}

/// The lists take the votes of listed voters that are missing.
fn demotions() -> Vec<World> {
    let demotes = |name, faults| World {
        layout: PAIRS,
        acting: 1,
        least: 3,
        demotes: true,
        ..world(name, FIVE, 5, false, faults)
    };
    vec![
        World { away: Some(2), ..demotes("a lost cluster is demoted", faults(1, 0, 0)) },
        World { away: Some(1), least: 5, ..demotes("a lost voter keeps its vote", NONE) },
        demotes("a cluster is cut off while demotion is on", Faults { cuts: 1, writes: 1, ..NONE }),
        demotes("a cluster stalls while demotion is on", Faults { stalls: 1, ..faults(1, 0, 0) }),
        World {
            acting: 2,
            ..demotes("an agent is blind while demotion is on", Faults { hides: 1, ..faults(1, 0, 0) })
        },
        World { away: Some(2), ..demotes("a stranger asks for a demotion", Faults { strangers: 1, ..NONE }) },
        World { away: Some(2), ..demotes("two servers move while a cluster is demoted", NONE).with_lists(TWO_MOVE, 7) },
        World {
            layout: SIX,
            rolls: true,
            rolls_only: Some(0),
            least: 5,
            ..demotes("six voters, a slow restart", faults(0, 0, 1)).with_lists(SIX_LIST, 6)
        },
    ]
}

impl World {
    fn with_lists(self, lists: &'static Lists, places: usize) -> Self {
        Self { lists, places, ..self }
    }

    /// The voters serve as the first list names them, except those without power.
    pub fn initial_state(&self) -> State {
        let voters: BTreeSet<i32> = self.lists[0].iter().map(|(id, _)| *id).collect();
        let mut places = vec![Place::default(); self.places];
        for (id, place) in self.lists[0] {
            places[*place] = Place {
                pod: true,
                running: Some(*id).filter(|_| self.away != Some(self.cluster(*place))),
                new: !self.rolls || self.rolls_only.is_some_and(|only| only != self.cluster(*place)),
                volume: Some(Volume { id: *id, log: 1, voters: voters.clone(), step: 0 }),
                ..Place::default()
            };
        }
        State {
            version: 1,
            step: 0,
            voters,
            acknowledged: 1,
            published: 0,
            fenced: true,
            lock: None,
            places,
            agents: vec![Agent { published: Some(0), ..Agent::default() }; self.clusters()],
            cut: None,
            stale: None,
            hidden: None,
            stalled: None,
            replacements: Replacements::new(self),
            away: self.away,
            lapsed: vec![BTreeSet::new(); self.clusters()],
            short: None,
            faults: self.faults,
            harmed: false,
            violation: None,
        }
    }

    /// True if the ensemble is as the newest list names it.
    pub fn is_done(&self, state: &State) -> bool {
        let newest = self.lists.len() - 1;
        let ids = |list: usize| -> BTreeSet<i32> { self.lists[list].iter().map(|(id, _)| *id).collect() };
        let powered = state.agents.iter().enumerate().filter(|(cluster, _)| state.away != Some(*cluster));
        let delivered: Vec<usize> = powered.map(|(_, agent)| agent.delivered).collect();
        let unchanged = delivered.iter().all(|list| *list == 0);
        let newest = if self.requests.is_empty() { newest } else { delivered[0] };
        let reached = delivered.iter().all(|list| *list == newest) || self.replaces_the_lost && unchanged;
        let listed = ids(if unchanged { 0 } else { newest });
        let wanted = self.without_demoted(state, listed);
        let serves = |id: &i32| {
            let home = self.home(*id);
            state.places[home].running == Some(*id) && state.places[home].new && state.serves(self, home)
        };
        reached
            && state.replacements.are_done(self, state.voters.len())
            && state.lock.is_none()
            && state.voters == wanted
            && wanted.iter().filter(|id| !self.is_away(state, **id)).all(serves)
    }

    fn is_away(&self, state: &State, id: i32) -> bool {
        state.away == Some(self.cluster(self.home(id)))
    }

    /// The listed voters without those that have lost their votes in the end: each one leaves while fewer make a majority without
    /// all that have no power.
    fn without_demoted(&self, state: &State, mut listed: BTreeSet<i32>) -> BTreeSet<i32> {
        let mut away: Vec<i32> = listed.iter().copied().filter(|id| self.demotes && self.is_away(state, *id)).collect();
        while !away.is_empty() && (listed.len() - away.len()) / 2 < listed.len() / 2 {
            listed.remove(&away.remove(0));
        }
        listed
    }
}

#[test]
fn every_state_is_safe_and_can_complete() {
    let mut failures = Vec::new();
    let only = std::env::var("ENSEMBLE_ONLY").unwrap_or_default();
    for world in worlds().into_iter().filter(|world| world.name.contains(&only)) {
        let start = std::time::Instant::now();
        match search(&world) {
            Ok(states) => println!("{:40} {states:8} states, {:.1} s", world.name, start.elapsed().as_secs_f64()),
            Err(why) => failures.push(format!("{}: {why}", world.name)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[rstest]
#[case(Broken::Rule(Mutation::AddBeforeItFollows), "a stranger asks for steps")]
#[case(Broken::Rule(Mutation::RemoveListed), "a server moves to another cluster")]
#[case(Broken::Rule(Mutation::NoFloor), "a server moves to another cluster")]
#[case(Broken::Rule(Mutation::DeadFirstAlways), "a server moves to another cluster")]
#[case(Broken::Rule(Mutation::KeepDead), "a lost cluster leaves")]
#[case(Broken::Rule(Mutation::PermitAnyStep), "a stranger asks for steps")]
#[case(Broken::Rule(Mutation::StepBesideLock), "a volume is replaced, a voter leaves")]
#[case(Broken::Rule(Mutation::BelieveOldLeader), "a change rolls, a cluster is cut off")]
#[case(Broken::Rule(Mutation::BuryUnseen), "two servers move, a cluster stalls")]
#[case(Broken::Rule(Mutation::StopUnasked), "a change rolls, a cluster is cut off")]
#[case(Broken::Rule(Mutation::WaitForJoiners), "a stranger asks for steps")]
#[case(Broken::Rule(Mutation::WithoutLock), "a change rolls")]
#[case(Broken::Rule(Mutation::WhileAnotherIsDown), "a change rolls")]
#[case(Broken::Rule(Mutation::ReplaceOtherClaim), "a request names another server")]
#[case(Broken::Rule(Mutation::ReplaceWithoutLock), "two volumes are replaced")]
#[case(Broken::Rule(Mutation::ReplaceLastCopy), "a volume is replaced")]
#[case(Broken::Rule(Mutation::IgnoreLost), "a volume is lost, a voter lags")]
#[case(Broken::Rule(Mutation::DemoteWithoutGain), "a lost voter keeps its vote")]
#[case(Broken::Rule(Mutation::DemoteLocked), "six voters, a slow restart")]
#[case(Broken::Rule(Mutation::PermitUnmeasured), "a stranger asks for a demotion")]
#[case(Broken::Rule(Mutation::PermitFollower), "a stranger asks for a demotion")]
#[case(Broken::Rule(Mutation::AbandonVote), "two places get other ids")]
#[case(Broken::Rule(Mutation::KeepOtherId), "a stranger asks for steps")]
#[case(Broken::Rule(Mutation::JoinByList), "a stranger asks for steps")]
#[case(Broken::NoFence, "a stranger asks for steps")]
#[case(Broken::StopVoters, "a lost cluster leaves")]
#[case(Broken::LateDelete, "a change rolls")]
#[case(Broken::LateConfirmation, "a volume is replaced, a voter leaves")]
#[case(Broken::NoConfirmation, "a change rolls")]
#[case(Broken::BelieveStaleLeader, "a change rolls, a cluster is cut off")]
fn every_broken_rule_is_found(#[case] broken: Broken, #[case] world: &str) {
    let _active = if let Broken::Rule(mutation) = broken { Some(mutation.activate()) } else { None };
    let world = worlds().into_iter().find(|of| of.name == world).expect("the world exists");
    let why = search(&World { broken, ..world }).err().unwrap_or_else(|| panic!("{broken:?} is not found"));
    println!("{broken:?}: {}", why.lines().next().unwrap_or_default());
}
