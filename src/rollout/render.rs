//! The template in the control plane, and the pin of each cluster: the whole spec that the OverridePolicy writes there.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    api::{
        MultiClusterZooKeeper,
        multiclusterzookeeper::{ClusterOverride, Network},
        pod::ServerTemplate,
        zookeeper::{Dependency, DependencyKind, Ensemble, Names, ServerTls, Source, ZooKeeperSpec},
    },
    rollout::canonical::hash,
};

/// How the pod part is turned into objects. It rises when a version of mczk renders the same pod part differently, so that
/// an upgrade of mczk rolls in turns like any other change.
pub const RENDER_VERSION: i32 = 1;

/// The template's spec: everything that the pins are made from. It changes only between records, so that a rollout goes on
/// with what it began with.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn template(object: &MultiClusterZooKeeper, server_image: &str) -> serde_json::Result<ZooKeeperSpec> {
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
        revision: revision(&spec.template, server_image, &tls)?,
        dependencies: dependencies(&spec.template, &tls),
        template: spec.template.clone(),
        render_version: RENDER_VERSION,
        server_image: server_image.to_owned(),
        tls,
        peer_cidrs: spec.network.as_ref().map(|n| n.peer_cidrs.clone()).unwrap_or_default(),
        pin: None,
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

/// The spec of one cluster, made from the template: overrides merged, name, replicas and observers set, revision and pin
/// computed.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn pin(template: &ZooKeeperSpec, cluster: &str, replicas: i32) -> serde_json::Result<ZooKeeperSpec> {
    let source = template.source.as_ref();
    let mut spec = ZooKeeperSpec {
        replicas,
        observers: source.and_then(|s| s.observers.iter().find(|o| o.cluster == cluster)).map(|o| o.count),
        cluster: Some(cluster.to_owned()),
        pin: None,
        source: None,
        ensemble: Ensemble::default(),
        ..template.clone()
    };
    if let Some(own) = source.and_then(|s| s.overrides.iter().find(|o| o.cluster == cluster)) {
        merge(&mut spec.template, own);
        spec.revision = revision(&spec.template, &spec.server_image, &spec.tls)?;
    }
    spec.pin = Some(pin_hash(&spec)?);
    Ok(spec)
}

fn merge(template: &mut ServerTemplate, own: &ClusterOverride) {
    let ClusterOverride {
        cluster: _,
        image,
        resources,
        storage_class_name,
        node_selector,
        tolerations,
        zoo_cfg,
        jvm_flags,
    } = own;
    if let Some(image) = image {
        template.image.clone_from(image);
    }
    if let Some(resources) = resources {
        template.resources = Some(resources.clone());
    }
    if let Some(class) = storage_class_name {
        template.storage.storage_class_name = Some(class.clone());
    }
    if let Some(selector) = node_selector {
        template.scheduling.get_or_insert_default().node_selector.clone_from(selector);
    }
    if let Some(tolerations) = tolerations {
        template.scheduling.get_or_insert_default().tolerations.clone_from(tolerations);
    }
    for entry in zoo_cfg {
        match template.zoo_cfg.iter_mut().find(|e| e.name == entry.name) {
            Some(existing) => existing.value.clone_from(&entry.value),
            None => template.zoo_cfg.push(entry.clone()),
        }
    }
    template.jvm_flags.extend(jvm_flags.iter().cloned());
}

/// Hash of the pod part: what makes a server restart when it changes. The volume is not in it: volumes grow in place.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn revision(template: &ServerTemplate, server_image: &str, tls: &ServerTls) -> serde_json::Result<String> {
    let mut pod = serde_json::to_value(template)?;
    if let Some(members) = pod.as_object_mut() {
        members.remove("storage");
    }
    Ok(hash(&(pod, RENDER_VERSION, server_image, tls))?.chars().take(10).collect())
}

/// Hash of a spec without `pin`, `ensemble` and `dependencies`, by which a member tells what it has done.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn pin_hash(spec: &ZooKeeperSpec) -> serde_json::Result<String> {
    pin_hash_of(&serde_json::to_value(spec)?)
}

/// As [`pin_hash`], of a spec as it is stored: also of one whose fields this version does not know.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn pin_hash_of(spec: &Value) -> serde_json::Result<String> {
    let mut value = spec.clone();
    if let Some(members) = value.as_object_mut() {
        for excluded in ["pin", "ensemble", "dependencies"] {
            members.remove(excluded);
        }
    }
    hash::<Value>(&value)
}

fn dependencies(template: &ServerTemplate, tls: &ServerTls) -> Vec<Dependency> {
    let secrets = template.image_pull_secrets.iter().chain(tls.client.iter().map(|c| &c.secret_name));
    let unique: BTreeSet<Dependency> =
        secrets.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() }).collect();
    unique.into_iter().collect()
}
