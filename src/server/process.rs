//! `ZooKeeper` as a child process in its own process group. Its output goes to the log without secrets.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::Notify,
    task::JoinSet,
};

/// Number of last lines that the process stores of each stream, and characters of each line.
const LAST_LINES: usize = 12;
const LAST_LINE_CHARACTERS: usize = 400;
/// What `ZooKeeper` logs if it cannot read its snapshots or transaction logs.
const UNREADABLE: &str = "Unable to load database on disk";
/// Thread and class of the line that `ZooKeeper` logs if the thread fails that writes its log.
const FAILED_WRITER: [&str; 2] = ["ERROR [SyncThread:", "ZooKeeperCriticalThread"];
/// Errors of a volume that cannot be written. While a follower copies the leader's transactions, another thread writes, and
/// `ZooKeeper` logs no more than this error.
const CANNOT_WRITE: [&str; 5] =
    ["No space left on device", "Disk quota exceeded", "Input/output error", "File too large", "Read-only file system"];
/// Main class of `ZooKeeper`.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Command of the process.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The program `java`.
    pub(crate) java: PathBuf,
    /// Class path: folders and jars, in the order of the search.
    pub(crate) class_path: String,
    /// Public flags.
    pub(crate) flags: Vec<String>,
    /// File with flags that the process list must not show.
    pub(crate) secret_flags: PathBuf,
    /// `zoo.cfg`.
    pub(crate) configuration: PathBuf,
    /// Texts that no log line may contain.
    pub(crate) secrets: Vec<String>,
}

/// A running `ZooKeeper`.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: JoinSet<()>,
    last: LastLines,
    /// `ZooKeeper` cannot write to the volume.
    cannot_write: Arc<Notify>,
}

/// Last lines of standard output, then of standard error. Their order in time would differ at every start.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines([Last; 2]);

/// The last lines of a stream.
type Last = Arc<Mutex<VecDeque<String>>>;

impl LastLines {
    /// The lines so far, without times.
    pub(super) fn text(&self) -> String {
        let streams = self.0.each_ref().map(|last| last.lock().unwrap_or_else(PoisonError::into_inner).clone());
        without_times(streams.iter().flatten().map(String::as_str))
    }
}

impl Running {
    /// Starts the process.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let mut child = Command::new(&program.java)
            .arg(format!("@{}", program.secret_flags.display()))
            .args(&program.flags)
            .arg("-cp")
            .arg(&program.class_path)
            .arg(MAIN)
            .arg(&program.configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The parent passes signals on: a signal to its own group must not reach ZooKeeper directly.
            .process_group(0)
            .spawn()?;
        let last = LastLines::default();
        let LastLines([last_output, last_errors]) = last.clone();
        let (mut output, cannot_write) = (JoinSet::new(), Arc::<Notify>::default());
        let secrets = Arc::new(program.secrets.clone());
        if let Some(stdout) = child.stdout.take() {
            output.spawn(copy_to_log(stdout, last_output, secrets.clone(), cannot_write.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            output.spawn(copy_to_log(stderr, last_errors, secrets, cannot_write.clone()));
        }
        Ok(Self { child, output, last, cannot_write })
    }

    /// Waits for the exit. A cancelled wait loses nothing.
    ///
    /// Kills the process if it cannot write to the volume. It would not exit, but join the ensemble again. Its memory then
    /// holds transactions that its files lack (ZOOKEEPER-4882).
    ///
    /// # Errors
    /// If the wait fails.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        tokio::select! {
            exited = self.child.wait() => return exited,
            () = self.cannot_write.notified() => {}
        }
        tracing::error!("ZooKeeper cannot write to the volume: killing it");
        self.child.start_kill()?;
        self.child.wait().await
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        if let Some(id) = rustix::process::Pid::from_raw(id)
            && let Err(error) = rustix::process::kill_process(id, rustix::process::Signal::TERM)
        {
            tracing::warn!(%error, "cannot send SIGTERM to ZooKeeper");
        }
    }

    /// Last lines of the output, after the exit.
    pub(crate) async fn last_lines(&mut self) -> String {
        // The output has ended, unless a child of ZooKeeper keeps it open.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), async {
            while self.output.join_next().await.is_some() {}
        })
        .await;
        self.last.text()
    }

    /// Last lines of the output, while the process runs.
    pub(super) fn output(&self) -> LastLines {
        self.last.clone()
    }
}

/// Log lines without times. A status contains them, which must not change with every equal failure.
fn without_times<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let time = |c: char| c.is_ascii_digit() || "-:, T.".contains(c);
    let texts = lines.map(|line| {
        line.get(..20).filter(|begin| begin.chars().all(time)).map_or(line, |_| line.trim_start_matches(time))
    });
    let mut distinct = Vec::new();
    for line in texts {
        // Log and standard error contain the same error.
        if !distinct.contains(&line) {
            distinct.push(line);
        }
    }
    distinct.join("\n")
}

