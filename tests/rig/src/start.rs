//! Starts a federation and takes it down.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::Signal;
use tokio::task::{JoinSet, spawn_blocking};

use crate::api::Api;
use crate::control_plane::Plan;
use crate::identity::Identity;
use crate::layout::{Component, Layout, Phase, Record, State, write_json};
use crate::nodes::{self, Nodes};
use crate::ports::Ports;
use crate::progress::Progress;
use crate::supervisor::{DETACH, REREAD};
use crate::{MOST_MEMBERS, NodeOptions, Options, tools};

/// The supervisor needs 3 s to kill a component that ignores SIGTERM.
const ENDING: Duration = Duration::from_secs(10);

/// A supervisor that is a child of this process, and the pipe that closes when this process ends.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Supervisor {
    /// Makes it outlive this process.
    pub(crate) fn detach(&mut self) -> Result<()> {
        if let Some(mut lifeline) = self.lifeline.take() {
            lifeline.write_all(&[DETACH]).context("the supervisor has ended")?;
        }
        Ok(())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it, even if it has not said yet that it runs. Blocks.
    fn end(&mut self) {
        // It ends without its lifeline, but reads that only when it runs.
        self.lifeline = None;
        let end = Instant::now() + ENDING;
        while !self.has_ended() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reaps an ended supervisor.
    pub(crate) fn reap(&mut self) {
        let _ = self.child.try_wait();
    }
}

/// A rig that is being started. If it is dropped before it is complete, it is taken down.
struct Starting {
    layout: Layout,
    supervisor: Option<Supervisor>,
    complete: bool,
    /// Keeps the logs of a failed start.
    keep_files: bool,
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        let _ = end_processes(&self.layout);
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.end();
        }
        if !self.keep_files {
            let _ = self.layout.remove();
        }
    }
}

/// The state of the folder when `up` is called.
pub(crate) enum Found {
    /// A complete rig.
    Running(Box<State>, Record),
    /// No rig: leftovers have been removed. The lock keeps other processes from starting one.
    Nothing(File),
}

