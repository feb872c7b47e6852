//! Services: the headless one, which names every server, and that of clients, behind which are those that serve.

use serde_json::{Value, json};

use crate::{
    agent::render::{Kind, Object, Source},
    contract::pod_layout::{CONTROL_PORT, ELECTION_PORT, QUORUM_PORT, client_ports},
};

fn port(name: &str, number: u16) -> Value {
    json!({ "name": name, "port": number, "targetPort": name, "protocol": "TCP" })
}

fn clients(source: &Source<'_>) -> Vec<Value> {
    client_ports(source.spec.tls.client.as_ref()).iter().map(|(name, number)| port(name, *number)).collect()
}

/// Names servers also before they serve: without names none ever would.
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

/// The name that people use; it outlives lives of the ensemble.
pub(super) fn client(source: &Source<'_>) -> Object {
    let spec = json!({ "spec": { "selector": source.selector(), "ports": clients(source) } });
    source.object(Kind::Service, source.name.to_owned(), &source.labels(), spec)
}
