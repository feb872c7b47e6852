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
    diagnosis,
    federation::{Federation, Options},
    interruption::until_interrupted,
    scenarios::{ALL, Place, Scenario, limit},
    scene,
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};

/// How many scenarios run beside each other.
const BESIDE: usize = 4;

/// Runs the scenarios on a real Karmada federation, which it starts and takes down.
#[derive(Parser)]
struct Cli {
    /// Only scenarios with one of these texts in their name
    only: Vec<String>,
    /// Lists the scenarios
    #[arg(long)]
    list: bool,
    /// Folder of a rig that runs already and is used as it is; else one is started there
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
        "{} scenarios on a real Karmada federation with three members, which is started and taken down here. All of them\n\
         take about 12 minutes on 2 cores; the Go programs are built first if they are not, which takes 12 more.",
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
            println!("not run  {}: it needs a fresh federation", scenario.name);
        }
        federation.register().await?;
        federation.start_operator().await?;
    }
    if !federation.attached {
        for scenario in first {
            failed.extend(tell(scenario, one(&federation, scenario).await));
        }
        if let (Err(error), false) = (federation.operator_alive().await, failed.is_empty()) {
            eprintln!("nothing else can run: {error:#}");
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
        failed.extend(tell(scenario, result));
    }
    drop(running);
    for scenario in of(Place::Alone) {
        failed.extend(tell(scenario, one(&federation, scenario).await));
        // A scenario that failed may have left no operator.
        if federation.operator_alive().await.is_err() {
            federation.start_operator().await?;
        }
    }
    let log = federation.operator_log();
    federation.down(!failed.is_empty()).await.context("taking everything down")?;
    println!("{} of {} scenarios in {} s", chosen.len() - failed.len(), chosen.len(), begun.elapsed().as_secs());
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}; the operator's log is {}", failed.join(", "), log.display())
}

/// How long a scenario took, and how it failed with what was found there.
type Outcome = (Duration, Result<(), (anyhow::Error, String)>);

/// Runs one scenario; a panic in it is its failure and nobody else's.
async fn one(federation: &Federation, scenario: Scenario) -> Outcome {
    let begun = Instant::now();
    let (namespaces, run) = scene::noted((scenario.run)(federation));
    let guarded = std::panic::AssertUnwindSafe(run).catch_unwind();
    let result = match tokio::time::timeout(limit(), guarded).await {
        Err(_) => Err(anyhow::anyhow!("not done after {} s", limit().as_secs())),
        Ok(Err(_)) => Err(anyhow::anyhow!("it panicked")),
        Ok(Ok(result)) => result,
    };
    let elapsed = begun.elapsed();
    let Err(error) = result else { return (elapsed, Ok(())) };
    // At once, before anything else changes what is there.
    let namespaces = namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let found = futures::future::join_all(namespaces.iter().map(|name| diagnosis::of(federation, name))).await;
    (elapsed, Err((error, found.concat())))
}

fn tell(scenario: Scenario, (elapsed, result): Outcome) -> Option<&'static str> {
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
