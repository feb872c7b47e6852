//! ConfigMaps: the list of servers, which changes for all servers at once, and the instructions, which never change.

use serde_json::json;

use crate::{
    agent::render::{Kind, Object, Refused, Source, bytes, role_name},
    api::zookeeper::Role,
    contract::{
        canonical_json::canonical_json,
        control_api::ServerConfig,
        labels::{REVISION_LABEL, ROLE_LABEL},
        pod_layout::{SERVER_CONFIG_FILE, SERVER_LIST_FILE, client_port, endpoints},
    },
};

/// The list of servers.
pub(super) fn list(source: &Source<'_>) -> Result<Object, Refused> {
    let data = json!({ "data": { SERVER_LIST_FILE: canonical_json(source.list)? } });
    Ok(source.object(Kind::ConfigMap, source.base(), &source.labels(), data))
}

/// What applications in this cluster need to connect: to the servers of all clusters, or to those of this one.
pub(super) fn clients(source: &Source<'_>) -> Object {
    let tls = source.spec.tls.client.as_ref();
    let data = json!({ "data": {
        "connectionString": endpoints(&source.list.servers, tls).join(","),
        "localConnectionString": format!("{}.{}.svc:{}", source.name, source.namespace, client_port(tls)),
    }});
    source.object(Kind::ConfigMap, source.clients(), &source.labels(), data)
}

impl Source<'_> {
    /// Name of the ConfigMap for applications: nothing of ours rests on it.
    #[must_use]
    pub fn clients(&self) -> String {
        format!("{}-client", self.name)
    }
}

/// What servers of a role are told, in one revision.
pub(super) fn instructions(source: &Source<'_>, role: Role) -> Result<Object, Refused> {
    let template = &source.spec.template;
    let limit = template.resources.as_ref().and_then(|r| r.limits.get("memory"));
    let instructions = ServerConfig {
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
    let data = json!({ "immutable": true, "data": { SERVER_CONFIG_FILE: canonical_json(&instructions)? } });
    Ok(source.object(Kind::ConfigMap, source.instructions(role), &labels, data))
}
