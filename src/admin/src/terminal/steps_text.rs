//! The steps of a plan as text.

use super::columns::{Cell, Tone, table};
use mczk_rules::view::steps::{StepState, StepView};

/// The steps as text: one line each, with a title above them. Nothing without steps.
pub(crate) fn text(steps: &[StepView], coloured: bool) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let rows = steps.iter().map(|step| {
        let tone = match step.state {
            StepState::Done => Tone::Good,
            StepState::Waits => Tone::Unsure,
            StepState::Needs => Tone::Bad,
        };
        let cells = [step.reason.unwrap_or_default(), step.message.as_deref().unwrap_or_default()];
        let cells = cells.map(Cell::plain).into_iter();
        [Cell::title(step.step), Cell::new(step.state.as_str(), tone)].into_iter().chain(cells).collect()
    });
    format!("The operator's steps:\n{}", table(rows, coloured))
}
