//! How a server starts, decided anew at every start from what it is told, what its volume holds and what living servers
//! answer. Pure: no clock, no client.
//!
//! `ZooKeeper` itself decides nothing of this: it starts with whatever list it finds, also with a wrong one, and two lists
//! are two majorities.

use std::collections::BTreeSet;

use crate::{
    api::zookeeper::{Ensemble, EnsemblePhase, Role, Server},
    contract::control_api::{Configuration, ConfiguredServer},
    mutation::broken,
};

/// Whose start is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodIdentity {
    /// Karmada's name of the cluster.
    pub cluster: String,
    /// Role of the servers of its StatefulSet.
    pub role: Role,
    /// Its number in its StatefulSet.
    pub ordinal: i32,
}

/// What a volume holds of one life of an ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredServer {
    /// Which life it is.
    pub incarnation: String,
    /// Id under which it was begun.
    pub id: i32,
    /// Id in `ZooKeeper`'s own file, if it is there.
    pub myid: Option<i32>,
    /// Newest list of servers that was seen with it.
    pub list: Option<Ensemble>,
    /// Newest configuration that `ZooKeeper` wrote, or that it was seeded with.
    pub dynamic: Option<Configuration>,
    /// Highest epoch that it accepted: above 0 once a quorum formed with it.
    pub accepted_epoch: i64,
    /// Whether there are snapshots or logs of transactions.
    pub data: bool,
    /// Whether a quorum was ever seen to form with it; known also when its data is gone.
    pub formed: bool,
}

impl StoredServer {
    /// Whether the server of this life could ever have acknowledged something.
    #[must_use]
    pub const fn began(&self) -> bool {
        self.data || self.took_part()
    }

    /// Whether a quorum ever formed with it.
    const fn took_part(&self) -> bool {
        self.accepted_epoch > 0 || self.formed
    }

    /// Whether its configuration is to be kept: not a joiner's seed that was of no use yet, which may be outdated, and not
    /// one whose data is gone.
    fn stands(&self) -> bool {
        let votes = self.dynamic.iter().flat_map(Configuration::voters).any(|voter| voter == self.id);
        self.data || (votes && !self.began())
    }

    fn names(&self, id: i32) -> bool {
        self.dynamic.as_ref().is_some_and(|dynamic| dynamic.servers.iter().any(|server| server.id == id))
    }
}

/// What living servers of the ensemble answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Newest configuration that one of them read through a quorum.
    pub configuration: Option<Configuration>,
    /// Newest list that one of them knows.
    pub list: Option<Ensemble>,
    /// Highest epoch that one of them accepted.
    pub accepted_epoch: i64,
}

/// All that the decision rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartInputs {
    /// Whose start it is.
    pub pod: PodIdentity,
    /// The list that it is told.
    pub assigned: Option<Ensemble>,
    /// What its volume serves.
    pub stored: Option<StoredServer>,
    /// The newest list under which it was parked.
    pub suspended: Option<Ensemble>,
    /// Whether something set aside lies on its volume.
    pub has_set_aside: bool,
    /// What living servers answered.
    pub peers: Peers,
}

/// How it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// With the configuration on its volume.
    KeepOwn,
    /// With the list of a new ensemble, the same on all its servers.
    SeedBootstrap {
        /// Its servers.
        servers: Vec<ConfiguredServer>,
        /// Whether it may vote while it holds nothing. Not once a quorum formed without it: then it first takes over what
        /// the others hold.
        initialize: bool,
    },
    /// With the voters of the living ensemble, and itself as an observer.
    SeedAsObserver {
        /// These servers.
        servers: Vec<ConfiguredServer>,
    },
    /// Not yet, and that is no fault.
    Wait(String),
    /// Not at all: it only reports what its volume holds.
    Suspend,
    /// Not at all, until a person or the control plane changes something.
    Refuse(String),
}

/// A decision, and what it means for the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// How it starts.
    pub decision: Decision,
    /// Its id, if the newest list names it, or else if its own configuration does.
    pub id: Option<i32>,
    /// Whether what the volume holds is renamed first. Only ever with a seed.
    pub set_aside: bool,
    /// Whether this id voted from a volume that is gone.
    pub lost: bool,
}

