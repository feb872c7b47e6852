//! A breadth-first search of every reachable state, and of the states from which the world can complete.

use indexmap::{IndexMap, map::Entry};

use crate::{
    World,
    actions::{Action, Reports, actions, apply},
    state::{State, majority},
};

/// Most states of a search. A search with more states fails, so that it never skips any silently.
const MOST: usize = 3_000_000;

/// Each state, and the one before it with the action that led to it first.
type States = IndexMap<State, Option<(usize, Action)>>;

/// The number of states.
///
/// # Errors
/// The first violation, with the actions that lead to it.
pub fn search(world: &World) -> Result<usize, String> {
    let mut states = States::from([(world.initial_state(), None)]);
    // States that lead here without a fault. A world must complete without one.
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut next = 0;
    while let Some((state, _)) = states.get_index(next) {
        let state = state.clone();
        if let Some(why) = violation(world, &state) {
            return Err(explain(why, &states, next));
        }
        let reports = Reports::of(world, &state);
        for action in actions(world, &state) {
            let Some(after) = apply(world, &state, &reports, &action).filter(|after| *after != state) else { continue };
            let at = match states.entry(after) {
                Entry::Occupied(known) => known.index(),
                Entry::Vacant(new) => {
                    before.push(Vec::new());
                    new.insert_entry(Some((next, action.clone()))).index()
                }
            };
            if !action.is_fault() {
                before[at].push(next);
            }
        }
        next += 1;
        if next % 200_000 == 0 {
            println!("{}: {next} of {} states", world.name, states.len());
        }
        if states.len() > MOST {
            return Err(format!("more than {MOST} states"));
        }
    }
    let mut ends: Vec<bool> = states.keys().map(|state| world.is_done(state)).collect();
    let mut open: Vec<usize> = (0..states.len()).filter(|at| ends[*at]).collect();
    while let Some(at) = open.pop() {
        for from in &before[at] {
            if !std::mem::replace(&mut ends[*from], true) {
                open.push(*from);
            }
        }
    }
    match ends.iter().position(|ends| !ends) {
        Some(stuck) => Err(explain("the world never completes", &states, stuck)),
        None => Ok(states.len()),
    }
}

/// The violated invariant of a state.
fn violation(world: &World, state: &State) -> Option<&'static str> {
    if state.violation.is_some() {
        return state.violation;
    }
    let volume = |id: i32| state.places.iter().filter_map(|place| place.volume.as_ref()).find(|volume| volume.id == id);
    let empty = |id: i32| state.voters.contains(&id) && volume(id).is_none_or(|volume| volume.log == 0);
    if state.places.iter().filter_map(|place| place.running).any(empty) {
        return Some("a server votes without the data that it voted for");
    }
    // A voter whose volume is lost does not vote.
    if majority(&state.voters, |id| volume(*id).is_some_and(|volume| volume.log < state.acknowledged)) {
        return Some("a majority of the voters lacks an acknowledged write");
    }
    let restarted = state.places.iter().filter_map(|place| place.restarted).filter(|id| state.voters.contains(id));
    if restarted.count() > 1 {
        return Some("two serving voters restart at once");
    }
    if !state.harmed && !state.quorum(world) {
        return Some("the quorum was lost without a fault");
    }
    if state.voters.len() < world.least {
        return Some("too few voters remain before others have joined");
    }
    (0..world.clusters()).find_map(|cluster| election(world, state, cluster))
}

/// What is wrong if the servers that a cluster reaches elect a leader now. They know only their volumes, and the newest of their
/// configurations counts.
fn election(world: &World, state: &State, cluster: usize) -> Option<&'static str> {
    let reached = (0..world.places).filter(|place| state.connects(cluster, world.cluster(*place)));
    let running = reached.map(|place| &state.places[place]).filter(|place| place.running.is_some());
    let volumes: Vec<_> = running.filter_map(|place| place.volume.as_ref()).filter(|volume| volume.log > 0).collect();
    let newest = volumes.iter().max_by_key(|volume| volume.step)?;
    let candidates = || volumes.iter().filter(|volume| newest.voters.contains(&volume.id));
    if candidates().count() <= newest.voters.len() / 2 {
        return None;
    }
    if newest.step < state.step {
        return Some("an old configuration elects a leader");
    }
    let longest = candidates().map(|volume| volume.log).max();
    (longest < Some(state.acknowledged)).then_some("an acknowledged write is lost by an election")
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
