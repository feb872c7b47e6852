//! The plan of a decision: status, events and objects.

use crate::rollout::{
    desired,
    events::{Event, EventReason, events},
    known::Known,
    measures::Measures,
    outcome::{Decision, NextStatus, Plan},
    status,
    steps::Findings,
};
use mczk_api::contract::{
    cause::Cause,
    conditions::{ConditionStatus, ConditionType, find},
};

/// The plan of a decision.
pub(super) fn render_outcome(known: &Known<'_>, decision: Decision) -> serde_json::Result<Plan> {
    let Decision { steps, finalizer, status, objects, request, certificate, tombstone, requeue_after } = decision;
    let before = known.object.status.clone().unwrap_or_default();
    let findings = Findings::of(&steps);
    let (status, events) = match status {
        NextStatus::Same => (before, Vec::new()),
        NextStatus::Undecided => {
            let status = status::undecided(known, &findings);
            let events = events(&before, &status);
            (status, events)
        }
        NextStatus::Deleting(cause) => {
            let mut status = status::undecided(known, &findings);
            status.rollout = Some("Deleting".to_owned());
            (status, deleting(known, cause).into_iter().collect())
        }
        NextStatus::Whole(next) => {
            let status = status::status(known, &findings, &next);
            let events = events(&known.status, &status);
            (status, events)
        }
    };
    let ask_again = request.as_ref().map(|request| request.again);
    let plan = Plan {
        finalizer,
        events,
        reschedule: request.and_then(|request| request.at),
        certificate,
        tombstone,
        requeue_after: requeue_after.into_iter().chain(ask_again).min(),
        measures: Measures::of(known, &status),
        steps,
        ..Plan::nothing(status)
    };
    desired::with_objects(known, objects, plan)
}

/// The event of a step of the deletion, if the reason changes.
fn deleting(known: &Known<'_>, cause: Cause) -> Option<Event> {
    let progressing = find(&known.status.conditions, ConditionType::Progressing, ConditionStatus::False);
    let is_published = progressing.is_some_and(|condition| condition.reason == cause.reason.as_str());
    (!is_published).then_some(Event { reason: EventReason::Deleting, message: cause.message })
}
