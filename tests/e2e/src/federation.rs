//! A Karmada federation with mczk: the registration, the operator, and agents in all member clusters.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    sync::{
        MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use mczk_api::contract::labels::DEFAULT_CLASS;
use rig::{NodeOptions, Rig};
use serde_json::json;
use tokio::sync::Mutex;

use crate::{
    agent::{Agents, Behaviour},
    clock,
    patience::wait_for,
    programs::{self, Process},
    versions::Versions,
};

/// The operator's user in the rig.
pub const OPERATOR_USER: &str = "mczk-operator";
/// The components of Karmada that decide and write, beside its API server.
pub const KARMADA: [&str; 3] = ["karmada-controller-manager", "karmada-scheduler", "karmada-webhook"];
/// Lease of the operators.
pub const LEASE: &str = "karmada-system/mczk-operator";
/// Duration, renew deadline and retry period of the lease, in seconds: shorter than usual, because tests wait for them, or
/// `E2E_LEASE_SECONDS`, as `15,10,2`.
#[must_use]
pub fn lease_seconds() -> [u64; 3] {
    let given = std::env::var("E2E_LEASE_SECONDS").ok();
    let numbers = given.map(|text| text.split(',').filter_map(|number| number.parse().ok()).collect::<Vec<u64>>());
    numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or([6, 4, 1])
}

/// The number of federations that this process has started.
static FEDERATIONS: AtomicU32 = AtomicU32::new(0);

/// Options of a federation.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent options
pub struct Options {
    /// The rig's folder. A temporary one if absent.
    pub dir: Option<PathBuf>,
    /// True if the rig outlives this process. Its folder is then the default of the rig, unless `dir` names one.
    pub keep: bool,
    /// Behaviour of pods, if agents run in this process on simulated pods.
    pub agents: Option<Behaviour>,
    /// True if member clusters have nodes, on which pods run.
    pub nodes: bool,
    /// True if the API servers of member clusters write audit logs too.
    pub audit_members: bool,
    /// Number of member clusters; the default of the rig if 0.
    pub members: u8,
    /// The member clusters with two nodes.
    pub two_nodes: Vec<String>,
    /// True if nothing is reported on standard error.
    pub silent: bool,
}

/// A running federation.
pub struct Federation {
    /// Client of Karmada's API server, with all rights.
    pub karmada: Client,
    /// Clients of the member clusters' API servers, with all rights, by name.
    pub members: BTreeMap<String, Client>,
    /// The agents, if they run in this process.
    pub agents: Option<Agents>,
    /// The program `mczk`.
    pub mczk: PathBuf,
    /// Folder of logs and certificates. It is removed at the end, unless something failed.
    pub folder: PathBuf,
    /// True if the rig ran before.
    pub attached: bool,
    operator: Mutex<Option<Process>>,
    versions: std::sync::Mutex<Versions>,
    clock: std::sync::Mutex<Option<&'static str>>,
    ports: Ports,
    /// The address on which Karmada reaches the webhook.
    address: Ipv4Addr,
    /// The rig. It ends after everything that uses it.
    pub rig: Rig,
    files: Files,
}

