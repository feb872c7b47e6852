//! When the operator reads an ensemble again although nothing changes.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use mczk_rules::rollout::plan::{Observed, Plan};
use mczk_runtime::jitter::jittered;

/// The shortest and the longest time between two reconciles of an object that is being deleted: the controller does not
/// watch Karmada's Works. Between them it is a tenth of the time since the deletion began.
const TEARDOWN_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The shortest time between two reconciles while nothing happens. They only read: above all Secrets, which the controller
/// may not watch.
const IDLE_INTERVAL: Duration = Duration::from_secs(300);
/// Time between two reconciles of any objects while nothing happens. It bounds their requests, however many objects there
/// are: each reconcile makes about twelve.
const IDLE_PERIOD: Duration = Duration::from_secs(1);

/// Time until the next reconcile if nothing changes. `objects` is the number of all objects.
pub(super) fn next_read(observed: &Observed, plan: &Plan, objects: usize) -> Duration {
    if let Some(deleted) = &observed.object.metadata.deletion_timestamp {
        let (shortest, longest) = TEARDOWN_INTERVALS;
        let since = Timestamp::now().duration_since(deleted.0).unsigned_abs();
        return (since / 10).clamp(shortest, longest);
    }
    let all = u32::try_from(objects).unwrap_or(u32::MAX);
    let idle = || jittered(IDLE_INTERVAL.max(IDLE_PERIOD.saturating_mul(all)));
    plan.requeue_after.unwrap_or_else(idle)
}
