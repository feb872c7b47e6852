//! A machine with a volume, and `mczk server` on it.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use super::super::LaunchPlan;
use crate::{
    metrics::Metrics,
    supervisor::{FirstVolume, Supervisor, SupervisorOptions},
    volume::Volume,
};
use mczk_api::{
    contract::{control_api::ServerConfig, pod_layout},
    zookeeper::{Ensemble, Role},
};
use mczk_rules::server::{
    files::Held,
    paths::Paths,
    start::{self, Peers, Start},
};
use mczk_runtime::telemetry::LogFormat;

/// The parent process of a server.
pub(super) struct Machine {
    supervisor: Supervisor,
    folder: PathBuf,
    /// The volume that the agent has recorded for the first start. `None` before the first one.
    recorded: Option<&'static str>,
}

/// Identity of the volume by its first start.
const FIRST: &str = "first";

impl Machine {
    /// A new process in the first cluster. Only the volume outlives the power.
    pub(super) fn new(folder: &Path, data: PathBuf, list: &Ensemble, is_first: bool) -> Self {
        let path = |name: &str| {
            let path = folder.join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let hosts = folder.join("hosts");
        fs::write(&hosts, "127.0.0.1 s1.test\n").unwrap();
        let config = ServerConfig {
            name: "zk".into(),
            cluster: "m1".into(),
            role: Role::Voter,
            revision: "r1".into(),
            zoo_cfg: vec![],
            jvm_flags: vec![],
            memory_limit: None,
            quorum_tls: false,
            client_tls: None,
        };
        let config_dir = path("config");
        fs::write(config_dir.join(pod_layout::SERVER_CONFIG_FILE), serde_json::to_vec(&config).unwrap()).unwrap();
        fs::write(config_dir.join(pod_layout::SERVER_LIST_FILE), serde_json::to_vec(list).unwrap()).unwrap();
        let paths = Paths {
            active_data: data.join("active"),
            scratch: path("scratch"),
            address: Ipv4Addr::LOCALHOST.into(),
            hosts: Some(hosts),
        };
        let (quorum_tls, client_tls, java) = (path("quorum"), path("client"), java(folder));
        let pod = "zk-current-0".into();
        let options = SupervisorOptions {
            pod,
            config_dir,
            data,
            paths,
            quorum_tls,
            client_tls,
            java,
            home: path("home"),
            log_format: LogFormat::Text,
        };
        Self {
            supervisor: Supervisor::new(options, Metrics::default()),
            folder: folder.to_owned(),
            recorded: (!is_first).then_some(FIRST),
        }
    }

    /// Writes the program that stands for `java`: it writes its arguments to a file. [`super::zookeeper`] does the rest.
    pub(super) fn install_java(folder: &Path) {
        let text = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}/arguments'\n", folder.display());
        fs::write(java(folder), text).unwrap();
        fs::set_permissions(java(folder), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Removes that program.
    pub(super) fn remove_java(folder: &Path) {
        let _ = fs::remove_file(java(folder));
    }

    /// Gives the server a config with these fields.
    pub(super) fn configure(&self, with: &Value) {
        let file = self.folder.join("config").join(pod_layout::SERVER_CONFIG_FILE);
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        fs::write(file, config.to_string()).unwrap();
    }

    /// True if the server asks for its first start.
    pub(super) async fn asks(&self) -> bool {
        assert!(!matches!(self.supervisor.launch().await, Ok(Some(_))));
        self.supervisor.with_state(|state| state.first_start.is_some())
    }

    /// True if the last start had the argument.
    pub(super) fn has_argument(&self, argument: &str) -> bool {
        fs::read_to_string(self.folder.join("arguments")).unwrap().lines().any(|line| line == argument)
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.supervisor.volume
    }

    /// The decision if the others answer `peers`.
    ///
    /// # Errors
    /// If the volume cannot be read. The process would try again for ever.
    pub(super) async fn decide(&self, peers: &Peers) -> anyhow::Result<Start> {
        Ok(self.plan(peers).await?.0)
    }

    /// Decides, prepares the volume and starts the program. `None` if it does not start.
    pub(super) async fn start(&self, peers: &Peers) -> anyhow::Result<Option<Start>> {
        let (start, plan) = self.plan(peers).await?;
        let Some(plan) = plan else { return Ok(None) };
        let mut running = self.supervisor.start_zookeeper(&plan).await?.context("the program does not start")?;
        running.exited().await?;
        Ok(Some(start))
    }

    /// True if the process takes the volume for the one on which it has run the program.
    pub(super) async fn is_confirmed(&self) -> bool {
        let config = self.supervisor.assigned_config().await.unwrap();
        self.supervisor.start_inputs(&config).await.unwrap().0.age.confirmed
    }

    /// Raises the generation, as while `ZooKeeper` serves.
    pub(super) fn raise_generation(&self) {
        let own = self.volume().raise_generation(0, Held::default(), BTreeMap::new()).unwrap().unwrap();
        self.supervisor.note_written(|mark| mark.generation = own);
    }

    /// The answer of the agent to a server that asks for its first start.
    fn ask_agent(&self) -> anyhow::Result<FirstVolume> {
        let (identity, recorded) = match self.recorded {
            None => (FIRST, FIRST),
            Some(recorded) if recorded == self.volume().identity()? => ("next", "next"),
            Some(recorded) => ("next", recorded),
        };
        let first = FirstVolume { identity: identity.to_owned(), recorded: Some(recorded.to_owned()) };
        self.supervisor.change_state(|state| state.first_start = Some(first.clone()));
        Ok(first)
    }

    async fn plan(&self, peers: &Peers) -> anyhow::Result<(Start, Option<LaunchPlan>)> {
        let config = self.supervisor.assigned_config().await?;
        let (mut inputs, files) = self.supervisor.start_inputs(&config).await?;
        inputs.peers = peers.clone();
        inputs.recorded = self.ask_agent()?.record();
        // Broken variants act in the thread of the test.
        inputs.stored = self.volume().stored()?;
        let start = start::decide(&inputs);
        let list = start::newest_list(&inputs).cloned();
        let id = start.id.filter(|_| start.decision.starts());
        Ok((start.clone(), id.map(|id| LaunchPlan { config, inputs, files, list, start, id })))
    }
}

/// The program, outside the folder: a file system in memory may refuse to run any.
fn java(folder: &Path) -> PathBuf {
    std::env::temp_dir().join(format!("{}-java", folder.file_name().unwrap().display()))
}
