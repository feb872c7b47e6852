//! Services: the headless one, which names every server, and the one for clients, which selects serving servers.

use serde_json::{Value, json};

use crate::agent::render::{
    object::{Kind, Object},
    source::Source,
};
use mczk_api::contract::pod_layout::{CONTROL_PORT, ELECTION_PORT, QUORUM_PORT, client_ports};

fn port(name: &str, number: u16) -> Value {
    json!({ "name": name, "port": number, "targetPort": name, "protocol": "TCP" })
}

fn clients(source: &Source<'_>) -> Vec<Value> {
    client_ports(source.spec.tls.client.as_ref()).iter().map(|(name, number)| port(name, *number)).collect()
}

/// Names servers before they serve, since they need each other's names to serve.
pub(super) fn headless(source: &Source<'_>) -> Object {
    let servers = [("quorum", QUORUM_PORT), ("election", ELECTION_PORT), ("control", CONTROL_PORT)];
    let mut ports = clients(source);
    ports.extend(servers.map(|(name, number)| port(name, number)));
    let spec = json!({ "spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": source.selector(),
        "ports": ports,
    }});
    source.object(Kind::Service, source.base(), &source.labels(), spec)
}

/// The name that applications use. It is the same in every incarnation. It is never empty because all servers stall together:
/// a slow server is better than none.
pub(super) fn client(source: &Source<'_>) -> Object {
    let (selector, ports) = (source.selector(), clients(source));
    let spec = if source.none_ready {
        json!({ "selector": selector, "ports": ports, "publishNotReadyAddresses": true })
    } else {
        json!({ "selector": selector, "ports": ports })
    };
    source.object(Kind::Service, source.name.to_owned(), &source.labels(), json!({ "spec": spec }))
}
