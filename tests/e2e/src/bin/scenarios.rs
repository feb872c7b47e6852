//! Runs the scenarios on a real Karmada federation.

use std::{
    collections::VecDeque,
    iter,
    path::PathBuf,
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    audit::{self, rights},
    diagnosis,
    federation::{Federation, OPERATOR_USER, Options},
    interruption::until_interrupted,
    patience::Waits,
    scenarios::{ALL, Place, SEARCHED, Scenario, limit},
    scene,
};
use futures::{FutureExt, StreamExt, stream};

/// The number of scenarios that run at the same time in one federation.
const BESIDE: usize = 4;

/// Scenarios that wait for a federation in which no other scenario runs.
type Queue = Mutex<VecDeque<Scenario>>;

/// Runs scenarios on real Karmada federations, which it starts and takes down: one for the scenarios that run at the same
/// time, and one beside it for those that run alone.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of scenarios. Default: all
    only: Vec<String>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Leave out those whose changes and faults the searches over all states play too
    #[arg(long)]
    short: bool,
    /// Folder of a running rig, or of a new one: then all scenarios run in this federation
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let chosen: Vec<Scenario> = ALL
        .iter()
        .filter(|s| cli.only.is_empty() || cli.only.iter().any(|part| s.name.contains(part.as_str())))
        .filter(|s| !cli.short || !SEARCHED.contains(&s.name))
        .copied()
        .collect();
    if cli.list || chosen.is_empty() {
        for scenario in ALL {
            println!("{:26} {}", scenario.name, scenario.shows);
        }
        return ExitCode::from(u8::from(!cli.list));
    }
    until_interrupted("scenarios", Box::pin(run(cli, chosen))).await
}

/// A federation for scenarios, and the names of those that failed in it.
struct Stage {
    federation: Federation,
    failed: Mutex<Vec<&'static str>>,
}

impl Stage {
    /// Starts a federation, or uses the one that runs in this folder.
    async fn up(dir: Option<PathBuf>) -> Result<Self> {
        let options = Options { dir, agents: Some(Behaviour::default()), ..Options::default() };
        Ok(Self { federation: Federation::up(options).await?, failed: Mutex::default() })
    }

    /// Runs a scenario and prints its result.
    async fn play(&self, scenario: Scenario) {
        let failed = report(scenario, one(&self.federation, scenario).await);
        lock(&self.failed).extend(failed);
    }

    async fn register(&self) -> Result<()> {
        self.federation.register().await?;
        self.federation.start_operator().await
    }

    /// Runs the scenarios that need a federation without mczk. Afterwards mczk is registered and an operator runs.
    async fn first(&self, scenarios: Vec<Scenario>) -> Result<()> {
        if scenarios.is_empty() || self.federation.attached {
            for scenario in &scenarios {
                println!("skipped {}: it needs a new federation", scenario.name);
            }
            return self.register().await;
        }
        for scenario in scenarios {
            self.play(scenario).await;
        }
        if lock(&self.failed).is_empty() {
            return Ok(());
        }
        self.federation.operator_alive().await.context("no other scenario can run")
    }

    /// Runs scenarios at the same time, some at once.
    async fn beside(&self, scenarios: Vec<Scenario>) {
        stream::iter(scenarios).for_each_concurrent(BESIDE, |scenario| self.play(scenario)).await;
    }

    /// Runs scenarios one after the other until the queue is empty.
    async fn alone(&self, queue: &Queue) -> Result<()> {
        loop {
            let next = lock(queue).pop_front();
            let Some(scenario) = next else { return Ok(()) };
            self.play(scenario).await;
            // A failed scenario may have stopped the operator.
            if self.federation.operator_alive().await.is_err() {
                self.federation.start_operator().await?;
            }
        }
    }

