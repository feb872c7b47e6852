//! A real Karmada federation on one machine, for end-to-end tests and demonstrations. By default it consists of one etcd,
//! Karmada, and an API server with controllers for each member cluster, as processes on loopback, without root. With
//! [`Options::nodes`], every cluster has its own network and a real node for pods, which needs root.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let rig = rig::Rig::up(rig::Options::default()).await?;
//! println!("export KUBECONFIG={}", rig.kubeconfig("karmada").display());
//! rig.stop("m2/apiserver").await?; // m2 becomes NotReady
//! rig.start("m2/apiserver").await?;
//! rig.down().await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod command;
mod control;
mod control_plane;
mod identity;
mod join;
mod karmada;
mod layout;
mod lifeline;
mod loss;
mod nodes;
mod pki;
mod ports;
mod progress;
mod start;
mod status;
mod supervisor;
mod tools;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

pub use crate::join::Joined;
pub use crate::nodes::images::{BUSYBOX, MCZK, ZOOKEEPER, ZOOKEEPER_BEFORE};
pub use crate::status::{ComponentStatus, NodeStatus, Status};

use crate::control_plane::KARMADA;
use crate::layout::{Layout, Phase, State, write_json};
use crate::nodes::address::HOST;
use crate::ports::Ports;
use crate::progress::Progress;
use crate::start::{Found, Supervisor};

/// A rig has at most this many member clusters: its ports are one block of a hundred.
pub const MOST_MEMBERS: u8 = 9;

/// The options of a rig.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that holds all files of the rig; must be empty or new. Default: `rig` in the cache folder, which is
    /// `$MCZK_CACHE` or else `~/.cache/mczk`.
    pub dir: Option<PathBuf>,
    /// The number of member clusters, 1 to [`MOST_MEMBERS`]; their names are m1, m2, ... Default: 3.
    pub members: u8,
    /// The member clusters in Pull mode, each with a karmada-agent; the others are in Push mode. Default: the last one.
    pub pull: Option<Vec<String>>,
    /// True if all alpha and beta feature gates of Karmada are on. Default: the defaults of Karmada.
    pub all_feature_gates: bool,
    /// True if the API servers of member clusters write audit logs. The one of Karmada always does.
    pub audit_members: bool,
    /// The folder with the `go.mod` of the tools. Default: `tests/karmada` in the source of this program.
    pub tools_module: Option<PathBuf>,
    /// The folder with the `go.mod` of Kubernetes in member clusters, in `tests/kubernetes`. Default: Kubernetes of the
    /// tools.
    pub kubernetes_module: Option<PathBuf>,
    /// The program `rig`, for the supervisor. Default: the one beside this program; `cargo test` builds it.
    pub supervisor: Option<PathBuf>,
    /// The options of nodes. Default: no nodes, API servers alone.
    pub nodes: Option<NodeOptions>,
    /// True if no steps are printed on standard error.
    pub silent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dir: None,
            members: 3,
            pull: None,
            all_feature_gates: false,
            audit_members: false,
            tools_module: None,
            kubernetes_module: None,
            supervisor: None,
            nodes: None,
            silent: false,
        }
    }
}

/// The options of a rig with nodes. It needs root and some packages; only one runs on a machine at a time.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// The member clusters with two nodes. Default: none.
    pub two: Vec<String>,
    /// The program `mczk` for an image on all nodes. Default: the one beside the program `rig`, if there is one.
    pub mczk: Option<PathBuf>,
    /// True for clusters without Karmada: the caller installs one in the cluster `host`, and joins the members to it.
    pub without_karmada: bool,
}

/// A running rig. It ends when the value that started it is dropped, and when the process that started it ends, unless
/// it was [detached](Rig::detach).
#[derive(Debug)]
pub struct Rig {
    layout: Layout,
    state: State,
    ports: Ports,
    supervisor: Mutex<Option<Supervisor>>,
    spare_ports: Mutex<Vec<File>>,
}

