//! The schedule of Karmada, once it is settled.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt;

use crate::rollout::{
    as_written::has_placement, cluster_selection::ClusterSelection, known::Known, placement::duplicated,
    scheduled::Scheduled, scheduler_words,
};
use mczk_api::{
    ZooKeeper,
    contract::{cause::Cause, conditions::Reason, labels::APPLY_AGAIN},
    karmada::resource_binding::{POLICY_NAME_ANNOTATION, ResourceBinding},
    mutation::broken,
    placement::Placement,
};

fn unsettled<T>(reason: Reason, message: impl Into<String>) -> Result<T, Cause> {
    Err(Cause { reason, message: message.into() })
}

/// The time after which the operator asks Karmada again to schedule.
const RESCHEDULE_INTERVAL: Duration = Duration::from_secs(30);
/// Time by which a request has to follow the last schedule. Karmada stores whole seconds.
const REQUEST_LEAD: Duration = Duration::from_secs(1);

/// A request that Karmada schedules again.
pub(super) struct Request {
    /// Its time; `None` if the operator has just asked.
    pub(super) at: Option<Timestamp>,
    /// When the operator decides again whether to ask.
    pub(super) again: Duration,
}

/// The request that Karmada schedules again, if its schedule is another one than the operator needs.
pub(super) fn request(known: &Known<'_>, selection: &ClusterSelection, is_other: bool) -> Option<Request> {
    let binding = known.binding.filter(|_| is_other && must_reschedule(known, selection))?;
    Some(Request { at: next_request(binding, known.asked, known.now), again: RESCHEDULE_INTERVAL })
}

/// The answer to a survey of a webhook that does not know surveys: to Karmada the template is a workload of no replicas, and no
/// cluster gets it.
fn is_of_older_webhook(template: &ZooKeeper, binding: &ResourceBinding) -> bool {
    template.spec.surveys() && binding.spec.replica_requirements.is_some() && binding.spec.replicas.unwrap_or(0) == 0
}

/// The annotation of a survey's template by which Karmada asks the webhook again, which it does only if the template changes.
pub(super) fn asked_again(known: &Known<'_>) -> Option<String> {
    let (template, binding) = (known.template?, known.binding?);
    let last = template.annotations().get(APPLY_AGAIN);
    if !is_of_older_webhook(template, binding) {
        return last.filter(|_| template.spec.surveys()).cloned();
    }
    let time = last.and_then(|time| time.parse::<Timestamp>().ok()).filter(|time| *time <= known.now);
    let is_recent = time.is_some_and(|time| known.now.duration_since(time).unsigned_abs() < RESCHEDULE_INTERVAL);
    last.filter(|_| is_recent).cloned().or_else(|| Some(known.now.to_string()))
}

/// When the operator decides again whether Karmada has to ask the webhook.
pub(super) fn asks_again_after(known: &Known<'_>) -> Option<Duration> {
    is_of_older_webhook(known.template?, known.binding?).then_some(RESCHEDULE_INTERVAL)
}

/// True if Karmada can schedule as the operator needs: it reaches every selected cluster, and leaves none out.
fn must_reschedule(known: &Known<'_>, selection: &ClusterSelection) -> bool {
    selection.clusters().iter().all(|name| known.is_ready(name))
}

/// True if the schedule lacks a cluster that is selected for voters. Without a Work it would never learn of the end.
pub(super) fn lacks(known: &Known<'_>, selection: &ClusterSelection, cluster: &str) -> bool {
    let is_selected = selection.clusters().iter().any(|selected| selected == cluster)
        && selection.voters().is_none_or(|voters| voters.contains_key(cluster));
    let placed = known.binding.iter().flat_map(|binding| &binding.spec.clusters);
    is_selected && !placed.into_iter().any(|placed| placed.name == cluster)
}

/// The time of the next request to schedule; `None` if the operator has just asked.
///
/// Karmada ignores a request that is not after its last schedule (`RescheduleRequired` in its `pkg/util`). So the operator names
/// a later time if its clock is behind. The binding then shows a time ahead, and only `asked`, the time since this process last
/// asked, limits the rate.
fn next_request(binding: &ResourceBinding, asked: Option<Duration>, now: Timestamp) -> Option<Timestamp> {
    let since_recorded = binding.spec.reschedule_triggered_at.as_ref().filter(|last| last.0 <= now);
    let since_recorded = since_recorded.map(|last| now.duration_since(last.0).unsigned_abs());
    let is_recent = asked.into_iter().chain(since_recorded).any(|since| since < RESCHEDULE_INTERVAL);
    let scheduled = binding.status.last_scheduled_time.and_then(|last| last.checked_add(REQUEST_LEAD).ok());
    (!is_recent).then(|| scheduled.map_or(now, |after| after.max(now)))
}

