//! A member cluster: the real rules of agent and server, in coarse steps.
//!
//! The agent decides by [`decide`], and a server starts by [`start::decide`]. Here is only what they observe, and what their
//! decisions do to the world.

use std::{collections::BTreeSet, sync::Arc};

use mczk_api::{
    ZooKeeper,
    contract::{
        control_api::{Configuration, ConfiguredServer, Phase, ServerReport},
        labels::{APPLIED_HASH, ENSEMBLE_LABEL, KARMADA_MANAGED_LABEL, REPLACE_VOLUME},
        naming::Naming,
        server_list,
    },
    mutation::Mutation,
    zookeeper::{Ensemble, Role, ZooKeeperSpec, ZooKeeperStatus},
};
use mczk_rules::{
    agent::{
        decide::{
            Decision,
            accept::{acceptance, delivered_lists},
            decide,
            local_server::LocalServer,
            membership::MembershipStep,
            observation::{Claim, Observation, ServerSet},
            restart::RestartStep,
        },
        render::source,
    },
    server::{
        start::{self, Peers, PodIdentity, StartInputs, StoredServer},
        volume_age::VolumeAge,
    },
};

#[path = "../agent_inputs/mod.rs"]
mod agent_inputs;

use agent_inputs::{configuration, local_server, looking, observation, serving};

use crate::{
    World,
    operator::NAME,
    properties::Rule,
    replace,
    state::{MemberCluster, NOW, Server, Shared, State, Truth, incarnation_number, incarnation_of, name},
};

/// An image that never starts.
pub const BAD_IMAGE: &str = "zookeeper:bad";

/// Everything that an agent's decision depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    cluster: usize,
    managed: bool,
    read: Shared<ZooKeeperSpec>,
    status: Option<Shared<ZooKeeperStatus>>,
    request: Option<String>,
    tombstones: BTreeSet<String>,
    truth: Truth,
    /// The servers of each cluster whose nodes run.
    servers: Vec<Vec<Server>>,
}

/// An agent's decision.
pub struct Decided {
    decision: Decision,
    status: Shared<ZooKeeperStatus>,
    /// The server list of the decision.
    list: Option<Shared<Ensemble>>,
}

/// True if ZooKeeper's configuration has a voter in this cluster.
pub fn votes(state: &State, cluster: usize) -> bool {
    state.members.get(cluster).is_some_and(|m| m.servers.iter().any(|s| state.votes(s)))
}

/// The agent reads its object and the tombstones that Karmada delivered. `false` if nothing is new.
pub fn read(state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get_mut(cluster).filter(|m| m.alive) else { return false };
    let before = (member.read.clone(), member.tombstones.clone());
    if member.ready {
        member.tombstones.clone_from(&state.tombstones);
    }
    member.read.clone_from(&member.spec);
    before != (member.read.clone(), member.tombstones.clone())
}

/// Every agent reports, and writes the server list for its servers.
pub fn report(world: &World, state: &mut State) {
    for cluster in 0..state.members.len() {
        let Some(decided) = decision(world, state, cluster) else { continue };
        let member = &mut state.members[cluster];
        let accepts = |spec: &&Shared<ZooKeeperSpec>| {
            spec.get().spec_hash.is_some() && spec.get().spec_hash == decided.status.get().observed_spec_hash
        };
        member.accepted = member.read.as_ref().filter(accepts).or(member.accepted.as_ref()).cloned();
        member.status = Some(decided.status.clone());
        if decided.decision.replicas.is_some() {
            member.assigned.clone_from(&decided.list);
        }
    }
}

/// The next step of an agent and its servers. `false` if there is none.
pub fn step(world: &World, state: &mut State, cluster: usize) -> bool {
    if read(state, cluster) {
        return true;
    }
    let Some(decided) = decision(world, state, cluster) else { return false };
    let decision = &decided.decision;
    if remove(state, cluster, decision) {
        return true;
    }
    let Some(list) = &decision.list else { return false };
    // The truth is that of the newest incarnation. Servers of a former one reach no quorum.
    if incarnation_number(list.incarnation.as_ref()) < state.truth.incarnation {
        return false;
    }
    publish(state, cluster, decision)
        || scale(state, cluster, decision)
        || start_servers(state, cluster)
        || replace::act(state, cluster, decision)
        || restart(state, cluster, decision)
}