/// Finds the rig in the folder. Removes one whose starter or supervisor died. Waits while another process starts one.
pub(crate) async fn find(layout: &Layout, progress: &Progress) -> Result<Found> {
    let mut printed = false;
    let lock = loop {
        if let Some(found) = running(layout)? {
            return Ok(found);
        }
        layout.create()?;
        if let Some(lock) = layout.try_lock()? {
            break lock;
        }
        if !printed {
            progress.print("waiting for another process that starts this rig or takes it down");
            printed = true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    // The other process may have completed the rig in the meantime.
    if let Some(found) = running(layout)? {
        return Ok(found);
    }
    if layout.state().exists() {
        progress.print("removing the rest of a rig that was not taken down");
        let left = layout.clone();
        spawn_blocking(move || end_processes(&left)).await??;
        layout.remove_all_but_lock()?;
    }
    Ok(Found::Nothing(lock))
}

fn running(layout: &Layout) -> Result<Option<Found>> {
    let (Some(state), Some(record)) = (layout.read_state()?, layout.supervised()?) else {
        return Ok(None);
    };
    let lives = match state.phase {
        Phase::Starting => false,
        Phase::Attended => state.starter.lives(),
        Phase::Detached => true,
    };
    Ok(lives.then_some(Found::Running(Box::new(state), record)))
}

/// Ends the supervisor and all components of a rig, including those of an earlier supervisor. Blocks.
pub(crate) fn end_processes(layout: &Layout) -> Result<()> {
    let nodes = layout.read_state()?.and_then(|state| state.nodes);
    let Some(record) = layout.read_record()? else {
        return nodes.map_or(Ok(()), |nodes| nodes::clear(layout, &nodes.id, nodes.inotify_before));
    };
    // With nodes, the kernel ends all processes with the supervisor; some of them would ignore SIGTERM.
    record.supervisor.signal(if nodes.is_some() { Signal::SIGKILL } else { Signal::SIGTERM });
    let end = Instant::now() + ENDING;
    while record.supervisor.lives() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    record.supervisor.signal(Signal::SIGKILL);
    // The supervisor may have started another component before it ended.
    let record = layout.read_record()?.unwrap_or(record);
    let left: Vec<&Identity> = record.components.values().filter_map(|c| c.process.as_ref()).collect();
    let end = Instant::now() + ENDING;
    loop {
        let mut all_gone = !record.supervisor.lives();
        for process in &left {
            all_gone &= !process.signal(Signal::SIGKILL);
        }
        if all_gone {
            return nodes.map_or(Ok(()), |nodes| nodes::clear(layout, &nodes.id, nodes.inotify_before));
        }
        ensure!(
            Instant::now() < end,
            "some processes of the rig in {} do not end: its supervisor.json lists them",
            layout.dir.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes a rig down, complete or not. Returns whether there was one. Blocks for some seconds at most.
pub(crate) fn take_down(layout: &Layout) -> Result<bool> {
    let Some(state) = layout.read_state()? else {
        return Ok(false);
    };
    // A starter that is still at work would start components again.
    if state.phase == Phase::Starting && state.starter.pid != nix::unistd::getpid().as_raw() {
        state.starter.signal(Signal::SIGTERM);
    }
    end_processes(layout)?;
    let _lock = layout.lock(ENDING)?;
    end_processes(layout)?;
    layout.remove()?;
    Ok(true)
}

/// Checks what the options ask for.
fn pulling(options: &Options) -> Result<Vec<String>> {
    ensure!(
        (1..=MOST_MEMBERS).contains(&options.members),
        "a rig has 1 to {MOST_MEMBERS} member clusters, not {}",
        options.members
    );
    let Some(pull) = &options.pull else {
        return Ok(vec![format!("m{}", options.members)]);
    };
    for name in pull {
        ensure!(
            (1..=options.members).any(|i| format!("m{i}") == *name),
            "--pull names {name:?}, but the member clusters are m1 to m{}",
            options.members
        );
    }
    Ok(pull.clone())
}

fn two_nodes(options: &Options) -> Result<()> {
    let wanted = options.nodes.iter().flat_map(|nodes| &nodes.two);
    for name in wanted {
        ensure!(
            (1..=options.members).any(|i| format!("m{i}") == *name),
            "--two-nodes names {name:?}, but the member clusters are m1 to m{}",
            options.members
        );
    }
    Ok(())
}

/// The options in which a running rig differs.
pub(crate) fn differences(options: &Options, state: &State) -> Result<Vec<&'static str>> {
    let mut different = vec![];
    if options.members != state.members {
        different.push("the number of member clusters");
    }
    if pulling(options)? != state.pull {
        different.push("the member clusters in Pull mode");
    }
    if options.all_feature_gates != state.all_feature_gates {
        different.push("the feature gates");
    }
    if options.audit_members && !state.audit_members {
        different.push("the audit logs of member clusters");
    }
    let wanted = options.nodes.as_ref().map(|nodes| (&nodes.two, nodes.without_karmada));
    if wanted != state.nodes.as_ref().map(|nodes| (&nodes.two, nodes.without_karmada)) {
        different.push("the nodes");
    }
    Ok(different)
}

/// Builds the programs, starts all components, and waits until all member clusters are Ready. `lock` keeps other
/// processes away until then.
pub(crate) async fn start(
    layout: Layout,
    options: &Options,
    progress: &Progress,
    lock: File,
) -> Result<(Plan, Option<Supervisor>)> {
    let mut state = State {
        starter: Identity::of_this_process()?,
        phase: Phase::Starting,
        tools: PathBuf::new(),
        kubernetes: None,
        members: options.members,
        pull: pulling(options)?,
        all_feature_gates: options.all_feature_gates,
        audit_members: options.audit_members,
        nodes: None,
    };
    let mut starting = Starting { layout: layout.clone(), supervisor: None, complete: false, keep_files: false };
    // Written before the build, so that `rig down` finds this process.
    write_json(&layout.state(), &state)?;
    two_nodes(options)?;
    if options.nodes.is_some() {
        nodes::check(&layout)?;
    }
    let (module, building) = (options.tools_module.clone(), progress.clone());
    state.tools = spawn_blocking(move || tools::ensure(module.as_deref(), &building)).await??;
    if let Some(module) = options.kubernetes_module.clone() {
        let building = progress.clone();
        state.kubernetes = Some(spawn_blocking(move || tools::ensure_kubernetes(&module, &building)).await??);
    }
    write_json(&layout.state(), &state)?;
    let program = if let Some(program) = &options.supervisor {
        program.clone()
    } else {
        let building = progress.clone();
        spawn_blocking(move || building.during("building rig, if it is not built yet", supervisor_program)).await??
    };
    if let Some(wanted) = &options.nodes {
        let nodes = nodes(options, wanted, &layout, &state, &program, progress).await?;
        // Written before the change, so that `rig down` can undo it.
        let inotify_before = nodes::limits::too_low()?;
        state.nodes = Some(Nodes { inotify_before, ..nodes });
        write_json(&layout.state(), &state)?;
        nodes::limits::raise(inotify_before, progress);
    }
    let ports = spawn_supervisor(&mut starting, &program, options.nodes.is_some()).await?;
    let mut plan = Plan { layout, state, ports };
    if options.nodes.is_some() {
        progress.print("namespaces and network made");
    }
    let folder = plan.layout.dir.display();
    progress.print(format!("ports from {} on, files in {folder}", ports.base));
    let result = tokio::select! {
        result = everything(&plan, progress) => result,
        () = progress.repeat() => Ok(()),
        () = ended(&mut starting.supervisor) => Err(anyhow!("the supervisor has ended: was the rig taken down?")),
    };
    if let Err(e) = result {
        starting.keep_files = true;
        let logs = plan.layout.logs();
        return Err(e).with_context(|| format!("the rig does not start: see the logs in {}", logs.display()));
    }
    plan.state.phase = Phase::Attended;
    write_json(&plan.layout.state(), &plan.state)?;
    starting.complete = true;
    drop(lock);
    Ok((plan, starting.supervisor.take()))
}

async fn ended(supervisor: &mut Option<Supervisor>) {
    while supervisor.as_mut().is_some_and(|s| !s.has_ended()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn everything(plan: &Plan, progress: &Progress) -> Result<()> {
    let (karmada, members, clusters) = (plan.karmada(), plan.members(), plan.clusters());
    let has_karmada = !plan.state.nodes.as_ref().is_some_and(|nodes| nodes.without_karmada);
    for cluster in std::iter::once(&karmada).chain(&clusters) {
        plan.identities(cluster)?;
    }
    // Karmada's API server first: it takes longest.
    for etcd in plan.etcds() {
        plan.launch(&etcd)?;
    }
    if has_karmada {
        plan.launch(&plan.apiserver(&karmada)?)?;
    }
    for cluster in &clusters {
        plan.launch(&plan.apiserver(cluster)?)?;
    }
    progress.print(format!("etcd and {} API servers started", clusters.len() + usize::from(has_karmada)));
    if plan.state.nodes.is_some() {
        plan.start_runtimes()?;
    }

    let mut tasks = JoinSet::new();
    let importing = plan.clone();
    tasks.spawn(async move { importing.import_mczk().await });
    for cluster in clusters {
        let plan = plan.clone();
        tasks.spawn(async move {
            let api = Api::of(&plan.layout.kubeconfig(&cluster.name)).await?;
            api.wait_ready(&format!("the API server of {}", cluster.name)).await?;
            plan.launch(&plan.kube_controllers(&cluster))?;
            if cluster.has_nodes() { plan.start_nodes(&cluster) } else { Ok(()) }
        });
    }
    if has_karmada {
        plan.start_karmada(progress).await?;
    }
    all(tasks).await?;
    progress.print("API servers of member clusters ready");

    if has_karmada {
        let mut joins = JoinSet::new();
        for member in members {
            let plan = plan.clone();
            joins.spawn(async move { plan.join(&member).await });
        }
        all(joins).await?;
        progress.print("member clusters joined");
    }
    if plan.state.nodes.is_some() {
        plan.wait_nodes_ready().await?;
        progress.print(format!("{} nodes Ready", plan.all_nodes().len()));
    }
    if has_karmada {
        plan.wait_members_ready().await?;
        progress.print("all member clusters Ready in Karmada");
    }
    Ok(())
}

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

impl Plan {
    /// Makes the supervisor start a component.
    pub(crate) fn launch(&self, component: &Component) -> Result<()> {
        self.layout.write_component(component)?;
        notify(&self.layout)
    }
}

/// Makes the supervisor read the components' files.
pub(crate) fn notify(layout: &Layout) -> Result<()> {
    let record = layout.supervised()?.context("the supervisor of the rig has ended: run `rig down`, then `rig up`")?;
    record.supervisor.signal(REREAD);
    Ok(())
}

/// Makes images, programs and folders of nodes.
async fn nodes(
    options: &Options,
    wanted: &NodeOptions,
    layout: &Layout,
    state: &State,
    program: &Path,
    progress: &Progress,
) -> Result<Nodes> {
    let (layout, program, progress) = (layout.clone(), program.to_owned(), progress.clone());
    let (module, mut state) = (options.tools_module.clone(), state.clone());
    let NodeOptions { two, mczk, without_karmada } = wanted.clone();
    spawn_blocking(move || {
        let golden = nodes::prepare(&layout, &progress)?;
        let coredns = tools::ensure_nodes(module.as_deref(), &progress)?;
        if without_karmada {
            tools::ensure_with_helm(module.as_deref(), &progress)?;
            tools::ensure_operator(module.as_deref(), &progress)?;
        }
        let mczk = nodes::mczk(mczk.as_deref(), &program, &progress)?;
        let id = nodes::id(&state.starter);
        let nodes = Nodes { id, two, coredns, rig: program, mczk, without_karmada, inotify_before: None };
        state.nodes = Some(nodes.clone());
        nodes::furnish(&layout, &state, &golden)?;
        progress.print("folders of nodes made");
        Ok(nodes)
    })
    .await?
}

async fn spawn_supervisor(starting: &mut Starting, program: &Path, with_nodes: bool) -> Result<Ports> {
    let layout = &starting.layout;
    for folder in [layout.run(), layout.logs(), layout.dir.join("tmp")] {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let log = File::create(layout.log("supervisor")).context("cannot write the supervisor's log")?;
    let mut command = if with_nodes {
        // Process 1 of a process namespace: with it, the kernel ends all processes of pods.
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--mount", "--fork", "--kill-child=SIGKILL", "--"]).arg(program);
        unshare
    } else {
        Command::new(program)
    };
    let mut child = command
        .arg("supervise")
        .arg("--dir")
        .arg(&layout.dir)
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start the supervisor {}", program.display()))?;
    let lifeline = child.stdin.take();
    let supervisor = starting.supervisor.insert(Supervisor { child, lifeline });
    let end = Instant::now() + ENDING;
    loop {
        if let Some(record) = layout.supervised()? {
            return Ok(record.ports());
        }
        if supervisor.has_ended() || Instant::now() > end {
            let log = fs::read_to_string(layout.log("supervisor")).unwrap_or_default();
            bail!("the supervisor does not start: {}", log.trim());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The program `rig` of this library, for other programs, such as tests. Blocks.
fn supervisor_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program's file is not known")?;
    // For target/PROFILE/deps/some-test and for target/PROFILE/rig, this is target/PROFILE/rig.
    let profile =
        this.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).context("this program lies in no folder")?;
    let program = profile.join("rig");
    // Under `cargo test`, Cargo makes the program as new as this library.
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), profile.parent()) {
        let mut build = Command::new(cargo);
        build
            // The selection of the Makefile: another one has other features, and Cargo would compile all of them again.
            .args(["build", "--quiet", "--package", "mczk", "--package", "rig", "--package", "e2e", "--bin", "rig"])
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        crate::command::run_blocking(build, Signal::SIGINT).context("cannot build the supervisor")?;
    }
    ensure!(
        program.exists(),
        "no program `rig` at {}: run `cargo build -p rig`, or name it in `Options::supervisor`",
        program.display()
    );
    Ok(program)
}
