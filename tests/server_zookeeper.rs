//! `mczk server` with real `ZooKeeper` 3.9.4 processes, each server with an address and a name of its own on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use mczk::api::zookeeper::EnsemblePhase;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use mczk::{
    agent::{control_client::dial, render::Material},
    api::zookeeper::{Ensemble, Role, Server},
    contract::{
        control_api::{
            Configuration, ConfiguredServer, Mode, Phase, Problem, Reconfiguration, RestartLock, ServerConfig,
            ServerReport,
        },
        loaded_certificates::Loaded,
        server_list::with_hash,
    },
    server::{peers, quorum_certificates::QuorumCertificates, resolver::Resolver, start::Peers},
};
use serde::{Serialize, de::DeserializeOwned};
use zookeeper_client::{Acls, Client, CreateMode};

/// How long anything may take: machines that run tests are slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Some servers on loopback, and nothing of them left when the test ends.
struct World {
    folder: PathBuf,
    net: String,
    quorum_tls: bool,
    running: BTreeMap<i32, Child>,
}

impl World {
    fn new(name: &str, net: u8, quorum_tls: bool) -> Self {
        let folder = std::env::temp_dir().join(format!("mczk-server-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let net = format!("127.{net}.{}", std::process::id() % 250);
        let hosts: Vec<_> = (1..10).map(|n| format!("{net}.{n} s{n}.test")).collect();
        fs::write(folder.join("hosts"), hosts.join("\n")).unwrap();
        Self { folder, net, quorum_tls, running: BTreeMap::new() }
    }

    /// Three servers that serve, in plain text.
    fn of_three(name: &str, net: u8) -> Self {
        let mut world = Self::new(name, net, false);
        for n in 1..=3 {
            world.tell(n, &bootstrap(3));
            world.start(n);
        }
        for n in 1..=3 {
            world.serving(n);
        }
        world
    }

    fn path(&self, n: i32, name: &str) -> PathBuf {
        self.folder.join(format!("s{n}")).join(name)
    }

    /// Tells server `n` a list.
    fn tell(&self, n: i32, list: &Ensemble) {
        for name in ["config", "data", "scratch", "quorum"] {
            fs::create_dir_all(self.path(n, name)).unwrap();
        }
        let instructions = ServerConfig {
            name: "zk".into(),
            cluster: format!("m{n}"),
            role: Role::Voter,
            revision: "r1".into(),
            zoo_cfg: vec![],
            // With TLS and a client that writes all the time, 64 MiB do not last.
            jvm_flags: [
                if self.quorum_tls { "-Xmx256m" } else { "-Xmx64m" },
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
            ]
            .map(String::from)
            .to_vec(),
            memory_limit: None,
            quorum_tls: self.quorum_tls,
            client_tls: None,
        };
        fs::write(self.path(n, "config/server-list.json"), serde_json::to_vec(list).unwrap()).unwrap();
        fs::write(self.path(n, "config/server-config.json"), serde_json::to_vec(&instructions).unwrap()).unwrap();
    }

    fn start(&mut self, n: i32) {
        let log = File::options().append(true).create(true).open(self.path(n, "log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mczk"))
            .args(["server", "--pod", "zk-life-0", "--address", &format!("{}.{n}", self.net)])
            .arg("--config-dir")
            .arg(self.path(n, "config"))
            .arg("--data")
            .arg(self.path(n, "data"))
            .arg("--scratch")
            .arg(self.path(n, "scratch"))
            .arg("--quorum-tls")
            .arg(self.path(n, "quorum"))
            .arg("--hosts")
            .arg(self.folder.join("hosts"))
            .arg("--zookeeper-home")
            .arg(home())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running.insert(n, child);
    }

    /// Ends a server as a machine does that loses its power: nothing is said, and nothing is written any more.
    fn kill(&mut self, n: i32) {
        let folder = self.folder.join(format!("s{n}/"));
        let mut child = self.running.remove(&n).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        kill_all(&folder);
    }

    /// Ends a server as a kubelet does.
    fn stop(&mut self, n: i32) {
        let mut child = self.running.remove(&n).unwrap();
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        let ended = self.until(&format!("server {n} ends"), || child.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            if Instant::now() > deadline {
                for n in self.running.keys() {
                    let log = fs::read_to_string(self.path(*n, "log")).unwrap_or_default();
                    let last: Vec<_> = log.lines().rev().take(25).collect();
                    eprintln!("--- server {n}: {:?}", self.view(*n));
                    last.into_iter().rev().for_each(|line| eprintln!("{line}"));
                }
                panic!("in vain: {what}");
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn view(&self, n: i32) -> Option<ServerReport> {
        ask(&format!("{}.{n}:8443", self.net), "GET", "/v1/server", &()).ok()
    }

    fn ask<Answer: DeserializeOwned>(
        &self,
        n: i32,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, Problem> {
        ask(&format!("{}.{n}:8443", self.net), method, path, body)
    }

    fn probe(&self, n: i32, path: &str) -> (u16, String) {
        request(&format!("{}.{n}:8080", self.net), "GET", path, b"").unwrap_or((0, String::new()))
    }

    fn serving(&self, n: i32) -> ServerReport {
        self.until(&format!("server {n} serves"), || self.view(n).filter(|view| view.serving))
    }

    fn waiting(&self, n: i32, because: &str) -> ServerReport {
        self.until(&format!("server {n} waits because {because}"), || {
            self.view(n).filter(|v| matches!(&v.phase, Phase::Waiting { reason } if reason.contains(because)))
        })
    }

    fn configuration(&self, n: i32) -> Configuration {
        self.serving(n).configuration.unwrap()
    }

    async fn client(&self, n: i32) -> Client {
        Client::connect(&format!("{}.{n}:2181", self.net)).await.unwrap()
    }

    async fn write(&self, n: i32, name: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.client(n).await.create(&format!("/{name}"), name.as_bytes(), &options).await.unwrap();
    }

    /// Which of `names` are missing behind server `n`.
    async fn missing(&self, n: i32, names: &[String]) -> Vec<String> {
        let client = self.client(n).await;
        client.sync("/").await.unwrap();
        let there = client.list_children("/").await.unwrap();
        names.iter().filter(|name| !there.contains(name)).cloned().collect()
    }

    /// Process ids of `ZooKeeper` on behalf of server `n`.
    fn zookeeper(&self, n: i32) -> Vec<i32> {
        let cfg = self.path(n, "data/active/conf/zoo.cfg").display().to_string();
        processes(|line| line.contains("QuorumPeerMain") && line.contains(&cfg))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        kill_all(&self.folder);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn home() -> PathBuf {
    let cache = std::env::var_os("MCZK_CACHE")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/mczk"), PathBuf::from);
    let home = cache.join("zookeeper/3.9.4");
    assert!(home.join("lib").is_dir(), "{} is missing: run make zookeeper", home.display());
    home
}

fn processes(wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if wanted(&String::from_utf8_lossy(&line).replace('\0', " ")) {
            found.push(id);
        }
    }
    found
}

/// Kills what runs on behalf of a folder of this test, and waits until it is gone.
fn kill_all(folder: &Path) {
    let folder = folder.display().to_string();
    loop {
        let left = processes(|line| line.contains("QuorumPeerMain") && line.contains(&folder));
        if left.is_empty() {
            return;
        }
        for id in left {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).stderr(Stdio::null()).status();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn request(address: &str, method: &str, path: &str, body: &[u8]) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")?;
    stream.write_all(body)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

fn ask<Answer: DeserializeOwned>(
    address: &str,
    method: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<Answer, Problem> {
    let gone = |error: String| Problem { reason: "gone".into(), message: error };
    let (status, text) =
        request(address, method, path, &serde_json::to_vec(body).unwrap()).map_err(|error| gone(error.to_string()))?;
    if status == 200 {
        return Ok(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}")));
    }
    Err(serde_json::from_str(&text).unwrap_or_else(|_| gone(text)))
}

fn list(epoch: i64, servers: &[(i32, i32)]) -> Ensemble {
    let servers = servers.iter().map(|(id, n)| Server {
        id: *id,
        cluster: format!("m{n}"),
        ordinal: 0,
        host: format!("s{n}.test"),
        role: Role::Voter,
    });
    with_hash(Ensemble {
        incarnation: Some("life".into()),
        epoch: Some(epoch),
        servers: servers.collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

fn bootstrap(servers: i32) -> Ensemble {
    let servers: Vec<_> = (1..=servers).map(|n| (n, n)).collect();
    with_hash(Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(1, &servers) }).unwrap()
}

fn joiner(n: i32, role: Role) -> ConfiguredServer {
    ConfiguredServer { id: n, host: format!("s{n}.test"), role }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn five_form_when_three_run_and_lose_nothing() {
    let mut world = World::new("five", 71, false);
    for n in 1..=5 {
        world.tell(n, &bootstrap(5));
    }
    for n in 1..=2 {
        world.start(n);
    }
    for n in 1..=2 {
        world.until(&format!("server {n} looks for a leader"), || {
            world.view(n).filter(|v| v.mode == Some(Mode::Looking))
        });
    }
    std::thread::sleep(Duration::from_secs(5));
    for n in 1..=2 {
        let view = world.view(n).unwrap();
        assert!(!view.serving && view.phase == Phase::Running && view.accepted_epoch == 0, "{view:?}");
        assert_eq!(world.probe(n, "/livez").0, 200);
        assert_eq!(world.probe(n, "/readyz").0, 503);
    }
    world.start(3);
    for n in 1..=3 {
        let view = world.serving(n);
        assert!(view.accepted_epoch > 0 && view.synced, "{view:?}");
    }
    assert_eq!(world.probe(3, "/readyz").0, 200);
    assert!(world.probe(3, "/metrics").1.contains("mczk_server_zookeeper_running 1"));
    // One that comes late could be one whose volume was lost: it does not vote before it holds what the others hold.
    world.start(4);
    world.until("server 4 is seeded", || world.path(4, "data/active/conf/zoo.cfg.dynamic").exists().then_some(()));
    assert!(!world.path(4, "data/active/data/initialize").exists());
    world.serving(4);

    let mut written = Vec::new();
    for n in 1..=4 {
        let name = format!("before-{n}");
        world.write(n, &name).await;
        written.push(name);
        let others: Vec<_> = (1..=4).filter(|other| *other != n).collect();
        world.kill(n);
        for other in &others {
            world.serving(*other);
        }
        let name = format!("without-{n}");
        world.write(others[0], &name).await;
        written.push(name);
        world.start(n);
        world.serving(n);
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
    }
    for n in 1..=4 {
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
    }

    // A voter whose volume is gone must not vote under its id again.
    let thawed = list(2, &(1..=5).map(|n| (n, n)).collect::<Vec<_>>());
    world.kill(2);
    fs::remove_dir_all(world.path(2, "data")).unwrap();
    world.tell(2, &thawed);
    world.start(2);
    let view = world.waiting(2, "its volume does not hold the data that it voted for");
    assert!(view.lost && view.id == Some(2), "{view:?}");
    assert!(world.zookeeper(2).is_empty());
}

/// Before a second bootstrap: who never took part in a quorum is parked, and says so; whoever did goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn only_who_accepted_nothing_is_parked() {
    let mut world = World::new("suspended", 76, false);
    let told = |epoch: i64, park: bool| {
        with_hash(Ensemble {
            epoch: Some(epoch),
            phase: if park { EnsemblePhase::Suspended } else { EnsemblePhase::Bootstrapping },
            ..bootstrap(3)
        })
        .unwrap()
    };
    let is_parked = |world: &World, n: i32| {
        let parked =
            |view: &ServerReport| view.phase == Phase::Suspended && view.accepted_epoch == 0 && view.mode.is_none();
        world.until(&format!("server {n} is parked"), || world.view(n).filter(parked));
        assert_eq!(world.zookeeper(n), Vec::<i32>::new());
        assert_eq!(world.probe(n, "/livez").0, 200);
        assert_eq!(world.probe(n, "/readyz").0, 503);
    };
    world.tell(1, &told(1, false));
    world.start(1);
    world.until("server 1 looks for a leader", || world.view(1).filter(|v| v.mode == Some(Mode::Looking)));
    world.tell(1, &told(2, true));
    is_parked(&world, 1);
    world.tell(2, &told(2, true));
    world.start(2);
    is_parked(&world, 2);
    // Nobody starts again because it is told an older list.
    world.tell(1, &told(1, false));
    std::thread::sleep(Duration::from_secs(5));
    is_parked(&world, 1);

    for n in 1..=2 {
        world.tell(n, &told(3, false));
    }
    for n in 1..=2 {
        assert!(world.serving(n).accepted_epoch > 0);
    }
    world.write(1, "acknowledged").await;
    for n in 1..=2 {
        world.tell(n, &told(4, true));
    }
    std::thread::sleep(Duration::from_secs(10));
    for n in 1..=2 {
        let view = world.view(n).unwrap();
        assert!(view.serving && view.phase == Phase::Running, "{view:?}");
    }
    world.kill(1);
    world.start(1);
    world.serving(1);
    assert_eq!(world.missing(1, &["acknowledged".to_owned()]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn it_grows_and_shrinks_step_by_step() {
    let mut world = World::of_three("steps", 72);
    world.write(1, "first").await;

    // The list is published once; what was prepared before is refused from then on.
    let old = world.configuration(1);
    let five = list(2, &[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    let raised: Configuration = world.ask(2, "POST", "/v1/server-list", &five).unwrap();
    assert!(raised.version > old.version && raised.servers == old.servers);
    assert_eq!(
        world.ask::<Configuration>(1, "POST", "/v1/server-list", &five).unwrap(),
        raised,
        "again: nothing more is done"
    );
    let older: Problem = world.ask::<Configuration>(1, "POST", "/v1/server-list", &bootstrap(3)).unwrap_err();
    assert_eq!(older.reason, "epoch");
    let torn = Ensemble { epoch: Some(9), ..five.clone() };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/server-list", &torn).unwrap_err().reason, "hash");
    assert_eq!(world.serving(3).server_list, Some(five.clone()));
    let step = Reconfiguration { epoch: 2, from_version: old.version, add: Some(joiner(4, Role::Voter)), remove: None };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &step).unwrap_err().reason, "version");
    let step = Reconfiguration { epoch: 1, from_version: raised.version, ..step };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &step).unwrap_err().reason, "epoch");

    // Growth: a joiner follows first. Killed before it is added, it joins again.
    for n in 1..=5 {
        world.tell(n, &five);
    }
    world.start(4);
    world.serving(4);
    world.kill(4);
    world.start(4);
    world.start(5);
    for n in 4..=5 {
        let view = world.serving(n);
        assert!(!view.configuration.unwrap().voters().any(|id| id == n));
        let from_version = world.configuration(1).version;
        let step = Reconfiguration { epoch: 2, from_version, add: Some(joiner(n, Role::Voter)), remove: None };
        let after: Configuration = world.ask(n % 3 + 1, "POST", "/v1/reconfigure", &step).unwrap();
        assert!(after.version > from_version && after.voters().any(|id| id == n), "{after:?}");
        assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &step).unwrap_err().reason, "version");
        assert_eq!(world.missing(n, &["first".into()]).await, Vec::<String>::new());
    }
    assert_eq!(world.configuration(5).voters().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let leader = (1..=5).map(|n| world.serving(n)).find(|view| view.mode == Some(Mode::Leader)).unwrap();
    assert_eq!(leader.synced_voters, Some(4));

    turns(&mut world);
    secrets(&world);

    // Shrinking: the list omits them, they are removed one by one, and do not start again.
    let three = list(3, &[(1, 1), (2, 2), (3, 3)]);
    let mut at: Configuration = world.ask(1, "POST", "/v1/server-list", &three).unwrap();
    world.write(5, "second").await;
    for n in [5, 4] {
        let step = Reconfiguration { epoch: 3, from_version: at.version, add: None, remove: Some(n) };
        at = world.ask(1, "POST", "/v1/reconfigure", &step).unwrap();
        assert!(!at.voters().any(|id| id == n), "{at:?}");
    }
    for n in 1..=5 {
        world.tell(n, &three);
    }
    world.stop(5);
    world.start(5);
    world.waiting(5, "neither the newest server list");
    // In place: only ZooKeeper ends, and its parent decides anew.
    for id in world.zookeeper(4) {
        assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    }
    world.waiting(4, "neither the newest server list");
    for id in world.zookeeper(3) {
        assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    }
    world.until("server 3 is down", || world.view(3).filter(|view| !view.serving));
    world.serving(3);
    assert_eq!(world.missing(3, &["first".into(), "second".into()]).await, Vec::<String>::new());
    for n in 4..=5 {
        assert!(world.zookeeper(n).is_empty());
        assert_eq!(world.probe(n, "/livez").0, 200, "to wait is no fault");
    }

    // A volume of another life is set aside, and its server is a new one.
    world.stop(4);
    let owner = world.path(4, "data/active/owner.json");
    let text = fs::read_to_string(&owner).unwrap();
    fs::write(&owner, text.replace("\"life\"", "\"former\"")).unwrap();
    let four = list(4, &[(1, 1), (2, 2), (3, 3), (6, 4)]);
    let _: Configuration = world.ask(2, "POST", "/v1/server-list", &four).unwrap();
    world.tell(4, &four);
    world.start(4);
    let view = world.serving(4);
    assert_eq!((view.id, view.mode, view.lost), (Some(6), Some(Mode::Follower), false));
    let aside = world.path(4, "data/aside-former-4-0");
    assert!(aside.join("data/version-2/acceptedEpoch").exists(), "nothing is ever removed");
    assert_eq!(world.missing(4, &["first".into(), "second".into()]).await, Vec::<String>::new());
}

/// The turn excludes, is renewed, given back, and ends with the process through which it is held.
fn turns(world: &mut World) {
    let one = RestartLock { holder: "m1/one".into(), server: 2 };
    let two = RestartLock { holder: "m2/two".into(), server: 1 };
    let through_itself: Problem = world.ask::<RestartLock>(2, "POST", "/v1/restart-lock", &one).unwrap_err();
    assert_eq!(through_itself.reason, "server");
    assert_eq!(world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).unwrap(), one);
    assert_eq!(world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).unwrap(), one, "renewed");
    for through in [3, 4] {
        let refused = world.ask::<RestartLock>(through, "POST", "/v1/restart-lock", &two).unwrap_err();
        assert_eq!(
            refused,
            Problem { reason: "restartLock".into(), message: "m1/one holds the restart lock for server 2".into() }
        );
    }
    assert_eq!(world.serving(5).restart_lock, Some(one.clone()));
    assert_eq!(world.ask::<()>(3, "DELETE", "/v1/restart-lock", &two).unwrap_err().reason, "restartLock");
    world.ask::<()>(3, "DELETE", "/v1/restart-lock", &one).unwrap();
    assert_eq!(world.ask::<RestartLock>(4, "POST", "/v1/restart-lock", &two).unwrap(), two);
    world.kill(4);
    let began = Instant::now();
    world.until("the turn of a killed process ends", || {
        world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).ok()
    });
    assert!(began.elapsed() < Duration::from_secs(60));
    world.start(4);
    world.serving(4);
    // Who has it and asks no more loses it.
    world.until("an abandoned turn ends", || world.ask::<RestartLock>(5, "POST", "/v1/restart-lock", &two).ok());
    world.ask::<()>(5, "DELETE", "/v1/restart-lock", &two).unwrap();
}

/// The digest of the superuser is in no log and in no process list; others cannot use the ensemble's own nodes.
fn secrets(world: &World) {
    for n in 1..=5 {
        let path = world.path(n, "scratch/java.flags");
        let flags = fs::read_to_string(&path).unwrap();
        let digest = flags.trim().split_once("superDigest=").unwrap().1.to_owned();
        assert!(digest.starts_with("super:") && digest.len() > 20);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0);
        assert!(!fs::read_to_string(world.path(n, "log")).unwrap().contains(&digest));
        assert!(processes(|line| line.contains(&digest)).is_empty());
    }
}

/// A place is given another id while the ensemble still counts on the vote of the server that it has: that goes on with its
/// data, also when the quorum needs it to form again, and begins anew under the new id only when it has no vote.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_place_with_another_id_gives_up_no_vote() {
    let mut world = World::of_three("place", 74);
    world.write(1, "first").await;
    let replaced = list(2, &[(1, 1), (2, 2), (7, 3)]);
    let _: Configuration = world.ask(1, "POST", "/v1/server-list", &replaced).unwrap();
    for n in 1..=3 {
        world.tell(n, &replaced);
    }
    // Without server 3 there is no quorum, and nobody who could tell whether it votes.
    world.stop(2);
    world.stop(3);
    world.start(3);
    assert_eq!(world.serving(3).id, Some(3));
    world.write(3, "second").await;
    world.start(2);
    world.serving(2);
    // With others that tell.
    world.kill(3);
    world.start(3);
    assert_eq!(world.serving(3).id, Some(3));
    assert!(!world.path(3, "data/aside-life-3-0").exists());

    let from_version = world.configuration(1).version;
    let step = Reconfiguration { epoch: 2, from_version, add: None, remove: Some(3) };
    let after: Configuration = world.ask(1, "POST", "/v1/reconfigure", &step).unwrap();
    let anew = || world.view(3).filter(|view| view.serving && view.id == Some(7));
    world.until("server 7 begins where 3 was", anew);
    assert!(world.path(3, "data/aside-life-3-0").exists(), "nothing is ever removed");
    let joiner = ConfiguredServer { id: 7, host: "s3.test".into(), role: Role::Voter };
    let step = Reconfiguration { epoch: 2, from_version: after.version, add: Some(joiner), remove: None };
    let after: Configuration = world.ask(1, "POST", "/v1/reconfigure", &step).unwrap();
    assert_eq!(after.voters().collect::<Vec<_>>(), [1, 2, 7]);
    assert_eq!(world.missing(3, &["first".into(), "second".into()]).await, Vec::<String>::new());
}

/// Three servers that speak TLS under one authority; who has another's certificate is not spoken to.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn servers_speak_tls_under_one_authority() {
    let mut world = World::new("tls", 73, true);
    let authority = Authority::new();
    for n in 1..=3 {
        world.tell(n, &bootstrap(3));
        authority.identity(&world.path(n, "quorum"));
        world.start(n);
    }
    for n in 1..=3 {
        world.until(&format!("server {n} is ready"), || (world.probe(n, "/readyz").0 == 200).then_some(()));
        assert!(world.view(n).is_none(), "nobody is answered in plain text");
    }
    world.write(1, "one").await;
    assert_eq!(world.missing(3, &["one".into()]).await, Vec::<String>::new());
    let resolver = Resolver::File(world.folder.join("hosts"));
    let hosts: BTreeSet<String> = (1..=3).map(|n| format!("s{n}.test")).collect();
    let trusted = |authority: &Authority, name: &str| {
        let folder = world.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        authority.identity(&folder);
        QuorumCertificates::new(folder.clone(), folder.join("joined.pem"), folder.join("trust.pem"))
    };
    let agent = trusted(&authority, "agent");
    agent.reload().await.unwrap();
    let answers = peers::ask(hosts.clone(), "life", &resolver, agent.client_config()).await;
    assert_eq!(answers.configuration.unwrap().voters().collect::<Vec<_>>(), [1, 2, 3]);
    let stranger = trusted(&Authority::new(), "stranger");
    stranger.reload().await.unwrap();
    assert_eq!(peers::ask(hosts.clone(), "life", &resolver, stranger.client_config()).await, Peers::default());
    // New certificates of the same authority are taken without a restart.
    let before = world.zookeeper(1);
    for n in 1..=3 {
        authority.identity(&world.path(n, "quorum"));
    }
    let old = fs::read(world.path(1, "scratch/quorum.pem")).unwrap();
    world.until("the new certificate is taken", || {
        (fs::read(world.path(1, "scratch/quorum.pem")).unwrap() != old).then_some(())
    });
    assert_eq!(world.zookeeper(1), before);
    let answers = peers::ask(hosts, "life", &resolver, agent.client_config()).await;
    assert!(answers.configuration.is_some() && answers.accepted_epoch > 0);
}

/// Another authority takes the place of the quorum's, in three steps, while a client writes: nobody is restarted, and every
/// server tells what it has loaded.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn an_authority_is_replaced_while_a_client_writes() {
    let mut world = World::new("authority", 75, true);
    // ZooKeeper keeps authorities by their subjects: of two with one subject it trusts only one.
    let (former, next) = (Authority::named("quorum 1"), Authority::named("quorum 2"));
    let (old, new) = (former.issue(), next.issue());
    let both = former.0.pem() + &next.0.pem();
    let steps = [
        ("the former one", &old, former.0.pem()),
        ("trust both", &old, both.clone()),
        ("the new identity", &new, both.clone()),
        ("trust the new one only", &new, next.0.pem()),
    ];
    let put = |world: &World, n: i32, (certificate, key): &(String, String), trust: &str| {
        let folder = world.path(n, "quorum");
        for (name, text) in [("tls.key", key.as_str()), ("tls.crt", certificate), ("ca.crt", trust)] {
            // By rename, as a kubelet does.
            fs::write(folder.join("new"), text).unwrap();
            fs::rename(folder.join("new"), folder.join(name)).unwrap();
        }
    };
    for n in 1..=3 {
        world.tell(n, &bootstrap(3));
        put(&world, n, steps[0].1, &steps[0].2);
        world.start(n);
    }
    for n in 1..=3 {
        world.until(&format!("server {n} is ready"), || (world.probe(n, "/readyz").0 == 200).then_some(()));
    }
    let before: Vec<_> = (1..=3).map(|n| world.zookeeper(n)).collect();
    let writer = Writer::start(&world);
    let agent = |identity: &(String, String), trust: &str| {
        let (certificate, key) = identity.clone();
        dial(8443)(Some(&Material { certificate, key, authorities: trust.to_owned() })).unwrap()
    };
    for (what, identity, trust) in &steps {
        let began = Instant::now();
        let wanted = Loaded::of(identity.0.as_bytes(), trust.as_bytes());
        let servers = agent(identity, &both);
        // One after the other, so that all mixtures are seen.
        for n in 1..=3 {
            put(&world, n, identity, trust);
            let host = format!("{}.{n}", world.net);
            let deadline = Instant::now() + PATIENCE;
            loop {
                let view = servers.view(&host).await;
                if view.as_ref().is_ok_and(|view| view.loaded == wanted && view.serving) {
                    break;
                }
                assert!(Instant::now() < deadline, "server {n} does not come to {what}: {view:?}");
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        let epoch = servers.view(&format!("{}.1", world.net)).await.unwrap().accepted_epoch;
        println!("{what}: {:.0} s, epoch {epoch}", began.elapsed().as_secs_f64());
    }
    let after: Vec<_> = (1..=3).map(|n| world.zookeeper(n)).collect();
    assert_eq!(after, before, "nobody was restarted");
    // ZooKeeper itself has them: a server that starts now finds the others, and who has the former identity finds nobody.
    world.kill(2);
    world.start(2);
    world.until("server 2 is back", || (world.probe(2, "/readyz").0 == 200).then_some(()));
    let (written, pause) = writer.stop().await;
    println!("{} writes, the longest pause {:.1} s", written.len(), pause.as_secs_f64());
    assert!(written.len() > 100, "{}", written.len());
    for n in 1..=3 {
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
        let host = format!("{}.{n}", world.net);
        assert!(agent(&old, &both).view(&host).await.is_err(), "the former identity is refused");
        assert!(agent(&new, &both).view(&host).await.is_ok());
    }
}

/// A client that writes all the time, and goes on with another server when one is gone.
struct Writer {
    end: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(Vec<String>, Duration)>,
}

impl Writer {
    fn start(world: &World) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (over, servers) =
            (end.clone(), (1..=3).map(|n| format!("{}.{n}:2181", world.net)).collect::<Vec<_>>().join(","));
        let task = tokio::spawn(async move {
            let (mut written, mut pause, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let mut number = 0_u32;
            while !over.load(Ordering::Relaxed) {
                let Ok(client) = Client::connect(&servers).await else { continue };
                while !over.load(Ordering::Relaxed) {
                    number += 1;
                    let name = format!("w{number}");
                    if client.create(&format!("/{name}"), b"", &options).await.is_err() {
                        break;
                    }
                    written.push(name);
                    pause = pause.max(last.elapsed());
                    last = Instant::now();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            (written, pause)
        });
        Self { end, task }
    }

    async fn stop(self) -> (Vec<String>, Duration) {
        self.end.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// A certificate authority of one life of an ensemble.
struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    fn new() -> Self {
        Self::named("quorum")
    }

    fn named(subject: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, subject);
        Self(rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate of its own, as the files of a Secret.
    fn identity(&self, folder: &Path) {
        let (certificate, key) = self.issue();
        for (name, text) in [("tls.key", key), ("tls.crt", certificate), ("ca.crt", self.0.pem())] {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    /// A certificate and its key.
    fn issue(&self) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["quorum.mczk".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
