//! Power losses at every operation of a first start, a start that copies first, a join and a set-aside.
//!
//! Each sequence runs once, on a disk that records what changes and what is synced. Then the power goes off after each
//! single operation: the disk keeps what was synced, and a part of the rest. The server starts again on what is left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod machine;
mod zookeeper;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use disk::{Content, Mounted, Operation, Order, Recording, Survivors, Tree};
use machine::Machine;
use serde_json::{Value, json};
use zookeeper::{ZooKeeper, refuses};

use crate::transaction_log;
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer},
        server_list::with_hash,
    },
    mutation::Mutation,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server},
};
use mczk_rules::server::{
    jvm::BEGIN_WITH_LOG,
    start::{Decision, Peers, Start, configured_servers},
};

/// Seeds of the parts that survive by chance.
const SEEDS: u64 = 40;
/// The first transaction of the first epoch.
const FIRST: i64 = 0x1_0000_0001;
/// Notes from here on are generations that the ensemble knows. Lower ones are acknowledged transactions.
const GENERATION: u64 = 1 << 40;

/// A sequence, as it was recorded.
struct RecordedDisk {
    name: &'static str,
    recording: Recording,
    order: Order,
    list: Ensemble,
    /// True if the others formed a quorum before.
    formed: bool,
    /// What was on the volume before.
    former: Option<Tree>,
}

