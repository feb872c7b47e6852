//! Runs a story: starts a federation, installs mczk, runs the steps, and takes everything down.

use std::{fmt::Write as _, io::IsTerminal as _, path::PathBuf, time::Instant};

use anyhow::{Context, Result};

use super::{
    Members,
    steps::{Row, Step, StoryContext},
    stories::Story,
};
use crate::{
    agent::Behaviour,
    federation::{Federation, Options},
    scene::Scene,
};

/// Options of a run.
#[derive(Clone)]
pub struct StoryOptions {
    /// Folder of a running rig with nodes, or of a new one.
    pub dir: Option<PathBuf>,
    /// Keeps the federation and the ensemble running.
    pub keep: bool,
    /// The story.
    pub story: Story,
    /// True if servers use TLS with each other.
    pub quorum_tls: bool,
    /// Another version of mczk.
    pub other: Option<PathBuf>,
    /// Folder with the jars of Curator, for the step of that name.
    pub curator_lib: Option<PathBuf>,
    /// The steps to run, in order.
    pub steps: Vec<Step>,
}

/// Runs a story.
///
/// # Errors
/// The first error, with the folder of the evidence.
pub async fn run(run: StoryOptions) -> Result<()> {
    let begun = Instant::now();
    let colour = std::io::stdout().is_terminal() || std::env::var_os("CLICOLOR_FORCE").is_some();
    let options = Options {
        dir: run.dir.clone(),
        keep: run.keep,
        nodes: true,
        members: run.story.members,
        two_nodes: run.story.two_nodes.iter().map(|&name| name.to_owned()).collect(),
        ..Options::default()
    };
    let federation = Federation::up(options).await?;
    let members = Members::new(&federation, begun, colour);
    let mut rows = vec![Row { step: "federation", took: begun.elapsed(), writes: None }];
    let (completed, result) = steps(&members, &run, &mut rows).await;
    let folder = federation.folder.clone();
    if result.is_err() {
        members.evidence(&folder).await;
    }
    let ends = Instant::now();
    if run.keep {
        let operator = federation.operator_line();
        print!("{}", federation.leave().await?);
        println!(
            "# the operator has ended; to start it again: {operator}\n# the rig keeps running; to remove everything: `rig down`"
        );
    } else {
        federation.down(result.is_err()).await.context("taking everything down")?;
        println!("[{:6.1} s] the federation is down", begun.elapsed().as_secs_f64());
        rows.push(Row { step: "federation down", took: ends.elapsed(), writes: None });
    }
    print!("\n{}", table(&rows));
    println!("{completed} of {} steps in {:.0} s", run.steps.len(), begun.elapsed().as_secs_f64());
    result.with_context(|| format!("evidence: {}", folder.display()))
}

/// Runs the steps; returns the number of successful ones, and the first error.
async fn steps(members: &Members<'_>, run: &StoryOptions, rows: &mut Vec<Row>) -> (usize, Result<()>) {
    let begun = Instant::now();
    members.announce("mczk is being installed");
    let installed = async {
        install(members).await?;
        match &run.other {
            Some(program) => members.federation.add_version(program).await,
            None => Ok(()),
        }
    };
    let scene = match installed.await {
        Ok(()) => Scene::new(members.federation, run.story.name, Behaviour::default()).await,
        Err(error) => Err(error),
    };
    let mut context = match scene {
        Ok(scene) => StoryContext::new(members, scene, &run.story, run.quorum_tls, run.curator_lib.clone()),
        Err(error) => return (0, Err(error)),
    };
    rows.push(Row { step: "mczk", took: begun.elapsed(), writes: None });
    let mut result = Ok(());
    for step in &run.steps {
        result = context.run(step).await;
        if result.is_err() {
            break;
        }
    }
    rows.extend_from_slice(context.rows());
    (context.rows().len(), result)
}

/// Registers mczk, starts the operator, and installs the agents.
///
/// # Errors
/// If a part does not start.
pub async fn install(members: &Members<'_>) -> Result<()> {
    members.federation.register().await?;
    members.federation.start_operator().await?;
    members.report("mczk is registered, and the operator runs");
    members.install_agents().await?;
    members.report("Karmada has propagated the agents to all member clusters");
    Ok(())
}

/// The results of the steps, aligned.
fn table(rows: &[Row]) -> String {
    let mut text = format!("{:16} {:>10} {:>15} {:>8} {:>6}\n", "STEP", "TOOK", "LONGEST PAUSE", "WRITES", "LOST");
    for row in rows {
        let took = format!("{:.1} s", row.took.as_secs_f64());
        // A lost write fails the step, and ends the story.
        let [pause, writes, lost] = row.writes.map_or_else(
            || ["-", "-", "-"].map(str::to_owned),
            |(longest, writes)| [format!("{:.2} s", longest.as_secs_f64()), writes.to_string(), "0".to_owned()],
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:16} {took:>10} {pause:>15} {writes:>8} {lost:>6}", row.step);
    }
    let mut ratios = ratios(rows);
    ratios.sort_by(f64::total_cmp);
    if let (Some(median), Some(worst)) = (ratios.get(ratios.len() / 2), ratios.last()) {
        let _ = writeln!(
            text,
            "longest pause of a setting change, divided by that of the next kill -9 of the leader: median {median:.2}, worst \
             {worst:.2}, of {}",
            ratios.len()
        );
    }
    text
}

/// The longest pause of each setting change, divided by that of the next kill of the leader.
fn ratios(rows: &[Row]) -> Vec<f64> {
    let (mut change, mut ratios) = (None, Vec::new());
    for row in rows {
        let pause = row.writes.map(|(longest, _)| longest.as_secs_f64()).filter(|seconds| *seconds > 0.0);
        match row.step {
            "setting" => change = pause,
            "leader-killed" => ratios.extend(change.take().zip(pause).map(|(change, kill)| change / kill)),
            _ => {}
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_table_is_aligned_and_compares_the_pauses() {
        let row = |step, pause: Option<u64>| Row {
            step,
            took: Duration::from_millis(61_500),
            writes: pause.map(|pause| (Duration::from_millis(pause), 1234)),
        };
        let text = table(&[row("federation", None), row("setting", Some(3000)), row("leader-killed", Some(2000))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "STEP                   TOOK   LONGEST PAUSE   WRITES   LOST",
                "federation           61.5 s               -        -      -",
                "setting              61.5 s          3.00 s     1234      0",
                "leader-killed        61.5 s          2.00 s     1234      0",
                "longest pause of a setting change, divided by that of the next kill -9 of the leader: median 1.50, worst 1.50, \
                 of 1",
            ]
        );
    }
}
