//! How a server starts. Pure: no clock and no client.
//!
//! The server decides at every start, from its assigned server list, its volume and the answers of living servers.
//! `ZooKeeper` decides none of this. It starts with any list that it finds, and two different lists are two majorities.

use std::collections::{BTreeMap, BTreeSet};

use crate::server::volume_age::{VolumeAge, returns};
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer},
        server_list::{MAX_ID, majority},
    },
    mutation::broken,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server},
};

/// Folders with data that was set aside which stay on a volume. Each is as large as a server's data.
pub const MAX_SET_ASIDE: usize = 3;

/// Name of the folder with the data of a former server of this volume. Copies of one server differ by their `number`.
#[must_use]
pub fn set_aside_name(incarnation: &str, id: i32, number: usize) -> String {
    format!("{SET_ASIDE}{incarnation}-{id}-{number}")
}

/// Prefix of folders with data that was set aside.
pub const SET_ASIDE: &str = "aside-";

/// The folders `set_aside`, oldest first, that hold nothing of their own: a quorum of the same incarnation has the configuration
/// `living`, and so every acknowledged write, and their servers have no vote in it.
#[must_use]
pub fn needless_copies<'a>(set_aside: &'a [String], incarnation: &str, living: &Configuration) -> Vec<&'a String> {
    let is_needless = |folder: &&String| {
        let mut parts = folder.strip_prefix(SET_ASIDE).unwrap_or_default().rsplitn(3, '-');
        let (_, id, of) = (parts.next(), parts.next().and_then(|id| id.parse().ok()), parts.next());
        let has_vote = |id: i32| living.voters().any(|voter| voter == id);
        of == Some(incarnation) && id.is_some_and(|id| !has_vote(id))
    };
    set_aside.iter().filter(is_needless).collect()
}

/// Place of a server in the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// Role of the servers of the StatefulSet.
    pub role: Role,
    /// Ordinal of the pod in the StatefulSet.
    pub ordinal: i32,
}

impl PodIdentity {
    /// The server that a list assigns to this pod.
    #[must_use]
    pub fn in_list<'a>(&self, list: &'a Ensemble) -> Option<&'a Server> {
        list.servers.iter().find(|s| s.cluster == self.cluster && s.role == self.role && s.ordinal == self.ordinal)
    }
}

/// Content of a volume: one server, under one incarnation and id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredServer {
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// Id under which the server first started.
    pub id: i32,
    /// Id in `ZooKeeper`'s own file, if the file exists.
    pub myid: Option<i32>,
    /// Newest server list that this server received.
    pub list: Option<Ensemble>,
    /// Newest dynamic configuration: the seed, or what `ZooKeeper` wrote.
    pub dynamic: Option<Configuration>,
    /// Highest accepted epoch: above 0 once a quorum formed with this server.
    pub accepted_epoch: i64,
    /// True if there are snapshots or transaction logs.
    pub data: bool,
    /// True if a quorum ever formed with this server, even if its data is gone.
    pub formed: bool,
}

impl StoredServer {
    /// True if the server may have acknowledged a transaction.
    const fn may_have_acknowledged(&self) -> bool {
        self.data || self.joined_quorum()
    }

    /// True if a quorum ever formed with this server.
    const fn joined_quorum(&self) -> bool {
        self.accepted_epoch > 0 || self.formed
    }

    /// True if `ZooKeeper` can start with the stored configuration. A joiner's unused seed may be outdated, and a
    /// configuration without its data is no use.
    fn has_usable_configuration(&self) -> bool {
        self.data || (self.votes_in_own_configuration() && !self.may_have_acknowledged())
    }

    fn votes_in_own_configuration(&self) -> bool {
        self.dynamic.iter().flat_map(Configuration::voters).any(|voter| voter == self.id)
    }

    fn configuration_names(&self, id: i32) -> bool {
        self.dynamic.as_ref().is_some_and(|dynamic| dynamic.servers.iter().any(|server| server.id == id))
    }
}

