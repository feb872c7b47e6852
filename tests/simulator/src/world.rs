//! `ZooKeeper` servers of all member clusters, in memory: elections, reconfiguration, and the restart lock. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use mczk_api::{
    contract::{
        control_api::{
            Configuration, ConfiguredServer, Disk, LOCK_LEASE, Mode, Phase, Problem, Reconfiguration, RestartLock,
            ServerReport,
        },
        server_list::majority,
    },
    zookeeper::{Ensemble as ServerList, Role},
};
use mczk_rules::server::permitted_step::{self, Committed, Leading};

/// The first version of a configuration: `ZooKeeper` uses transaction ids, and this is the first of the first epoch.
const FIRST_VERSION: i64 = 1 << 32;

/// Identity of a pod, and of its volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Its member cluster.
    pub cluster: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A pod in which a server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its identity.
    pub key: PodKey,
    /// Its uid.
    pub uid: String,
    /// Incarnation of the ensemble.
    pub incarnation: String,
    /// Role of the server.
    pub role: Role,
    /// Number in the StatefulSet.
    pub ordinal: i32,
    /// Revision of the pod.
    pub revision: String,
}

/// What servers report of their volumes and of `ZooKeeper`, besides what the world plays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Use of the volume; absent as of a server that cannot read it.
    pub disk: Option<Disk>,
    /// True if `ZooKeeper` cannot read its files.
    pub corrupt: bool,
    /// Version of `ZooKeeper`.
    pub version: Option<String>,
}

/// Why a server does not do what an agent requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It does not run.
    Down,
    /// It refuses.
    Refused(Problem),
}

fn refused(reason: &str) -> Failure {
    Failure::Refused(Problem { reason: reason.to_owned(), message: reason.to_owned() })
}

/// All servers that run, and the ensembles that they form.
#[derive(Debug, Default)]
pub struct World {
    servers: BTreeMap<PodKey, Server>,
    /// Ids on volumes, which outlive pods.
    volumes: BTreeMap<PodKey, i32>,
    /// By incarnation, which no two ensembles share.
    ensembles: BTreeMap<String, Ensemble>,
    violations: Vec<(String, String)>,
    /// By cluster and namespace.
    conditions: BTreeMap<(String, String), Condition>,
    /// Clusters without power: none of their servers answers or follows.
    dark: BTreeSet<String>,
    addresses: u32,
}

#[derive(Debug)]
struct Server {
    pod: Pod,
    address: Ipv4Addr,
    id: Option<i32>,
}

#[derive(Debug, Default)]
struct Ensemble {
    /// The server list that the pods of a cluster mount.
    mounted: BTreeMap<String, ServerList>,
    /// The server list in the ensemble's own znode.
    published: Option<ServerList>,
    /// Absent until a quorum forms.
    configuration: Option<Configuration>,
    leader: Option<i32>,
    lock: Option<(RestartLock, Instant)>,
    /// True if servers may stop in any order.
    is_ending: bool,
    /// Ids of the servers that run `ZooKeeper`.
    running: BTreeSet<i32>,
    /// Steps of the configuration, in order.
    steps: Vec<Reconfiguration>,
}

impl Ensemble {
    /// The newest server list that servers of a cluster can read.
    fn list(&self, cluster: &str) -> Option<&ServerList> {
        self.mounted.get(cluster).into_iter().chain(&self.published).max_by_key(|list| list.epoch)
    }

    fn newest_list(&self) -> Option<&ServerList> {
        self.mounted.values().chain(&self.published).max_by_key(|list| list.epoch)
    }

    fn voters(&self) -> BTreeSet<i32> {
        self.configuration.iter().flat_map(Configuration::voters).collect()
    }

    fn has_majority(&self, voters: &BTreeSet<i32>) -> bool {
        !voters.is_empty() && self.running.intersection(voters).count() >= majority(voters.len())
    }

