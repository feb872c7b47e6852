//! The report as a table.

use super::finding::{DoctorFinding, Examination, FindingSeverity, Report};
use crate::terminal::columns::{Cell, Tone, table};

/// A line for each area that is fine and for each finding, with its remedy below it.
pub(super) fn text(report: &Report, coloured: bool) -> String {
    let mut rows = vec![["RESULT", "AREA", "SUBJECT", "FINDING"].map(Cell::title).to_vec()];
    rows.extend(report.areas.iter().flat_map(of_area));
    format!("{}\n\n{}", summary(report), table(rows, coloured))
}

fn summary(report: &Report) -> String {
    let count = |number: usize, word: &str| match number {
        0 => format!("no {word}"),
        1 => format!("1 {word}"),
        more => format!("{more} {word}s"),
    };
    let line = format!("{}, {}", count(report.faults, "fault"), count(report.warnings, "warning"));
    line.replacen("no", "No", usize::from(report.faults == 0))
}

fn of_area(area: &Examination) -> Vec<Vec<Cell>> {
    let fine = area
        .findings
        .is_empty()
        .then(|| vec![Cell::new("ok", Tone::Good), Cell::plain(area.area), Cell::default(), Cell::plain(area.checked)]);
    fine.into_iter().chain(area.findings.iter().flat_map(|finding| of_finding(area.area, finding))).collect()
}

fn of_finding(area: &str, finding: &DoctorFinding) -> [Vec<Cell>; 2] {
    let tone = match finding.severity {
        FindingSeverity::Fault => Tone::Bad,
        FindingSeverity::Warning => Tone::Unsure,
        FindingSeverity::Skipped => Tone::Plain,
    };
    let result = Cell::new(finding.severity.word(), tone);
    let remedy = Cell::plain(format!("-> {}", finding.remedy));
    [
        vec![result, Cell::plain(area), Cell::plain(&finding.subject), Cell::plain(&finding.message)],
        vec![Cell::default(), Cell::default(), Cell::default(), remedy],
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::doctor::{
        examine::examine,
        healthy::{days, healthy, member, now},
    };

    /// A certificate that ends, a cluster without an agent, and a host that is not named.
    #[test]
    fn the_guide_shows_this_table() {
        let mut observed = healthy();
        observed.host = None;
        member(&mut observed).objects.as_mut().unwrap().agents = Ok(vec![]);
        let table = text(&examine(&observed, days(340)), false);
        let guide = include_str!("../../../../docs/how-to/doctor.md");
        assert!(guide.contains(&table), "{table}");
    }

    #[test]
    fn colours_are_beside_the_words() {
        let report = examine(&healthy(), now());
        let plain = text(&report, false);
        assert!(plain.starts_with("No fault, no warning\n\nRESULT"), "{plain}");
        assert_eq!(plain.lines().filter(|line| line.starts_with("ok ")).count(), report.areas.len());
        assert!(text(&report, true).contains("\u{1b}["));
    }
}
