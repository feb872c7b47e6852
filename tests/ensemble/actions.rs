//! What may happen in a state, and what comes of it.

use std::collections::BTreeSet;

use mczk::{
    agent::decide::{
        accept::Voters,
        membership::{self, Action as Due, Quorum},
        restart::{self, Next},
    },
    api::zookeeper::Role,
    contract::control_api::ServerReport,
    server::start::{self, Decision},
};

use crate::{
    Broken, World,
    state::{Pending, State, Volume, cluster, home, majority, me},
};

/// What may happen. A number is that of a place, and of the agent of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Karmada brings the next list.
    Bring(usize),
    /// An agent decides on a step of the membership.
    Decide(usize),
    /// It does what it decided.
    Act(usize),
    /// An agent takes a pod out, takes the turn or gives it back, as is due.
    RestartLock(usize),
    /// A pod is made, or removed for good.
    Scale(usize),
    /// The parent process decides how to start, and starts.
    Start(usize),
    /// A server takes over what the others hold.
    Sync(usize),
    /// The parent process ends a server whose place has another id.
    Replace(usize),
    /// A server is killed.
    Kill(usize),
    /// An agent forgets what it decided, perhaps after half of it.
    Forget(usize),
    /// A volume is lost, and with it the pod.
    Wipe(usize),
    /// The turn's session ends.
    Expire,
}

impl Action {
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Kill(_) | Self::Forget(_) | Self::Wipe(_) | Self::Expire)
    }
}

/// Agents that take steps of the membership: two, of the first clusters, whose servers stay. A third one would do what one of
/// them does, later.
const ACTING: usize = 2;

pub fn actions(world: &World, state: &State) -> Vec<Action> {
    let mut all = Vec::new();
    for place in 0..world.places {
        if place < ACTING {
            all.extend([Action::Decide(place), Action::Act(place)]);
        }
        all.extend([
            Action::Bring(place),
            Action::RestartLock(place),
            Action::Scale(place),
            Action::Start(place),
            Action::Sync(place),
            Action::Replace(place),
        ]);
        if state.faults.crashes > 0 {
            all.push(Action::Kill(place));
            if place < ACTING {
                all.push(Action::Forget(place));
            }
        }
    }
    // That of the last of the three: the lists know of this one.
    if state.faults.wipes > 0 {
        all.push(Action::Wipe(2));
    }
    if state.faults.expiries > 0 {
        all.push(Action::Expire);
    }
    all
}

/// What everybody can see of a state.
pub struct Sight {
    views: Vec<Option<ServerReport>>,
    quorum: Option<Quorum>,
}

impl Sight {
    pub fn of(world: &World, state: &State) -> Self {
        let views: Vec<_> = (0..world.places).map(|place| state.view(world.lists, place)).collect();
        Self { quorum: Quorum::of(&views.iter().flatten().cloned().collect::<Vec<_>>()), views }
    }

    fn all(&self) -> Vec<ServerReport> {
        self.views.iter().flatten().cloned().collect()
    }
}

/// The state after something happened, if it can.
pub fn apply(world: &World, state: &State, sight: &Sight, action: &Action) -> Option<State> {
    let mut next = state.clone();
    match *action {
        Action::Bring(place) => bring(world, &mut next, place),
        Action::Decide(place) => decide(world, &mut next, sight, place),
        Action::Act(place) => act(world, &mut next, place),
        Action::RestartLock(place) => take_turn(world, &mut next, sight, place),
        Action::Scale(place) => scale(world, &mut next, sight, place),
        Action::Start(place) => begin(world, &mut next, place),
        Action::Sync(place) => {
            let (quorum, voters) = (next.quorum(), next.voters.clone());
            let at = &mut next.places[place];
            let volume = at.volume.as_mut().filter(|_| quorum && at.running.is_some())?;
            (volume.data, volume.voters) = (true, voters);
            Some(())
        }
        Action::Replace(place) => {
            let id = next.places[place].running.filter(|_| next.serves(place))?;
            let me = me(place);
            let newest = &world.sealed[next.agents[place].told.max(next.kept)];
            let over = start::is_replaced(id, &me, newest, &next.configuration(world.lists));
            over.then(|| next.places[place].running = None)
        }
        Action::Kill(place) => {
            next.faults.crashes -= 1;
            next.harmed = true;
            next.places[place].running.take().map(drop)
        }
        Action::Forget(place) => {
            next.faults.crashes -= 1;
            let pending = next.agents[place].pending.take()?;
            // The list may be kept, and the configuration not raised.
            if let Pending::Publish(index) = pending
                && next.quorum()
                && next.kept < index
            {
                (next.kept, next.fenced) = (index, false);
            }
            next.agents[place].published = None;
            Some(())
        }
        Action::Wipe(place) => {
            next.faults.wipes -= 1;
            next.harmed = true;
            let at = &mut next.places[place];
            at.volume.take()?;
            (at.running, at.aside) = (None, false);
            Some(())
        }
        Action::Expire => {
            next.faults.expiries -= 1;
            next.turn.take().map(drop)
        }
    }?;
    settle(&mut next);
    Some(next)
}