/// Summary of the reports of living servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Newest configuration that a server read through a quorum.
    pub configuration: Option<Configuration>,
    /// Newest configuration on the volume of a server. Its version is 0 if no quorum has committed it.
    pub stored: Option<Configuration>,
    /// Newest server list that a server knows.
    pub list: Option<Ensemble>,
    /// Highest epoch that a server accepted.
    pub accepted_epoch: i64,
    /// Ids of the servers that answered.
    pub answered: BTreeSet<i32>,
    /// Ids of those that answered with an empty volume, and do not prove that they acknowledged nothing: they may have lost what
    /// they knew.
    pub forgetful: BTreeSet<i32>,
    /// Ids of those that certainly acknowledged nothing.
    pub acknowledged_nothing: BTreeSet<i32>,
    /// Highest generation of a server's volume that a server knows, by the server's id.
    pub generations: BTreeMap<i32, i64>,
    /// Bytes of a snapshot of all data, by an estimate of the leader.
    pub snapshot_bytes: Option<i64>,
}

/// Inputs of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartInputs {
    /// The place of this server.
    pub pod: PodIdentity,
    /// The server list that the agent assigned.
    pub assigned: Option<Ensemble>,
    /// Content of the volume.
    pub stored: Option<StoredServer>,
    /// What the volume tells about its age.
    pub age: VolumeAge,
    /// Newest list that suspended this server.
    pub suspended: Option<Ensemble>,
    /// Folders of the volume with data that was set aside.
    pub set_aside: Vec<String>,
    /// Free bytes of the volume.
    pub available: u64,
    /// What the agent has recorded about the first start of this server.
    pub recorded: Recorded,
    /// Reports of living servers.
    pub peers: Peers,
}

/// The volume with which a server may vote while it holds nothing, as the agent has recorded it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    /// The agent has not answered yet.
    #[default]
    Unknown,
    /// This one.
    This,
    /// Another one: the server may have voted with it.
    Other,
}

/// How the server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// With the configuration on its volume.
    KeepOwn,
    /// With the server list of a new ensemble, which is the same on all servers.
    SeedBootstrap {
        /// Servers of the list.
        servers: Vec<ConfiguredServer>,
        /// True if the server may vote while it is empty. False if a quorum formed and the server may have voted before: it
        /// then copies the others' data first.
        initialize: bool,
    },
    /// As an observer, with the voters of the living ensemble.
    SeedAsObserver {
        /// The voters and this server.
        servers: Vec<ConfiguredServer>,
    },
    /// Not before the agent has recorded that the server votes with this volume. The reason says what is missing.
    AskAgent(String),
    /// Not yet. This is no failure.
    Wait(String),
    /// Not at all: the server only reports what its volume holds.
    Suspend,
    /// Not until a user, an agent or the operator acts.
    Refuse(String),
}

impl Decision {
    /// True if `ZooKeeper` starts.
    #[must_use]
    pub const fn starts(&self) -> bool {
        matches!(self, Self::KeepOwn | Self::SeedBootstrap { .. } | Self::SeedAsObserver { .. })
    }
}

/// A decision and its effect on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// How the server starts.
    pub decision: Decision,
    /// Id of the server by the newest server list, or else by its own configuration.
    pub id: Option<i32>,
    /// True if the content of the volume is set aside first. Only with a seed.
    pub set_aside: bool,
    /// True if this id voted from a volume that is lost.
    pub lost: bool,
    /// True if the volume holds nothing and must not vote: the server first copies the data of the others.
    pub copies_first: bool,
    /// A folder with data that was set aside, and that has to go before the server starts. Only while it waits.
    pub removes: Option<String>,
}

impl Start {
    const fn unchanged(decision: Decision, id: Option<i32>) -> Self {
        Self { decision, id, set_aside: false, lost: false, copies_first: false, removes: None }
    }