/// What an agent decides, if it runs and has an object.
fn decision(world: &World, state: &State, cluster: usize) -> Option<Arc<Decided>> {
    let member = state.members.get(cluster).filter(|m| m.alive)?;
    let scene = Scene {
        cluster,
        managed: member.work.is_some(),
        read: member.read.clone()?,
        status: member.status.clone(),
        request: member.request.clone(),
        tombstones: member.tombstones.clone(),
        truth: state.truth.clone(),
        servers: state.members.iter().map(|m| if m.alive { m.servers.clone() } else { Vec::new() }).collect(),
    };
    if let Some(known) = world.decisions.lock().expect("no panic while held").get(&scene) {
        return Some(known.clone());
    }
    let decision = Mutation::with(world.mutation, || decide(&observe(state, &scene), NOW));
    let status = Shared::new(decision.status.clone());
    let list = decision.list.clone().map(Shared::new);
    let decided = Arc::new(Decided { decision, status, list });
    world.decisions.lock().expect("no panic while held").insert(scene, decided.clone());
    Some(decided)
}

fn observe(state: &State, scene: &Scene) -> Observation {
    let mut object = ZooKeeper::new(NAME, scene.read.get().clone());
    let karmada = scene.managed.then_some(KARMADA_MANAGED_LABEL);
    let labels = karmada.into_iter().chain([ENSEMBLE_LABEL]).map(|label| (label.to_owned(), NAME.to_owned()));
    object.metadata.labels = Some(labels.collect());
    let request = scene.request.iter().map(|request| (REPLACE_VOLUME.to_owned(), request.clone()));
    object.metadata.annotations = Some(request.chain([(APPLIED_HASH.to_owned(), String::new())]).collect());
    object.status = scene.status.as_ref().map(|status| status.get().clone());
    let base = observation(object, &name(scene.cluster));
    let accepted = acceptance(&base.object, &base.stored, base.cluster.as_deref(), &[]);
    let delivered = delivered_lists(&base.object, &base.stored, &accepted);
    let Some(known) = delivered.first() else { return Observation { tombstones: scene.tombstones.clone(), ..base } };
    let number = incarnation_number(known.incarnation.as_ref());
    let views = pods(state).filter(|pod| pod.server.incarnation == number).filter_map(|pod| pod.view(state));
    let views: Vec<ServerReport> = views.collect();
    let own: Vec<Pod<'_>> = pods(state).filter(|pod| pod.cluster == scene.cluster).collect();
    let incarnations: BTreeSet<usize> = own.iter().map(|pod| pod.server.incarnation).collect();
    let set = |number: &usize| ServerSet {
        name: naming(&incarnation_of(*number)).service(),
        incarnation: incarnation_of(*number),
        role: Role::Voter,
        replicas: count(own.iter().filter(|pod| pod.server.incarnation == *number).count()),
        revision: Some(source::revision(scene.read.get(), known)),
    };
    let reaches = views.iter().any(|view| view.serving);
    let newest = state.truth.newest.as_ref().filter(|_| reaches).and_then(|list| list.get().epoch);
    Observation {
        sets: incarnations.iter().map(set).collect(),
        remaining: incarnations.iter().map(|number| incarnation_of(*number)).collect(),
        claims: own.iter().map(Pod::claim).collect(),
        servers: own.iter().map(|pod| (incarnation_of(pod.server.incarnation), pod.local(state))).collect(),
        tombstones: scene.tombstones.clone(),
        published: newest.map(|epoch| (incarnation_of(number), epoch)),
        views,
        ..base
    }
}

/// A pod of a server, and its place.
struct Pod<'a> {
    cluster: usize,
    ordinal: i32,
    server: &'a Server,
}

/// The pods of clusters whose nodes run.
fn pods(state: &State) -> impl Iterator<Item = Pod<'_>> {
    state.members.iter().enumerate().filter(|(_, member)| member.alive).flat_map(|(cluster, member)| {
        member.servers.iter().zip(0..).map(move |(server, ordinal)| Pod { cluster, ordinal, server })
    })
}

