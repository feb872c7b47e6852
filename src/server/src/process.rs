//! `ZooKeeper` as a child process in its own process group. Its output goes to the log without secrets.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::{
    process::{Child, Command},
    sync::Notify,
    task::JoinSet,
    time::timeout,
};

use crate::{
    output::{LastLines, OutputLog, Stream},
    program::Program,
};
use mczk_api::contract::zookeeper_versions;
use mczk_rules::server::jvm::{self, FLAG_VARIABLES, ONE_ATTEMPT, RESOLVER_OPTIONS};

/// Time after the exit in which the output ends.
const OUTPUT_END: Duration = Duration::from_secs(1);
/// Time for the hooks of the Java virtual machine.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// Main class of `ZooKeeper`.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A running `ZooKeeper`.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: JoinSet<()>,
    last: LastLines,
    /// `ZooKeeper` failed to write its log.
    cannot_write: Arc<Notify>,
}

impl Running {
    /// Starts the process.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(program: &Program) -> io::Result<Self> {
        let mut command = Command::new(&program.java);
        // The image may have options of its own.
        if std::env::var_os(RESOLVER_OPTIONS).is_none() {
            command.env(RESOLVER_OPTIONS, ONE_ATTEMPT);
        }
        let mut child = command
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
        let (mut output, cannot_write) = (JoinSet::new(), Arc::<Notify>::default());
        let log = |stream| OutputLog::new(stream, program, &last, cannot_write.clone());
        if let Some(stdout) = child.stdout.take() {
            output.spawn(log(Stream::Output).copy(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            output.spawn(log(Stream::Errors).copy(stderr));
        }
        Ok(Self { child, output, last, cannot_write })
    }

    /// Waits for the exit, and until the log has the whole output. A cancelled wait loses nothing.
    ///
    /// Kills the process if the thread that writes its log fails. It would not exit, but join the ensemble again. Its memory
    /// then holds transactions that its files lack (ZOOKEEPER-4882). That thread also fails without a fault of the volume:
    /// before 3.9.3 when the leader is lost (ZOOKEEPER-4409). Transactions that it has not yet written are then missing too.
    ///
    /// # Errors
    /// If the wait fails.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        let exited = tokio::select! {
            exited = self.child.wait() => exited,
            () = self.cannot_write.notified() => {
                tracing::error!("ZooKeeper failed to write its log: killing it, because its memory may hold what the log lacks");
                self.child.start_kill()?;
                self.child.wait().await
            }
        };
        // The output has ended, unless a child of ZooKeeper keeps it open.
        let _ = timeout(OUTPUT_END, async { while self.output.join_next().await.is_some() {} }).await;
        exited
    }

    /// Ends the process: SIGTERM, and SIGKILL after [`LAST_WORDS`]. Waits as [`Self::exited`] does, without a time limit.
    ///
    /// After SIGTERM the hooks of the Java virtual machine run, then all its threads stand still for up to 300 ms before the
    /// process ends (`VM_Exit::wait_for_threads_in_native_to_block`). Its connections stay open as long: no client writes,
    /// and no server elects another leader. `ZooKeeper` has no hook but one line of its audit log. Its files must survive
    /// SIGKILL at any moment anyway.
    ///
    /// # Errors
    /// If the signal or the wait fails.
    pub async fn end(&mut self) -> io::Result<ExitStatus> {
        self.stop().await?;
        self.exited().await
    }

    /// Sends SIGTERM, and SIGKILL later. Then no code of it runs any more, but a disk that does not answer may keep it from
    /// exiting.
    ///
    /// # Errors
    /// If the signal fails.
    pub(crate) async fn stop(&mut self) -> io::Result<()> {
        self.terminate();
        if timeout(LAST_WORDS, self.child.wait()).await.is_err() {
            self.child.start_kill()?;
        }
        Ok(())
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) else { return };
        if let Some(id) = rustix::process::Pid::from_raw(id)
            && let Err(error) = rustix::process::kill_process(id, rustix::process::Signal::TERM)
        {
            tracing::warn!(%error, "cannot send SIGTERM to ZooKeeper");
        }
    }

    /// Last lines of the output, after the exit.
    pub fn last_lines(&self) -> String {
        self.last.text()
    }

    /// Last lines of the output, while the process runs.
    pub fn output(&self) -> LastLines {
        self.last.clone()
    }
}

/// Class path of an image with the layout of the official one.
#[must_use]
pub(crate) fn class_path(home: &Path) -> String {
    ["conf", "lib/*", "*"].map(|part| home.join(part).display().to_string()).join(":")
}

/// Installation folder in an image with the layout of the official one: `/apache-zookeeper-*-bin`.
#[must_use]
pub fn find_home() -> Option<PathBuf> {
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

/// Why `ZooKeeper` must not be started: its version, or flags in the environment of the image.
///
/// # Errors
/// The reason, with the remedy.
pub(crate) fn check_image(home: &Path) -> anyhow::Result<()> {
    let folders = [home.join("lib"), home.to_owned()];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let jars: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    if let Some(refusal) = zookeeper_versions::refusal(&jars) {
        anyhow::bail!(refusal);
    }
    for name in FLAG_VARIABLES {
        if let Ok(value) = std::env::var(name) {
            jvm::check_variable(name, &value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _};
    use std::time::Instant;

    use super::*;
    use mczk_runtime::telemetry::LogFormat;

    /// Starts a script in place of Java, and waits until it has printed a line.
    async fn start(name: &str, script: &str) -> Running {
        let java = std::env::temp_dir().join(format!("mczk-java-{name}-{}", std::process::id()));
        std::fs::write(&java, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&java, std::fs::Permissions::from_mode(0o700)).unwrap();
        let program = Program {
            java: java.clone(),
            class_path: String::new(),
            flags: vec![],
            secret_flags: PathBuf::from("/nowhere"),
            configuration: PathBuf::from("/nowhere"),
            secrets: vec![],
            log_format: LogFormat::Text,
        };
        let running = loop {
            match Running::start(&program) {
                // Another test starts a process while the file is open for writing.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                started => break started.unwrap(),
            }
        };
        while running.last_lines().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::remove_file(java).unwrap();
        running
    }

    #[tokio::test]
    async fn a_process_that_stands_still_after_sigterm_is_killed() {
        let mut running = start("still", "trap '' TERM\necho started\nwhile :; do sleep 0.1; done").await;
        let begun = Instant::now();
        assert_eq!(running.end().await.unwrap().signal(), Some(9));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn java_resolves_names_with_one_attempt() {
        let mut running = start("options", "echo \"RES_OPTIONS=$RES_OPTIONS\"").await;
        running.exited().await.unwrap();
        let expected = std::env::var(RESOLVER_OPTIONS).unwrap_or_else(|_| ONE_ATTEMPT.to_owned());
        assert_eq!(running.last_lines().trim(), format!("RES_OPTIONS={expected}"));
    }
}