/// Who is back is no longer taken out.
fn settle(state: &mut State) {
    for place in 0..state.places.len() {
        if state.votes(place) {
            state.places[place].taken = None;
        }
    }
}

fn bring(world: &World, state: &mut State, place: usize) -> Option<()> {
    let told = state.agents[place].told;
    let known = world.replaces_the_lost && told == 0 && state.agents.iter().all(|agent| agent.told == 0);
    // The control plane must know of the loss; and the lists know which server that may be.
    if told + 1 == world.lists.len() || known && !state.places[2].lost {
        return None;
    }
    state.agents[place].told += 1;
    Some(())
}

/// The list that an agent accepts: the newest that it knows.
fn obeyed(state: &State, sight: &Sight, place: usize) -> usize {
    let told = state.agents[place].told;
    if sight.views.iter().flatten().any(|view| view.serving) { told.max(state.kept) } else { told }
}

fn decide(world: &World, state: &mut State, sight: &Sight, place: usize) -> Option<()> {
    // A step is taken through a server of the own cluster.
    if state.agents[place].pending.is_some() || !state.serves(place) {
        return None;
    }
    let index = obeyed(state, sight, place);
    let published = state.agents[place].published.map(|index| i64::try_from(index).unwrap() + 1);
    let due = membership::step(&world.sealed[index], &sight.all(), published);
    state.agents[place].pending = match due {
        Due::Done | Due::Wait(_) => return None,
        Due::Publish => Some(Pending::Publish(index)),
        Due::Reconfigure(step) => Some(Pending::Step {
            epoch: step.epoch,
            version: step.from_version,
            add: step.add.map(|added| added.id),
            remove: step.remove,
        }),
    };
    Some(())
}

fn act(world: &World, state: &mut State, place: usize) -> Option<()> {
    let pending = state.agents[place].pending.take()?;
    if pending == Pending::Delete {
        delete(state, place);
        return Some(());
    }
    if !state.serves(place) {
        return Some(());
    }
    match pending {
        Pending::Publish(index) if state.kept <= index => {
            if state.kept < index {
                (state.kept, state.fenced) = (index, false);
            }
            raise(state);
            state.agents[place].published = Some(index);
        }
        Pending::Step { epoch, version, add, remove } => {
            let kept = i64::try_from(state.kept).unwrap() + 1;
            let fences = world.broken != Broken::NoFence;
            if fences && kept > epoch {
                return Some(());
            }
            if fences && !state.fenced {
                raise(state);
                return Some(());
            }
            if fences && state.version != version {
                return Some(());
            }
            let mut voters: BTreeSet<i32> = state.voters.clone();
            voters.extend(add);
            voters.retain(|id| Some(*id) != remove);
            // ZooKeeper takes no configuration whose majority is not connected.
            if !majority(&voters, |id| state.runs(*id)) {
                return Some(());
            }
            if kept > epoch || state.version != version {
                state.wrong = Some("a step is made that was decided on another list or configuration");
            }
            state.voters.clone_from(&voters);
            state.version += 1;
            learn(state);
        }
        _ => {}
    }
    Some(())
}

/// Raises the configuration, if that is missing, so that older steps fail.
fn raise(state: &mut State) {
    if !state.fenced {
        state.version += 1;
        state.fenced = true;
    }
}

/// Whoever runs knows the new configuration.
fn learn(state: &mut State) {
    let voters = state.voters.clone();
    for place in &mut state.places {
        if let Some(volume) = place.volume.as_mut().filter(|volume| place.running.is_some() && volume.data) {
            volume.voters.clone_from(&voters);
        }
    }
}

