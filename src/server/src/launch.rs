//! One start of `ZooKeeper`: observe, decide, prepare the volume, start the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use tracing::{info, warn};

use crate::{
    assigned_config::AssignedConfig,
    peers,
    process::{Running, check_image, class_path},
    program::Program,
    session::Sessions,
    superuser::Superuser,
    supervisor::{FirstVolume, Supervisor, TlsClients},
    transaction_log,
    volume::new_identity,
};
use mczk_api::{
    contract::control_api::{Phase, ServerConfig},
    zookeeper::Ensemble,
};
use mczk_rules::server::{
    credentials,
    dynamic_configuration::ClientAddress,
    files::Files,
    jvm,
    start::{self, Decision, Peers, Recorded, Start, StartInputs},
    zoo_cfg::zoo_cfg,
};
use mczk_runtime::atomic_file;

#[cfg(test)]
mod power_loss;

/// The memory limit of the container, as the kernel enforces it.
const MEMORY_LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// A decision to start, with its inputs.
struct LaunchPlan {
    config: AssignedConfig,
    inputs: StartInputs,
    /// Snapshots and logs before the start.
    files: Files,
    /// Newest server list.
    list: Option<Ensemble>,
    start: Start,
    id: i32,
}

impl Supervisor {
    /// Decides how `ZooKeeper` starts, and starts it. `None` if it may not start yet.
    pub(crate) async fn launch(&self) -> anyhow::Result<Option<Running>> {
        let config = match self.assigned_config().await {
            Ok(config) => config,
            Err(error) => {
                self.record_wait(format!("the assigned configuration cannot be read: {error:#}"));
                return Ok(None);
            }
        };
        if !config.is_suspended() {
            // From here on `ZooKeeper` may start, so the server must not report that it is suspended.
            self.change_state(|state| {
                if state.phase == Phase::Suspended {
                    state.phase = Phase::Waiting { reason: "the ensemble is no longer suspended".to_owned() };
                }
            });
        }
        let (inputs, files) = self.start_inputs(&config).await?;
        let start = start::decide(&inputs);
        let list = start::newest_list(&inputs).cloned();
        self.record_decision(&config, &start, list.as_ref());
        // A server that does not begin with the volume that the agent records looks like one that lost it.
        let own = list.as_ref().and_then(|list| inputs.pod.in_list(list));
        if let (Decision::AskAgent(_), Some(own)) = (&start.decision, own)
            && self.flags_if_ready(&config, &own.host).await?.is_none()
        {
            return Ok(None);
        }
        if let Some(copy) = start.removes.clone() {
            let volume = self.volume.clone();
            tokio::task::spawn_blocking(move || volume.remove_set_aside(&copy))
                .await?
                .context("data that was set aside cannot be removed")?;
        }
        let Some(id) = start.id.filter(|_| start.decision.starts()) else {
            self.record_no_start(start.decision, list.as_ref())?;
            return Ok(None);
        };
        self.start_zookeeper(&LaunchPlan { config, inputs, files, list, start, id }).await
    }

    /// The inputs of the decision, and the files that they rest on: none if they cannot be read.
    async fn start_inputs(&self, config: &AssignedConfig) -> anyhow::Result<(StartInputs, Files)> {
        let pod = self.pod_identity(config)?;
        let (volume, assigned) = (self.volume.clone(), config.list.clone());
        let (written, first) = self.with_state(|state| (state.written.clone(), state.first_start.clone()));
        let read = tokio::task::spawn_blocking(move || {
            // What cannot be read shows in the listing, with the advice.
            let tidied = volume.name_snapshots().and_then(|()| volume.make_room("", None));
            tidied.unwrap_or_else(|error| warn!(%error, "cannot tidy up the volume"));
            volume.identity()?;
            let files = transaction_log::listing(&volume.transactions_folder());
            let disk = volume.disk()?;
            let inputs = StartInputs {
                pod,
                assigned,
                stored: volume.stored()?,
                age: volume.age(&files, written.as_ref())?,
                suspended: volume.suspended()?,
                set_aside: disk.set_aside,
                available: disk.available,
                recorded: first.map_or(Recorded::Unknown, |first| first.record()),
                peers: Peers::default(),
            };
            std::io::Result::Ok((inputs, files.unwrap_or_default()))
        });
        let (mut inputs, files) = read.await?.context("the volume cannot be read")?;
        // Others answer even while their ZooKeeper does not run. A process that has run ZooKeeper before asks no other, unless
        // its pod has a new id: it must know if the former id still has a vote.
        let alone = start::decide(&inputs);
        let replaced = start::listed_id(&inputs).is_some_and(|listed| Some(listed) != alone.id);
        if !matches!(alone.decision, Decision::KeepOwn | Decision::Suspend) || replaced {
            // Others that start at the same time learn which server answers.
            self.change_state(|state| {
                state.incarnation = config.incarnation();
                state.id = state.id.or(alone.id);
            });
            inputs.peers = self.ask_peers(config, &inputs).await?;
        }
        Ok((inputs, files))
    }

