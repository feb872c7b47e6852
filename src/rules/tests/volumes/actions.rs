//! Actions in a state, and the state after each. A number is that of a server.

use std::time::Duration;

use mczk_api::{
    contract::control_api::{Phase, ServerReport},
    zookeeper::{Ensemble, Role, ZooKeeperStatus},
};
use mczk_rules::{
    agent::decide::{
        first_start::{self, LocalServers},
        local_server::LocalServer,
    },
    server::start::{self, Decision, Start, StartInputs},
};

use crate::state::{DAMAGED, Process, Server, State, Trouble, Volume, id, listed_in};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The parent process decides how to start.
    Start(usize),
    /// The parent process of the damaged server does so while something disturbs it.
    StartIn(Trouble),
    /// The agent records the first start of a server, or answers it. Other agents do both at once.
    Agent(usize),
    /// The object of a server's cluster is deleted, and Karmada creates it again without its status.
    Recreate(usize),
    /// A server's cluster is lost, and built again under its name. Karmada delivers the newest list.
    Rebuild(usize),
    /// Karmada delivers the next phase to the damaged server, or to both others.
    Deliver(bool),
    /// All servers that may vote elect a leader, except this one.
    Elect(Option<usize>),
    /// A server joins the quorum.
    Join(usize),
    /// A client's write is acknowledged.
    Write,
    /// `ZooKeeper` writes a snapshot.
    Snapshot(usize),
    /// A server is killed.
    Kill(usize),
    /// `ZooKeeper` exits, and its parent process lives on.
    Exit(usize),
    /// A full disk leaves a part of a snapshot.
    Partial(usize),
    /// The storage copies a volume.
    Save(usize),
    /// A volume is lost.
    Wipe(usize),
    /// A volume returns as it was.
    Restore,
    /// Files of a volume are gone: all logs, the newest or the oldest one.
    DeleteLogs(usize),
    DeleteNewestLog(usize),
    DeleteOldestLog(usize),
    /// The end of the newest log is gone.
    CutLog(usize),
    /// The newest snapshot is damaged.
    DamageSnapshot(usize),
}

impl Action {
    pub const fn is_damage(self) -> bool {
        use Action::{CutLog, DamageSnapshot, DeleteLogs, DeleteNewestLog, DeleteOldestLog, Rebuild, Restore, Wipe};
        let is_of_logs = matches!(self, DeleteLogs(_) | DeleteNewestLog(_) | DeleteOldestLog(_) | CutLog(_));
        is_of_logs || matches!(self, Wipe(_) | Rebuild(_) | Restore | DamageSnapshot(_))
    }
}

/// What happens to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is lost, or returns as it was at an earlier moment.
    Returns,
    /// Files of it are missing or partial.
    Files,
    /// Two are lost, while only servers and clients act.
    Lost,
}

pub fn actions(state: &State, damage: Damage) -> Vec<Action> {
    use Action::{
        Agent, CutLog, DamageSnapshot, DeleteLogs, DeleteNewestLog, DeleteOldestLog, Deliver, Exit, Join, Kill,
        Partial, Rebuild, Recreate, Save, Snapshot, Start, StartIn, Wipe,
    };
    let mut all = vec![Action::Write, Action::Elect(None)];
    for server in 0..state.servers.len() {
        all.extend([Start(server), Action::Elect(Some(server)), Join(server), Kill(server)]);
    }
    all.extend((0..state.damaged).map(Agent));
    if damage != Damage::Lost {
        all.extend([
            Deliver(true),
            Deliver(false),
            Snapshot(DAMAGED),
            Partial(DAMAGED),
            Exit(DAMAGED),
            Recreate(DAMAGED),
        ]);
        all.extend((state.damaged..state.servers.len()).map(|other| StartIn(Trouble::Late(other))));
    }
    match damage {
        Damage::Returns => all.extend([Action::Restore, Save(DAMAGED), Wipe(DAMAGED), Rebuild(DAMAGED)]),
        Damage::Files => {
            all.push(StartIn(Trouble::Unread));
            all.extend([DeleteLogs(DAMAGED), DeleteNewestLog(DAMAGED), DeleteOldestLog(DAMAGED)]);
            all.extend([CutLog(DAMAGED), DamageSnapshot(DAMAGED)]);
        }
        Damage::Lost => all.extend((0..state.damaged).map(Wipe)),
    }
    // `ZooKeeper` exits when its files are gone.
    let is_idle = |server: usize| state.servers[server].process != Process::Running;
    all.retain(|action| match action {
        Wipe(server) => is_idle(*server) && state.budget.damage > 0,
        action => !action.is_damage() || is_idle(DAMAGED) && state.budget.damage > 0,
    });
    all
}

