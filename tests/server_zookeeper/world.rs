//! Servers under test, each with its own address and name on loopback.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, Ordering},
};
use std::time::{Duration, Instant};

use disk::{Mounted, Recording, Tree};
use mczk_agent::control_client::dial;
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer, Phase, Problem, ServerConfig, ServerReport},
        server_list::with_hash,
    },
    pod::ZooCfgEntry,
    tls::ClientTls,
    zookeeper::{Ensemble, EnsemblePhase, FirstStart, Role, Server},
};
use mczk_rules::agent::render::Material;
use serde::{Serialize, de::DeserializeOwned};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::program::mczk;

/// Time limit of every wait. Test machines are slow.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(300);

/// Servers on loopback. Drop removes their processes and files.
pub struct World {
    pub folder: PathBuf,
    pub net: String,
    quorum_tls: bool,
    running: BTreeMap<i32, Child>,
    disks: BTreeMap<i32, Mounted>,
    /// What the agents have recorded of first starts.
    recorded: Arc<Mutex<BTreeMap<i32, String>>>,
    /// Further flags of the Java virtual machine.
    pub jvm_flags: Vec<String>,
    /// Settings of `zoo.cfg`.
    pub zoo_cfg: Vec<ZooCfgEntry>,
    /// TLS of clients. Its certificates are in the folder `clients` of each server.
    pub client_tls: Option<ClientTls>,
    /// Folder of the `ZooKeeper` installation.
    pub home: PathBuf,
}

/// The second number of the last world's addresses: the worlds of one process have different networks.
static NET: AtomicU8 = AtomicU8::new(70);

