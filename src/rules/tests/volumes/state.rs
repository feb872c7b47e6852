//! The state of three or four servers, their volumes, and their agents.

use std::{
    collections::BTreeSet,
    ops::{Index, IndexMut},
    sync::Arc,
};

use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer},
        server_list::{majority, with_hash},
    },
    zookeeper::{Ensemble, EnsemblePhase, FirstStart, Role, Server as Listed},
};
use mczk_rules::server::{
    files::{Files, Log, Snapshot},
    start::{Peers, PodIdentity, Recorded, StartInputs, StoredServer, configured_servers},
    volume_age::{Generations, VolumeAge, VolumeMark, is_confirmed},
};

/// The server whose volume is damaged, or the first one: servers differ only in their ids.
pub const DAMAGED: usize = 0;
const INCARNATION: &str = "abc";
/// Bits of a zxid that count the transactions of an epoch.
const EPOCH: u32 = 32;

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    /// Identities are numbers. [`State::rename_identities`] keeps them small.
    pub identity: u8,
    /// True if the server has a configuration, which names all voters.
    pub seeded: bool,
    /// True if the marker that lets an empty server vote is there.
    pub marker: bool,
    /// True if a quorum formed with it.
    pub joined: bool,
    pub files: Files,
    pub generations: Generations,
}

impl Volume {
    pub fn new(identity: u8) -> Self {
        let (files, generations) = (Files::default(), Generations::default());
        Self { identity, seeded: false, marker: false, joined: false, files, generations }
    }

    pub const fn is_new(&self) -> bool {
        !self.seeded
    }

    /// The mark that a process finds.
    pub fn mark(&self) -> Option<Mark> {
        self.seeded.then_some((self.identity, self.generations.own, self.joined))
    }

    /// The last transaction that `ZooKeeper` loads. A server without one does not vote.
    pub fn end(&self) -> Option<i64> {
        let files = &self.files;
        let newest = files.snapshots.iter().filter(|snapshot| snapshot.complete).map(|snapshot| snapshot.zxid).max();
        let last = files.logs.iter().flat_map(|log| &log.runs).map(|(_, last)| *last).max();
        newest
            .map(|newest| last.map_or(newest, |last| last.max(newest)))
            .or_else(|| last.filter(|_| files.lacks_snapshot()))
    }

    /// True if `ZooKeeper` loads a transaction: from its newest complete snapshot, or from a log.
    pub fn holds(&self, zxid: i64) -> bool {
        let newest =
            self.files.snapshots.iter().filter(|snapshot| snapshot.complete).map(|snapshot| snapshot.zxid).max();
        let in_log = |log: &Log| log.runs.iter().any(|(first, last)| (*first..=*last).contains(&zxid));
        newest.is_some_and(|newest| zxid <= newest) || self.files.logs.iter().any(in_log)
    }

    /// Appends a transaction. A log ends with the snapshot that follows it.
    pub fn append(&mut self, zxid: i64) {
        let snapshot = self.files.snapshots.last().map_or(0, |snapshot| snapshot.zxid);
        match self.files.logs.last_mut().filter(|log| log.runs.last().is_some_and(|(_, last)| *last > snapshot)) {
            Some(log) => match log.runs.last_mut() {
                Some((_, last)) if *last + 1 == zxid => *last = zxid,
                _ => log.runs.push((zxid, zxid)),
            },
            None => self.files.logs.push(Log { begin: zxid, runs: vec![(zxid, zxid)] }),
        }
    }

    pub fn add_snapshot(&mut self, zxid: i64, complete: bool) {
        self.files.snapshots.retain(|snapshot| snapshot.zxid != zxid);
        self.files.snapshots.push(Snapshot { zxid, complete });
        self.files.snapshots.sort();
    }
}

/// A [`VolumeMark`] with the number of an identity.
pub type Mark = (u8, i64, bool);

