//! The plan: objects, status and events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::{karmada::policy::OverridePolicy, multiclusterzookeeper::MultiClusterZooKeeperStatus},
    contract::conditions::Reason,
    mutation::broken,
    rollout::{
        binding,
        blocker::Blocker,
        certificates::Make,
        cluster_selection::ClusterSelection,
        desired,
        events::events,
        missing_secrets::{self, MissingSecrets},
        observed::Observed,
        outcome::{Finalizer, Findings, ObjectWrite, Plan},
        override_rules::Overrides,
        ownership,
        plan::{
            advance_record::Advance, other_division::must_reschedule, plan_template::PlannedTemplate,
            recover_state::State,
        },
        quorum::ReportedQuorum,
        services, status,
    },
};

/// The operator does not watch Secrets: it observes a new one when it reconciles again.
pub(super) const AFTER_SECRET: Duration = Duration::from_millis(100);
/// The operator does not watch objects of other owners: it reconciles again to observe that a name is free.
const NAME_CONFLICT_REQUEUE: Duration = Duration::from_secs(10);

/// The plan while an object of another owner has one of the operator's names.
pub(super) fn refuse(observed: &Observed, conflict: Blocker, now: Timestamp) -> Plan {
    let findings = Findings { action_required: Some(conflict), ..Findings::default() };
    let status = status::failed(observed, &findings, now);
    let before = observed.object.status.clone().unwrap_or_default();
    Plan { events: events(&before, &status), requeue_after: Some(NAME_CONFLICT_REQUEUE), ..Plan::nothing(status) }
}

/// The plan while the operator cannot write any object.
pub(super) fn without_objects(state: &State<'_>, findings: &Findings) -> Plan {
    let status = status::status(
        &status::StatusInputs {
            observed: state.observed,
            incarnation: &state.incarnation.id,
            old: &state.status,
            records: &state.records,
            findings,
            ensemble: &state.overrides.ensemble,
            cluster_specs: &state.overrides.cluster_specs,
            schedule: &[],
            reports: &state.reports,
            quorum: &ReportedQuorum::default(),
            desired: &BTreeMap::new(),
        },
        state.now,
    );
    Plan { events: events(&state.status, &status), ..Plan::nothing(status) }
}

/// The plan that follows from every phase.
pub(super) fn render_outcome(
    state: &State<'_>,
    selection: &ClusterSelection,
    certificate: Option<Make>,
    planned: PlannedTemplate,
    mut advance: Advance,
) -> serde_json::Result<Plan> {
    let overrides = override_policy(state, selection, &mut advance)?;
    let status = status(state, &advance);
    let must_reschedule = must_reschedule(state, selection, advance.findings.unscheduled.as_ref());
    let binding = state.observed.binding.as_ref().filter(|_| must_reschedule);
    let reschedule = binding.and_then(|binding| binding::next_request(binding, state.observed.asked, state.now));
    let ask_again = must_reschedule.then_some(binding::RESCHEDULE_INTERVAL);
    let missing = MissingSecrets::of(&state.reports, advance.overrides.ensemble.tls.as_ref());
    let apply_again = (!missing.is_empty()).then_some(missing_secrets::INTERVAL);
    let made_secret = advance.tombstone.is_some() || certificate.is_some();
    Ok(Plan {
        later_term: None,
        claim: None,
        finalizer: Finalizer::Keep,
        events: events(&state.status, &status),
        services: services::services(
            state.observed,
            &state.naming(planned.spec()),
            &ownership::owned_exports(&advance.overrides.owned, &state.reports),
            &missing,
            state.now,
        ),
        status,
        overrides,
        policy: ObjectWrite::Apply(planned.policy),
        template: ObjectWrite::Apply(planned.template),
        protect_binding: Some(!is_of_deleted_template(state.observed)),
        requeue_after: if made_secret {
            Some(AFTER_SECRET)
        } else {
            advance.requeue_after.into_iter().chain(ask_again).chain(apply_again).min()
        },
        reschedule,
        certificate,
        tombstone: advance.tombstone,
    })
}

fn owned(state: &State<'_>, overrides: &Overrides) -> BTreeSet<String> {
    ownership::owned(&state.status, overrides, &state.reports, &state.quorum)
}

/// The OverridePolicy. If it would be too large, the record has not started: the policy stays as it was before this pass.
fn override_policy(
    state: &State<'_>,
    selection: &ClusterSelection,
    advance: &mut Advance,
) -> serde_json::Result<ObjectWrite<OverridePolicy>> {
    let policy = |advance: &Advance| {
        desired::override_policy(state.observed, &advance.overrides, &advance.records, Some(selection))
    };
    advance.overrides.owned = owned(state, &advance.overrides);
    let message = match policy(advance)? {
        Ok(policy) => return Ok(ObjectWrite::Apply(policy)),
        Err(message) => message,
    };
    advance.findings.action_required = Some(Blocker { reason: Reason::TooLarge, message });
    advance.records.clone_from(&state.records);
    let (owned, lost) = (owned(state, &advance.before), advance.overrides.lost.clone());
    advance.overrides = Overrides { owned, lost, ..advance.before.clone() };
    // Another client may have deleted it: it is written again.
    Ok(policy(advance)?.map_or(ObjectWrite::Leave, ObjectWrite::Apply))
}

/// True if the binding is that of a template that another client deleted. Karmada binds the new template only once the garbage
/// collector has removed that binding, which its deletion protection would prevent.
fn is_of_deleted_template(observed: &Observed) -> bool {
    let template = observed.template.as_ref().and_then(|template| template.metadata.uid.as_ref());
    !broken!(KeepProtection)
        && observed.binding.as_ref().is_some_and(|binding| {
            let resource = &binding.spec.resource;
            resource.kind == "ZooKeeper" && resource.uid.is_some() && resource.uid.as_ref() != template
        })
}

fn status(state: &State<'_>, advance: &Advance) -> MultiClusterZooKeeperStatus {
    status::status(
        &status::StatusInputs {
            observed: state.observed,
            incarnation: &state.incarnation.id,
            old: &state.status,
            records: &advance.records,
            findings: &advance.findings,
            ensemble: &advance.overrides.ensemble,
            cluster_specs: &advance.overrides.cluster_specs,
            schedule: &advance.schedule,
            reports: &state.reports,
            quorum: &advance.quorum,
            desired: &advance.desired,
        },
        state.now,
    )
}
