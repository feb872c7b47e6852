//! The steps of a plan, what each of them reports, and what follows from all reports.

use crate::rollout::record;
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, described::described},
    multiclusterzookeeper::Record,
};

described! {
    /// A step of the plan: what has to hold before the rollout moves on.
    ///
    /// The steps stand in the order in which they explain an ensemble: the first one that is not done gives
    /// `Progressing` its reason, except `Template`, whose message is appended.
    PlanStep;

    /// The last plan was carried out.
    Apply = "apply";
    /// The operator can decide.
    Decision = "decision";
    /// Karmada propagates objects of the namespace.
    Namespace = "namespace";
    /// No object of another owner has a name of the operator's objects.
    Names = "names";
    /// Deletion: every agent has stopped its servers for good.
    Decommission = "decommission";
    /// Deletion: Karmada may delete the objects in the member clusters.
    Release = "release";
    /// Deletion: the template and its exports are gone.
    DeleteTemplate = "delete template";
    /// Deletion: everything else is gone.
    DeleteRest = "delete rest";
    /// The OverridePolicy is not too large.
    Size = "size";
    /// No server list is lost before the first server starts.
    LostList = "lost server list";
    /// No other incarnation of the ensemble's name lives, or the user has said what becomes of it.
    FormerIncarnations = "incarnation";
    /// Every server has an id.
    ServerIds = "server ids";
    /// Every cluster with observers has a voter.
    Observers = "observers";
    /// A bootstrap that cannot form a quorum is over.
    Bootstrap = "bootstrap";
    /// The first certificates of the quorum exist.
    Certificates = "certificates";
    /// The server list is known.
    Recovery = "recovery";
    /// Every cluster reaches every other one before the first server starts.
    Network = "network";
    /// Every cluster of the record is complete, or the next one may start.
    Clusters = "clusters";
    /// The server list is the one that the ensemble should have.
    ServerList = "server list";
    /// The server list of a bootstrap follows the schedule.
    FirstQuorum = "first quorum";
    /// The operator has selected clusters.
    Selection = "selection";
    /// Karmada's schedule is settled, and as the operator needs it.
    Schedule = "schedule";
    /// A move of voters without a request has been looked at twice.
    Failover = "failover";
    /// The last record is rolled out.
    Record = "record";
    /// The authority of the quorum is the newest one.
    Authority = "authority";
    /// The template follows the newest spec.
    Template = "template";
}

/// What a step reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepReport {
    /// The step holds nothing up.
    Done,
    /// The step waits: it continues once its cause is gone, which may need the user.
    Waits(Cause),
    /// The step waits for the user: `Ready` has the reason too.
    Needs(Cause),
}

impl StepReport {
    /// A step that waits, if there is a cause.
    pub fn waits(cause: Option<Cause>) -> Self {
        cause.map_or(Self::Done, Self::Waits)
    }

    /// A step that needs the user, if there is a cause.
    pub(super) fn needs(cause: Option<Cause>) -> Self {
        cause.map_or(Self::Done, Self::Needs)
    }

    /// True if the step holds something up.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self, Self::Done)
    }

    /// Why the step is not done.
    #[must_use]
    pub const fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Done => None,
            Self::Waits(cause) | Self::Needs(cause) => Some(cause),
        }
    }
}

/// The reports of a plan, in the order of its steps. A step that the plan did not reach has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(Vec<(PlanStep, StepReport)>);

impl Steps {
    /// The first report: whether the last plan was carried out.
    #[must_use]
    pub fn begin(failure: Option<&str>) -> Self {
        let failure = failure.map(|failure| Cause::new(Reason::ApplyFailed, failure));
        Self::default().with(PlanStep::Apply, StepReport::waits(failure))
    }

    /// The reports with that of the last record.
    pub(super) fn with_record(self, records: &[Record]) -> Self {
        let unfinished = record::unfinished(records, self.cause(PlanStep::Template));
        self.with(PlanStep::Record, StepReport::waits(unfinished))
    }

    /// Adds the report of a step, in place of an earlier one, and returns true if the step is open.
    pub fn add(&mut self, step: PlanStep, report: StepReport) -> bool {
        let is_open = report.is_open();
        self.0.retain(|(earlier, _)| *earlier != step);
        self.0.push((step, report));
        is_open
    }

    /// The same, for a plan that ends with this step.
    #[must_use]
    pub fn with(mut self, step: PlanStep, report: StepReport) -> Self {
        self.add(step, report);
        self
    }

    /// Every report.
    pub fn iter(&self) -> impl Iterator<Item = &(PlanStep, StepReport)> {
        self.0.iter()
    }

    /// Why a step is not done.
    #[must_use]
    pub fn cause(&self, step: PlanStep) -> Option<&Cause> {
        self.0.iter().find(|(reported, _)| *reported == step)?.1.cause()
    }
}