fn volume_mark(mark: Mark) -> VolumeMark {
    VolumeMark { identity: mark.0.to_string(), generation: mark.1, formed: mark.2 }
}

/// What disturbs a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The answer of this server is late.
    Late(usize),
    /// The files cannot be read.
    Unread,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Process {
    #[default]
    Down,
    /// The parent process runs, and `ZooKeeper` does not.
    Waiting,
    Running,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub process: Process,
    pub volume: Volume,
    /// What this process has last written to the volume.
    pub written: Option<Mark>,
    /// True if it leads or follows.
    pub serves: bool,
    /// The identity with which it wants to start first, and the one that the agent answered.
    pub wants: Option<u8>,
    pub answer: Option<u8>,
    /// What the agent has recorded.
    pub record: Option<u8>,
    /// The phase that Karmada has delivered.
    pub list: usize,
}

impl Server {
    /// A server that never started.
    pub const fn new(volume: Volume, list: usize) -> Self {
        let (process, serves) = (Process::Down, false);
        Self { process, volume, written: None, serves, wants: None, answer: None, record: None, list }
    }

    fn identities(&self) -> impl Iterator<Item = u8> {
        let written = self.written.map(|(identity, ..)| identity);
        [Some(self.volume.identity), self.wants, self.answer, self.record, written].into_iter().flatten()
    }
}

/// The servers of a state. States share those that an action does not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Servers(Vec<Arc<Server>>);

impl Servers {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.0.iter().map(Arc::as_ref)
    }

    /// The servers that `changes` selects.
    pub fn filter_mut(&mut self, changes: impl Fn(usize, &Server) -> bool) -> impl Iterator<Item = &mut Server> {
        let all = self.0.iter_mut().enumerate();
        all.filter(move |(number, server)| changes(*number, server)).map(|(_, server)| Arc::make_mut(server))
    }
}

impl FromIterator<Server> for Servers {
    fn from_iter<I: IntoIterator<Item = Server>>(all: I) -> Self {
        Self(all.into_iter().map(Arc::new).collect())
    }
}

impl Index<usize> for Servers {
    type Output = Server;

    fn index(&self, number: usize) -> &Server {
        &self.0[number]
    }
}

impl IndexMut<usize> for Servers {
    fn index_mut(&mut self, number: usize) -> &mut Server {
        Arc::make_mut(&mut self.0[number])
    }
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub writes: u8,
    pub snapshots: u8,
    /// Partial snapshots, as a full disk leaves them.
    pub partial: u8,
    /// A volume is lost or returns as it was, or a file of it is missing or partial.
    pub damage: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub servers: Servers,
    /// So many of the servers, the first ones, have volumes that may be damaged.
    pub damaged: usize,
    pub formed: bool,
    /// True if every server ever joined.
    pub joined: bool,
    pub epoch: i64,
    /// Acknowledged transactions.
    pub history: Vec<i64>,
    /// The generations that the ensemble knows.
    pub published: Vec<i64>,
    /// A copy of a volume.
    pub saved: Option<(usize, Volume)>,
    pub budget: Budget,
    pub violation: Option<&'static str>,
}

pub const PHASES: [EnsemblePhase; 3] = [EnsemblePhase::Bootstrapping, EnsemblePhase::Formed, EnsemblePhase::Running];

pub fn id(server: usize) -> i32 {
    i32::try_from(server).unwrap() + 1
}

/// The cluster of a server.
pub fn listed_in(server: usize) -> String {
    format!("m{}", id(server))
}

fn list(phase: usize, count: usize) -> Ensemble {
    let servers = (0..count).map(|server| Listed {
        id: id(server),
        cluster: listed_in(server),
        ordinal: 0,
        host: format!("s{}", id(server)),
        role: Role::Voter,
    });
    let epoch = Some(i64::try_from(phase).unwrap() + 1);
    let incarnation = Some(INCARNATION.to_owned());
    with_hash(Ensemble { incarnation, epoch, phase: PHASES[phase], servers: servers.collect(), ..Ensemble::default() })
        .unwrap()
}

