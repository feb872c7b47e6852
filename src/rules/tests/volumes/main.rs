//! A search over every state that the volumes of three servers can reach: a volume is lost, returns as it was at an earlier
//! moment, also from before the first quorum, or misses a file or a part of one.
//!
//! The search calls the rules themselves: `start::decide`, `first_start`, [`VolumeAge::of`] and what [`Files`] prove. It
//! simulates `ZooKeeper`: elections, copies and transactions. At most one volume is damaged, while its parent process runs or
//! not. In a bootstrap of four servers two volumes are lost. So no acknowledged write may be lost, no two servers may differ,
//! whichever servers run, and the other two can serve.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

mod actions;
mod state;

use actions::{Action, Damage, actions, apply};
use indexmap::{IndexMap, map::Entry};
use mczk_api::mutation::Mutation;
use rstest::rstest;
use state::{Budget, State};

/// With the allocator of the system the search took a third longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Most states of a search. A search with more states fails, so that it never skips any silently.
const MOST: usize = 6_000_000;

/// Each state, and the one before it with the action that led to it first. Millions: each is stored once.
type States = IndexMap<State, Option<(usize, Action)>>;

/// What a search found.
struct Found {
    states: usize,
    /// The first violation, with the actions that lead to it.
    violation: Option<String>,
    /// True if two servers formed an ensemble before the third one started.
    formed_with_two: bool,
}

/// Searches every state. Without damage, each state must lead to one in which all servers serve. With it, two must.
fn search(first: State, damage: Damage) -> Found {
    let mut states: States = IndexMap::from([(first, None)]);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut found = Found { states: 0, violation: None, formed_with_two: false };
    let mut next = 0;
    while let Some((state, _)) = states.get_index(next) {
        let state = state.clone();
        for action in actions(&state, damage) {
            let Some(after) = apply(&state, action).filter(|after| *after != state) else { continue };
            found.formed_with_two |= after.formed && after.servers[2].volume.is_new();
            let violation = after.violation;
            let at = match states.entry(after) {
                Entry::Occupied(known) => known.index(),
                Entry::Vacant(new) => {
                    before.push(Vec::new());
                    new.insert_entry(Some((next, action))).index()
                }
            };
            if !action.is_damage() {
                before[at].push(next);
            }
            if let Some(why) = violation {
                found.violation = Some(explain(why, &states, at));
                found.states = states.len();
                return found;
            }
        }
        next += 1;
        if next % 100_000 == 0 {
            println!("{damage:?}: {next} of {} states", states.len());
        }
        assert!(states.len() <= MOST, "more than {MOST} states");
    }
    found.states = states.len();
    found.violation = stuck(&states, &before);
    found
}

/// A state from which the servers never serve.
fn stuck(states: &States, before: &[Vec<usize>]) -> Option<String> {
    let mut ends: Vec<bool> = states.keys().map(State::recovers).collect();
    let mut open: Vec<usize> = (0..states.len()).filter(|at| ends[*at]).collect();
    while let Some(at) = open.pop() {
        for from in &before[at] {
            if !std::mem::replace(&mut ends[*from], true) {
                open.push(*from);
            }
        }
    }
    let at = states.keys().zip(&ends).position(|(state, ends)| !ends && state.must_recover())?;
    Some(explain("the servers never serve", states, at))
}

fn explain(why: &str, states: &States, at: usize) -> String {
    let mut path = Vec::new();
    let mut here = at;
    while let Some((from, action)) = &states[here] {
        path.push(format!("{action:?}"));
        here = *from;
    }
    path.reverse();
    format!("{why}\n{}\n{:#?}", path.join("\n"), states.keys()[at])
}

/// Where a search begins, and what happens to a volume.
#[derive(Clone, Copy, Debug)]
enum World {
    /// Before the bootstrap. A volume is lost or returns as it was.
    Bootstrap,
    /// With a living ensemble. A volume is lost or returns as it was.
    Living,
    /// With a living ensemble. Files are missing or partial.
    Files,
    /// With three of four servers in a bootstrap. Two volumes are lost.
    TwoLost,
}

impl World {
    fn search(self) -> Found {
        let budget = |writes, files| Budget { writes, snapshots: files, partial: files, damage: 1 };
        let found = match self {
            Self::Bootstrap => search(State::new(3, 1, budget(1, 0)), Damage::Returns),
            Self::Living => search(State::serving(budget(2, 0)), Damage::Returns),
            Self::Files => search(State::serving(budget(2, 1)), Damage::Files),
            Self::TwoLost => {
                let budget = Budget { damage: 2, ..budget(1, 0) };
                search(State::formed(budget), Damage::Lost)
            }
        };
        println!("{self:?}: {} states", found.states);
        found
    }
}

#[rstest]
fn no_damage_to_one_volume_loses_an_acknowledged_write(
    #[values(World::Bootstrap, World::Living, World::Files, World::TwoLost)] world: World,
) {
    let found = world.search();
    assert!(found.violation.is_none(), "{}", found.violation.unwrap_or_default());
    let forms = found.formed_with_two || !matches!(world, World::Bootstrap);
    assert!(forms, "a majority of a bootstrap forms an ensemble");
}

#[rstest]
#[case(Mutation::BelieveNeverJoined, World::Bootstrap)]
#[case(Mutation::BeginUnrecorded, World::Bootstrap)]
#[case(Mutation::BelieveAskers, World::TwoLost)]
#[case(Mutation::RecordAgain, World::Bootstrap)]
#[case(Mutation::ForgetFirstStarts, World::Bootstrap)]
#[case(Mutation::ForgetRecreated, World::Bootstrap)]
#[case(Mutation::CopyUnrecorded, World::Bootstrap)]
#[case(Mutation::VoteAgain, World::Bootstrap)]
#[case(Mutation::LateWithoutVote, World::Bootstrap)]
#[case(Mutation::BelieveProcess, World::Bootstrap)]
#[case(Mutation::BelieveProcess, World::Living)]
#[case(Mutation::StopAsking, World::Living)]
#[case(Mutation::BelieveOldVolume, World::Living)]
#[case(Mutation::VoteUnconfirmed, World::Living)]
#[case(Mutation::BelievePartialSnapshot, World::Files)]
#[case(Mutation::BelieveShortLog, World::Files)]
#[case(Mutation::BelieveUnreadable, World::Files)]
fn every_broken_rule_is_found(#[case] mutation: Mutation, #[case] world: World) {
    let _active = mutation.activate();
    let violation = world.search().violation.unwrap_or_else(|| panic!("{mutation:?} is not found"));
    let steps: Vec<&str> = violation.lines().take_while(|line| !line.starts_with("State")).collect();
    println!("{mutation:?}: {}", steps.join(", "));
}