impl Rig {
    /// Starts a rig and waits until all member clusters are Ready in Karmada: about 20 s, and about 12 minutes more if the
    /// tools are not built yet. Uses the rig that runs in the folder, and removes leftovers of one that died.
    ///
    /// It needs a tokio runtime with time and I/O. If the future is dropped, the rig is taken down.
    ///
    /// # Errors
    /// If the options are invalid, the folder holds other files, a rig with other options runs there, a tool cannot be
    /// built, or a component is not ready after 3 minutes; then the logs stay in the folder.
    pub async fn up(options: Options) -> Result<Self> {
        let progress = Progress::new(options.silent);
        let layout = Layout::new(options.dir.as_deref())?;
        let lock = match start::find(&layout, &progress).await? {
            Found::Running(state, record) => {
                let different = start::differences(&options, &state)?;
                ensure!(
                    different.is_empty(),
                    "a rig runs in {} already, and {} differ: take it down with `rig down`, or name another folder with \
                     --dir",
                    layout.dir.display(),
                    different.join(" and ")
                );
                progress.print(format!("a rig runs already in {}", layout.dir.display()));
                return Ok(Self::of(layout, *state, record.ports(), None));
            }
            Found::Nothing(lock) => lock,
        };
        let (plan, supervisor) = start::start(layout, &options, &progress, lock).await?;
        progress.print("the rig is up");
        Ok(Self::of(plan.layout, plan.state, plan.ports, supervisor))
    }

    /// Uses a running rig. Dropping the returned value leaves it running. `dir` is as in [`Options`].
    ///
    /// # Errors
    /// If no complete rig runs there.
    pub fn attach(dir: Option<&Path>) -> Result<Self> {
        let layout = Layout::new(dir)?;
        let none = || format!("no rig runs in {}: start one with `rig up`", layout.dir.display());
        let state = layout.read_state()?.with_context(none)?;
        let record = layout.supervised()?.with_context(none)?;
        if state.phase == Phase::Starting {
            bail!("the rig in {} is still starting", layout.dir.display());
        }
        Ok(Self::of(layout, state, record.ports(), None))
    }

    fn of(layout: Layout, state: State, ports: Ports, supervisor: Option<Supervisor>) -> Self {
        Self { layout, state, ports, supervisor: Mutex::new(supervisor), spare_ports: Mutex::default() }
    }

