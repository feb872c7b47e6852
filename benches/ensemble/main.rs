//! What it costs that mczk runs ZooKeeper: an ensemble under mczk, beside one that is started by hand on the same nodes.
//!
//! Both run all the time, with the same settings, and one of them is under load. [`by_hand`] starts the other one, [`load`]
//! asks, and [`statistics`] says what the rounds show together.

mod by_hand;
mod load;
mod processor;
mod report;
mod statistics;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    federation::{Federation, Options},
    interruption::until_interrupted,
    members::{Members, run::install, spec},
    scene::{IMAGE, Scene, ensemble, is_settled},
};
use serde_json::{Value, json};

use crate::{
    load::{Clients, Operation},
    processor::Processor,
    report::{Comparison, Figures},
};

const NAME: &str = "zoo";
/// Names of the sides. The last one is only measured with `--control`.
const SIDES: [&str; 3] = ["mczk", "by hand", "by hand, again"];
/// Flags of each virtual machine: two ensembles share the machine's memory and processors.
const JVM_FLAGS: [&str; 2] = ["-Xmx256m", "-XX:+UseSerialGC"];
/// The longest time until the ensemble is settled.
const PATIENCE: Duration = Duration::from_secs(300);

/// Compares an ensemble under mczk with the same ZooKeeper, started by hand on the same nodes. Needs root.
///
/// It prints tables in Markdown. It fails if the 95 % interval of a ratio lies below 0.97.
#[derive(Parser)]
struct Cli {
    /// Rounds. Each measures all sides, one after the other, in both orders
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Seconds of each window
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Seconds of load on each side, for writes and for reads, before the first round
    #[arg(long, default_value_t = 15)]
    warm_up: u64,
    /// Milliseconds that a packet takes between two clusters, each way
    #[arg(long, default_value_t = 5.0)]
    delay: f64,
    /// Voters, over three clusters
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(3..=7))]
    voters: i32,
    /// Clients of each ensemble, with one request at a time
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// Compare two ensembles by hand too: what chance does
    #[arg(long)]
    control: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    until_interrupted("bench-ensemble", Box::pin(bench(cli))).await
}

async fn bench(cli: Cli) -> Result<()> {
    let begun = Instant::now();
    let federation = Federation::up(Options { nodes: true, members: 3, ..Options::default() }).await?;
    let members = Members::new(&federation, begun, false);
    let result = measure(&members, &cli).await;
    if result.is_err() {
        members.evidence(&federation.folder).await;
    }
    let folder = federation.folder.display().to_string();
    federation.down(result.is_err()).await.context("taking everything down")?;
    let comparisons = result.with_context(|| format!("evidence: {folder}"))?;
    for comparison in &comparisons {
        println!("\n{}", comparison.means());
    }
    println!("{} rounds, {} clients, load of the machine {}", cli.rounds, cli.clients, machine_load());
    comparisons.first().context("nothing was compared")?.check()
}

/// Starts the sides, and measures them in turns.
async fn measure(members: &Members<'_>, cli: &Cli) -> Result<Vec<Comparison>> {
    install(members).await?;
    let scene = Scene::new(members.federation, "ensemble", Behaviour::default()).await?;
    let mut ensemble = ensemble(NAME, cli.voters, &spec::first(IMAGE, spec::FOLDERS, &[], true));
    let template = ensemble.pointer_mut("/spec/template").and_then(Value::as_object_mut);
    let template = template.context("the spec has no template")?;
    template.insert("jvmFlags".to_owned(), json!(JVM_FLAGS));
    template.insert("resources".to_owned(), json!({ "requests": { "cpu": "500m", "memory": "400Mi" } }));
    scene.create(&ensemble).await?;
    members.until(&scene, NAME, PATIENCE, is_settled).await?;
    let servers = members.pods(&scene.namespace).servers().await?;
    let mut addresses = vec![members.pods(&scene.namespace).addresses().await?];
    ensure!(addresses.iter().flatten().count() == servers.len(), "not all servers have an address");
    let by_hand: &[&str] = if cli.control { &["by-hand", "control"] } else { &["by-hand"] };
    for name in by_hand {
        addresses.push(by_hand::start(members, &scene.namespace, name, &servers).await?);
        members.report(&format!("the ensemble {name} serves"));
    }
    delay(members, cli.delay).await?;
    let mut sides = Vec::new();
    for side in &addresses {
        sides.push(Clients::connect(side, cli.clients).await?);
    }
    turn(sides.iter(), cli.warm_up).await?;
    members.report(&format!("all are warm; load of the machine {}", machine_load()));
    let processor = Processor::now();
    let rounds = rounds(members, cli, &sides).await?;
    println!("\n{:.1} % of a processor: `mczk server` of all servers, and all agents", 100.0 * processor.share());
    let comparison = |a: usize, b: usize| {
        let pairs = rounds.iter().filter_map(|round| Some([*round.get(a)?, *round.get(b)?]));
        Some(Comparison { names: [*SIDES.get(a)?, *SIDES.get(b)?], rounds: pairs.collect() })
    };
    Ok([comparison(0, 1), comparison(2, 1).filter(|_| cli.control)].into_iter().flatten().collect())
}

/// The figures of all rounds, in the order of the sides.
async fn rounds(members: &Members<'_>, cli: &Cli, sides: &[Clients]) -> Result<Vec<Vec<Figures>>> {
    let mut rounds = Vec::new();
    for number in 0..cli.rounds {
        let round = round(sides, cli.seconds).await?;
        let shown = round.iter().zip(SIDES).map(|(of, name)| format!("{name}: {of}"));
        members.report(&format!("round {}: {}", number + 1, shown.collect::<Vec<_>>().join("; ")));
        rounds.push(round);
    }
    Ok(rounds)
}

/// The figures of one round: all sides in one order, then in the other, because the first window after another kind of load
/// is slower.
async fn round(sides: &[Clients], seconds: u64) -> Result<Vec<Figures>> {
    let forward = turn(sides.iter(), seconds).await?;
    let backward = turn(sides.iter().rev(), seconds).await?;
    Ok(forward.iter().zip(backward.iter().rev()).map(|(one, other)| one.mean(other)).collect())
}

/// A window of writes for each side, then a window of reads.
async fn turn(order: impl Iterator<Item = &Clients> + Clone, seconds: u64) -> Result<Vec<Figures>> {
    let (window, mut writes, mut figures) = (Duration::from_secs(seconds), Vec::new(), Vec::new());
    for side in order.clone() {
        writes.push(side.ask(Operation::Write, window).await?);
    }
    for (side, writes) in order.zip(writes) {
        figures.push(Figures { writes, reads: side.ask(Operation::Read, window).await? });
    }
    Ok(figures)
}

/// Delays packets between each two member clusters.
async fn delay(members: &Members<'_>, milliseconds: f64) -> Result<()> {
    let clusters = members.federation.rig.members();
    for (nth, a) in clusters.iter().enumerate() {
        for b in clusters.iter().skip(nth + 1) {
            members.federation.rig.delay(a, b, milliseconds).await?;
        }
    }
    Ok(())
}

/// The load of the last minute, which shows whether other programs ran.
fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