async fn copy_to_log(stream: impl AsyncRead + Unpin, last: Last, secrets: Arc<Vec<String>>, cannot_write: Arc<Notify>) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = redact(String::from_utf8_lossy(&line).trim_end(), &secrets);
        // First of all: it joins the ensemble again within some 20 ms.
        if is_failed_write(&text) {
            cannot_write.notify_one();
        }
        // A closed log must not stop ZooKeeper.
        let _ = writeln!(io::stdout(), "{text}");
        // A stack trace would push out the error that it belongs to.
        if text.starts_with(char::is_whitespace) {
            continue;
        }
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(text.chars().take(LAST_LINE_CHARACTERS).collect());
    }
}

/// True if one of the lines, which have no times, says that `ZooKeeper` cannot read its snapshots or transaction logs.
pub(super) fn is_unreadable(lines: &str) -> bool {
    lines.lines().filter_map(|line| line.split(" - ").nth(2)).any(|message| message.starts_with(UNREADABLE))
}

/// True if a log line says that the volume cannot be written. What clients send may be in a message, and no message counts.
fn is_failed_write(line: &str) -> bool {
    let [thread, class] = FAILED_WRITER;
    let origin = line.split(" - ").nth(1).unwrap_or_default();
    let exception = line.strip_prefix("Caused by: ").unwrap_or(line).strip_prefix("java.io.IOException: ");
    (origin.starts_with(thread) && origin.contains(class))
        || exception.is_some_and(|error| CANNOT_WRITE.contains(&error))
}

fn redact(line: &str, secrets: &[String]) -> String {
    secrets.iter().fold(line.to_owned(), |line, secret| {
        if line.contains(secret.as_str()) { line.replace(secret.as_str(), "[redacted]") } else { line }
    })
}

/// Class path of an image with the layout of the official one. The image's own log configuration comes first, mczk's last.
#[must_use]
pub(crate) fn class_path(home: &Path, conf: Option<&Path>, scratch: &Path) -> String {
    let mut parts: Vec<String> = conf.into_iter().map(|conf| conf.display().to_string()).collect();
    parts.push(home.join("conf").display().to_string());
    parts.push(home.join("lib/*").display().to_string());
    parts.push(home.join("*").display().to_string());
    parts.push(scratch.display().to_string());
    parts.join(":")
}

/// Installation folder in an image with the layout of the official one: `/apache-zookeeper-*-bin`.
#[must_use]
pub(crate) fn find_home() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/").ok()?;
    let mut homes: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            (name.starts_with("apache-zookeeper-") && name.ends_with("-bin")).then(|| entry.path())
        })
        .collect();
    homes.sort();
    homes.pop()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn equal_lines_are_reported_once() {
        let lines = [
            "2026-11-21 19:00:00,123 [myid:] - ERROR Invalid config",
            "2026-11-21 19:00:01,456 [myid:] - ERROR Invalid config",
            "Invalid config",
        ];
        assert_eq!(without_times(lines.into_iter()), "[myid:] - ERROR Invalid config\nInvalid config");
    }

    #[rstest]
    #[case::official(
        "2026-11-23 05:23:26,282 [myid:] - ERROR [SyncThread:1:ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : SyncThread:1",
        true
    )]
    #[case::leader_lost(
        "2026-11-23 06:15:01,770 [myid:] - ERROR [FollowerRequestProcessor:12:ZooKeeperCriticalThread@49] - Severe unrecoverable error, from thread : FollowerRequestProcessor:12",
        false
    )]
    #[case::sent_by_a_client(
        "2026-11-23 06:15:01,770 [myid:] - INFO  [ProcessThread:PrepRequestProcessor@669] - Invalid path x - ERROR [SyncThread:1:ZooKeeperCriticalThread@49] - Severe with session 0x1",
        false
    )]
    #[case::in_the_copy_of_the_leaders_transactions("java.io.IOException: No space left on device", true)]
    #[case::cause("Caused by: java.io.IOException: Input/output error", true)]
    #[case::connection("java.io.IOException: Broken pipe", false)]
    fn failed_writes_are_recognized(#[case] line: &str, #[case] expected: bool) {
        assert_eq!(is_failed_write(line), expected);
    }

    #[test]
    fn secrets_are_redacted() {
        let secrets = ["super:abc=".to_owned(), "pass".to_owned()];
        assert_eq!(redact("digest super:abc= of pass", &secrets), "digest [redacted] of [redacted]");
        assert_eq!(redact("nothing", &secrets), "nothing");
    }
}
