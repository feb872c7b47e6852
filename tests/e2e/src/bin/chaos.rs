//! Chaos: random, overlapping changes and faults on a real federation, from a seed.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum as _};
use e2e::{
    chaos::{
        operations::{Kind, read},
        run::{ChaosOptions, run},
        schedule::{Plan, schedule},
    },
    interruption::until_interrupted,
};

/// Starts a real Karmada federation with nodes, and changes and breaks an ensemble in it at random while two clients write.
/// Needs root.
#[derive(Parser)]
struct Cli {
    /// The seed: one seed has one schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Minutes to play. A round that has begun is completed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Play the operations of this file, instead of those of the seed
    #[arg(long, value_name = "FILE")]
    operations: Option<PathBuf>,
    /// Number of member clusters
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(3..=6))]
    members: u8,
    /// Play only these operations
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Do not play these operations
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Kind>,
    /// Folder with the jars of ZooKeeper, for the client in Java
    #[arg(long, value_name = "DIR")]
    zookeeper_lib: PathBuf,
    /// The program of tests/linearizable, which checks the histories of registers
    #[arg(long, value_name = "FILE")]
    linearizable: PathBuf,
    /// Another version of mczk, for change-version. Without it, that operation is not played
    #[arg(long, value_name = "FILE")]
    other_mczk: Option<PathBuf>,
    /// Keep the federation running after a failure
    #[arg(long)]
    keep: bool,
    /// Print the operations, and play nothing
    #[arg(long)]
    dry_run: bool,
}

impl Cli {
    fn plan(&self) -> Result<Plan> {
        let is_chosen = |kind: &Kind| {
            let is_possible = *kind != Kind::ChangeVersion || self.other_mczk.is_some();
            is_possible && (self.only.is_empty() || self.only.contains(kind)) && !self.without.contains(kind)
        };
        let kinds: Vec<Kind> = Kind::value_variants().iter().copied().filter(is_chosen).collect();
        ensure!(!kinds.is_empty(), "--only and --without leave no operation");
        Ok(Plan { seed: self.seed, clusters: usize::from(self.members), kinds })
    }

    fn options(self) -> Result<ChaosOptions> {
        let read_file = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            read(&text).with_context(|| file.display().to_string())
        };
        Ok(ChaosOptions {
            plan: self.plan()?,
            replay: self.operations.as_ref().map(read_file).transpose()?,
            time: Duration::from_secs(self.minutes * 60),
            lib: self.zookeeper_lib,
            linearizable: self.linearizable,
            other: self.other_mczk,
            keep: self.keep,
            // A replay takes its operations from the file.
            flags: if self.members == 4 { String::new() } else { format!(" CHAOSFLAGS='--members {}'", self.members) },
        })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let (dry_run, minutes) = (cli.dry_run, cli.minutes);
    let options = match cli.options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if dry_run {
        for (nth, round) in options.replay.unwrap_or_else(|| schedule(&options.plan, minutes)).iter().enumerate() {
            for operation in round {
                println!("{}", e2e::chaos::operations::line(nth + 1, operation));
            }
        }
        return ExitCode::SUCCESS;
    }
    println!(
        "make chaos: starts a real Karmada federation with {} member clusters and nodes, and an ensemble of five voters. In\n\
         rounds of a minute it changes and breaks everything at random, while a client in Rust and one in Java write. After\n\
         each round it waits until the ensemble is as declared, asks every server for every write, and compares all logs.\n\
         Three more clients use registers, and Porcupine checks that the histories of these are linearizable.",
        options.plan.clusters
    );
    until_interrupted("chaos", Box::pin(run(options))).await
}