impl Pod<'_> {
    fn name(&self) -> String {
        naming(&incarnation_of(self.server.incarnation)).pod(Role::Voter, self.ordinal)
    }

    /// The report of its server. A bad image gives none.
    fn view(&self, state: &State) -> Option<ServerReport> {
        let server = Some(self.server).filter(|server| server.image_works)?;
        let phase = match (server.up, &server.suspended) {
            (true, _) => Phase::Running,
            (false, Some(_)) => Phase::Suspended,
            (false, None) => Phase::Waiting { reason: "it does not run".to_owned() },
        };
        let report = looking(server.id, self.name(), &incarnation_of(server.incarnation));
        let report = ServerReport {
            revision: server.revision.clone(),
            mode: report.mode.filter(|_| server.up),
            phase,
            accepted_epoch: i64::from(server.joined_quorum),
            lost: server.lost,
            server_list: server.suspended.as_ref().map(|list| list.get().clone()),
            ..report
        };
        if !serves(state, server) {
            return Some(report);
        }
        let newest = state.truth.newest.as_ref().map(|list| list.get().clone());
        let leader = state.up().min();
        let report = serving(report, &living(state), leader);
        // All voters that run follow.
        let synced_voters = (leader == Some(server.id)).then(|| count(state.up().count()).saturating_sub(1));
        Some(ServerReport { server_list: newest, synced_voters, ..report })
    }

    fn claim(&self) -> Claim {
        let ordinal = usize::try_from(self.ordinal).expect("ordinals count from 0");
        replace::claim(self.cluster, ordinal, self.server, &self.name(), incarnation_of(self.server.incarnation))
    }

    fn local(&self, state: &State) -> LocalServer {
        let revision = self.server.revision.clone();
        match self.view(state) {
            Some(view) => local_server(view, Role::Voter, self.ordinal),
            None => LocalServer {
                view: None,
                ready: false,
                runs: false,
                revision,
                failure: Some("the image does not exist".to_owned()),
                ..local_server(looking(self.server.id, self.name(), ""), Role::Voter, self.ordinal)
            },
        }
    }
}

/// True if a server takes part in the quorum, with or without a vote.
fn serves(state: &State, server: &Server) -> bool {
    state.quorum() && server.up && server.incarnation == state.truth.incarnation
}

/// ZooKeeper's own configuration.
fn living(state: &State) -> Configuration {
    configuration(state.truth.version, &state.truth.voters, |id| host(state, id))
}

fn host(state: &State, id: i32) -> String {
    let number = state.truth.incarnation;
    let is = |server: &Server| server.id == id && server.incarnation == number;
    for (cluster, member) in state.members.iter().enumerate() {
        if let Some(ordinal) = member.servers.iter().position(is) {
            return naming(&incarnation_of(number)).host(&name(cluster), Role::Voter, count(ordinal));
        }
    }
    let lists =
        state.members.iter().filter_map(MemberCluster::list).chain(state.truth.newest.as_ref().map(Shared::get));
    let mut listed = lists.flat_map(Ensemble::all_servers);
    listed.find(|server| server.id == id).map(|server| server.host.clone()).unwrap_or_default()
}

fn naming(incarnation: &str) -> Naming<'_> {
    Naming { name: NAME, namespace: "prod", incarnation, names: None }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).expect("few servers")
}

/// Removes servers of incarnations that are over here, and then the object if nothing needs it.
fn remove(state: &mut State, cluster: usize, decision: &Decision) -> bool {
    let member = &mut state.members[cluster];
    let before = member.servers.len();
    member.servers.retain(|server| !decision.remove.contains(&incarnation_of(server.incarnation)));
    if member.servers.len() == before && decision.remove_object {
        member.forget();
        return true;
    }
    member.servers.len() < before
}

/// The agent stores its server list in the ensemble, through a server of its cluster.
fn publish(state: &mut State, cluster: usize, decision: &Decision) -> bool {
    let due = decision.membership == MembershipStep::Publish && serves_in(state, cluster);
    if due {
        state.truth.newest = decision.list.clone().map(Shared::new);
    }
    due
}

fn serves_in(state: &State, cluster: usize) -> bool {
    let member = &state.members[cluster];
    member.alive && member.servers.iter().any(|server| serves(state, server))
}

/// Creates or removes pods.
fn scale(state: &mut State, cluster: usize, decision: &Decision) -> bool {
    let member = &mut state.members[cluster];
    let (Some((voters, _)), Some(list), Some(spec)) = (decision.replicas, &decision.list, &member.read) else {
        return false;
    };
    let (live, wanted) = (member.servers.len(), usize::try_from(voters).unwrap_or(0));
    if wanted < live {
        member.servers.truncate(wanted);
        return true;
    }
    if wanted == live || member.lacks_secret {
        return false;
    }
    let spec = spec.clone();
    let number = incarnation_number(list.incarnation.as_ref());
    member.servers.resize_with(wanted, || Server::new(number, spec.get(), list));
    start_servers(state, cluster);
    true
}