thread_local! {
    /// The list of each phase, with three servers or four.
    static LISTS: [[Ensemble; 3]; 2] = [3, 4].map(|count| [0, 1, 2].map(|phase| list(phase, count)));
}

impl State {
    /// So many servers that never started.
    pub fn new(count: usize, damaged: usize, budget: Budget) -> Self {
        let server = |number| Server::new(Volume::new(u8::try_from(number).unwrap()), 0);
        Self {
            damaged,
            servers: (0..count).map(server).collect(),
            formed: false,
            joined: false,
            epoch: 0,
            history: Vec::new(),
            published: vec![0; count],
            saved: None,
            budget,
            violation: None,
        }
    }

    /// Three servers that serve, after the bootstrap.
    pub fn serving(budget: Budget) -> Self {
        let mut state = Self::new(3, 1, budget);
        for server in state.servers.filter_mut(|_, _| true) {
            server.volume.seeded = true;
            server.volume.add_snapshot(0, true);
            (server.process, server.written, server.list) = (Process::Running, server.volume.mark(), 2);
        }
        state.elect(&[0, 1, 2]);
        state
    }

    /// Four servers of a bootstrap: three serve, and the last one has never started.
    pub fn formed(budget: Budget) -> Self {
        let mut state = Self::new(4, 2, budget);
        for server in state.servers.filter_mut(|number, _| number < 3) {
            server.volume.seeded = true;
            server.volume.add_snapshot(0, true);
            (server.process, server.written) = (Process::Running, server.volume.mark());
            server.record = Some(server.volume.identity);
        }
        state.elect(&[0, 1, 2]);
        state
    }

    /// The newest list that the operator has written.
    pub fn newest_list(&self) -> usize {
        usize::from(self.formed) + usize::from(self.joined)
    }

    pub fn all_serve(&self) -> bool {
        self.servers.iter().all(|server| server.serves)
    }

    pub fn is_damaged(&self) -> bool {
        usize::from(self.budget.damage) < self.damaged
    }

    /// The server list that Karmada has delivered to a server's cluster.
    pub fn list(&self, server: usize) -> Ensemble {
        LISTS.with(|lists| lists[self.servers.len() - 3][self.servers[server].list].clone())
    }

    /// True if the servers serve again: all, or a majority beside the damaged volume.
    pub fn recovers(&self) -> bool {
        if self.is_damaged() { self.has_quorum() } else { self.all_serve() }
    }

    /// True if the servers must be able to serve. A server that restarts before it joins a quorum cannot prove that its volume
    /// is the one that it left: docs/explanation/limits.md. Two lost volumes may leave no majority.
    pub fn must_recover(&self) -> bool {
        let proves = |at: usize| {
            let server = &self.servers[at];
            server.volume.joined || server.record.is_none() || self.may_elect(at)
        };
        !self.is_damaged() || self.damaged == 1 && (self.damaged..self.servers.len()).all(proves)
    }

    /// True if the volume of a server is an old copy, and no other process that runs knows of a newer generation.
    pub fn is_unknown_copy(&self, server: usize) -> bool {
        let volume = &self.servers[server].volume;
        let newer = |known: &i64| *known > volume.generations.own;
        let runs =
            self.servers.iter().enumerate().filter(|(other, at)| *other != server && at.process != Process::Down);
        let mut knows = runs.map(|(_, other)| other.volume.generations.known.get(&id(server)));
        volume.joined && newer(&self.published[server]) && !knows.any(|known| known.is_some_and(newer))
    }

    pub fn has_quorum(&self) -> bool {
        self.servers.iter().any(|server| server.serves)
    }

    /// A quorum that lost its majority, or whose leader may be gone, serves no longer.
    pub fn settle(&mut self) {
        if self.servers.iter().filter(|server| server.serves).count() < majority(self.servers.len()) {
            self.servers.filter_mut(|_, server| server.serves).for_each(|server| server.serves = false);
        }
    }

