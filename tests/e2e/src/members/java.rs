//! ZooKeeper's own command line client, in Java, that writes all the time.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin},
    sync::watch,
    time::timeout,
};

use super::{
    Pods,
    writer::{Writer, Written},
};
use crate::programs::java;

/// The main class of the client.
const CLIENT: &str = "org.apache.zookeeper.ZooKeeperMain";
/// The time between two writes.
const BETWEEN: Duration = Duration::from_millis(20);
/// A write without an answer in this time is tried again by another process.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time until a new process has a session, on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Starts the client; it writes below a znode. `lib` holds the jars of ZooKeeper.
///
/// # Errors
/// If no write is acknowledged in time.
pub async fn start(pods: Pods, folder: &str, lib: &Path) -> Result<Writer> {
    ensure!(lib.is_dir(), "{} has no jars of ZooKeeper: run `make zookeeper`", lib.display());
    let (folder, lib) = (folder.to_owned(), lib.to_owned());
    Writer::start_with(|lap, stopped, counted| tokio::spawn(write(pods, folder, lib, lap, stopped, counted))).await
}

async fn write(
    pods: Pods,
    folder: String,
    lib: PathBuf,
    lap: Arc<Mutex<Written>>,
    stopped: watch::Receiver<bool>,
    counted: watch::Sender<u64>,
) {
    let (mut number, mut client, mut last) = (0, None, None::<Instant>);
    while !*stopped.borrow() {
        let Some(process) = &mut client else {
            client = Client::start(&pods, &folder, &lib).await.ok();
            if client.is_none() {
                tokio::time::sleep(BETWEEN * 10).await;
            }
            continue;
        };
        let created = timeout(PATIENCE, process.create(&format!("{folder}/{number}"))).await;
        {
            let mut lap = lap.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Ok(())) = created {
                lap.acknowledge(number, &mut last);
                number += 1;
            } else {
                // The write may or may not have succeeded: another process writes the same number again.
                lap.failed += 1;
                client = None;
            }
        }
        counted.send_replace(number);
        tokio::time::sleep(BETWEEN).await;
    }
}

/// A process of the client. It ends with this value.
struct Client {
    _process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStderr>>,
}

impl Client {
    /// Starts a process that knows the servers of this moment, and creates the parent znode.
    async fn start(pods: &Pods, folder: &str, lib: &Path) -> Result<Self> {
        let addresses = pods.addresses().await?;
        ensure!(!addresses.is_empty(), "no server has an address");
        let mut process = java("-Xmx48m", lib)
            .args([CLIENT, "-timeout", "10000", "-server", &addresses.join(",")])
            .stdin(Stdio::piped())
            // The prompt and the log. The answers are errors to this client.
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run java")?;
        let input = process.stdin.take().context("the process has no input")?;
        let answers = BufReader::new(process.stderr.take().context("the process has no output")?).lines();
        let mut client = Self { _process: process, input, answers };
        timeout(START, client.create(folder)).await.context("no session in time")??;
        Ok(client)
    }

    /// Creates a znode, and waits for the answer.
    async fn create(&mut self, path: &str) -> Result<()> {
        self.input.write_all(format!("create {path} x\n").as_bytes()).await?;
        while let Some(line) = self.answers.next_line().await? {
            match answer(&line, path) {
                Some(true) => return Ok(()),
                Some(false) => anyhow::bail!("{line}"),
                None => {}
            }
        }
        anyhow::bail!("the process has ended")
    }
}

/// What a line says about a znode: true if it exists now, false if the request failed; none for other lines.
fn answer(line: &str, path: &str) -> Option<bool> {
    let is_path = |rest: &str| rest.trim_end() == path;
    // It exists already if the answer to an earlier attempt was lost.
    let exists = ["Created ", "Node already exists: "].into_iter();
    if exists.filter_map(|start| line.split_once(start)).any(|(_, rest)| is_path(rest)) {
        return Some(true);
    }
    (line.contains("KeeperErrorCode = ") || is_path(line.rsplit(' ').next().unwrap_or_default())).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_client_are_understood() {
        for (line, answers) in [
            ("Created /java/17", Some(true)),
            ("Node already exists: /java/17", Some(true)),
            ("Created /java/170", None),
            ("Node does not exist: /java/17", Some(false)),
            ("JLine support is enabled", None),
            ("KeeperErrorCode = ConnectionLoss for /java/17", Some(false)),
            ("Session expired; KeeperErrorCode = Session expired for /java/17", Some(false)),
            ("WATCHER::", None),
        ] {
            assert_eq!(answer(line, "/java/17"), answers, "{line}");
        }
    }
}