/// The state after an action, if the action is possible.
pub fn apply(state: &State, action: Action) -> Option<State> {
    let mut next = state.clone();
    match action {
        Action::StartIn(trouble) => start_server(&mut next, DAMAGED, trouble),
        Action::Start(server) => start_server(&mut next, server, Trouble::None).map(|()| {
            if server >= next.damaged && next.servers[server].wants.is_some() {
                let _ = ask_agent(&mut next, server).and_then(|()| ask_agent(&mut next, server));
                let _ = start_server(&mut next, server, Trouble::None);
            }
        }),
        Action::Agent(server) => ask_agent(&mut next, server),
        Action::Recreate(server) => recreate(&mut next, server),
        Action::Rebuild(server) => rebuild(&mut next, server),
        Action::Deliver(damaged) => deliver(&mut next, damaged),
        Action::Elect(without) => elect(&mut next, without),
        Action::Join(server) => join(&mut next, server),
        Action::Write => write(&mut next),
        Action::Snapshot(server) => snapshot(&mut next, server),
        Action::Kill(server) => kill(&mut next, server),
        Action::Exit(server) => exit(&mut next, server),
        Action::Partial(server) => partial(&mut next, server),
        Action::Save(server) => save(&mut next, server),
        Action::Restore => restore(&mut next),
        damage => damage_volume(&mut next, damage),
    }?;
    next.settle();
    next.rename_identities();
    Some(next)
}

/// The search has no start with an old copy that no process knows: docs/explanation/safety.md.
fn start_server(state: &mut State, server: usize, trouble: Trouble) -> Option<()> {
    if state.servers[server].process == Process::Running || state.is_unknown_copy(server) {
        return None;
    }
    let start = decide(state, server, trouble)?;
    let fresh = state.new_identity();
    let at = &mut state.servers[server];
    at.process = Process::Waiting;
    if !start.decision.starts() {
        let asks = matches!(start.decision, Decision::AskAgent(_));
        at.wants = at.wants.or(Some(fresh)).filter(|_| asks);
        at.answer = at.answer.filter(|_| asks);
        return Some(());
    }
    let volume = &mut at.volume;
    let useless = if trouble == Trouble::Unread { Vec::new() } else { volume.files.useless_snapshots() };
    volume.files.snapshots.retain(|snapshot| !useless.contains(&snapshot.zxid));
    if start.copies_first {
        volume.marker = false;
        if volume.files.logs.is_empty() {
            volume.files.snapshots.clear();
        }
    }
    if let Decision::SeedBootstrap { initialize, .. } = start.decision {
        if let Some(identity) = at.wants {
            volume.identity = identity;
        }
        (volume.seeded, volume.marker) = (true, initialize);
        volume.generations.seeded |= !initialize && volume.generations.own == 0;
    }
    // `ZooKeeper` uses the marker up, and writes an empty snapshot.
    if volume.marker && volume.end().is_none() {
        volume.add_snapshot(0, true);
    }
    volume.marker = false;
    (at.process, at.written, at.wants, at.answer) = (Process::Running, volume.mark(), None, None);
    Some(())
}