impl World {
    pub fn new(name: &str, quorum_tls: bool) -> Self {
        let folder = std::env::temp_dir().join(format!("mczk-server-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let net = format!("127.{}.{}", NET.fetch_add(1, Ordering::Relaxed), std::process::id() % 250);
        let hosts: Vec<_> = (1..10).map(|n| format!("{net}.{n} s{n}.test")).collect();
        fs::write(folder.join("hosts"), hosts.join("\n")).unwrap();
        Self {
            folder,
            net,
            quorum_tls,
            running: BTreeMap::new(),
            disks: BTreeMap::new(),
            recorded: Arc::default(),
            jvm_flags: Vec::new(),
            zoo_cfg: Vec::new(),
            client_tls: None,
            home: home(),
        }
    }

    /// Three serving servers, in plain text.
    pub fn of_three(name: &str) -> Self {
        Self::of(3, name)
    }

    /// Serving servers, in plain text.
    pub fn of(count: i32, name: &str) -> Self {
        let mut world = Self::new(name, false);
        for n in 1..=count {
            world.assign(n, &bootstrap(count));
            world.start(n);
        }
        for n in 1..=count {
            world.serving(n);
        }
        world
    }

    pub fn path(&self, n: i32, name: &str) -> PathBuf {
        self.folder.join(format!("s{n}")).join(name)
    }

    /// Assigns a server list to server `n`.
    pub fn assign(&self, n: i32, list: &impl Serialize) {
        if !self.path(n, "config").exists() {
            self.start_agent(n);
        }
        for name in ["config", "data", "scratch", "quorum"] {
            fs::create_dir_all(self.path(n, name)).unwrap();
        }
        let config = ServerConfig {
            name: "zk".into(),
            cluster: format!("m{n}"),
            role: Role::Voter,
            revision: "r1".into(),
            zoo_cfg: self.zoo_cfg.clone(),
            // 64 MiB are too few for a client that writes all the time on a busy machine.
            jvm_flags: [
                &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(String::from)[..],
                &self.jvm_flags,
            ]
            .concat(),
            memory_limit: None,
            quorum_tls: self.quorum_tls,
            client_tls: self.client_tls.clone(),
        };
        fs::write(self.path(n, "config/server-list.json"), serde_json::to_vec(list).unwrap()).unwrap();
        fs::write(self.path(n, "config/server-config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
    }

    /// Gives server `n` a disk that can lose power. It freezes after the given number of operations.
    pub fn insert_disk(&mut self, n: i32, content: &Tree, freezes_after: Option<usize>) {
        let folder = self.path(n, "data");
        fs::create_dir_all(&folder).unwrap();
        self.disks.insert(n, Mounted::new(&folder, content, freezes_after));
    }

    pub fn disk(&self, n: i32) -> &Mounted {
        &self.disks[&n]
    }

    /// Kills server `n`, and removes its disk.
    pub fn remove_disk(&mut self, n: i32) -> Recording {
        self.disk(n).freeze();
        if self.running.contains_key(&n) {
            self.kill(n);
        }
        self.disks.remove(&n).unwrap().recording()
    }

    pub fn start(&mut self, n: i32) {
        let command = Command::new(program());
        self.start_by(n, command);
    }

    /// Starts a server by a command that runs the program with the arguments that follow.
    pub fn start_by(&mut self, n: i32, mut command: Command) {
        let log = File::options().append(true).create(true).open(self.path(n, "log")).unwrap();
        let child = command
            .args(["server", "--pod", "zk-current-0", "--address", &format!("{}.{n}", self.net)])
            .arg("--config-dir")
            .arg(self.path(n, "config"))
            .arg("--data")
            .arg(self.path(n, "data"))
            .arg("--scratch")
            .arg(self.path(n, "scratch"))
            .arg("--quorum-tls")
            .arg(self.path(n, "quorum"))
            .arg("--client-tls")
            .arg(self.path(n, "clients"))
            .arg("--hosts")
            .arg(self.folder.join("hosts"))
            .arg("--zookeeper-home")
            .arg(&self.home)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running.insert(n, child);
    }

    /// Kills a server like a power loss: it announces nothing and writes nothing any more.
    pub fn kill(&mut self, n: i32) {
        let folder = self.folder.join(format!("s{n}/"));
        let mut child = self.running.remove(&n).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        kill_all(&folder);
    }

    /// Sends a signal to the parent process of server `n`.
    pub fn signal_parent(&self, n: i32, signal: &str) {
        self.send(&self.running[&n].id().to_string(), signal);
    }

    /// Lets `ZooKeeper` of server `n` write a mebibyte of its log before its parent reads any: it would wait for a parent that
    /// stands still.
    pub fn widen_log(&self, n: i32) {
        for id in self.zookeeper(n) {
            let pipe = File::options().write(true).open(format!("/proc/{id}/fd/1")).unwrap();
            rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20).unwrap();
        }
    }

    /// Sends a signal to the `ZooKeeper` of server `n`, once one runs: between two there is none.
    pub fn signal(&self, n: i32, signal: &str) {
        let running = || Some(self.zookeeper(n)).filter(|ids| !ids.is_empty());
        for id in self.until(&format!("server {n} runs ZooKeeper"), running) {
            self.send(&id.to_string(), signal);
        }
    }

    /// After STOP, the threads of a process run on until one of them takes the signal: on a busy machine they still confirm
    /// writes. So this waits until all stand still.
    fn send(&self, id: &str, signal: &str) {
        assert!(Command::new("kill").args(["-s", signal, id]).status().unwrap().success());
        if signal == "STOP" {
            self.until(&format!("process {id} stands still"), || stands_still(id).then_some(()));
        }
    }

    /// Kills the `ZooKeeper` of server `n`, and waits until its parent has started another one.
    pub fn restart_zookeeper(&self, n: i32) {
        let killed = self.zookeeper(n);
        self.signal(n, "KILL");
        // A report may take as long as the start: the reports may never show a server that is down.
        self.until(&format!("server {n} starts another ZooKeeper"), || {
            let ids = self.zookeeper(n);
            (!ids.is_empty() && ids != killed).then_some(())
        });
    }

    /// Stops a server as a kubelet does.
    pub fn stop(&mut self, n: i32) {
        let mut child = self.running.remove(&n).unwrap();
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        let status = self.until(&format!("server {n} exits"), || child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }

    pub fn until<T>(&self, what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(result) = poll() {
                return result;
            }
            if Instant::now() > deadline {
                eprintln!("timed out: {what}");
                self.running.keys().rev().for_each(|n| self.show(*n));
                panic!("timed out: {what}");
            }
            std::thread::sleep(POLL);
        }
    }

    /// What a reader of a failed test needs, in a few lines: only a part of the output may be kept.
    fn show(&self, n: i32) {
        let log = fs::read_to_string(self.path(n, "log")).unwrap_or_default();
        let is_noise = |line: &str| line.starts_with("\tat ") || line.contains("NIOServerCnxn");
        let last: Vec<_> = log.lines().rev().filter(|line| !is_noise(line)).take(12).collect();
        let report = self.report(n).map(|report| {
            let ServerReport { id, phase, mode, serving, synced, zxid, volume, lost, corrupt, .. } = report;
            let voters = report.configuration.map(|configuration| configuration.voters().collect::<Vec<_>>());
            format!("{id:?} {phase:?} {mode:?}, serving {serving}, synced {synced}, zxid {zxid:?}, voters {voters:?}, volume {volume}, lost {lost}, corrupt {corrupt}")
        });
        eprintln!("--- server {n}: {}", report.as_deref().unwrap_or("no answer"));
        last.into_iter().rev().for_each(|line| eprintln!("{}", line.chars().take(300).collect::<String>()));
    }

    pub fn report(&self, n: i32) -> Option<ServerReport> {
        self.ask(n, "GET", "/v1/server", &()).ok()
    }

    /// Records and answers first starts of server `n`, as its agent does, until the world ends.
    fn start_agent(&self, n: i32) {
        let (host, quorum) = (format!("{}.{n}", self.net), self.path(n, "quorum"));
        let (recorded, quorum_tls) = (Arc::downgrade(&self.recorded), self.quorum_tls);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = async move |recorded: &Mutex<BTreeMap<i32, String>>| {
            let read = |name: &str| fs::read_to_string(quorum.join(name)).ok();
            let material = || {
                Some(Material { certificate: read("tls.crt")?, key: read("tls.key")?, authorities: read("ca.crt")? })
            };
            let client = dial(8443)(if quorum_tls { Some(material()?) } else { None }.as_ref()).ok()?;
            let report = client.view(&host).await.ok()?;
            let (id, volume) = (report.id?, report.first_start?);
            let volume = recorded.lock().unwrap().entry(id).or_insert(volume).clone();
            client.record_first_start(&host, &FirstStart { id, volume }).await.ok()
        };
        std::thread::spawn(move || {
            while let Some(recorded) = recorded.upgrade() {
                runtime.block_on(answer(&recorded));
                drop(recorded);
                std::thread::sleep(POLL);
            }
        });
    }

    pub fn ask<Answer: DeserializeOwned>(
        &self,
        n: i32,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, Problem> {
        ask(&format!("{}.{n}:8443", self.net), method, path, body)
    }

    pub fn probe(&self, n: i32, path: &str) -> (u16, String) {
        request(&format!("{}.{n}:8080", self.net), "GET", path, b"").unwrap_or((0, String::new()))
    }

    pub fn serving(&self, n: i32) -> ServerReport {
        // A session may begin before the admin server answers for the first time.
        let is_known = |report: &ServerReport| report.serving && report.mode.is_some();
        self.until(&format!("server {n} serves"), || self.report(n).filter(is_known))
    }

    pub fn waiting(&self, n: i32, because: &str) -> ServerReport {
        self.until(&format!("server {n} waits because {because}"), || {
            self.report(n).filter(|v| matches!(&v.phase, Phase::Waiting { reason } if reason.contains(because)))
        })
    }

    pub fn configuration(&self, n: i32) -> Configuration {
        self.serving(n).configuration.unwrap()
    }

    /// A session with server `n`. A server that gets or loses its vote serves no session for a moment.
    pub async fn client(&self, n: i32) -> Client {
        let address = format!("{}.{n}:2181", self.net);
        in_time(n, async || Client::connect(&address).await).await
    }

    pub async fn write(&self, n: i32, name: &str) {
        let (path, options) = (format!("/{name}"), CreateMode::Persistent.with_acls(Acls::anyone_all()));
        let write = async || match self.client(n).await.create(&path, name.as_bytes(), &options).await {
            Ok(_) | Err(zookeeper_client::Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        };
        in_time(n, write).await;
    }

    /// The names that server `n` does not have.
    pub async fn missing(&self, n: i32, names: &[String]) -> Vec<String> {
        let client = self.client(n).await;
        client.sync("/").await.unwrap();
        let present = client.list_children("/").await.unwrap();
        names.iter().filter(|name| !present.contains(name)).cloned().collect()
    }

    /// The files as server `n` sees them.
    pub fn root_of(&self, n: i32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.running[&n].id()))
    }

    /// Process ids of server `n`'s `ZooKeeper`.
    pub fn zookeeper(&self, n: i32) -> Vec<i32> {
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
        self.disks.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Tries a request to server `n` until it succeeds.
async fn in_time<T>(n: i32, request: impl AsyncFn() -> Result<T, zookeeper_client::Error>) -> T {
    let begun = Instant::now();
    loop {
        match request().await {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < TIMEOUT, "server {n}: {error}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The program under test, or another version of it.
pub fn program() -> PathBuf {
    mczk().to_owned()
}

pub fn home() -> PathBuf {
    let cache = std::env::var_os("MCZK_CACHE")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/mczk"), PathBuf::from);
    let home = cache.join("zookeeper/3.9.5");
    assert!(home.join("lib").is_dir(), "{} is missing: run make zookeeper", home.display());
    home
}

pub fn processes(wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if wanted(&String::from_utf8_lossy(&line).replace('\0', " ")) {
            ids.push(id);
        }
    }
    ids
}

/// True if the kernel has stopped every thread of a process.
fn stands_still(id: &str) -> bool {
    fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("State:\tT")
    })
}

/// Kills every `ZooKeeper` below a folder and waits for its exit.
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

pub fn list(epoch: i64, servers: &[(i32, i32)]) -> Ensemble {
    let servers = servers.iter().map(|(id, n)| Server {
        id: *id,
        cluster: format!("m{n}"),
        ordinal: 0,
        host: format!("s{n}.test"),
        role: Role::Voter,
    });
    with_hash(Ensemble {
        incarnation: Some("current".into()),
        epoch: Some(epoch),
        servers: servers.collect(),
        ..Ensemble::default()
    })
    .unwrap()
}

pub fn bootstrap(servers: i32) -> Ensemble {
    let servers: Vec<_> = (1..=servers).map(|n| (n, n)).collect();
    with_hash(Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(1, &servers) }).unwrap()
}

pub fn joiner(n: i32, role: Role) -> ConfiguredServer {
    ConfiguredServer { id: n, host: format!("s{n}.test"), role }
}
