//! A member cluster: its agent and its servers, in coarse steps, with the agent's own safety rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mczk::{
    api::zookeeper::{Ensemble, Role, SUSPENDED, ServerStatus, ZooKeeperSpec, ZooKeeperStatus},
    contract::{server_list, spec_hash},
};

use crate::{
    World,
    operator::NAME,
    properties::Rule,
    state::{MemberCluster, NOW, Server, Shared, State, Truth, incarnation_number, name, voters_of},
};

/// An image that never starts.
pub const BAD_IMAGE: &str = "zookeeper:bad";

pub fn revision(spec: &ZooKeeperSpec) -> u64 {
    u64::from_str_radix(&spec.revision, 16).expect("a revision is hexadecimal")
}

/// True if an agent may accept a spec: it is intact, for this cluster, and has a server list.
fn accepts(spec: &ZooKeeperSpec, cluster: usize) -> bool {
    spec.cluster.as_deref() == Some(&name(cluster))
        && spec.ensemble != Ensemble::default()
        && server_list::with_hash(spec.ensemble.clone()).is_ok_and(|hashed| hashed == spec.ensemble)
        && serde_json::to_value(spec).is_ok_and(|spec| spec_hash::hash_matches(&spec))
}

/// True if ZooKeeper's configuration has a voter in this cluster.
pub fn votes(state: &State, cluster: usize) -> bool {
    state.members.get(cluster).is_some_and(|m| m.servers.iter().any(|s| state.votes(s)))
}

fn newer(list: &Ensemble, known: Option<&Shared<Ensemble>>) -> bool {
    known.is_none_or(|k| {
        let age = |list: &Ensemble| (incarnation_number(list.incarnation.as_ref()), list.epoch);
        age(k.get()) < age(list)
    })
}

/// True if the incarnation of a list has a tombstone.
fn is_over(state: &State, list: &Ensemble) -> bool {
    list.incarnation.as_ref().is_some_and(|id| state.tombstones.contains(id))
}

/// The agent reads its object and tombstones. `false` if nothing is new.
pub fn accept(world: &World, state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get(cluster).filter(|m| m.alive) else { return false };
    let mut next = member.clone();
    // Karmada delivers the tombstone, and the agent removes the servers.
    if member.ready && !member.servers.is_empty() && member.list.as_ref().is_some_and(|l| is_over(state, l.get())) {
        next.servers.clear();
        return put(state, cluster, next);
    }
    if let Some(spec) = &member.spec {
        let known = world.acceptances.lock().expect("no panic while held").get(&(spec.clone(), cluster)).copied();
        let may = known.unwrap_or_else(|| {
            let may = accepts(spec.get(), cluster);
            world.acceptances.lock().expect("no panic while held").insert((spec.clone(), cluster), may);
            may
        });
        let list = &spec.get().ensemble;
        if may && member.accepted.as_ref() != Some(spec) {
            if newer(list, member.list.as_ref()) {
                if member.list.as_ref().is_some_and(|known| known.get().incarnation != list.incarnation) {
                    // The list of a new incarnation names the former one.
                    next.servers.clear();
                    next.decommissioned = false;
                }
                next.list = Some(Shared::new(list.clone()));
            }
            next.accepted = Some(spec.clone());
            return put(state, cluster, next);
        }
        // A list of the same incarnation needs no accepted spec: the agent reports its epoch.
        let same = member.list.as_ref().is_none_or(|known| known.get().incarnation == list.incarnation);
        if list.epoch.is_some() && same && newer(list, member.list.as_ref()) {
            next.list = Some(Shared::new(list.clone()));
            return put(state, cluster, next);
        }
    }
    false
}

/// The next step of an agent and its servers. `false` if there is none.
pub fn step(world: &World, state: &mut State, cluster: usize) -> bool {
    if accept(world, state, cluster) || publish(state, cluster) {
        return true;
    }
    let Some(local) = Local::new(state, cluster) else { return false };
    if local.list.get().phase.is_ending() {
        return decommission(state, local);
    }
    if is_over(state, local.list.get()) || local.incarnation < state.truth.incarnation {
        return false;
    }
    if stop(state, &local) {
        return true;
    }
    let Some(spec) = local.member.accepted.clone().filter(|_| !local.member.lacks_secret) else { return false };
    suspend(state, &local, spec.get()) || create(state, &local, spec.get()) || change(state, &local, spec.get())
}

