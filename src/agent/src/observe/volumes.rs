//! Reads the volumes of an ensemble, and requests a larger one if the spec does.

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
};
use mczk_api::{
    ZooKeeper,
    contract::{
        cause::Cause,
        labels::{INCARNATION_LABEL, SERVERS_REMOVED},
    },
    zookeeper::Ensemble,
};
use mczk_rules::agent::decide::{growth, local_server::LocalServer, observation::Claim, volume_size::VolumeSize};
use mczk_runtime::failure::{During, Error, refusal};

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
        bound: claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()),
        size: VolumeSize::of(claim),
        ending: claim.metadata.deletion_timestamp.is_some(),
        servers_removed: claim.annotations().contains_key(SERVERS_REMOVED),
    })
}

/// Requests a larger volume if the spec does, since a StatefulSet never changes its claims. Returns the refusal of the API
/// server, on which the decision depends.
pub(super) async fn grow(
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    (claims, servers): (&[Claim], &[(String, LocalServer)]),
    context: &AgentContext,
) -> Result<Option<Cause>, Error> {
    let size = &object.spec.template.storage.size.0;
    let incarnation = list.and_then(|list| list.incarnation.as_deref()).unwrap_or_default();
    let due = growth::due(claims, servers, incarnation, size);
    let namespace = object.namespace().unwrap_or_default();
    // A class, quota or policy that refuses one of them refuses it before any of them changes.
    for claim in &due {
        if let Some(why) = request(&namespace, claim, size, true, context).await? {
            return Ok(Some(growth::refused(claim, size, &why)));
        }
    }
    let Some(claim) = due.first() else { return Ok(None) };
    let why = request(&namespace, claim, size, false, context).await?;
    Ok(why.map(|why| growth::refused(claim, size, &why)))
}

/// Requests the size for a claim, or only tries to. Returns why the API server refuses it.
async fn request(
    namespace: &str,
    claim: &Claim,
    size: &str,
    dry_run: bool,
    context: &AgentContext,
) -> Result<Option<String>, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), namespace);
    let patch = json!({
        "metadata": { "resourceVersion": claim.version },
        "spec": { "resources": { "requests": { "storage": size } } },
    });
    let params = PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let answer = api.patch(&claim.name, &params, &Patch::Merge(&patch)).await;
    if let Some(why) = answer.as_ref().err().and_then(refusal) {
        return Ok(Some(why.to_owned()));
    }
    drop(answer.during(|| format!("growing PersistentVolumeClaim {}", claim.name))?);
    if !dry_run {
        context.metrics.wrote("PersistentVolumeClaim", "patch");
        info!(claim = claim.name, namespace, size, "a larger volume is requested");
    }
    Ok(None)
}
