//! StatefulSets: one of voters, one of observers. They replace a pod only after the agent deletes it.

use serde_json::{Value, json};

use crate::agent::render::{
    object::{Kind, Object},
    pod,
    source::{Source, role_name},
};
use mczk_api::{contract::labels::ROLE_LABEL, zookeeper::Role};

pub(super) fn set(source: &Source<'_>, role: Role, replicas: i32) -> Object {
    let storage = &source.spec.template.storage;
    let mut claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": storage.size.0 } },
    });
    if let (Some(class), Some(members)) = (&storage.storage_class_name, claim.as_object_mut()) {
        members.insert("storageClassName".to_owned(), Value::String(class.clone()));
    }
    let selector = source.role_selector(role);
    let mut labels = source.labels();
    labels.insert(ROLE_LABEL, role_name(role).to_owned());
    let spec = json!({ "spec": {
        "serviceName": source.base(),
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": { "type": "OnDelete" },
        "revisionHistoryLimit": 2,
        // A server that comes back finds its data, and `kubectl delete statefulset` removes none. Only the end of the ensemble
        // deletes volumes, and only if the user said so: the agent sets the policy then.
        "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Retain" },
        "selector": { "matchLabels": selector },
        "template": pod::template(source, role),
        "volumeClaimTemplates": [{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data", "labels": labels },
            "spec": claim,
        }],
    }});
    source.object(Kind::StatefulSet, source.set(role), &labels, spec)
}