/// What an agent knows of its cluster and of the quorum.
struct Local {
    cluster: usize,
    member: MemberCluster,
    list: Shared<Ensemble>,
    /// Number of the list's incarnation.
    incarnation: usize,
    /// Ids of the listed voters, by ordinal.
    own: Vec<i32>,
    /// True if the agent sees a quorum. Servers of a former incarnation reach no other quorum.
    quorum: bool,
}

impl Local {
    fn new(state: &State, cluster: usize) -> Option<Self> {
        let member = state.members.get(cluster).filter(|m| m.alive)?.clone();
        let list = member.list.clone()?;
        let incarnation = incarnation_number(list.get().incarnation.as_ref());
        let own = voters_of(list.get(), &name(cluster));
        let quorum = state.quorum() && incarnation == state.truth.incarnation;
        Some(Self { cluster, member, list, incarnation, own, quorum })
    }

    /// Ids of the servers that are missing.
    fn missing(&self, spec: &ZooKeeperSpec) -> &[i32] {
        let wanted = usize::try_from(spec.replicas).unwrap_or(0).min(self.own.len());
        self.own.get(self.member.servers.len()..wanted).unwrap_or_default()
    }
}

/// The agent and the ensemble exchange the newest server list.
fn publish(state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get(cluster).filter(|m| m.alive && !m.servers.is_empty()) else { return false };
    let number = member.list.as_ref().map(|list| incarnation_number(list.get().incarnation.as_ref()));
    // Servers of a former incarnation reach no other quorum.
    if !state.quorum() || number != Some(state.truth.incarnation) {
        return false;
    }
    match (&state.truth.newest, &member.list) {
        (Some(newest), own) if newer(newest.get(), own.as_ref()) => {
            let next = MemberCluster { list: Some(newest.clone()), ..member.clone() };
            put(state, cluster, next)
        }
        (newest, Some(own)) if newer(own.get(), newest.as_ref()) => {
            state.truth.newest = Some(own.clone());
            true
        }
        _ => false,
    }
}

fn decommission(state: &mut State, local: Local) -> bool {
    if local.member.decommissioned || local.member.accepted.is_none() {
        return false;
    }
    if local.incarnation == state.truth.incarnation {
        state.truth.voters.clear();
    }
    put(state, local.cluster, MemberCluster { servers: Vec::new(), decommissioned: true, ..local.member })
}

/// Stops the last server, if the list no longer names it and it has no vote. Without a Work the agent removes the object last.
fn stop(state: &mut State, local: &Local) -> bool {
    let mut next = local.member.clone();
    let Some(last) = next.servers.pop() else { return false };
    let declared = next.accepted.as_ref().map_or(0, |spec| usize::try_from(spec.get().replicas).unwrap_or(0));
    let unwanted = next.servers.len() >= declared || next.work.is_none();
    if local.own.contains(&last.id) || !unwanted || !local.quorum || state.votes(&last) {
        return false;
    }
    if next.servers.is_empty() && next.work.is_none() {
        (next.spec, next.accepted) = (None, None);
    }
    put(state, local.cluster, next)
}

/// Suspends or resumes servers. A server that joined a quorum ignores the suspension.
fn suspend(state: &mut State, local: &Local, spec: &ZooKeeperSpec) -> bool {
    let suspends = local.list.get().phase.is_suspended();
    let mut next = local.member.clone();
    let changes = |s: &&mut Server| s.suspended != suspends && !(suspends && s.joined_quorum);
    if let Some(server) = next.servers.iter_mut().find(changes) {
        server.suspended = suspends;
        server.up &= !suspends;
        return put(state, local.cluster, next);
    }
    let missing = local.missing(spec);
    if !suspends || missing.is_empty() {
        return false;
    }
    let suspended = |id: &i32| Server { suspended: true, up: false, ..Server::new(local.incarnation, *id, spec) };
    next.servers.extend(missing.iter().map(suspended));
    put(state, local.cluster, next)
}

/// Creates all missing servers. One that joins needs the quorum.
fn create(state: &mut State, local: &Local, spec: &ZooKeeperSpec) -> bool {
    let (list, missing) = (local.list.get(), local.missing(spec));
    if missing.is_empty() || !list.phase.is_bootstrap() && !local.quorum {
        return false;
    }
    let mut next = local.member.clone();
    next.servers.extend(missing.iter().map(|id| Server::new(local.incarnation, *id, spec)));
    if state.truth.incarnation != local.incarnation {
        state.truth = Truth { incarnation: local.incarnation, ..Truth::default() };
    }
    // All servers of a bootstrap must start with one list.
    if list.phase.is_bootstrap() && !state.truth.formed {
        let servers: Vec<_> = list.servers.iter().map(|s| (s.id, s.host.clone())).collect();
        match &state.truth.bootstrap {
            Some(first) if *first != servers => state.breaks(Rule::S5),
            Some(_) => {}
            None => state.truth.bootstrap = Some(servers),
        }
    }
    put(state, local.cluster, next);
    form(state, local.cluster);
    true
}

