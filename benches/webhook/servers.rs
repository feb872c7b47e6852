//! The servers, as processes on loopback with one certificate, and what the kernel says about each.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use e2e::{
    patience::wait_for,
    programs::{self, Process},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// Time from the start of a server until it listens.
const PATIENCE: Duration = Duration::from_secs(20);
/// Microseconds of a tick, in which the kernel counts processor time: Linux has 100 a second on every architecture.
const TICK: f64 = 10_000.0;

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `mczk operator`, without the controller.
    Mczk,
    /// Karmada's example of an interpreter webhook, in Go.
    Example,
    /// The same answer to everything.
    Null,
}

impl Kind {
    /// All servers, in the order of the tables.
    pub(crate) const ALL: [Self; 3] = [Self::Mczk, Self::Example, Self::Null];

    /// Name in the tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mczk => "mczk",
            Self::Example => "Karmada's example",
            Self::Null => "null",
        }
    }

    /// Path of the URL at which it answers.
    const fn path(self) -> &'static str {
        match self {
            Self::Mczk => "/interpreter",
            Self::Example => "/interpreter-workload",
            Self::Null => "/",
        }
    }

    fn arguments(self, address: SocketAddr, folder: &Folder) -> Result<Vec<String>> {
        Ok(match self {
            Self::Mczk => vec![
                "operator".to_owned(),
                "--controller=false".to_owned(),
                format!("--webhook-address={address}"),
                format!("--probe-address={}", free_address()?),
                format!("--tls-cert-file={}", folder.file("tls.crt")),
                format!("--tls-private-key-file={}", folder.file("tls.key")),
            ],
            Self::Example => vec![
                format!("--bind-address={}", address.ip()),
                format!("--secure-port={}", address.port()),
                format!("--cert-dir={}", folder.file("")),
                format!("--kubeconfig={}", folder.file("kubeconfig")),
            ],
            Self::Null => vec!["null-server".to_owned(), address.to_string(), folder.file("")],
        })
    }
}

/// Folder of the certificates, logs and questions. It is removed with this value.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// An empty folder.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(TempDir::new().context("cannot create a folder")?))
    }

    /// The whole name of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// A running server. It ends with this value.
pub(crate) struct Server {
    /// The server.
    pub(crate) kind: Kind,
    /// URL at which it answers.
    pub(crate) url: String,
    /// Address and port at which it listens.
    pub(crate) address: SocketAddr,
    /// Resident memory before the first question, in MiB.
    pub(crate) idle: f64,
    process: Process,
}

/// Starts all servers, and makes their certificate. Without its program, `example` is left out.
///
/// # Errors
/// If one does not listen in time, with the end of its log. The example needs port 8080 for its metrics.
pub(crate) async fn start(folder: &Folder, example: Option<PathBuf>) -> Result<Vec<Server>> {
    let mczk = certified(folder).await?;
    // The example reads it, and asks no API server.
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "none", "users": [{ "name": "none", "user": {} }],
        "clusters": [{ "name": "none", "cluster": { "server": "https://127.0.0.1:1" } }],
        "contexts": [{ "name": "none", "context": { "cluster": "none", "user": "none" } }],
    });
    fs::write(folder.file("kubeconfig"), kubeconfig.to_string())?;
    let null = std::env::current_exe()?;
    let mut servers = Vec::new();
    for (kind, program) in [(Kind::Mczk, Some(mczk)), (Kind::Example, example), (Kind::Null, Some(null))] {
        if let Some(program) = program {
            servers.push(Server::start(kind, &program, folder).await?);
        }
    }
    Ok(servers)
}

/// The program of mczk, after it has made the certificate of all servers.
async fn certified(folder: &Folder) -> Result<PathBuf> {
    let mczk = programs::mczk(folder.0.path()).await?;
    programs::run(&mczk, &["certs", "--dir", &folder.file("")]).await?;
    Ok(mczk)
}

impl Server {
    /// Starts mczk alone, and makes its certificate.
    ///
    /// # Errors
    /// If it does not listen in time.
    pub(crate) async fn mczk(folder: &Folder) -> Result<Self> {
        let program = certified(folder).await?;
        Self::start(Kind::Mczk, &program, folder).await
    }

    async fn start(kind: Kind, program: &Path, folder: &Folder) -> Result<Self> {
        let address = free_address()?;
        let log = folder.file(&format!("{kind:?}.log"));
        let mut process = Process::start(program, &kind.arguments(address, folder)?, Path::new(&log))?;
        let listens = wait_for(&format!("{} listens", kind.name()), PATIENCE, || async {
            TcpStream::connect(address).await?;
            anyhow::Ok(())
        })
        .await;
        process.alive()?;
        listens?;
        let mut server = Self { kind, url: format!("https://{address}{}", kind.path()), address, idle: 0.0, process };
        server.idle = server.memory("VmRSS:")?;
        Ok(server)
    }

    /// Processor time since its start, in microseconds: its own and that of the kernel for it.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let stat = self.read("stat")?;
        // Field 2 is the name of the program, which may hold anything. Fields 14 and 15 are counted from field 3.
        let (_, fields) = stat.rsplit_once(") ").context("/proc has no name of a program")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
        Ok(ticks.iter().sum::<f64>() * TICK)
    }

    /// Memory in MiB: `VmRSS:` is resident now, and `VmHWM:` is the most that ever was.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn memory(&self, field: &str) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.process.id()?);
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}: {} has ended", self.kind.name()))
    }

    /// Kills it, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(crate) async fn end(self) -> Result<()> {
        self.process.kill().await
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
