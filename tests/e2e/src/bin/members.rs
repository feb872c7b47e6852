//! The whole way, with nothing stood in for: a MultiClusterZooKeeper is applied to Karmada, and real ZooKeeper servers in
//! pods of three member clusters form one ensemble, which is changed, broken and resized under a writing client, and taken
//! back.

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

/// Starts real Karmada federations whose members have nodes, installs the agents, and plays stories with ensembles of real
/// ZooKeeper servers in them. As root.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of the steps to run, besides those without which nothing can be shown; all if none is given
    steps: Vec<String>,
    /// The stories, one after the other, each in a federation of its own
    #[arg(long = "story", value_name = "NAME", value_delimiter = ',', default_value = "changes,faults,lives,move")]
    stories: Vec<String>,
    /// Lists the stories and their steps, and does nothing
    #[arg(long)]
    list: bool,
    /// Folder of a rig with nodes that runs already and is used as it is; else one is started there
    #[arg(long, env = "RIG_DIR", value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
    /// Leaves the federation and what is in it, and prints what a shell needs to use it
    #[arg(long)]
    keep: bool,
    /// Voters at the beginning; each story has its own number
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=7))]
    voters: Option<u8>,
    /// Lets servers speak plain text with each other
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
            eprintln!("members: there is no story {name}: --list tells them");
            return ExitCode::FAILURE;
        };
        plots.push((plot, cli.chosen(plot)));
    }
    if let Some(unknown) = cli
        .steps
        .iter()
        .find(|part| !plots.iter().any(|(_, steps)| steps.iter().any(|step| step.name.contains(part.as_str()))))
    {
        eprintln!("members: no step of these stories has {unknown} in its name: --list tells them");
        return ExitCode::FAILURE;
    }
    plots.retain(|(_, steps)| !steps.is_empty());
    println!(
        "Real Karmada federations whose members have nodes are started here, one after the other, and taken down again;\n\
         agents and ZooKeeper servers run in pods. Stories: {}.",
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