/// A folder that is removed with this value.
#[derive(Debug)]
struct Files {
    folder: PathBuf,
    keep: bool,
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.keep && !std::thread::panicking() {
            // It is a temporary folder: what cannot be removed goes at the next boot.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Ports of the operator.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Port of the webhook.
    pub webhook: u16,
    /// Port of probes and metrics.
    pub probes: u16,
}

/// A client of one API server.
///
/// # Errors
/// If the kubeconfig cannot be used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Creates a default storage class, as every cluster of a user has one: without it a cluster is no spare.
async fn default_class(member: &Client) -> Result<()> {
    let classes: Api<StorageClass> = Api::all(member.clone());
    let is_default = |class: &StorageClass| DEFAULT_CLASS.iter().any(|key| class.annotations().contains_key(*key));
    if classes.list(&ListParams::default()).await?.iter().any(is_default) {
        return Ok(());
    }
    let class = json!({
        "metadata": { "name": "standard", "annotations": { DEFAULT_CLASS[0]: "true" } },
        "provisioner": "e2e.example.com/disks",
    });
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await.map(drop).map_err(Into::into)
}

impl Federation {
    /// Starts everything but the operator: see [`Federation::register`] and [`Federation::start_operator`].
    ///
    /// # Errors
    /// If a part does not start.
    pub async fn up(options: Options) -> Result<Self> {
        let begun = Instant::now();
        let report = |text: &str| {
            if !options.silent {
                eprintln!("[{:6.1} s] {text}", begun.elapsed().as_secs_f64());
            }
        };
        let number = FEDERATIONS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("mczk-e2e-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let files = Files { folder: folder.clone(), keep: false };
        report("building mczk");
        let mczk = programs::mczk(&folder).await?;
        let named = options.dir.is_some() || options.keep;
        let attach = if named { Rig::attach(options.dir.as_deref()).ok() } else { None };
        let attached = attach.is_some();
        report(if attached { "using a running federation" } else { "starting the federation" });
        let rig = if let Some(rig) = attach {
            rig
        } else {
            let dir = if named { options.dir.clone() } else { Some(folder.join("rig")) };
            let supervisor = std::env::current_exe()?.with_file_name("rig");
            let supervisor = supervisor.exists().then_some(supervisor);
            let two = options.two_nodes.clone();
            let nodes = options.nodes.then(|| NodeOptions { mczk: Some(mczk.clone()), two, without_karmada: false });
            let defaults = rig::Options::default();
            let members = if options.members == 0 { defaults.members } else { options.members };
            // Other versions: `make test-versions`.
            let module = |variable| std::env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from);
            let (tools_module, kubernetes_module) = (module("MCZK_TOOLS_MODULE"), module("MCZK_KUBERNETES_MODULE"));
            let (audit_members, silent) = (options.audit_members, options.silent);
            let options = rig::Options { dir, supervisor, nodes, members, audit_members, silent, ..defaults };
            Rig::up(rig::Options { tools_module, kubernetes_module, ..options }).await?
        };
        let ports = Ports { webhook: rig.free_port()?, probes: rig.free_port()? };
        let karmada = client(&rig.kubeconfig("karmada")).await?;
        let mut members = BTreeMap::new();
        for name in rig.members() {
            let client = client(&rig.kubeconfig(&name)).await?;
            if !options.nodes {
                default_class(&client).await?;
            }
            members.insert(name, client);
        }
        let agents = options.agents.map(|behaviour| Agents::start(&members, behaviour));
        let certs = folder.join("certs");
        // With nodes, Karmada runs in a network namespace with its own loopback.
        let address = if options.nodes { Rig::machine_address() } else { Ipv4Addr::LOCALHOST };
        let (operator, versions, clock) = Default::default();
        let federation = Self {
            karmada,
            members,
            agents,
            mczk,
            folder,
            attached,
            operator,
            versions,
            clock,
            ports,
            address,
            rig,
            files,
        };
        federation.run(&["certs", "--dir", &certs.to_string_lossy(), "--ip", &address.to_string()]).await?;
        report("the federation is up");
        Ok(federation)
    }

    /// Runs `mczk` to its end.
    ///
    /// # Errors
    /// If it fails.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        programs::run(&self.mczk, arguments).await
    }

    /// Runs `mczk register` with all rights.
    ///
    /// # Errors
    /// If it fails.
    pub async fn register(&self) -> Result<String> {
        let kubeconfig = self.rig.kubeconfig("karmada");
        let (url, ca) = (self.webhook_url(), self.authority());
        self.run(&[
            "register",
            "--kubeconfig",
            &kubeconfig.to_string_lossy(),
            "--url",
            &url,
            "--ca-file",
            &ca.to_string_lossy(),
            "--operator-user",
            OPERATOR_USER,
        ])
        .await
    }

    /// The URL at which Karmada calls the webhook.
    #[must_use]
    pub fn webhook_url(&self) -> String {
        format!("https://{}:{}/interpreter", self.address, self.ports.webhook)
    }

