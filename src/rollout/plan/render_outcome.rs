//! The plan: objects, status and events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
        known::Known,
        missing_secrets::{self, MissingSecrets},
        outcome::{Findings, ObjectWrite, Plan},
        override_rules::Overrides,
        ownership,
        plan::{advance_record::Advance, plan_template::PlannedTemplate},
        quorum::ReportedQuorum,
        services, status,
    },
};

/// The operator does not watch Secrets: it observes a new one when it reconciles again.
pub(super) const AFTER_SECRET: Duration = Duration::from_millis(100);
/// The operator does not watch objects of other owners: it reconciles again to observe that a name is free.
const NAME_CONFLICT_REQUEUE: Duration = Duration::from_secs(10);

/// The plan while an object of another owner has one of the operator's names.
pub(super) fn refuse(known: &Known<'_>, conflict: Blocker) -> Plan {
    let findings = Findings { action_required: Some(conflict), ..Findings::default() };
    let status = status::failed(known, &findings);
    let before = known.object.status.clone().unwrap_or_default();
    Plan { events: events(&before, &status), requeue_after: Some(NAME_CONFLICT_REQUEUE), ..Plan::nothing(status) }
}

/// The plan while the operator cannot write any object.
pub(super) fn without_objects(known: &Known<'_>, findings: &Findings) -> Plan {
    let status = status::status(&status::StatusInputs {
        known,
        records: &known.records,
        findings,
        ensemble: &known.overrides.ensemble,
        cluster_specs: &known.overrides.cluster_specs,
        schedule: &[],
        reports: &known.reports,
        quorum: &ReportedQuorum::default(),
        desired: &BTreeMap::new(),
        old: &known.status,
        incarnation: &known.incarnation.id,
    });
    Plan { events: events(&known.status, &status), ..Plan::nothing(status) }
}

/// The plan that follows from every phase.
pub(super) fn render_outcome(
    known: &Known<'_>,
    selection: &ClusterSelection,
    certificate: Option<Make>,
    planned: PlannedTemplate,
    mut advance: Advance,
) -> serde_json::Result<Plan> {
    let overrides = override_policy(known, selection, &mut advance)?;
    let status = status(known, &advance);
    let unscheduled = advance.findings.unscheduled.as_ref();
    let is_other = unscheduled.is_some_and(|blocker| blocker.reason == Reason::OtherDivision);
    let request = binding::request(known, selection, is_other);
    let ask_again = request.as_ref().map(|request| request.again);
    let missing = MissingSecrets::of(&known.reports, advance.overrides.ensemble.tls.as_ref());
    let apply_again = (!missing.is_empty()).then_some(missing_secrets::INTERVAL);
    let made_secret = advance.tombstone.is_some() || certificate.is_some();
    Ok(Plan {
        events: events(&known.status, &status),
        services: services::services(
            known,
            &known.naming(planned.spec()),
            &ownership::owned_exports(&advance.overrides.owned, &known.reports),
            &missing,
        ),
        overrides,
        policy: ObjectWrite::Apply(planned.policy),
        template: ObjectWrite::Apply(planned.template),
        protect_binding: Some(!is_of_deleted_template(known)),
        requeue_after: if made_secret {
            Some(AFTER_SECRET)
        } else {
            advance.requeue_after.into_iter().chain(ask_again).chain(apply_again).min()
        },
        reschedule: request.and_then(|request| request.at),
        certificate,
        tombstone: advance.tombstone,
        ..Plan::nothing(status)
    })
}

fn owned(known: &Known<'_>, overrides: &Overrides) -> BTreeSet<String> {
    ownership::owned(&known.status, overrides, &known.reports, &known.quorum)
}

/// The OverridePolicy. If it would be too large, the record has not started: the policy stays as it was before this pass.
fn override_policy(
    known: &Known<'_>,
    selection: &ClusterSelection,
    advance: &mut Advance,
) -> serde_json::Result<ObjectWrite<OverridePolicy>> {
    let policy =
        |advance: &Advance| desired::override_policy(known, &advance.overrides, &advance.records, Some(selection));
    advance.overrides.owned = owned(known, &advance.overrides);
    let message = match policy(advance)? {
        Ok(policy) => return Ok(ObjectWrite::Apply(policy)),
        Err(message) => message,
    };
    advance.findings.action_required = Some(Blocker { reason: Reason::TooLarge, message });
    advance.records.clone_from(&known.records);
    let (owned, lost) = (owned(known, &advance.before), advance.overrides.lost.clone());
    advance.overrides = Overrides { owned, lost, ..advance.before.clone() };
    // Another client may have deleted it: it is written again.
    Ok(policy(advance)?.map_or(ObjectWrite::Leave, ObjectWrite::Apply))
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

fn status(known: &Known<'_>, advance: &Advance) -> MultiClusterZooKeeperStatus {
    status::status(&status::StatusInputs {
        known,
        incarnation: &known.incarnation.id,
        old: &known.status,
        records: &advance.records,
        findings: &advance.findings,
        ensemble: &advance.overrides.ensemble,
        cluster_specs: &advance.overrides.cluster_specs,
        schedule: &advance.schedule,
        reports: &known.reports,
        quorum: &advance.quorum,
        desired: &advance.desired,
    })
}
