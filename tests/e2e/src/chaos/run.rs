//! Runs rounds of chaos on a federation, until the time is over or a check fails.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};

use super::{
    checks::{Acknowledged, Failure, Writers},
    governor,
    operations::{Kind, Operation},
    play::{Outcome, Record},
    report::{self, Row},
    schedule::Plan,
    world::World,
};
use crate::{
    federation::{Federation, Options},
    members::{Members, run::install},
    registers::{Registers, Verdicts},
};

/// The clusters with two nodes.
const TWO_NODES: [&str; 2] = ["m1", "m2"];

/// Options of a run.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    /// What to play.
    pub plan: Plan,
    /// The operations of a former run, to play again; they end the run.
    pub replay: Option<Vec<Vec<Operation>>>,
    /// How long to play. A round that has begun is completed.
    pub time: Duration,
    /// Folder with the jars of ZooKeeper, for the client in Java.
    pub lib: PathBuf,
    /// The program of `tests/linearizable`.
    pub linearizable: PathBuf,
    /// Another version of mczk.
    pub other: Option<PathBuf>,
    /// Keeps the federation after a failure.
    pub keep: bool,
    /// Flags besides the seed, as a person types them to play the run again.
    pub flags: String,
}

/// The results so far. They are printed at the end of this value, so also if the run is interrupted.
struct Results {
    begun: Instant,
    rows: Vec<Row>,
    kinds: BTreeMap<Kind, (usize, usize)>,
}

impl Drop for Results {
    fn drop(&mut self) {
        println!("\n{}", report::summary(&self.rows, &self.kinds, self.begun.elapsed()));
    }
}

/// Runs rounds.
///
/// # Errors
/// The first failure, with the seed, the operations, and the command that plays them again.
pub async fn run(options: ChaosOptions) -> Result<()> {
    for (nth, round) in options.replay.iter().flatten().enumerate() {
        governor::check(round, options.plan.clusters).with_context(|| format!("round {}", nth + 1))?;
    }
    let begun = Instant::now();
    let federation = Federation::up(Options {
        nodes: true,
        members: u8::try_from(options.plan.clusters)?,
        two_nodes: TWO_NODES.map(str::to_owned).to_vec(),
        keep: options.keep,
        ..Options::default()
    })
    .await?;
    let members = Members::new(&federation, begun, false);
    let record = Record::new(&federation.folder.join("operations.txt"))?;
    let mut results = Results { begun: Instant::now(), rows: Vec::new(), kinds: BTreeMap::new() };
    let result = rounds(&members, &options, &record, &mut results).await.and_then(|()| {
        let never = report::never_applied(&results.kinds);
        ensure!(never.is_empty(), "these operations were never possible, see the operations: {}", never.join(", "));
        Ok(())
    });
    drop(results);
    let folder = federation.folder.clone();
    let result = match result {
        Ok(()) => Ok(()),
        Err(error) => {
            members.evidence(&folder).await;
            println!("\nthe operations:\n{}", std::fs::read_to_string(record.path()).unwrap_or_default());
            let (file, seed, flags) = (record.path().display(), options.plan.seed, &options.flags);
            let again = format!("make chaos SEED={seed} OPERATIONS={file}{flags}");
            Err(error.context(format!("seed {seed}; evidence: {}; to play it again: {again}", folder.display())))
        }
    };
    if options.keep && result.is_err() {
        print!("{}", federation.leave().await?);
    } else {
        federation.down(result.is_err()).await.context("taking everything down")?;
    }
    result
}

async fn rounds(members: &Members<'_>, options: &ChaosOptions, record: &Record, results: &mut Results) -> Result<()> {
    install(members).await?;
    if let Some(program) = &options.other {
        members.federation.add_version(program).await?;
    }
    let world = World::new(members).await?;
    world.settle(record).await.context("the ensemble forms")?;
    members.report(&format!("seed {}: the ensemble is Ready, and all clients begin", options.plan.seed));
    println!("{}", report::head());
    let mut clients = Clients::start(&world, options).await?;
    let played = tokio::select! {
        played = play(&world, options, record, &mut clients, results) => played,
        unasked = world.watch_moves(record) => Err(unasked),
    };
    // Also of a run that has failed: a history may show why.
    let verdicts = clients.registers.stop().await;
    if let (Ok(verdicts), Some(last)) = (&verdicts, results.rows.last_mut()) {
        last.registers += *verdicts;
    }
    played?;
    judge(verdicts?)?;
    clients.writers.stop(&mut clients.all).await?;
    world.compare(&clients.all).await?;
    members.report(&format!("{} transactions in all logs, each with one content", world.compare_logs().await?));
    Ok(())
}