/// Changes the first server that may change: it gets another id, starts, or restarts with the revision of the spec.
fn change(state: &mut State, local: &Local, spec: &ZooKeeperSpec) -> bool {
    let mut next = local.member.clone();
    for (ordinal, server) in next.servers.iter_mut().enumerate().filter(|(_, s)| !s.suspended) {
        // A server without a vote whose place is listed under another id starts again under that id.
        if let Some(id) = local.own.get(ordinal).filter(|id| **id != server.id) {
            if local.quorum && !state.votes(server) {
                *server = Server::new(local.incarnation, *id, spec);
                return put(state, local.cluster, next);
            }
        } else if server.revision == revision(spec) {
            if !server.lost && !server.up && server.image_works {
                server.up = true;
                put(state, local.cluster, next);
                form(state, local.cluster);
                return true;
            }
        } else if !server.lost && may_restart(state, local, spec, server) {
            let new = Server::new(local.incarnation, server.id, spec);
            (server.revision, server.image_works, server.up) = (new.revision, new.image_works, false);
            return put(state, local.cluster, next);
        }
    }
    false
}

/// The agent's restart lock: a serving voter restarts only while all others serve. With two voters, joiners join first. A spec
/// that is no longer assigned restarts none.
fn may_restart(state: &State, local: &Local, spec: &ZooKeeperSpec, server: &Server) -> bool {
    let assigned = local.member.spec.as_ref().is_some_and(|s| s.get().spec_hash == spec.spec_hash);
    let serving = local.quorum && server.up && state.votes(server);
    let up: Vec<i32> = state.up().collect();
    let voters = &state.truth.voters;
    let others_serve = voters.iter().all(|voter| *voter == server.id || up.contains(voter));
    let listed = local.list.get().servers.iter().filter(|s| s.role == Role::Voter).count();
    let few = voters.len() <= server_list::majority(voters.len()) && listed > voters.len();
    assigned && (!serving || others_serve && !few)
}

impl Server {
    /// A server on an empty volume.
    fn new(incarnation: usize, id: i32, spec: &ZooKeeperSpec) -> Self {
        let image_works = spec.template.image != BAD_IMAGE;
        Self {
            incarnation,
            id,
            revision: revision(spec),
            image_works,
            up: image_works,
            lost: false,
            suspended: false,
            joined_quorum: false,
        }
    }
}

/// Running voters of a quorum join it.
fn join_quorum(state: &mut State) {
    if !state.quorum() {
        return;
    }
    let truth = state.truth.clone();
    for server in state.members.iter_mut().filter(|m| m.alive).flat_map(|m| &mut m.servers) {
        server.joined_quorum |= server.up && truth.has_vote(server);
    }
}

fn put(state: &mut State, cluster: usize, member: MemberCluster) -> bool {
    state.members[cluster] = member;
    true
}

/// The bootstrap forms its quorum as soon as a majority of its list runs.
fn form(state: &mut State, cluster: usize) {
    let Some(list) = state.members[cluster].list.clone() else { return };
    let is_current = incarnation_number(list.get().incarnation.as_ref()) == state.truth.incarnation;
    if !state.truth.formed && list.get().phase.is_bootstrap() && is_current {
        let mut voters: Vec<i32> = list.get().servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        voters.sort_unstable();
        let runs = |s: &&Server| s.incarnation == state.truth.incarnation && s.up && voters.contains(&s.id);
        if state.members.iter().flat_map(|m| &m.servers).filter(runs).count() >= server_list::majority(voters.len()) {
            let incarnation = state.truth.incarnation;
            state.truth = Truth { incarnation, formed: true, voters, version: 1, bootstrap: None, newest: Some(list) };
        }
    }
    join_quorum(state);
}

