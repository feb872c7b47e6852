//! Stories with all real parts: a MultiClusterZooKeeper in Karmada, agents and ZooKeeper servers in pods of member clusters.
//! The ensemble is changed, broken, resized and deleted while a client writes.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    members::{
        play::{Play, play},
        plots::{ALL, Plot},
        steps::Step,
    },
};

/// Starts a real Karmada federation with nodes for each story, installs mczk, and changes and breaks real ZooKeeper
/// ensembles. Needs root.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of steps to run, besides the steps that are always needed. Default: all
    steps: Vec<String>,
    /// Stories, each in a federation of its own
    #[arg(long = "story", value_name = "NAME", value_delimiter = ',', default_value = "changes,faults,lives,move")]
    stories: Vec<String>,
    /// List the stories and their steps
    #[arg(long)]
    list: bool,
    /// Folder of a running rig with nodes, or of a new one
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Keep the federation running, and print lines for a shell to use it
    #[arg(long)]
    keep: bool,
    /// Voters at the beginning. Default: the number of the story
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=7))]
    voters: Option<u8>,
    /// Use no TLS between servers
    #[arg(long)]
    plain: bool,
}

impl Cli {
    fn chosen(&self, plot: &Plot) -> Vec<Step> {
        let named =
            |step: &&Step| self.steps.is_empty() || self.steps.iter().any(|part| step.name.contains(part.as_str()));
        if plot.steps.iter().any(|step| named(&step)) {
            plot.steps.iter().filter(|step| step.always || named(step)).copied().collect()
        } else {
            Vec::new()
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        for plot in ALL {
            println!("{}: {}", plot.name, plot.shows);
            for step in plot.steps {
                println!("    {:18} {}", step.name, step.shows);
            }
        }
        return ExitCode::SUCCESS;
    }
    let mut plots = Vec::new();
    for name in &cli.stories {
        let Some(plot) = ALL.iter().find(|plot| plot.name == name) else {
            eprintln!("members: there is no story {name}: --list shows all");
            return ExitCode::FAILURE;
        };
        plots.push((plot, cli.chosen(plot)));
    }
    if let Some(unknown) = cli
        .steps
        .iter()
        .find(|part| !plots.iter().any(|(_, steps)| steps.iter().any(|step| step.name.contains(part.as_str()))))
    {
        eprintln!("members: no step of these stories has {unknown} in its name: --list shows all");
        return ExitCode::FAILURE;
    }
    plots.retain(|(_, steps)| !steps.is_empty());
    println!(
        "make test-members: starts a real Karmada federation with nodes for each story, and takes it down. Agents and\n\
         ZooKeeper servers run in pods. The first time, Karmada and Kubernetes are built before, for about 15 minutes.\n\
         Stories: {}.",
        plots
            .iter()
            .map(|(plot, steps)| format!("{} ({} steps)", plot.name, steps.len()))
            .collect::<Vec<_>>()
            .join(", ")
    );
    for (plot, steps) in plots {
        println!("\n# {}: {}", plot.name, plot.shows);
        let mut plot = *plot;
        plot.voters = cli.voters.map_or(plot.voters, usize::from);
        let story = Play { dir: cli.dir.clone(), keep: cli.keep, plot, quorum_tls: !cli.plain, steps };
        let code = until_interrupted("members", play(story)).await;
        if code != ExitCode::SUCCESS || cli.keep {
            return code;
        }
    }
    ExitCode::SUCCESS
}