    /// Asks every server that the assigned list, the stored list or the stored configuration names.
    async fn ask_peers(&self, config: &AssignedConfig, inputs: &StartInputs) -> anyhow::Result<Peers> {
        let stored = inputs.stored.as_ref();
        let lists = config.list.iter().chain(stored.and_then(|stored| stored.list.as_ref()));
        let own_host = lists.clone().find_map(|list| inputs.pod.in_list(list)).map(|own| own.host.clone());
        let dynamic =
            stored.and_then(|stored| stored.dynamic.as_ref()).into_iter().flat_map(|dynamic| &dynamic.servers);
        let mut hosts: BTreeSet<String> =
            lists.flat_map(Ensemble::all_servers).map(|server| server.host.clone()).collect();
        hosts.extend(dynamic.map(|server| server.host.clone()));
        if let Some(own_host) = own_host {
            hosts.remove(&own_host);
        }
        let tls = if config.server.quorum_tls {
            // The control API loads them too, perhaps a moment later.
            self.quorum_certificates.reload().await?;
            let loaded = self.quorum_certificates.client_config();
            Some(loaded.context("the certificates of the quorum are not loaded")?)
        } else {
            None
        };
        let enough = |peers: &Peers| start::needs_no_answer(&StartInputs { peers: peers.clone(), ..inputs.clone() });
        Ok(peers::ask(hosts, &config.incarnation(), &self.resolver, tls, enough).await)
    }

    fn record_decision(&self, config: &AssignedConfig, start: &Start, list: Option<&Ensemble>) {
        self.metrics.list_epoch.set(list.and_then(|list| list.epoch).unwrap_or_default());
        self.change_state(|state| {
            state.id = start.id;
            state.lost = start.lost;
            state.incarnation = config.incarnation();
            state.revision.clone_from(&config.server.revision);
            state.list = list.cloned();
            if !matches!(start.decision, Decision::AskAgent(_)) && !start.decision.starts() {
                state.first_start = None;
            }
        });
    }

    fn record_no_start(&self, decision: Decision, list: Option<&Ensemble>) -> anyhow::Result<()> {
        match decision {
            Decision::Suspend => {
                if let Some(list) = list {
                    self.volume.store_suspended(list).context("the volume cannot be written")?;
                }
                self.metrics.running.set(0);
                self.change_state(|state| {
                    state.phase = Phase::Suspended;
                    state.failing_since = None;
                });
            }
            Decision::AskAgent(reason) => {
                self.change_state(|state| {
                    state.first_start.get_or_insert_with(|| FirstVolume { identity: new_identity(), recorded: None });
                });
                self.record_wait(reason);
            }
            Decision::Wait(reason) | Decision::Refuse(reason) => self.record_wait(reason),
            _ => self.record_wait("the server has no id".to_owned()),
        }
        Ok(())
    }

    async fn start_zookeeper(&self, plan: &LaunchPlan) -> anyhow::Result<Option<Running>> {
        let (paths, server, id) = (&self.options.paths, &plan.config.server, plan.id);
        let Some(host) = plan.own_host() else {
            self.record_wait("neither the server list nor the configuration has the server's host name".to_owned());
            return Ok(None);
        };
        let Some(mut flags) = self.flags_if_ready(&plan.config, &host).await? else { return Ok(None) };
        let client_address = ClientAddress::of(paths, server);
        self.prepare_volume(plan, client_address)?;
        let written = self.volume.mark().context("the volume cannot be read")?;
        let superuser = Superuser::generate();
        self.write_configuration(&plan.config, &superuser)?;
        let folder = self.volume.transactions_folder();
        let files = transaction_log::listing(&folder).context("the volume cannot be read")?;
        self.volume.enter_epoch(&files).context("the volume cannot be written")?;
        // ZooKeeper does not sync the empty snapshot of a first start, so a power loss may leave an empty file.
        if files.lacks_snapshot() {
            warn!("no snapshot is complete: ZooKeeper begins with the first transaction");
            flags.push(jvm::BEGIN_WITH_LOG.to_owned());
        }
        let program = Program {
            java: self.options.java.clone(),
            class_path: class_path(&self.options.home),
            flags,
            secret_flags: paths.secret_flags(),
            configuration: paths.zoo_cfg(),
            secrets: [superuser.secrets(), credentials::values(server), image_credentials()].concat(),
            log_format: self.options.log_format,
        };
        let decision = describe(&plan.start.decision);
        info!(id, host, decision, set_aside = plan.start.set_aside, "ZooKeeper starts");
        let running =
            Running::start(&program).with_context(|| format!("{} cannot be started", program.java.display()))?;
        self.metrics.starts.inc();
        self.metrics.running.set(1);
        let sessions = Arc::new(Sessions::new(self.client_address(), superuser, id, client_address));
        self.change_state(|state| {
            state.written = written;
            state.first_start = None;
            state.phase = Phase::Running;
            state.serving_since = None;
            state.sessions = Some(sessions);
            state.tls_clients = if server.client_tls.is_some() { TlsClients::Unknown } else { TlsClients::Served };
        });
        Ok(Some(running))
    }