    /// Voters that follow, without the leader.
    fn followers(&self) -> usize {
        self.voters().intersection(&self.running).count().saturating_sub(1)
    }

    /// For how long the leader has missed voters: always for long enough, since the agents measure the time too.
    fn short_for(&self) -> Duration {
        let is_short = self.followers() + 1 < self.voters().len();
        if is_short { Duration::from_secs(86_400) } else { Duration::ZERO }
    }

    fn has_quorum(&self) -> bool {
        self.has_majority(&self.voters())
    }

    /// Forms the first quorum, and elects a leader.
    fn elect(&mut self) {
        if self.configuration.is_none()
            && let Some(list) = self.newest_list().filter(|list| list.phase.is_bootstrap())
        {
            let voters = list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
            if self.has_majority(&voters) {
                let configured = list.servers.iter();
                let servers =
                    configured.map(|s| ConfiguredServer { id: s.id, host: s.host.clone(), role: s.role }).collect();
                self.configuration = Some(Configuration { version: FIRST_VERSION, servers });
            }
        }
        let candidates: BTreeSet<i32> = self.voters().intersection(&self.running).copied().collect();
        if !self.has_quorum() {
            self.leader = None;
            self.lock = None;
        } else if self.leader.is_none_or(|id| !candidates.contains(&id)) {
            // As in ZooKeeper, if all have the same transactions.
            self.leader = candidates.last().copied();
        }
    }

    /// What must not happen: a serving voter stops without the restart lock, or the quorum is lost with it.
    fn violation(&self, id: i32, had_quorum: bool) -> Option<&'static str> {
        let voters = self.voters();
        if !had_quorum || self.is_ending || !voters.contains(&id) || voters.len() == 1 {
            return None;
        }
        if self.lock.as_ref().is_none_or(|(lock, _)| lock.server != id) {
            return Some("stopped without the restart lock");
        }
        (voters.len() > 2 && !self.has_quorum()).then_some("stopped, and the quorum was lost")
    }
}

impl World {
    /// The pods of a cluster mount this server list from now on.
    pub fn mount(&mut self, cluster: &str, list: ServerList) {
        let Some(incarnation) = list.incarnation.clone() else { return };
        let ensemble = self.ensembles.entry(incarnation.clone()).or_default();
        ensemble.mounted.insert(cluster.to_owned(), list);
        self.settle(&incarnation);
    }

    /// The servers of an incarnation may stop in any order from now on.
    pub fn end(&mut self, incarnation: &str) {
        if let Some(ensemble) = self.ensembles.get_mut(incarnation) {
            ensemble.is_ending = true;
        }
    }

