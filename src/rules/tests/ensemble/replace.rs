//! A user wants volumes replaced: requests, claims, and what the agents do about them.
//!
//! A request reaches each cluster at its own pace, and the next one takes its place. An agent may pause between its decision,
//! the lock and each deletion, and may forget what it decided.

use std::collections::BTreeSet;

use mczk_api::contract::{naming::claim_of, replace_request::ReplaceRequest};
use mczk_rules::agent::decide::{
    observation::Claim,
    replace::{self, ReplaceInputs, ReplaceStep, VolumeDeletion, may_decide_again, may_delete},
    volume_size::VolumeSize,
};

use crate::{
    World,
    actions::{Sight, accepted, place_of, reaches_another, with_restart_inputs},
    state::{INCARNATION, Restarting, State},
};

/// A request of a world: the server, and the place whose first claim it names.
pub type Requested = (i32, usize);

/// How far an agent is with a replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    #[default]
    Nothing,
    /// It decided on these deletions.
    Looked(VolumeDeletion),
    /// It held the lock before that, and confirmed it. It decides again next.
    Locked(VolumeDeletion),
    /// It decided again. It confirms the lock once more next.
    Again(VolumeDeletion, ReplaceStep),
    /// It confirmed the lock. It deletes the claim next.
    Confirmed(VolumeDeletion),
    /// It deleted the claim. It deletes the pod next.
    Halfway(VolumeDeletion),
}

/// The claim of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlaceClaim {
    /// How many claims the place had before. It stands for the uid.
    number: u8,
    /// True if it is being deleted.
    ending: bool,
}

/// What requests have led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replacements {
    /// Requests that the user has made.
    made: usize,
    /// The claim of each place.
    claims: Vec<PlaceClaim>,
    /// The newest request that reached each agent, and what the agent does about it.
    agents: Vec<(usize, Stage)>,
}

impl Replacements {
    pub fn new(world: &World) -> Self {
        Self {
            made: 0,
            claims: vec![PlaceClaim::default(); world.places],
            agents: vec![(0, Stage::Nothing); world.clusters()],
        }
    }

    /// An agent forgets what it decided. False if it decided nothing.
    pub fn forget(&mut self, cluster: usize) -> bool {
        std::mem::take(&mut self.agents[cluster].1) != Stage::Nothing
    }

    /// The session with the lock of an agent ends while it decides again.
    pub fn lose_lock(&mut self, cluster: usize) {
        let stage = &mut self.agents[cluster].1;
        if matches!(stage, Stage::Locked(_) | Stage::Again(..)) {
            *stage = Stage::Nothing;
        }
    }

    /// Pods of a cluster whose claims are being deleted.
    pub fn ending(&self, world: &World, cluster: usize) -> BTreeSet<String> {
        let ends = |place: &usize| self.claims[*place].ending;
        world.places_of(cluster).filter(ends).map(|place| world.pod(place)).collect()
    }

    /// True if an agent is about to replace a volume. One reconcile does all of it, so the agent decides nothing else.
    pub fn is_begun(&self, cluster: usize) -> bool {
        self.agents[cluster].1 != Stage::Nothing
    }

    /// True if an agent has confirmed the lock, and deletes within the time for which that counts.
    pub fn is_confirmed(&self, cluster: usize) -> bool {
        matches!(self.agents[cluster].1, Stage::Confirmed(_) | Stage::Halfway(_))
    }

    /// True if a volume goes, or will: its claim is being deleted, or an agent is about to do so.
    pub fn delete(&self) -> bool {
        let decided =
            |(_, stage): &(usize, Stage)| !matches!(stage, Stage::Nothing | Stage::Looked(_) | Stage::Locked(_));
        self.claims.iter().any(|claim| claim.ending) || self.agents.iter().any(decided)
    }

    /// True if nothing is left to do: every request arrived, and its claim is gone, or is not of the server that it names. Of two
    /// voters none can be replaced.
    pub fn are_done(&self, world: &World, voters: usize) -> bool {
        let is_void = |(server, place): &Requested| self.claims[*place].number > 0 || world.home(*server) != *place;
        self.made == world.requests.len()
            && (world.requests.last().is_none_or(is_void) || voters < 3)
            && self.agents.iter().all(|(request, stage)| *request == self.made && *stage == Stage::Nothing)
    }
}