/// Every server of a cluster that can start does so, or stops for a suspension or another id.
pub fn start_servers(state: &mut State, cluster: usize) -> bool {
    let Some(list) = state.members[cluster].assigned.clone() else { return false };
    let mut changed = false;
    for index in 0..state.members[cluster].servers.len() {
        let before = state.members[cluster].servers[index].clone();
        let pod = PodIdentity { cluster: name(cluster), role: Role::Voter, ordinal: count(index) };
        let replaced = serves(state, &before) && start::is_replaced(before.id, &pod, list.get(), &living(state));
        let suspended = list.get().phase.is_suspended() && !before.joined_quorum;
        if before.image_works && (!before.up || replaced || suspended) {
            start_server(state, cluster, index, pod, &list);
            changed |= state.members[cluster].servers[index] != before;
        }
    }
    changed
}

fn start_server(state: &mut State, cluster: usize, index: usize, pod: PodIdentity, list: &Shared<Ensemble>) {
    let server = state.members[cluster].servers[index].clone();
    let alone = StartInputs {
        pod,
        assigned: Some(list.get().clone()),
        stored: stored(state, &server),
        // Volumes never go back in time here: src/rules/tests/server_start.rs.
        age: VolumeAge { confirmed: true, ..VolumeAge::default() },
        suspended: server.suspended.as_ref().map(|list| list.get().clone()),
        set_aside: Vec::new(),
        available: u64::MAX,
        // The volume is the first one: src/rules/tests/volumes.
        recorded: start::Recorded::This,
        peers: Peers::default(),
    };
    // As in the parent process: a server that starts from its own volume asks no other.
    let first = start::decide(&alone);
    let asks = first.decision != start::Decision::KeepOwn || start::listed_id(&alone) != first.id;
    let started = if asks { start::decide(&StartInputs { peers: peers(state, &server), ..alone }) } else { first };
    let id = started.id.unwrap_or(server.id);
    let next = Server { id, up: false, suspended: None, lost: started.lost, ..server };
    let next = match started.decision {
        start::Decision::Suspend => Server { suspended: Some(list.clone()), ..next },
        start::Decision::AskAgent(_) | start::Decision::Wait(_) | start::Decision::Refuse(_) => next,
        start::Decision::KeepOwn | start::Decision::SeedBootstrap { .. } | start::Decision::SeedAsObserver { .. } => {
            let joined_quorum = next.joined_quorum && !started.set_aside;
            Server { up: true, stores: Some(id), joined_quorum, ..next }
        }
    };
    if matches!(started.decision, start::Decision::SeedBootstrap { .. }) {
        seed(state, &next, list.get());
    }
    state.members[cluster].servers[index] = next;
    form(state, list);
}

/// The content of a server's volume. A server stores the configuration of its quorum.
fn stored(state: &State, server: &Server) -> Option<StoredServer> {
    let seeded = state.truth.bootstrap.iter().flatten();
    let seeded = seeded.map(|(id, host)| ConfiguredServer { id: *id, host: host.clone(), role: Role::Voter }).collect();
    let mut dynamic = if state.truth.formed { living(state) } else { Configuration { version: 0, servers: seeded } };
    let id = server.stores?;
    if !dynamic.servers.iter().any(|other| other.id == id) {
        dynamic.servers.push(ConfiguredServer { id, host: String::new(), role: Role::Observer });
    }
    Some(StoredServer {
        incarnation: incarnation_of(server.incarnation),
        id,
        myid: Some(id),
        list: None,
        dynamic: Some(dynamic),
        accepted_epoch: i64::from(server.joined_quorum),
        data: server.joined_quorum,
        formed: server.joined_quorum,
    })
}

fn peers(state: &State, server: &Server) -> Peers {
    let others = || pods(state).map(|pod| pod.server).filter(|other| other.incarnation == server.incarnation);
    let quorum = others().any(|other| serves(state, other));
    Peers {
        configuration: quorum.then(|| living(state)),
        list: state.truth.newest.as_ref().filter(|_| quorum).map(|list| list.get().clone()),
        accepted_epoch: others().map(|other| i64::from(other.joined_quorum)).max().unwrap_or(0),
        ..Peers::default()
    }
}

