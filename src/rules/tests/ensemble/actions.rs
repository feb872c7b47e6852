//! Actions in a state, and the state after each.

use std::{collections::BTreeSet, time::Duration};

use mczk_api::{
    contract::control_api::{Mode, Reconfiguration, RestartLock, ServerReport},
    zookeeper::Role,
};
use mczk_rules::{
    agent::decide::{
        membership::{self, MembershipStep},
        missing::MissingVoters,
        quorum::Quorum,
        replace::ReplaceStep,
        replica_floor::Voters,
        restart::{self, RestartStep},
    },
    server::{
        permitted_step::{self, Committed, Leading},
        start::{self, Decision},
    },
};

use crate::{
    Broken, World, replace,
    state::{Pending, Restarting, State, Volume, majority},
};

/// An action. A number is that of a place, or of a cluster and its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Karmada delivers the next list to a cluster.
    Deliver(usize),
    /// An agent decides on a membership step.
    Decide(usize),
    /// The agent takes the step that it decided on.
    Act(usize),
    /// An agent decides to delete a pod, or acquires or releases the restart lock.
    Look(usize),
    /// The agent decides again, and confirms the lock. Without a lock it deletes the pod at once.
    Confirm(usize),
    /// The agent deletes the pod.
    Delete(usize),
    /// An agent has missed a voter for long.
    Lapse(usize, i32),
    /// The leader has missed voters for long.
    Short,
    /// The pods of a cluster are created, or removed for good.
    Scale(usize),
    /// The parent process decides how to start, and starts.
    Start(usize),
    /// A server syncs with the others.
    Sync(usize),
    /// The parent process stops a server whose place has another id.
    Replace(usize),
    /// A step of a replacement of a volume.
    Volume(replace::Action),
    /// A cluster that is cut off is connected again.
    Connect,
    /// A leader that is cut off finds that it leads no longer.
    StepDown,
    /// An agent reaches all servers again.
    Unhide,
    /// The servers that stall answer again.
    Resume,
    /// A cluster gets its power back. The world must complete without it.
    Return,
    /// A client's write is acknowledged. One voter may lag.
    Write(Option<usize>),
    /// A server is killed.
    Kill(usize),
    /// An agent forgets its decisions, perhaps after half of a step.
    Forget(usize),
    /// A volume is lost with its pod.
    Wipe(usize),
    /// The session of the restart lock ends.
    Expire,
    /// The servers of a cluster are cut off from those of others. Agents reach all of them.
    Cut(usize),
    /// An agent does not reach one server.
    Hide(usize, usize),
    /// The servers of a cluster stall.
    Stall(usize),
    /// A stranger asks for the removal of a voter, or for a vote for a server.
    Stranger(Option<i32>, Option<i32>),
}

impl Action {
    pub fn is_fault(&self) -> bool {
        use Action::{Cut, Expire, Forget, Hide, Kill, Return, Stall, Stranger, Wipe, Write};
        let visible = matches!(self, Kill(_) | Forget(_) | Wipe(_) | Expire | Return | Cut(_) | Write(_));
        visible || matches!(self, Hide(..) | Stall(_) | Stranger(..))
    }
}

