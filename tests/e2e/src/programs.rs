//! Builds the program `mczk`, and runs programs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::{Child, Command};

/// The root of the source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The time from SIGTERM to an error.
const GRACE: Duration = Duration::from_secs(10);

/// Builds `mczk` and `rig` with the profile of this program, and copies `mczk` into a folder, so that a later build does not
/// change it. `MCZK_BIN` names a program to use instead.
///
/// # Errors
/// If the build fails.
pub async fn mczk(folder: &Path) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("MCZK_BIN") {
        return Ok(given.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(SOURCE).args(["build", "--quiet", "-p", "mczk", "-p", "rig", "-p", "e2e", "--bins"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    ensure!(build.status().await.context("cannot run cargo")?.success(), "mczk does not build");
    let beside = std::env::current_exe()?.with_file_name("mczk");
    let copy = folder.join("mczk");
    fs::copy(&beside, &copy).with_context(|| format!("cannot copy {}", beside.display()))?;
    Ok(copy)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// If it fails, with its standard error.
pub async fn run(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "{} {}: {}: {}",
            program.display(),
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A Java client that ends with its value: small, and quick to start. `lib` holds its jars.
#[must_use]
pub fn java(heap: &str, lib: &Path) -> Command {
    let mut java = Command::new("java");
    java.args([heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(lib.join("*")).kill_on_drop(true);
    java
}

/// A running process. It ends with this value, and with this process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program, and appends its output to a file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        // setpriv asks the kernel to end the program with this process, and then runs the program.
        let mut command = if which("setpriv") {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Checks that it runs.
    ///
    /// # Errors
    /// If it has ended, with its exit status and the end of its log.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the process ended ({status}): {}", tail(&self.log)),
        }
    }

    /// Its id, for the kernel.
    ///
    /// # Errors
    /// If it has ended.
    pub fn id(&self) -> Result<u32> {
        self.child.id().context("the process has ended already")
    }

    /// Sends it a signal, such as `STOP`.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn signal(&self, name: &str) -> Result<()> {
        run(Path::new("kill"), &[&format!("-{name}"), &self.id()?.to_string()]).await.map(drop)
    }

    /// Kills it.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Ends it by SIGTERM, and waits.
    ///
    /// # Errors
    /// If it does not end in time, or fails.
    pub async fn stop(mut self) -> Result<()> {
        self.signal("TERM").await?;
        let status = tokio::time::timeout(GRACE, self.child.wait())
            .await
            .with_context(|| format!("the process does not end on SIGTERM: {}", tail(&self.log)))??;
        ensure!(status.success(), "the process ended with {status} on SIGTERM: {}", tail(&self.log));
        Ok(())
    }
}

fn which(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
}

/// The last lines of a file.
#[must_use]
pub fn tail(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join(" | ")
}