    /// The file with the authority of the webhook's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("certs/ca.crt")
    }

    /// Grants the operator its rights in a namespace for ensembles.
    ///
    /// # Errors
    /// If it fails.
    pub async fn grant(&self, namespace: &str) -> Result<String> {
        let kubeconfig = self.rig.kubeconfig("karmada").display().to_string();
        let only = ["register", "--kubeconfig", &kubeconfig, "--only", "rbac"];
        self.run(&[&only[..], &["--operator-user", OPERATOR_USER, "--namespaces", namespace]].concat()).await
    }

    /// Grants the operator the rights of the web page.
    ///
    /// # Errors
    /// If it fails.
    pub async fn grant_page(&self) -> Result<String> {
        let kubeconfig = self.rig.kubeconfig("karmada").display().to_string();
        let flags = ["--only", "rbac", "--dashboard", "--operator-user", OPERATOR_USER];
        self.run(&[&["register", "--kubeconfig", &kubeconfig][..], &flags].concat()).await
    }

    /// Has Karmada propagate agents of this image to all member clusters.
    ///
    /// # Errors
    /// If it fails.
    pub async fn register_agents(&self, image: &str) -> Result<String> {
        let kubeconfig = self.rig.kubeconfig("karmada").display().to_string();
        self.run(&["register", "--kubeconfig", &kubeconfig, "--only", "agents", "--agent-image", image]).await
    }

    /// Starts the operator and waits until it is ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start_operator(&self) -> Result<()> {
        let mut operator = self.operator.lock().await;
        let clock = *self.clock();
        let mut process = self.operator_at(self.ports, clock)?;
        self.ready(self.ports, &mut process).await?;
        *operator = Some(process);
        Ok(())
    }

    /// Starts the operator. On a busy machine it may take longer than one start waits.
    ///
    /// # Errors
    /// If it does not become ready in time.
    pub async fn start_operator_patiently(&self) -> Result<()> {
        wait_for("the operator starts", Duration::from_secs(120), || self.start_operator()).await
    }

    /// Starts the operator again, as it should run now.
    ///
    /// # Errors
    /// If it does not become ready in time.
    pub async fn restart_operator(&self) -> Result<()> {
        // On a busy machine it may end too late, and is killed. The next one starts in any case.
        let _ = self.stop_operator().await;
        self.start_operator_patiently().await
    }

    /// Starts the webhook without the controller, on the operator's ports.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn webhook_alone(&self) -> Result<Process> {
        let mut arguments = self.operator_arguments(self.ports);
        arguments.push("--controller=false".to_owned());
        let mut process = Process::start(&self.mczk, &arguments, &self.operator_log())?;
        self.ready(self.ports, &mut process).await?;
        Ok(process)
    }

    /// Starts another operator, on other ports.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn another_operator(&self) -> Result<Process> {
        self.candidate(self.free_ports()?).await
    }

    /// Ports for another operator.
    ///
    /// # Errors
    /// If no port is free.
    pub fn free_ports(&self) -> Result<Ports> {
        Ok(Ports { webhook: self.rig.free_port()?, probes: self.rig.free_port()? })
    }

    /// Starts another operator on these ports.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn candidate(&self, ports: Ports) -> Result<Process> {
        let mut process = self.operator_at(ports, None)?;
        self.ready(ports, &mut process).await?;
        Ok(process)
    }

    /// Starts another operator on these ports with a lease of its own, so that both act. Its user has all rights.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn operator_with_lease(&self, ports: Ports, lease: &str) -> Result<Process> {
        let own = [
            (
                self.rig.kubeconfig(OPERATOR_USER).display().to_string(),
                self.rig.kubeconfig("karmada").display().to_string(),
            ),
            (LEASE.to_owned(), lease.to_owned()),
        ];
        let value = |argument: String| {
            let other = own.iter().find(|(former, _)| *former == argument).map(|(_, other)| other.clone());
            other.unwrap_or(argument)
        };
        let arguments: Vec<String> = self.operator_arguments(ports).into_iter().map(value).collect();
        let mut process = Process::start(&self.mczk, &arguments, &self.operator_log())?;
        self.ready(ports, &mut process).await?;
        Ok(process)
    }

    /// Starts another operator on these ports, with this kubeconfig.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn candidate_through(&self, ports: Ports, kubeconfig: &Path) -> Result<Process> {
        let program = self.versions().operator(&self.mczk).to_owned();
        let mut process = Process::start(&program, &self.arguments_with(ports, kubeconfig), &self.operator_log())?;
        self.ready(ports, &mut process).await?;
        Ok(process)
    }

    /// Starts another operator on these ports that serves the web page too, and returns the address of the page.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn candidate_with_page(&self, ports: Ports) -> Result<(Process, SocketAddrV4)> {
        let page = SocketAddrV4::new(self.address, self.rig.free_port()?);
        let mut arguments = self.operator_arguments(ports);
        arguments.push(format!("--dashboard-address={page}"));
        let mut process = Process::start(&self.mczk, &arguments, &self.operator_log())?;
        self.ready(ports, &mut process).await?;
        Ok((process, page))
    }

    fn operator_arguments(&self, ports: Ports) -> Vec<String> {
        self.arguments_with(ports, &self.rig.kubeconfig(OPERATOR_USER))
    }

    fn arguments_with(&self, ports: Ports, kubeconfig: &Path) -> Vec<String> {
        let certs = self.folder.join("certs");
        [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--webhook-address", format!("{}:{}", self.address, ports.webhook)),
            ("--probe-address", format!("127.0.0.1:{}", ports.probes)),
            ("--lease", LEASE.to_owned()),
            ("--lease-duration-seconds", lease_seconds()[0].to_string()),
            ("--lease-renew-deadline-seconds", lease_seconds()[1].to_string()),
            ("--lease-retry-period-seconds", lease_seconds()[2].to_string()),
            ("--tls-cert-file", certs.join("tls.crt").display().to_string()),
            ("--tls-private-key-file", certs.join("tls.key").display().to_string()),
        ]
        .into_iter()
        .map(|(flag, value)| [flag.to_owned(), value])
        .chain(self.versions().server_image())
        .fold(vec!["operator".to_owned()], |mut all, flag| {
            all.extend(flag);
            all
        })
    }

    fn operator_at(&self, ports: Ports, clock: Option<&str>) -> Result<Process> {
        let (log, arguments) = (self.operator_log(), self.operator_arguments(ports));
        if let Some(offset) = clock {
            return Process::start(Path::new("env"), &[clock::environment(offset)?, arguments].concat(), &log);
        }
        let program = self.versions().operator(&self.mczk).to_owned();
        Process::start(&program, &arguments, &log)
    }

    /// The offset of the operator's clock; none if it is right.
    pub fn clock(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The versions that run.
    pub fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ready(&self, ports: Ports, process: &mut Process) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            process.alive()?;
            match crate::metrics::get(ports.probes, "/readyz").await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(error).context("the operator is not ready after 30 s");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The operator's log.
    #[must_use]
    pub fn operator_log(&self) -> PathBuf {
        self.folder.join("operator.log")
    }

    /// The operator's port of probes and metrics.
    #[must_use]
    pub fn probes(&self) -> u16 {
        self.ports.probes
    }

    /// Kills the operator, as a crash would.
    ///
    /// # Errors
    /// If none runs.
    pub async fn kill_operator(&self) -> Result<()> {
        self.operator.lock().await.take().context("no operator runs")?.kill().await
    }

    /// Stops the operator.
    ///
    /// # Errors
    /// If none runs, or it fails.
    pub async fn stop_operator(&self) -> Result<()> {
        self.operator.lock().await.take().context("no operator runs")?.stop().await
    }

    /// Loses Karmada's data, and builds a new control plane with mczk and the same member clusters, which keep everything.
    ///
    /// # Errors
    /// If a part does not end or start.
    pub async fn rebuild_control_plane(&self) -> Result<()> {
        self.end_control_plane().await?;
        self.rig.rebuild_karmada().await?;
        self.register().await?;
        self.start_operator_patiently().await
    }

    /// Takes the control plane back to an older copy of Karmada's data. The operator starts after Karmada has read the member
    /// clusters, as documented.
    ///
    /// # Errors
    /// If a part does not end or start.
    pub async fn restore_control_plane(&self, copy: &Path) -> Result<()> {
        self.end_control_plane().await?;
        self.rig.restore_karmada(copy).await?;
        tokio::time::sleep(Duration::from_secs(20)).await;
        self.start_operator_patiently().await
    }

    /// Ends the operator and Karmada, and deletes Karmada's data.
    async fn end_control_plane(&self) -> Result<()> {
        // It may have ended already, with a failure if Karmada ended first.
        let _ = self.stop_operator().await;
        self.rig.lose_karmada().await
    }

    /// Checks that the operator runs.
    ///
    /// # Errors
    /// Its exit status, if it ended.
    pub async fn operator_alive(&self) -> Result<()> {
        self.operator.lock().await.as_mut().context("no operator runs")?.alive()
    }

    /// Waits until Karmada's API server answers.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn karmada_ready(&self) -> Result<()> {
        wait_for("Karmada's API server answers", Duration::from_secs(60), || async {
            self.karmada.apiserver_version().await.context("no answer")
        })
        .await
        .map(drop)
    }

    /// Ends the operator and the agents, and keeps the rig and the folder. Returns lines for a shell to use them.
    ///
    /// # Errors
    /// If a part does not end, or the rig has ended.
    pub async fn leave(mut self) -> Result<String> {
        if let Some(process) = self.operator.lock().await.take() {
            process.stop().await?;
        }
        let exports = self.rig.exports();
        self.files.keep = true;
        if !self.attached {
            self.rig.detach()?;
        }
        Ok(exports)
    }

    /// The command line of an operator.
    #[must_use]
    pub fn operator_line(&self) -> String {
        format!("{} {}", self.mczk.display(), self.operator_arguments(self.ports).join(" "))
    }

    /// Ends everything, and removes the folder, unless `keep_files`.
    ///
    /// # Errors
    /// If a part does not end.
    pub async fn down(mut self, keep_files: bool) -> Result<()> {
        self.files.keep = keep_files;
        if let Some(process) = self.operator.lock().await.take() {
            process.kill().await?;
        }
        drop(self.agents);
        if !self.attached {
            self.rig.down().await?;
        }
        Ok(())
    }
}
