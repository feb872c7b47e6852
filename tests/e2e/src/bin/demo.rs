//! The demonstration: a real ZooKeeper ensemble over three clusters with nodes. It is changed and broken while a client
//! writes.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    members::{
        run::{StoryOptions, run},
        stories::DEMO,
    },
};

/// Starts a real Karmada federation with nodes, and changes and breaks an ensemble of five voters in it. Needs root.
#[derive(Parser)]
struct Cli {
    /// Keep the federation and the ensemble running, and print lines for a shell to use them
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    println!(
        "make demo: starts a real Karmada federation with three member clusters and real nodes, in network namespaces of this\n\
         machine. Installs mczk, and declares a ZooKeeper ensemble of five voters over the three clusters. While a client\n\
         writes, it changes a setting, upgrades ZooKeeper, adds and removes voters, kills the leader, drains a node, and\n\
         cuts off a cluster. Then it {}. Takes 8 minutes.",
        if cli.keep { "leaves everything running" } else { "checks all writes and removes everything" }
    );
    let steps = DEMO.steps.iter().filter(|step| !(cli.keep && step.name == "deletion")).copied().collect();
    let story = StoryOptions {
        dir: None,
        keep: cli.keep,
        story: DEMO,
        quorum_tls: true,
        other: None,
        curator_lib: None,
        steps,
    };
    until_interrupted("demo", run(story)).await
}
