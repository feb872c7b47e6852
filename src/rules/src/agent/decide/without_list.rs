//! The decision for an object without a server list: nothing of an ensemble is here.

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube_core::ResourceExt;

use crate::agent::decide::{
    accept::Acceptance,
    decision::{Decision, Requeue},
    deletion::has_finalizer,
    membership::MembershipStep,
    observation::Observation,
    obstacle, other_incarnations,
    preflight::{self, ProbePlan},
    refused,
    replace::ReplaceStep,
    restart::RestartStep,
    status::{self, AgentStatusInputs},
    unused_claims,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        labels::{APPLIED_HASH, ENSEMBLE_LABEL, KARMADA_MANAGED_LABEL},
        last_write::last_write,
    },
    pod::Reclaim,
    zookeeper::ZooKeeperStatus,
};

/// How long the release of an object by Karmada may take.
const RELEASE: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn decide(observation: &Observation, acceptance: &Acceptance, now: Timestamp) -> Decision {
    let object = &observation.object;
    let none = ZooKeeperStatus::default();
    let probes = preflight::plan(observation);
    let orphaned = is_orphaned(observation);
    let ends = if orphaned { observation.remaining.clone() } else { preflight::leftovers(observation, None, &probes) };
    let remove = &observation.tombstones | &ends;
    let others = other_incarnations::living(observation, None, &remove, &probes);
    let inputs = AgentStatusInputs {
        generation: object.metadata.generation,
        cluster_id: observation.cluster_id.as_deref(),
        before: object.status.as_ref().unwrap_or(&none),
        spec_hash: None,
        completed: false,
        as_declared: false,
        list: None,
        servers: &[],
        views: &[],
        decommissioned: false,
        progress: None,
        obstacle: obstacle::refused(acceptance).or_else(|| refused::refused(observation, |_, _| true)),
        draining: None,
        replacing: None,
        undone: refused::undone(observation),
        others: (others, None),
        certificates: None,
        expiry: None,
        published: None,
        loaded: None,
        missing_secrets: Vec::new(),
        preflight: probes.report.clone(),
        first_starts: Vec::new(),
        unused_claims: unused_claims::list(observation, None),
        smallest_volume: None,
        missing_voters: BTreeSet::new(),
        spare: observation.spare.clone(),
        now,
    };
    let deleting = object.metadata.deletion_timestamp.is_some();
    Decision {
        list: None,
        replicas: None,
        remove,
        // Without a list the object may be another one than that which made the volumes.
        reclaim: Reclaim::default(),
        keeps_clients: true,
        membership: MembershipStep::Done,
        takes_step: false,
        first_starts: Vec::new(),
        replace: ReplaceStep::Nothing,
        restart: RestartStep::Nothing,
        status: status::report(&inputs),
        finalizer: probes.incarnation.is_some()
            || has_finalizer(object) && (!deleting || !observation.incarnations().is_empty()),
        remove_object: orphaned && observation.incarnations().is_empty() && !is_just_written(object, now),
        requeue: if probes == ProbePlan::default() && !orphaned { Requeue::AtRest } else { Requeue::Busy },
        probes,
    }
}

/// True if the operator created the object, Karmada has released it, and the agent never accepted it. Only the agent then
/// removes it. If the cluster were selected again, Karmada would take it for a foreign object.
///
/// Volumes of a former stay may be here, and then objects of a network check too. They need no object, but servers do.
fn is_orphaned(observation: &Observation) -> bool {
    let object = &observation.object;
    let by_operator = object.labels().contains_key(ENSEMBLE_LABEL) && object.annotations().contains_key(APPLIED_HASH);
    let accepted = object.status.as_ref().is_some_and(|status| status.observed_spec_hash.is_some());
    by_operator
        && !object.labels().contains_key(KARMADA_MANAGED_LABEL)
        && !accepted
        && object.metadata.deletion_timestamp.is_none()
        && observation.servers.is_empty()
        && observation.sets.iter().all(|set| set.replicas == 0)
}

/// True if Karmada may still be at work on the object. It may read it once more, to complete the deletion of the Work, and
/// without the object it never completes that (`cleanupPolicyClaimMetadata` in its `pkg/controllers/execution`).
fn is_just_written(object: &ZooKeeper, now: Timestamp) -> bool {
    last_write(&object.metadata).is_some_and(|written| now.duration_since(written) < RELEASE)
}
