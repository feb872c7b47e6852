//! The ensembles that the stand-ins of all clusters make up together, in memory: who runs, who votes, who leads.
//!
//! Pure but for the time that it is told. It follows the rules of the agent to come as far as an operator can see them.

use mczk::contract::server_list;
use mczk::contract::spec_hash;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Result;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::ResourceExt;
use mczk::{
    api::{
        ZooKeeper,
        zookeeper::{Ensemble, Role, ServerStatus, ZooKeeperSpec, ZooKeeperStatus},
    },
    contract::server_list::majority,
};

use super::{Behaviour, Key};

/// ZooKeeper's configuration versions are transaction ids: the first of the first epoch.
const FIRST_VERSION: i64 = 1 << 32;
/// Label of Karmada on every object that it keeps in a member.
const MANAGED: &str = "karmada.io/managed";
/// An image with this in its name never starts, and the agent says so.
pub const BROKEN: &str = "broken";
/// An image with this in its name never starts, and the agent says nothing.
pub const SILENT: &str = "silent";

/// All ensembles.
///
/// Names come again: an object is deleted, and another one is made with its name. So nothing is remembered by name alone.
/// What a cluster has belongs to its object's uid, and what clusters make up together to the ensemble's id.
#[derive(Debug, Default)]
pub struct World {
    /// By name and the ensemble's id, which is "" of objects that never had a list: servers of one life cannot reach
    /// those of another.
    lives: BTreeMap<(Key, String), Life>,
    /// By cluster and name: the object that is there now.
    homes: BTreeMap<(String, Key), Home>,
    /// Uids of objects that are gone. An agent may still be at work on one of them.
    gone: BTreeSet<String>,
}

/// Where an object's servers are found.
#[derive(Debug, Default)]
struct Home {
    uid: String,
    /// The id of the list that its agent was given last.
    ensemble: String,
}

/// What a look at one object leads to.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the agent reports.
    pub status: ZooKeeperStatus,
    /// When to look again.
    pub wake: Option<Instant>,
    /// Whether the object should carry the agent's finalizer.
    pub finalizer: bool,
    /// Whether the agent removes the object itself.
    pub remove: bool,
    /// Whether anything changed that agents of other clusters see.
    pub changed: bool,
}

/// One ensemble, from its first list to its end.
#[derive(Debug, Default)]
struct Life {
    /// The newest list that any agent was given: the real ones keep it in the ensemble itself.
    list: Ensemble,
    formed: bool,
    voting: BTreeSet<i32>,
    version: i64,
    leader: Option<i32>,
    clusters: BTreeMap<String, Local>,
}

/// One ensemble's part in one cluster.
#[derive(Clone, Debug, Default)]
struct Local {
    servers: BTreeMap<(Role, i32), Server>,
    observed_spec_hash: Option<String>,
    completed_spec_hash: Option<String>,
    /// The list of servers that is obeyed.
    list: Option<Ensemble>,
    /// A server starts or stops until then.
    busy: Option<Instant>,
    dissolved: bool,
}

#[derive(Clone, Debug)]
struct Server {
    id: i32,
    revision: String,
    up: bool,
}

/// What an agent has to say besides numbers.
#[derive(Debug, Default)]
struct Told {
    progressing: Option<(&'static str, &'static str, String)>,
    blocked: Option<String>,
    refused: Option<String>,
}

