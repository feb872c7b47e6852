//! The steps of a plan, as users see them.

use serde::Serialize;

use super::findings::action;
use crate::rollout::steps::{PlanStep, StepReport, Steps};

/// One step of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Name of the step.
    pub step: &'static str,
    /// What the step reports.
    pub state: StepState,
    /// Reason of a condition, unless the step is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// State and cause, unless the step is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the user does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// What a step reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StepState {
    /// The step holds nothing up.
    Done,
    /// The step waits: it continues once its cause is gone, which may need the user.
    Waits,
    /// The step waits for the user: `Ready` has the reason too.
    Needs,
}

impl StepState {
    /// The word that users read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waits => "waits",
            Self::Needs => "needs you",
        }
    }
}

/// Every step that the plan reached, in its order.
#[must_use]
pub fn view(steps: &Steps) -> Vec<StepView> {
    let view = |(step, report): &(PlanStep, StepReport)| {
        let cause = report.cause();
        StepView {
            step: step.as_str(),
            state: match report {
                StepReport::Done => StepState::Done,
                StepReport::Waits(_) => StepState::Waits,
                StepReport::Needs(_) => StepState::Needs,
            },
            reason: cause.map(|cause| cause.reason.as_str()),
            message: cause.map(|cause| cause.message.clone()),
            action: cause.and_then(|cause| action(cause.reason.remedy())),
        }
    };
    steps.iter().map(view).collect()
}
