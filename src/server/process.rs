//! `ZooKeeper` as a child process: started in a process group of its own, its output passed on without secrets.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    task::JoinSet,
};

/// How many of the last lines are kept, and how many characters of each.
const KEPT_LINES: usize = 12;
const KEPT_CHARACTERS: usize = 400;
/// Class of `ZooKeeper`'s server.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// What is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program `java`.
    pub java: PathBuf,
    /// Folders and jars, in the order in which classes are looked for.
    pub class_path: String,
    /// Flags that everybody may see.
    pub flags: Vec<String>,
    /// File with flags that the process list must not show.
    pub secret_flags: PathBuf,
    /// `zoo.cfg`.
    pub configuration: PathBuf,
    /// Texts that no line of the log may hold.
    pub secrets: Vec<String>,
}

/// A running `ZooKeeper`.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: JoinSet<()>,
    /// Of its output, then of its errors: in the order in which both come there would be another one each time.
    last: [Last; 2],
}

/// The last lines of a stream.
type Last = Arc<Mutex<VecDeque<String>>>;

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(program: &Program) -> io::Result<Self> {
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
            // A signal to the parent's group is the parent's to pass on.
            .process_group(0)
            .spawn()?;
        let last: [Last; 2] = Default::default();
        let [of_output, of_errors] = last.clone();
        let mut output = JoinSet::new();
        let secrets = Arc::new(program.secrets.clone());
        if let Some(stdout) = child.stdout.take() {
            output.spawn(pass_on(stdout, of_output, secrets.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            output.spawn(pass_on(stderr, of_errors, secrets));
        }
        Ok(Self { child, output, last })
    }

    /// Its process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end. Cancelling this loses nothing.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        if let Some(id) = rustix::process::Pid::from_raw(id)
            && let Err(error) = rustix::process::kill_process(id, rustix::process::Signal::TERM)
        {
            tracing::warn!(%error, "ZooKeeper cannot be asked to end");
        }
    }

    /// The last lines that it wrote, once it ended.
    pub async fn last_lines(&mut self) -> String {
        // Its output is at its end, unless a child of its own holds it open.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), async {
            while self.output.join_next().await.is_some() {}
        })
        .await;
        let streams = self.last.each_ref().map(|last| last.lock().unwrap_or_else(PoisonError::into_inner).clone());
        without_times(streams.iter().flatten().map(String::as_str))
    }
}

/// What lines of the log say, without when and where in the code: it is told in a status, which is not to change with every
/// attempt that ends alike.
fn without_times<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let time = |c: char| c.is_ascii_digit() || "-:, T.".contains(c);
    let said = lines.filter(|line| !line.starts_with(char::is_whitespace)).map(|line| {
        line.get(..20).filter(|begin| begin.chars().all(time)).map_or(line, |_| line.trim_start_matches(time))
    });
    let mut once = Vec::new();
    for line in said {
        // Its log and its standard error say the same.
        if !once.contains(&line) {
            once.push(line);
        }
    }
    once.join("\n")
}

async fn pass_on(stream: impl AsyncRead + Unpin, last: Last, secrets: Arc<Vec<String>>) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = redact(String::from_utf8_lossy(&line).trim_end(), &secrets);
        // Whoever reads the log may be gone; ZooKeeper goes on.
        let _ = writeln!(io::stdout(), "{text}");
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == KEPT_LINES {
            last.pop_front();
        }
        last.push_back(text.chars().take(KEPT_CHARACTERS).collect());
    }
}

fn redact(line: &str, secrets: &[String]) -> String {
    secrets.iter().fold(line.to_owned(), |line, secret| {
        if line.contains(secret.as_str()) { line.replace(secret.as_str(), "[redacted]") } else { line }
    })
}

/// The folders and jars of an image laid out like the official one: its own settings of the log first, ours last.
#[must_use]
pub fn class_path(home: &Path, conf: Option<&Path>, ours: &Path) -> String {
    let mut parts: Vec<String> = conf.into_iter().map(|conf| conf.display().to_string()).collect();
    parts.push(home.join("conf").display().to_string());
    parts.push(home.join("lib/*").display().to_string());
    parts.push(home.join("*").display().to_string());
    parts.push(ours.display().to_string());
    parts.join(":")
}

/// Where `ZooKeeper` lies in an image laid out like the official one: `/apache-zookeeper-*-bin`.
#[must_use]
pub fn home() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/").ok()?;
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            (name.starts_with("apache-zookeeper-") && name.ends_with("-bin")).then(|| entry.path())
        })
        .collect();
    found.sort();
    found.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_twice_is_told_once() {
        let lines = [
            "2026-11-21 19:00:00,123 [myid:] - ERROR Invalid config",
            "\tat Main.run",
            "2026-11-21 19:00:01,456 [myid:] - ERROR Invalid config",
            "Invalid config",
        ];
        assert_eq!(without_times(lines.into_iter()), "[myid:] - ERROR Invalid config\nInvalid config");
    }

    #[test]
    fn secrets_are_not_passed_on() {
        let secrets = ["super:abc=".to_owned(), "pass".to_owned()];
        assert_eq!(redact("digest super:abc= of pass", &secrets), "digest [redacted] of [redacted]");
        assert_eq!(redact("nothing", &secrets), "nothing");
    }
}
