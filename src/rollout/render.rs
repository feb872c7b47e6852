//! The template in the control plane, from which the cluster_specs of all clusters are made.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{
        MultiClusterZooKeeper,
        network::Names,
        network::Network,
        pod::ServerTemplate,
        tls::ServerTls,
        zookeeper::{Dependency, DependencyKind, Ensemble, Source, ZooKeeperSpec},
    },
    contract::canonical_json::hash,
};

/// Secrets that may travel with a ZooKeeper, as its schema says.
const MOST: usize = 64;

/// How the pod part is turned into objects. It rises when a version of mczk renders the same pod part differently, so that
/// an upgrade of mczk rolls in turns like any other change.
pub const RENDER_VERSION: i32 = 2;

/// The template's spec: everything that the cluster_specs are made from. It changes only between records, so that a rollout goes on
/// with what it began with. `certificates` are the Secrets of the quorum that travel with it; those that the pods of `cluster_specs`
/// need travel too, until the last cluster was given another pin.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn template(
    object: &MultiClusterZooKeeper,
    server_image: &str,
    certificates: Vec<Dependency>,
    cluster_specs: &BTreeMap<String, ZooKeeperSpec>,
) -> serde_json::Result<ZooKeeperSpec> {
    let spec = &object.spec;
    let tls = ServerTls { quorum: spec.tls.quorum, client: spec.tls.client.clone() };
    let source = Source {
        observers: spec.observers.clone(),
        overrides: spec.overrides.clone(),
        names: spec.network.as_ref().map(names),
    };
    let source = (source != Source::default()).then_some(source);
    Ok(ZooKeeperSpec {
        replicas: spec.replicas,
        observers: None,
        cluster: None,
        revision: revision(&spec.template, RENDER_VERSION, server_image, &tls)?,
        dependencies: dependencies((&spec.template, &tls), certificates, cluster_specs),
        template: spec.template.clone(),
        render_version: RENDER_VERSION,
        server_image: server_image.to_owned(),
        tls,
        peer_cidrs: spec.network.as_ref().map(|n| n.peer_cidrs.clone()).unwrap_or_default(),
        spec_hash: None,
        source,
        ensemble: Ensemble::default(),
    })
}

fn names(network: &Network) -> Names {
    Names {
        mode: network.mode,
        fqdn_template: network.fqdn_template.clone(),
        cluster_ids: network.cluster_ids.clone(),
        cluster_domain: network.cluster_domain.clone(),
    }
}

/// Hash of the pod part: what makes a server restart when it changes. The volume is not in it: volumes grow in place.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn revision(
    template: &ServerTemplate,
    render_version: i32,
    server_image: &str,
    tls: &ServerTls,
) -> serde_json::Result<String> {
    let mut pod = serde_json::to_value(template)?;
    if let Some(reports) = pod.as_object_mut() {
        reports.remove("storage");
    }
    Ok(hash(&(pod, render_version, server_image, tls))?.chars().take(10).collect())
}

/// Whether a template says what is wanted, and only lets more travel.
#[must_use]
pub fn only_more_travels(live: &ZooKeeperSpec, wanted: &ZooKeeperSpec) -> bool {
    wanted.dependencies.iter().all(|dependency| live.dependencies.contains(dependency))
        && ZooKeeperSpec { dependencies: wanted.dependencies.clone(), ..live.clone() } == *wanted
}

/// Every Secret that pods need, each once, and in an order that does not change.
fn dependencies(
    (template, tls): (&ServerTemplate, &ServerTls),
    certificates: Vec<Dependency>,
    cluster_specs: &BTreeMap<String, ZooKeeperSpec>,
) -> Vec<Dependency> {
    let mut needed: BTreeSet<Dependency> = certificates.into_iter().chain(secrets(template, tls)).collect();
    for dependency in cluster_specs.values().flat_map(|pin| secrets(&pin.template, &pin.tls)) {
        // So many may travel. Of what only former pods need, some may stay behind then.
        if needed.len() < MOST {
            needed.insert(dependency);
        }
    }
    needed.into_iter().collect()
}

/// The Secrets of people that a pod part names.
fn secrets<'a>(template: &'a ServerTemplate, tls: &'a ServerTls) -> impl Iterator<Item = Dependency> + 'a {
    let names = template.image_pull_secrets.iter().chain(tls.client.iter().map(|client| &client.secret_name));
    names.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() })
}
