//! The bench of transitions: how long after the watch event of a member's report the override of the next cluster is
//! written, on a real Karmada, by the operator's own histogram.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    federation::{Federation, Options},
    metrics::{self, Histogram},
    scene::{Scene, ensemble},
};
use futures::future::try_join_all;
use serde_json::json;

const HISTOGRAM: &str = "mczk_cluster_transition_seconds";
/// What the 99th percentile may be at most, in seconds.
const BOUND: f64 = 0.1;

/// Measures the operator's time from a cluster's report to the next cluster's override.
#[derive(Parser)]
struct Cli {
    /// Transitions at least
    #[arg(long, default_value_t = 200)]
    transitions: u64,
    /// Ensembles that are rolled beside each other
    #[arg(long, default_value_t = 1)]
    ensembles: usize,
    /// Folder of a rig that runs already and is used as it is; else one is started there
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match bench(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(cli: Cli) -> Result<()> {
    let load = machine_load();
    println!(
        "At least {} transitions between clusters, on a real Karmada federation of three members that is started and taken\n\
         down here. It takes about 3 minutes on 2 cores that do nothing else; the Go programs are built first if they are not (12 minutes).",
        cli.transitions
    );
    let quick = Behaviour { start: Duration::from_millis(20), restart: Duration::from_millis(10), mute: false };
    let federation = Federation::up(Options { dir: cli.dir, agents: Some(quick), ..Options::default() }).await?;
    federation.register().await?;
    federation.start_operator().await?;
    let scene = Scene::new(&federation, "bench", quick).await?;
    let names: Vec<String> = (0..cli.ensembles).map(|i| format!("zoo-{i}")).collect();
    for name in &names {
        scene.create(&ensemble(name, 3, &json!({ "rollout": { "holdSeconds": 0 } }))).await?;
    }
    try_join_all(names.iter().map(|name| scene.settled(name))).await?;
    let read = async || Histogram::read(&metrics::get(federation.probes(), "/metrics").await?, HISTOGRAM);
    let (begun, before) = (Instant::now(), read().await.unwrap_or_default());
    let mut seen = before.since(&before);
    for round in 0.. {
        if seen.count() >= cli.transitions {
            break;
        }
        ensure!(round < 20 + cli.transitions, "{} transitions after {round} rollouts each", seen.count());
        try_join_all(names.iter().map(|name| async {
            scene.image(name, &format!("zookeeper:round-{round}")).await?;
            scene.settled(name).await
        }))
        .await?;
        seen = read().await?.since(&before);
    }
    let (elapsed, after) = (begun.elapsed(), machine_load());
    for name in &names {
        scene.law(name)?;
        scene.delete(name).await?;
    }
    federation.down(false).await?;

    let milliseconds = |seconds: f64| {
        if seconds.is_finite() { format!("{:.0} ms", seconds * 1000.0) } else { "more than all buckets".to_owned() }
    };
    let count = seen.count();
    println!(
        "{count} transitions in {} s, {} ensembles at once; load of the machine {load}, then {after}",
        elapsed.as_secs(),
        names.len()
    );
    let mut below = 0;
    for (bound, n) in &seen.buckets {
        if *n > below {
            println!("  up to {:>8}: {:5}", milliseconds(*bound), n - below);
        }
        below = *n;
    }
    #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
    let mean = seen.sum / count.max(1) as f64;
    let (p50, p99) = (seen.quantile(500), seen.quantile(990));
    println!("p50 at most {}, p99 at most {}, mean {}", milliseconds(p50), milliseconds(p99), milliseconds(mean));
    ensure!(p99 <= BOUND, "p99 is above {}", milliseconds(BOUND));
    Ok(())
}

/// How many processes wanted to run in the last minute: a machine that does other things measures these too.
fn machine_load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
