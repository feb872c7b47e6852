//! Reads the agent's own objects.

use std::collections::BTreeMap;

use kube::{
    ResourceExt,
    api::{DynamicObject, ListParams, TypeMeta},
};
use serde_json::Value;

use crate::context::AgentContext;
use mczk_api::{
    ZooKeeper,
    contract::{
        control_api::ServerConfig,
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, REVISION_LABEL, ROLE_LABEL},
        pod_layout::SERVER_CONFIG_FILE,
    },
    zookeeper::Role,
};
use mczk_rules::agent::{
    decide::observation::ServerSet,
    render::{object::Kind, source::role_name},
};
use mczk_runtime::failure::{During, Error};

/// The agent's own objects, by kind and name.
pub(crate) type LiveObjects = BTreeMap<(Kind, String), DynamicObject>;

/// Selects the agent's own objects of one ensemble.
pub(super) fn of_ensemble(name: &str) -> ListParams {
    ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}"))
}

/// Every object of this ensemble that the agent wrote, except Secrets: the agent has no right to list them.
pub(super) async fn owned(context: &AgentContext, key: &(String, String)) -> Result<LiveObjects, Error> {
    let (namespace, name) = key;
    let mut all = BTreeMap::new();
    for kind in Kind::ALL.iter().copied().filter(|kind| *kind != Kind::Secret) {
        let list = context.api(namespace, kind).list(&of_ensemble(name)).await;
        for object in list.during(|| format!("reading {} objects", kind.name()))?.items {
            let types = TypeMeta { api_version: kind.api_version().to_owned(), kind: kind.name().to_owned() };
            let object = DynamicObject { types: Some(types), ..object };
            all.insert((kind, object.name_any()), object);
        }
    }
    Ok(all)
}

/// The configurations of the servers of the incarnation that an object declares.
pub(super) fn configurations(object: &ZooKeeper, live: &LiveObjects) -> Vec<ServerConfig> {
    let declared = object.spec.ensemble.incarnation.as_ref();
    let of_declared = live.values().filter(|object| object.labels().get(INCARNATION_LABEL) == declared);
    let text = |object: &DynamicObject| object.data.get("data")?.get(SERVER_CONFIG_FILE)?.as_str().map(str::to_owned);
    of_declared.filter_map(text).filter_map(|text| serde_json::from_str(&text).ok()).collect()
}

/// Role in an object's labels.
pub(super) fn role(labels: &BTreeMap<String, String>) -> Option<Role> {
    let text = labels.get(ROLE_LABEL)?;
    [Role::Voter, Role::Observer].into_iter().find(|role| role_name(*role) == text)
}

/// Revision of the pods that a StatefulSet creates; `None` for other kinds.
pub(crate) fn revision(object: &DynamicObject) -> Option<&str> {
    object.data.pointer("/spec/template/metadata/labels")?.get(REVISION_LABEL)?.as_str()
}

pub(super) fn server_set(object: &DynamicObject) -> Option<ServerSet> {
    if object.types.as_ref().is_none_or(|types| types.kind != "StatefulSet") {
        return None;
    }
    let labels = object.labels();
    let observed = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    let revision = revision(object).filter(|_| observed == object.metadata.generation);
    let replicas = object.data.pointer("/spec/replicas").and_then(Value::as_i64);
    Some(ServerSet {
        name: object.name_any(),
        incarnation: labels.get(INCARNATION_LABEL)?.clone(),
        role: role(labels)?,
        replicas: replicas.and_then(|n| i32::try_from(n).ok()).unwrap_or(1),
        revision: revision.map(str::to_owned),
    })
}