    pub fn next_zxid(&self) -> i64 {
        let last = self.history.last().copied().unwrap_or_default();
        if last >> EPOCH == self.epoch { last + 1 } else { self.epoch << EPOCH | 1 }
    }

    /// A server whose `ZooKeeper` runs and that may vote.
    pub fn may_elect(&self, server: usize) -> bool {
        self.servers[server].process == Process::Running && self.servers[server].volume.end().is_some()
    }

    /// True if a server lacks a transaction before its last one.
    fn has_hole(&self, server: usize) -> bool {
        let volume = &self.servers[server].volume;
        self.history.iter().any(|zxid| Some(*zxid) <= volume.end() && !volume.holds(*zxid))
    }

    /// These servers elect the one that is the furthest.
    pub fn elect(&mut self, members: &[usize]) {
        let newest = members.iter().filter_map(|member| self.servers[*member].volume.end()).max();
        if newest < self.history.last().copied() {
            self.violation = Some("an acknowledged write is lost");
        }
        if self.history.is_empty()
            || self.history.last().map(|last| last >> EPOCH) == Some(self.epoch)
            || self.epoch == 0
        {
            self.epoch += i64::from(self.epoch == 0 || !self.history.is_empty());
        }
        for member in members {
            self.follow(*member);
        }
    }

    /// A server copies what it lacks.
    pub fn follow(&mut self, server: usize) {
        if self.has_hole(server) {
            self.violation = Some("two servers differ");
        }
        let history = self.history.clone();
        let at = &mut self.servers[server];
        match at.volume.end() {
            Some(end) => history.iter().filter(|zxid| **zxid > end).for_each(|zxid| at.volume.append(*zxid)),
            None => at.volume.add_snapshot(history.last().copied().unwrap_or_default(), true),
        }
        at.volume.marker = false;
        (at.volume.joined, at.serves, self.formed) = (true, true, true);
        self.joined |= self.servers.iter().all(|server| server.volume.joined);
        self.raise();
    }

    /// Every server of the quorum raises its generation, if it has changed.
    pub fn raise(&mut self) {
        let serving: Vec<usize> = (0..self.servers.len()).filter(|server| self.servers[*server].serves).collect();
        for server in &serving {
            let volume = &mut self.servers[*server].volume;
            let before = &volume.generations;
            let held =
                volume.files.held(&before.held, Some(i64::MAX), self.history.last().copied().unwrap_or_default());
            let old = before.own < self.published[*server] && !before.seeded;
            if !old && (held != before.held || before.own == 0 || before.seeded) {
                let own = before.own.max(self.published[*server]) + 1;
                volume.generations = Generations { own, held, seeded: false, known: before.known.clone() };
                self.published[*server] = own;
            }
        }
        for server in serving {
            self.servers[server].written = self.servers[server].volume.mark();
            let known = self.published.iter().enumerate().filter(|(other, own)| *other != server && **own > 0);
            self.servers[server].volume.generations.known = known.map(|(other, own)| (id(other), *own)).collect();
        }
    }

    /// What the parent process of a server observes before it decides.
    pub fn observed(&self, server: usize, asks: bool, trouble: Trouble) -> StartInputs {
        let at = &self.servers[server];
        let volume = &at.volume;
        let has_logs = !volume.files.logs.is_empty();
        let files = if trouble == Trouble::Unread { Err("EIO".to_owned()) } else { Ok(&volume.files) };
        let (written, found) = (at.written.map(volume_mark), volume.mark().map(volume_mark));
        let stored = volume.seeded.then(|| StoredServer {
            incarnation: INCARNATION.into(),
            id: id(server),
            myid: Some(id(server)),
            list: None,
            dynamic: Some(Configuration { version: 1, servers: self.voters() }),
            accepted_epoch: i64::from(volume.joined),
            data: has_logs || volume.joined && !volume.files.snapshots.is_empty(),
            formed: volume.joined,
        });
        StartInputs {
            pod: PodIdentity { cluster: listed_in(server), role: Role::Voter, ordinal: 0 },
            assigned: Some(self.list(server)),
            stored,
            age: VolumeAge::of(&volume.generations, files, is_confirmed(written.as_ref(), found.as_ref())),
            suspended: None,
            set_aside: Vec::new(),
            available: u64::MAX,
            recorded: match at.answer {
                None => Recorded::Unknown,
                answer if answer == at.wants => Recorded::This,
                Some(_) => Recorded::Other,
            },
            peers: if asks { self.answers(server, trouble) } else { Peers::default() },
        }
    }

