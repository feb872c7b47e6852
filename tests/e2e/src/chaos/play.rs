//! Plays a round: all its operations in their time, and the end of all faults.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    apply::Undo,
    operations::{HEAD, Kind, Operation, line},
    process,
    world::World,
};
use crate::patience::wait_for;

/// When all faults of a round end.
const ALL_END: Duration = Duration::from_secs(60);
/// The longest time until a fault has ended.
const HEAL: Duration = Duration::from_secs(180);
/// How often processes that start on a full disk, or on one that stalls, are found.
const FULL: Duration = Duration::from_millis(500);

/// The file of all operations so far, which can be played again.
pub struct Record {
    path: PathBuf,
    file: Mutex<File>,
}

impl Record {
    /// A new file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(path: &Path) -> Result<Self> {
        let mut file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        writeln!(file, "{HEAD}")?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the operations of a round, before the first one begins: a round that fails can be played again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn round(&self, number: usize, round: &[Operation]) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for operation in round {
            writeln!(file, "{}", line(number, operation))?;
        }
        Ok(())
    }

    /// Adds what happened, as a comment.
    pub fn comment(&self, text: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The file is a help, and not the result.
        let _ = writeln!(file, "#   {}", text.replace('\n', " "));
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The operation.
    pub kind: Kind,
    /// True if it was applied.
    pub applied: bool,
}

impl World<'_> {
    /// Plays a round, and ends all its faults.
    ///
    /// # Errors
    /// If a fault cannot be ended.
    pub async fn play(&self, round: &[Operation], record: &Record) -> Result<Vec<Outcome>> {
        let begun = Instant::now();
        let played = futures::future::join_all(round.iter().map(|operation| self.one(operation, begun, record))).await;
        let mut left: Vec<Undo> = played.iter().filter_map(|(_, left)| left.clone()).collect();
        left.sort();
        for undo in left {
            record.comment(&format!("again: {undo:?}"));
            wait_for("a fault ends", HEAL, || self.undo(&undo)).await.with_context(|| format!("{undo:?}"))?;
        }
        for cluster in &self.clusters {
            self.members.federation.rig.ready(cluster).await?;
        }
        Ok(played.into_iter().map(|(outcome, _)| outcome).collect())
    }

    /// Plays one operation. Returns how its fault ends, if it has not ended.
    async fn one(&self, operation: &Operation, begun: Instant, record: &Record) -> (Outcome, Option<Undo>) {
        sleep_until(begun + operation.at).await;
        let applied = self.apply(operation).await;
        let at = format!("{:5.1} {}", begun.elapsed().as_secs_f64(), operation.kind.name());
        let outcome = Outcome { kind: operation.kind, applied: applied.is_ok() };
        let undo = match applied {
            Ok(applied) => {
                record.comment(&format!("{at}: {}", applied.text));
                applied.undo
            }
            Err(error) => {
                let text: String = format!("{error:#}").chars().take(600).collect();
                record.comment(&format!("{at}: not possible: {text}"));
                None
            }
        };
        let Some(undo) = undo else { return (outcome, None) };
        // Voters keep their votes for longer than others last.
        let end = if operation.kind == Kind::LongPowerOff { operation.end() } else { operation.end().min(ALL_END) };
        self.last(&undo, (begun + end).max(Instant::now())).await;
        let undone = self.undo(&undo).await;
        let failed = undone.as_ref().err().map(|error| format!(", but it has not: {error:#}")).unwrap_or_default();
        record.comment(&format!("{:5.1} {:?} ends{failed}", begun.elapsed().as_secs_f64(), undo));
        (outcome, undone.is_err().then_some(undo))
    }

    /// Waits until the end of a fault.
    async fn last(&self, undo: &Undo, end: Instant) {
        while Instant::now() < end {
            // A process that starts meanwhile finds the same disk.
            let _ = match undo {
                Undo::Disk(pod) => process::fill(&pod.uid).await,
                Undo::Stall(pod) => self.stall(pod).await,
                _ => break,
            };
            sleep(FULL).await;
        }
        sleep_until(end).await;
    }
}
