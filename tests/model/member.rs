//! A member cluster: its agent and its servers, in coarse steps, with the guards that the agent has of its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mczk::api::zookeeper::{Ensemble, Role, SUSPENDED, ServerStatus, ZooKeeperSpec, ZooKeeperStatus};
use mczk::contract::server_list;
use mczk::contract::spec_hash;

use crate::{
    World,
    operator::NAME,
    properties::Rule,
    state::{ClusterReport, NOW, Server, Shared, State, Truth, life, name, voters_of},
};

/// An image that never starts.
pub const BAD_IMAGE: &str = "zookeeper:bad";

pub fn revision(spec: &ZooKeeperSpec) -> u64 {
    u64::from_str_radix(&spec.revision, 16).expect("a revision is hexadecimal")
}

/// Whether an agent may obey a spec: its own cluster's, whole, with a list.
fn accepts(spec: &ZooKeeperSpec, cluster: usize) -> bool {
    spec.cluster.as_deref() == Some(&name(cluster))
        && spec.ensemble != Ensemble::default()
        && server_list::with_hash(spec.ensemble.clone()).is_ok_and(|sealed| sealed == spec.ensemble)
        && serde_json::to_value(spec).is_ok_and(|spec| spec_hash::hash_matches(&spec))
}

/// Whether ZooKeeper's configuration has a voter in this cluster.
pub fn votes(state: &State, cluster: usize) -> bool {
    state.reports.get(cluster).is_some_and(|m| m.servers.iter().any(|s| state.votes(s)))
}

fn newer(list: &Ensemble, known: Option<&Shared<Ensemble>>) -> bool {
    known.is_none_or(|k| {
        let age = |list: &Ensemble| (life(list.incarnation.as_ref()), list.epoch);
        age(k.get()) < age(list)
    })
}

/// Whether a list's life was noted as over.
fn is_over(state: &State, list: &Ensemble) -> bool {
    list.incarnation.as_ref().is_some_and(|id| state.ended.contains(id))
}

/// The agent looks at its object. `false`: it knows it.
pub fn see(world: &World, state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.reports.get(cluster).filter(|m| m.alive) else { return false };
    let mut next = member.clone();
    // Karmada brings the note, and the agent ends what is left.
    if member.ready && !member.servers.is_empty() && member.list.as_ref().is_some_and(|l| is_over(state, l.get())) {
        next.servers.clear();
        return put(state, cluster, next);
    }
    if let Some(spec) = &member.spec {
        let known = world.obeyed.lock().expect("no panic while held").get(&(spec.clone(), cluster)).copied();
        let may = known.unwrap_or_else(|| {
            let may = accepts(spec.get(), cluster);
            world.obeyed.lock().expect("no panic while held").insert((spec.clone(), cluster), may);
            may
        });
        if may && member.obeyed.as_ref() != Some(spec) {
            if newer(&spec.get().ensemble, member.list.as_ref()) {
                let told = &spec.get().ensemble;
                if member.list.as_ref().is_some_and(|known| known.get().incarnation != told.incarnation) {
                    // A new life; the list names the former one as over.
                    next.servers.clear();
                    next.dissolved = false;
                }
                next.list = Some(Shared::new(told.clone()));
            }
            next.obeyed = Some(spec.clone());
            return put(state, cluster, next);
        }
        // The list alone is for everybody, also before an own spec came: the epoch is known and reported. But not that of
        // another life.
        let list = &spec.get().ensemble;
        let same_life = member.list.as_ref().is_none_or(|known| known.get().incarnation == list.incarnation);
        if list.epoch.is_some() && same_life && newer(list, member.list.as_ref()) {
            next.list = Some(Shared::new(list.clone()));
            return put(state, cluster, next);
        }
    }
    false
}