    /// Makes the rig outlive this value and this process. Does nothing for an attached rig.
    ///
    /// # Errors
    /// If the rig has ended.
    pub fn detach(mut self) -> Result<Self> {
        let supervisor = self.supervisor.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut owned) = supervisor.take() {
            // The file first: from then on, other processes do not check whether the starter runs.
            self.state.phase = Phase::Detached;
            write_json(&self.layout.state(), &self.state)?;
            owned.detach()?;
        }
        Ok(self)
    }

    /// Waits until the rig has ended, for example by `rig down`.
    pub async fn ended(&self) {
        loop {
            if let Ok(mut supervisor) = self.supervisor.lock()
                && let Some(owned) = supervisor.as_mut()
            {
                owned.reap();
            }
            if !matches!(self.layout.supervised(), Ok(Some(_))) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// Ends all processes of the rig and removes its files, even if other processes use it. Takes some seconds at most.
    ///
    /// # Errors
    /// If a process does not end or a file cannot be removed.
    pub async fn down(self) -> Result<()> {
        let layout = self.layout.clone();
        tokio::task::spawn_blocking(move || start::take_down(&layout)).await??;
        if let Ok(mut supervisor) = self.supervisor.lock()
            && let Some(mut owned) = supervisor.take()
        {
            owned.reap();
        }
        Ok(())
    }

    /// Takes down the rig in a folder (as in [`Options`]), complete or not. Returns whether there was one. Blocks for
    /// some seconds.
    ///
    /// # Errors
    /// If a process does not end, a file cannot be removed, or another `rig` is at work there.
    pub fn down_at(dir: Option<&Path>) -> Result<bool> {
        start::take_down(&Layout::new(dir)?)
    }

    /// The kubeconfig of `karmada`, a member cluster (`m1`) or, with nodes, `host`, with all rights; or of `mczk-operator`, a
    /// user of Karmada's API server with only the rights granted there. It refers to no other file.
    #[must_use]
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.layout.kubeconfig(name)
    }

    /// The names of the member clusters, in order.
    #[must_use]
    pub fn members(&self) -> Vec<String> {
        self.state.names()
    }

    /// The member clusters in Pull mode.
    #[must_use]
    pub fn pull_members(&self) -> &[String] {
        &self.state.pull
    }

    /// The folder that holds all files of the rig.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// The audit log of Karmada's API server: for each request a line with a JSON object, at level Metadata.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit_log(KARMADA)
    }

    /// The audit log of the API server of a member cluster, if [`Options::audit_members`] is true.
    #[must_use]
    pub fn member_audit_log(&self, member: &str) -> PathBuf {
        self.layout.audit_log(member)
    }

    /// The log of a component, by its name in [`Status`].
    #[must_use]
    pub fn log(&self, component: &str) -> PathBuf {
        self.layout.log(component)
    }

    /// The file of a tool: kubectl, karmadactl and the components' programs, and helm if [`tools`] has built it.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        self.state.tools.join(name)
    }

    /// A free port on loopback, below 30000, for a server of the caller. No other caller in any process gets it while
    /// this value lives.
    ///
    /// # Errors
    /// If the rig's 40 spare ports are used up.
    pub fn free_port(&self) -> Result<u16> {
        let (port, lock) = ports::spare(&self.layout.spare_ports(), self.ports)?;
        self.spare_ports.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
        Ok(port)
    }

    /// Stops a component, by its name in [`Status`]: SIGTERM, and SIGKILL after 3 s. Returns when its process has ended.
    ///
    /// # Errors
    /// If there is no such component, or the rig has ended.
    pub async fn stop(&self, component: &str) -> Result<()> {
        control::stop(&self.layout, component).await
    }

    /// Starts a stopped component; one that runs stays as it is. Returns when its process runs, which is before it is
    /// ready: see [`Rig::ready`].
    ///
    /// # Errors
    /// If there is no such component, it does not start, or the rig has ended.
    pub async fn start(&self, component: &str) -> Result<()> {
        control::start(&self.layout, component).await
    }

    /// Stops a component and starts it again. Returns when its new process runs.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub async fn restart(&self, component: &str) -> Result<()> {
        control::restart(&self.layout, component).await
    }

    /// As [`Rig::restart`], with the program of another version: that of the same name in a folder of [`tools`] or
    /// [`kubernetes`].
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub async fn replace(&self, component: &str, folder: &Path) -> Result<()> {
        control::replace(&self.layout, component, folder).await
    }

    /// Applies Karmada's definitions and admission webhooks of another version, from a folder of [`tools`].
    ///
    /// # Errors
    /// If Karmada refuses one.
    pub async fn define_karmada(&self, tools: &Path) -> Result<()> {
        let mut plan = self.plan();
        plan.state.tools = tools.to_owned();
        plan.define().await?;
        plan.admit().await
    }

    /// Kills a component with SIGKILL, as a crash would. Returns when the supervisor has started it again.
    ///
    /// # Errors
    /// As [`Rig::start`], and if it does not run.
    pub async fn kill(&self, component: &str) -> Result<()> {
        control::kill(&self.layout, component).await
    }

    /// Waits until the API server of `karmada` or of a member answers that it is ready.
    ///
    /// # Errors
    /// If it is not after 3 minutes.
    pub async fn ready(&self, cluster: &str) -> Result<()> {
        let api = api::Api::of(&self.layout.kubeconfig(cluster)).await?;
        api.wait_ready(&format!("the API server of {cluster}")).await
    }

    /// The state of all components, nodes and member clusters.
    ///
    /// # Errors
    /// If the rig was taken down.
    pub async fn status(&self) -> Result<Status> {
        status::status(&self.layout, &self.state).await
    }

    /// Runs a command in a node's namespaces, or in the router's (`router`), with the tools in PATH and the kubeconfig of
    /// its cluster. Returns its output, also if it fails.
    ///
    /// # Errors
    /// If the rig has no nodes or no such place, or the command cannot be started.
    pub async fn exec<'a>(
        &self,
        place: &str,
        command: impl IntoIterator<Item = &'a str>,
    ) -> Result<std::process::Output> {
        let argv: Vec<_> = command.into_iter().collect();
        let mut command = tokio::process::Command::from(nodes::inside(&self.layout, place, &argv)?);
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot run a command in {place}"))
    }

    /// The command that runs `argv` in a place, as [`Rig::exec`] does.
    ///
    /// # Errors
    /// If the rig has no nodes or no such place.
    pub fn exec_command(&self, place: &str, argv: &[&str]) -> Result<std::process::Command> {
        nodes::inside(&self.layout, place, argv)
    }

    /// The names of the nodes; none in a rig of API servers alone.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.state.nodes().into_iter().map(|node| node.name).collect()
    }

    /// The folders in which the volumes of pods lie, as this machine sees them: of each node that has any, those that are
    /// bound to none, and disks where a kubelet has mounted them. None in a rig of API servers alone.
    #[must_use]
    pub fn volumes(&self) -> Vec<PathBuf> {
        let nodes = self.state.nodes();
        let folders = nodes.iter().map(|node| nodes::storage::volumes(&self.layout, &node.name));
        let record = self.layout.supervised().ok().flatten();
        let disks = nodes.iter().filter_map(|node| {
            let kubelet = record.as_ref()?.components.get(&format!("{}/kubelet", node.name))?.process.as_ref()?;
            Some(PathBuf::from(format!("/proc/{}/root/{}", kubelet.pid, nodes::disks::MOUNTS)))
        });
        let shared = nodes::storage::shared(&self.layout);
        folders.chain([shared]).chain(disks).filter(|folder| folder.exists()).collect()
    }

    /// The address of this machine as the clusters of a rig with nodes see it: a server of the caller listens there. No
    /// cut reaches it.
    #[must_use]
    pub fn machine_address() -> std::net::Ipv4Addr {
        nodes::address::MACHINE
    }

    /// Imports an image of another program `mczk` into all nodes, as `tag`.
    ///
    /// # Errors
    /// If the program cannot be read, or a node does not take the image.
    pub async fn import_mczk(&self, program: &Path, tag: &str) -> Result<()> {
        let (program, tag) = (program.to_owned(), tag.to_owned());
        let archive = move || nodes::images::mczk(&program, &tag, &Progress::new(true));
        self.import(&tokio::task::spawn_blocking(archive).await??, &[]).await
    }

    /// Removes a member cluster in Push mode from Karmada, with everything that Karmada keeps for it.
    ///
    /// # Errors
    /// If there is no such cluster, it is in Pull mode, or Karmada does not remove it in a minute.
    pub async fn unjoin(&self, cluster: &str) -> Result<()> {
        self.plan().unjoin(&self.member(cluster)?).await
    }

    /// Joins a member cluster to Karmada again, after [`Rig::unjoin`], unless it has not left. Karmada reports it ready some
    /// seconds later.
    ///
    /// # Errors
    /// If there is no such cluster, or it cannot join.
    pub async fn join(&self, cluster: &str) -> Result<()> {
        let known = join::joined(&api::Api::of(&self.layout.kubeconfig(KARMADA)).await?).await?;
        if known.iter().any(|known| known.name == cluster && !known.leaves) {
            return Ok(());
        }
        self.plan().join(&self.member(cluster)?).await
    }

    /// Stops Karmada and throws its data away. Member clusters run on, with everything that Karmada wrote there.
    ///
    /// # Errors
    /// If a component does not end, or etcd does not answer.
    pub async fn lose_karmada(&self) -> Result<()> {
        self.plan().lose_karmada().await
    }

    /// Starts a new Karmada after [`Rig::lose_karmada`], and joins the same member clusters. Returns when all are Ready.
    ///
    /// # Errors
    /// If a component does not start, or a cluster cannot join.
    pub async fn rebuild_karmada(&self) -> Result<()> {
        self.plan().rebuild_karmada().await
    }

    /// Copies Karmada's data into a file, for [`Rig::restore_karmada`]. Like a snapshot of etcd, it may be taken at any time.
    ///
    /// # Errors
    /// If etcd does not answer, or the file cannot be written.
    pub async fn copy_karmada(&self, file: &Path) -> Result<()> {
        self.plan().copy_karmada(file).await
    }

    /// Starts Karmada after [`Rig::lose_karmada`] with an older copy of its data. Returns when all member clusters are Ready.
    ///
    /// # Errors
    /// If the file has no data, etcd does not answer, or a component does not start.
    pub async fn restore_karmada(&self, file: &Path) -> Result<()> {
        self.plan().restore_karmada(file).await
    }

    fn member(&self, name: &str) -> Result<control_plane::Cluster> {
        let found = self.plan().members().into_iter().find(|member| member.name == name);
        found.with_context(|| format!("there is no member cluster {name}"))
    }

    /// Imports an image archive (as `docker save` writes it) into nodes, all if none is named.
    ///
    /// # Errors
    /// If there is no such node, or it does not take the archive.
    pub async fn import(&self, archive: &Path, nodes: &[String]) -> Result<()> {
        let (plan, archive, nodes) = (self.plan(), archive.to_owned(), nodes.to_owned());
        tokio::task::spawn_blocking(move || plan.import(&archive, &nodes)).await?
    }

    /// Imports an image of tools into nodes, under each of these names: it has a shell, and the programs in `/bin` and in
    /// `/usr/local/bin`. A program that is no tool of the rig is one of this machine.
    ///
    /// # Errors
    /// If there is no such program or node, or a node does not take the image.
    pub async fn import_tools(&self, tools: &[&str], names: &[&str], nodes: &[&str]) -> Result<()> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (folder, tools, names) = (self.state.tools.clone(), owned(tools), owned(names));
        let archive = move || nodes::images::programs::image(&folder, &tools, &names, &Progress::new(false));
        self.import(&tokio::task::spawn_blocking(archive).await??, &owned(nodes)).await
    }

    /// Copies an image of an OCI image layout, `FOLDER:TAG`, into the registry of the rig, as `name`, such as `mczk:0.1.0`.
    /// Returns the reference by which all nodes pull it. The first call starts the registry, and builds it if needed.
    ///
    /// # Errors
    /// If the rig has no nodes, the layout has no such image, or the registry does not start.
    pub async fn push(&self, image: &str, name: &str) -> Result<String> {
        self.plan().push(image, name, &Progress::new(false)).await
    }

    /// Drops all packets between two clusters (m1, ..., or `host`, where Karmada runs), or between one and all others. The
    /// machine itself still reaches all of them.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn cut(&self, a: &str, b: Option<&str>) -> Result<()> {
        self.change_faults(Some(a), b, |pair| pair.cut = true).await
    }

    /// Undoes [`Rig::cut`] between two clusters, between one and all others, or everywhere.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn heal(&self, a: Option<&str>, b: Option<&str>) -> Result<()> {
        self.change_faults(a, b, |pair| pair.cut = false).await
    }

    /// Delays all packets between two clusters, each way; 0 ms ends it.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster, or the delay is over a minute.
    pub async fn delay(&self, a: &str, b: &str, milliseconds: f64) -> Result<()> {
        nodes::network::check("a delay in ms", milliseconds, 60_000.0)?;
        self.change_faults(Some(a), Some(b), move |pair| pair.delay_ms = milliseconds).await
    }

    /// Drops a percentage of all packets between two clusters, each way; 0 % ends it.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster, or the number is no percentage.
    pub async fn lose(&self, a: &str, b: &str, percent: f64) -> Result<()> {
        nodes::network::check("a loss in percent", percent, 100.0)?;
        self.change_faults(Some(a), Some(b), move |pair| pair.loss_percent = percent).await
    }

    async fn change_faults(
        &self,
        a: Option<&str>,
        b: Option<&str>,
        edit: impl Fn(&mut nodes::network::Pair) + Send + 'static,
    ) -> Result<()> {
        let (plan, a, b) = (self.plan(), a.map(str::to_owned), b.map(str::to_owned));
        tokio::task::spawn_blocking(move || plan.change_faults(a.as_deref(), b.as_deref(), edit)).await?
    }

    /// Cuts the power of a node: kubelet, containerd and all its pods are killed.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn stop_node(&self, node: &str) -> Result<()> {
        let (plan, node) = (self.plan(), node.to_owned());
        tokio::task::spawn_blocking(move || plan.power_node(&node, false)).await?
    }

    /// Starts a stopped node. Returns when its processes run, which is before it is Ready.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn start_node(&self, node: &str) -> Result<()> {
        let (plan, node) = (self.plan(), node.to_owned());
        tokio::task::spawn_blocking(move || plan.power_node(&node, true)).await?
    }

    /// Kills a cluster's control plane: etcd, API server, controllers, scheduler. Its nodes and its DNS server keep running.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn stop_control_plane(&self, cluster: &str) -> Result<()> {
        let (plan, cluster) = (self.plan(), cluster.to_owned());
        tokio::task::spawn_blocking(move || plan.power_control_plane(&cluster, false)).await?
    }

    /// Starts a stopped control plane. Returns when its processes run.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn start_control_plane(&self, cluster: &str) -> Result<()> {
        let (plan, cluster) = (self.plan(), cluster.to_owned());
        tokio::task::spawn_blocking(move || plan.power_control_plane(&cluster, true)).await?
    }

    /// Cuts the power of a whole cluster: control plane, DNS server and nodes.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn stop_cluster(&self, cluster: &str) -> Result<()> {
        let (plan, cluster) = (self.plan(), cluster.to_owned());
        tokio::task::spawn_blocking(move || plan.power_cluster(&cluster, false)).await?
    }

    /// Starts a stopped cluster. Returns when its processes run.
    ///
    /// # Errors
    /// If the rig has no nodes or no such cluster.
    pub async fn start_cluster(&self, cluster: &str) -> Result<()> {
        let (plan, cluster) = (self.plan(), cluster.to_owned());
        tokio::task::spawn_blocking(move || plan.power_cluster(&cluster, true)).await?
    }

    fn plan(&self) -> control_plane::Plan {
        control_plane::Plan { layout: self.layout.clone(), state: self.state.clone(), ports: self.ports }
    }

    /// Lines for a shell: `export` for Karmada's kubeconfig and the tools' folder, comments for the member clusters.
    #[must_use]
    pub fn exports(&self) -> String {
        let mut text = String::new();
        let line = |path: &Path| format!("export KUBECONFIG={}", quote(path));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", line(&self.kubeconfig(KARMADA)));
        let _ = writeln!(text, "export PATH={}:\"$PATH\"", quote(&self.state.tools));
        for member in self.members() {
            let _ = writeln!(text, "# {member}: {}", line(&self.kubeconfig(&member)));
        }
        if self.state.nodes.is_some() {
            let _ = writeln!(text, "# {HOST}: {}", line(&self.kubeconfig(HOST)));
        }
        let _ = writeln!(text, "# operator: {}", line(&self.kubeconfig("mczk-operator")));
        text
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let supervisor = self.supervisor.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut owned) = supervisor.take() {
            if std::thread::panicking() {
                // The logs of a failed test stay until the next `up` or `down`.
                let _ = start::end_processes(&self.layout);
            } else {
                let _ = start::take_down(&self.layout);
            }
            owned.reap();
        }
    }
}