pub fn actions(world: &World, state: &State) -> Vec<Action> {
    let mut all = vec![Action::Connect, Action::StepDown, Action::Unhide, Action::Resume, Action::Return];
    let clusters = world.clusters();
    if world.demotes {
        all.push(Action::Short);
    }
    for cluster in 0..clusters {
        if cluster < world.acting {
            all.extend([Action::Decide(cluster), Action::Act(cluster)]);
            let voters = state.voters.iter().filter(|_| world.demotes);
            all.extend(voters.map(|id| Action::Lapse(cluster, *id)));
        }
        all.extend([Action::Deliver(cluster), Action::Scale(cluster)]);
        all.extend([Action::Look(cluster), Action::Confirm(cluster), Action::Delete(cluster)]);
    }
    for place in 0..world.places {
        all.extend([Action::Start(place), Action::Sync(place), Action::Replace(place)]);
    }
    all.extend(replace::actions(world).into_iter().map(Action::Volume));
    let faults = state.faults;
    if faults.crashes > 0 {
        all.extend((0..world.places).map(Action::Kill));
        all.extend((0..clusters.min(world.acting)).map(Action::Forget));
    }
    // The last of the three places: the lists replace its id.
    if faults.wipes > 0 {
        all.push(Action::Wipe(2));
    }
    if faults.expiries > 0 {
        all.push(Action::Expire);
    }
    if faults.writes > 0 {
        all.push(Action::Write(None));
        all.extend((0..world.places).map(|place| Action::Write(Some(place))));
    }
    if faults.cuts > 0 && state.cut.is_none() {
        all.extend((0..clusters).map(Action::Cut));
    }
    if faults.hides > 0 && state.hidden.is_none() {
        let agents =
            (0..clusters.min(world.acting)).flat_map(|agent| (0..world.places).map(move |place| (agent, place)));
        all.extend(agents.map(|(agent, place)| Action::Hide(agent, place)));
    }
    if faults.stalls > 0 && state.stalled.is_none() {
        all.extend((0..clusters).map(Action::Stall));
    }
    if faults.strangers > 0 {
        all.extend(state.voters.iter().map(|id| Action::Stranger(None, Some(*id))));
        let ids: BTreeSet<i32> = world.lists.iter().flat_map(|list| list.iter()).map(|(id, _)| *id).collect();
        all.extend(ids.into_iter().map(|id| Action::Stranger(Some(id), None)));
    }
    all
}

/// What one agent sees of a state.
#[derive(Clone)]
pub struct Sight {
    views: Vec<Option<ServerReport>>,
    quorum: Option<Quorum>,
}

impl Sight {
    fn of(views: Vec<Option<ServerReport>>) -> Self {
        Self { quorum: Quorum::of(&views.iter().flatten().cloned().collect::<Vec<_>>()), views }
    }

    pub fn all(&self) -> Vec<ServerReport> {
        self.views.iter().flatten().cloned().collect()
    }

    /// The voters that the agent misses at this moment.
    fn missing(&self) -> MissingVoters {
        MissingVoters::default().after(&self.all(), Duration::ZERO)
    }

    /// The lock, and the leader's count of followers, as the agent reads them.
    fn lock(&self) -> Option<&RestartLock> {
        self.views.iter().flatten().filter(|view| view.serving).find_map(|view| view.restart_lock.as_ref())
    }

    fn synced_voters(&self) -> Option<i32> {
        let leaders = self.views.iter().flatten().filter(|view| view.mode == Some(Mode::Leader) && view.serving);
        leaders.max_by_key(|view| view.zxid).and_then(|view| view.synced_voters)
    }
}

/// What the agents see of a state: most see everything.
pub struct Reports {
    everything: Sight,
    partial: Option<(usize, Sight)>,
}

impl Reports {
    pub fn of(world: &World, state: &State) -> Self {
        let off = |place: &usize| state.away != Some(world.cluster(*place));
        let views: Vec<_> =
            (0..world.places).map(|place| Some(place).filter(off).and_then(|place| state.view(world, place))).collect();
        let partial = state.hidden.map(|(agent, place)| {
            let mut views = views.clone();
            views[place] = None;
            (agent, Sight::of(views))
        });
        Self { everything: Sight::of(views), partial }
    }

    fn of_agent(&self, agent: usize) -> &Sight {
        match &self.partial {
            Some((blind, sight)) if *blind == agent => sight,
            _ => &self.everything,
        }
    }
}

/// The state after an action, if the action is possible.
pub fn apply(world: &World, state: &State, reports: &Reports, action: &Action) -> Option<State> {
    let mut next = state.clone();
    match *action {
        Action::Deliver(cluster) => deliver(world, &mut next, cluster),
        Action::Decide(cluster) => decide(world, &mut next, reports.of_agent(cluster), cluster),
        Action::Act(cluster) => act(world, &mut next, cluster),
        Action::Look(cluster) => look(world, &mut next, reports.of_agent(cluster), cluster),
        Action::Confirm(cluster) => confirm(world, &mut next, reports.of_agent(cluster), cluster),
        Action::Delete(cluster) => finish(world, &mut next, cluster),
        Action::Lapse(cluster, id) => {
            let missing = reports.of_agent(cluster).missing().lasting(Duration::ZERO);
            (missing.contains(&id) && next.lapsed[cluster].insert(id)).then_some(())
        }
        Action::Short => {
            next.short = next.leader(world).filter(|_| next.is_short(world));
            Some(())
        }
        Action::Scale(cluster) => scale(world, &mut next, reports.of_agent(cluster), cluster),
        Action::Start(place) => start_server(world, &mut next, place),
        Action::Sync(place) => sync(world, &mut next, place),
        Action::Replace(place) => {
            let id = next.places[place].running.filter(|_| next.opens_sessions(world, place))?;
            let newest = &world.hashed[next.agents[world.cluster(place)].delivered.max(next.published)];
            let over = start::is_replaced(id, &world.me(place), newest, &next.configuration(world));
            over.then(|| next.places[place].running = None)
        }
        Action::Volume(ref step) => replace::apply(world, &mut next, |agent| reports.of_agent(agent).clone(), step),
        Action::Connect => next.cut.take().map(|_| next.stale = None),
        Action::StepDown => next.stale.take().map(drop),
        Action::Unhide => next.hidden.take().map(drop),
        Action::Resume => next.stalled.take().map(drop),
        Action::Return => next.away.take().map(|_| next.harmed = true),
        _ => fault(world, &mut next, action),
    }?;
    settle(world, &mut next);
    Some(next)
}

