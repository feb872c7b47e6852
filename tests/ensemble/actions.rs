//! Actions in a state, and the state after each.

use std::collections::BTreeSet;

use mczk::{
    agent::decide::{
        membership::{self, MembershipStep},
        quorum::Quorum,
        replica_floor::Voters,
        restart::{self, RestartStep},
    },
    api::zookeeper::Role,
    contract::control_api::ServerReport,
    server::start::{self, Decision},
};

use crate::{
    Broken, World,
    state::{Pending, State, Volume, cluster, home, majority, me},
};

/// An action. Its number is that of a place, and of the agent in that cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Karmada delivers the next list.
    Deliver(usize),
    /// An agent decides on a membership step.
    Decide(usize),
    /// The agent takes the step that it decided on.
    Act(usize),
    /// An agent deletes a pod, or acquires or releases the restart lock.
    Restart(usize),
    /// A pod is created, or removed for good.
    Scale(usize),
    /// The parent process decides how to start, and starts.
    Start(usize),
    /// A server syncs with the others.
    Sync(usize),
    /// The parent process stops a server whose place has another id.
    Replace(usize),
    /// A server is killed.
    Kill(usize),
    /// An agent forgets its decision, perhaps after half of a step.
    Forget(usize),
    /// A volume is lost with its pod.
    Wipe(usize),
    /// The session of the restart lock ends.
    Expire,
}

impl Action {
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Kill(_) | Self::Forget(_) | Self::Wipe(_) | Self::Expire)
    }
}

/// Agents that take membership steps: those of the first two clusters, whose servers stay. A third agent would only repeat
/// their steps.
const ACTING: usize = 2;

