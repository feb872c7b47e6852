//! Routine reads: those without an event that the last read does not hold. They follow a start, the begin of a term, or the
//! change of a Cluster, which concern many ensembles at once.
//!
//! One attempt reads up to [`MOST`] ensembles by [`lists`]. What needs no write is then reconciled. Every other ensemble is
//! read again by its own attempt, alone and right before its writes. If the API server is overloaded, all routine reads
//! pause together, so their number does not depend on the number of ensembles.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt as _,
    api::DynamicObject,
    runtime::{controller::Action, reflector::Store},
};
use tracing::{debug, warn};

use super::{
    context::{Context, Due, Reading},
    lists::{self, WithRelated},
    next_read::next_read,
};
use mczk_reading::{
    kinds,
    observe::{Sources, versions},
    versions::{Id, ObjectVersion, version},
};
use mczk_rules::rollout::{
    object_change::writes,
    plan::{self, Finalizer, Observed, Plan},
};
use mczk_runtime::{
    failure::Error,
    jitter::jittered,
    reconcile::{Attempt, ObjectKey, key},
};

/// Most ensembles of one read: their objects are in memory together.
const MOST: usize = 100;
/// Fewest: below, single reads cost less.
const LEAST: usize = 4;
/// Longest list of names in a selector, in bytes: it is part of a URL.
const MOST_NAMES: usize = 4000;

impl Context {
    /// Reads the ensemble of an attempt together with others. `None` if its attempt must read it alone.
    pub(super) async fn read_routinely(
        &self,
        attempt: &Attempt<'_>,
        version: ObjectVersion,
    ) -> Result<Option<Action>, Error> {
        let Attempt { key, term, .. } = *attempt;
        let _one_at_a_time = self.routine.one_at_a_time.lock().await;
        if !self.is_routine(key, version.0, term) {
            return Ok(None);
        }
        if let Some(left) = self.routine.pause.lock().left(Instant::now()) {
            return Ok(Some(Action::requeue(jittered(left.saturating_mul(2)))));
        }
        // Another attempt may have read it meanwhile.
        if let Some(action) = self.due(key, version, term).action() {
            return Ok(Some(action));
        }
        let keys = self.members(key, term);
        if keys.len() < LEAST {
            return Ok(None);
        }
        let mut reading = self.begin_read(keys.iter().cloned(), term);
        let read = futures::try_join!(lists::read(&self.client, &keys), self.clusters.verify(&self.client));
        self.routine.pause.lock().ended(read.is_err(), Instant::now());
        let (read, ()) = read.inspect_err(|error| warn!(%error, "Routine read failed: all of them pause"))?;
        let settled = Box::pin(self.settle(read, term, &mut reading)).await;
        debug!(members = keys.len(), settled, "Routine read");
        reading.need_own_reads();
        drop(reading);
        Ok(self.due(key, version, term).action())
    }

    /// The ensembles to read together: from the first one on, those of its namespace, or else of several namespaces.
    fn members(&self, first: &ObjectKey, term: Option<i32>) -> Vec<ObjectKey> {
        let objects = self.objects.get().map(Store::state).unwrap_or_default();
        let mut waiting: Vec<ObjectKey> =
            objects.iter().filter(|object| self.waits(object, term)).map(|object| key(object)).collect();
        waiting.sort_unstable();
        let begin = waiting.partition_point(|key| key < first);
        waiting.rotate_left(begin);
        let beside = waiting.iter().filter(|key| key.0 == first.0).count();
        if beside >= LEAST {
            waiting.retain(|key| key.0 == first.0);
        }
        let mut length = 0;
        let fits = |key: &ObjectKey| {
            length += key.1.len() + 1;
            length <= MOST_NAMES
        };
        let keys: Vec<ObjectKey> = waiting.into_iter().take(MOST).take_while(fits).collect();
        if beside < LEAST && !are_rare(&keys, &objects) {
            return Vec::new();
        }
        keys
    }

    /// True if an object requires a routine read now.
    fn waits(&self, object: &Arc<DynamicObject>, term: Option<i32>) -> bool {
        let (key, own) = (key(object), own(object));
        !self.in_read(&key)
            && object.metadata.deletion_timestamp.is_none()
            && self.due(&key, own, term) == Due::Now
            && self.is_routine(&key, own.0, term)
    }

    /// Notes the ensembles that need no write, and returns their number.
    async fn settle(
        &self,
        read: BTreeMap<ObjectKey, WithRelated>,
        term: Option<i32>,
        reading: &mut Reading<'_>,
    ) -> usize {
        let mut settled = 0;
        for (key, (object, related)) in read {
            let sources = Sources {
                client: &self.client,
                clusters: &self.clusters,
                server_image: &self.options.server_image,
                asked: self.since_asked(&key),
                term,
                failure: None,
                retried: false,
                needs_secrets: false,
            };
            let observed = related.of(object, sources);
            let plan = plan::plan(&observed, Timestamp::now());
            if needs_nothing(&observed, &plan) {
                self.metrics.show(&key.0, &key.1, plan.measures.clone());
                self.end_read(&key, versions(&observed), &observed, next_read(&observed, &plan, self.number()));
                reading.ended(&key);
                settled += 1;
            }
            // A plan takes a millisecond, and other tasks wait.
            tokio::task::yield_now().await;
        }
        settled
    }
}

/// The version of an object itself.
pub(super) fn own(object: &DynamicObject) -> ObjectVersion {
    let kind = kinds::multiclusterzookeeper().kind;
    (Id::of(kind.as_str(), &object.name_any()), version(&object.metadata))
}

/// True if few other ensembles have these names: a list over all namespaces returns theirs too.
fn are_rare(keys: &[ObjectKey], objects: &[Arc<DynamicObject>]) -> bool {
    let wanted: BTreeSet<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
    let of_these = objects.iter().filter(|object| wanted.contains(object.metadata.name.as_deref().unwrap_or_default()));
    of_these.count() <= 2 * MOST
}

/// True if a plan changes nothing.
fn needs_nothing(observed: &Observed, plan: &Plan) -> bool {
    plan.later_term.is_none()
        && plan.claim.is_none()
        && plan.finalizer == Finalizer::Keep
        && plan.events.is_empty()
        && observed.object.status.as_ref() == Some(&plan.status)
        && writes(observed, plan).is_ok_and(|writes| writes.is_empty())
}
