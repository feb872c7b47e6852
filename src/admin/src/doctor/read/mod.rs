//! Reads everything that the examination needs. Nothing here writes; an access review asks and stores nothing.

mod host;
mod incarnations;
mod karmada;
mod lease;
mod members;
mod reader;
mod rights;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};

use kube::{
    Client, Config,
    api::{DynamicObject, ObjectMeta},
};

use super::observed::{DoctorObserved, Read};

pub(super) use reader::BoundedReader;

/// Reads karmada-apiserver, the member clusters, the webhook, and the host if it is named with the operator's namespace.
pub(super) async fn observe(
    karmada: &Config,
    client: &Client,
    host: Option<(Client, String)>,
    reader: &BoundedReader,
) -> DoctorObserved {
    let (ensembles, registrations) =
        futures::join!(karmada::ensembles(client, reader), karmada::registrations(client, reader));
    let namespaces = namespaces(ensembles.as_deref().unwrap_or_default());
    let mut observed = Box::pin(karmada::objects(client, reader, ensembles, registrations)).await;
    let config = observed.webhook_of_ours().map(|webhook| webhook.client_config);
    let (clusters, ending_works, rights, lease, certificates, service, failed_call, webhook, host) = futures::join!(
        Box::pin(members::clusters(karmada, client, reader)),
        karmada::ending_works(client, reader),
        rights::rights(client, &namespaces, reader),
        lease::lease(client, reader),
        certificates(client, &namespaces, reader),
        karmada::service(client, config.as_ref(), reader),
        karmada::failed_call(client, reader),
        webhook::served(config.as_ref(), reader),
        async {
            match host {
                Some((client, namespace)) => Some(Box::pin(host::host(&client, namespace, reader)).await),
                None => None,
            }
        },
    );
    observed.clusters = clusters;
    observed.ending_works = ending_works;
    observed.rights = rights;
    observed.lease = lease;
    observed.certificates = certificates;
    observed.service = service;
    observed.failed_call = failed_call;
    observed.webhook = webhook;
    observed.host = host;
    observed
}

fn namespaces(ensembles: &[DynamicObject]) -> BTreeSet<String> {
    ensembles.iter().filter_map(|ensemble| ensemble.metadata.namespace.clone()).collect()
}

async fn certificates(
    client: &Client,
    namespaces: &BTreeSet<String>,
    reader: &BoundedReader,
) -> BTreeMap<String, Read<Vec<ObjectMeta>>> {
    let mut all = BTreeMap::new();
    for namespace in namespaces {
        all.insert(namespace.clone(), karmada::certificates(client, namespace, reader).await);
    }
    all
}