fn fault(world: &World, next: &mut State, action: &Action) -> Option<()> {
    match *action {
        Action::Write(lag) => write(world, next, lag),
        Action::Kill(place) => {
            next.faults.crashes -= 1;
            next.harmed = true;
            next.places[place].running.take().map(drop)
        }
        Action::Forget(cluster) => {
            next.faults.crashes -= 1;
            let pending = next.agents[cluster].pending.take();
            let restarting = std::mem::take(&mut next.agents[cluster].restarting);
            let replacing = next.replacements.forget(cluster);
            if pending.is_none() && restarting == Restarting::Nothing && !replacing {
                return None;
            }
            // The ensemble may have the list already, although the configuration is not raised.
            if let Some(Pending::Publish(index)) = pending
                && next.quorum(world)
                && next.published < index
            {
                (next.published, next.fenced) = (index, false);
            }
            next.agents[cluster].published = None;
            next.lapsed[cluster].clear();
            Some(())
        }
        Action::Wipe(place) => {
            next.faults.wipes -= 1;
            next.harmed = true;
            // Two volumes of three at once are more than an ensemble can lose.
            let whole = next.voters.len() == world.lists[0].len() && !next.lack_volume(world, &next.voters);
            if !world.requests.is_empty() && (next.replacements.delete() || !whole) {
                return None;
            }
            let at = &mut next.places[place];
            at.volume.take()?;
            (at.running, at.aside) = (None, false);
            Some(())
        }
        Action::Expire => {
            next.faults.expiries -= 1;
            // The deletion follows the confirmation within a third of the time that a session lives.
            let confirmed = |(holder, _): (usize, i32)| {
                (matches!(next.agents[holder].restarting, Restarting::Confirmed { .. })
                    || next.replacements.is_confirmed(holder))
                    && world.broken != Broken::LateDelete
            };
            let (holder, _) = next.lock.take_if(|lock| !confirmed(*lock))?;
            // The agent measures the time since it acquired the lock, and decides from the start.
            if world.broken != Broken::LateConfirmation {
                next.replacements.lose_lock(holder);
            }
            Some(())
        }
        Action::Cut(cluster) => {
            let leader = next.leader(world);
            next.faults.cuts -= 1;
            (next.cut, next.harmed) = (Some(cluster), true);
            let lost = leader.filter(|leader| !next.votes(world, *leader));
            next.stale = lost.map(|leader| (leader, next.version));
            Some(())
        }
        Action::Hide(agent, place) => {
            next.faults.hides -= 1;
            next.hidden = Some((agent, place));
            Some(())
        }
        Action::Stall(cluster) => {
            (next.faults.stalls, next.stalled) = (next.faults.stalls - 1, Some(cluster));
            Some(())
        }
        Action::Stranger(add, remove) => stranger(world, next, add, remove),
        _ => None,
    }
}