    fn wait(reason: impl Into<String>, id: Option<i32>) -> Self {
        Self::unchanged(Decision::Wait(reason.into()), id)
    }

    fn refuse(reason: impl Into<String>, id: Option<i32>) -> Self {
        Self::unchanged(Decision::Refuse(reason.into()), id)
    }
}

/// True if a server needs no further answer: it starts, and a quorum serves, which corrects an old copy of a volume. Without
/// one, the answer that is late may be the only one that knows a newer generation.
#[must_use]
pub fn needs_no_answer(inputs: &StartInputs) -> bool {
    let corrects = inputs.peers.configuration.is_some() || broken!(StopAsking);
    corrects && decide(inputs).decision == Decision::KeepOwn
}

/// Decides how the server starts.
#[must_use]
pub fn decide(inputs: &StartInputs) -> Start {
    let Some(list) = newest_list(inputs) else {
        return Start::wait("the agent has not assigned a server list yet", None);
    };
    let incarnation = list.incarnation.as_deref().unwrap_or_default();
    let listed = inputs.pod.in_list(list);
    let same_incarnation = inputs.stored.as_ref().filter(|stored| is_of(stored, incarnation));
    let intact = same_incarnation.filter(|stored| stored.myid.is_none_or(|myid| myid == stored.id));
    let own = intact.filter(|stored| has_listed_id(stored, listed));
    let id =
        listed.map(|listed| listed.id).or_else(|| own.filter(|own| own.configuration_names(own.id)).map(|own| own.id));
    // A server that joined a quorum ignores the suspension: its purpose is to find out if there was a quorum.
    let joined_quorum = inputs.stored.as_ref().is_some_and(StoredServer::joined_quorum);
    if is_suspended(list) && !joined_quorum {
        return Start::unchanged(Decision::Suspend, id);
    }
    // Whatever the list demands, a server that joined a quorum is part of the ensemble's majority.
    if !is_understood(list) && !joined_quorum {
        return Start::wait("a newer version of mczk wrote the server list, and this version cannot read it", id);
    }
    if list.phase.is_ending() {
        return Start::wait("the server list ends the ensemble", id);
    }
    if incarnation.is_empty() {
        return Start::wait("the server list names no incarnation", id);
    }
    if let Some(why) = inputs.age.unreadable() {
        return Start::wait(why, id);
    }
    let lacking = intact.and_then(|stored| inputs.age.lacks(stored.id, stored.data, &inputs.peers.generations));
    if let Some(why) = &lacking
        && id == intact.map(|stored| stored.id)
    {
        return Start { lost: true, ..Start::refuse(why, id) };
    }
    // The pod has a new id while the ensemble still counts on the former id's vote: the server keeps the former id until
    // it has no vote.
    if let (Some(listed), Some(stored)) = (listed, intact.filter(|_| lacking.is_none()))
        && listed.id != stored.id
        && !list.phase.is_bootstrap()
        && is_of_place(stored, listed)
        && has_vote(stored, &inputs.peers)
        && !broken!(AbandonVote)
    {
        return keep(stored, list, inputs);
    }
    // Data of another incarnation or id is never served. The server starts as a new one.
    let foreign = inputs.stored.is_some() && own.is_none();
    match (listed, own) {
        (listed, Some(own))
            if own.configuration_names(own.id) && (own.has_usable_configuration() || listed.is_none()) =>
        {
            keep(own, list, inputs)
        }
        (None, _) if !broken!(StartRemoved) => {
            let epoch = list.epoch.unwrap_or_default();
            let reason = format!(
                "neither the newest server list (epoch {epoch}) nor the configuration on the volume names this server"
            );
            Start::wait(reason, id)
        }
        (None, _) => seed(&removed_server(&inputs.pod), list, inputs, own, foreign),
        (Some(listed), _) => seed(listed, list, inputs, own, foreign),
    }
}

/// True if a volume belongs to an incarnation.
fn is_of(stored: &StoredServer, incarnation: &str) -> bool {
    stored.incarnation == incarnation || broken!(KeepForeign)
}

