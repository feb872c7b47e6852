//! The record: moved as far as schedule, recovery and bootstrap allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::rollout::{
    advance::{Draft, Inputs, roll},
    known::Known,
    override_rules::Overrides,
    plan::{
        plan_template::PlannedTemplate, rebootstrap_step::RebootstrapOutcome, recover_overrides::RecoveredOverrides,
    },
    quorum::ReportedQuorum,
    scheduled::Scheduled,
    steps::{PlanStep, StepReport, Steps},
    stuck::until_stuck,
};
use mczk_api::{
    contract::{cause::Cause, tombstone::Tombstone},
    tls::EnsembleTls,
    zookeeper::ZooKeeperSpec,
};

/// Default of `spec.recordHistoryLimit`.
const DEFAULT_RECORD_HISTORY_LIMIT: i32 = 10;

/// Records and OverridePolicy after this pass, and what goes with them.
pub(super) struct Advance {
    pub(super) draft: Draft,
    /// The content of the OverridePolicy before this pass, as it is or as recovered.
    pub(super) before: Overrides,
    pub(super) quorum: ReportedQuorum,
    /// The schedule; empty if it is not settled.
    pub(super) schedule: Vec<Scheduled>,
    /// The spec that each scheduled cluster gets in the end.
    pub(super) desired: BTreeMap<String, ZooKeeperSpec>,
    pub(super) tombstone: Option<Tombstone>,
}

/// Moves the record, if nothing stops it.
pub(super) fn advance_record(
    known: &Known<'_>,
    planned: &PlannedTemplate,
    schedule: Option<Result<Vec<Scheduled>, Cause>>,
    recovery: RecoveredOverrides,
    restart: RebootstrapOutcome,
    tls: Option<EnsembleTls>,
    mut steps: Steps,
) -> serde_json::Result<Advance> {
    let RecoveredOverrides { overrides, quorum, report } = recovery;
    // No cluster moves during a restart of the bootstrap: this incarnation may be over.
    let restarts = steps.add(PlanStep::Bootstrap, restart.report);
    let (schedule, is_settled) = match schedule {
        Some(Ok(schedule)) => {
            let is_settled = !restarts && !steps.add(PlanStep::Schedule, StepReport::Done);
            (schedule, is_settled)
        }
        Some(Err(cause)) if !restarts => (Vec::new(), !steps.add(PlanStep::Schedule, StepReport::Waits(cause))),
        Some(Err(_)) | None => (Vec::new(), false),
    };
    let is_settled = is_settled && steps.cause(PlanStep::Failover).is_none();
    let moves = is_settled && !steps.add(PlanStep::Recovery, report);
    let before = overrides.clone();
    let lost = if restarts || moves { lost_works(known, &schedule) } else { overrides.lost.clone() };
    let mut draft = Draft {
        records: known.records.clone(),
        overrides: Overrides { lost, ..overrides },
        stuck: known.stuck.clone(),
        steps,
        requeue_after: None,
    };
    let mut desired = BTreeMap::new();
    if moves {
        let inputs = Inputs {
            known,
            template: &planned.spec,
            naming: known.naming(&planned.spec),
            quorum: &quorum,
            tls,
            desired: BTreeMap::new(),
        };
        (draft, desired) = roll(inputs, &schedule, draft)?;
    }
    let draft = with_limits(known, draft);
    Ok(Advance { draft, before, quorum, schedule, desired, tombstone: restart.tombstone })
}

/// The draft with the time of the next decision at the latest, and without surplus records.
fn with_limits(known: &Known<'_>, mut draft: Draft) -> Draft {
    // Nothing may happen until then, and a stuck record may be superseded.
    let left = draft.records.last().and_then(|last| until_stuck(last, &known.rollout, known.now));
    let left = left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_secs);
    draft.requeue_after = draft.requeue_after.into_iter().chain(left).min();
    let limit = known.object.spec.record_history_limit.unwrap_or(DEFAULT_RECORD_HISTORY_LIMIT);
    let surplus = draft.records.len().saturating_sub(usize::try_from(limit).unwrap_or(1).max(1));
    draft.records.drain(..surplus);
    draft
}

/// Scheduled clusters whose Work another client deleted. Karmada does not notice.
fn lost_works(known: &Known<'_>, schedule: &[Scheduled]) -> BTreeSet<String> {
    let had_object = |name: &String| known.status.clusters.iter().any(|c| c.name == *name && c.reported);
    let clusters = schedule.iter().map(|scheduled| &scheduled.cluster);
    clusters.filter(|name| had_object(name) && !known.has_work(name)).cloned().collect()
}
