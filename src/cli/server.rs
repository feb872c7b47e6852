//! `mczk server`: the parent process of ZooKeeper, in a server's pod.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, builder::NonEmptyStringValueParser};
use prometheus_client::registry::Registry;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tracing::info;

use super::{Error, log::Log, run_service};
use crate::{
    contract::pod_layout,
    runtime::{
        http_server::{self, Transport},
        shutdown::{self, Shutdown},
    },
    server::{
        configuration::Paths,
        control,
        metrics::Metrics,
        process,
        supervisor::{Options, Server as Parent, until_certificates},
    },
};

/// Between two looks whether the quorum's certificates have changed.
const CERTIFICATES_POLL: Duration = Duration::from_secs(10);

/// Runs ZooKeeper in a server's pod: decides how it starts, starts it, and lets agents act on it.
#[derive(Debug, Args)]
#[command(after_help = "SIGTERM or SIGINT is passed on to ZooKeeper, and ends this process when ZooKeeper has ended.")]
pub struct Server {
    /// Name of the pod, which ends with its number
    #[arg(long, env = "MCZK_POD", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pod: String,
    /// Address on which everything listens
    #[arg(long, env = "MCZK_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Folder with server-config.json and server-list.json
    #[arg(long, env = "MCZK_CONFIG_DIR", value_name = "FOLDER", default_value = pod_layout::CONFIG_DIR)]
    config_dir: PathBuf,
    /// The data volume
    #[arg(long, env = "MCZK_DATA", value_name = "FOLDER", default_value = pod_layout::DATA)]
    data: PathBuf,
    /// Folder for what need not outlive the process
    #[arg(long, env = "MCZK_SCRATCH", value_name = "FOLDER", default_value = pod_layout::SCRATCH)]
    scratch: PathBuf,
    /// Folder with the quorum's certificates
    #[arg(long, env = "MCZK_QUORUM_TLS", value_name = "FOLDER", default_value = pod_layout::QUORUM_TLS)]
    quorum_tls: PathBuf,
    /// Folder with the certificates that clients see
    #[arg(long, env = "MCZK_CLIENT_TLS", value_name = "FOLDER", default_value = pod_layout::CLIENT_TLS)]
    client_tls: PathBuf,
    /// Where ZooKeeper is installed; /apache-zookeeper-*-bin if absent, as in the official image
    #[arg(long, env = "ZOOKEEPER_HOME", value_name = "FOLDER")]
    zookeeper_home: Option<PathBuf>,
    /// Folder with settings of ZooKeeper's log
    #[arg(long, env = "ZOOCFGDIR", value_name = "FOLDER")]
    log_conf: Option<PathBuf>,
    /// The program java; the one that the environment names if absent, by the home of Java or else by the path
    #[arg(long, env = "MCZK_JAVA", value_name = "FILE")]
    java: Option<PathBuf>,
    /// File of addresses and names that takes the place of DNS, also for ZooKeeper; for tests
    #[arg(long, env = "MCZK_HOSTS", value_name = "FILE")]
    hosts: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

impl Server {
    /// Runs until a signal ends it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the configuration cannot work; [`Error::Failed`] if a task ended that should not have.
    pub fn run(self) -> Result<(), Error> {
        self.log.start()?;
        run_service(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let mut term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
        let mut int = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
        let address = self.address;
        let options = self.options()?;
        let mut registry = Registry::default();
        let parent = Arc::new(Parent::new(options, Metrics::new(&mut registry)));
        let probes = listen(SocketAddr::new(address, pod_layout::PROBE_PORT)).await?;
        let control = listen(SocketAddr::new(address, pod_layout::CONTROL_PORT)).await?;
        let (trigger, shutdown) = shutdown::channel();
        let (late_trigger, late) = shutdown::channel();
        let mut tasks = JoinSet::new();
        let router = control::probes(parent.clone(), registry);
        tasks.spawn(serve(probes, Transport::Plain, router, late.clone()));
        tasks.spawn(serve_control(control, parent.clone(), late));
        let mut life = tokio::spawn(parent.run(shutdown));
        tokio::select! {
            ended = &mut life => return Err(anyhow!("the task that runs ZooKeeper ended: {ended:?}").into()),
            Some(ended) = tasks.join_next() => return Err(anyhow!("a task ended, though nobody asked it to: {ended:?}").into()),
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        info!("ending");
        trigger.pull();
        // No time limit: the kubelet has one, and a server that is killed early loses time, not data.
        let ended = life.await;
        late_trigger.pull();
        while tasks.join_next().await.is_some() {}
        Ok(ended.context("the task that runs ZooKeeper")?)
    }

    fn options(self) -> Result<Options, Error> {
        let home = self.zookeeper_home.or_else(process::home).ok_or_else(|| {
            Error::Usage(
                "ZooKeeper is not found at /apache-zookeeper-*-bin: name its folder with --zookeeper-home".to_owned(),
            )
        })?;
        let java = self.java.unwrap_or_else(|| match std::env::var_os("JAVA_HOME") {
            Some(home) => PathBuf::from(home).join("bin/java"),
            None => PathBuf::from("java"),
        });
        for (flag, folder) in [("--data", &self.data), ("--scratch", &self.scratch)] {
            if !folder.is_dir() {
                return Err(Error::Usage(format!("{} is no folder: name one with {flag}", folder.display())));
            }
        }
        let life = self.data.join(PathBuf::from(pod_layout::ACTIVE_DATA).file_name().unwrap_or_default());
        Ok(Options {
            pod: self.pod,
            config_dir: self.config_dir,
            places: Paths { life, scratch: self.scratch, address: self.address, hosts: self.hosts },
            data: self.data,
            quorum_tls: self.quorum_tls,
            client_tls: self.client_tls,
            java,
            home,
            conf: self.log_conf,
        })
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::Usage(format!("cannot listen on {address}: {error}: choose another address with --address"))
    })
}

async fn serve(listener: TcpListener, transport: Transport, router: axum::Router, shutdown: Shutdown) {
    let limits =
        http_server::Limits { max_connections: 256, drain: Duration::from_secs(1), ..http_server::Limits::default() };
    http_server::serve(listener, transport, router, limits, http_server::Metrics::default(), shutdown).await;
}

/// Serves agents and other servers, as soon as it is known how: in plain text only if the ensemble is declared so.
async fn serve_control(listener: TcpListener, parent: Arc<Parent>, shutdown: Shutdown) {
    let identity = parent.identity();
    let transport = tokio::select! {
        () = shutdown.clone().requested() => return,
        transport = async {
            if !parent.quorum_tls().await {
                return Transport::Plain;
            }
            until_certificates(&identity).await;
            Transport::Tls(identity.clone())
        } => transport,
    };
    let follow = async {
        if matches!(transport, Transport::Tls(_)) {
            identity.clone().follow(CERTIFICATES_POLL, shutdown.clone()).await;
        } else {
            shutdown.clone().requested().await;
        }
    };
    tokio::join!(follow, serve(listener, transport.clone(), control::router(parent.clone()), shutdown.clone()));
}
