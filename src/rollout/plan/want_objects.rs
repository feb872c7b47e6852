//! The objects that go with a record.

use super::AFTER_SECRET;
use crate::{
    contract::conditions::Reason,
    mutation::broken,
    rollout::{
        advance::Draft,
        binding,
        certificates::Make,
        cluster_selection::ClusterSelection,
        known::Known,
        missing_secrets::{self, MissingSecrets},
        outcome::{Content, Decision, NextState, NextStatus, ObjectWrite, Objects, Propagation},
        ownership,
        plan::{advance_record::Advance, plan_template::PlannedTemplate},
        services,
        steps::PlanStep,
    },
};

/// What the operator wants of its objects, and when it decides again.
pub(super) fn want_objects(
    known: &Known<'_>,
    selection: ClusterSelection,
    certificate: Option<Make>,
    planned: PlannedTemplate,
    advance: Advance,
) -> Decision {
    let Advance { draft, spec, quorum, schedule, desired, tombstone } = advance;
    let Draft { records, overrides, steps, requeue_after, .. } = draft;
    let unscheduled = steps.cause(PlanStep::Schedule);
    let is_other = unscheduled.is_some_and(|cause| cause.reason == Reason::OtherDivision);
    let missing = MissingSecrets::of(&known.reports, overrides.ensemble.tls.as_ref());
    let apply_again = (!missing.is_empty()).then_some(missing_secrets::INTERVAL);
    let makes_secret = tombstone.is_some() || certificate.is_some();
    let owned = ownership::owned_exports(&overrides.owned, &known.reports);
    let content = |spec| Content { spec, records: records.clone(), selection: Some(selection.clone()) };
    Decision {
        request: binding::request(known, &selection, is_other),
        objects: Objects {
            overrides: spec.map_or(ObjectWrite::Leave, |spec| ObjectWrite::Apply(content(spec))),
            services: services::services(known, &known.naming(&planned.spec), &owned, &missing),
            policy: ObjectWrite::Apply(Propagation { selection, releases: false }),
            template: ObjectWrite::Apply(planned.spec),
            protect_binding: Some(!is_of_deleted_template(known)),
        },
        requeue_after: if makes_secret {
            Some(AFTER_SECRET)
        } else {
            requeue_after.into_iter().chain(apply_again).min()
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
            })),
        )
    }
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