impl World {
    /// Looks at one cluster's object. `old` is what was reported last. Nothing comes of an object that is gone: an agent
    /// that still looks at it changes nothing.
    ///
    /// # Errors
    /// If a spec has no JSON.
    pub fn step(
        &mut self,
        cluster: &str,
        object: &ZooKeeper,
        old: &ZooKeeperStatus,
        how: &Behaviour,
        now: Instant,
    ) -> Result<Option<Step>> {
        let uid = object.uid().unwrap_or_default();
        if self.gone.contains(&uid) {
            return Ok(None);
        }
        let key = Key::of(object);
        let mut told = Told::default();
        let list = &object.spec.ensemble;
        let whole = list.incarnation.is_some() && list.hash == server_list::with_hash(list.clone())?.hash;
        let moved = self.settle_in(cluster, &key, &uid, list.incarnation.as_deref().filter(|_| whole));
        let id = self.homes.get(&(cluster.to_owned(), key.clone())).map(|home| home.ensemble.clone());
        let life = self.lives.entry((key, id.unwrap_or_default())).or_default();
        let before = life.visible();
        if whole && list.epoch > life.list.epoch {
            life.list = list.clone();
        }
        let local = life.clusters.entry(cluster.to_owned()).or_default();
        let mut wake = None;
        let mut remove = false;
        let managed = object.labels().contains_key(MANAGED);
        if whole && list.phase.is_ending() {
            wake = local.dissolve(list, how, now);
        } else if object.metadata.deletion_timestamp.is_some() {
            // Its servers run on: they may be needed, and an object that goes is no instruction.
        } else {
            match refusal(&object.spec, cluster, whole)? {
                Acceptance::Held => {}
                Acceptance::Refused(why) => told.refused = Some(why),
                Acceptance::Yes => wake = life.act(cluster, &object.spec, how, now, &mut told),
            }
        }
        life.move_on();
        let listed = life.list.servers.iter().any(|s| s.cluster == cluster);
        if let Some(local) = life.clusters.get_mut(cluster) {
            let votes = local.servers.values().any(|s| life.voting.contains(&s.id));
            if !managed && local.observed_spec_hash.is_some() && !listed && !votes && life.formed {
                // Karmada let go of the object, and the ensemble of its servers.
                local.servers.clear();
                remove = true;
            }
        }
        life.move_on();
        life.complete(cluster, &object.spec, &told);
        let status = life.report(cluster, object, old, &told);
        let local = life.clusters.get(cluster).cloned().unwrap_or_default();
        let votes = local.servers.values().any(|s| life.voting.contains(&s.id));
        let has = object.finalizers().iter().any(|f| f == super::FINALIZER);
        let finalizer = match object.metadata.deletion_timestamp {
            Some(_) => has && votes && !local.dissolved,
            None => has || (!local.servers.is_empty() && !local.dissolved),
        };
        Ok(Some(Step { status, wake, finalizer, remove, changed: moved || life.visible() != before }))
    }

    /// The object with this uid is gone from a cluster, and with it its servers. It never comes back.
    pub fn forget(&mut self, cluster: &str, key: &Key, uid: &str) {
        self.gone.insert(uid.to_owned());
        let place = (cluster.to_owned(), key.clone());
        if self.homes.get(&place).is_some_and(|home| home.uid == uid)
            && let Some(home) = self.homes.remove(&place)
        {
            self.leave(cluster, key, home.ensemble);
        }
    }

    /// Gives an object its home in the ensemble whose list it has. Tells whether another one was left for it: the servers
    /// of another object, or of another ensemble, are none of this one's.
    fn settle_in(&mut self, cluster: &str, key: &Key, uid: &str, ensemble: Option<&str>) -> bool {
        let place = (cluster.to_owned(), key.clone());
        let mut left = Vec::new();
        if let Some(home) = self.homes.get(&place)
            && home.uid != uid
        {
            // Nobody saw the older one go.
            self.gone.insert(home.uid.clone());
            left.extend(self.homes.remove(&place));
        }
        let home = self.homes.entry(place).or_insert_with(|| Home { uid: uid.to_owned(), ..Home::default() });
        if let Some(id) = ensemble
            && id != home.ensemble
        {
            let next = Home { uid: uid.to_owned(), ensemble: id.to_owned() };
            left.push(std::mem::replace(home, next));
        }
        let moved = !left.is_empty();
        for home in left {
            self.leave(cluster, key, home.ensemble);
        }
        moved
    }

    /// Takes a cluster out of a life, which ends with its last one.
    fn leave(&mut self, cluster: &str, key: &Key, ensemble: String) {
        let id = (key.clone(), ensemble);
        if let Some(life) = self.lives.get_mut(&id) {
            life.clusters.remove(cluster);
            life.move_on();
            if life.clusters.is_empty() {
                self.lives.remove(&id);
            }
        }
    }
}

