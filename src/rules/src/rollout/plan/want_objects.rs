//! The objects that go with a record.

use crate::rollout::{
    advance::Draft,
    binding,
    certificates::Make,
    cluster_selection::ClusterSelection,
    failover::decision::FailoverDecision,
    known::Known,
    missing_secrets::{self, MissingSecrets},
    outcome::{Content, Decision, NextState, NextStatus, ObjectWrite, Objects, Propagation},
    override_rules::{self, Overrides},
    ownership,
    plan::{advance_record::Advance, plan_certificates::AFTER_SECRET, plan_template::PlannedTemplate},
    services,
    steps::{PlanStep, StepReport},
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason},
    karmada::policy::OverridePolicySpec,
    mutation::broken,
};

/// What the operator wants of its objects, and when it decides again.
pub(super) fn want_objects(
    known: &Known<'_>,
    (selection, failover): (ClusterSelection, FailoverDecision),
    certificate: Option<Make>,
    planned: PlannedTemplate,
    advance: Advance,
) -> Decision {
    let Advance { draft, before, quorum, schedule, desired, tombstone } = advance;
    let (draft, spec) = with_content(known, draft, before);
    let Draft { records, overrides, steps, requeue_after, .. } = draft;
    let steps = steps.with_record(&records);
    let unscheduled = steps.cause(PlanStep::Schedule);
    let is_other = unscheduled.is_some_and(|cause| cause.reason == Reason::OtherDivision);
    let missing = MissingSecrets::of(&known.reports, overrides.ensemble.tls.as_ref());
    let apply_again = (!missing.is_empty()).then_some(missing_secrets::INTERVAL);
    let makes_secret = tombstone.is_some() || certificate.is_some();
    let owned = ownership::owned_exports(&overrides.owned, &known.reports);
    let begins = overrides.preflight.is_some() || !overrides.ensemble.servers.is_empty();
    let mut services = services::services(known, &known.naming(&planned.spec), (&owned, begins), &missing);
    services.extend(services::spare_check(known, &planned.spec, &selection));
    let mut failover = failover;
    failover.moved.clone_from(&selection.moved);
    let content = |spec| Content { spec, records: records.clone(), selection: Some(selection.clone()) };
    Decision {
        request: binding::request(known, &selection, is_other),
        objects: Objects {
            overrides: spec.map_or(ObjectWrite::Leave, |spec| ObjectWrite::Apply(content(spec))),
            services,
            policy: ObjectWrite::Apply(Propagation { selection, releases: false }),
            template: ObjectWrite::Apply(planned.spec),
            protect_binding: Some(!is_of_deleted_template(known)),
        },
        requeue_after: if makes_secret {
            Some(AFTER_SECRET)
        } else {
            let (asks_again, requeue_failover) = (binding::asks_again_after(known), failover.requeue_after());
            requeue_after.into_iter().chain(apply_again).chain(asks_again).chain(requeue_failover).min()
        },
        certificate,
        tombstone,
        ..Decision::without_objects(
            steps,
            NextStatus::Whole(Box::new(NextState {
                records,
                ensemble: overrides.ensemble,
                cluster_specs: overrides.cluster_specs,
                schedule,
                quorum,
                desired,
                failover,
            })),
        )
    }
}

/// The draft, and the spec of its OverridePolicy. If that would be too large, the record has not started: the policy stays as
/// it was `before` this pass. `None` leaves the live one.
fn with_content(known: &Known<'_>, draft: Draft, before: Overrides) -> (Draft, Option<OverridePolicySpec>) {
    let content = |overrides: Overrides| {
        let owned = ownership::owned(&known.status, &overrides, &known.reports, &known.quorum);
        let overrides = Overrides { owned, ..overrides };
        (override_rules::write(&known.namespace, &known.name, &overrides), overrides)
    };
    let (spec, overrides) = content(draft.overrides);
    let error = match spec {
        Ok(spec) => {
            let steps = draft.steps.with(PlanStep::Size, StepReport::Done);
            return (Draft { overrides, steps, ..draft }, Some(spec));
        }
        Err(error) => error,
    };
    let cause = Cause::new(Reason::TooLarge, error.to_string());
    let steps = draft.steps.with(PlanStep::Size, StepReport::Needs(cause));
    let (spec, overrides) = content(Overrides { lost: overrides.lost, ..before });
    // Another client may have deleted it: it is written again.
    (Draft { overrides, steps, records: known.records.clone(), ..draft }, spec.ok())
}

/// True if the binding is that of a template that another client deleted. Karmada binds the new template only once the garbage
/// collector has removed that binding, which its deletion protection would prevent.
fn is_of_deleted_template(known: &Known<'_>) -> bool {
    let template = known.template.and_then(|template| template.metadata.uid.as_ref());
    !broken!(KeepProtection)
        && known.binding.is_some_and(|binding| {
            let resource = &binding.spec.resource;
            resource.kind == "ZooKeeper" && resource.uid.is_some() && resource.uid.as_ref() != template
        })
}