/// True if the list names no server for the pod, or the one of the volume.
fn has_listed_id(stored: &StoredServer, listed: Option<&Server>) -> bool {
    listed.is_none_or(|listed| listed.id == stored.id) || broken!(KeepOtherId)
}

/// True if no server starts that never joined a quorum.
fn is_suspended(list: &Ensemble) -> bool {
    list.phase.is_suspended() && !broken!(StartSuspended)
}

/// True if this version knows the phase of a list.
fn is_understood(list: &Ensemble) -> bool {
    list.phase.is_understood() || broken!(StartUnread)
}

/// True if the volume has always belonged to this pod. A volume of another pod may be in use there too.
fn is_of_place(stored: &StoredServer, listed: &Server) -> bool {
    let hosts = stored.dynamic.iter().flat_map(|dynamic| &dynamic.servers).filter(|server| server.id == stored.id);
    hosts.into_iter().all(|server| server.host == listed.host) || broken!(ServeSwapped)
}

/// True if the ensemble counts on the data of a volume: by the reports of living servers, else by its last configuration.
fn has_vote(stored: &StoredServer, peers: &Peers) -> bool {
    let votes = |configuration: &Configuration| configuration.voters().any(|voter| voter == stored.id);
    stored.data && stored.dynamic.as_ref().is_some_and(votes) && peers.configuration.as_ref().is_none_or(votes)
}

/// Id that the newest server list gives to the pod.
#[must_use]
pub fn listed_id(inputs: &StartInputs) -> Option<i32> {
    newest_list(inputs).and_then(|list| inputs.pod.in_list(list)).map(|listed| listed.id)
}

/// True if a running server must stop and start under another id: the list gives its pod another id, and `living`, a
/// configuration that was read through a quorum, gives the former id no vote.
#[must_use]
pub fn is_replaced(id: i32, pod: &PodIdentity, list: &Ensemble, living: &Configuration) -> bool {
    pod.in_list(list).is_some_and(|listed| listed.id != id) && !living.voters().any(|voter| voter == id)
}

/// A server outside the list, for the broken variant that starts one.
fn removed_server(pod: &PodIdentity) -> Server {
    Server { id: 1, cluster: pod.cluster.clone(), ordinal: pod.ordinal, host: String::new(), role: pod.role }
}

/// The newest server list of the incarnation that the agent assigned.
#[must_use]
pub fn newest_list(inputs: &StartInputs) -> Option<&Ensemble> {
    let assigned = inputs.assigned.as_ref()?;
    let stored = inputs.stored.as_ref().and_then(|stored| stored.list.as_ref());
    let suspended = inputs.suspended.as_ref().filter(|list| list.phase.is_suspended());
    let others = [stored, suspended, inputs.peers.list.as_ref()];
    let lists = others.into_iter().flatten().filter(|list| list.incarnation == assigned.incarnation).chain([assigned]);
    // Of equal epochs, the last list wins: the assigned one.
    if broken!(OlderList) { lists.min_by_key(|list| list.epoch) } else { lists.max_by_key(|list| list.epoch) }
}