/// The file of Karmada's custom resource definitions among the tools: an archive, as `karmadactl init --crds` reads it.
pub const KARMADA_CRDS: &str = tools::KARMADA_CRDS;
/// The file of the manifests of Karmada's operator among the tools: an archive of the folder `config`.
pub const KARMADA_OPERATOR: &str = tools::KARMADA_OPERATOR;
/// The file of Karmada's Helm chart among the tools: an archive of the folder `karmada`, without the charts that it needs.
pub const KARMADA_CHART: &str = tools::KARMADA_CHART;

/// Which tools to build.
#[derive(Clone, Copy, Debug)]
pub struct Tools {
    /// True with the programs of nodes.
    pub nodes: bool,
    /// True with Helm, which only tests and users run.
    pub helm: bool,
}

impl Default for Tools {
    fn default() -> Self {
        Self { nodes: false, helm: true }
    }
}

impl Tools {
    /// Builds the missing tools and returns their folder. Blocks, the first time for about 12 minutes, and 3 more with
    /// those of nodes. `module` is as in [`Options::tools_module`].
    ///
    /// # Errors
    /// If the module is not found or a tool cannot be built.
    pub fn build(self, module: Option<&Path>) -> Result<PathBuf> {
        let progress = Progress::new(false);
        if self.nodes {
            tools::ensure_nodes(module, &progress)?;
        }
        if self.helm { tools::ensure_with_helm(module, &progress) } else { tools::ensure(module, &progress) }
    }
}

