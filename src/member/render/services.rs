//! Services: the headless one, which names every server, and that of clients, behind which are those that serve.

use serde_json::{Value, json};

use super::{Kind, Object, Source};
use crate::{
    api::multiclusterzookeeper::ClientTlsMode,
    member::layout::{CLIENT_PORT, CONTROL_PORT, ELECTION_PORT, QUORUM_PORT, SECURE_CLIENT_PORT},
};

fn port(name: &str, number: u16) -> Value {
    json!({ "name": name, "port": number, "targetPort": name, "protocol": "TCP" })
}

/// Name and number of the port of clients.
pub(super) fn client_port(source: &Source<'_>) -> (&'static str, u16) {
    match source.spec.tls.client.as_ref().map(|c| c.mode) {
        Some(ClientTlsMode::Required) => ("secure-client", SECURE_CLIENT_PORT),
        Some(ClientTlsMode::Optional) | None => ("client", CLIENT_PORT),
    }
}

/// Names servers also before they serve: without names none ever would.
pub(super) fn headless(source: &Source<'_>) -> Object {
    let (client, number) = client_port(source);
    let spec = json!({ "spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": source.selector(),
        "ports": [
            port(client, number),
            port("quorum", QUORUM_PORT),
            port("election", ELECTION_PORT),
            port("control", CONTROL_PORT),
        ],
    }});
    source.object(Kind::Service, source.base(), &source.labels(), spec)
}

/// The name that people use; it outlives lives of the ensemble.
pub(super) fn client(source: &Source<'_>) -> Object {
    let (client, number) = client_port(source);
    let spec = json!({ "spec": { "selector": source.selector(), "ports": [port(client, number)] } });
    source.object(Kind::Service, source.name.to_owned(), &source.labels(), spec)
}