pub fn actions(world: &World, state: &State) -> Vec<Action> {
    let mut all = Vec::new();
    for place in 0..world.places {
        if place < ACTING {
            all.extend([Action::Decide(place), Action::Act(place)]);
        }
        all.extend([
            Action::Deliver(place),
            Action::Restart(place),
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
    // The last of the three places: the lists replace its id.
    if state.faults.wipes > 0 {
        all.push(Action::Wipe(2));
    }
    if state.faults.expiries > 0 {
        all.push(Action::Expire);
    }
    all
}

/// What every agent sees of a state.
pub struct Reports {
    views: Vec<Option<ServerReport>>,
    quorum: Option<Quorum>,
}

impl Reports {
    pub fn of(world: &World, state: &State) -> Self {
        let views: Vec<_> = (0..world.places).map(|place| state.view(world.lists, place)).collect();
        Self { quorum: Quorum::of(&views.iter().flatten().cloned().collect::<Vec<_>>()), views }
    }

    fn all(&self) -> Vec<ServerReport> {
        self.views.iter().flatten().cloned().collect()
    }
}

/// The state after an action, if the action is possible.
pub fn apply(world: &World, state: &State, reports: &Reports, action: &Action) -> Option<State> {
    let mut next = state.clone();
    match *action {
        Action::Deliver(place) => deliver(world, &mut next, place),
        Action::Decide(place) => decide(world, &mut next, reports, place),
        Action::Act(place) => act(world, &mut next, place),
        Action::Restart(place) => restart(world, &mut next, reports, place),
        Action::Scale(place) => scale(world, &mut next, reports, place),
        Action::Start(place) => start_server(world, &mut next, place),
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
            let newest = &world.hashed[next.agents[place].delivered.max(next.published)];
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
            // The ensemble may have the list already, although the configuration is not raised.
            if let Pending::Publish(index) = pending
                && next.quorum()
                && next.published < index
            {
                (next.published, next.fenced) = (index, false);
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
            next.lock.take().map(drop)
        }
    }?;
    settle(&mut next);
    Some(next)
}

/// A server that votes again is back from its restart.
fn settle(state: &mut State) {
    for place in 0..state.places.len() {
        if state.votes(place) {
            state.places[place].restarted = None;
        }
    }
}

fn deliver(world: &World, state: &mut State, place: usize) -> Option<()> {
    let delivered = state.agents[place].delivered;
    let awaits_loss =
        world.replaces_the_lost && delivered == 0 && state.agents.iter().all(|agent| agent.delivered == 0);
    // The operator must know of the loss, and the lists replace only one id.
    if delivered + 1 == world.lists.len() || awaits_loss && !state.places[2].lost {
        return None;
    }
    state.agents[place].delivered += 1;
    Some(())
}

/// The list that an agent accepts: the newest delivered or published one.
fn accepted(state: &State, reports: &Reports, place: usize) -> usize {
    let delivered = state.agents[place].delivered;
    if reports.views.iter().flatten().any(|view| view.serving) { delivered.max(state.published) } else { delivered }
}

fn decide(world: &World, state: &mut State, reports: &Reports, place: usize) -> Option<()> {
    // An agent takes steps through a server of its own cluster.
    if state.agents[place].pending.is_some() || !state.serves(place) {
        return None;
    }
    let index = accepted(state, reports, place);
    let published = state.agents[place].published.map(|index| i64::try_from(index).unwrap() + 1);
    let due = membership::step(&world.hashed[index], &reports.all(), published);
    state.agents[place].pending = match due {
        MembershipStep::Done | MembershipStep::Wait(_) => return None,
        MembershipStep::Publish => Some(Pending::Publish(index)),
        MembershipStep::Reconfigure(step) => Some(Pending::Step {
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
        Pending::Publish(index) if state.published <= index => {
            if state.published < index {
                (state.published, state.fenced) = (index, false);
            }
            raise(state);
            state.agents[place].published = Some(index);
        }
        Pending::Step { epoch, version, add, remove } => {
            let published = i64::try_from(state.published).unwrap() + 1;
            let fences = world.broken != Broken::NoFence;
            if fences && published > epoch {
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
            // ZooKeeper refuses a configuration whose majority is not connected.
            if !majority(&voters, |id| state.runs(*id)) {
                return Some(());
            }
            if published > epoch || state.version != version {
                state.violation = Some("a step was taken that was decided on another list or configuration");
            }
            state.voters.clone_from(&voters);
            state.version += 1;
            learn(state);
        }
        _ => {}
    }
    Some(())
}

/// Raises the configuration's version after a new list, so that older steps fail.
fn raise(state: &mut State) {
    if !state.fenced {
        state.version += 1;
        state.fenced = true;
    }
}

/// Every running server stores the new configuration.
fn learn(state: &mut State) {
    let voters = state.voters.clone();
    for place in &mut state.places {
        if let Some(volume) = place.volume.as_mut().filter(|volume| place.running.is_some() && volume.data) {
            volume.voters.clone_from(&voters);
        }
    }
}

fn next_restart(world: &World, state: &State, reports: &Reports, place: usize) -> RestartStep {
    let servers = state.local_servers(reports.views[place].clone(), place);
    let lock = reports.views.iter().flatten().find_map(|view| view.restart_lock.clone());
    let inputs = restart::RestartInputs {
        revision: "new",
        servers: &servers,
        expected: servers.len(),
        listed: world.hashed[accepted(state, reports, place)].servers.len(),
        quorum: reports.quorum.as_ref(),
        formed: true,
        synced_voters: None,
        lock: lock.as_ref(),
        holder: &place.to_string(),
    };
    restart::next_step(inputs)
}

fn restart(world: &World, state: &mut State, reports: &Reports, place: usize) -> Option<()> {
    if matches!(state.agents[place].pending, Some(Pending::Delete)) {
        return None;
    }
    match next_restart(world, state, reports, place) {
        RestartStep::Nothing | RestartStep::Wait(_) => None,
        RestartStep::Restart { .. } => {
            if state.votes(place) {
                state.violation = Some("a serving voter restarts without the lock");
            }
            delete(state, place);
            Some(())
        }
        RestartStep::RestartServing { server, held: false, .. } => {
            if state.lock.is_some() {
                return None;
            }
            state.lock = Some((place, server));
            Some(())
        }
        // In the real agent the confirmation and the second poll are as recent.
        RestartStep::RestartServing { .. } if world.broken == Broken::LateDelete => {
            state.agents[place].pending = Some(Pending::Delete);
            Some(())
        }
        RestartStep::RestartServing { .. } => {
            delete(state, place);
            Some(())
        }
        RestartStep::Release(_) => state.lock.take().map(drop),
    }
}

/// A pod is deleted and comes back with the declared revision.
fn delete(state: &mut State, place: usize) {
    if state.votes(place) {
        let down = |id: &i32| !state.places.iter().any(|other| other.running == Some(*id));
        if state.voters.iter().any(down) {
            state.violation = Some("a serving voter restarts while another voter is down");
        }
        state.places[place].restarted = state.places[place].running;
    }
    let at = &mut state.places[place];
    (at.running, at.new) = (None, true);
}

fn scale(world: &World, state: &mut State, reports: &Reports, place: usize) -> Option<()> {
    let newest = &world.hashed[accepted(state, reports, place)];
    let wanted = i32::from(newest.servers.iter().any(|server| server.cluster == cluster(place)));
    let at = &state.places[place];
    let id = at.running.or(at.volume.as_ref().map(|volume| volume.id));
    let name = cluster(place);
    let voters = Voters { cluster: &name, set: "zk", list: newest, quorum: reports.quorum.as_ref() };
    let floor = voters.min_replicas(wanted, i32::from(at.pod), |_| id).replicas > 0;
    let runs = if world.broken == Broken::StopVoters { wanted > 0 } else { floor };
    if runs == at.pod {
        return None;
    }
    if at.pod && state.votes(place) {
        state.violation = Some("a voter is stopped for good");
    }
    let at = &mut state.places[place];
    if !at.pod {
        at.new = true;
    }
    (at.pod, at.running) = (runs, None);
    Some(())
}

fn start_server(world: &World, state: &mut State, place: usize) -> Option<()> {
    let at = &state.places[place];
    if !at.pod || at.running.is_some() {
        return None;
    }
    // As in the parent process: a server that starts from its own volume polls no other.
    let observed = state.observed(world.lists, &world.hashed, place, false);
    let alone = start::decide(&observed);
    let listed = start::listed_id(&observed);
    let polls = !matches!(alone.decision, Decision::KeepOwn) || listed.is_some_and(|id| Some(id) != alone.id);
    let start = if polls { start::decide(&state.observed(world.lists, &world.hashed, place, true)) } else { alone };
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
            // Data of the same id stays.
            let data = at.volume.as_ref().is_some_and(|volume| volume.data && volume.id == id) && !start.set_aside;
            at.aside |= start.set_aside;
            let voters = servers.iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect();
            at.volume = Some(Volume { id, data, voters });
            at.running = Some(id);
            Some(())
        }
        Decision::SeedBootstrap { .. } => {
            state.violation = Some("an existing ensemble is bootstrapped again");
            Some(())
        }
        Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => Some(()),
    }
    .inspect(|()| debug_assert!(state.places[place].running.is_none_or(|id| home(world.lists, id) == place)))
}