/// The next step of an agent and its servers. `false`: there is nothing to do, or nothing that may be done.
#[allow(clippy::too_many_lines)]
pub fn step(world: &World, state: &mut State, cluster: usize) -> bool {
    if see(world, state, cluster) {
        return true;
    }
    let own_life = |member: &ClusterReport| {
        member.list.as_ref().is_some_and(|l| life(l.get().incarnation.as_ref()) == state.truth.life)
    };
    // Servers of a former life know of no other one's quorum.
    let quorum = state.quorum() && state.reports.get(cluster).is_some_and(own_life);
    let up: Vec<i32> = state.up().collect();
    let others_serve = |id: i32| quorum && state.truth.voters.iter().all(|voter| *voter == id || up.contains(voter));
    let Some(member) = state.reports.get(cluster) else { return false };
    if !member.alive {
        return false;
    }
    let mut next = member.clone();

    // The ensemble itself keeps the newest list.
    if quorum && !member.servers.is_empty() {
        match (&state.truth.newest, &member.list) {
            (Some(newest), own) if newer(newest.get(), own.as_ref()) => {
                next.list = Some(newest.clone());
                return put(state, cluster, next);
            }
            (newest, Some(own)) if newer(own.get(), newest.as_ref()) => {
                state.truth.newest = Some(own.clone());
                return true;
            }
            _ => {}
        }
    }
    let Some(list) = member.list.as_ref().map(Shared::get) else { return false };
    if list.phase.is_ending() {
        if member.dissolved || member.obeyed.is_none() {
            return false;
        }
        next.servers.clear();
        next.dissolved = true;
        if life(list.incarnation.as_ref()) == state.truth.life {
            state.truth.voters.clear();
        }
        return put(state, cluster, next);
    }
    let own = voters_of(list, &name(cluster));
    let current = life(list.incarnation.as_ref());
    if is_over(state, list) || current < state.truth.life {
        return false;
    }

    // What left for good goes; without Karmada's labels the object too.
    if let Some(last) = member.servers.last() {
        let ordinal = member.servers.len() - 1;
        let pinned = member.obeyed.as_ref().map_or(0, |s| usize::try_from(s.get().replicas).unwrap_or(0));
        let listed = own.contains(&last.id);
        let instructed = ordinal >= pinned || member.work.is_none();
        if !listed && instructed && state.truth.formed && !state.votes(last) && quorum {
            next.servers.pop();
            if next.servers.is_empty() && member.work.is_none() {
                next.spec = None;
                next.obeyed = None;
            }
            return put(state, cluster, next);
        }
    }
    let Some(spec) = member.obeyed.as_ref().map(Shared::get) else { return false };
    if member.lacks_secret {
        return false;
    }
    let wanted = usize::try_from(spec.replicas).unwrap_or(0).min(own.len());
    let sound = spec.template.image != BAD_IMAGE;

    // Whoever took part in a quorum goes on; all others are parked, and so is who would only be started.
    if list.phase.is_suspended() {
        if let Some(server) = next.servers.iter_mut().find(|s| !s.accepted && !s.parked) {
            (server.up, server.parked) = (false, true);
            return put(state, cluster, next);
        }
        if member.servers.len() < wanted {
            for id in own.iter().take(wanted).skip(member.servers.len()) {
                next.servers.push(Server { parked: true, ..server(current, *id, spec, false) });
            }
            return put(state, cluster, next);
        }
    } else if let Some(server) = next.servers.iter_mut().find(|s| s.parked) {
        server.parked = false;
        return put(state, cluster, next);
    }

    // Start.
    // A server that joins asks the living ensemble first; those that are there do not wait for it.
    if member.servers.len() < wanted && (list.phase.is_bootstrap() || quorum) {
        for id in own.iter().take(wanted).skip(member.servers.len()) {
            next.servers.push(server(current, *id, spec, sound));
        }
        if state.truth.life != current {
            state.truth = Truth { life: current, ..Truth::default() };
        }
        if list.phase.is_bootstrap() && !state.truth.formed {
            let servers: Vec<_> = list.servers.iter().map(|s| (s.id, s.host.clone())).collect();
            match &state.truth.bootstrap {
                Some(first) if *first != servers => state.breaks(Rule::S5),
                Some(_) => {}
                None => state.truth.bootstrap = Some(servers),
            }
        }
        put(state, cluster, next);
        form(state, cluster);
        return true;
    }
    for (ordinal, server) in member.servers.iter().enumerate().filter(|(_, s)| !s.parked) {
        let Some(new) = next.servers.get_mut(ordinal) else { continue };
        // A server that has left, and whose place is listed under another id, starts anew under it.
        if let Some(id) = own.get(ordinal).filter(|id| **id != server.id) {
            if quorum && !state.votes(server) {
                *new = self::server(current, *id, spec, sound);
                return put(state, cluster, next);
            }
            continue;
        }
        if server.lost {
            continue;
        }
        let serving = quorum && server.up && state.votes(server);
        if server.revision == revision(spec) {
            if !server.up && server.sound {
                new.up = true;
                put(state, cluster, next);
                form(state, cluster);
                return true;
            }
            continue;
        }
        // Without its pin the object instructs nothing: what was begun goes on no further.
        let instructed = member.spec.as_ref().is_some_and(|s| s.get().spec_hash == spec.spec_hash);
        // The agent's own lock: a serving voter is taken out only while all others serve; and none of two while more are to join.
        let voters = state.truth.voters.len();
        let few = voters <= voters / 2 + 1 && list.servers.iter().filter(|s| s.role == Role::Voter).count() > voters;
        if instructed && (!serving || others_serve(server.id) && !few) {
            new.revision = revision(spec);
            new.sound = sound;
            new.up = false;
            return put(state, cluster, next);
        }
    }
    false
}