/// Decides.
#[must_use]
pub fn decide(observed: &StartInputs) -> Start {
    let Some(list) = newest_list(observed) else {
        return Start::not(Decision::Wait("it was told no list of servers yet".to_owned()), None);
    };
    let incarnation = list.incarnation.as_deref().unwrap_or_default();
    let own = own(&observed.pod, list);
    let life = observed.stored.as_ref().filter(|life| broken!(KeepForeign) || life.incarnation == incarnation);
    let whole = life.filter(|life| life.myid.is_none_or(|myid| myid == life.id));
    let kept = whole.filter(|life| broken!(KeepOtherId) || own.is_none_or(|own| own.id == life.id));
    let id = own.map(|own| own.id).or_else(|| kept.map(|life| life.id).filter(|id| kept.is_some_and(|l| l.names(*id))));
    // Who ever took part in a quorum goes on: that there was one is what those ask for who park.
    let took_part = observed.stored.as_ref().is_some_and(StoredServer::took_part);
    if list.phase.is_suspended() && !took_part && !broken!(StartSuspended) {
        return Start::not(Decision::Suspend, id);
    }
    if list.phase.is_ending() {
        return Start::not(Decision::Wait("the ensemble ends".to_owned()), id);
    }
    if incarnation.is_empty() {
        return Start::not(Decision::Wait("the list of servers does not say which ensemble it is of".to_owned()), id);
    }
    // Its place was given another id while the ensemble still counts on its vote: it goes on until it has none.
    if let (Some(own), Some(life)) = (own, whole)
        && own.id != life.id
        && !list.phase.is_bootstrap()
        && votes(life, &observed.peers)
        && !broken!(AbandonVote)
    {
        return keep(life, list);
    }
    // What the volume serves is another life's or another id's: it is never served, and the start is a new server's.
    let foreign = observed.stored.is_some() && kept.is_none();
    match (own, kept) {
        (own, Some(life)) if life.names(life.id) && (life.stands() || own.is_none()) => keep(life, list),
        (None, _) if !broken!(StartRemoved) => Start::not(
            Decision::Wait(format!(
                "neither the newest list of servers (epoch {}) nor the configuration on the volume names it",
                list.epoch.unwrap_or_default()
            )),
            id,
        ),
        (None, _) => seed(&Server::removed(&observed.pod), list, observed, kept, foreign),
        (Some(own), _) => seed(own, list, observed, kept, foreign),
    }
}

/// Whether the ensemble counts on the data of a volume: as living servers say, or else as it was when it served last.
fn votes(life: &StoredServer, peers: &Peers) -> bool {
    let named = |configuration: &Configuration| configuration.voters().any(|voter| voter == life.id);
    life.data && life.dynamic.as_ref().is_some_and(named) && peers.configuration.as_ref().is_none_or(named)
}

/// Id that the newest list gives the place of a server.
#[must_use]
pub fn listed_id(observed: &StartInputs) -> Option<i32> {
    newest_list(observed).and_then(|list| own(&observed.pod, list)).map(|own| own.id)
}

/// Whether a running server is to end and be decided anew: its place has another id, and `living`, a configuration that was
/// read through a quorum, gives it no vote any more.
#[must_use]
pub fn is_replaced(id: i32, me: &PodIdentity, list: &Ensemble, living: &Configuration) -> bool {
    own(me, list).is_some_and(|own| own.id != id) && !living.voters().any(|voter| voter == id)
}

impl Server {
    /// A stand-in for a server that is not in the list, for the variant that starts one.
    fn removed(me: &PodIdentity) -> Self {
        Self { id: 1, cluster: me.cluster.clone(), ordinal: me.ordinal, host: String::new(), role: me.role }
    }
}

impl Start {
    const fn not(decision: Decision, id: Option<i32>) -> Self {
        Self { decision, id, set_aside: false, lost: false }
    }
}

/// The newest list of this server's ensemble: what it is told says which ensemble that is.
fn newest_list(observed: &StartInputs) -> Option<&Ensemble> {
    let told = observed.assigned.as_ref()?;
    let kept = observed.stored.as_ref().and_then(|life| life.list.as_ref());
    let parked = observed.suspended.as_ref().filter(|list| list.phase.is_suspended());
    let others = [kept, parked, observed.peers.list.as_ref()];
    let all = others.into_iter().flatten().filter(|list| list.incarnation == told.incarnation).chain([told]);
    // Of equals the last: what it is told.
    if broken!(OlderList) { all.min_by_key(|list| list.epoch) } else { all.max_by_key(|list| list.epoch) }
}

