//! The demonstration without nodes: a rollout of an ensemble of five voters over three member clusters of a real Karmada.
//! Real agents run on simulated pods and servers.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    federation::{Federation, Options},
    interruption::until_interrupted,
    programs::Process,
    scene::{Scene, conditions, ensemble, is_settled},
};
use mczk_api::{MultiClusterZooKeeper, multiclusterzookeeper::Record};
use serde_json::json;

const NAME: &str = "zoo";
const SECOND: &str = "zookeeper:3.9.6";
/// The time between two updates of the table.
const PACE: Duration = Duration::from_millis(250);
/// The longest time of a step.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a real Karmada federation and shows the rollout of an ensemble over its clusters.
#[derive(Parser)]
struct Cli {
    /// Keep the federation and the ensemble running, and print lines for a shell to use them
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    until_interrupted("demo-control-plane", show(cli.keep)).await
}

struct Show {
    terminal: bool,
    begun: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Show {
    fn step(&self, text: &str) {
        let seconds = self.begun.elapsed().as_secs();
        if self.terminal {
            println!("\n\x1b[1m[{seconds:3} s] {text}\x1b[0m");
        } else {
            println!("[{seconds:3} s] {text}");
        }
    }
}

async fn show(keep: bool) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    println!(
        "make demo-control-plane: starts a real Karmada federation with three member clusters on this machine. They have\n\
         API servers but no nodes; real agents run on simulated pods and servers. Registers mczk, rolls out an ensemble of\n\
         five voters, changes its image, and {}. Takes a minute; the first time, Karmada and\n\
         Kubernetes are built before, for about 12 minutes.",
        if keep { "leaves everything running" } else { "removes everything" }
    );
    let mut show = Show { terminal, begun: Instant::now(), steps: Vec::new() };
    let mut lap = Instant::now();
    let mut done = |show: &mut Show, what| {
        show.steps.push((what, lap.elapsed()));
        lap = Instant::now();
    };

    show.step("Starting the federation");
    let federation = Federation::up(Options { keep, ..Options::default() }).await?;
    done(&mut show, "federation");
    show.step("mczk register: CRDs and their propagation, RBAC, the interpreter webhook");
    print!("{}", federation.register().await?);
    federation.start_operator().await?;
    let (stand_in, arguments) = stand_in(&federation)?;
    let agents = Process::start(&stand_in, &arguments, &federation.folder.join("stand-in.log"))?;
    done(&mut show, "register, operator");

    show.step(
        "kubectl apply: a MultiClusterZooKeeper of five voters. Karmada discovers the new kinds in member clusters every 30 s",
    );
    let scene = Scene::new(&federation, "demo", Behaviour::default()).await?;
    scene.create(&ensemble(NAME, 5, &json!({}))).await?;
    follow(&scene, terminal).await?;
    done(&mut show, "first deployment");

    show.step(
        "kubectl patch: another image. Each cluster keeps the old one until its position in the rollout is reached",
    );
    scene.image(NAME, SECOND).await?;
    follow(&scene, terminal).await?;
    done(&mut show, "image change");

    if keep {
        show.step("Everything keeps running. In a shell:");
        let operator = federation.operator_line();
        agents.stop().await?;
        let folder = federation.folder.display().to_string();
        print!("{}", federation.leave().await?);
        println!("# the ensemble: kubectl -n e2e-demo get mczk,zk");
        println!("# the operator and the agents have ended; to start them again:\n{operator} &");
        println!("{} {} &", stand_in.display(), arguments.join(" "));
        println!("# to remove everything: make federation-down, and remove {folder}");
    } else {
        show.step("kubectl delete: mczk decommissions the servers, and removes everything from member clusters and control plane");
        scene.delete(NAME).await?;
        done(&mut show, "deletion");
        agents.stop().await?;
        federation.down(false).await?;
        done(&mut show, "federation down");
    }
    show.step("Done");
    for (what, elapsed) in &show.steps {
        println!("  {what:20} {:6.1} s", elapsed.as_secs_f64());
    }
    Ok(())
}

/// The program and the arguments of the agents on simulated pods.
fn stand_in(federation: &Federation) -> Result<(std::path::PathBuf, Vec<String>)> {
    let program = std::env::current_exe()?.with_file_name("stand-in");
    if !program.exists() {
        bail!("{} is missing: run cargo build -p e2e", program.display());
    }
    let mut arguments = vec!["--start-milliseconds=1500".to_owned(), "--restart-milliseconds=1000".to_owned()];
    for name in federation.members.keys() {
        let kubeconfig = federation.rig.kubeconfig(name);
        arguments.push(format!("--member={name}={}", kubeconfig.display()));
    }
    Ok((program, arguments))
}

