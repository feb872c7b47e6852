//! Asks `tests/linearizable` whether histories of registers are linearizable.

use std::{
    ops::AddAssign,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

/// The longest time for one history.
const TIMEOUT: &str = "60s";

/// What is known of some histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Number of operations in all of them.
    pub operations: usize,
    /// Number of histories, each of one register.
    pub registers: usize,
    /// Number of those that are not linearizable.
    pub broken: usize,
    /// Number of those that are not decided in time.
    pub undecided: usize,
}

impl AddAssign for Verdicts {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.registers += more.registers;
        self.broken += more.broken;
        self.undecided += more.undecided;
    }
}

/// Checks histories with a built program.
///
/// # Errors
/// If it does not run, or refuses a file.
pub async fn check(program: &Path, files: &[PathBuf]) -> Result<Verdicts> {
    let mut command = Command::new(program);
    command.args(["-timeout", TIMEOUT]).args(files).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("cannot run {}", program.display()))?;
    // 1 says that a history is not linearizable: the line of that file says it too.
    let is_answer = matches!(output.status.code(), Some(0 | 1));
    ensure!(is_answer, "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    let verdicts = verdicts(&String::from_utf8_lossy(&output.stdout))?;
    ensure!(verdicts.registers == files.len(), "{} of {} histories are checked", verdicts.registers, files.len());
    Ok(verdicts)
}

/// The lines of the program: verdict, number of operations, and file.
fn verdicts(output: &str) -> Result<Verdicts> {
    let mut all = Verdicts::default();
    for line in output.lines() {
        let mut words = line.split(' ');
        let (verdict, operations) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let operations = operations.parse().with_context(|| format!("no number of operations: {line}"))?;
        let (broken, undecided) = match verdict {
            "linearizable" => (0, 0),
            "not-linearizable" => (1, 0),
            "undecided" => (0, 1),
            _ => bail!("no verdict: {line}"),
        };
        all += Verdicts { operations, registers: 1, broken, undecided };
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_added() {
        let output = "linearizable 10 a b/1.jsonl\nnot-linearizable 20 2.jsonl\nundecided 30 3.jsonl\n";
        let expected = Verdicts { operations: 60, registers: 3, broken: 1, undecided: 1 };
        assert_eq!(verdicts(output).unwrap(), expected);
        assert_eq!(verdicts("").unwrap(), Verdicts::default());
    }

    #[test]
    fn other_lines_are_errors() {
        for line in ["fine 10 1.jsonl", "linearizable", "linearizable x 1.jsonl", "panic: no memory"] {
            assert!(verdicts(line).unwrap_err().to_string().contains(line), "{line}");
        }
    }

    #[tokio::test]
    async fn a_checker_that_ends_early_is_no_verdict() {
        let files = [PathBuf::from("1.jsonl")];
        for program in ["/bin/true", "/bin/false", "/nonexistent"] {
            assert!(check(Path::new(program), &files).await.is_err(), "{program}");
        }
    }
}