/// As in the parent process: a server that starts from its own volume asks no other. `None` if it waits for a late answer.
fn decide(state: &State, server: usize, trouble: Trouble) -> Option<Start> {
    let alone = start::decide(&state.observed(server, false, trouble));
    let inputs: StartInputs = state.observed(server, true, trouble);
    let asks = alone.decision != Decision::KeepOwn;
    let waits = matches!(trouble, Trouble::Late(_)) && !start::needs_no_answer(&inputs);
    if asks { (!waits).then(|| start::decide(&inputs)) } else { Some(alone) }
}

/// The agent reads its status, records a first start in it, or answers by what is stored.
fn ask_agent(state: &mut State, server: usize) -> Option<()> {
    let (list, before) = (state.list(server), state.recorded(server));
    let at = &state.servers[server];
    let first_start = at.wants.filter(|_| at.process == Process::Waiting)?.to_string();
    let view: ServerReport = serde_json::from_value(serde_json::json!({
        "id": id(server), "pod": "", "incarnation": "abc", "phase": Phase::Waiting { reason: String::new() },
        "revision": "", "serving": false, "synced": false, "acceptedEpoch": 0, "lost": false,
        "volume": "", "firstStart": first_start,
    }))
    .unwrap();
    let local = LocalServer {
        pod: String::new(),
        uid: String::new(),
        role: Role::Voter,
        ordinal: 0,
        id: Some(id(server)),
        revision: String::new(),
        ready: false,
        runs: false,
        terminating: false,
        orphaned: false,
        overdue: false,
        drain: None,
        needs_mount: false,
        failure: None,
        view: Some(view),
        unready_for: Duration::ZERO,
    };
    let status = ZooKeeperStatus { ensemble: Some(list.clone()), first_starts: before, ..ZooKeeperStatus::default() };
    let servers = [local];
    let local = LocalServers { cluster: &listed_in(server), servers: &servers };
    let number = |first: Option<&mczk_api::zookeeper::FirstStart>| first.and_then(|first| first.volume.parse().ok());
    let record = number(first_start::record(&status, &list, local).first());
    let answer = number(first_start::answers(&status, &list, &servers).first());
    let at = &mut state.servers[server];
    if record == at.record {
        at.answer = answer.or(at.answer);
    } else {
        at.record = record;
    }
    Some(())
}

/// The agent releases the object while it sees a quorum, if the object holds nothing that is needed. What it then records of a
/// volume fits no volume.
fn recreate(state: &mut State, server: usize) -> Option<()> {
    let list = state.list(server);
    if !state.has_quorum() || first_start::is_needed(&list) {
        return None;
    }
    forget_record(state, server, &list);
    Some(())
}

/// The first record of an object without a status.
fn forget_record(state: &mut State, server: usize, list: &Ensemble) {
    let local = LocalServers { cluster: &listed_in(server), servers: &[] };
    let again = first_start::record(&ZooKeeperStatus::default(), list, local);
    let has_begun = again.iter().any(|first| !first.is_unused(list));
    state.servers[server].record = has_begun.then(|| state.new_identity());
}

fn rebuild(state: &mut State, server: usize) -> Option<()> {
    state.budget.damage = state.budget.damage.checked_sub(1)?;
    state.saved = None;
    let volume = Volume::new(state.new_identity());
    state.servers[server] = Server::new(volume, state.newest_list());
    let list = state.list(server);
    forget_record(state, server, &list);
    Some(())
}

fn deliver(state: &mut State, damaged: bool) -> Option<()> {
    let newest = state.newest_list();
    let to = state.servers.filter_mut(|server, at| (server == DAMAGED) == damaged && at.list < newest);
    (to.map(|at| at.list += 1).count() > 0).then_some(())
}

fn elect(state: &mut State, without: Option<usize>) -> Option<()> {
    if state.has_quorum() {
        return None;
    }
    let members: Vec<usize> =
        (0..state.servers.len()).filter(|server| state.may_elect(*server) && Some(*server) != without).collect();
    if members.len() <= state.servers.len() / 2 || without.is_some_and(|without| !state.may_elect(without)) {
        return None;
    }
    state.elect(&members);
    Some(())
}