/// A stranger with the quorum's identity asks the leader for a step.
fn stranger(world: &World, next: &mut State, add: Option<i32>, remove: Option<i32>) -> Option<()> {
    next.faults.strangers -= 1;
    let add = add.map(|id| world.configured(id, Role::Voter));
    let epoch = i64::try_from(next.published).unwrap() + 1;
    let step = Reconfiguration { epoch, from_version: next.version, add, remove };
    permitted_step::check(&step, committed(world, next, &step)).ok()?;
    let listed = |id: i32| world.lists[next.published].iter().any(|(other, _)| *other == id);
    if let Some(id) = step.remove.filter(|id| world.demotes && listed(*id)) {
        next.violation = wrong_demotion(world, next, id, tolerance_of(world, next));
    } else if step.remove.is_some_and(listed) || step.add.as_ref().is_some_and(|added| !listed(added.id)) {
        next.violation = Some("a stranger changes the membership");
    }
    None.or(next.violation.map(drop))
}

/// A server that votes again is back from its restart.
fn settle(world: &World, state: &mut State) {
    for place in 0..state.places.len() {
        if state.votes(world, place) {
            state.places[place].restarted = None;
        }
    }
    if world.demotes {
        settle_missing(world, state);
    }
}

/// A voter that an agent sees again is no longer missing, and neither are those of another leader or of a whole count.
fn settle_missing(world: &World, state: &mut State) {
    state.short = state.short.filter(|leader| state.leader(world) == Some(*leader) && state.is_short(world));
    let reports = Reports::of(world, state);
    for cluster in 0..world.acting {
        let quorum = reports.of_agent(cluster).quorum.clone();
        let views = reports.of_agent(cluster).all();
        let sees = |id: &i32| views.iter().any(|view| view.id == Some(*id) && view.serving);
        let voters = quorum.map(|quorum| quorum.voters()).unwrap_or_default();
        state.lapsed[cluster].retain(|id| !sees(id) && voters.contains(id));
    }
}

fn deliver(world: &World, state: &mut State, cluster: usize) -> Option<()> {
    if !world.requests.is_empty() {
        state.agents[cluster].delivered = replace::next_list(world, state, cluster)?;
        return Some(());
    }
    let delivered = state.agents[cluster].delivered;
    let awaits_loss =
        world.replaces_the_lost && delivered == 0 && state.agents.iter().all(|agent| agent.delivered == 0);
    // The operator must know of the loss, and the lists replace only one id.
    let is_off = state.away == Some(cluster);
    if delivered + 1 == world.lists.len() || is_off || awaits_loss && !state.places[2].lost {
        return None;
    }
    state.agents[cluster].delivered += 1;
    Some(())
}

/// A majority holds the write. All voters that follow receive it, except one that lags.
fn write(world: &World, state: &mut State, lag: Option<usize>) -> Option<()> {
    state.faults.writes -= 1;
    let last = state.acknowledged;
    let receives = |place: &usize| state.serves(world, *place) && state.log(*place) == last && Some(*place) != lag;
    let places: Vec<usize> = (0..world.places).filter(receives).collect();
    let acknowledges = |id: &i32| places.iter().any(|place| state.places[*place].running == Some(*id));
    if !majority(&state.voters, acknowledges) || lag.is_some_and(|place| !state.votes(world, place)) {
        return None;
    }
    for place in places {
        state.places[place].volume.as_mut()?.log += 1;
    }
    state.acknowledged += 1;
    Some(())
}

fn sync(world: &World, state: &mut State, place: usize) -> Option<()> {
    let (voters, log, step) = (state.voters.clone(), state.acknowledged, state.step);
    if !state.attached(world, place) {
        return None;
    }
    let volume = state.places[place].volume.as_mut()?;
    (volume.log, volume.voters, volume.step) = (log, voters, step);
    Some(())
}

/// The list that an agent accepts: the newest delivered or published one.
pub fn accepted(state: &State, sight: &Sight, cluster: usize) -> usize {
    let delivered = state.agents[cluster].delivered;
    if sight.views.iter().flatten().any(|view| view.serving) { delivered.max(state.published) } else { delivered }
}

/// An agent takes steps through a server of its own cluster.
fn serves_in(world: &World, state: &State, cluster: usize) -> bool {
    world.places_of(cluster).any(|place| state.opens_sessions(world, place))
}

