//! ConfigMaps: the server list, which changes for all servers at once, and server configurations, which never change.

use serde_json::json;

use crate::agent::render::{
    amount::bytes,
    object::{Kind, Object},
    source::{Source, role_name},
};
use mczk_api::{
    contract::{
        canonical_json::canonical_json,
        control_api::ServerConfig,
        labels::{REVISION_LABEL, ROLE_LABEL},
        pod_layout::{SERVER_CONFIG_FILE, SERVER_LIST_FILE, client_port, endpoints},
    },
    zookeeper::Role,
};

pub(super) fn server_list(source: &Source<'_>) -> serde_json::Result<Object> {
    let data = json!({ "data": { SERVER_LIST_FILE: canonical_json(source.list)? } });
    Ok(source.object(Kind::ConfigMap, source.base(), &source.labels(), data))
}

/// Connection strings for applications in this cluster: the servers of all clusters, and those of this one.
pub(super) fn clients(source: &Source<'_>) -> Object {
    let tls = source.spec.tls.client.as_ref();
    let data = json!({ "data": {
        "connectionString": endpoints(&source.list.servers, tls).join(","),
        "localConnectionString": format!("{}.{}.svc:{}", source.name, source.namespace, client_port(tls)),
    }});
    source.object(Kind::ConfigMap, source.clients(), &source.labels(), data)
}

/// The configuration of the servers of a role, in one revision.
pub(super) fn server_config(source: &Source<'_>, role: Role) -> serde_json::Result<Object> {
    let template = &source.spec.template;
    let resources = source.resources();
    let limit = resources.limits.get("memory");
    let config = ServerConfig {
        name: source.name.to_owned(),
        cluster: source.cluster.to_owned(),
        role,
        revision: source.spec.revision.clone(),
        zoo_cfg: template.zoo_cfg.clone(),
        jvm_flags: template.jvm_flags.clone(),
        memory_limit: limit.and_then(|quantity| bytes(&quantity.0)),
        quorum_tls: source.spec.tls.quorum,
        client_tls: source.spec.tls.client.clone(),
    };
    let mut labels = source.labels();
    labels.insert(REVISION_LABEL, source.spec.revision.clone());
    labels.insert(ROLE_LABEL, role_name(role).to_owned());
    let data = json!({ "immutable": true, "data": { SERVER_CONFIG_FILE: canonical_json(&config)? } });
    Ok(source.object(Kind::ConfigMap, source.server_config(role), &labels, data))
}
