//! Reads the volumes of an ensemble, and requests a larger one if the spec does.

use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tracing::info;

use crate::{
    context::{AgentContext, FIELD_MANAGER},
    observe::objects::of_ensemble,
    write_history::ObjectVerb,
};
use mczk_api::{
    ZooKeeper,
    contract::labels::{INCARNATION_LABEL, SERVERS_REMOVED},
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::{growth, local_server::LocalServer, observation::Claim, volume_size::VolumeSize};
use mczk_runtime::failure::{During, Error};

/// Claims of one ensemble.
pub(crate) async fn read(context: &AgentContext, key: &(String, String)) -> Result<Vec<PersistentVolumeClaim>, Error> {
    let (namespace, name) = key;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    Ok(claims.list(&of_ensemble(name)).await.during(|| "reading claims".to_owned())?.items)
}

pub(crate) fn claim(claim: &PersistentVolumeClaim) -> Option<Claim> {
    Some(Claim {
        name: claim.name_any(),
        incarnation: claim.labels().get(INCARNATION_LABEL)?.clone(),
        uid: claim.uid()?,
        version: claim.resource_version(),
        bound: is_bound(claim),
        size: VolumeSize::of(claim),
        ending: claim.metadata.deletion_timestamp.is_some(),
        servers_removed: claim.annotations().contains_key(SERVERS_REMOVED),
    })
}

/// True if a claim has a volume. The name of a volume that is gone stays in the claim.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let is_lost = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost");
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()) && !is_lost
}

/// Requests a larger volume if the spec does, since a StatefulSet never changes its claims. A refusal of the API server is
/// remembered, as that of any other write.
pub(super) async fn grow(
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    (claims, servers): (&[Claim], &[(String, LocalServer)]),
    context: &AgentContext,
) -> Result<(), Error> {
    let size = &object.spec.template.storage.size.0;
    let incarnation = list.and_then(|list| list.incarnation.as_deref()).unwrap_or_default();
    let due = growth::due(claims, servers, incarnation, size);
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    // A class, quota or policy that refuses one of them refuses it before any of them changes.
    for claim in &due {
        if !request(&key, claim, size, ObjectVerb::Ask, context).await? {
            return Ok(());
        }
    }
    if let Some(claim) = due.first() {
        request(&key, claim, size, ObjectVerb::Write, context).await?;
    }
    Ok(())
}

/// Requests the size for a claim, or only asks for it. False if the API server refuses it, or just did.
async fn request(
    key: &(String, String),
    claim: &Claim,
    size: &str,
    verb: ObjectVerb,
    context: &AgentContext,
) -> Result<bool, Error> {
    let namespace = &key.0;
    let dry_run = verb == ObjectVerb::Ask;
    let asked = (growth::SIZE, claim.name.clone(), verb);
    let mut is_known = false;
    context.remember(key, |memory| is_known = dry_run && memory.writes.accepts(&asked, size, Instant::now()));
    if is_known {
        return Ok(true);
    }
    let change = async {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
        let patch = json!({
            "metadata": { "resourceVersion": claim.version },
            "spec": { "resources": { "requests": { "storage": size } } },
        });
        let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let answer = api.patch(&claim.name, &params, &Patch::Merge(&patch)).await;
        let action = || format!("growing PersistentVolumeClaim {}", claim.name);
        let stored = VolumeSize::of(&answer.during(action)?);
        if !stored.requests(size) {
            let instead = stored.requested;
            let why = format!("a webhook or a policy of the cluster makes {instead} of the requested size");
            return Err(Error::Altered { action: action(), why });
        }
        if !dry_run {
            context.metrics.wrote("PersistentVolumeClaim", "patch");
            info!(claim = claim.name, namespace, size, "a larger volume is requested");
        }
        Ok(())
    };
    let is_accepted = context.attempt(key, (growth::SIZE, &claim.name, verb), size, change).await?.is_some();
    if is_accepted && !dry_run {
        context.remember(key, |memory| memory.writes.forget(&asked));
    }
    Ok(is_accepted)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use rstest::rstest;

    use super::*;
    use crate::context::tests::{answering, refusing};
    use mczk_api::zookeeper::Role;

    /// Else `mczk replace` would take another voter's volume beside it.
    #[rstest]
    #[case::bound(json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } }), true)]
    #[case::pending(json!({ "spec": {}, "status": { "phase": "Pending" } }), false)]
    #[case::its_volume_is_gone(json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Lost" } }), false)]
    fn a_claim_is_bound_while_its_volume_exists(#[case] claim: serde_json::Value, #[case] expected: bool) {
        assert_eq!(is_bound(&serde_json::from_value(claim).unwrap()), expected);
    }

    /// It was asked again in every pass, for ever. If the answers take long, no time was left for the growth itself.
    #[rstest]
    #[case::refused(refusing, 1, Some("no PATCH"))]
    #[case::altered(storing_less, 1, Some("a webhook or a policy of the cluster makes 1Gi of the requested size"))]
    #[case::accepted(storing_all, 1 + 3, None)]
    #[tokio::test]
    async fn a_growth_is_asked_for_once(
        #[case] context: fn(&Arc<AtomicUsize>) -> AgentContext,
        #[case] sent: usize,
        #[case] expected: Option<&str>,
    ) {
        let requests: Arc<AtomicUsize> = Arc::default();
        let context = context(&requests);
        let labels = json!({ INCARNATION_LABEL: "abc" });
        let of_pod: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "data-zk-0", "uid": "u", "resourceVersion": "1", "labels": labels },
            "spec": { "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "capacity": { "storage": "1Gi" } },
        }))
        .unwrap();
        let object: ZooKeeper = serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
            "metadata": { "name": "zk", "namespace": "n", "uid": "u" },
            "spec": {
                "replicas": 1, "template": { "image": "zookeeper:3.9.4", "storage": { "size": "2Gi" } },
                "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r1", "ensemble": {},
            },
        }))
        .unwrap();
        let list = Ensemble { incarnation: Some("abc".to_owned()), ..Ensemble::default() };
        let server = LocalServer {
            pod: "zk-0".to_owned(),
            uid: "u".to_owned(),
            role: Role::Voter,
            ordinal: 0,
            id: None,
            revision: "r1".to_owned(),
            ready: false,
            runs: false,
            terminating: false,
            orphaned: false,
            overdue: false,
            drain: None,
            needs_mount: false,
            failure: None,
            view: None,
            unready_for: Duration::ZERO,
        };
        let key = ("n".to_owned(), "zk".to_owned());
        let (claims, servers) = ([claim(&of_pod).unwrap()], [("abc".to_owned(), server)]);
        context.memory(&key, "u");
        for _ in 0..3 {
            grow(&object, Some(&list), (&claims, &servers), &context).await.unwrap();
            context.remember(&key, |memory| memory.writes.end_pass());
        }
        assert_eq!(requests.load(Ordering::Relaxed), sent);
        let refusals = context.memory(&key, "u").writes.refusals();
        assert_eq!(refusals.first().map(|refusal| refusal.why.as_str()), expected);
    }

    /// A policy of the cluster makes every claim a small one.
    fn storing_less(requests: &Arc<AtomicUsize>) -> AgentContext {
        storing(requests, "1Gi")
    }

    fn storing_all(requests: &Arc<AtomicUsize>) -> AgentContext {
        storing(requests, "2Gi")
    }

    fn storing(requests: &Arc<AtomicUsize>, size: &str) -> AgentContext {
        let spec = json!({ "resources": { "requests": { "storage": size } } });
        answering(requests, move |_| (200, json!({ "metadata": { "name": "data-zk-0" }, "spec": spec })))
    }
}