    /// Public flags of the Java virtual machine, if all is there that a start needs beside the volume. `None` if the server's own
    /// name does not resolve.
    ///
    /// # Errors
    /// If the image, a setting or a certificate cannot work.
    async fn flags_if_ready(&self, config: &AssignedConfig, host: &str) -> anyhow::Result<Option<Vec<String>>> {
        let (paths, server) = (&self.options.paths, &config.server);
        check_image(&self.options.home)?;
        let real = tokio::fs::read_to_string(MEMORY_LIMIT).await.ok();
        let limited =
            ServerConfig { memory_limit: jvm::memory_limit(server.memory_limit, real.as_deref()), ..server.clone() };
        let flags = jvm::jvm_flags(paths, &limited)?;
        zoo_cfg(paths, server, &paths.seed())?;
        if !self.resolves_itself(host).await {
            return Ok(None);
        }
        if server.quorum_tls {
            self.quorum_certificates.reload().await?;
        }
        self.write_client_certificates(config)?;
        Ok(Some(flags))
    }

    /// True if the server's own name resolves. A leader that could not resolve it at its start leads and commits nothing.
    async fn resolves_itself(&self, host: &str) -> bool {
        let Err(error) = self.resolver.resolve(host).await else { return true };
        self.record_wait(format!("the server's own name {host} does not resolve: {error}"));
        false
    }

    /// Writes the decision to the volume.
    fn prepare_volume(&self, plan: &LaunchPlan, client_address: ClientAddress) -> anyhow::Result<()> {
        const WRITE: &str = "the volume cannot be written";
        // A full volume may take no further byte.
        self.volume.remove_useless_snapshots(&plan.files);
        if plan.start.set_aside {
            let folder = self.volume.set_aside().context("the content of the volume cannot be set aside")?;
            warn!(folder = %folder.display(), "set aside the data of another ensemble or another server");
        }
        let seed = match &plan.start.decision {
            Decision::SeedBootstrap { servers, initialize } => Some((servers, *initialize)),
            Decision::SeedAsObserver { servers } => Some((servers, false)),
            _ => None,
        };
        // What an earlier start left has the epochs of an empty server with or without a vote: `ZooKeeper` refuses them otherwise.
        if plan.start.copies_first || matches!(plan.start.decision, Decision::SeedBootstrap { .. }) {
            self.volume.remove_right_to_vote().context(WRITE)?;
        }
        if let Some((servers, initialize)) = seed {
            if let Some(first) = self.with_state(|state| state.first_start.clone()) {
                // A volume that returns as it is now must not count as this one.
                self.volume.set_identity(&first.identity).context(WRITE)?;
            }
            let incarnation = plan.config.incarnation();
            self.volume.seed(&incarnation, plan.id, servers, client_address, initialize).context(WRITE)?;
        }
        self.volume.remove_empty_log().context(WRITE)?;
        self.volume.set_client_address(plan.id, client_address).context(WRITE)?;
        if let Some(list) = &plan.list {
            self.volume.store_list(list).context(WRITE)?;
        }
        Ok(())
    }

    /// Writes the files that `ZooKeeper` starts with. Each start writes them, because users may have changed the settings.
    fn write_configuration(&self, config: &AssignedConfig, superuser: &Superuser) -> anyhow::Result<()> {
        let paths = &self.options.paths;
        let (dynamic, _) = self.volume.dynamic()?.context("the volume holds no configuration")?;
        let secret = format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={}\n", superuser.digest());
        let files = [
            (paths.zoo_cfg(), zoo_cfg(paths, &config.server, &dynamic)?, 0o644),
            (paths.security_properties(), jvm::SECURITY_PROPERTIES.to_owned(), 0o644),
            (paths.logback(), jvm::LOGBACK.to_owned(), 0o644),
            (paths.secret_flags(), secret, 0o600),
        ];
        for (path, text, mode) in files {
            // A full volume cannot take even the same file again.
            if std::fs::read(&path).is_ok_and(|current| current == text.as_bytes()) {
                continue;
            }
            atomic_file::write(&path, text.as_bytes(), mode)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

impl LaunchPlan {
    /// Host name of the server by the newest list, else by the configuration on its volume.
    fn own_host(&self) -> Option<String> {
        let listed = self.list.as_ref().and_then(|list| self.inputs.pod.in_list(list)).map(|own| own.host.clone());
        listed.or_else(|| {
            let dynamic = self.inputs.stored.as_ref()?.dynamic.as_ref()?;
            dynamic.servers.iter().find(|server| server.id == self.id).map(|server| server.host.clone())
        })
    }
}

/// Credentials in the environment of the image. Java prints these variables when it starts.
fn image_credentials() -> Vec<String> {
    let variables = jvm::FLAG_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
    variables.flat_map(|text| credentials::in_variable(&text)).collect()
}

const fn describe(decision: &Decision) -> &'static str {
    match decision {
        Decision::KeepOwn => "with its own configuration",
        Decision::SeedBootstrap { .. } => "as a server of a new ensemble",
        Decision::SeedAsObserver { .. } => "as an observer that joins",
        Decision::AskAgent(_) | Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => "not",
    }
}