fn next_of(world: &World, state: &State, sight: &Sight, place: usize) -> Next {
    let own = state.own(sight.views[place].clone(), place);
    let turn = sight.views.iter().flatten().find_map(|view| view.restart_lock.clone());
    let sight = restart::RestartInputs {
        revision: "new",
        own: &own,
        expected: own.len(),
        listed: world.sealed[obeyed(state, sight, place)].servers.len(),
        quorum: sight.quorum.as_ref(),
        formed: true,
        synced_voters: None,
        lock: turn.as_ref(),
        holder: &place.to_string(),
    };
    restart::next(sight)
}

fn take_turn(world: &World, state: &mut State, sight: &Sight, place: usize) -> Option<()> {
    if matches!(state.agents[place].pending, Some(Pending::Delete)) {
        return None;
    }
    match next_of(world, state, sight, place) {
        Next::Nothing | Next::Wait(_) => None,
        Next::Take { .. } => {
            if state.votes(place) {
                state.wrong = Some("a serving voter is taken out without the turn");
            }
            delete(state, place);
            Some(())
        }
        Next::TakeServing { server, held: false, .. } => {
            if state.turn.is_some() {
                return None;
            }
            state.turn = Some((place, server));
            Some(())
        }
        // Confirmed and looked at again at this very moment.
        Next::TakeServing { .. } if world.broken == Broken::LateDelete => {
            state.agents[place].pending = Some(Pending::Delete);
            Some(())
        }
        Next::TakeServing { .. } => {
            delete(state, place);
            Some(())
        }
        Next::Release(_) => state.turn.take().map(drop),
    }
}

/// A pod goes, and comes again with what is declared now.
fn delete(state: &mut State, place: usize) {
    if state.votes(place) {
        let down = |id: &i32| !state.places.iter().any(|other| other.running == Some(*id));
        if state.voters.iter().any(down) {
            state.wrong = Some("a serving voter is taken out while another one is down");
        }
        state.places[place].taken = state.places[place].running;
    }
    let at = &mut state.places[place];
    (at.running, at.new) = (None, true);
}

fn scale(world: &World, state: &mut State, sight: &Sight, place: usize) -> Option<()> {
    let newest = &world.sealed[obeyed(state, sight, place)];
    let wanted = i32::from(newest.servers.iter().any(|server| server.cluster == cluster(place)));
    let at = &state.places[place];
    let id = at.running.or(at.volume.as_ref().map(|volume| volume.id));
    let name = cluster(place);
    let voters = Voters { cluster: &name, set: "zk", list: newest, quorum: sight.quorum.as_ref() };
    let keep = voters.keep(wanted, i32::from(at.pod), |_| id).replicas > 0;
    let keep = if world.broken == Broken::StopVoters { wanted > 0 } else { keep };
    if keep == at.pod {
        return None;
    }
    if at.pod && state.votes(place) {
        state.wrong = Some("a voter is stopped for good");
    }
    let at = &mut state.places[place];
    if !at.pod {
        at.new = true;
    }
    (at.pod, at.running) = (keep, None);
    Some(())
}

fn begin(world: &World, state: &mut State, place: usize) -> Option<()> {
    let at = &state.places[place];
    if !at.pod || at.running.is_some() {
        return None;
    }
    // As the parent process does: whoever starts from its volume asks nobody.
    let observed = state.observed(world.lists, &world.sealed, place, false);
    let alone = start::decide(&observed);
    let listed = start::listed_id(&observed);
    let asks = !matches!(alone.decision, Decision::KeepOwn) || listed.is_some_and(|id| Some(id) != alone.id);
    let start = if asks { start::decide(&state.observed(world.lists, &world.sealed, place, true)) } else { alone };
    let at = &mut state.places[place];
    at.lost = start.lost;
    let id = start.id;
    match start.decision {
        Decision::KeepOwn => {
            at.running = id;
            Some(())
        }
        Decision::SeedAsObserver { servers } => {
            let id = id?;
            // Its own data stays, if it is its own.
            let data = at.volume.as_ref().is_some_and(|volume| volume.data && volume.id == id) && !start.set_aside;
            at.aside |= start.set_aside;
            let voters = servers.iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect();
            at.volume = Some(Volume { id, data, voters });
            at.running = Some(id);
            Some(())
        }
        Decision::SeedBootstrap { .. } => {
            state.wrong = Some("an ensemble that is there begins anew");
            Some(())
        }
        Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => Some(()),
    }
    .inspect(|()| debug_assert!(state.places[place].running.is_none_or(|id| home(world.lists, id) == place)))
}