/// A server that was never there before.
fn server(life: usize, id: i32, spec: &ZooKeeperSpec, up: bool) -> Server {
    let sound = spec.template.image != BAD_IMAGE;
    Server { life, id, revision: revision(spec), sound, up, lost: false, parked: false, accepted: false }
}

/// Voters that run while there is a quorum take part in it.
fn accept(state: &mut State) {
    if !state.quorum() {
        return;
    }
    let truth = state.truth.clone();
    for member in state.reports.iter_mut().filter(|m| m.alive) {
        for server in member.servers.iter_mut().filter(|s| s.up && s.life == truth.life && truth.voters.contains(&s.id))
        {
            server.accepted = true;
        }
    }
}

fn put(state: &mut State, cluster: usize, member: ClusterReport) -> bool {
    if let Some(slot) = state.reports.get_mut(cluster) {
        *slot = member;
    }
    true
}

/// A bootstrap forms its quorum once a majority of its list runs.
fn form(state: &mut State, cluster: usize) {
    let Some(list) = state.reports.get(cluster).and_then(|m| m.list.clone()) else { return };
    let own_life = life(list.get().incarnation.as_ref()) == state.truth.life;
    if state.truth.formed || !list.get().phase.is_bootstrap() || !own_life {
        accept(state);
        return;
    }
    let voters: Vec<i32> = list.get().servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
    let current = |s: &&Server| s.life == state.truth.life && s.up && voters.contains(&s.id);
    let up = state.reports.iter().flat_map(|m| &m.servers).filter(current).count();
    if up > voters.len() / 2 {
        state.truth.formed = true;
        state.truth.voters = voters;
        state.truth.voters.sort_unstable();
        state.truth.version = 1;
        state.truth.newest = Some(list);
        state.truth.bootstrap = None;
    }
    accept(state);
}

/// One step of the ensemble towards its newest list: a joiner is added, or one that leaves is removed. Any agent may take it.
pub fn reconfigure(state: &mut State) -> bool {
    if !state.quorum() {
        return false;
    }
    let Some(list) = state.truth.newest.clone() else { return false };
    let listed: Vec<i32> = list.get().servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
    let running: Vec<i32> = state
        .reports
        .iter()
        .filter(|m| m.alive)
        .flat_map(|m| &m.servers)
        .filter(|s| s.up && !s.lost && s.life == state.truth.life)
        .map(|s| s.id)
        .collect();
    let voters = &state.truth.voters;
    let dead = voters.iter().find(|v| !listed.contains(v) && !running.contains(v));
    let joiner = listed.iter().find(|l| !voters.contains(l) && running.contains(l));
    // Beside a listed server it does not wait for joiners that do not run yet: their cluster may come later than its own.
    // Servers of a cluster that leaves as a whole stay while few are left and others have still to join.
    let beside = |id: &i32| {
        let home = state.reports.iter().position(|m| m.servers.iter().any(|s| s.id == *id));
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
    accept(state);
    true
}

/// What an agent reports, as `status` of the member's object documents it.
pub fn status(state: &State, cluster: usize) -> ZooKeeperStatus {
    let Some(member) = state.reports.get(cluster) else { return ZooKeeperStatus::default() };
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
    if member.dissolved {
        conditions.push(condition("Decommissioned", "True", "Decommissioned"));
    }
    if member.servers.iter().any(|s| !s.sound) {
        conditions.push(condition("Progressing", "False", "ImageFails"));
    }
    let pin = member.obeyed.as_ref().and_then(|s| s.get().spec_hash.clone());
    let leader = state.up().min().filter(|_| serving > 0);
    ZooKeeperStatus {
        completed_spec_hash: pin.clone().filter(|_| complete(state, cluster)),
        observed_spec_hash: pin,
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
                mode: s.parked.then(|| SUSPENDED.to_owned()),
                accepted_epoch: Some(i64::from(s.accepted)),
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

/// Whether the obeyed spec is done.
pub fn complete(state: &State, cluster: usize) -> bool {
    let Some(member) = state.reports.get(cluster) else { return false };
    let Some(spec) = member.obeyed.as_ref().map(Shared::get) else { return false };
    let quorum = state.quorum();
    i32::try_from(member.servers.len()) == Ok(spec.replicas)
        && member
            .servers
            .iter()
            .all(|s| s.up && s.revision == revision(spec) && (!state.truth.formed || (quorum && state.votes(s))))
}