/// All clients, and what they know.
struct Clients<'a> {
    writers: Writers,
    all: Acknowledged,
    registers: Registers,
    options: &'a ChaosOptions,
}

impl<'a> Clients<'a> {
    async fn start(world: &World<'_>, options: &'a ChaosOptions) -> Result<Self> {
        let writers = Writers::start(&world.pods(), &options.lib, 1).await.context(Failure::Stuck)?;
        let (pods, folder) = (world.pods(), world.members.federation.folder.join("registers"));
        let addresses = move || {
            let pods = pods.clone();
            async move { pods.addresses().await }
        };
        let registers = Registers::start(&folder, &options.linearizable, addresses)?;
        Ok(Self { writers, all: Acknowledged::new(), registers, options })
    }
}

/// An error for histories that are not linearizable.
fn judge(verdicts: Verdicts) -> Result<()> {
    match verdicts.broken {
        0 => Ok(()),
        broken => Err(anyhow!("the folder `registers` of the evidence has a picture of each")
            .context(Failure::NotLinearizable(broken))),
    }
}

async fn play(
    world: &World<'_>,
    options: &ChaosOptions,
    record: &Record,
    clients: &mut Clients<'_>,
    results: &mut Results,
) -> Result<()> {
    let begun = Instant::now();
    for number in 1.. {
        let round = match &options.replay {
            Some(rounds) => rounds.get(number - 1).cloned(),
            None => (begun.elapsed() < options.time).then(|| options.plan.round(number)),
        };
        let Some(round) = round else { break };
        record.round(number, &round)?;
        let mut row = Row { round: number, ..Row::default() };
        let result = one(world, &round, record, &mut row, clients, results).await;
        if let Err(error) = &result {
            match error.downcast_ref::<Failure>() {
                Some(Failure::Stuck) => row.stuck = 1,
                Some(Failure::Lost(number)) => row.lost = *number,
                Some(Failure::Forked) => row.forked = 1,
                // The verdicts are in the row already.
                Some(Failure::NotLinearizable(_) | Failure::MovedUnasked) | None => {}
            }
        }
        println!("{}", report::line(&row));
        results.rows.push(row);
        result.with_context(|| format!("round {number}"))?;
    }
    Ok(())
}

/// Plays a round, and checks everything.
async fn one(
    world: &World<'_>,
    round: &[Operation],
    record: &Record,
    row: &mut Row,
    clients: &mut Clients<'_>,
    results: &mut Results,
) -> Result<()> {
    let begun = Instant::now();
    let outcomes = world.play(round, record).await?;
    for Outcome { kind, applied } in outcomes {
        let (done, skipped) = results.kinds.entry(kind).or_default();
        *(if applied { done } else { skipped }) += 1;
        *(if applied { &mut row.applied } else { &mut row.skipped }) += 1;
    }
    let ended = Instant::now();
    let settled = world.settle(record).await;
    row.healed = ended.elapsed();
    row.moves = world.moves.swap(0, Ordering::Relaxed);
    row.took = begun.elapsed();
    settled?;
    world.members.federation.operator_alive().await?;
    // The clients of the next round write before those of this one stop.
    let next = Writers::start(&world.pods(), &clients.options.lib, row.round + 1).await.context(Failure::Stuck)?;
    let written = std::mem::replace(&mut clients.writers, next).stop(&mut clients.all).await?;
    // A last request without an answer may still be committed, between the questions to two servers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    row.writes = [0, 1].map(|nth: usize| written.get(nth).map_or(0, |of| of.acknowledged.len()));
    row.pause = written.iter().map(|of| of.longest).max().unwrap_or_default();
    world.compare(&clients.all).await?;
    world.compare_logs().await?;
    row.registers = clients.registers.check().await?;
    judge(row.registers)?;
    row.took = begun.elapsed();
    Ok(())
}