/// Shows the clusters until the rollout is complete.
async fn follow(scene: &Scene<'_>, terminal: bool) -> Result<()> {
    let mut table = Table { terminal, drawn: 0, last: (Vec::new(), String::new()) };
    let end = Instant::now() + PATIENCE;
    loop {
        let object = scene.get(NAME).await?;
        table.show(rows(scene, &object).await?, &object);
        if is_settled(&object) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("the rollout is not complete after {} s: {}", PATIENCE.as_secs(), conditions(&object));
        }
        tokio::time::sleep(PACE).await;
    }
}

const HEAD: [&str; 7] = ["CLUSTER", "RECORD", "REPLICAS", "IMAGE", "REVISION", "STARTED", "SERVING"];
type Row = [String; 7];

async fn rows(scene: &Scene<'_>, object: &MultiClusterZooKeeper) -> Result<Vec<Row>> {
    let record = object.status.as_ref().and_then(|s| s.records.last());
    let members = scene.in_members(NAME).await?;
    Ok(scene
        .federation
        .members
        .keys()
        .map(|cluster| {
            let state = record.map_or("", |record| state(record, cluster)).to_owned();
            let Some(member) = members.get(cluster) else {
                return [cluster.clone(), state, "-".into(), "-".into(), "-".into(), "-".into(), "-".into()];
            };
            let number = |n: Option<i32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let status = member.status.clone().unwrap_or_default();
            let pinned = member.spec.spec_hash.is_some();
            let text = |text: &str| if pinned { text.to_owned() } else { "-".to_owned() };
            [
                cluster.clone(),
                state,
                member.spec.replicas.to_string(),
                text(&member.spec.template.image),
                text(&member.spec.revision),
                number(status.started_replicas),
                number(status.ready_replicas),
            ]
        })
        .collect())
}

fn state(record: &Record, cluster: &str) -> &'static str {
    let state = &record.current_state;
    let has = |list: &[String]| list.iter().any(|c| c == cluster);
    match () {
        () if has(&state.completed) => "completed",
        () if has(&state.deploying) => "deploying",
        () if has(&state.pending) => "pending",
        () => "",
    }
}

/// The state of the rollout in the status of the object.
fn summary(object: &MultiClusterZooKeeper) -> String {
    let status = object.status.clone().unwrap_or_default();
    let rollout = status.rollout.unwrap_or_else(|| "no record".to_owned());
    let progressing = status.conditions.iter().find(|c| c.type_ == "Progressing").map(|c| c.message.as_str());
    match progressing.filter(|text| !text.is_empty() && *text != rollout) {
        Some(message) => format!("{rollout}: {message}").chars().take(110).collect(),
        None => rollout,
    }
}

/// The table of clusters. On a terminal it is drawn in place, else each change is a line.
struct Table {
    terminal: bool,
    drawn: usize,
    last: (Vec<Row>, String),
}

impl Table {
    fn show(&mut self, rows: Vec<Row>, object: &MultiClusterZooKeeper) {
        let now = (rows, summary(object));
        if now == self.last {
            return;
        }
        let (rows, summary) = &now;
        let mut text = String::new();
        if self.terminal {
            if self.drawn > 0 {
                let _ = write!(text, "\x1b[{}A", self.drawn);
            }
            let _ = writeln!(text, "\x1b[2K{}", line(&HEAD.map(str::to_owned), false));
            for row in rows {
                let _ = writeln!(text, "\x1b[2K{}", line(row, true));
            }
            let _ = writeln!(text, "\x1b[2K  {summary}");
            self.drawn = rows.len() + 2;
        } else {
            if self.last.0.is_empty() {
                let _ = writeln!(text, "{}", line(&HEAD.map(str::to_owned), false));
            }
            for row in rows.iter().filter(|row| !self.last.0.contains(row)) {
                let _ = writeln!(text, "{}", line(row, false));
            }
            if *summary != self.last.1 {
                let _ = writeln!(text, "  {summary}");
            }
        }
        // The rollout continues without a terminal.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let _ = std::io::stdout().flush();
        self.last = now;
    }
}

fn line([cluster, record, replicas, image, revision, started, serving]: &Row, colour: bool) -> String {
    let paint = match record.as_str() {
        "completed" if colour => "\x1b[32m",
        "deploying" if colour => "\x1b[33m",
        _ => "",
    };
    let plain = if paint.is_empty() { "" } else { "\x1b[0m" };
    format!("  {cluster:8} {paint}{record:10}{plain} {replicas:9} {image:18} {revision:11} {started:8} {serving}")
}
