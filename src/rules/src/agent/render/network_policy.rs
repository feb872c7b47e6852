//! The `NetworkPolicy`: servers and agents connect from `peerCIDRs`, clients and probes from anywhere.

use serde_json::{Value, json};

use crate::agent::render::{
    object::{Kind, Object},
    source::Source,
};
use mczk_api::contract::{
    labels::MANAGED_BY_AGENT,
    pod_layout::{CLIENT_PORT, CONTROL_PORT, ELECTION_PORT, METRICS_PORT, PROBE_PORT, QUORUM_PORT, SECURE_CLIENT_PORT},
};

pub(super) fn policy(source: &Source<'_>) -> Object {
    let ports =
        |ports: &[u16]| -> Vec<Value> { ports.iter().map(|p| json!({ "protocol": "TCP", "port": p })).collect() };
    let mut peers = json!({ "ports": ports(&[QUORUM_PORT, ELECTION_PORT, CONTROL_PORT]) });
    if !source.spec.peer_cidrs.is_empty() {
        let mut from: Vec<Value> =
            source.spec.peer_cidrs.iter().map(|cidr| json!({ "ipBlock": { "cidr": cidr } })).collect();
        // Servers and agent of this cluster connect whatever addresses other clusters have.
        from.push(json!({ "podSelector": { "matchLabels": source.selector() } }));
        from.push(json!({
            "namespaceSelector": {},
            "podSelector": { "matchLabels": { "app.kubernetes.io/name": MANAGED_BY_AGENT } },
        }));
        if let Some(members) = peers.as_object_mut() {
            members.insert("from".to_owned(), Value::Array(from));
        }
    }
    let open = json!({ "ports": ports(&[CLIENT_PORT, SECURE_CLIENT_PORT, METRICS_PORT, PROBE_PORT]) });
    let spec = json!({ "spec": {
        "podSelector": { "matchLabels": source.selector() },
        "policyTypes": ["Ingress"],
        "ingress": [peers, open],
    }});
    source.object(Kind::NetworkPolicy, source.base(), &source.labels(), spec)
}