/// One step of the ensemble towards its newest list: a server joins or leaves. Any agent may take it.
pub fn reconfigure(state: &mut State) -> bool {
    if !state.quorum() {
        return false;
    }
    let Some(list) = state.truth.newest.clone() else { return false };
    let listed: Vec<i32> = list.get().servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
    let running: Vec<i32> = state
        .members
        .iter()
        .filter(|m| m.alive)
        .flat_map(|m| &m.servers)
        .filter(|s| s.up && !s.lost && s.incarnation == state.truth.incarnation)
        .map(|s| s.id)
        .collect();
    let voters = &state.truth.voters;
    let dead = voters.iter().find(|v| !listed.contains(v) && !running.contains(v));
    let joiner = listed.iter().find(|l| !voters.contains(l) && running.contains(l));
    // Beside a listed server, a voter that leaves does not wait for joiners that do not run: both may need the same place. The
    // voters of a cluster that leaves as a whole stay while few others follow.
    let beside = |id: &i32| {
        let home = state.members.iter().position(|m| m.servers.iter().any(|s| s.id == *id));
        home.is_some_and(|cluster| list.get().servers.iter().any(|s| s.cluster == name(cluster)))
    };
    let few = voters.len() <= listed.len().min(3) && listed.iter().any(|l| !voters.contains(l));
    let leaver = voters.iter().filter(|v| !listed.contains(v)).find(|v| beside(v) || !few);
    let mut next = voters.clone();
    match (dead, joiner, leaver) {
        (Some(gone), _, _) | (None, None, Some(gone)) => next.retain(|v| v != gone),
        (None, Some(new), _) => next.push(*new),
        (None, None, None) => return false,
    }
    next.sort_unstable();
    // A majority of the old and of the new configuration takes part.
    if next.iter().filter(|v| running.contains(v)).count() <= next.len() / 2 {
        return false;
    }
    state.truth.voters = next;
    state.truth.version += 1;
    join_quorum(state);
    true
}

/// The status that the agent reports.
pub fn status(state: &State, cluster: usize) -> ZooKeeperStatus {
    let Some(member) = state.members.get(cluster) else { return ZooKeeperStatus::default() };
    let quorum = state.quorum();
    let serves = |s: &Server| quorum && member.alive && s.up && state.votes(s);
    let count = |f: &dyn Fn(&Server) -> bool| {
        i32::try_from(member.servers.iter().filter(|s| f(s)).count()).expect("few servers")
    };
    let serving = count(&serves);
    let list = member.list.as_ref().map(Shared::get);
    let naming = list.and_then(|l| l.incarnation.clone()).unwrap_or_default();
    let condition = |type_: &str, status: &str, reason: &str| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: reason.to_owned(),
        last_transition_time: Time(NOW),
        observed_generation: None,
    };
    let mut conditions = Vec::new();
    if member.decommissioned {
        conditions.push(condition("Decommissioned", "True", "Decommissioned"));
    }
    if member.servers.iter().any(|s| !s.image_works) {
        conditions.push(condition("Progressing", "False", "ImageFails"));
    }
    let spec_hash = member.accepted.as_ref().and_then(|s| s.get().spec_hash.clone());
    let leader = state.up().min().filter(|_| serving > 0);
    ZooKeeperStatus {
        completed_spec_hash: spec_hash.clone().filter(|_| complete(state, cluster)),
        observed_spec_hash: spec_hash,
        ensemble: list.cloned(),
        published_epoch: state.truth.newest.as_ref().and_then(|l| l.get().epoch).filter(|_| serving > 0),
        replicas: Some(count(&|_| true)),
        started_replicas: Some(count(&|s| s.up)),
        ready_replicas: Some(serving),
        servers: member
            .servers
            .iter()
            .zip(0..)
            .map(|(s, ordinal)| ServerStatus {
                id: s.id,
                pod: Some(format!("{NAME}-{naming}-{ordinal}")),
                serving: serves(s),
                mode: s.suspended.then(|| SUSPENDED.to_owned()),
                accepted_epoch: Some(i64::from(s.joined_quorum)),
                lost: s.lost,
                ..ServerStatus::default()
            })
            .collect(),
        voting_members: if serving > 0 { state.truth.voters.clone() } else { Vec::new() },
        config_version: (serving > 0).then_some(state.truth.version),
        leader,
        writable: Some(serving > 0),
        conditions,
        ..ZooKeeperStatus::default()
    }
}

/// True if the accepted spec is completed.
pub fn complete(state: &State, cluster: usize) -> bool {
    let Some(member) = state.members.get(cluster) else { return false };
    let Some(spec) = member.accepted.as_ref().map(Shared::get) else { return false };
    let quorum = state.quorum();
    i32::try_from(member.servers.len()) == Ok(spec.replicas)
        && member
            .servers
            .iter()
            .all(|s| s.up && s.revision == revision(spec) && (!state.truth.formed || (quorum && state.votes(s))))
}