/// What follows from the reports of all steps, for the conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Why the ensemble is not as declared: the first step that is not done.
    pub(crate) progressing: Option<Cause>,
    /// What the user must do: the first step that needs the user.
    pub(crate) needs: Option<Cause>,
    /// Why the operator cannot use the schedule.
    pub(crate) unscheduled: Option<Cause>,
    /// Why a newer change of `spec` waits.
    pub(crate) newer_change: Option<Cause>,
    /// What the rollout does; `None` once the last record is rolled out and no newer change waits for that.
    pub(crate) unfinished: Option<Cause>,
}

impl Findings {
    /// Folds the reports, in the order of [`PlanStep`].
    pub(crate) fn of(steps: &Steps) -> Self {
        let mut open: Vec<_> =
            steps.iter().filter_map(|(step, report)| Some((*step, report, report.cause()?))).collect();
        open.sort_by_key(|(step, ..)| *step);
        let mut findings = Self::default();
        for (step, report, cause) in open {
            let progressing = match step {
                PlanStep::Template => {
                    findings.newer_change = Some(cause.clone());
                    continue;
                }
                PlanStep::Selection | PlanStep::Schedule => {
                    findings.unscheduled.get_or_insert_with(|| cause.clone());
                    Cause::new(Reason::WaitingForSchedule, format!("Waiting for a schedule: {}", cause.message))
                }
                PlanStep::Record => findings.unfinished.insert(cause.clone()).clone(),
                _ => cause.clone(),
            };
            findings.progressing.get_or_insert(progressing);
            if let StepReport::Needs(cause) = report {
                findings.needs.get_or_insert_with(|| cause.clone());
            }
        }
        findings
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    const WAITS: fn(Cause) -> StepReport = StepReport::Waits;
    const NEEDS: fn(Cause) -> StepReport = StepReport::Needs;

    type Reported = (PlanStep, fn(Cause) -> StepReport, Reason);

    #[rstest]
    #[case::nothing(&[], None, None)]
    #[case::last_in_time_first_in_order(
        &[(PlanStep::ServerList, WAITS, Reason::NoQuorum), (PlanStep::Clusters, WAITS, Reason::Deploying)],
        Some(Reason::Deploying), None
    )]
    #[case::a_pause_does_not_hide_what_the_user_must_do(
        &[(PlanStep::Observers, NEEDS, Reason::ObserversWithoutVoter), (PlanStep::Clusters, WAITS, Reason::Paused)],
        Some(Reason::ObserversWithoutVoter), Some(Reason::ObserversWithoutVoter)
    )]
    #[case::a_failed_write_first(
        &[(PlanStep::Apply, WAITS, Reason::ApplyFailed), (PlanStep::Size, NEEDS, Reason::TooLarge)],
        Some(Reason::ApplyFailed), Some(Reason::TooLarge)
    )]
    #[case::a_schedule_waits(&[(PlanStep::Schedule, WAITS, Reason::NoBinding)], Some(Reason::WaitingForSchedule), None)]
    #[case::the_record_before_the_authority(
        &[(PlanStep::Authority, WAITS, Reason::ReplacingAuthority), (PlanStep::Record, WAITS, Reason::Deploying)],
        Some(Reason::Deploying), None
    )]
    #[case::a_newer_change_explains_nothing_alone(&[(PlanStep::Template, WAITS, Reason::Deploying)], None, None)]
    fn the_first_open_step_explains(
        #[case] reported: &[Reported],
        #[case] progressing: Option<Reason>,
        #[case] needs: Option<Reason>,
    ) {
        let add = |steps: Steps, (step, report, reason): &Reported| steps.with(*step, report(Cause::new(*reason, "m")));
        let findings = Findings::of(&reported.iter().fold(Steps::default(), add));
        assert_eq!(findings.progressing.map(|cause| cause.reason), progressing);
        assert_eq!(findings.needs.map(|cause| cause.reason), needs);
        let is_template = |(step, ..): &Reported| *step == PlanStep::Template;
        assert_eq!(findings.newer_change.is_some(), reported.iter().any(is_template));
    }

    #[test]
    fn a_later_report_of_a_step_replaces_the_earlier_one() {
        let steps = Steps::default().with(PlanStep::Certificates, StepReport::Done);
        let waits = Cause::new(Reason::Certificates, "m");
        let steps = steps.with(PlanStep::Names, StepReport::Done).with(PlanStep::Certificates, WAITS(waits.clone()));
        assert_eq!(steps.cause(PlanStep::Certificates), Some(&waits));
        assert_eq!(steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [PlanStep::Names, PlanStep::Certificates]);
    }
}
