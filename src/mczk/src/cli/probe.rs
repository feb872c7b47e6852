//! `mczk probe`: stands for the first server of a cluster while the network is checked.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, builder::NonEmptyStringValueParser};

use super::log::LogFlags;
use mczk_admin::terminal::{error::Error, run::run_service};
use mczk_api::{
    contract::{
        pod_layout,
        preflight::{PORTS, greeting, request},
    },
    preflight::ServerName,
};
use mczk_runtime::{
    conversation,
    process::{Process, ProcessEnding, listen},
};
use mczk_server::{
    preflight::{Results, Targets, answer, check},
    resolver::Resolver,
};

/// Time in which connections end.
const END: Duration = Duration::from_secs(1);

/// Checks the network before servers start: answers as a server of a cluster, and tries the names of all clusters.
///
/// The agent runs it in a pod of its own, and reads the results on port 8080.
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Incarnation of the ensemble
    #[arg(long, env = "MCZK_INCARNATION", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    incarnation: String,
    /// Karmada's name of this cluster
    #[arg(long, env = "MCZK_CLUSTER", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    cluster: String,
    /// Cluster, name of a server there, and its ordinal if it is not the first one; once for each cluster
    #[arg(long = "target", env = "MCZK_TARGETS", value_name = "CLUSTER=HOST[/ORDINAL]", value_delimiter = ',', required = true, value_parser = target)]
    targets: Vec<ServerName>,
    /// Bytes per second at which the first server of a cluster must be able to copy a snapshot
    #[arg(long, env = "MCZK_BYTES_PER_SECOND", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    bytes_per_second: Option<u32>,
    /// Address of all ports; :: means IPv6 and IPv4
    #[arg(long, env = "MCZK_ADDRESS", value_name = "ADDRESS", default_value = "::")]
    address: IpAddr,
    /// File of addresses and names that replaces DNS, for tests
    #[arg(long, env = "MCZK_HOSTS", value_name = "FILE")]
    hosts: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
}

fn target(text: &str) -> Result<ServerName, String> {
    let parsed = || {
        let (cluster, name) = text.split_once('=')?;
        let (host, ordinal) = match name.split_once('/') {
            Some((host, ordinal)) => (host, Some(ordinal.parse().ok()?)),
            None => (name, None),
        };
        let name = ServerName { cluster: cluster.to_owned(), host: host.to_owned(), ordinal };
        (!cluster.is_empty() && !host.is_empty()).then_some(name)
    };
    parsed().ok_or_else(|| "write CLUSTER=HOST or CLUSTER=HOST/ORDINAL".to_owned())
}

impl Probe {
    /// Runs until a signal.
    ///
    /// # Errors
    /// [`Error::Usage`] if a port is in use; [`Error::Failed`] if a task ended unexpectedly.
    pub(crate) fn run(self) -> Result<(), Error> {
        self.log.start()?;
        run_service(self.serve())
    }

    async fn serve(self) -> Result<(), Error> {
        let mut process = Process::new()?;
        let tls = conversation::acceptor()?;
        for port in PORTS {
            let listener = listen("--address", SocketAddr::new(self.address, port))?;
            let text = greeting(&self.incarnation, &self.cluster);
            let answers = answer(listener, move || text.clone(), Some(tls.clone()), process.last_shutdown());
            process.spawn_last("a server's port", answers);
        }
        let results = Results::default();
        let listener = listen("--address", SocketAddr::new(self.address, pod_layout::PROBE_PORT))?;
        let request = request(&self.incarnation, self.targets.clone(), self.bytes_per_second.map(i64::from))?;
        let (read, cluster) = (results.clone(), self.cluster.clone());
        let text = move || read.to_json(&request.round, &cluster);
        process.spawn_last("the results", answer(listener, text, None, process.last_shutdown()));
        // A cluster that has servers copies no snapshot from the one that joins.
        let joins = self.targets.iter().any(|target| target.cluster == self.cluster && target.ordinal.is_none());
        let resolver = self.hosts.map_or(Resolver::System, Resolver::File);
        let targets = Targets {
            incarnation: self.incarnation,
            names: self.targets,
            resolver,
            bytes_per_second: self.bytes_per_second.filter(|_| joins).map(u64::from),
        };
        let checks = check(targets, results, process.shutdown());
        process.spawn("the checks", async {
            checks.await;
            Ok(())
        });
        process.run(ProcessEnding { begin: || {}, delay: Duration::ZERO, limit: Some(END) }).await?;
        Ok(())
    }
}
