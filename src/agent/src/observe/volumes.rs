//! Reads the volumes of an ensemble, and grows those that are smaller than the spec.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    context::{AgentContext, FIELD_MANAGER},
    observe::objects::of_ensemble,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        cause::Cause,
        conditions::Reason,
        labels::{INCARNATION_LABEL, SERVERS_REMOVED},
    },
    zookeeper::Ensemble,
};
use mczk_rules::agent::{decide::observation::Claim, render::amount::bytes};
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
        ending: claim.metadata.deletion_timestamp.is_some(),
        servers_removed: claim.annotations().contains_key(SERVERS_REMOVED),
    })
}

/// Requests larger volumes if the spec does, since a StatefulSet never changes its claims. Returns the refusal of the API
/// server, on which the decision depends.
pub(super) async fn grow(
    object: &ZooKeeper,
    list: Option<&Ensemble>,
    claims: &[PersistentVolumeClaim],
    context: &AgentContext,
) -> Result<Option<Cause>, Error> {
    let api: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let size = &object.spec.template.storage.size.0;
    let incarnation = list.and_then(|list| list.incarnation.as_deref()).unwrap_or_default();
    let of_incarnation =
        |claim: &&PersistentVolumeClaim| claim.labels().get(INCARNATION_LABEL).map(String::as_str) == Some(incarnation);
    for claim in claims.iter().filter(of_incarnation) {
        let requested = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
        if requested.and_then(|requested| bytes(&requested.0)) >= bytes(size) {
            continue;
        }
        let name = claim.name_any();
        let patch = json!({
            "metadata": { "resourceVersion": claim.resource_version() },
            "spec": { "resources": { "requests": { "storage": size } } },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => context.metrics.wrote("PersistentVolumeClaim", "patch"),
            Err(error) => {
                let Some(why) = refusal(&error) else {
                    return Err(error).during(|| format!("growing PersistentVolumeClaim {name}"));
                };
                let message = format!(
                    "PersistentVolumeClaim {name} does not grow to {size}: {why}. Allow its storage class to expand \
                     volumes, or revert storage.size"
                );
                return Ok(Some(Cause { reason: Reason::VolumeNotResized, message }));
            }
        }
    }
    Ok(None)
}