fn join(state: &mut State, server: usize) -> Option<()> {
    let joins =
        state.servers[server].process == Process::Running && !state.servers[server].serves && state.has_quorum();
    joins.then(|| state.follow(server))
}

fn write(state: &mut State) -> Option<()> {
    state.budget.writes = state.budget.writes.checked_sub(1).filter(|_| state.has_quorum())?;
    let zxid = state.next_zxid();
    state.history.push(zxid);
    state.servers.filter_mut(|_, server| server.serves).for_each(|server| server.volume.append(zxid));
    state.raise();
    Some(())
}

fn snapshot(state: &mut State, server: usize) -> Option<()> {
    state.budget.snapshots = state.budget.snapshots.checked_sub(1)?;
    let at = &mut state.servers[server];
    let end = at.volume.end().filter(|_| at.serves)?;
    at.volume.add_snapshot(end, true);
    state.raise();
    Some(())
}

fn kill(state: &mut State, server: usize) -> Option<()> {
    let at = &mut state.servers[server];
    if at.process == Process::Down {
        return None;
    }
    (at.process, at.written, at.serves, at.wants, at.answer) = (Process::Down, None, false, None, None);
    Some(())
}

fn exit(state: &mut State, server: usize) -> Option<()> {
    let at = &mut state.servers[server];
    (at.process == Process::Running).then(|| (at.process, at.serves) = (Process::Waiting, false))
}

fn partial(state: &mut State, server: usize) -> Option<()> {
    state.budget.partial = state.budget.partial.checked_sub(1)?;
    let at = &mut state.servers[server];
    let end = at.volume.end().filter(|_| at.process == Process::Running)?;
    if at.volume.files.snapshots.iter().any(|snapshot| snapshot.zxid == end) {
        return None;
    }
    at.volume.add_snapshot(end, false);
    Some(())
}

fn save(state: &mut State, server: usize) -> Option<()> {
    let is_new = state.saved.is_none() && state.budget.damage > 0 && state.servers[server].volume.seeded;
    is_new.then(|| state.saved = Some((server, state.servers[server].volume.clone())))
}

fn restore(state: &mut State) -> Option<()> {
    let (server, volume) = state.saved.take()?;
    state.budget.damage = state.budget.damage.checked_sub(1)?;
    state.servers[server].volume = volume;
    Some(())
}

fn damage_volume(state: &mut State, action: Action) -> Option<()> {
    state.budget.damage = state.budget.damage.checked_sub(1)?;
    state.saved = None;
    let fresh = state.new_identity();
    let files = |state: &mut State, server: usize| std::mem::take(&mut state.servers[server].volume.files);
    let (server, changed) = match action {
        Action::Wipe(server) => {
            state.servers[server].volume = Volume::new(fresh);
            return Some(());
        }
        Action::DeleteLogs(server) => (server, {
            let mut files = files(state, server);
            files.logs.clear();
            files
        }),
        Action::DeleteNewestLog(server) => (server, {
            let mut files = files(state, server);
            files.logs.pop()?;
            files
        }),
        Action::DeleteOldestLog(server) => {
            let mut files = files(state, server);
            if files.logs.is_empty() {
                return None;
            }
            files.logs.remove(0);
            (server, files)
        }
        Action::CutLog(server) => {
            let mut files = files(state, server);
            let log = files.logs.last_mut()?;
            let (first, last) = log.runs.pop()?;
            log.runs.extend((first < last).then(|| (first, last - 1)));
            (server, files)
        }
        Action::DamageSnapshot(server) => {
            let mut files = files(state, server);
            files.snapshots.last_mut()?.complete = false;
            (server, files)
        }
        _ => return None,
    };
    state.servers[server].volume.files = changed;
    Some(())
}