/// The start with the configuration on the volume.
fn keep(stored: &StoredServer, list: &Ensemble, inputs: &StartInputs) -> Start {
    let unformed = list.phase.is_bootstrap() && stored.accepted_epoch == 0;
    if unformed && has_changed(list, stored) {
        let reason = "the server list changed although no quorum ever formed: servers with the former list would be a \
                      second majority; the ensemble must be rebootstrapped";
        return Start::refuse(reason, Some(stored.id));
    }
    // The marker that lets an empty server vote is gone after its first use, perhaps before the first data was durable.
    let empty = unformed && !stored.may_have_acknowledged() && !broken!(KeepEmpty);
    let listed = inputs.pod.in_list(list).filter(|_| empty);
    if let Some(again) = listed.and_then(|listed| bootstrap(listed, list, inputs, Some(stored), false)) {
        return again;
    }
    let (voters, peers) = (newest_voters(stored, &inputs.peers), &inputs.peers);
    let remembering = peers.answered.difference(&peers.forgetful).copied().collect();
    let volume = (stored.id, stored.data);
    // After the bootstrap a server that never joined a quorum looks like a copy of its volume from before the first quorum.
    let never_joined = !stored.may_have_acknowledged() && !broken!(BelieveNeverJoined);
    // While a quorum serves, the server does not vote before it has copied the data of the leader.
    if (stored.may_have_acknowledged() || never_joined)
        && inputs.peers.configuration.is_none()
        && let Some(why) = inputs.age.unproven(volume, &voters, &remembering, &peers.generations)
    {
        return Start::wait(why, Some(stored.id));
    }
    Start { copies_first: never_joined, ..Start::unchanged(Decision::KeepOwn, Some(stored.id)) }
}

/// The voters of the newest configuration that the server or another one has stored. A majority of the voters before them has
/// committed it, so each quorum has a majority of the new ones. Voters that left may never answer again.
fn newest_voters(stored: &StoredServer, peers: &Peers) -> BTreeSet<i32> {
    let others = peers.stored.as_ref().filter(|_| !broken!(CountFormerVoters));
    // Of equal versions, the last configuration wins: its own.
    let newest = others.into_iter().chain(&stored.dynamic).max_by_key(|configuration| configuration.version);
    newest.into_iter().flat_map(Configuration::voters).collect()
}

/// True if a bootstrap list names other servers than the configuration on the volume.
fn has_changed(list: &Ensemble, stored: &StoredServer) -> bool {
    let seeded: Option<BTreeSet<_>> = stored.dynamic.as_ref().map(|dynamic| dynamic.servers.iter().collect());
    seeded != Some(configured_servers(list).iter().collect()) && !broken!(ChangedBootstrap)
}

/// A start with a seed: as a server of a new ensemble, or as an observer that joins.
fn seed(listed: &Server, list: &Ensemble, inputs: &StartInputs, own: Option<&StoredServer>, foreign: bool) -> Start {
    bootstrap(listed, list, inputs, own, foreign).unwrap_or_else(|| join(listed, list, inputs, own, foreign))
}

/// The start of a new ensemble. `None` if the list is no bootstrap list, or if the server took part in the bootstrap before.
fn bootstrap(
    listed: &Server,
    list: &Ensemble,
    inputs: &StartInputs,
    own: Option<&StoredServer>,
    foreign: bool,
) -> Option<Start> {
    if !begins(list) {
        return None;
    }
    let id = Some(listed.id);
    let is_used = |used: bool| used && !broken!(BootstrapOnUsed);
    if is_used(foreign || !inputs.set_aside.is_empty()) {
        let reason =
            "the volume holds data of another ensemble or another server: a new ensemble starts on new volumes only";
        return Some(Start::refuse(reason, id));
    }
    if is_used(own.is_some_and(StoredServer::may_have_acknowledged)) {
        return None;
    }
    // Once a quorum formed, this may be a server that voted and lost its volume.
    let may_vote = is_first(listed.id, inputs) || !has_formed(list, &inputs.peers);
    let initialize = listed.role == Role::Voter && may_vote;
    let must_ask = initialize || is_unrecorded(inputs);
    if let Some(reason) = why_not_first(listed, list, inputs).filter(|_| must_ask && !broken!(BeginUnrecorded)) {
        return Some(Start::unchanged(Decision::AskAgent(reason), id));
    }
    let decision = Decision::SeedBootstrap { servers: configured_servers(list), initialize };
    Some(Start { set_aside: foreign, copies_first: !initialize, ..Start::unchanged(decision, id) })
}

/// True if a list lets a new ensemble begin.
fn begins(list: &Ensemble) -> bool {
    list.phase.is_bootstrap() || broken!(BootstrapAlways)
}

