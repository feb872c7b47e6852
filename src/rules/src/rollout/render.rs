//! The template in the control plane, from which the operator makes the cluster specs.

use std::collections::{BTreeMap, BTreeSet};

use mczk_api::{
    MultiClusterZooKeeper,
    contract::canonical_json::hash,
    network::{Names, Network},
    pod::ServerTemplate,
    tls::ServerTls,
    zookeeper::{Dependency, DependencyKind, Ensemble, Source, ZooKeeperSpec},
};

/// Most dependencies that the schema of a ZooKeeper allows.
const MAX_DEPENDENCIES: usize = 64;

/// Version of the rendering of pods. It rises when mczk renders the same pod template differently, so that an upgrade of mczk
/// rolls over the clusters like any other change.
pub(crate) const RENDER_VERSION: i32 = 1;

/// The spec of the template, from which all cluster specs follow. It changes only between records, so that a record rolls out
/// one spec.
///
/// `certificates` are the Secrets of the quorum that travel with the template. The Secrets of current `cluster_specs` travel too,
/// until the last cluster has another spec.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::hash`].
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
        surveys: false,
    };
    let source = (source != Source::default()).then_some(source);
    Ok(ZooKeeperSpec {
        replicas: spec.replicas,
        observers: None,
        cluster: None,
        spare_of: None,
        revision: revision(&spec.template, RENDER_VERSION, server_image, &tls)?,
        dependencies: dependencies((&spec.template, &tls), certificates, cluster_specs),
        template: spec.template.clone(),
        render_version: RENDER_VERSION,
        server_image: server_image.to_owned(),
        tls,
        peer_cidrs: spec.network.as_ref().map(|n| n.peer_cidrs.clone()).unwrap_or_default(),
        spec_hash: None,
        source,
        preflight: None,
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

/// Hash of the pod template: servers restart when it changes. The volume is not part of it, since volumes grow in place.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::hash`].
pub(crate) fn revision(
    template: &ServerTemplate,
    render_version: i32,
    server_image: &str,
    tls: &ServerTls,
) -> serde_json::Result<String> {
    let mut pod = serde_json::to_value(template)?;
    if let Some(members) = pod.as_object_mut() {
        members.remove("storage");
    }
    Ok(hash(&(pod, render_version, server_image, tls))?.chars().take(10).collect())
}

/// True if the live template differs from the wanted one only by additional dependencies.
#[must_use]
pub(super) fn has_only_extra_dependencies(live: &ZooKeeperSpec, wanted: &ZooKeeperSpec) -> bool {
    wanted.dependencies.iter().all(|dependency| live.dependencies.contains(dependency))
        && ZooKeeperSpec { dependencies: wanted.dependencies.clone(), ..live.clone() } == *wanted
}

/// Every Secret that pods need, each once, in a stable order.
fn dependencies(
    (template, tls): (&ServerTemplate, &ServerTls),
    certificates: Vec<Dependency>,
    cluster_specs: &BTreeMap<String, ZooKeeperSpec>,
) -> Vec<Dependency> {
    let mut needed: BTreeSet<Dependency> = certificates.into_iter().chain(secrets(template, tls)).collect();
    for dependency in cluster_specs.values().flat_map(|spec| secrets(&spec.template, &spec.tls)) {
        // Beyond the limit, Secrets that only pods of an older spec need stay behind.
        if needed.len() < MAX_DEPENDENCIES {
            needed.insert(dependency);
        }
    }
    needed.into_iter().collect()
}

/// The user's Secrets that a pod template names.
fn secrets<'a>(template: &'a ServerTemplate, tls: &'a ServerTls) -> impl Iterator<Item = Dependency> + 'a {
    let names = template.image_pull_secrets.iter().chain(tls.client.iter().map(|client| &client.secret_name));
    names.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() })
}