    /// Takes the federation down. Returns the names of the scenarios that failed, with the log of the operator.
    async fn down(self) -> Result<Option<String>> {
        let (log, failed) = (self.federation.operator_log(), self.failed.into_inner().unwrap_or_default());
        self.federation.down(!failed.is_empty()).await.context("cannot take a federation down")?;
        let failure = || format!("{}; the operator's log is {}", failed.join(", "), log.display());
        Ok((!failed.is_empty()).then(failure))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(cli: Cli, chosen: Vec<Scenario>) -> Result<()> {
    println!(
        "make test-e2e: {} scenarios on real Karmada federations with three member clusters. All of them take 20 to 40\n\
         minutes on 2 cores. The first time, Karmada and Kubernetes are built before, for about 12 minutes.",
        chosen.len()
    );
    let begun = Instant::now();
    let of = |place: Place| chosen.iter().filter(move |s| s.place == place).copied();
    let (first, beside, alone) = (of(Place::First).collect(), of(Place::Beside).collect::<Vec<_>>(), of(Place::Alone));
    let queue: Queue = Mutex::new(alone.collect());
    // Most of the time scenarios wait, so those that run alone in a federation do so beside another federation.
    let two = cli.dir.is_none() && !beside.is_empty() && !lock(&queue).is_empty();
    let other = async { if two { Stage::up(None).await.map(Some) } else { Ok(None) } };
    let (shared, other) = futures::try_join!(Stage::up(cli.dir), other)?;
    let in_shared = async {
        shared.first(first).await?;
        shared.beside(beside).await;
        shared.alone(&queue).await
    };
    let in_other = async {
        let Some(other) = &other else { return Ok(()) };
        other.register().await?;
        other.alone(&queue).await
    };
    let played = futures::try_join!(in_shared, in_other).map(drop);
    let stages: Vec<Stage> = iter::once(shared).chain(other).collect();
    let mut failures: Vec<String> = played.err().map(|error| format!("{error:#}")).into_iter().collect();
    if failures.is_empty() && chosen.len() == ALL.len() && !stages.iter().any(|stage| stage.federation.attached) {
        failures.extend(unused_rights(&stages).await?.map(str::to_owned));
    }
    let failed = failures.len() + stages.iter().map(|stage| lock(&stage.failed).len()).sum::<usize>();
    for stage in stages {
        failures.extend(stage.down().await?);
    }
    println!(
        "{} of {} scenarios in {} s",
        chosen.len().saturating_sub(failed),
        chosen.len(),
        begun.elapsed().as_secs()
    );
    ensure!(failures.is_empty(), "failed: {}", failures.join("; "));
    Ok(())
}

/// Checks that all scenarios together have used each right of the operator. Returns the name of the check if it fails.
async fn unused_rights(stages: &[Stage]) -> Result<Option<&'static str>> {
    let (mut granted, mut entries) = (Vec::new(), Vec::new());
    for Stage { federation, .. } in stages {
        granted.extend(rights::granted(&federation.karmada, OPERATOR_USER).await?);
        entries.extend(audit::read(&federation.rig.audit_log(), 0, OPERATOR_USER)?);
    }
    let unused = rights::unused(&granted, &entries, rights::OPERATOR);
    if unused.is_empty() {
        println!("ok      {:26}           the operator has used each of its {} rights", "rights", granted.len());
        return Ok(None);
    }
    println!("FAILED  {:26}           the operator has never used these rights: {unused:?}", "rights");
    Ok(Some("rights"))
}

/// How a scenario went.
struct Outcome {
    took: Duration,
    waits: Waits,
    /// Its error, with a diagnosis.
    result: Result<(), (anyhow::Error, String)>,
}

/// Runs a scenario. A panic counts as its failure.
async fn one(federation: &Federation, scenario: Scenario) -> Outcome {
    let begun = Instant::now();
    let (namespaces, run) = scene::noted((scenario.run)(federation));
    let waits = Waits::default();
    let guarded = std::panic::AssertUnwindSafe(waits.of(run)).catch_unwind();
    let result = match tokio::time::timeout(limit(), guarded).await {
        Err(_) => Err(anyhow::anyhow!("not complete after {} s", limit().as_secs())),
        Ok(Err(_)) => Err(anyhow::anyhow!("it panicked")),
        Ok(Ok(result)) => result,
    };
    let took = begun.elapsed();
    let Err(error) = result else { return Outcome { took, waits, result: Ok(()) } };
    // Before another scenario changes the federation.
    let namespaces = lock(&namespaces).clone();
    let found = futures::future::join_all(namespaces.iter().map(|name| diagnosis::of(federation, name))).await;
    Outcome { took, waits, result: Err((error, found.concat())) }
}

/// A scenario that failed, or came close to its limit, is printed with its long waits.
fn report(scenario: Scenario, Outcome { took, waits, result }: Outcome) -> Option<&'static str> {
    let outcome = if result.is_ok() { "ok     " } else { "FAILED " };
    println!("{outcome} {:26} {:6.1} s  {}", scenario.name, took.as_secs_f64(), scenario.shows);
    let failed = result.err();
    if let Some((error, _)) = &failed {
        println!("        {error:#}");
    }
    if failed.is_some() || took > limit() / 2 {
        waits.long().iter().for_each(|wait| println!("        waited {wait}"));
    }
    let (_, found) = failed?;
    found.lines().for_each(|line| println!("        {line}"));
    Some(scenario.name)
}