/// True if the agent has yet to record the server. One that starts without a vote gets it with the data, and may lose its volume
/// after that.
fn is_unrecorded(inputs: &StartInputs) -> bool {
    inputs.recorded == Recorded::Unknown && !broken!(CopyUnrecorded)
}

/// True if the server certainly never voted. It holds all that it acknowledged, which is nothing, so it may vote although a
/// quorum formed meanwhile. A user may have deleted the record of an earlier start, but others remember a server that served.
/// While a quorum serves, the ensemble needs no vote of a server without data.
fn is_first(id: i32, inputs: &StartInputs) -> bool {
    let has_served = inputs.peers.generations.get(&id).is_some_and(|generation| *generation > 0);
    let is_needed = inputs.peers.configuration.is_none();
    inputs.recorded == Recorded::This && !has_served && is_needed && !broken!(LateWithoutVote)
}

/// True if a quorum has ever formed.
fn has_formed(list: &Ensemble, peers: &Peers) -> bool {
    let formed = list.phase == EnsemblePhase::Formed || peers.accepted_epoch > 0 || peers.configuration.is_some();
    formed && !broken!(InitializeLate)
}

/// Why an empty server may have voted before, if it may have: a server that lost its volume looks like a new one. No server
/// that answered ever joined a quorum.
fn why_not_first(server: &Server, list: &Ensemble, inputs: &StartInputs) -> Option<String> {
    match inputs.recorded {
        // The volume is as this process left it, with a right to vote.
        _ if server.role == Role::Observer || inputs.age.has_vote() => None,
        Recorded::This => None,
        Recorded::Unknown => Some("the agent must first record the volume with which the server votes".to_owned()),
        Recorded::Other => why_may_have_voted(server.id, list, &inputs.peers),
    }
}

/// Why a server may have voted with the volume that the agent has recorded, if it may have. It has not if each majority with it
/// has one of those that acknowledged nothing. If all others answer, no volume holds anything that it acknowledged.
fn why_may_have_voted(id: i32, list: &Ensemble, peers: &Peers) -> Option<String> {
    let voters = list.servers.iter().filter(|server| server.role == Role::Voter).map(|server| server.id);
    let others: BTreeSet<i32> = voters.filter(|voter| *voter != id).collect();
    let why = format!("the agent has recorded another volume of server {id}, with which it may have voted");
    if others.is_empty() {
        return Some(format!(
            "{why}. No other voter can tell: bring that volume back. Only if it is lost for good, declare the ensemble \
             again"
        ));
    }
    let proofs = if broken!(BelieveAskers) { &peers.answered } else { &peers.acknowledged_nothing };
    let (proofs, answers) = (others.intersection(proofs).count(), others.intersection(&peers.answered).count());
    let needed = others.len() + 2 - majority(others.len() + 1);
    (proofs < needed && answers < others.len()).then(|| {
        format!(
            "{why}. The server starts when all {} other voters answer that they never joined a quorum, when {needed} of them \
             prove that they acknowledged nothing, or when a quorum serves; {answers} have answered, and {proofs} prove it",
            others.len()
        )
    })
}

/// The configuration that a quorum confirmed.
fn living_configuration(list: &Ensemble, peers: &Peers) -> Option<Configuration> {
    let by_list = || Configuration { version: 0, servers: configured_servers(list) };
    if broken!(JoinByList) { Some(by_list()) } else { peers.configuration.clone() }
}

/// The voters that a joining server knows.
fn others(living: Configuration, list: &Ensemble, id: i32) -> Vec<ConfiguredServer> {
    let with_joiners = broken!(JoinWithOthers);
    let listed = configured_servers(list).into_iter().filter(|_| with_joiners);
    let living = living.servers.into_iter().filter(|server| server.role == Role::Voter || with_joiners);
    living.chain(listed).filter(|server| server.id != id).collect()
}