/// Number of folders so far.
static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder of this test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // Thousands of disks in memory take no time to sync.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let (process, number) = (std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed));
        let folder = parent.join(format!("mczk-power-{name}-{process}-{number}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Machine::install_java(&folder);
        Self(folder)
    }

    fn create(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        Machine::remove_java(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Servers by ids, each in the cluster of its number.
fn list(epoch: i64, incarnation: &str, phase: EnsemblePhase, servers: &[(i32, i32)]) -> Ensemble {
    let servers = servers.iter().map(|(id, n)| Server {
        id: *id,
        cluster: format!("m{n}"),
        ordinal: 0,
        host: format!("s{n}.test"),
        role: Role::Voter,
    });
    let list = Ensemble {
        incarnation: Some(incarnation.to_owned()),
        epoch: Some(epoch),
        phase,
        servers: servers.collect(),
        ..Ensemble::default()
    };
    with_hash(list).unwrap()
}

fn bootstrap() -> Ensemble {
    list(1, "current", EnsemblePhase::Bootstrapping, &[(1, 1), (2, 2), (3, 3)])
}

/// Servers 2, 3 and 5 serve, and server 4 joins in the place of server 1.
fn joining(incarnation: &str) -> Ensemble {
    list(2, incarnation, EnsemblePhase::default(), &[(2, 2), (3, 3), (4, 1), (5, 5)])
}

/// The others serve with these voters.
fn serving(voters: &[ConfiguredServer], generations: BTreeMap<i32, i64>) -> Peers {
    Peers {
        configuration: Some(Configuration { version: FIRST, servers: voters.to_vec() }),
        accepted_epoch: 1,
        answered: voters.iter().map(|voter| voter.id).collect(),
        generations,
        ..Peers::default()
    }
}

fn living() -> Vec<ConfiguredServer> {
    configured_servers(&joining("current")).into_iter().filter(|server| server.id != 4).collect()
}

/// Runs a sequence on a disk.
async fn record(
    name: &'static str,
    order: Order,
    list: &Ensemble,
    former: Option<&Tree>,
    run: impl AsyncFnOnce(&Machine, &ZooKeeper, &Mounted) -> io::Result<()>,
) -> RecordedDisk {
    let folder = Folder::new(name);
    let volume = folder.create("volume");
    let disk = Mounted::new(&volume, former.unwrap_or(&Tree::default()), None);
    let machine = Machine::new(&folder.0, volume.clone(), list, true);
    let lock = machine.volume().lock().unwrap().unwrap();
    run(&machine, &ZooKeeper::new(&volume, order == Order::PerFolder), &disk).await.unwrap();
    drop(lock);
    RecordedDisk {
        name,
        recording: disk.recording(),
        order,
        list: list.clone(),
        formed: false,
        former: former.cloned(),
    }
}

/// The server acknowledges transactions, and what `mczk server` writes meanwhile.
fn serve(machine: &Machine, zookeeper: &ZooKeeper, disk: &Mounted, list: &Ensemble, first: i64) -> io::Result<()> {
    let note = |zxid: i64| disk.note(u64::try_from(zxid).unwrap());
    let mut log = zookeeper.begin_log(first)?;
    note(first);
    let volume = machine.volume();
    volume.store_formed()?;
    volume.store_list(list)?;
    for number in 1..=3 {
        let zxid = first + number;
        zookeeper.append(&mut log, zxid)?;
        note(zxid);
        let files = transaction_log::listing(&volume.transactions_folder())?;
        let held = files.held(&volume.generations()?.held, Some(zxid), zxid - 1);
        let own = volume.raise_generation(number - 1, held, BTreeMap::from([(2, number)]))?.unwrap();
        disk.note(GENERATION + u64::try_from(own).unwrap());
    }
    Ok(())
}

async fn first_start(order: Order) -> RecordedDisk {
    record("first-start", order, &bootstrap(), None, async |machine, zookeeper, disk| {
        let start = machine.start(&Peers::default()).await.unwrap().unwrap();
        assert!(matches!(start.decision, Decision::SeedBootstrap { initialize: true, .. }), "{start:?}");
        zookeeper.load_nothing()?;
        zookeeper.enter_epoch(1, None)?;
        zookeeper.configure(FIRST - 1, &configured_servers(&bootstrap()))?;
        serve(machine, zookeeper, disk, &bootstrap(), FIRST)
    })
    .await
}

async fn join(order: Order, name: &'static str, incarnation: &str, former: Option<&Tree>) -> RecordedDisk {
    let list = joining(incarnation);
    record(name, order, &list, former, async |machine, zookeeper, disk| {
        let start = machine.start(&serving(&living(), BTreeMap::new())).await.unwrap().unwrap();
        assert!(matches!(start.decision, Decision::SeedAsObserver { .. }), "{start:?}");
        assert_eq!(start.set_aside, former.is_some());
        zookeeper.load_nothing()?;
        zookeeper.enter_epoch(1, Some(FIRST + 20))?;
        zookeeper.configure(FIRST, &start_servers(&start))?;
        // A reconfiguration gives it a vote.
        zookeeper.configure(FIRST + 21, &configured_servers(&list))?;
        serve(machine, zookeeper, disk, &list, FIRST + 21)
    })
    .await
}

/// A server that began with a right to vote, and joined no quorum, starts again while others serve: it copies first.
async fn copy_first(order: Order) -> RecordedDisk {
    let recorded = record("copy-first", order, &bootstrap(), None, async |machine, zookeeper, disk| {
        machine.start(&Peers::default()).await.unwrap().unwrap();
        zookeeper.load_nothing()?;
        let start = machine.start(&serving(&configured_servers(&bootstrap()), BTreeMap::new())).await.unwrap().unwrap();
        assert!(start.copies_first || Mutation::CountFirstSnapshot.is_active(), "{start:?}");
        zookeeper.begin_without_vote()?;
        zookeeper.enter_epoch(1, Some(FIRST + 20))?;
        serve(machine, zookeeper, disk, &bootstrap(), FIRST + 21)
    })
    .await;
    RecordedDisk { formed: true, ..recorded }
}

fn start_servers(start: &Start) -> Vec<ConfiguredServer> {
    match &start.decision {
        Decision::SeedBootstrap { servers, .. } | Decision::SeedAsObserver { servers } => servers.clone(),
        _ => Vec::new(),
    }
}

/// What the server had done for others before the power went off.
#[derive(Hash)]
struct Promised {
    acknowledged: Option<i64>,
    generation: i64,
}

impl Promised {
    fn before(recording: &Recording, count: usize) -> Self {
        let notes = recording.operations()[..count].iter().filter_map(|operation| match operation {
            Operation::Note(number) => Some(*number),
            _ => None,
        });
        let (generations, zxids): (Vec<u64>, Vec<u64>) = notes.partition(|note| *note >= GENERATION);
        Self {
            acknowledged: zxids.last().map(|zxid| i64::try_from(*zxid).unwrap()),
            generation: generations.last().map_or(0, |note| i64::try_from(note - GENERATION).unwrap()),
        }
    }
}

/// What others answer when the power returns, by name.
fn situations(list: &Ensemble, formed: bool, promised: &Promised) -> Vec<(&'static str, Peers)> {
    let id = list.servers.iter().find(|server| server.cluster == "m1").unwrap().id;
    let generations = BTreeMap::from([(id, promised.generation)]);
    let acknowledged = promised.acknowledged.is_some();
    let mut voters = if list.phase.is_bootstrap() { configured_servers(list) } else { living() };
    if acknowledged && !list.phase.is_bootstrap() {
        voters = configured_servers(list);
    }
    let serve = serving(&voters, generations.clone());
    let answered: BTreeSet<i32> = voters.iter().map(|voter| voter.id).filter(|voter| *voter != id).collect();
    let look =
        Peers { configuration: None, answered, accepted_epoch: i64::from(acknowledged || formed), ..serve.clone() };
    vec![("no server answers", Peers::default()), ("others look for a leader", look), ("others serve", serve)]
}

/// What is wrong with a disk after a power loss, in words. Empty if nothing is.
async fn faults(recorded: &RecordedDisk, folder: &Folder, tree: &Tree, promised: &Promised) -> Vec<String> {
    let mut faults = mixed(recorded, tree);
    for (situation, peers) in situations(&recorded.list, recorded.formed, promised) {
        let volume = folder.create("volume");
        tree.write_to(&volume);
        let machine = Machine::new(&folder.0, volume.clone(), &recorded.list, false);
        let found = match machine.decide(&peers).await {
            Ok(start) => unsafe_start(recorded, &machine, &start, promised, &peers).await,
            Err(error) => Some(format!("it never starts again: {error:#}")),
        };
        faults.extend(found.map(|fault| format!("{situation}: {fault}")));
    }
    faults
}

/// What is wrong with a decision after a power loss.
async fn unsafe_start(
    recorded: &RecordedDisk,
    machine: &Machine,
    start: &Start,
    promised: &Promised,
    peers: &Peers,
) -> Option<String> {
    let decision = &start.decision;
    if let Some(acknowledged) = promised.acknowledged {
        let end = transaction_log::listing(&machine.volume().transactions_folder()).unwrap().end();
        let waits = matches!(decision, Decision::Wait(_)) && peers.answered.is_empty();
        if !waits && *decision != Decision::KeepOwn {
            return Some(format!("it acknowledged 0x{acknowledged:x}, but does not continue: {start:?}"));
        }
        if end < Some(acknowledged) {
            return Some(format!("it acknowledged 0x{acknowledged:x}, but its files end at {end:x?}"));
        }
    }
    let serve = peers.configuration.is_some();
    let may_form = peers.accepted_epoch == 0 && !recorded.formed;
    if !decision.starts() {
        // It has accepted an epoch, and nothing tells it from a voter that lost what it acknowledged: a user replaces the volume.
        let replaced = recorded.formed && promised.acknowledged.is_none() && is_refused_for_data(decision);
        return (serve && !replaced || may_form && recorded.list.phase.is_bootstrap() && !is_unconfirmed(decision))
            .then(|| format!("it does not start: {start:?}"));
    }
    if let Err(error) = machine.start(peers).await {
        return Some(format!("it does not start: {error:#}"));
    }
    let volume = machine.volume();
    if let Some(why) = refuses(volume, machine.has_argument(BEGIN_WITH_LOG)) {
        return Some(format!("ZooKeeper refuses the volume: {why}, {start:?}"));
    }
    let marker = volume.transactions_folder().parent().unwrap().join("initialize").exists();
    if may_form && !serve && !marker && volume.accepted_epoch() == 0 && zookeeper::is_without_vote(volume) {
        return Some(format!("no server of the bootstrap may ever vote: {start:?}"));
    }
    if marker && !matches!(decision, Decision::SeedBootstrap { initialize: true, .. } | Decision::KeepOwn) {
        return Some(format!("the marker of a bootstrap is there: {start:?}"));
    }
    None
}

fn is_refused_for_data(decision: &Decision) -> bool {
    matches!(decision, Decision::Refuse(reason) if reason.contains("does not hold the data that it voted for"))
}

fn is_unconfirmed(decision: &Decision) -> bool {
    matches!(decision, Decision::AskAgent(_))
        || matches!(decision, Decision::Wait(reason) if reason.contains("asks the others"))
}

/// Data that was set aside is complete, and no volume holds files of two servers.
fn mixed(recorded: &RecordedDisk, tree: &Tree) -> Vec<String> {
    let Some(former) = &recorded.former else { return Vec::new() };
    let former = former.below("active");
    let aside = tree.0.keys().find(|path| path.starts_with("aside-") && !path.contains('/'));
    let kept = tree.below(aside.map_or("active", |aside| aside));
    let mut faults = Vec::new();
    if kept != former {
        faults.push(format!("former data is lost or mixed: {:?} instead of {:?}", kept.0.keys(), former.0.keys()));
    }
    faults
}

/// The disks that were checked, and what is wrong with them.
#[derive(Default)]
struct CheckedDisks {
    disks: usize,
    /// Disks with different content. An equal one needs no second look.
    different: usize,
    faults: Vec<String>,
}

fn number_of(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl CheckedDisks {
    /// Takes the power after every operation. Stops after `enough` faults.
    async fn new(recorded: &RecordedDisk, folder: &Folder, seeds: u64, enough: usize) -> Self {
        let mut survivors = vec![Survivors::None, Survivors::Names, Survivors::Sizes, Survivors::All];
        survivors.extend((0..seeds).map(Survivors::Random));
        let mut checked = Self::default();
        let mut seen = BTreeSet::new();
        for count in 0..=recorded.recording.operations().len() {
            let promised = Promised::before(&recorded.recording, count);
            for survivors in &survivors {
                let tree = recorded.recording.after_power_loss(count, recorded.order, *survivors);
                checked.disks += 1;
                if !seen.insert(number_of(&(&tree, &promised))) {
                    continue;
                }
                checked.different += 1;
                let last = recorded.recording.operations()[..count].last();
                let at = format!("{}, {survivors:?} after {count} ({last:?})", recorded.name);
                let found = faults(recorded, folder, &tree, &promised).await;
                checked.faults.extend(found.iter().map(|fault| format!("{at}: {fault}")));
                if checked.faults.len() >= enough {
                    return checked;
                }
            }
        }
        checked
    }
}

async fn sequences(order: Order) -> [RecordedDisk; 5] {
    let first = first_start(order).await;
    let former = first.recording.seen_after(first.recording.operations().len());
    [
        first,
        copy_first(order).await,
        join(order, "join", "current", None).await,
        join(order, "set-aside-id", "current", Some(&former)).await,
        join(order, "set-aside-incarnation", "next", Some(&former)).await,
    ]
}

/// All sequences on one kind of file system.
async fn check(order: Order) {
    let folder = Folder::new("check");
    let mut faults = Vec::new();
    for recorded in sequences(order).await {
        let began = std::time::Instant::now();
        let checked = CheckedDisks::new(&recorded, &folder, SEEDS, usize::MAX).await;
        let (points, seconds) = (recorded.recording.operations().len(), began.elapsed().as_secs_f64());
        let CheckedDisks { disks, different, .. } = checked;
        println!(
            "{} ({order:?}): {points} operations, {disks} disks, {different} different, {seconds:.0} s",
            recorded.name
        );
        faults.extend(checked.faults);
    }
    assert!(faults.is_empty(), "{} faults, such as\n{}", faults.len(), faults[..faults.len().min(30)].join("\n"));
}

#[tokio::test]
#[ignore = "mounts a FUSE file system: make test-zookeeper"]
async fn a_server_starts_safely_after_a_power_loss_at_any_operation() {
    check(Order::Journal).await;
}

/// The file system keeps a name only if its folder is synced. `ZooKeeper` syncs no folder, so its stand-in does it here.
#[tokio::test]
#[ignore = "mounts a FUSE file system: make test-zookeeper"]
async fn every_folder_is_synced() {
    check(Order::PerFolder).await;
}

/// The disk really loses what a broken variant does not sync.
#[tokio::test]
#[ignore = "mounts a FUSE file system: make test-zookeeper"]
async fn every_missing_sync_is_found() {
    let folder = Folder::new("broken");
    for (variant, order) in [
        (Mutation::UnsyncedFile, Order::Journal),
        (Mutation::UnsyncedName, Order::PerFolder),
        (Mutation::UnsyncedFolders, Order::PerFolder),
        (Mutation::KeepEmptyLog, Order::Journal),
        (Mutation::NeedSnapshot, Order::Journal),
        (Mutation::KeepOldEpoch, Order::Journal),
        (Mutation::CountFirstSnapshot, Order::Journal),
    ] {
        let _active = variant.activate();
        let mut found = None;
        for recorded in sequences(order).await {
            found = found.or(CheckedDisks::new(&recorded, &folder, 0, 1).await.faults.pop());
        }
        println!("{variant:?}: {}", found.unwrap_or_else(|| panic!("no power loss shows {variant:?}")));
    }
}

/// A broken sector hides what a file holds. The server waits, and removes nothing.
#[tokio::test]
#[ignore = "mounts a FUSE file system: make test-zookeeper"]
async fn a_server_whose_files_cannot_be_read_waits() {
    let folder = Folder::new("unreadable");
    let first = first_start(Order::Journal).await;
    let served = first.recording.seen_after(first.recording.operations().len());
    let promised = Promised::before(&first.recording, first.recording.operations().len());
    let names = served.0.keys().filter_map(|path| path.strip_prefix("active/data/version-2/"));
    let names: Vec<&str> = names.filter(|name| name.starts_with("snapshot.") || name.starts_with("log.")).collect();
    assert!(names.iter().any(|name| name.starts_with("snapshot.")) && names.len() >= 2, "{names:?}");
    for (situation, peers) in situations(&first.list, false, &promised).into_iter().skip(1) {
        for name in &names {
            let volume = folder.create("volume");
            let disk = Mounted::new(&volume, &served, None);
            let machine = Machine::new(&folder.0, volume, &first.list, false);
            disk.break_file(Some(name));
            let start = machine.decide(&peers).await.unwrap();
            let waits = matches!(&start.decision, Decision::Wait(why) if why.contains(name) && why.contains("read"));
            assert!(waits, "{situation}: {start:?}");
            assert!(machine.start(&peers).await.unwrap().is_none());
            disk.break_file(None);
            assert!(machine.volume().transactions_folder().join(name).exists(), "{situation}: {name} is gone");
            let start = machine.start(&peers).await.unwrap().unwrap();
            assert_eq!(start.decision, Decision::KeepOwn);
        }
    }
}

/// The folder of the volume is emptied, or mounted again, while the process lives.
#[tokio::test]
async fn a_process_does_not_take_another_volume_for_the_one_that_it_left() {
    let folder = Folder::new("emptied");
    let volume = folder.create("volume");
    let machine = Machine::new(&folder.0, volume.clone(), &bootstrap(), true);
    assert!(!machine.is_confirmed().await);
    machine.start(&Peers::default()).await.unwrap().unwrap();
    assert!(machine.is_confirmed().await);
    machine.raise_generation();
    assert!(machine.is_confirmed().await);
    fs::write(volume.join("active/generations.json"), "{}").unwrap();
    assert!(!machine.is_confirmed().await, "an older copy");
    folder.create("volume");
    assert!(!machine.is_confirmed().await, "an emptied volume");
}

/// No power loss damages a file of `mczk`, but a disk may. The server then votes with its data, or states what helps.
#[tokio::test]
#[ignore = "mounts a FUSE file system: make test-zookeeper"]
async fn a_damaged_file_gives_no_vote() {
    let folder = Folder::new("damaged");
    let first = first_start(Order::Journal).await;
    let served = first.recording.seen_after(first.recording.operations().len());
    let promised = Promised::before(&first.recording, first.recording.operations().len());
    let files: Vec<_> = served.0.iter().filter(|(_, content)| content.is_some()).map(|(path, _)| path).collect();
    let mut seen = BTreeMap::new();
    for path in files {
        for damage in [&b""[..], &[0; 64], b"}no text"] {
            for (situation, peers) in situations(&first.list, false, &promised) {
                let volume = folder.create("volume");
                let mut damaged = served.clone();
                damaged.0.insert(path.clone(), Some(Content::of(damage)));
                damaged.write_to(&volume);
                let machine = Machine::new(&folder.0, volume, &first.list, false);
                let outcome = match machine.decide(&peers).await {
                    Ok(Start { decision: Decision::SeedBootstrap { initialize: true, .. }, .. }) => {
                        panic!("{path} with {damage:?}: it votes without data, {situation}")
                    }
                    Ok(start) if start.lost => "lost",
                    Ok(Start { decision: Decision::Refuse(_), .. }) => "refuses",
                    Ok(start) => {
                        if start.decision.starts() {
                            "starts"
                        } else {
                            "waits"
                        }
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        assert!(error.contains("replace the volume"), "{error}");
                        "states what helps"
                    }
                };
                seen.entry(path).or_insert_with(BTreeSet::new).insert(outcome);
            }
        }
    }
    println!("{seen:#?}");
}

/// The agent records the volume once. If the server then did not begin, it would look like one that lost the volume.
#[tokio::test]
async fn a_server_asks_for_its_first_start_when_it_could_start() {
    let folder = Folder::new("asks");
    let asks = async |with: Value, hosts: &str, jar: &str| {
        let machine = Machine::new(&folder.0, folder.create("volume"), &bootstrap(), true);
        machine.configure(&with);
        fs::write(folder.0.join("hosts"), hosts).unwrap();
        let home = folder.create("home");
        for jar in [jar, "jetty-server-9.4.58.jar"] {
            fs::write(home.join(jar), "").unwrap();
        }
        machine.asks().await
    };
    let (hosts, jar) = ("127.0.0.1 s1.test\n", "zookeeper-3.9.5.jar");
    assert!(asks(json!({}), hosts, jar).await);
    assert!(!asks(json!({}), "", jar).await, "its name does not resolve");
    assert!(!asks(json!({}), hosts, "zookeeper-3.8.4.jar").await, "an old image");
    let typo = json!({ "zooCfg": [{ "name": "tickTime", "value": "fast" }] });
    assert!(!asks(typo, hosts, jar).await, "a setting that is refused");
    assert!(!asks(json!({ "jvmFlags": ["Xmx1g"] }), hosts, jar).await, "a flag that is refused");
    let without_certificates = json!({ "clientTls": { "mode": "Required", "secretName": "none" } });
    assert!(!asks(without_certificates, hosts, jar).await, "no certificates for clients");
}