enum Acceptance {
    Yes,
    Held,
    Refused(String),
}

fn refusal(spec: &ZooKeeperSpec, cluster: &str, whole: bool) -> Result<Acceptance> {
    let (Some(name), Some(_)) = (&spec.cluster, &spec.spec_hash) else { return Ok(Acceptance::Held) };
    if spec.ensemble == Ensemble::default() {
        return Ok(Acceptance::Held);
    }
    if name != cluster {
        return Ok(Acceptance::Refused(format!("the spec is meant for cluster {name}")));
    }
    if !spec_hash::hash_matches(&serde_json::to_value(spec)?) {
        return Ok(Acceptance::Refused("the spec did not arrive whole: its pin is another".to_owned()));
    }
    Ok(if whole { Acceptance::Yes } else { Acceptance::Refused("the list of servers did not arrive whole".to_owned()) })
}

impl Local {
    fn dissolve(&mut self, list: &Ensemble, how: &Behaviour, now: Instant) -> Option<Instant> {
        if !self.dissolved && !self.servers.is_empty() {
            let until = *self.busy.get_or_insert(now + how.start);
            if now < until {
                return Some(until);
            }
        }
        self.busy = None;
        self.servers.clear();
        self.dissolved = true;
        self.list = Some(list.clone());
        None
    }

    fn voters(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|((role, _), _)| *role == Role::Voter).map(|(_, server)| server)
    }
}

impl Life {
    /// What agents of other clusters can see.
    fn visible(&self) -> (BTreeSet<i32>, BTreeSet<i32>, i64, Option<i32>, Option<i64>) {
        (self.voting.clone(), self.up(), self.version, self.leader, self.list.epoch)
    }

    fn up(&self) -> BTreeSet<i32> {
        self.clusters.values().flat_map(|l| l.servers.values()).filter(|s| s.up).map(|s| s.id).collect()
    }

    fn listed(&self) -> BTreeSet<i32> {
        self.list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect()
    }

    fn quorum(&self) -> bool {
        self.formed && self.up().intersection(&self.voting).count() >= majority(self.voting.len())
    }

    /// Elections and membership: one step towards the list, as often as a quorum allows.
    fn move_on(&mut self) {
        let (up, listed) = (self.up(), self.listed());
        if !self.formed && !listed.is_empty() && up.intersection(&listed).count() >= majority(listed.len()) {
            self.formed = true;
            self.voting = listed;
            self.version = FIRST_VERSION;
        } else if self.quorum() && !listed.is_empty() {
            let joined = listed.intersection(&up).copied();
            let next: BTreeSet<i32> = self.voting.intersection(&listed).copied().chain(joined).collect();
            if next != self.voting && up.intersection(&next).count() >= majority(next.len()) {
                self.voting = next;
                self.version += 1;
            }
        }
        if !self.quorum() {
            self.leader = None;
        } else if self.leader.is_none_or(|id| !up.contains(&id) || !self.voting.contains(&id)) {
            self.leader = up.intersection(&self.voting).next().copied();
        }
    }

    fn serves(&self, role: Role, server: &Server) -> bool {
        server.up && self.quorum() && (role == Role::Observer || self.voting.contains(&server.id))
    }

    /// Brings the servers of a cluster nearer to its spec. Tells when to look again.
    fn act(
        &mut self,
        cluster: &str,
        spec: &ZooKeeperSpec,
        how: &Behaviour,
        now: Instant,
        told: &mut Told,
    ) -> Option<Instant> {
        let mut local = self.clusters.remove(cluster).unwrap_or_default();
        local.observed_spec_hash.clone_from(&spec.spec_hash);
        local.list = Some(self.list.clone());
        let wake = self.act_on(&mut local, cluster, spec, how, now, told);
        self.clusters.insert(cluster.to_owned(), local);
        wake
    }