/// True if a listed voter may have voted before, by a volume of it that others remember. A server raises its generation before it
/// gets its vote, so one that only copied the data counts too. Once every id has been given, ids are given again: then a generation
/// may be that of a former server.
fn has_voted(listed: &Server, list: &Ensemble, peers: &Peers) -> bool {
    let served = peers.generations.get(&listed.id).is_some_and(|generation| *generation > 0);
    let is_unique = list.highest_id.is_none_or(|highest| highest < MAX_ID);
    listed.role == Role::Voter && served && is_unique && !broken!(RelistLost)
}

/// The start of an observer that joins the living ensemble.
fn join(listed: &Server, list: &Ensemble, inputs: &StartInputs, own: Option<&StoredServer>, foreign: bool) -> Start {
    let id = Some(listed.id);
    let Some(living) = living_configuration(list, &inputs.peers) else {
        return Start::wait("no living server reports a configuration that a quorum confirmed", id);
    };
    let votes = living.voters().any(|voter| voter == listed.id);
    let (has_data, has_voted) = (own.is_some_and(|own| own.data), has_voted(listed, list, &inputs.peers));
    if (votes || has_voted) && !has_data && !broken!(IgnoreLost) {
        let has = if votes { "has a vote, but its" } else { "had a vote before, and its" };
        let reason = format!(
            "server {} {has} volume does not hold the data that it voted for. {}",
            listed.id,
            returns(listed.id)
        );
        return Start { lost: true, ..Start::refuse(reason, id) };
    }
    // A server with data copies what it lacks of them.
    if let Some(why) = lacks_room(inputs, foreign).filter(|_| !has_data) {
        let copies = needless_copies(&inputs.set_aside, list.incarnation.as_deref().unwrap_or_default(), &living);
        let removes = copies.first().map(|oldest| (*oldest).clone());
        let why =
            removes.as_ref().map_or(why, |oldest| format!("{oldest} goes: a copy of the leader's data needs its room"));
        return Start { removes, ..Start::wait(why, id) };
    }
    let mut servers = others(living, list, listed.id);
    if servers.is_empty() {
        return Start::wait("the ensemble's configuration names no other voter", id);
    }
    let role = if broken!(JoinAsVoter) { Role::Voter } else { Role::Observer };
    servers.push(ConfiguredServer { id: listed.id, host: listed.host.clone(), role });
    servers.sort();
    Start { set_aside: foreign, ..Start::unchanged(Decision::SeedAsObserver { servers }, id) }
}

/// Why the volume cannot take a copy of the leader's data. `ZooKeeper` would copy them again and again, each time to a full volume.
/// An eighth more is for the log. Before the server sets its data aside, the oldest folder may have to go, which makes room.
fn lacks_room(inputs: &StartInputs, sets_aside: bool) -> Option<String> {
    const MIB: u64 = 1 << 20;
    let bytes = u64::try_from(inputs.peers.snapshot_bytes?).ok()?;
    let needed = bytes.saturating_add(bytes / 8);
    if sets_aside && inputs.set_aside.len() >= MAX_SET_ASIDE {
        return None;
    }
    let available = Some(inputs.available).filter(|available| *available < needed)?;
    let set_aside = match inputs.set_aside.as_slice() {
        [] => String::new(),
        folders => format!(", or remove folders that were set aside and that you do not need: {}", folders.join(", ")),
    };
    Some(format!(
        "the volume has {} MiB free, and a copy of the leader's data needs {} MiB: raise template.storage.size{set_aside}. \
         Remove nothing else on the volume",
        available / MIB,
        needed.div_ceil(MIB)
    ))
}

/// The servers of a list, as `ZooKeeper` configures them.
#[must_use]
pub fn configured_servers(list: &Ensemble) -> Vec<ConfiguredServer> {
    let mut servers: Vec<_> =
        list.servers.iter().map(|s| ConfiguredServer { id: s.id, host: s.host.clone(), role: s.role }).collect();
    servers.sort();
    servers
}
