//! Runs the scenarios on a real Karmada federation.

use std::{
    collections::VecDeque,
    process::ExitCode,
    sync::PoisonError,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    audit::{self, rights},
    diagnosis,
    federation::{Federation, OPERATOR_USER, Options},
    interruption::until_interrupted,
    scenarios::{ALL, Place, Scenario, limit},
    scene,
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};

/// The number of scenarios that run at the same time.
const BESIDE: usize = 4;

/// Runs scenarios on a real Karmada federation, which it starts and takes down.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of scenarios. Default: all
    only: Vec<String>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Folder of a running rig, or of a new one
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let chosen: Vec<Scenario> = ALL
        .iter()
        .filter(|s| cli.only.is_empty() || cli.only.iter().any(|part| s.name.contains(part.as_str())))
        .copied()
        .collect();
    if cli.list || chosen.is_empty() {
        for scenario in ALL {
            println!("{:26} {}", scenario.name, scenario.shows);
        }
        return ExitCode::from(u8::from(!cli.list));
    }
    until_interrupted("scenarios", run(cli, chosen)).await
}

async fn run(cli: Cli, chosen: Vec<Scenario>) -> Result<()> {
    println!(
        "make test-e2e: {} scenarios on a real Karmada federation with three member clusters. All of them take about 20\n\
         minutes on 2 cores. The first time, Karmada and Kubernetes are built before, for about 12 minutes.",
        chosen.len()
    );
    let begun = Instant::now();
    let federation =
        Federation::up(Options { dir: cli.dir, agents: Some(Behaviour::default()), ..Options::default() }).await?;
    let of = |place: Place| chosen.iter().filter(move |s| s.place == place).copied().collect::<Vec<_>>();
    let mut failed = Vec::new();
    let first = of(Place::First);
    if first.is_empty() || federation.attached {
        for scenario in &first {
            println!("skipped {}: it needs a new federation", scenario.name);
        }
        federation.register().await?;
        federation.start_operator().await?;
    }
    if !federation.attached {
        for scenario in first {
            failed.extend(report(scenario, one(&federation, scenario).await));
        }
        if let (Err(error), false) = (federation.operator_alive().await, failed.is_empty()) {
            eprintln!("no other scenario can run: {error:#}");
            federation.down(true).await?;
            bail!("failed: {}", failed.join(", "));
        }
    }
    let mut waiting: VecDeque<Scenario> = of(Place::Beside).into();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < BESIDE
            && let Some(scenario) = waiting.pop_front()
        {
            let federation = &federation;
            running.push(async move { (scenario, one(federation, scenario).await) });
        }
        let Some((scenario, result)) = running.next().await else { break };
        failed.extend(report(scenario, result));
    }
    drop(running);
    for scenario in of(Place::Alone) {
        failed.extend(report(scenario, one(&federation, scenario).await));
        // A failed scenario may have stopped the operator.
        if federation.operator_alive().await.is_err() {
            federation.start_operator().await?;
        }
    }
    if chosen.len() == ALL.len() && !federation.attached {
        failed.extend(unused_rights(&federation).await?);
    }
    let log = federation.operator_log();
    federation.down(!failed.is_empty()).await.context("cannot take the federation down")?;
    println!("{} of {} scenarios in {} s", chosen.len() - failed.len(), chosen.len(), begun.elapsed().as_secs());
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}; the operator's log is {}", failed.join(", "), log.display())
}

/// Checks that all scenarios together have used each right of the operator. Returns the name of the check if it fails.
async fn unused_rights(federation: &Federation) -> Result<Option<&'static str>> {
    let granted = rights::granted(&federation.karmada, OPERATOR_USER).await?;
    let entries = audit::read(&federation.rig.audit_log(), 0, OPERATOR_USER)?;
    let unused = rights::unused(&granted, &entries, rights::OPERATOR);
    if unused.is_empty() {
        println!("ok      {:26}           the operator has used each of its {} rights", "rights", granted.len());
        return Ok(None);
    }
    println!("FAILED  {:26}           the operator has never used these rights: {unused:?}", "rights");
    Ok(Some("rights"))
}

/// The time of a scenario, and its error with a diagnosis.
type Outcome = (Duration, Result<(), (anyhow::Error, String)>);

/// Runs a scenario. A panic counts as its failure.
async fn one(federation: &Federation, scenario: Scenario) -> Outcome {
    let begun = Instant::now();
    let (namespaces, run) = scene::noted((scenario.run)(federation));
    let guarded = std::panic::AssertUnwindSafe(run).catch_unwind();
    let result = match tokio::time::timeout(limit(), guarded).await {
        Err(_) => Err(anyhow::anyhow!("not complete after {} s", limit().as_secs())),
        Ok(Err(_)) => Err(anyhow::anyhow!("it panicked")),
        Ok(Ok(result)) => result,
    };
    let elapsed = begun.elapsed();
    let Err(error) = result else { return (elapsed, Ok(())) };
    // Before another scenario changes the federation.
    let namespaces = namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let found = futures::future::join_all(namespaces.iter().map(|name| diagnosis::of(federation, name))).await;
    (elapsed, Err((error, found.concat())))
}

fn report(scenario: Scenario, (elapsed, result): Outcome) -> Option<&'static str> {
    let seconds = elapsed.as_secs_f64();
    match result {
        Ok(()) => {
            println!("ok      {:26} {seconds:6.1} s  {}", scenario.name, scenario.shows);
            None
        }
        Err((error, found)) => {
            println!("FAILED  {:26} {seconds:6.1} s  {}\n        {error:#}", scenario.name, scenario.shows);
            found.lines().for_each(|line| println!("        {line}"));
            Some(scenario.name)
        }
    }
}