    fn act_on(
        &self,
        local: &mut Local,
        cluster: &str,
        spec: &ZooKeeperSpec,
        how: &Behaviour,
        now: Instant,
        told: &mut Told,
    ) -> Option<Instant> {
        told.progressing = Some(("True", "Starting", "servers are being started".to_owned()));
        let image = &spec.template.image;
        let broken = image.contains(BROKEN) || image.contains(SILENT);
        if let Some(until) = local.busy {
            if now < until {
                return Some(until);
            }
            local.busy = None;
            for server in local.servers.values_mut() {
                server.up |= !broken || server.revision != spec.revision;
            }
        }
        if broken && local.servers.values().any(|s| !s.up) {
            told.progressing = image
                .contains(BROKEN)
                .then(|| ("False", "ServerFailed", format!("a server does not start: image {image} cannot be pulled")));
            // Servers of the broken revision stay down until another one comes.
            return None;
        }
        // What an earlier, broken revision left down comes back with this one.
        if local.servers.values().any(|s| !s.up) {
            for server in local.servers.values_mut().filter(|s| !s.up) {
                server.revision.clone_from(&spec.revision);
            }
            local.busy = Some(now + how.restart);
            return local.busy;
        }
        let wanted: Vec<(Role, i32)> = (0..spec.replicas)
            .map(|ordinal| (Role::Voter, ordinal))
            .chain((0..spec.observers.unwrap_or(0)).map(|ordinal| (Role::Observer, ordinal)))
            .collect();
        let mut started = false;
        for place in wanted.iter().filter(|place| !local.servers.contains_key(place)).copied().collect::<Vec<_>>() {
            let named =
                self.list.servers.iter().find(|s| s.cluster == cluster && (s.role, s.ordinal) == place).map(|s| s.id);
            if let Some(id) = named {
                local.servers.insert(place, Server { id, revision: spec.revision.clone(), up: false });
                started = true;
            }
        }
        if started {
            local.busy = Some(now + how.start);
            return local.busy;
        }
        let surplus: Vec<(Role, i32)> = local.servers.keys().filter(|place| !wanted.contains(place)).copied().collect();
        for place in surplus {
            let id = local.servers.get(&place).map_or(0, |s| s.id);
            if place.0 == Role::Voter && self.voting.contains(&id) {
                told.blocked = self.listed().contains(&id).then(|| {
                    format!("server {id} is still a voter of the ensemble and of the list: it is not stopped")
                });
            } else {
                local.servers.remove(&place);
            }
        }
        let outdated = local.servers.iter().find(|(_, s)| s.revision != spec.revision).map(|(place, _)| *place);
        if let Some(place) = outdated {
            // The lock of the ensemble: no serving voter is taken out unless a majority goes on without it.
            let own = local.voters().filter(|s| s.up && self.voting.contains(&s.id)).count();
            let others = (self.up_elsewhere(cluster) + own).saturating_sub(1);
            if place.0 == Role::Voter && self.voting.len() > 2 && others < majority(self.voting.len()) {
                told.progressing = Some(("True", "WaitsForQuorum", "a restart would lose the quorum".to_owned()));
                return None;
            }
            if let Some(server) = local.servers.get_mut(&place) {
                server.up = false;
                server.revision.clone_from(&spec.revision);
            }
            local.busy = Some(now + how.restart);
            return local.busy;
        }
        None
    }

    fn up_elsewhere(&self, cluster: &str) -> usize {
        let others = self.clusters.iter().filter(|(name, _)| *name != cluster);
        others.flat_map(|(_, l)| l.servers.values()).filter(|s| s.up && self.voting.contains(&s.id)).count()
    }

    /// Whether a cluster has done what it was told; once done it stays so for that pin.
    fn complete(&mut self, cluster: &str, spec: &ZooKeeperSpec, told: &Told) {
        let Some(local) = self.clusters.get(cluster) else { return };
        let replicas = usize::try_from(spec.replicas).unwrap_or(0);
        let observers = usize::try_from(spec.observers.unwrap_or(0)).unwrap_or(0);
        let done = local.observed_spec_hash.is_some()
            && local.observed_spec_hash == spec.spec_hash
            && told.refused.is_none()
            && local.busy.is_none()
            && local.voters().count() == replicas
            && local.servers.len() == replicas + observers
            && local.servers.values().all(|s| s.up && s.revision == spec.revision)
            && (!self.formed || local.servers.iter().all(|((role, _), s)| self.serves(*role, s)));
        if done && let Some(local) = self.clusters.get_mut(cluster) {
            local.completed_spec_hash.clone_from(&local.observed_spec_hash);
        }
    }

