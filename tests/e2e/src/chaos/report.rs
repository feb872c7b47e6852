//! The lines of the report.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use super::operations::Kind;
use crate::registers::Verdicts;

/// The result of a round.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its number.
    pub round: usize,
    /// Its duration.
    pub took: Duration,
    /// The duration from the end of all faults until the ensemble is as declared.
    pub healed: Duration,
    /// Number of operations that were applied.
    pub applied: usize,
    /// Number of operations that were not possible when they came.
    pub skipped: usize,
    /// Number of acknowledged writes: of the client in Rust, and of the one in Java.
    pub writes: [usize; 2],
    /// The longest time between two acknowledged writes of one client.
    pub pause: Duration,
    /// Number of lost writes.
    pub lost: usize,
    /// Number of decisions to move voters.
    pub moves: usize,
    /// Number of forks.
    pub forked: usize,
    /// 1 if the ensemble did not become as declared.
    pub stuck: usize,
    /// The verdicts about the registers that ended in it.
    pub registers: Verdicts,
}

/// The head of all rows.
#[must_use]
pub fn head() -> String {
    format!(
        "{:>5} {:>8} {:>10} {:>7} {:>5} {:>8} {:>8} {:>5} {:>6} {:>5} {:>9} {:>13} {:>9} {:>7} {:>16} {:>9}",
        "ROUND",
        "TOOK",
        "OPERATIONS",
        "SKIPPED",
        "MOVES",
        "RUST",
        "JAVA",
        "LOST",
        "FORKED",
        "STUCK",
        "HEALED IN",
        "LONGEST PAUSE",
        "REGISTERS",
        "CHECKED",
        "NOT LINEARIZABLE",
        "UNDECIDED"
    )
}

/// A row, aligned with the head.
#[must_use]
pub fn line(row: &Row) -> String {
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let [rust, java] = row.writes;
    format!(
        "{:5} {:>8} {:10} {:7} {:5} {rust:8} {java:8} {:5} {:6} {:5} {:>9} {:>13} {:9} {:7} {:16} {:9}",
        row.round,
        seconds(row.took),
        row.applied,
        row.skipped,
        row.moves,
        row.lost,
        row.forked,
        row.stuck,
        seconds(row.healed),
        seconds(row.pause),
        row.registers.registers,
        row.registers.operations,
        row.registers.broken,
        row.registers.undecided
    )
}

/// The summary: operations by kind (applied, skipped), and the sums of all rounds.
#[must_use]
pub fn summary(rows: &[Row], kinds: &BTreeMap<Kind, (usize, usize)>, took: Duration) -> String {
    let mut text = format!("{:20} {:>7} {:>7}\n", "OPERATION", "APPLIED", "SKIPPED");
    for (kind, (applied, skipped)) in kinds {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:20} {applied:7} {skipped:7}", kind.name());
    }
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let mut registers = Verdicts::default();
    for row in rows {
        registers += row.registers;
    }
    let _ = write!(
        text,
        "minutes {:.1}, operations {}, rounds {}, moves {}, writes {} (Rust {}, Java {}), lost {}, forked {}, stuck {}, longest \
         pause {:.1} s\nregisters {}, operations of registers {}, not linearizable {}, undecided in 60 s {}",
        took.as_secs_f64() / 60.0,
        sum(|row| row.applied),
        rows.len(),
        sum(|row| row.moves),
        sum(|row| row.writes.iter().sum()),
        sum(|row| row.writes.first().copied().unwrap_or_default()),
        sum(|row| row.writes.last().copied().unwrap_or_default()),
        sum(|row| row.lost),
        sum(|row| row.forked),
        sum(|row| row.stuck),
        rows.iter().map(|row| row.pause).max().unwrap_or_default().as_secs_f64(),
        registers.registers,
        registers.operations,
        registers.broken,
        registers.undecided
    );
    text
}

/// Tries after which an operation must have been possible once.
const TRIES: usize = 5;

/// The operations that were tried often and never possible: the run shows nothing of them.
#[must_use]
pub fn never_applied(kinds: &BTreeMap<Kind, (usize, usize)>) -> Vec<String> {
    let never = kinds.iter().filter(|(_, (applied, skipped))| *applied == 0 && *skipped >= TRIES);
    never.map(|(kind, _)| kind.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_is_never_possible_is_noticed() {
        let kinds = [(Kind::KillLeader, (1, 9)), (Kind::DeleteLogs, (0, 5)), (Kind::SwapVolumes, (0, 4))];
        assert_eq!(never_applied(&kinds.into_iter().collect()), ["delete-logs"]);
    }

    #[test]
    fn rows_are_aligned_and_summed() {
        let row = |round| Row {
            round,
            took: Duration::from_millis(101_500),
            healed: Duration::from_secs(30),
            applied: 9,
            skipped: 1,
            moves: 2,
            writes: [1200, 800],
            pause: Duration::from_millis(6_100),
            registers: Verdicts { operations: 4200, registers: 2, broken: 0, undecided: 0 },
            ..Row::default()
        };
        let broken = Verdicts { operations: 900, registers: 3, broken: 1, undecided: 1 };
        let text = [head(), line(&row(1)), line(&Row { lost: 3, stuck: 1, registers: broken, ..row(2) })];
        assert_eq!(
            text,
            [
                "ROUND     TOOK OPERATIONS SKIPPED MOVES     RUST     JAVA  LOST FORKED STUCK HEALED IN LONGEST PAUSE \
                 REGISTERS CHECKED NOT LINEARIZABLE UNDECIDED",
                "    1  101.5 s          9       1     2     1200      800     0      0     0    30.0 s         6.1 s \
                 \x20       2    4200                0         0",
                "    2  101.5 s          9       1     2     1200      800     3      0     1    30.0 s         6.1 s \
                 \x20       3     900                1         1",
            ]
        );
        let kinds = [(Kind::KillLeader, (2, 0)), (Kind::PowerOff, (16, 2))].into_iter().collect();
        let text = summary(&[row(1), row(2)], &kinds, Duration::from_secs(210));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "OPERATION            APPLIED SKIPPED",
                "kill-leader                2       0",
                "power-off                 16       2",
                "minutes 3.5, operations 18, rounds 2, moves 4, writes 4000 (Rust 2400, Java 1600), lost 0, forked 0, stuck 0, \
                 longest pause 6.1 s",
                "registers 4, operations of registers 8400, not linearizable 0, undecided in 60 s 0",
            ]
        );
    }
}
