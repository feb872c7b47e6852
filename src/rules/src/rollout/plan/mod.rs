//! Everything that the operator writes next, from what it observes and the time.
//!
//! The functions here are total, deterministic and without a client. [`decide`] is the table of contents; each phase is a
//! file of its own, and [`render_outcome`] makes status and objects of the decision. The operator writes the status first, so
//! that it remembers a record before it acts on it. [`forecast`] skips the phases that wait.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt;

use crate::rollout::{
    certificates,
    cluster_selection::Survey,
    failover, fence,
    known::Known,
    measures::Measures,
    name_conflict,
    object_change::writes,
    outcome::{Decision, NextState, NextStatus},
    override_rules::Overrides,
    status,
    steps::{Findings, PlanStep, StepReport, Steps},
    teardown,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::OPERATOR_FINALIZER},
    mutation::broken,
};

mod advance_record;
mod choose_clusters;
pub mod forecast;
mod other_division;
mod plan_certificates;
mod plan_template;
mod rebootstrap_step;
mod recover_overrides;
mod render_outcome;
mod reserved_namespace;
pub mod restart_order;
mod settle_schedule;
mod want_objects;

pub use crate::rollout::{
    observed::Observed,
    outcome::{Finalizer, ObjectWrite, Plan},
};
/// The operator does not watch objects of other owners: it reconciles again to observe that a name is free.
const NAME_CONFLICT_REQUEUE: Duration = Duration::from_secs(10);

/// Everything that the operator writes next.
#[must_use]
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let known = Known::of(observed, now);
    let writes_objects = |plan: &Plan| writes(observed, plan).map(|writes| !writes.is_empty());
    decide(&known)
        .and_then(|decision| render_outcome::render_outcome(&known, decision))
        .and_then(|plan| fence::in_term(&known, plan, writes_objects))
        .unwrap_or_else(|error| {
            let cause = Cause::new(Reason::Internal, format!("The operator cannot decide: {error}"));
            let steps = Steps::begin(known.failure).with(PlanStep::Decision, StepReport::Needs(cause));
            let status = status::undecided(&known, &Findings::of(&steps));
            Plan { measures: Measures::of(&known, &status), steps, ..Plan::nothing(status) }
        })
}

fn decide(known: &Known<'_>) -> serde_json::Result<Decision> {
    let mut steps = Steps::begin(known.failure);
    if let Some(ending) = &known.ending {
        return teardown::tear_down(known, ending, steps);
    }
    if !known.object.finalizers().iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        return Ok(Decision::finalizer(Steps::default(), Finalizer::Add));
    }
    let refused = |steps| {
        let requeue_after = Some(NAME_CONFLICT_REQUEUE);
        Decision { requeue_after, ..Decision::without_objects(steps, NextStatus::Undecided) }
    };
    if steps.add(PlanStep::Namespace, StepReport::needs(reserved_namespace::reserved_namespace(known))) {
        return Ok(refused(steps));
    }
    let foreign = name_conflict::any_conflict(known).filter(|_| !broken!(AdoptForeign));
    if steps.add(PlanStep::Names, StepReport::needs(foreign)) {
        return Ok(refused(steps));
    }

    steps.add(PlanStep::FormerIncarnations, StepReport::needs(known.unclear_declaration()));

    let bootstrap = rebootstrap_step::decide(known)?;
    let mut failover = failover::decide(known, bootstrap.template_may_change);
    let without_objects = |steps: Steps| {
        let Overrides { ensemble, cluster_specs, .. } = known.overrides.clone();
        let (records, failover) = (known.records.clone(), failover.clone());
        let next = NextState { records, ensemble, cluster_specs, failover, ..NextState::default() };
        Decision::without_objects(steps, NextStatus::Whole(Box::new(next)))
    };

    if let Some(adopted) = known.adopted_elsewhere() {
        steps.add(PlanStep::FormerIncarnations, StepReport::Needs(adopted));
        return Ok(Decision::without_objects(steps.with_record(&known.records), NextStatus::Undecided));
    }

    let choice = choose_clusters::choose_clusters(known, &failover, bootstrap.template_may_change)?;
    let is_unscheduled = steps.add(PlanStep::Selection, choice.report);
    let Some(selection) = choice.selection else { return Ok(without_objects(steps.with_record(&known.records))) };

    let certificates = plan_certificates::plan_certificates(known);
    steps.add(PlanStep::Authority, StepReport::waits(certificates.replacing.clone()));
    let missing = certificates.missing.then(certificates::waiting_for_certificates);
    if steps.add(PlanStep::Certificates, StepReport::waits(missing)) {
        let certificate = certificates.make;
        let requeue_after = certificate.is_some().then_some(plan_certificates::AFTER_SECRET);
        return Ok(Decision { certificate, requeue_after, ..without_objects(steps.with_record(&known.records)) });
    }

    let template = plan_template::plan_template(known, &selection, &certificates, bootstrap.template_may_change)?;
    steps.add(PlanStep::Template, template.report(choice.waits));
    let schedule = (!is_unscheduled).then(|| settle_schedule::settle_schedule(known, &selection, template.is_written));
    let settled = schedule.as_ref().and_then(|schedule| schedule.as_deref().ok());
    let second_look = failover::second_look(known, &mut failover, settled.is_some());
    steps.add(PlanStep::Failover, StepReport::waits(second_look));
    let survey = known.survey(&selection);
    // Before there is a schedule, it is what everything waits for. A survey is how Karmada makes one.
    if survey.is_open() && (selection.survey == Survey::Open || settled.is_some()) {
        steps.add(PlanStep::FormerIncarnations, survey);
    }
    let tls = certificates.for_servers(template.written());
    let mut recovery = recover_overrides::recover_overrides(known, &selection, &template, settled, tls.as_ref())?;
    let mut restart = bootstrap.apply(known, &mut recovery.overrides)?;
    restart.tombstone = restart.tombstone.or_else(|| known.tombstone_of_declared_over(&selection));
    let advance = advance_record::advance_record(known, &template, schedule, recovery, restart, tls, steps)?;
    Ok(want_objects::want_objects(known, (selection, failover), certificates.make, template, advance))
}
