//! Registers in ZooKeeper, which several clients use at the same time, and the check that they are linearizable: each answer
//! must fit one order of all requests, in which a request takes effect between its beginning and its answer.
//!
//! A register is a znode. A read has a `sync` before it: without it a server may answer what it held some time ago. A compare
//! and set is a write that demands a version.

mod check;
mod history;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
pub use check::Verdicts;
use history::{Answer, Ledger, Operation, Request};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::members::writer::connect;

/// Number of clients.
const CLIENTS: usize = 3;
/// The time between two requests of a client.
const BETWEEN: Duration = Duration::from_millis(50);
/// A request without an answer in this time counts as one without an answer. The client continues in a new session.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of requests in a session. The next one is with another server.
const SESSION: usize = 200;

/// What all clients share.
struct Shared {
    ledger: Mutex<Ledger>,
    /// The last value of a write. No two writes have the same.
    value: AtomicU64,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that use registers.
pub struct Registers {
    stop: watch::Sender<bool>,
    clients: Vec<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
    checker: PathBuf,
}

impl Registers {
    /// Starts the clients. The histories are files in a new folder; `addresses` are those of all servers, read again for each
    /// session. `checker` is the program of `tests/linearizable`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn start<A>(
        folder: &Path,
        checker: &Path,
        addresses: impl Fn() -> A + Clone + Send + Sync + 'static,
    ) -> Result<Self>
    where
        A: Future<Output = Result<Vec<String>>> + Send + 'static,
    {
        let shared = Arc::new(Shared { ledger: Mutex::new(Ledger::new(folder)?), value: AtomicU64::new(0) });
        let (stop, stopped) = watch::channel(false);
        let spawn = |id| {
            let client = RegisterClient { id, shared: shared.clone(), versions: BTreeMap::new() };
            tokio::spawn(client.run(addresses.clone(), stopped.clone()))
        };
        let clients = (0..CLIENTS).map(spawn).collect();
        Ok(Self { stop, clients, shared, checker: checker.to_owned() })
    }

    /// Checks the registers that have ended since the last call.
    ///
    /// # Errors
    /// If the checker fails.
    pub async fn check(&self) -> Result<Verdicts> {
        let ended = self.shared.ledger().ended();
        check::check(&self.checker, &ended).await.context("the check of registers")
    }

    /// Stops the clients, and checks all registers that are not checked yet.
    ///
    /// # Errors
    /// If a client could not write a history, or the checker fails.
    pub async fn stop(mut self) -> Result<Verdicts> {
        self.stop.send_replace(true);
        for client in std::mem::take(&mut self.clients) {
            client.await.context("a client of registers")??;
        }
        self.shared.ledger().end_all();
        self.check().await
    }
}

/// A client of registers.
struct RegisterClient {
    id: usize,
    shared: Arc<Shared>,
    /// The last known version of each register.
    versions: BTreeMap<usize, i32>,
}

impl RegisterClient {
    /// Uses registers until it is stopped.
    async fn run<A>(mut self, addresses: impl Fn() -> A, stopped: watch::Receiver<bool>) -> Result<()>
    where
        A: Future<Output = Result<Vec<String>>>,
    {
        // Clients begin at different servers, and go on to the next one.
        for nth in self.id.. {
            let Ok(session) = session(&addresses, nth).await else {
                tokio::time::sleep(BETWEEN).await;
                if is_stopped(&stopped) {
                    break;
                }
                continue;
            };
            let mut left = SESSION;
            while left > 0 && !is_stopped(&stopped) && self.request(&session).await? {
                left -= 1;
                tokio::time::sleep(BETWEEN).await;
            }
            if is_stopped(&stopped) {
                break;
            }
        }
        Ok(())
    }

    /// Sends a request, and records it. Returns false if the session is over.
    async fn request(&mut self, session: &Client) -> Result<bool> {
        let number = self.shared.ledger().begin(rand::random_range(0..usize::MAX));
        let number = number.context("all registers have ended")?;
        let path = format!("/register-{number}");
        if !self.versions.contains_key(&number) {
            if !matches!(timeout(PATIENCE, create(session, &path)).await, Ok(Ok(()))) {
                self.shared.ledger().end(number, None)?;
                return Ok(false);
            }
            self.versions.insert(number, 0);
        }
        let request = self.choose(number);
        let call = self.shared.ledger().now();
        let answer = timeout(PATIENCE, ask(session, &path, request)).await.ok().and_then(Result::ok);
        let mut ledger = self.shared.ledger();
        let operation = Operation::new(self.id, request, call, answer.map(|answer| (ledger.now(), answer)));
        let shows_nothing = answer.is_none() && request == Request::Read;
        ledger.end(number, (!shows_nothing).then_some(&operation))?;
        if let Some(version) = answer.and_then(|answer| answer.version) {
            self.versions.insert(number, version);
        }
        Ok(answer.is_some())
    }

    /// Half of all requests are reads.
    fn choose(&self, number: usize) -> Request {
        let put = self.shared.value.fetch_add(1, Ordering::Relaxed) + 1;
        match rand::random_range(0..4) {
            0 => Request::Write { put },
            1 => Request::Cas { from: self.versions.get(&number).copied().unwrap_or_default(), put },
            _ => Request::Read,
        }
    }
}

/// True also if the owner of the clients is gone.
fn is_stopped(stopped: &watch::Receiver<bool>) -> bool {
    *stopped.borrow() || stopped.has_changed().is_err()
}