    fn report(&self, cluster: &str, object: &ZooKeeper, old: &ZooKeeperStatus, told: &Told) -> ZooKeeperStatus {
        let Some(local) = self.clusters.get(cluster) else { return ZooKeeperStatus::default() };
        let mut status =
            ZooKeeperStatus { observed_generation: object.metadata.generation, ..ZooKeeperStatus::default() };
        let mut conditions = Vec::new();
        if let Some(why) = &told.refused {
            conditions.push(("Blocked", "True", "SpecRefused", why.clone()));
        }
        if local.dissolved {
            status.ensemble.clone_from(&local.list);
            status.observed_spec_hash.clone_from(&local.observed_spec_hash);
            status.replicas = Some(0);
            status.started_replicas = Some(0);
            status.ready_replicas = Some(0);
            conditions.push(("Decommissioned", "True", "Decommissioned", "no server is left here".to_owned()));
        } else if local.observed_spec_hash.is_some() {
            self.numbers(local, cluster, &object.name_any(), &mut status);
            if local.completed_spec_hash == local.observed_spec_hash {
                conditions.push(("Progressing", "False", "Complete", "every server is as declared".to_owned()));
            } else if let Some((state, reason, message)) = &told.progressing {
                conditions.push(("Progressing", state, reason, message.clone()));
            }
            if let Some(why) = &told.blocked {
                conditions.push(("Blocked", "True", "StillVotes", why.clone()));
            }
        }
        status.conditions = conditions
            .into_iter()
            .map(|(type_, state, reason, message)| {
                let before = old.conditions.iter().find(|c| c.type_ == type_ && c.status == state);
                Condition {
                    type_: type_.to_owned(),
                    status: state.to_owned(),
                    reason: reason.to_owned(),
                    message,
                    last_transition_time: before.map_or_else(now_in_seconds, |c| c.last_transition_time.clone()),
                    observed_generation: None,
                }
            })
            .collect();
        status
    }

    fn numbers(&self, local: &Local, cluster: &str, name: &str, status: &mut ZooKeeperStatus) {
        let count = |n: usize| i32::try_from(n).ok();
        let id = self.list.incarnation.clone().unwrap_or_default();
        status.observed_spec_hash.clone_from(&local.observed_spec_hash);
        status.completed_spec_hash.clone_from(&local.completed_spec_hash);
        status.ensemble.clone_from(&local.list);
        status.replicas = count(local.servers.len());
        status.started_replicas = count(local.voters().filter(|s| s.up).count());
        status.ready_replicas = count(local.voters().filter(|s| self.serves(Role::Voter, s)).count());
        status.servers = local
            .servers
            .iter()
            .map(|((role, ordinal), server)| {
                let serving = self.serves(*role, server);
                let mode = match role {
                    _ if !serving => "looking",
                    Role::Observer => "observer",
                    Role::Voter if self.leader == Some(server.id) => "leader",
                    Role::Voter => "follower",
                };
                let part = if *role == Role::Observer { "-o" } else { "" };
                ServerStatus {
                    id: server.id,
                    pod: Some(format!("{name}-{id}{part}-{ordinal}")),
                    mode: Some(mode.to_owned()),
                    serving,
                    synced: serving,
                    accepted_epoch: Some(i64::from(self.formed)),
                    volume: Some(format!("{cluster}-{id}{part}-{ordinal}")),
                    lost: false,
                }
            })
            .collect();
        let reads = local.servers.iter().any(|((role, _), s)| self.serves(*role, s));
        if reads {
            status.voting_members = self.voting.iter().copied().collect();
            status.config_version = Some(self.version);
            status.leader = self.leader;
            status.published_epoch = self.list.epoch;
        }
        if local.servers.values().all(|server| server.up) {
            status.ensemble_tls = local.list.as_ref().and_then(|list| list.tls.clone());
        }
        if !local.servers.is_empty() {
            status.writable = Some(reads);
        }
    }
}