/// Builds the missing tools of federations without nodes: see [`Tools::build`].
///
/// # Errors
/// As there.
pub fn tools(module: Option<&Path>) -> Result<PathBuf> {
    Tools::default().build(module)
}

/// Builds the missing programs of a member cluster, of the Kubernetes of [`Options::kubernetes_module`], and returns their
/// folder. Blocks, the first time for about 10 minutes.
///
/// # Errors
/// As [`Tools::build`].
pub fn kubernetes(module: &Path) -> Result<PathBuf> {
    tools::ensure_kubernetes(module, &Progress::new(false))
}

/// Supervises the rig in a folder until a signal ends it. Only the program `rig` calls this, in its main thread, before
/// it starts another.
///
/// # Errors
/// If no ports are free or the folder cannot be used.
pub fn supervise(dir: &Path) -> Result<()> {
    supervisor::supervise(&Layout::new(Some(dir))?)
}

/// Delays packets between clusters until it is killed. It is a component of a rig with nodes.
///
/// # Errors
/// If the device cannot be used.
pub fn forward(device: &str, lines: &Path) -> Result<()> {
    nodes::forwarder::forward(device, lines)
}

/// Provides the volumes of a cluster until it is killed. It is a component of a rig with nodes.
///
/// # Errors
/// If the kubeconfig cannot be used.
pub async fn provide_volumes(dir: &Path, kubeconfig: &Path, nodes: &[String]) -> Result<()> {
    nodes::storage::provide(&Layout::new(Some(dir))?, kubeconfig, nodes).await
}

/// Quotes a path for a shell.
fn quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_and_quotes_is_one_word() {
        assert_eq!(quote(Path::new("/a/b-1.c")), "/a/b-1.c");
        assert_eq!(quote(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
