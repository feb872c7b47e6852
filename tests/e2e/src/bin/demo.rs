//! The demonstration: one real ZooKeeper ensemble over three clusters with nodes, through changes and faults, with a client
//! that writes all the time.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    members::{
        play::{Play, play},
        plots::DEMO,
    },
};

/// Starts a real Karmada federation with nodes and shows an ensemble of five voters in it. As root.
#[derive(Parser)]
struct Cli {
    /// Leaves the federation and the ensemble, and prints what a shell needs to use them
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    println!(
        "This starts a real Karmada federation of three member clusters with nodes on this machine, in network namespaces,\n\
         installs mczk, and declares one ZooKeeper ensemble of five voters over the three clusters. Then, while a client\n\
         writes all the time, a setting is changed, ZooKeeper upgraded, voters join and leave, the leader is killed, a node\n\
         drained, and a whole cluster cut off; {}. It takes 4 to 5 minutes; the\n\
         programs and images are built the first time, which takes about 20 minutes more.",
        if cli.keep { "everything is left there" } else { "everything is taken down at the end" }
    );
    let steps = DEMO.steps.iter().filter(|step| !(cli.keep && step.name == "deletion")).copied().collect();
    let story = Play { dir: None, keep: cli.keep, plot: DEMO, quorum_tls: true, steps };
    until_interrupted("demo", play(story)).await
}