    /// Starts the server of a pod, and returns its address.
    pub fn start(&mut self, pod: Pod) -> Ipv4Addr {
        self.addresses += 1;
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 0)) + self.addresses);
        let incarnation = pod.incarnation.clone();
        self.servers.insert(pod.key.clone(), Server { pod, address, id: None });
        self.settle(&incarnation);
        address
    }

    /// True if a server ran on the volume of this pod before.
    #[must_use]
    pub fn has_volume(&self, key: &PodKey) -> bool {
        self.volumes.contains_key(key)
    }

    /// Stops the server of a pod, as an agent or Kubernetes does, and checks that it may.
    pub fn stop(&mut self, key: &PodKey) {
        let Some(server) = self.servers.get(key) else { return };
        if let Some((id, ensemble)) = server.id.zip(self.ensembles.get_mut(&server.pod.incarnation)) {
            let had_quorum = ensemble.has_quorum();
            if ensemble.running.remove(&id)
                && let Some(what) = ensemble.violation(id, had_quorum)
            {
                let text = format!("server {id}, pod {} of {}, {what}", key.name, key.cluster);
                self.violate(&key.namespace, text);
            }
        }
        self.crash(key);
    }

    /// Stops the server of a pod, as a fault does.
    pub fn crash(&mut self, key: &PodKey) {
        if let Some(server) = self.servers.remove(key) {
            self.settle(&server.pod.incarnation);
        }
    }

    /// Forgets an incarnation: its next server list bootstraps it again.
    pub fn forget(&mut self, incarnation: &str) {
        self.ensembles.remove(incarnation);
    }

    /// The servers of a namespace in a cluster report this condition from now on.
    pub fn set_condition(&mut self, cluster: &str, namespace: &str, condition: Condition) {
        self.conditions.insert((cluster.to_owned(), namespace.to_owned()), condition);
    }

    /// Cuts the power of a cluster, or returns it.
    pub fn set_power(&mut self, cluster: &str, has_power: bool) {
        if has_power {
            self.dark.remove(cluster);
        } else {
            self.dark.insert(cluster.to_owned());
        }
        let incarnations: Vec<String> = self.ensembles.keys().cloned().collect();
        for incarnation in &incarnations {
            self.settle(incarnation);
        }
    }

    /// Records what must not happen in a namespace.
    pub fn violate(&mut self, namespace: &str, text: String) {
        self.violations.push((namespace.to_owned(), text));
    }

    /// True if the server of a pod serves clients.
    #[must_use]
    pub fn serves(&self, key: &PodKey) -> bool {
        self.servers.get(key).is_some_and(|server| self.is_serving(server))
    }

    /// What agents did in a namespace and must never do.
    pub fn violations<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a str> {
        self.violations.iter().filter(move |(of, _)| of == namespace).map(|(_, text)| text.as_str())
    }

    /// The restart lock of an ensemble.
    #[must_use]
    pub fn lock(&self, incarnation: &str) -> Option<&RestartLock> {
        self.ensembles.get(incarnation)?.lock.as_ref().map(|(lock, _)| lock)
    }

    /// The server list in an ensemble's own znode.
    #[must_use]
    pub fn published(&self, incarnation: &str) -> Option<&ServerList> {
        self.ensembles.get(incarnation)?.published.as_ref()
    }

    /// Steps of an ensemble's configuration, in order.
    #[must_use]
    pub fn steps(&self, incarnation: &str) -> &[Reconfiguration] {
        self.ensembles.get(incarnation).map(|ensemble| ensemble.steps.as_slice()).unwrap_or_default()
    }

    /// Gives ids to servers, and elects.
    fn settle(&mut self, incarnation: &str) {
        let Some(ensemble) = self.ensembles.get_mut(incarnation) else { return };
        ensemble.running.clear();
        for server in self.servers.values_mut().filter(|server| server.pod.incarnation == incarnation) {
            let Some(list) = ensemble.list(&server.pod.key.cluster) else { continue };
            let pod = &server.pod;
            let is_same = |s: &&mczk_api::zookeeper::Server| {
                s.cluster == pod.key.cluster && (s.role, s.ordinal) == (pod.role, pod.ordinal)
            };
            let listed = list.servers.iter().find(is_same).map(|s| s.id);
            let is_suspended = list.phase.is_suspended();
            server.id = server.id.or(listed).or_else(|| self.volumes.get(&pod.key).copied());
            if let Some(id) = server.id {
                self.volumes.insert(pod.key.clone(), id);
                if !is_suspended && !self.dark.contains(&pod.key.cluster) {
                    ensemble.running.insert(id);
                }
            }
        }
        ensemble.elect();
    }

    fn is_serving(&self, server: &Server) -> bool {
        let Some(ensemble) = self.ensembles.get(&server.pod.incarnation) else { return false };
        ensemble.has_quorum() && server.id.is_some_and(|id| ensemble.running.contains(&id))
    }

    /// The server with this address, or with this name in a server list, if its cluster has power.
    fn resolve(&self, host: &str) -> Option<&Server> {
        self.find(host).filter(|server| !self.dark.contains(&server.pod.key.cluster))
    }

    fn find(&self, host: &str) -> Option<&Server> {
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return self.servers.values().find(|server| server.address == address);
        }
        let lists = self.ensembles.values().flat_map(|e| e.mounted.values().chain(&e.published));
        let mut named = lists.flat_map(|list| list.all_servers().map(move |server| (&list.incarnation, server)));
        let (incarnation, named) = named.find(|(_, server)| server.host == host)?;
        self.servers.values().find(|Server { pod, .. }| {
            pod.key.cluster == named.cluster
                && (pod.role, pod.ordinal) == (named.role, named.ordinal)
                && Some(&pod.incarnation) == incarnation.as_ref()
        })
    }

    /// The ensemble of a server that serves.
    fn serving(&mut self, host: &str) -> Result<(Option<i32>, &mut Ensemble), Failure> {
        let server = self.resolve(host).ok_or(Failure::Down)?;
        let (id, incarnation) = (server.id, server.pod.incarnation.clone());
        if !self.is_serving(server) {
            return Err(refused("quorum"));
        }
        Ok((id, self.ensembles.get_mut(&incarnation).ok_or(Failure::Down)?))
    }

    /// What a server reports. Its certificates are those of the connection.
    ///
    /// # Errors
    /// If it does not run.
    pub fn view(&self, host: &str) -> Result<ServerReport, Failure> {
        let server = self.resolve(host).ok_or(Failure::Down)?;
        let pod = &server.pod;
        let none = Ensemble::default();
        let ensemble = self.ensembles.get(&pod.incarnation).unwrap_or(&none);
        let list = ensemble.list(&pod.key.cluster);
        let serving = self.is_serving(server);
        let leads = serving && server.id == ensemble.leader;
        let followers = ensemble.followers();
        let formed = ensemble.configuration.is_some();
        let place = (pod.key.cluster.clone(), pod.key.namespace.clone());
        let Condition { disk, corrupt, version } = self.conditions.get(&place).cloned().unwrap_or_default();
        Ok(ServerReport {
            id: server.id,
            pod: pod.key.name.clone(),
            incarnation: pod.incarnation.clone(),
            phase: match list.map(|list| list.phase) {
                Some(phase) if phase.is_suspended() => Phase::Suspended,
                Some(_) if server.id.is_some() => Phase::Running,
                _ => Phase::Waiting { reason: "no server list names it".to_owned() },
            },
            revision: pod.revision.clone(),
            mode: Some(match pod.role {
                _ if !serving => Mode::Looking,
                Role::Observer => Mode::Observer,
                Role::Voter if leads => Mode::Leader,
                Role::Voter => Mode::Follower,
            }),
            serving,
            synced: serving,
            settled: serving,
            zxid: ensemble.configuration.as_ref().map(|configuration| configuration.version),
            synced_voters: leads.then(|| i32::try_from(followers).unwrap_or(i32::MAX)),
            snapshot_bytes: None,
            short_seconds: leads.then(|| i64::try_from(ensemble.short_for().as_secs()).unwrap_or(i64::MAX)),
            version,
            configuration: ensemble.configuration.clone().filter(|_| serving),
            accepted_epoch: i64::from(formed),
            volume: format!("{}/{}", pod.key.cluster, pod.key.name),
            first_start: None,
            acknowledged_nothing: false,
            stored_configuration: None,
            generations: BTreeMap::new(),
            unraised: None,
            turned_away: None,
            disk,
            corrupt,
            lost: false,
            server_list: list.cloned(),
            restart_lock: ensemble.lock.as_ref().filter(|_| serving).map(|(lock, _)| lock.clone()),
            loaded: None,
        })
    }

    /// Takes a step of the configuration.
    ///
    /// # Errors
    /// If the server does not serve, the step is stale, or the new voters have no majority.
    pub fn reconfigure(&mut self, host: &str, step: &Reconfiguration) -> Result<Configuration, Failure> {
        let (id, ensemble) = self.serving(host)?;
        let mut configuration = ensemble.configuration.clone().ok_or_else(|| refused("quorum"))?;
        if step.from_version != configuration.version {
            return Err(refused("stale"));
        }
        let committed = Committed {
            list: ensemble.published.as_ref(),
            voters: &configuration.voters().collect(),
            locked: ensemble.lock.as_ref().map(|(lock, _)| lock.server),
            leads: ensemble.leader.filter(|leader| Some(*leader) == id).map(|_| Leading {
                synced: ensemble.followers(),
                short_for: ensemble.short_for(),
                answers: step.remove.is_some_and(|id| ensemble.running.contains(&id)),
            }),
        };
        permitted_step::check(step, committed).map_err(|problem| refused(&problem.reason))?;
        let added = step.add.as_ref().map(|server| server.id);
        configuration.servers.retain(|s| Some(s.id) != step.remove && Some(s.id) != added);
        configuration.servers.extend(step.add.clone());
        configuration.servers.sort_by_key(|server| server.id);
        configuration.version += 1;
        if !ensemble.has_majority(&configuration.voters().collect()) {
            return Err(refused("newQuorum"));
        }
        ensemble.configuration = Some(configuration.clone());
        ensemble.steps.push(step.clone());
        ensemble.elect();
        Ok(configuration)
    }

    /// Stores a server list in the ensemble, unless it has a newer one.
    ///
    /// # Errors
    /// If the server does not serve.
    pub fn publish(&mut self, host: &str, list: &ServerList) -> Result<Configuration, Failure> {
        let (_, ensemble) = self.serving(host)?;
        if ensemble.published.as_ref().is_none_or(|published| published.epoch < list.epoch) {
            ensemble.published = Some(list.clone());
        }
        ensemble.configuration.clone().ok_or_else(|| refused("quorum"))
    }

    /// Takes the restart lock, or extends it.
    ///
    /// # Errors
    /// If the server does not serve, or another holder has the lock.
    pub fn take_lock(&mut self, host: &str, lock: &RestartLock, now: Instant) -> Result<(), Failure> {
        let (id, ensemble) = self.serving(host)?;
        if id == Some(lock.server) {
            return Err(refused("self"));
        }
        let is_current = |(_, since): &&(RestartLock, Instant)| now.saturating_duration_since(*since) < LOCK_LEASE;
        if ensemble.lock.as_ref().filter(is_current).is_some_and(|(held, _)| held != lock) {
            return Err(refused("held"));
        }
        ensemble.lock = Some((lock.clone(), now));
        Ok(())
    }

    /// Releases the restart lock, if it is this one.
    ///
    /// # Errors
    /// If the server does not serve.
    pub fn release_lock(&mut self, host: &str, lock: &RestartLock) -> Result<(), Failure> {
        let (_, ensemble) = self.serving(host)?;
        ensemble.lock.take_if(|(held, _)| held == lock);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use mczk_api::{
        contract::server_list::with_hash,
        zookeeper::{EnsemblePhase, Server as Listed},
    };

    use super::*;

    const INCARNATION: &str = "abc123";

    fn list(epoch: i64, phase: EnsemblePhase, ids: &[i32]) -> ServerList {
        let server = |id: &i32| Listed {
            id: *id,
            cluster: format!("m{id}"),
            ordinal: 0,
            host: format!("s{id}"),
            role: Role::Voter,
        };
        let incarnation = Some(INCARNATION.to_owned());
        let servers = ids.iter().map(server).collect();
        with_hash(ServerList { incarnation, epoch: Some(epoch), phase, servers, ..ServerList::default() }).unwrap()
    }

    fn key(id: i32) -> PodKey {
        PodKey { cluster: format!("m{id}"), namespace: "ns".to_owned(), name: "zk-abc123-0".to_owned() }
    }

    fn start(world: &mut World, id: i32) {
        world.start(Pod {
            key: key(id),
            uid: "uid".to_owned(),
            incarnation: INCARNATION.to_owned(),
            role: Role::Voter,
            ordinal: 0,
            revision: "r1".to_owned(),
        });
    }

    fn mount(world: &mut World, list: &ServerList) {
        for cluster in ["m1", "m2", "m3", "m4"] {
            world.mount(cluster, list.clone());
        }
    }

    /// An ensemble of three voters, one in each cluster.
    fn three() -> World {
        let mut world = World::default();
        mount(&mut world, &list(1, EnsemblePhase::Bootstrapping, &[1, 2, 3]));
        (1..=3).for_each(|id| start(&mut world, id));
        mount(&mut world, &list(2, EnsemblePhase::Running, &[1, 2, 3]));
        world
    }

    fn lock(server: i32) -> RestartLock {
        RestartLock { holder: "m".to_owned(), server }
    }

    fn violations(world: &World) -> Vec<&str> {
        world.violations("ns").collect()
    }

    #[test]
    fn a_majority_of_the_bootstrap_forms_the_ensemble() {
        let mut world = World::default();
        start(&mut world, 1);
        assert!(matches!(world.view("10.128.0.1").unwrap().phase, Phase::Waiting { .. }));
        mount(&mut world, &list(1, EnsemblePhase::Bootstrapping, &[1, 2, 3]));
        let first = world.view("s1").unwrap();
        assert_eq!((first.id, first.phase, first.serving, first.accepted_epoch), (Some(1), Phase::Running, false, 0));
        assert_eq!(world.view("s2"), Err(Failure::Down));
        start(&mut world, 2);
        assert_eq!(world.view("s1").unwrap().mode, Some(Mode::Follower));
        let leader = world.view("s2").unwrap();
        assert_eq!((leader.mode, leader.accepted_epoch, leader.synced_voters), (Some(Mode::Leader), 1, Some(1)));
        assert_eq!(leader.configuration.unwrap().voters().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(world.serves(&key(2)) && !world.serves(&key(3)));
    }

    #[test]
    fn only_a_bootstrap_forms_an_ensemble_and_a_suspended_server_runs_no_zookeeper() {
        for (phase, expected) in
            [(EnsemblePhase::Running, Phase::Running), (EnsemblePhase::Suspended, Phase::Suspended)]
        {
            let mut world = World::default();
            mount(&mut world, &list(1, phase, &[1]));
            start(&mut world, 1);
            let view = world.view("s1").unwrap();
            assert_eq!((view.phase, view.serving), (expected, false));
        }
    }

    #[test]
    fn a_server_joins_by_a_step_that_is_not_stale() {
        let mut world = three();
        let listed = list(3, EnsemblePhase::Running, &[1, 2, 3, 4]);
        mount(&mut world, &listed);
        start(&mut world, 4);
        assert_eq!(world.view("s4").unwrap().mode, Some(Mode::Follower));
        world.publish("s1", &listed).unwrap();
        let version = world.view("s1").unwrap().configuration.unwrap().version;
        let added = ConfiguredServer { id: 4, host: "s4".to_owned(), role: Role::Voter };
        let step =
            |epoch, from_version| Reconfiguration { epoch, from_version, add: Some(added.clone()), remove: None };
        assert_eq!(world.reconfigure("s1", &step(2, version)), Err(refused("epoch")));
        assert_eq!(world.reconfigure("s1", &step(3, version - 1)), Err(refused("stale")));
        let configuration = world.reconfigure("s1", &step(3, version)).unwrap();
        assert_eq!(configuration.voters().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(world.steps(INCARNATION).len(), 1);
        // An older server list replaces no newer one.
        world.publish("s1", &list(2, EnsemblePhase::Running, &[1])).unwrap();
        assert_eq!(world.published(INCARNATION), Some(&listed));
    }

    #[test]
    fn one_holder_has_the_restart_lock_until_its_lease_ends() {
        let mut world = three();
        let now = Instant::now();
        assert_eq!(world.take_lock("s1", &lock(1), now), Err(refused("self")));
        world.take_lock("s2", &lock(1), now).unwrap();
        world.take_lock("s2", &lock(1), now + Duration::from_secs(20)).unwrap();
        assert_eq!(world.take_lock("s1", &lock(2), now + Duration::from_secs(40)), Err(refused("held")));
        world.take_lock("s1", &lock(2), now + Duration::from_secs(51)).unwrap();
        world.release_lock("s1", &lock(1)).unwrap();
        assert_eq!(world.lock(INCARNATION), Some(&lock(2)));
        world.release_lock("s1", &lock(2)).unwrap();
        assert_eq!(world.lock(INCARNATION), None);
    }

    #[test]
    fn a_restart_under_the_lock_violates_nothing_and_keeps_the_id() {
        let mut world = three();
        world.take_lock("s2", &lock(1), Instant::now()).unwrap();
        world.stop(&key(1));
        assert_eq!(world.view("s2").unwrap().mode, Some(Mode::Leader));
        assert!(world.has_volume(&key(1)));
        start(&mut world, 1);
        assert_eq!(world.view("s1").unwrap().mode, Some(Mode::Follower));
        assert_eq!(violations(&world), Vec::<&str>::new());
    }

    #[test]
    fn a_serving_voter_that_stops_without_the_lock_is_a_violation() {
        let mut world = three();
        world.stop(&key(1));
        assert_eq!(violations(&world), ["server 1, pod zk-abc123-0 of m1, stopped without the restart lock"]);
        assert_eq!(world.violations("other").count(), 0);
    }

    #[test]
    fn a_quorum_that_is_lost_is_a_violation() {
        let mut world = three();
        world.take_lock("s3", &lock(1), Instant::now()).unwrap();
        world.stop(&key(1));
        world.take_lock("s3", &lock(2), Instant::now()).unwrap_err();
        world.release_lock("s3", &lock(1)).unwrap();
        world.take_lock("s3", &lock(2), Instant::now()).unwrap();
        world.stop(&key(2));
        assert_eq!(violations(&world), ["server 2, pod zk-abc123-0 of m2, stopped, and the quorum was lost"]);
        assert_eq!(world.lock(INCARNATION), None);
    }

    #[test]
    fn servers_of_an_ensemble_that_ends_stop_in_any_order() {
        let mut world = three();
        world.end(INCARNATION);
        (1..=3).for_each(|id| world.stop(&key(id)));
        assert_eq!(violations(&world), Vec::<&str>::new());
    }

    #[test]
    fn a_condition_concerns_the_servers_of_one_cluster_and_namespace() {
        let mut world = three();
        let corrupt = Condition { corrupt: true, version: Some("3.9.3".to_owned()), ..Condition::default() };
        world.set_condition("m2", &key(2).namespace, corrupt);
        let report = world.view("s2").unwrap();
        assert_eq!((report.corrupt, report.version.as_deref(), report.disk), (true, Some("3.9.3"), None));
        assert!(!world.view("s1").unwrap().corrupt);
        world.set_condition("m2", "other", Condition::default());
        assert!(world.view("s2").unwrap().corrupt);
    }

    #[test]
    fn a_crash_is_no_violation_and_a_forgotten_incarnation_forms_again() {
        let mut world = three();
        world.crash(&key(1));
        world.crash(&key(2));
        assert_eq!((violations(&world), world.serves(&key(3))), (vec![], false));
        world.forget(INCARNATION);
        mount(&mut world, &list(3, EnsemblePhase::Bootstrapping, &[3]));
        assert!(world.serves(&key(3)));
    }

    #[test]
    fn another_incarnation_shares_no_servers() {
        let mut world = three();
        let other =
            ServerList { incarnation: Some("def456".to_owned()), ..list(1, EnsemblePhase::Bootstrapping, &[1]) };
        world.mount("m1", ServerList { servers: vec![], ..other });
        assert_eq!(world.view("s1").unwrap().incarnation, INCARNATION);
        assert!(world.lock("def456").is_none() && world.published("def456").is_none());
    }
}