/// A session with one server.
async fn session<A>(addresses: &impl Fn() -> A, nth: usize) -> Result<Client>
where
    A: Future<Output = Result<Vec<String>>>,
{
    let addresses = addresses().await?;
    let nth = nth.checked_rem(addresses.len()).context("no server has an address")?;
    connect(addresses.get(nth).map(String::as_str).unwrap_or_default()).await
}

/// Creates the znode of a register. It exists if another client, or an attempt without an answer, created it.
async fn create(session: &Client, path: &str) -> Result<(), Error> {
    match session.create(path, b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends a request to a server. An error is no answer: the request may take effect later.
async fn ask(session: &Client, path: &str, request: Request) -> Result<Answer, Error> {
    let answer = match request {
        Request::Read => get(session, path).await,
        Request::Write { put } => set(session, path, put, None).await,
        Request::Cas { from, put } => set(session, path, put, Some(from)).await,
    };
    match answer {
        Err(Error::BadVersion) if matches!(request, Request::Cas { .. }) => Ok(Answer::default()),
        Err(Error::NoNode) => Ok(Answer { missing: true, ..Answer::default() }),
        other => other,
    }
}

async fn get(session: &Client, path: &str) -> Result<Answer, Error> {
    session.sync(path).await?;
    let (data, stat) = session.get_data(path).await?;
    let value = std::str::from_utf8(&data).ok().and_then(|text| text.parse().ok());
    Ok(Answer { value, version: Some(stat.version), missing: false })
}

async fn set(session: &Client, path: &str, value: u64, version: Option<i32>) -> Result<Answer, Error> {
    let stat = session.set_data(path, value.to_string().as_bytes(), version).await?;
    Ok(Answer { version: Some(stat.version), ..Answer::default() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use std::process::Stdio;

    use tokio::process::Child;

    use super::*;
    use crate::{members::writer::serves, patience::wait_for, programs};

    /// A server without others. It ends with this value, by kill -9.
    struct Alone {
        folder: tempfile::TempDir,
        port: u16,
        process: Child,
    }

    impl Alone {
        fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let process = Self::process(folder.path(), port);
            Self { folder, port, process }
        }

        fn process(folder: &Path, port: u16) -> Child {
            let mut java = programs::java("-Xmx64m", Path::new(&std::env::var("MCZK_TEST_ZOOKEEPER_LIB").unwrap()));
            java.args(["-Dzookeeper.admin.enableServer=false", "org.apache.zookeeper.server.ZooKeeperServerMain"]);
            java.arg(port.to_string()).arg(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        }

        fn address(&self) -> String {
            format!("127.0.0.1:{}", self.port)
        }

        async fn is_ready(&self) {
            let address = self.address();
            wait_for("a server serves", Duration::from_secs(60), || serves(&address)).await.unwrap();
        }

        /// Kills it, and starts it again with its data, or without.
        async fn restart(&mut self, keeps_data: bool) {
            self.process.kill().await.unwrap();
            if !keeps_data {
                self.folder = tempfile::tempdir().unwrap();
            }
            self.process = Self::process(self.folder.path(), self.port);
            self.is_ready().await;
        }
    }

    fn start(folder: &Path, servers: &[&Alone]) -> Registers {
        let addresses: Vec<String> = servers.iter().map(|server| server.address()).collect();
        let checker = std::env::var("MCZK_TEST_LINEARIZABLE").unwrap();
        Registers::start(folder, Path::new(&checker), move || std::future::ready(Ok(addresses.clone()))).unwrap()
    }

    const SOME_TIME: Duration = Duration::from_secs(5);

    #[tokio::test]
    #[ignore = "needs ZooKeeper: make test-zookeeper"]
    async fn registers_of_a_server_that_is_killed_are_linearizable() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Alone::start();
        server.is_ready().await;
        let registers = start(&folder.path().join("registers"), &[&server]);
        for _ in 0..3 {
            tokio::time::sleep(SOME_TIME).await;
            server.restart(true).await;
        }
        tokio::time::sleep(SOME_TIME).await;
        let verdicts = registers.stop().await.unwrap();
        assert!(verdicts.operations > 200 && verdicts.registers >= 2, "{verdicts:?}");
        assert_eq!((verdicts.broken, verdicts.undecided), (0, 0), "{verdicts:?}");
    }

    #[tokio::test]
    #[ignore = "needs ZooKeeper: make test-zookeeper"]
    async fn registers_of_a_server_that_loses_its_data_are_not_linearizable() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Alone::start();
        server.is_ready().await;
        let registers = start(&folder.path().join("registers"), &[&server]);
        tokio::time::sleep(SOME_TIME).await;
        server.restart(false).await;
        tokio::time::sleep(SOME_TIME).await;
        assert_eq!(registers.stop().await.unwrap().broken, 2);
    }

    #[tokio::test]
    #[ignore = "needs ZooKeeper: make test-zookeeper"]
    async fn registers_of_two_servers_that_know_nothing_of_each_other_are_not_linearizable() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Alone::start(), Alone::start());
        tokio::join!(one.is_ready(), other.is_ready());
        let registers = start(&folder.path().join("registers"), &[&one, &other]);
        tokio::time::sleep(SOME_TIME).await;
        assert_eq!(registers.stop().await.unwrap().broken, 2);
        assert!(folder.path().join("registers/1.jsonl.html").is_file(), "there is no picture");
    }
}
