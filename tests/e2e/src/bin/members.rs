//! Stories with all real parts: a MultiClusterZooKeeper in Karmada, agents and ZooKeeper servers in pods of member clusters.
//! The ensemble is changed, broken, resized and deleted while a client writes.

use std::process::ExitCode;

use clap::Parser;
use e2e::{
    interruption::until_interrupted,
    members::{
        run::{StoryOptions, run},
        steps::Step,
        stories::{ALL, Story},
    },
};

/// Starts a real Karmada federation with nodes for each story, installs mczk, and changes and breaks real ZooKeeper
/// ensembles. Needs root.
#[derive(Parser)]
struct Cli {
    /// Parts of the names of steps to run, besides the steps that are always needed. Default: all
    steps: Vec<String>,
    /// Stories, each in a federation of its own
    #[arg(
        long = "story",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "changes,faults,incarnations,move"
    )]
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
    /// Another version of mczk, for the story versions
    #[arg(long, value_name = "FILE")]
    other_mczk: Option<std::path::PathBuf>,
    /// Folder with the jars of Curator, for the step curator
    #[arg(long, value_name = "DIR")]
    curator_lib: Option<std::path::PathBuf>,
    /// Use no TLS between servers
    #[arg(long)]
    plain: bool,
}

impl Cli {
    fn chosen(&self, story: &Story) -> Vec<Step> {
        let named =
            |step: &&Step| self.steps.is_empty() || self.steps.iter().any(|part| step.name.contains(part.as_str()));
        if story.steps.iter().any(|step| named(&step)) {
            story.steps.iter().filter(|step| step.always || named(step)).copied().collect()
        } else {
            Vec::new()
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        for story in ALL {
            println!("{}: {}", story.name, story.shows);
            for step in story.steps {
                println!("    {:18} {}", step.name, step.shows);
            }
        }
        return ExitCode::SUCCESS;
    }
    let mut stories = Vec::new();
    for name in &cli.stories {
        let Some(story) = ALL.iter().find(|story| story.name == name) else {
            eprintln!("members: there is no story {name}: --list shows all");
            return ExitCode::FAILURE;
        };
        stories.push((story, cli.chosen(story)));
    }
    if let Some(unknown) = cli
        .steps
        .iter()
        .find(|part| !stories.iter().any(|(_, steps)| steps.iter().any(|step| step.name.contains(part.as_str()))))
    {
        eprintln!("members: no step of these stories has {unknown} in its name: --list shows all");
        return ExitCode::FAILURE;
    }
    stories.retain(|(_, steps)| !steps.is_empty());
    println!(
        "make test-members: starts a real Karmada federation with nodes for each story, and takes it down. Agents and\n\
         ZooKeeper servers run in pods. The first time, Karmada and Kubernetes are built before, for about 15 minutes.\n\
         Stories: {}.",
        stories
            .iter()
            .map(|(story, steps)| format!("{} ({} steps)", story.name, steps.len()))
            .collect::<Vec<_>>()
            .join(", ")
    );
    for (story, steps) in stories {
        println!("\n# {}: {}", story.name, story.shows);
        let mut story = *story;
        story.voters = cli.voters.map_or(story.voters, usize::from);
        let (dir, other, curator_lib) = (cli.dir.clone(), cli.other_mczk.clone(), cli.curator_lib.clone());
        let story = StoryOptions { dir, keep: cli.keep, story, quorum_tls: !cli.plain, other, curator_lib, steps };
        let code = until_interrupted("members", run(story)).await;
        if code != ExitCode::SUCCESS || cli.keep {
            return code;
        }
    }
    ExitCode::SUCCESS
}