/// A server of a new ensemble starts. All of them must start with one list.
fn seed(state: &mut State, server: &Server, list: &Ensemble) {
    if state.truth.incarnation != server.incarnation {
        state.truth = Truth { incarnation: server.incarnation, ..Truth::default() };
    }
    if state.truth.formed {
        return;
    }
    let servers: Vec<_> = list.servers.iter().map(|s| (s.id, s.host.clone())).collect();
    if *state.truth.bootstrap.get_or_insert_with(|| servers.clone()) != servers {
        state.breaks(Rule::S5);
    }
}

/// The bootstrap forms its quorum as soon as a majority of its list runs.
fn form(state: &mut State, list: &Shared<Ensemble>) {
    let incarnation = state.truth.incarnation;
    if let Some(bootstrap) = state.truth.bootstrap.as_ref().filter(|_| !state.truth.formed) {
        let mut voters: Vec<i32> = bootstrap.iter().map(|(id, _)| *id).collect();
        voters.sort_unstable();
        let runs = |s: &&Server| s.incarnation == incarnation && s.up && voters.contains(&s.id);
        if state.members.iter().flat_map(|m| &m.servers).filter(runs).count() >= server_list::majority(voters.len()) {
            let newest = Some(list.clone());
            state.truth = Truth { incarnation, formed: true, voters, version: 1, bootstrap: None, newest };
        }
    }
    join_quorum(state);
}

/// The agent restarts a server. It takes the restart lock in the same step.
fn restart(state: &mut State, cluster: usize, decision: &Decision) -> bool {
    let (RestartStep::Restart { pod, .. } | RestartStep::RestartServing { pod, .. }) = &decision.restart else {
        return false;
    };
    let member = &state.members[cluster];
    let index = pods(state).find(|other| other.name() == *pod && other.cluster == cluster).map(|pod| pod.ordinal);
    let index = index.and_then(|index| usize::try_from(index).ok()).expect("the pod exists");
    let (Some(spec), Some(list)) = (member.read.clone(), &decision.list) else { return false };
    let before = member.servers[index].clone();
    if state.object.as_ref().is_some_and(|object| object.is_second && object.spec == 0) {
        // Nothing that a pod is made from has changed.
        state.broken.get_or_insert(Rule::S14);
    }
    let Server { revision, image_works, .. } = Server::new(before.incarnation, spec.get(), list);
    state.members[cluster].servers[index] = Server { revision, image_works, up: false, ..before };
    true
}

impl Server {
    /// The server of a new pod on an empty volume.
    fn new(incarnation: usize, spec: &ZooKeeperSpec, list: &Ensemble) -> Self {
        Self {
            incarnation,
            id: 0,
            revision: source::revision(spec, list),
            image_works: spec.template.image != BAD_IMAGE,
            up: false,
            stores: None,
            lost: false,
            suspended: None,
            joined_quorum: false,
            replaced: 0,
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

/// One step of the ensemble towards its newest list: a server joins or leaves. Any agent may take it.
pub fn reconfigure(world: &World, state: &mut State) -> bool {
    let newest = state.truth.newest.as_ref().and_then(|list| list.get().epoch);
    let steps = (0..state.members.len()).filter(|cluster| serves_in(state, *cluster)).find_map(|cluster| {
        match &decision(world, state, cluster)?.decision.membership {
            // The ensemble refuses the step of an older list.
            MembershipStep::Reconfigure(step) if Some(step.epoch) == newest => Some(step.clone()),
            _ => None,
        }
    });
    let Some(step) = steps else { return false };
    let mut voters = state.truth.voters.clone();
    voters.retain(|id| Some(*id) != step.remove);
    voters.extend(step.add.map(|server| server.id));
    voters.sort_unstable();
    // ZooKeeper refuses a configuration whose majority is not connected.
    let connected = |id: &&i32| pods(state).any(|pod| pod.server.id == **id && serves(state, pod.server));
    if voters.iter().filter(connected).count() < server_list::majority(voters.len()) {
        return false;
    }
    state.truth.voters = voters;
    state.truth.version += 1;
    join_quorum(state);
    true
}
