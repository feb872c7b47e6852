//! Everything that the operator writes next, from what it observes and the time.
//!
//! The functions here are total, deterministic and without a client. [`decide`] is the table of contents; each phase is a
//! file of its own. The operator writes the status first, so that it remembers a record before it acts on it. [`forecast`]
//! skips the phases that wait.

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    contract::{conditions::Reason, labels::OPERATOR_FINALIZER},
    mutation::broken,
    rollout::{
        blocker::Blocker, certificates, fence, known::Known, measures::Measures, name_conflict, object_change::writes,
        outcome::Findings, status, teardown,
    },
};

mod advance_record;
mod choose_clusters;
pub(crate) mod forecast;
mod other_division;
mod plan_certificates;
mod plan_template;
mod rebootstrap_step;
mod recover_overrides;
mod render_outcome;
mod reserved_namespace;
mod settle_schedule;

pub use crate::rollout::{
    observed::Observed,
    outcome::{Finalizer, ObjectWrite, Plan},
};

/// Everything that the operator writes next.
#[must_use]
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let known = Known::of(observed, now);
    let writes_objects = |plan: &Plan| writes(observed, plan).map(|writes| !writes.is_empty());
    let plan = decide(&known).and_then(|plan| fence::in_term(&known, plan, writes_objects));
    let mut plan = plan.unwrap_or_else(|error| {
        let blocker = Blocker { reason: Reason::Internal, message: format!("The operator cannot decide: {error}") };
        let findings = Findings { action_required: Some(blocker), ..Findings::default() };
        Plan::nothing(status::failed(&known, &findings))
    });
    plan.measures = Measures::of(&known, &plan.status);
    plan
}

fn decide(known: &Known<'_>) -> serde_json::Result<Plan> {
    let object = known.object;
    if let Some(ending) = &known.ending {
        return teardown::plan(known, ending);
    }
    if !object.finalizers().iter().any(|finalizer| finalizer == OPERATOR_FINALIZER) {
        let status = object.status.clone().unwrap_or_default();
        return Ok(Plan { finalizer: Finalizer::Add, ..Plan::nothing(status) });
    }
    if let Some(reserved) = reserved_namespace::reserved_namespace(known) {
        return Ok(render_outcome::refuse(known, reserved));
    }
    let foreign = [name_conflict::foreign(known), name_conflict::foreign_services(known)].concat();
    if let Some(conflict) = name_conflict::conflict(known, &foreign).filter(|_| !broken!(AdoptForeign)) {
        return Ok(render_outcome::refuse(known, conflict));
    }

    let bootstrap = rebootstrap_step::decide(known)?;
    let choice = choose_clusters::choose_clusters(known, bootstrap.template_may_change)?;
    let mut findings = Findings { unscheduled: choice.unscheduled, ..Findings::default() };
    let Some(selection) = choice.selection else {
        return Ok(render_outcome::without_objects(known, &findings));
    };

    let certificates = plan_certificates::plan_certificates(known);
    findings.replacing.clone_from(&certificates.replacing);
    if certificates.missing {
        findings.waiting = Some(certificates::being_made());
        let certificate = certificates.make;
        return Ok(Plan {
            requeue_after: certificate.is_some().then_some(render_outcome::AFTER_SECRET),
            certificate,
            ..render_outcome::without_objects(known, &findings)
        });
    }

    let template = plan_template::plan_template(known, &selection, &certificates, bootstrap.template_may_change)?;
    findings.newer_change = choice.waits || template.newer_waits;
    let schedule = settle_schedule::settle_schedule(known, &selection, &template, findings.unscheduled.as_ref());
    let tls = certificates.for_servers(template.written());
    let mut recovery = recover_overrides::recover_overrides(known, &selection, &template, &schedule, tls.as_ref())?;
    let restart = bootstrap.apply(known, &mut recovery.overrides)?;
    let advance = advance_record::advance_record(known, &template, schedule, recovery, restart, findings, tls)?;
    render_outcome::render_outcome(known, &selection, certificates.make, template, advance)
}