/// What a list calls this server.
#[must_use]
pub fn own<'a>(me: &PodIdentity, list: &'a Ensemble) -> Option<&'a Server> {
    list.servers.iter().find(|s| s.cluster == me.cluster && s.role == me.role && s.ordinal == me.ordinal)
}

fn keep(life: &StoredServer, list: &Ensemble) -> Start {
    let seeded = life.dynamic.as_ref().map(|dynamic| names(&dynamic.servers));
    let unformed = list.phase.is_bootstrap() && life.accepted_epoch == 0;
    if unformed && seeded != Some(names(&configured(list))) && !broken!(ChangedBootstrap) {
        let text = "the list of servers changed although no quorum ever formed: servers that started with the other one \
                    would be a second majority; the ensemble must begin anew";
        return Start::not(Decision::Refuse(text.to_owned()), Some(life.id));
    }
    Start::not(Decision::KeepOwn, Some(life.id))
}

/// A start with another configuration than the volume's own, or with none.
fn seed(own: &Server, list: &Ensemble, observed: &StartInputs, kept: Option<&StoredServer>, foreign: bool) -> Start {
    let id = Some(own.id);
    let used = foreign || observed.has_set_aside;
    let began = kept.is_some_and(StoredServer::began);
    if list.phase.is_bootstrap() || broken!(BootstrapAlways) {
        if used && !broken!(BootstrapOnUsed) {
            let text = "its volume holds another ensemble's or another server's data, and a new ensemble begins on new \
                        volumes only";
            return Start::not(Decision::Refuse(text.to_owned()), id);
        }
        if !began || broken!(BootstrapOnUsed) {
            // Once a quorum formed, this may be a server that voted and whose volume is gone.
            let formed = list.phase == EnsemblePhase::Formed
                || observed.peers.accepted_epoch > 0
                || observed.peers.configuration.is_some();
            let initialize = own.role == Role::Voter && (!formed || broken!(InitializeLate));
            return Start {
                decision: Decision::SeedBootstrap { servers: configured(list), initialize },
                id,
                set_aside: foreign,
                lost: false,
            };
        }
    }
    let living = if broken!(JoinByList) {
        Some(Configuration { version: 0, servers: configured(list) })
    } else {
        observed.peers.configuration.clone()
    };
    let Some(living) = living else {
        let text = "no living server of the ensemble tells its configuration, which a quorum must confirm";
        return Start::not(Decision::Wait(text.to_owned()), id);
    };
    let votes = living.voters().any(|voter| voter == own.id);
    if votes && !kept.is_some_and(|life| life.data) && !broken!(IgnoreLost) {
        let text = format!(
            "server {} has a vote, and its volume does not hold what it voted for: it must be removed, and comes back \
             under a new id",
            own.id
        );
        return Start { decision: Decision::Refuse(text), id, set_aside: false, lost: true };
    }
    let joiner = ConfiguredServer { id: own.id, host: own.host.clone(), role: Role::Observer };
    let mut servers: Vec<_> = living
        .servers
        .into_iter()
        .filter(|s| s.id != own.id && (s.role == Role::Voter || broken!(JoinWithOthers)))
        .collect();
    if broken!(JoinWithOthers) {
        servers.extend(configured(list).into_iter().filter(|s| s.id != own.id));
    }
    if servers.is_empty() {
        let text = "the ensemble's configuration names no voter besides itself";
        return Start::not(Decision::Wait(text.to_owned()), id);
    }
    servers.push(if broken!(JoinAsVoter) { ConfiguredServer { role: Role::Voter, ..joiner } } else { joiner });
    servers.sort();
    Start { decision: Decision::SeedAsObserver { servers }, id, set_aside: foreign, lost: false }
}

/// A list's servers as `ZooKeeper` configures them.
#[must_use]
pub fn configured(list: &Ensemble) -> Vec<ConfiguredServer> {
    let mut servers: Vec<_> =
        list.servers.iter().map(|s| ConfiguredServer { id: s.id, host: s.host.clone(), role: s.role }).collect();
    servers.sort();
    servers
}

fn names(servers: &[ConfiguredServer]) -> BTreeSet<&ConfiguredServer> {
    servers.iter().collect()
}
