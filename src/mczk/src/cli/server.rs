//! `mczk server`: the parent process of ZooKeeper, in a server's pod.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, builder::NonEmptyStringValueParser};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use super::log::LogFlags;
use mczk_admin::terminal::{error::Error, run::run_service};
use mczk_api::contract::pod_layout;
use mczk_rules::server::paths::Paths;
use mczk_runtime::{
    http_server::{self, Transport},
    process::{Process, ProcessEnding, listen},
    shutdown::Shutdown,
};
use mczk_server::{
    control,
    metrics::Metrics,
    process,
    supervisor::{Supervisor, SupervisorOptions},
};

/// Interval of reloads of the quorum's certificates.
const CERTIFICATE_RELOAD: Duration = Duration::from_secs(10);

/// Runs ZooKeeper in a server's pod: decides how it starts, starts it, and serves agents.
#[derive(Debug, Args)]
#[command(after_help = "On SIGTERM or SIGINT, the process stops ZooKeeper and exits after ZooKeeper has exited.")]
pub(crate) struct Server {
    /// Name of the pod, which ends with its ordinal
    #[arg(long, env = "MCZK_POD", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pod: String,
    /// Address of all ports; :: means IPv6 and IPv4
    #[arg(long, env = "MCZK_ADDRESS", value_name = "ADDRESS", default_value = "::")]
    address: IpAddr,
    /// Folder with server-config.json and server-list.json
    #[arg(long, env = "MCZK_CONFIG_DIR", value_name = "FOLDER", default_value = pod_layout::CONFIG_DIR)]
    config_dir: PathBuf,
    /// The data volume
    #[arg(long, env = "MCZK_DATA", value_name = "FOLDER", default_value = pod_layout::DATA)]
    data: PathBuf,
    /// Folder for files that need not outlive the process
    #[arg(long, env = "MCZK_SCRATCH", value_name = "FOLDER", default_value = pod_layout::SCRATCH)]
    scratch: PathBuf,
    /// Folder with the quorum's certificates
    #[arg(long, env = "MCZK_QUORUM_TLS", value_name = "FOLDER", default_value = pod_layout::QUORUM_TLS)]
    quorum_tls: PathBuf,
    /// Folder with the certificates for clients
    #[arg(long, env = "MCZK_CLIENT_TLS", value_name = "FOLDER", default_value = pod_layout::CLIENT_TLS)]
    client_tls: PathBuf,
    /// Folder of the ZooKeeper installation; defaults to /apache-zookeeper-*-bin, as in the official image
    #[arg(long, env = "ZOOKEEPER_HOME", value_name = "FOLDER")]
    zookeeper_home: Option<PathBuf>,
    /// The program java; defaults to that of the Java home in the environment, or else to that on the search path
    #[arg(long, env = "MCZK_JAVA", value_name = "FILE")]
    java: Option<PathBuf>,
    /// File of addresses and names that replaces DNS, for tests
    #[arg(long, env = "MCZK_HOSTS", value_name = "FILE")]
    hosts: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
}

impl Server {
    /// Runs until a signal.
    ///
    /// # Errors
    /// [`Error::Usage`] if the configuration cannot work; [`Error::Failed`] if a task ended unexpectedly.
    pub(crate) fn run(self) -> Result<(), Error> {
        self.log.start()?;
        run_service(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let mut process = Process::new()?;
        let address = self.address;
        let options = self.options()?;
        let mut registry = Registry::default();
        let supervisor = Arc::new(Supervisor::new(options, Metrics::new(&mut registry)));
        let probes = listen("--address", SocketAddr::new(address, pod_layout::PROBE_PORT))?;
        let control = listen("--address", SocketAddr::new(address, pod_layout::CONTROL_PORT))?;
        let last = process.last_shutdown();
        let router = control::probes(supervisor.clone(), registry);
        process.spawn_last(
            "the probes",
            serve(probes, Transport::Plain, router, http_server::Limits::of_probes(), last.clone()),
        );
        process.spawn_last("the control API", serve_control(control, supervisor.clone(), last));
        let zookeeper = supervisor.run(process.shutdown());
        process.spawn("the task that runs ZooKeeper", async {
            zookeeper.await;
            Ok(())
        });
        // No time limit, because the kubelet has one. A server that is killed early loses time, not data.
        process.run(ProcessEnding { begin: || {}, delay: Duration::ZERO, limit: None }).await?;
        Ok(())
    }

    fn options(self) -> Result<SupervisorOptions, Error> {
        let home = self.zookeeper_home.or_else(process::find_home).ok_or_else(|| {
            Error::Usage(
                "ZooKeeper is not installed at /apache-zookeeper-*-bin: set its folder with --zookeeper-home"
                    .to_owned(),
            )
        })?;
        let java = self.java.unwrap_or_else(|| match std::env::var_os("JAVA_HOME") {
            Some(home) => PathBuf::from(home).join("bin/java"),
            None => PathBuf::from("java"),
        });
        for (flag, folder) in [("--data", &self.data), ("--scratch", &self.scratch)] {
            if !folder.is_dir() {
                return Err(Error::Usage(format!("{} is no folder: set one with {flag}", folder.display())));
            }
        }
        let active_data = self.data.join(PathBuf::from(pod_layout::ACTIVE_DATA).file_name().unwrap_or_default());
        Ok(SupervisorOptions {
            pod: self.pod,
            config_dir: self.config_dir,
            paths: Paths { active_data, scratch: self.scratch, address: self.address, hosts: self.hosts },
            data: self.data,
            quorum_tls: self.quorum_tls,
            client_tls: self.client_tls,
            java,
            home,
            log_format: self.log.format(),
        })
    }
}

async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: axum::Router,
    limits: http_server::Limits,
    shutdown: Shutdown,
) {
    http_server::serve(listener, transport, router, limits, http_server::Metrics::default(), shutdown).await;
}

/// Serves agents and other servers once the assigned configuration is known. In plain text only if the quorum uses no TLS.
async fn serve_control(listener: TcpListener, supervisor: Arc<Supervisor>, shutdown: Shutdown) {
    let certificates = supervisor.quorum_certificates();
    let transport = tokio::select! {
        () = shutdown.clone().requested() => return,
        transport = async {
            if !supervisor.quorum_tls().await {
                return Transport::Plain;
            }
            certificates.wait().await;
            Transport::Tls(certificates.clone())
        } => transport,
    };
    let reload = async {
        if matches!(transport, Transport::Tls(_)) {
            certificates.clone().reload_every(CERTIFICATE_RELOAD, shutdown.clone()).await;
        } else {
            shutdown.clone().requested().await;
        }
    };
    // Agents and servers of another cluster may have the address of its gateway.
    let limits =
        http_server::Limits { max_connections: 256, drain: Duration::from_secs(1), ..http_server::Limits::default() };
    let router = control::router(supervisor.clone());
    tokio::join!(reload, serve(listener, transport.clone(), router, limits, shutdown.clone()));
}
