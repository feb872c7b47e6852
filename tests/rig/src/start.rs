//! From nothing to a federation, and back.

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

/// The supervisor needs 3 s to end what does not listen to SIGTERM.
const ENDING: Duration = Duration::from_secs(10);

/// A supervisor that is a child of this process, and the pipe whose end tells it that this process has ended.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Supervisor {
    /// Lets it live on after this process.
    pub(crate) fn detach(&mut self) -> Result<()> {
        if let Some(mut lifeline) = self.lifeline.take() {
            lifeline.write_all(&[DETACH]).context("the supervisor has ended")?;
        }
        Ok(())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Takes the exit code of an ended supervisor, so that no zombie stays.
    pub(crate) fn reap(&mut self) {
        let _ = self.child.try_wait();
    }
}

/// A rig that is being started: dropped before it is complete, it is taken down.
struct Starting {
    layout: Layout,
    supervisor: Option<Supervisor>,
    complete: bool,
    /// Keeps the logs, which tell why a start failed.
    keep_files: bool,
}

impl Drop for Starting {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        let _ = end_processes(&self.layout);
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.reap();
        }
        if !self.keep_files {
            let _ = self.layout.remove();
        }
    }
}

/// What a call of `up` finds.
pub(crate) enum Found {
    /// A complete rig.
    Running(Box<State>, Record),
    /// Nothing, or leftovers, which are gone now. The lock keeps others from starting.
    Nothing(File),
}

