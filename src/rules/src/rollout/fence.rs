//! The fence between a leader and the leaders before it.
//!
//! A leader writes the number of its term into the OverridePolicy before everything else of an ensemble. A former leader may not
//! know yet that its term is over. What it planned before that write carries an older version of the OverridePolicy, so the API
//! server refuses it. What it plans later shows a later term, and it writes nothing.

use kube_core::ResourceExt;

use crate::rollout::{
    known::Known,
    objects,
    outcome::{Finalizer, Plan},
};
use mczk_api::{contract::labels::TERM, karmada::policy::OverridePolicy, mutation::broken, term};

/// The term in which a leader last wrote the OverridePolicy; 0 if it shows none. This leader's `own` term always counts:
/// otherwise a leader beyond the bound would claim the ensemble again and again, and do nothing else.
fn written_term(policy: &OverridePolicy, own: i32) -> i32 {
    let shown = policy.annotations().get(TERM).and_then(|text| text.parse().ok()).unwrap_or(0);
    if shown == own { own } else { term::counted(shown) }
}

/// The plan that a leader may carry out in its term: nothing if a later leader has written, and the claim alone if the plan
/// writes anything before this leader has claimed the ensemble. `writes_objects` tells that of the objects.
pub(super) fn in_term(
    known: &Known<'_>,
    plan: Plan,
    writes_objects: impl FnOnce(&Plan) -> serde_json::Result<bool>,
) -> serde_json::Result<Plan> {
    let live = known.override_policy.filter(|live| objects::is_ours(&live.metadata, known.object));
    let (Some(own), Some(live)) = (known.term, live) else { return Ok(plan) };
    let written = written_term(live, own);
    let unchanged = || Plan::nothing(known.object.status.clone().unwrap_or_default());
    if written > own && !broken!(IgnoreLaterTerm) {
        return Ok(Plan { later_term: Some(written), ..unchanged() });
    }
    if written < own && (writes_status(known, &plan) || writes_objects(&plan)?) && !broken!(ActUnclaimed) {
        let mut claim = OverridePolicy::clone(live);
        claim.annotations_mut().insert(TERM.to_owned(), own.to_string());
        return Ok(Plan { claim: Some(claim), ..unchanged() });
    }
    Ok(plan)
}

fn writes_status(known: &Known<'_>, plan: &Plan) -> bool {
    plan.finalizer == Finalizer::Keep && known.object.status.as_ref() != Some(&plan.status)
}