    /// What the other processes answer.
    fn answers(&self, server: usize, trouble: Trouble) -> Peers {
        let mut peers = Peers::default();
        let answers = |other: &usize| self.servers[*other].process != Process::Down && trouble != Trouble::Late(*other);
        for other in (0..self.servers.len()).filter(|other| *other != server && answers(other)) {
            let at = &self.servers[other];
            peers.answered.insert(id(other));
            if self.acknowledged_nothing(other) {
                peers.acknowledged_nothing.insert(id(other));
            } else if at.volume.is_new() {
                peers.forgetful.insert(id(other));
            }
            peers.accepted_epoch = peers.accepted_epoch.max(i64::from(at.volume.joined));
            let own = (id(other), at.volume.generations.own);
            for (of, generation) in at.volume.generations.known.iter().map(|(of, own)| (*of, *own)).chain([own]) {
                let known = peers.generations.entry(of).or_default();
                *known = generation.max(*known);
            }
            if at.serves {
                peers.configuration = Some(Configuration { version: 1, servers: self.voters() });
            }
        }
        peers
    }

    /// As the server reports it.
    fn acknowledged_nothing(&self, server: usize) -> bool {
        let StartInputs { age, recorded, .. } = self.observed(server, false, Trouble::None);
        !self.servers[server].volume.joined && (recorded == Recorded::This || age.has_vote())
    }

    pub fn recorded(&self, server: usize) -> Vec<FirstStart> {
        let record =
            self.servers[server].record.map(|volume| FirstStart { id: id(server), volume: volume.to_string() });
        record.into_iter().collect()
    }

    fn voters(&self) -> Vec<ConfiguredServer> {
        configured_servers(&self.list(DAMAGED))
    }

    /// An identity that nothing has.
    pub fn new_identity(&self) -> u8 {
        self.identities().into_iter().max().map_or(0, |highest| highest + 1)
    }

    fn identities(&self) -> BTreeSet<u8> {
        let saved = self.saved.iter().map(|(_, volume)| volume.identity);
        self.servers.iter().flat_map(Server::identities).chain(saved).collect()
    }

    /// Gives equal states equal identities.
    pub fn rename_identities(&mut self) {
        let mut names: Vec<u8> = Vec::new();
        let saved = self.saved.iter().map(|(_, volume)| volume.identity);
        for identity in self.servers.iter().flat_map(Server::identities).chain(saved) {
            if !names.contains(&identity) {
                names.push(identity);
            }
        }
        let renamed = |identity: u8| names.iter().position(|name| *name == identity).map_or(identity, as_number);
        for server in self.servers.filter_mut(|_, server| server.identities().any(|own| renamed(own) != own)) {
            let of_server = [&mut server.wants, &mut server.answer, &mut server.record].into_iter().flatten();
            let written = server.written.iter_mut().map(|(identity, ..)| identity);
            of_server.chain(written).chain([&mut server.volume.identity]).for_each(|own| *own = renamed(*own));
        }
        self.saved.iter_mut().for_each(|(_, volume)| volume.identity = renamed(volume.identity));
    }
}

fn as_number(index: usize) -> u8 {
    u8::try_from(index).expect("few identities")
}