/// Looks for a rig in the folder; one whose starter or supervisor died is taken down. While another process starts a rig
/// there, waits for it.
pub(crate) async fn find(layout: &Layout, progress: &Progress) -> Result<Found> {
    let mut told = false;
    let lock = loop {
        if let Some(found) = running(layout)? {
            return Ok(found);
        }
        layout.create()?;
        if let Some(lock) = layout.try_lock()? {
            break lock;
        }
        if !told {
            progress.tell("another process starts this rig or takes it down: waiting for it");
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    // The other one may have come to its end in the meantime.
    if let Some(found) = running(layout)? {
        return Ok(found);
    }
    if layout.state().exists() {
        progress.tell("a rig that was not taken down lies here: removing what is left of it");
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

/// Ends the supervisor and all components of a rig, also those that an earlier supervisor left. Blocks.
pub(crate) fn end_processes(layout: &Layout) -> Result<()> {
    let nodes = layout.read_state()?.and_then(|state| state.nodes);
    let Some(record) = layout.read_record()? else {
        return nodes.map_or(Ok(()), |nodes| nodes::clear(layout, &nodes.id, nodes.inotify_before));
    };
    // With nodes, the kernel ends everything with it; there are hundreds of processes, and some would not end by themselves.
    record.supervisor.signal(if nodes.is_some() { Signal::SIGKILL } else { Signal::SIGTERM });
    let end = Instant::now() + ENDING;
    while record.supervisor.lives() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    record.supervisor.signal(Signal::SIGKILL);
    // Read again: it may have started one more before it ended.
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
            "some processes of the rig in {} do not end: see its supervisor.json for their numbers",
            layout.dir.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes a rig down, complete or not. Says whether there was one. Blocks for at most some seconds.
pub(crate) fn take_down(layout: &Layout) -> Result<bool> {
    let Some(state) = layout.read_state()? else {
        return Ok(false);
    };
    // A starter that still works would start things again, and one in the foreground has nothing left to do.
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
        "a rig has 1 to {MOST_MEMBERS} members, not {}",
        options.members
    );
    let Some(pull) = &options.pull else {
        return Ok(vec![format!("m{}", options.members)]);
    };
    for name in pull {
        ensure!(
            (1..=options.members).any(|i| format!("m{i}") == *name),
            "no member {name:?} to join in Pull mode: the members are m1 to m{}",
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
            "no member {name:?} to have two nodes: the members are m1 to m{}",
            options.members
        );
    }
    Ok(())
}

/// Says how a running rig differs from what is asked for.
pub(crate) fn differences(options: &Options, state: &State) -> Result<Vec<&'static str>> {
    let mut different = vec![];
    if options.members != state.members {
        different.push("the number of members");
    }
    if pulling(options)? != state.pull {
        different.push("the members in Pull mode");
    }
    if options.all_feature_gates != state.all_feature_gates {
        different.push("the feature gates");
    }
    if options.audit_members && !state.audit_members {
        different.push("the members' audit logs");
    }
    if options.nodes.as_ref().map(|nodes| &nodes.two) != state.nodes.as_ref().map(|nodes| &nodes.two) {
        different.push("the nodes");
    }
    Ok(different)
}

/// Builds the tools, starts everything, and waits until all members are Ready. `lock` keeps others away until then.
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
        members: options.members,
        pull: pulling(options)?,
        all_feature_gates: options.all_feature_gates,
        audit_members: options.audit_members,
        nodes: None,
    };
    let mut starting = Starting { layout: layout.clone(), supervisor: None, complete: false, keep_files: false };
    // Before the tools, so that `down` finds this process while it builds them.
    write_json(&layout.state(), &state)?;
    two_nodes(options)?;
    if options.nodes.is_some() {
        nodes::check(&layout)?;
    }
    let (module, told) = (options.tools_module.clone(), progress.clone());
    state.tools = spawn_blocking(move || tools::ensure(module.as_deref(), &told)).await??;
    write_json(&layout.state(), &state)?;
    let program = if let Some(program) = &options.supervisor {
        program.clone()
    } else {
        let told = progress.clone();
        spawn_blocking(move || told.during("building rig, if it is not built yet", supervisor_program)).await??
    };
    if let Some(wanted) = &options.nodes {
        let nodes = nodes(options, wanted, &layout, &state, &program, progress).await?;
        // Known to `down` before it is changed.
        let inotify_before = nodes::limits::look()?;
        state.nodes = Some(Nodes { inotify_before, ..nodes });
        write_json(&layout.state(), &state)?;
        nodes::limits::raise(inotify_before, progress);
    }
    let ports = spawn_supervisor(&mut starting, &program, options.nodes.is_some()).await?;
    let mut plan = Plan { layout, state, ports };
    if options.nodes.is_some() {
        progress.tell("namespaces and network made");
    }
    let folder = plan.layout.dir.display();
    progress.tell(format!("ports from {} on, files in {folder}", ports.base));
    let result = tokio::select! {
        result = everything(&plan, progress) => result,
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
    for cluster in std::iter::once(&karmada).chain(&clusters) {
        plan.identities(cluster)?;
    }
    // Karmada's first: everything waits for it in the end.
    for etcd in plan.etcds() {
        plan.launch(&etcd)?;
    }
    plan.launch(&plan.apiserver(&karmada)?)?;
    for cluster in &clusters {
        plan.launch(&plan.apiserver(cluster)?)?;
    }
    progress.tell(format!("etcd and {} API servers started", clusters.len() + 1));
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
    plan.start_karmada(progress).await?;
    all(tasks).await?;
    progress.tell("members' API servers ready");

    let mut joins = JoinSet::new();
    for member in members {
        let plan = plan.clone();
        joins.spawn(async move { plan.join(&member).await });
    }
    all(joins).await?;
    progress.tell("members joined");
    if plan.state.nodes.is_some() {
        plan.wait_nodes_ready().await?;
        progress.tell(format!("{} nodes Ready", plan.all_nodes().len()));
    }
    plan.wait_members_ready().await?;
    progress.tell("all members Ready in Karmada");
    Ok(())
}

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

impl Plan {
    /// Hands a component to the supervisor.
    pub(crate) fn launch(&self, component: &Component) -> Result<()> {
        self.layout.write_component(component)?;
        notify(&self.layout)
    }
}

/// Tells the supervisor that a component's file changed.
pub(crate) fn notify(layout: &Layout) -> Result<()> {
    let record = layout.supervised()?.context("the rig's supervisor has ended: start the rig anew")?;
    record.supervisor.signal(REREAD);
    Ok(())
}

/// Everything that nodes need before the supervisor makes their namespaces.
async fn nodes(
    options: &Options,
    wanted: &NodeOptions,
    layout: &Layout,
    state: &State,
    program: &Path,
    progress: &Progress,
) -> Result<Nodes> {
    let (layout, program, told) = (layout.clone(), program.to_owned(), progress.clone());
    let (module, mut state) = (options.tools_module.clone(), state.clone());
    let NodeOptions { two, mczk } = wanted.clone();
    spawn_blocking(move || {
        let golden = nodes::prepare(&layout, &told)?;
        let coredns = tools::ensure_nodes(module.as_deref(), &told)?;
        let mczk = nodes::mczk(mczk.as_deref(), &program, &told)?;
        let nodes = Nodes { id: nodes::id(&state.starter), two, coredns, rig: program, mczk, inotify_before: None };
        state.nodes = Some(nodes.clone());
        nodes::furnish(&layout, &state, &golden)?;
        told.tell("nodes' folders made");
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
        // Number 1 of a process namespace: its end is the end of everything in there, whatever pods have forked.
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
            let words = fs::read_to_string(layout.log("supervisor")).unwrap_or_default();
            bail!("the supervisor does not start: {}", words.trim());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The program `rig` that belongs to this library, for programs that are not it, such as tests. Blocks.
fn supervisor_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program's file is not known")?;
    // target/PROFILE/rig, for target/PROFILE/deps/some-test as for target/PROFILE/rig itself.
    let profile =
        this.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).context("this program lies in no folder")?;
    let program = profile.join("rig");
    // Under `cargo test` let Cargo see to it that the program is there and as new as this library.
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), profile.parent()) {
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--package", "rig", "--bin", "rig", "--manifest-path"])
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