/// An action. A number is that of a cluster and its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The user makes the next request.
    Request,
    /// The newest request reaches a cluster.
    Deliver(usize),
    /// An agent decides to replace a volume.
    Look(usize),
    /// The agent acquires or confirms the lock.
    Lock(usize),
    /// The agent decides again.
    Again(usize),
    /// The agent confirms the lock.
    Confirm(usize),
    /// The agent deletes the claim.
    DeleteClaim(usize),
    /// The agent deletes the pod.
    DeletePod(usize),
}

pub fn actions(world: &World) -> Vec<Action> {
    if world.requests.is_empty() {
        return Vec::new();
    }
    let of_cluster = |cluster| {
        use Action::{Again, Confirm, DeleteClaim, DeletePod, Deliver, Lock, Look};
        [Deliver, Look, Lock, Again, Confirm, DeleteClaim, DeletePod].map(|action| action(cluster))
    };
    [Action::Request].into_iter().chain((0..world.clusters()).flat_map(of_cluster)).collect()
}

pub fn apply(world: &World, state: &mut State, sight: impl Fn(usize) -> Sight, action: &Action) -> Option<()> {
    match *action {
        Action::Request => {
            let made = &mut state.replacements.made;
            (*made < world.requests.len()).then(|| *made += 1)
        }
        Action::Deliver(cluster) => {
            let made = state.replacements.made;
            (std::mem::replace(&mut state.replacements.agents[cluster].0, made) != made).then_some(())
        }
        Action::Look(cluster) => look(world, state, &sight(cluster), cluster),
        Action::Lock(cluster) => lock(world, state, &sight(cluster), cluster),
        Action::Again(cluster) => {
            let Stage::Locked(deletion) = state.replacements.agents[cluster].1.clone() else { return None };
            let again = next_step(world, state, &sight(cluster), cluster);
            if matches!(again, ReplaceStep::Delete(_)) && !majority_remains(world, state, deletion.server) {
                state.violation = Some("a volume is to go although no majority serves without it");
            }
            state.replacements.agents[cluster].1 = Stage::Again(deletion, again);
            Some(())
        }
        Action::Confirm(cluster) => confirm(world, state, &sight(cluster), cluster),
        Action::DeleteClaim(cluster) => delete_claim(world, state, cluster),
        Action::DeletePod(cluster) => delete_pod(world, state, cluster),
    }
}

/// Uid of a claim.
fn uid(place: usize, number: u8) -> String {
    format!("{place}-{number}")
}

/// The request that an agent has.
fn request(world: &World, state: &State, cluster: usize) -> Option<ReplaceRequest> {
    let index = state.replacements.agents[cluster].0.checked_sub(1)?;
    let (server, place) = world.requests[index];
    Some(ReplaceRequest { server, claim: uid(place, 0) })
}

/// What an agent decides about its request.
pub fn next_step(world: &World, state: &State, sight: &Sight, cluster: usize) -> ReplaceStep {
    if world.requests.is_empty() {
        return ReplaceStep::Nothing;
    }
    let request = request(world, state, cluster);
    let claim = |place: usize| {
        let PlaceClaim { number, ending } = state.replacements.claims[place];
        Claim {
            name: claim_of(&world.pod(place)),
            incarnation: INCARNATION.into(),
            uid: uid(place, number),
            version: None,
            bound: true,
            size: VolumeSize::default(),
            ending,
            servers_removed: false,
        }
    };
    let claims: Vec<Claim> = world.places_of(cluster).map(claim).collect();
    with_restart_inputs(world, state, sight, cluster, |restart| {
        replace::next_step(ReplaceInputs {
            request: request.as_ref(),
            claims: &claims,
            incarnation: INCARNATION,
            gone: &BTreeSet::new(),
            cluster: &format!("c{cluster}"),
            listed: &world.hashed[accepted(state, sight, cluster)].servers,
            views: &sight.all(),
            restart,
        })
    })
}

fn look(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    if state.replacements.is_begun(cluster) || state.agents[cluster].restarting != Restarting::Nothing {
        return None;
    }
    let ReplaceStep::Delete(deletion) = next_step(world, state, sight, cluster) else { return None };
    state.replacements.agents[cluster].1 = Stage::Looked(deletion);
    Some(())
}

/// True if the agent holds the lock now.
fn acquire(world: &World, state: &mut State, sight: &Sight, cluster: usize, deletion: &VolumeDeletion) -> bool {
    let is_free = state.lock.is_none_or(|(holder, _)| holder == cluster);
    let acquired = is_free && reaches_another(world, state, sight, place_of(world, cluster, &deletion.pod));
    if acquired {
        state.lock = Some((cluster, deletion.server));
    }
    acquired
}