fn decide(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    if state.agents[cluster].pending.is_some() || !serves_in(world, state, cluster) {
        return None;
    }
    let index = accepted(state, sight, cluster);
    let published = state.agents[cluster].published.map(|index| i64::try_from(index).unwrap() + 1);
    let due = membership::step(&world.hashed[index], &sight.all(), published, &state.lapsed[cluster]);
    state.agents[cluster].pending = match due {
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

fn act(world: &World, state: &mut State, cluster: usize) -> Option<()> {
    let pending = state.agents[cluster].pending.take()?;
    if !serves_in(world, state, cluster) {
        return Some(());
    }
    match pending {
        Pending::Publish(index) if state.published <= index => {
            if state.published < index {
                (state.published, state.fenced) = (index, false);
            }
            raise(state);
            state.agents[cluster].published = Some(index);
        }
        Pending::Publish(_) => {}
        Pending::Step { epoch, version, add, remove } => {
            let added = add.map(|id| world.configured(id, Role::Voter));
            let step = Reconfiguration { epoch, from_version: version, add: added, remove };
            reconfigure(world, state, &step);
        }
    }
    Some(())
}

/// What the control port of the leader reads of the ensemble. A step that takes the vote of a listed voter goes there.
fn committed<'a>(world: &'a World, state: &'a State, step: &Reconfiguration) -> Committed<'a> {
    let list = Some(&world.hashed[state.published]);
    let leads = state.leader(world).map(|leader| Leading {
        synced: state.followers(world),
        short_for: if state.short == Some(leader) { Duration::from_secs(3600) } else { Duration::ZERO },
        answers: step.remove.is_some_and(|id| answers(world, state, leader, id)),
    });
    Committed { list, voters: &state.voters, locked: state.lock.map(|(_, server)| server), leads }
}

/// True if a server answers the leader that it takes part in a quorum.
fn answers(world: &World, state: &State, leader: usize, id: i32) -> bool {
    let home = world.home(id);
    state.opens_sessions(world, home)
        && state.places[home].running == Some(id)
        && state.connects(world.cluster(leader), world.cluster(home))
}

/// What is wrong with a step that takes the vote of a listed voter.
fn wrong_demotion(
    world: &World,
    state: &State,
    id: i32,
    tolerance: impl Fn(&BTreeSet<i32>) -> isize,
) -> Option<&'static str> {
    let after: BTreeSet<i32> = state.voters.iter().copied().filter(|voter| *voter != id).collect();
    if state.runs(world, id) && state.log(world.home(id)) > 0 {
        return Some("a voter that follows loses its vote");
    }
    if state.lock.is_some_and(|(_, server)| server == id) {
        return Some("the server with the restart lock loses its vote");
    }
    if state.short.is_none() {
        return Some("a voter loses its vote although the leader has not missed it for long");
    }
    (tolerance(&after) < tolerance(&state.voters)).then_some("a demotion lowers the number of servers that can be lost")
}

/// A membership step, as the control port and `ZooKeeper` take or refuse it.
fn reconfigure(world: &World, state: &mut State, step: &Reconfiguration) {
    let published = i64::try_from(state.published).unwrap() + 1;
    let fences = world.broken != Broken::NoFence;
    if fences && permitted_step::check(step, committed(world, state, step)).is_err() {
        return;
    }
    if fences && !state.fenced {
        raise(state);
        return;
    }
    if fences && state.version != step.from_version {
        return;
    }
    let mut voters: BTreeSet<i32> = state.voters.clone();
    voters.extend(step.add.as_ref().map(|added| added.id));
    voters.retain(|id| Some(*id) != step.remove);
    // ZooKeeper commits a configuration by a majority of the old and of the new voters, which then hold all writes before it.
    let holds = |id: &i32| state.runs(world, *id) && state.log(world.home(*id)) == state.acknowledged;
    if !majority(&state.voters, holds) || !majority(&voters, holds) {
        return;
    }
    if published > step.epoch || state.version != step.from_version {
        state.violation = Some("a step was taken that was decided on another list or configuration");
    }
    // A fault after the decision may have made the step worse than it was. More than the declared tolerance is a surplus.
    let listed = world.lists[state.published].len();
    let most = listed.cast_signed() - (listed / 2 + 1).cast_signed();
    let of = tolerance_of(world, state);
    let lowers = of(&voters) < of(&state.voters).min(most);
    let demoted = step.remove.filter(|id| world.lists[state.published].iter().any(|(other, _)| other == id));
    let wrong = demoted.and_then(|id| wrong_demotion(world, state, id, &of));
    let lowered = (world.least > 0 && !state.harmed && lowers)
        .then_some("a step lowers the number of servers that the ensemble can lose");
    drop(of);
    state.violation = state.violation.or(wrong).or(lowered);
    // Every server that follows stores the new configuration.
    let followers: Vec<usize> = (0..world.places).filter(|place| state.serves(world, *place)).collect();
    state.voters.clone_from(&voters);
    state.version += 1;
    state.step += 1;
    for place in followers {
        if let Some(volume) = state.places[place].volume.as_mut() {
            (volume.voters, volume.step) = (voters.clone(), state.step);
        }
    }
}

/// How many of these voters may stop before no majority of them runs.
fn tolerance_of<'a>(world: &'a World, state: &'a State) -> impl Fn(&BTreeSet<i32>) -> isize + 'a {
    move |voters| {
        let alive = voters.iter().filter(|id| state.runs(world, **id)).count();
        alive.cast_signed() - (voters.len() / 2 + 1).cast_signed()
    }
}

/// Raises the configuration's version after a new list, so that older steps fail.
fn raise(state: &mut State) {
    if !state.fenced {
        state.version += 1;
        state.fenced = true;
    }
}

fn next_restart(world: &World, state: &State, sight: &Sight, cluster: usize) -> RestartStep {
    with_restart_inputs(world, state, sight, cluster, restart::next_step)
}

/// What an agent bases a restart on.
pub fn with_restart_inputs<T>(
    world: &World,
    state: &State,
    sight: &Sight,
    cluster: usize,
    decide: impl FnOnce(restart::RestartInputs<'_>) -> T,
) -> T {
    let servers = state.local_servers(world, &sight.views, cluster);
    let ending = state.replacements.ending(world, cluster);
    decide(restart::RestartInputs {
        revision: "new",
        servers: &servers,
        expected_servers: servers.len(),
        listed: &world.hashed[accepted(state, sight, cluster)].servers.iter().map(|server| server.id).collect(),
        quorum: sight.quorum.as_ref(),
        formed: true,
        synced_voters: if world.broken == Broken::BelieveStaleLeader { Some(i32::MAX) } else { sight.synced_voters() },
        pods_that_stay: &ending.iter().map(|pod| (pod.as_str(), "its volume is being deleted")).collect(),
        election: std::time::Duration::ZERO,
        lock: sight.lock(),
        holder: &cluster.to_string(),
    })
}

/// The place of a pod.
pub fn place_of(world: &World, cluster: usize, pod: &str) -> usize {
    world.places_of(cluster).find(|place| world.pod(*place) == pod).unwrap()
}

/// The restart of a pod that an agent decides on.
fn restart_of(world: &World, cluster: usize, step: &RestartStep) -> Restarting {
    match step {
        RestartStep::Restart { pod, .. } => Restarting::Looked { place: place_of(world, cluster, pod), locked: false },
        RestartStep::RestartServing { pod, held: true, .. } => {
            Restarting::Looked { place: place_of(world, cluster, pod), locked: true }
        }
        _ => Restarting::Nothing,
    }
}

/// True if the agent reaches a server of the quorum besides the one that it restarts.
pub fn reaches_another(world: &World, state: &State, sight: &Sight, server: usize) -> bool {
    (0..world.places).any(|place| place != server && sight.views[place].is_some() && state.opens_sessions(world, place))
}

fn look(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    let acts = state.agents[cluster].restarting != Restarting::Nothing || state.replacements.is_begun(cluster);
    if acts || state.away == Some(cluster) {
        return None;
    }
    // As in `decide`: the agent restarts nothing while it replaces a volume.
    if matches!(replace::next_step(world, state, sight, cluster), ReplaceStep::Delete(_)) {
        return None;
    }
    let step = next_restart(world, state, sight, cluster);
    match &step {
        RestartStep::Nothing | RestartStep::Wait(_) => None,
        RestartStep::Restart { .. } | RestartStep::RestartServing { held: true, .. } => {
            state.agents[cluster].restarting = restart_of(world, cluster, &step);
            Some(())
        }
        RestartStep::RestartServing { pod, server, .. } => {
            if state.lock.is_some() || !reaches_another(world, state, sight, place_of(world, cluster, pod)) {
                return None;
            }
            state.lock = Some((cluster, *server));
            Some(())
        }
        RestartStep::Release(_) => {
            state.lock.take_if(|_| state.agents[cluster].restarting == Restarting::Nothing).map(drop)
        }
    }
}

fn confirm(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    let looked = std::mem::take(&mut state.agents[cluster].restarting);
    let Restarting::Looked { place, locked } = looked else { return None };
    let decides = || restart_of(world, cluster, &next_restart(world, state, sight, cluster)) == looked;
    if world.broken != Broken::NoConfirmation && !decides() {
        return Some(());
    }
    if !locked {
        if state.votes(world, place) {
            state.violation = Some("a serving voter restarts without the lock");
        }
        delete(world, state, place);
        return Some(());
    }
    if state.lock.is_none_or(|(holder, _)| holder != cluster) || !reaches_another(world, state, sight, place) {
        return Some(());
    }
    let follows = |id: &i32| state.votes(world, world.home(*id));
    if state.votes(world, place) && !state.voters.iter().all(follows) {
        state.violation = Some("a restart of a serving voter is confirmed while another voter is down");
    }
    state.agents[cluster].restarting = Restarting::Confirmed { place };
    Some(())
}

fn finish(world: &World, state: &mut State, cluster: usize) -> Option<()> {
    let Restarting::Confirmed { place } = state.agents[cluster].restarting else { return None };
    state.agents[cluster].restarting = Restarting::Nothing;
    delete(world, state, place);
    Some(())
}

/// A pod is deleted and comes back with the declared revision.
fn delete(world: &World, state: &mut State, place: usize) {
    if state.votes(world, place) {
        state.places[place].restarted = state.places[place].running;
    }
    let at = &mut state.places[place];
    (at.running, at.new) = (None, true);
}

fn scale(world: &World, state: &mut State, sight: &Sight, cluster: usize) -> Option<()> {
    if state.away == Some(cluster) {
        return None;
    }
    let newest = &world.hashed[accepted(state, sight, cluster)];
    let name = format!("c{cluster}");
    let count = |number: usize| i32::try_from(number).unwrap();
    let wanted = count(newest.servers.iter().filter(|server| server.cluster == name).count());
    let places: Vec<usize> = world.places_of(cluster).collect();
    let live = count(places.iter().filter(|place| state.places[**place].pod).count());
    let id = |ordinal: i32| {
        let at = &state.places[*places.get(usize::try_from(ordinal).ok()?)?];
        at.running.or(at.volume.as_ref().map(|volume| volume.id))
    };
    let voters = Voters { cluster: &name, set: "zk", list: newest, quorum: sight.quorum.as_ref() };
    let floor = voters.min_replicas(wanted, live, id).replicas;
    let runs = if world.broken == Broken::StopVoters { wanted } else { floor };
    if runs == live {
        return None;
    }
    for (ordinal, place) in places.into_iter().enumerate() {
        let pod = count(ordinal) < runs;
        if pod == state.places[place].pod {
            continue;
        }
        if !pod && state.votes(world, place) {
            state.violation = Some("a voter is stopped for good");
        }
        let at = &mut state.places[place];
        at.new |= pod;
        (at.pod, at.running) = (pod, None);
    }
    Some(())
}

fn start_server(world: &World, state: &mut State, place: usize) -> Option<()> {
    let at = &state.places[place];
    if !at.pod || at.running.is_some() || state.away == Some(world.cluster(place)) {
        return None;
    }
    // As in the parent process: a server that starts from its own volume polls no other.
    let observed = state.observed(world, place, false);
    let alone = start::decide(&observed);
    let listed = start::listed_id(&observed);
    let polls = !matches!(alone.decision, Decision::KeepOwn) || listed.is_some_and(|id| Some(id) != alone.id);
    let start = if polls { start::decide(&state.observed(world, place, true)) } else { alone };
    let step = state.step;
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
            let same = at.volume.as_ref().filter(|volume| volume.id == id && !start.set_aside);
            let log = same.map_or(0, |volume| volume.log);
            at.aside |= start.set_aside;
            let voters = servers.iter().filter(|server| server.role == Role::Voter).map(|server| server.id).collect();
            at.volume = Some(Volume { id, log, voters, step });
            at.running = Some(id);
            Some(())
        }
        Decision::SeedBootstrap { .. } => {
            state.violation = Some("an existing ensemble is bootstrapped again");
            Some(())
        }
        Decision::AskAgent(_) | Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => Some(()),
    }
    .inspect(|()| debug_assert!(state.places[place].running.is_none_or(|id| world.home(id) == place)))
}
