//! The whole way, with nothing stood in for: a MultiClusterZooKeeper is applied to Karmada, and real ZooKeeper servers in
//! pods of three member clusters form one ensemble, which is changed, cut and resized under a writing client, and taken back.

use std::{process::ExitCode, time::Instant};

use anyhow::{Context, Result};
use clap::Parser;
use e2e::{
    agent::Behaviour,
    federation::{Federation, Options},
    members::{
        Members,
        steps::{ALL, Story},
    },
    scene::Scene,
};
use tokio::signal::unix::{SignalKind, signal};

/// Starts a real Karmada federation whose members have nodes, installs the agents, and rolls an ensemble of real ZooKeeper
/// servers out over them. As root.
#[derive(Parser)]
struct Cli {
    /// Folder of a rig with nodes that runs already and is used as it is; else one is started there
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Leaves the federation and what is in it, and prints what a shell needs to use it
    #[arg(long)]
    keep: bool,
    /// Ends after so many steps: with --keep, to look at what is there then
    #[arg(long, default_value_t = ALL.len())]
    steps: usize,
    /// Lets servers speak plain text with each other
    #[arg(long)]
    plain: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return ExitCode::FAILURE;
    };
    let result = tokio::select! {
        result = run(cli) => result,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted; everything is taken down")),
        _ = terminate.recv() => Err(anyhow::anyhow!("ended; everything is taken down")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("members: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    println!(
        "A real Karmada federation whose three members have nodes is started here, and taken down at the end; agents and\n\
         ZooKeeper servers run in pods. It takes about 4 minutes on 2 cores once everything is built."
    );
    let begun = Instant::now();
    let options = Options { dir: cli.dir.clone(), keep: cli.keep, nodes: true, ..Options::default() };
    let federation = Federation::up(options).await?;
    let result = story(&Members::new(&federation, begun), &cli).await;
    let folder = federation.folder.clone();
    if result.is_err() {
        Members::new(&federation, begun).evidence(&folder).await;
    }
    if cli.keep {
        let operator = federation.operator_line();
        print!("{}", federation.leave().await?);
        println!(
            "# the operator has ended; again: {operator}\n# the rig and everything in it stay: `rig down` ends them"
        );
    } else {
        federation.down(result.is_err()).await.context("taking everything down")?;
        println!("[{:6.1} s] everything is taken down", begun.elapsed().as_secs_f64());
    }
    result.with_context(|| format!("what is known about it is in {}", folder.display()))
}

async fn story(members: &Members<'_>, cli: &Cli) -> Result<()> {
    let federation = members.federation;
    federation.register().await?;
    federation.start_operator().await?;
    members.say("mczk is registered, the operator runs");
    members.install_agents().await?;
    members.say("the agents run in the members");
    let scene = Scene::new(federation, "members", Behaviour::default()).await?;
    let mut story = Story::new(members, scene, !cli.plain);
    for step in ALL.iter().take(cli.steps) {
        let begun = Instant::now();
        members.say(&format!("BEGINS  {}", step.shows));
        let result = (step.run)(&mut story).await;
        let word = if result.is_ok() { "ok    " } else { "FAILED" };
        members.say(&format!("{word}  {} ({:.1} s)", step.shows, begun.elapsed().as_secs_f64()));
        result?;
    }
    println!("{} of {} steps", cli.steps.min(ALL.len()), ALL.len());
    Ok(())
}
