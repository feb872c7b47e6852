//! A story from its first step to its last: a federation is started, mczk installed in it, and everything taken down again.

use std::{fmt::Write as _, io::IsTerminal as _, path::PathBuf, time::Instant};

use anyhow::{Context, Result};

use super::{
    Members,
    plots::Plot,
    steps::{Row, Step, Story},
};
use crate::{
    agent::Behaviour,
    federation::{Federation, Options},
    scene::Scene,
};

/// What is to be played.
#[derive(Clone)]
pub struct Play {
    /// Folder of a rig with nodes that runs already and is used as it is; else one is started there.
    pub dir: Option<PathBuf>,
    /// Leaves the federation and what is in it.
    pub keep: bool,
    /// The story.
    pub plot: Plot,
    /// Whether servers speak TLS with each other.
    pub quorum_tls: bool,
    /// Those of its steps that are chosen.
    pub steps: Vec<Step>,
}

/// Plays it.
///
/// # Errors
/// What went wrong, and where more is known about it.
pub async fn play(play: Play) -> Result<()> {
    let begun = Instant::now();
    let colour = std::io::stdout().is_terminal();
    let options = Options {
        dir: play.dir.clone(),
        keep: play.keep,
        nodes: true,
        members: play.plot.members,
        two_nodes: play.plot.two_nodes.iter().map(|&name| name.to_owned()).collect(),
        ..Options::default()
    };
    let federation = Federation::up(options).await?;
    let members = Members::new(&federation, begun, colour);
    let mut rows = vec![Row { step: "federation", took: begun.elapsed(), writes: None }];
    let (done, result) = story(&members, &play, &mut rows).await;
    let folder = federation.folder.clone();
    if result.is_err() {
        members.evidence(&folder).await;
    }
    let ends = Instant::now();
    if play.keep {
        let operator = federation.operator_line();
        print!("{}", federation.leave().await?);
        println!(
            "# the operator has ended; again: {operator}\n# the rig and everything in it stay: `rig down` ends them"
        );
    } else {
        federation.down(result.is_err()).await.context("taking everything down")?;
        println!("[{:6.1} s] everything is taken down", begun.elapsed().as_secs_f64());
        rows.push(Row { step: "taken down", took: ends.elapsed(), writes: None });
    }
    print!("\n{}", table(&rows));
    println!("{done} of {} steps in {:.0} s", play.steps.len(), begun.elapsed().as_secs_f64());
    result.with_context(|| format!("what is known about it is in {}", folder.display()))
}

/// How many steps went well, and how it ended.
async fn story(members: &Members<'_>, play: &Play, rows: &mut Vec<Row>) -> (usize, Result<()>) {
    let begun = Instant::now();
    members.begins("mczk is installed");
    let scene = match install(members).await {
        Ok(()) => Scene::new(members.federation, play.plot.name, Behaviour::default()).await,
        Err(error) => Err(error),
    };
    let mut story = match scene {
        Ok(scene) => Story::new(members, scene, play.plot.voters, play.quorum_tls),
        Err(error) => return (0, Err(error)),
    };
    rows.push(Row { step: "mczk", took: begun.elapsed(), writes: None });
    let mut result = Ok(());
    for step in &play.steps {
        result = story.run(step).await;
        if result.is_err() {
            break;
        }
    }
    rows.extend_from_slice(story.rows());
    (story.rows().len(), result)
}

async fn install(members: &Members<'_>) -> Result<()> {
    members.federation.register().await?;
    members.federation.start_operator().await?;
    members.say("mczk is registered, the operator runs");
    members.install_agents().await?;
    members.say("Karmada has brought the agents to the members");
    Ok(())
}

/// What came of the steps, aligned.
fn table(rows: &[Row]) -> String {
    let mut text = format!("{:16} {:>10} {:>15} {:>8} {:>6}\n", "STEP", "TOOK", "LONGEST PAUSE", "WRITES", "LOST");
    for row in rows {
        let took = format!("{:.1} s", row.took.as_secs_f64());
        // Whoever lost one ends the story.
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
            "the longest pause while a setting rolled, as a multiple of that after the next kill -9 of the leader: median \
             {median:.2}, worst {worst:.2}, of {}",
            ratios.len()
        );
    }
    text
}

/// Each rolling change's longest pause, divided by that of the next kill of the leader.
fn ratios(rows: &[Row]) -> Vec<f64> {
    let (mut rolled, mut ratios) = (None, Vec::new());
    for row in rows {
        let pause = row.writes.map(|(longest, _)| longest.as_secs_f64()).filter(|seconds| *seconds > 0.0);
        match row.step {
            "setting" => rolled = pause,
            "leader-killed" => ratios.extend(rolled.take().zip(pause).map(|(rolled, killed)| rolled / killed)),
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
                "the longest pause while a setting rolled, as a multiple of that after the next kill -9 of the leader: median \
                 1.50, worst 1.50, of 1",
            ]
        );
    }
}