/// The API server keeps times in seconds.
fn now_in_seconds() -> Time {
    Time(Timestamp::new(Timestamp::now().as_second(), 0).unwrap_or(Timestamp::UNIX_EPOCH))
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { start: Duration::from_millis(300), restart: Duration::from_millis(200), mute: false }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use mczk::api::zookeeper::Server;
    use serde_json::json;

    use mczk::rollout::cluster_spec;

    use super::*;
    use mczk::api::zookeeper::EnsemblePhase;

    /// Clusters of one ensemble, each with one object, looked at until nothing moves.
    struct Members {
        world: World,
        objects: BTreeMap<String, ZooKeeper>,
        list: Ensemble,
        now: Instant,
    }

    impl Members {
        fn new(names: &[&str]) -> Result<Self> {
            let spec = json!({
                "replicas": 0, "template": { "image": "zk:1", "storage": { "size": "1Gi" } }, "renderVersion": 1,
                "serverImage": "mczk", "tls": { "quorum": true }, "revision": "r1", "ensemble": {},
            });
            let object: ZooKeeper = serde_json::from_value(json!({
                "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
                "metadata": { "name": "zoo", "namespace": "n", "generation": 1, "labels": { MANAGED: "true" } },
                "spec": spec,
            }))?;
            let mut members = Self {
                world: World::default(),
                objects: names.iter().map(|name| ((*name).to_owned(), object.clone())).collect(),
                list: Ensemble { incarnation: Some("abc".to_owned()), ..Ensemble::default() },
                now: Instant::now(),
            };
            members.born(1);
            Ok(members)
        }

        /// The objects are new ones.
        fn born(&mut self, time: u32) {
            for (cluster, object) in &mut self.objects {
                object.metadata.uid = Some(format!("{cluster}-{time}"));
                object.status = None;
            }
        }

        /// Everything is deleted and declared anew: objects of the same names, and a list of another ensemble.
        fn anew(&mut self) -> Result<()> {
            self.list = Ensemble { incarnation: Some("def".to_owned()), ..Ensemble::default() };
            self.born(2);
            for object in self.objects.values_mut() {
                object.spec.ensemble = Ensemble::default();
                (object.spec.replicas, object.spec.cluster, object.spec.spec_hash) = (0, None, None);
            }
            self.list(&THREE, false)
        }

        fn step(&mut self, cluster: &str, object: &ZooKeeper) -> Result<Option<Step>> {
            let old = object.status.clone().unwrap_or_default();
            self.world.step(cluster, object, &old, &Behaviour::default(), self.now)
        }

        fn list(&mut self, servers: &[(i32, &str, i32)], dissolve: bool) -> Result<()> {
            let servers = servers.iter().map(|(id, cluster, ordinal)| Server {
                id: *id,
                cluster: (*cluster).to_owned(),
                ordinal: *ordinal,
                host: format!("s{id}"),
                role: Role::Voter,
            });
            self.list = server_list::with_hash(Ensemble {
                incarnation: self.list.incarnation.clone(),
                epoch: Some(self.list.epoch.unwrap_or(0) + 1),
                phase: if dissolve { EnsemblePhase::Decommissioning } else { EnsemblePhase::Running },
                servers: servers.collect(),
                ..Ensemble::default()
            })?;
            for object in self.objects.values_mut() {
                object.spec.ensemble = self.list.clone();
            }
            Ok(())
        }

        fn pin(&mut self, cluster: &str, replicas: i32, image: &str) -> Result<()> {
            let object = self.objects.get_mut(cluster).context("no such cluster")?;
            object.spec.template.image = image.to_owned();
            object.spec.revision = image.to_owned();
            let mut pinned =
                cluster_spec::for_cluster(&object.spec, cluster, replicas, object.spec.spec_hash.as_deref(), 0)?;
            pinned.ensemble = self.list.clone();
            object.spec = pinned;
            Ok(())
        }

        fn settle(&mut self) -> Result<()> {
            for _ in 0..50 {
                self.now += Duration::from_secs(1);
                for (cluster, mut object) in self.objects.clone() {
                    object.status = Some(self.step(&cluster, &object)?.context("the object is gone")?.status);
                    self.objects.insert(cluster, object);
                }
            }
            Ok(())
        }

        fn status(&self, cluster: &str) -> Result<ZooKeeperStatus> {
            self.objects.get(cluster).and_then(|o| o.status.clone()).context("no status")
        }

        fn complete(&self, cluster: &str) -> Result<bool> {
            let pin = self.objects.get(cluster).and_then(|o| o.spec.spec_hash.clone());
            Ok(pin.is_some() && self.status(cluster)?.completed_spec_hash == pin)
        }
    }

    const THREE: [(i32, &str, i32); 3] = [(1, "a", 0), (2, "b", 0), (3, "c", 0)];

    fn three() -> Result<Members> {
        let mut members = Members::new(&["a", "b", "c"])?;
        members.list(&THREE, false)?;
        for cluster in ["a", "b", "c"] {
            members.pin(cluster, 1, "zk:1")?;
            members.settle()?;
        }
        Ok(members)
    }

    #[test]
    fn held_objects_report_their_generation_alone() -> Result<()> {
        let mut members = Members::new(&["a"])?;
        members.settle()?;
        let only = ZooKeeperStatus { observed_generation: Some(1), ..ZooKeeperStatus::default() };
        assert_eq!(members.status("a")?, only);
        Ok(())
    }

    #[test]
    fn servers_serve_once_a_majority_is_started_over_all_clusters() -> Result<()> {
        let mut members = Members::new(&["a", "b", "c"])?;
        members.list(&THREE, false)?;
        members.pin("a", 1, "zk:1")?;
        members.settle()?;
        let first = members.status("a")?;
        assert_eq!((first.started_replicas, first.ready_replicas), (Some(1), Some(0)));
        assert!(members.complete("a")? && first.voting_members.is_empty());
        members.pin("b", 1, "zk:1")?;
        members.settle()?;
        assert_eq!(members.status("a")?.ready_replicas, Some(1));
        assert_eq!(members.status("b")?.voting_members, [1, 2, 3]);
        assert!(members.complete("b")?);
        Ok(())
    }

    #[test]
    fn steady_is_steady() -> Result<()> {
        let mut members = three()?;
        let before = members.status("a")?;
        members.settle()?;
        assert_eq!(members.status("a")?, before);
        Ok(())
    }

    #[test]
    fn a_damaged_spec_is_not_obeyed() -> Result<()> {
        let mut members = three()?;
        if let Some(object) = members.objects.get_mut("a") {
            object.spec.replicas = 0;
        }
        members.settle()?;
        let status = members.status("a")?;
        assert_eq!(status.started_replicas, Some(1));
        assert!(status.conditions.iter().any(|c| c.type_ == "Blocked" && c.status == "True"));
        Ok(())
    }

    #[test]
    fn a_voter_of_the_list_is_not_stopped() -> Result<()> {
        let mut members = three()?;
        members.pin("c", 0, "zk:1")?;
        members.settle()?;
        assert_eq!(members.status("c")?.started_replicas, Some(1));
        assert!(!members.complete("c")?);
        members.list(&[(1, "a", 0), (2, "b", 0)], false)?;
        members.settle()?;
        assert_eq!(members.status("a")?.voting_members, [1, 2]);
        assert_eq!(members.status("c")?.started_replicas, Some(0));
        assert!(members.complete("c")?);
        Ok(())
    }

    #[test]
    fn a_broken_image_takes_one_server_and_the_next_one_brings_it_back() -> Result<()> {
        let mut members = Members::new(&["a", "b"])?;
        members.list(&[(1, "a", 0), (2, "a", 1), (3, "b", 0)], false)?;
        members.pin("a", 2, "zk:1")?;
        members.pin("b", 1, "zk:1")?;
        members.settle()?;
        members.pin("a", 2, &format!("zk:{BROKEN}"))?;
        members.settle()?;
        let status = members.status("a")?;
        assert_eq!(status.ready_replicas, Some(1));
        assert!(status.conditions.iter().any(|c| c.type_ == "Progressing" && c.status == "False"));
        members.pin("a", 2, "zk:2")?;
        members.settle()?;
        assert!(members.complete("a")?);
        Ok(())
    }

    #[test]
    fn dissolved_is_reported_without_servers_and_by_clusters_without_a_pin_too() -> Result<()> {
        let mut members = Members::new(&["a", "b"])?;
        members.list(&[(1, "a", 0), (2, "b", 0)], false)?;
        members.pin("a", 1, "zk:1")?;
        members.settle()?;
        members.list(&[(1, "a", 0), (2, "b", 0)], true)?;
        members.settle()?;
        for cluster in ["a", "b"] {
            let status = members.status(cluster)?;
            assert!(status.conditions.iter().any(|c| c.type_ == "Decommissioned" && c.status == "True"));
            assert_eq!((status.epoch(), status.servers.len()), (Some(2), 0));
        }
        Ok(())
    }

    /// Deployed, dissolved and forgotten; with the last objects, at which a task may still be looking.
    fn gone() -> Result<(Members, BTreeMap<String, ZooKeeper>)> {
        let mut members = three()?;
        members.list(&THREE, true)?;
        members.settle()?;
        let last = members.objects.clone();
        for (cluster, object) in &last {
            members.world.forget(cluster, &Key::of(object), &object.uid().context("no uid")?);
        }
        Ok((members, last))
    }

    fn deploy(members: &mut Members) -> Result<()> {
        for cluster in ["a", "b", "c"] {
            members.pin(cluster, 1, "zk:1")?;
            members.settle()?;
            assert!(members.complete(cluster)?, "{:?}", members.status(cluster)?);
            assert!(members.status(cluster)?.conditions.iter().all(|c| c.type_ != "Decommissioned"));
        }
        assert_eq!(members.status("a")?.voting_members, [1, 2, 3]);
        Ok(())
    }

    #[test]
    fn a_task_that_outlives_its_object_leaves_nothing_to_the_next_one() -> Result<()> {
        let (mut members, last) = gone()?;
        for (cluster, object) in &last {
            assert!(members.step(cluster, object)?.is_none(), "the object of {cluster} is gone");
        }
        assert!(members.world.lives.is_empty() && members.world.homes.is_empty());
        members.anew()?;
        deploy(&mut members)
    }

    #[test]
    fn nor_does_it_once_the_next_one_is_there() -> Result<()> {
        let (mut members, last) = gone()?;
        members.anew()?;
        members.settle()?;
        for (cluster, object) in &last {
            assert!(members.step(cluster, object)?.is_none(), "the object of {cluster} is gone");
            // The watch may tell late.
            members.world.forget(cluster, &Key::of(object), &object.uid().context("no uid")?);
        }
        deploy(&mut members)
    }

    #[test]
    fn a_new_object_begins_with_nothing_of_one_that_nobody_saw_go() -> Result<()> {
        let mut members = three()?;
        let last = members.objects.clone();
        members.anew()?;
        deploy(&mut members)?;
        for (cluster, object) in &last {
            assert!(members.step(cluster, object)?.is_none(), "the object of {cluster} is gone");
        }
        Ok(())
    }

    #[test]
    fn the_list_of_another_ensemble_replaces_a_newer_one_of_the_last() -> Result<()> {
        let mut members = three()?;
        members.list(&THREE, true)?;
        members.settle()?;
        // The objects stay, and are taken over by an ensemble that was declared anew.
        let uids = members.objects.clone();
        members.anew()?;
        for (cluster, object) in &mut members.objects {
            object.metadata.uid = uids.get(cluster).and_then(ResourceExt::uid);
        }
        assert!(members.list.epoch < uids.get("a").and_then(|o| o.spec.ensemble.epoch));
        deploy(&mut members)
    }
}