fn lock(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    let Stage::Looked(deletion) = state.replacements.agents[cluster].1.clone() else { return None };
    let acquired = acquire(world, state, sight, cluster, &deletion);
    let goes_on = may_decide_again(&deletion, acquired);
    state.replacements.agents[cluster].1 = if goes_on { Stage::Locked(deletion) } else { Stage::Nothing };
    Some(())
}

fn confirm(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    let Stage::Again(deletion, again) = state.replacements.agents[cluster].1.clone() else { return None };
    let confirmed = acquire(world, state, sight, cluster, &deletion);
    let place = place_of(world, cluster, &deletion.pod);
    let may = may_delete(&deletion, &again, confirmed);
    if may {
        state.violation = violation(world, state, place, deletion.server).or(state.violation);
    }
    state.replacements.agents[cluster].1 = if may { Stage::Confirmed(deletion) } else { Stage::Nothing };
    Some(())
}

/// True if a majority serves without a server. A voter may fail at any moment after the agent saw that.
fn majority_remains(world: &World, state: &State, server: i32) -> bool {
    let votes = |id: &&i32| **id != server && state.votes(world, world.home(**id));
    state.voters.iter().filter(votes).count() > state.voters.len() / 2
}

/// What is wrong if the volume of a place goes now.
fn violation(world: &World, state: &State, place: usize, server: i32) -> Option<&'static str> {
    let others: BTreeSet<i32> = state.voters.iter().copied().filter(|id| *id != server).collect();
    if others.len() <= state.voters.len() / 2 {
        return Some("a volume goes although the others are no majority of the voters");
    }
    if state.lack_volume(world, &others) {
        return Some("a volume goes although another voter lacks its volume");
    }
    let restarts = |other: &usize| *other != place && state.places[*other].restarted.is_some();
    (0..world.places).any(|other| restarts(&other)).then_some("a volume goes while another voter restarts")
}

fn delete_claim(world: &World, state: &mut State, cluster: usize) -> Option<()> {
    let Stage::Confirmed(deletion) = state.replacements.agents[cluster].1.clone() else { return None };
    let place = place_of(world, cluster, &deletion.pod);
    let claim = &mut state.replacements.claims[place];
    // The precondition of the deletion.
    if deletion.claim.uid != uid(place, claim.number) {
        state.replacements.agents[cluster].1 = Stage::Nothing;
        return Some(());
    }
    claim.ending = true;
    if !world.requests.iter().any(|(_, requested)| deletion.claim.uid == uid(*requested, 0)) {
        state.violation = Some("a claim goes that no request names");
    }
    state.replacements.agents[cluster].1 = Stage::Halfway(deletion);
    Some(())
}

/// The pod ends, and its claim with it. Both are made again.
fn delete_pod(world: &World, state: &mut State, cluster: usize) -> Option<()> {
    let Stage::Halfway(deletion) = std::mem::take(&mut state.replacements.agents[cluster].1) else { return None };
    let place = place_of(world, cluster, &deletion.pod);
    if !state.replacements.claims[place].ending {
        return Some(());
    }
    let number = state.replacements.claims[place].number + 1;
    state.replacements.claims[place] = PlaceClaim { number, ending: false };
    if state.votes(world, place) {
        state.places[place].restarted = state.places[place].running;
    }
    let at = &mut state.places[place];
    (at.running, at.volume, at.aside, at.new) = (None, None, false, true);
    Some(())
}

/// The list that the operator gives a cluster next. It replaces the id of a server that has lost its volume, or lacks a server.
pub fn next_list(world: &World, state: &State, cluster: usize) -> Option<usize> {
    let newest = state.agents.iter().map(|agent| agent.delivered).max()?;
    if state.agents[cluster].delivered < newest {
        return Some(newest);
    }
    let of = |list: usize| world.lists[list].iter().map(|(id, place)| (*place, *id));
    let replaces_lost = |list: &usize| {
        let mut changed = of(newest).zip(of(*list)).filter(|(before, after)| before != after);
        // An id is not given twice.
        let replaces =
            |((place, before), (_, after)): ((usize, i32), (usize, i32))| state.places[place].lost && after > before;
        changed.next().is_some_and(replaces) && changed.next().is_none()
    };
    let shrinks = |list: &usize| world.lists[*list].iter().all(|server| world.lists[newest].contains(server));
    (newest + 1..world.lists.len()).find(|list| replaces_lost(list) || shrinks(list))
}
