//! The whole way, with nothing stood in for: a MultiClusterZooKeeper is applied to Karmada, and real ZooKeeper servers in
//! pods of three member clusters form one ensemble, which is changed, broken and resized under a writing client, and taken
//! back.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    members::{
        play::{Play, play},
        steps::{ALL, Step},
    },
};

/// Starts a real Karmada federation whose members have nodes, installs the agents, and rolls an ensemble of real ZooKeeper
/// servers out over them. As root.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of the steps to run, besides those without which nothing can be shown; all if none is given
    steps: Vec<String>,
    /// Lists the steps, and does nothing
    #[arg(long)]
    list: bool,
    /// Folder of a rig with nodes that runs already and is used as it is; else one is started there
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Leaves the federation and what is in it, and prints what a shell needs to use it
    #[arg(long)]
    keep: bool,
    /// Voters at the beginning
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    voters: u8,
    /// Lets servers speak plain text with each other
    #[arg(long)]
    plain: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        for step in ALL {
            println!("{:16} {}", step.name, step.shows);
        }
        return ExitCode::SUCCESS;
    }
    let chosen = |step: &&Step| cli.steps.is_empty() || cli.steps.iter().any(|part| step.name.contains(part.as_str()));
    if let Some(unknown) = cli.steps.iter().find(|part| !ALL.iter().any(|step| step.name.contains(part.as_str()))) {
        eprintln!("members: no step has {unknown} in its name: --list tells them");
        return ExitCode::FAILURE;
    }
    let steps: Vec<Step> = ALL.iter().filter(|step| step.always || chosen(step)).copied().collect();
    println!(
        "A real Karmada federation whose three members have nodes is started here, and taken down at the end; agents and\n\
         ZooKeeper servers run in pods. {} of {} steps; all of them take about 7 minutes on 2 cores once everything is\n\
         built.",
        steps.len(),
        ALL.len()
    );
    let story = Play {
        dir: cli.dir,
        keep: cli.keep,
        voters: usize::from(cli.voters),
        quorum_tls: !cli.plain,
        steps,
        namespace: "members",
    };
    until_interrupted("members", play(story)).await
}
