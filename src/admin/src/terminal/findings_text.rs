//! Findings as text.

use super::columns::{Cell, Tone, table};
use mczk_rules::view::findings::Finding;

/// The findings as text: one paragraph each, with the subject once.
pub(crate) fn text(findings: &[Finding], coloured: bool) -> String {
    let rows = findings.iter().flat_map(|finding| {
        let tone = if finding.advice { Tone::Unsure } else { Tone::Bad };
        let head = [finding.condition.as_deref(), finding.reason.as_deref()];
        let head = head.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let first = vec![Cell::title(&finding.subject), Cell::new(head, tone), Cell::plain(&finding.message)];
        let action = finding.action.as_ref();
        let action = action.map(|action| vec![Cell::default(), Cell::default(), Cell::plain(format!("-> {action}"))]);
        [Some(first), action].into_iter().flatten()
    });
    table(rows, coloured)
}
