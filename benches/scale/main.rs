//! The benchmark of many ensembles: what the operator costs a real karmada-apiserver that holds 100, 1,000 and 10,000 of
//! them, with everything that they own.
//!
//! [`ground`] starts Karmada and stops its controllers, so that every request is the operator's. [`seed`] stores ensembles
//! as a finished rollout leaves them, by the operator's own rules. [`stages`] measures the operator.

mod ground;
mod operator;
mod pages;
mod report;
mod seed;
mod stages;
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "written for tests"
)]
#[path = "../../src/rules/tests/rules/world.rs"]
mod world;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Parser;
use e2e::interruption::until_interrupted;

use crate::{ground::Ground, report::Report, stages::Stage};

/// Measures the operator beside many settled ensembles, on a real karmada-apiserver without Karmada's controllers.
///
/// It prints tables in Markdown, and fails if a bar does not hold. At 10,000 ensembles it takes about 25 minutes on 2 cores,
/// most of it to store the ensembles. `MCZK_BIN` names the operator's program.
#[derive(Parser)]
struct Cli {
    /// Numbers of ensembles to measure, in ascending order
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000])]
    ensembles: Vec<usize>,
    /// Stages to run after the start; all if absent
    #[arg(long, value_delimiter = ',', value_enum)]
    stages: Option<Vec<Stage>>,
    /// Seconds of each window in which requests are counted
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Folder of a running rig, or of a new one. It keeps its ensembles for the next run with --keep
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave the rig and its ensembles running
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    until_interrupted("bench-scale", Box::pin(bench(Cli::parse()))).await
}

async fn bench(cli: Cli) -> Result<()> {
    ensure!(cli.ensembles.is_sorted(), "--ensembles must be in ascending order");
    let stages = cli.stages.unwrap_or_else(|| Stage::ALL.to_vec());
    let ground = Ground::start(cli.dir, cli.keep).await?;
    let mut report = Report::default();
    for number in cli.ensembles {
        ground.grant(number).await?;
        seed::seed(&ground, number).await?;
        report.add(stages::run(&ground, number, &stages, cli.seconds).await?);
        // What is known survives an interruption.
        println!("{}", report.table());
    }
    println!("{}", report.bars());
    ground.end(cli.keep).await?;
    report.check()
}