/// The schedule, in the order of Karmada's scheduler, once the binding is settled.
///
/// A binding may only seem settled. Without the registration of the interpreter Karmada writes 0 replicas and no requirements,
/// and reschedules to all clusters with 0 each (observed with Karmada 1.18.2).
///
/// # Errors
/// Why the binding is not settled.
pub(super) fn schedule(
    binding: Option<&ResourceBinding>,
    template: &ZooKeeper,
    policy: &str,
    placement: &Placement,
) -> Result<Vec<Scheduled>, Cause> {
    let Some(binding) = binding else {
        return unsettled(Reason::NoBinding, "Karmada has not created a ResourceBinding for the template yet");
    };
    let uid = template.metadata.uid.as_deref();
    let bound = binding.spec.resource.uid.as_deref();
    let is_own = binding.spec.resource.kind == "ZooKeeper" && uid.is_some() && bound == uid;
    if !is_own && !broken!(BelieveOtherBinding) {
        return unsettled(Reason::ForeignBinding, "The ResourceBinding of this name belongs to another template");
    }
    let claimed = binding.metadata.annotations.as_ref().and_then(|a| a.get(POLICY_NAME_ANNOTATION));
    if claimed.map(String::as_str) != Some(policy) {
        return unsettled(
            Reason::OtherPolicy,
            format!(
                "Karmada binds the template to {} instead of PropagationPolicy {}: exclude the template from the other policy, or delete that policy if it is for nothing else",
                claimed.map_or_else(|| "no policy".to_owned(), |name| format!("policy {name}")),
                policy
            ),
        );
    }
    if template.spec.surveys() {
        if is_of_older_webhook(template, binding) {
            return unsettled(
                Reason::NotInterpreted,
                "An interpreter webhook of an older version has answered Karmada, which so gives the object to no cluster. The operator \
                 has Karmada ask every 30 s. If it lasts, upgrade all pods of mczk",
            );
        }
        let message = "Karmada brings the object to every selected cluster, until its agent has reported which incarnations live there";
        return Err(not_scheduled(binding).unwrap_or_else(|| Cause::new(Reason::Rescheduling, message)));
    }
    if binding.spec.replica_requirements.is_none() || binding.spec.replicas.unwrap_or(0) == 0 {
        return unsettled(
            Reason::NotInterpreted,
            "Karmada has read no replicas from the template yet. If it lasts, the interpreter webhook is not registered or does not answer: run `mczk install` again, or `mczk register --only interpreter` with its flags",
        );
    }
    if binding.spec.replicas != Some(template.spec.replicas) {
        return unsettled(Reason::Rescheduling, "Karmada has not applied the new number of replicas yet");
    }
    if !binding.spec.placement.as_ref().is_some_and(|live| has_placement(live, placement)) {
        return unsettled(Reason::Rescheduling, "Karmada has not applied the new placement yet");
    }
    if let Some(cause) = not_scheduled(binding) {
        return Err(cause);
    }
    if let Some(what) = suspended(binding) {
        let message = format!(
            "{what} of the ResourceBinding is set, so Karmada holds the object back. Remove it, or wait for the client that has set it"
        );
        return unsettled(Reason::NotScheduled, message);
    }
    if binding.status.scheduler_observed_generation != binding.metadata.generation
        || binding.status.last_scheduled_time.is_none()
    {
        return unsettled(Reason::Rescheduling, "Karmada's scheduler has not observed the newest binding yet");
    }
    let sum: i64 = binding.spec.clusters.iter().map(|c| i64::from(c.replicas)).sum();
    let adds_up = if duplicated(Some(placement)) {
        !binding.spec.clusters.is_empty() && binding.spec.clusters.iter().all(|c| c.replicas == template.spec.replicas)
    } else {
        sum == i64::from(template.spec.replicas)
    };
    if !adds_up {
        return unsettled(
            Reason::Rescheduling,
            format!("The replicas of the clusters add up to {sum} instead of {}", template.spec.replicas),
        );
    }
    Ok(binding
        .spec
        .clusters
        .iter()
        .filter(|c| c.replicas > 0)
        .map(|c| Scheduled { cluster: c.name.clone(), replicas: c.replicas })
        .collect())
}

/// The field by which a client, such as a quota or a queue, holds a binding back. No condition of Karmada says so.
fn suspended(binding: &ResourceBinding) -> Option<String> {
    let suspension = binding.spec.suspension.as_ref()?;
    let is = |held: Option<bool>, field: &str| held.unwrap_or(false).then(|| format!("spec.suspension.{field}"));
    is(suspension.scheduling, "scheduling").or_else(|| is(suspension.dispatching, "dispatching"))
}

/// The clusters that get nothing of what changes. The others change meanwhile.
pub(super) fn held_back(known: &Known<'_>) -> Option<Cause> {
    let suspension = known.binding?.spec.suspension.as_ref()?;
    let clusters =
        &suspension.dispatching_on_clusters.as_ref().filter(|on| !on.cluster_names.is_empty())?.cluster_names;
    let message = format!(
        "spec.suspension.dispatchingOnClusters of the ResourceBinding is set, so Karmada brings no change to: {}. Remove the field, \
         or wait for the client that has set it",
        clusters.join(", ")
    );
    Some(Cause { reason: Reason::HeldBack, message })
}

/// Why Karmada finds no clusters.
fn not_scheduled(binding: &ResourceBinding) -> Option<Cause> {
    let condition = binding.status.conditions.iter().find(|c| c.type_ == "Scheduled" && c.status == "False")?;
    Some(Cause::new(Reason::NotScheduled, scheduler_words::explain(&condition.message, &condition.reason)))
}
