//! The template in the control plane, from which the pins of all clusters are made.

use std::collections::BTreeSet;

use crate::{
    api::{
        MultiClusterZooKeeper,
        multiclusterzookeeper::Network,
        pod::ServerTemplate,
        zookeeper::{Dependency, DependencyKind, Ensemble, Names, ServerTls, Source, ZooKeeperSpec},
    },
    rollout::canonical::hash,
};

/// How the pod part is turned into objects. It rises when a version of mczk renders the same pod part differently, so that
/// an upgrade of mczk rolls in turns like any other change.
pub const RENDER_VERSION: i32 = 1;

/// The template's spec: everything that the pins are made from. `certificates` are the Secrets of the quorum that travel with
/// it. It changes only between records, so that a rollout goes on
/// with what it began with.
///
/// # Errors
/// As [`super::canonical::hash`].
pub fn template(
    object: &MultiClusterZooKeeper,
    server_image: &str,
    certificates: Vec<Dependency>,
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
        revision: revision(&spec.template, server_image, &tls)?,
        dependencies: dependencies(&spec.template, &tls, certificates),
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

fn dependencies(template: &ServerTemplate, tls: &ServerTls, certificates: Vec<Dependency>) -> Vec<Dependency> {
    let secrets = template.image_pull_secrets.iter().chain(tls.client.iter().map(|c| &c.secret_name));
    let secrets = secrets.map(|name| Dependency { kind: DependencyKind::Secret, name: name.clone() });
    let unique: BTreeSet<Dependency> = secrets.chain(certificates).collect();
    unique.into_iter().collect()
}
