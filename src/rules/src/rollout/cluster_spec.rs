//! The cluster spec: the whole spec that the OverridePolicy writes for a cluster, with the spec hash that its agent reports.
//!
//! A spec hash is `generation-hash`. The hash covers spec and generation, so that an agent can verify both. The generation counts
//! the specs of the cluster: after A, B, A the second A has another spec hash, so that no old report of the first A counts for
//! it.

use crate::rollout::render::revision;
use mczk_api::{
    contract::spec_hash::{generation_of, spec_hash_of},
    multiclusterzookeeper::ClusterOverride,
    pod::ServerTemplate,
    zookeeper::{Ensemble, ZooKeeperSpec},
};

/// The spec of one cluster: the template with the overrides of the cluster, and its own replicas, observers, revision and spec
/// hash.
///
/// It keeps the spec hash `before` if that is the hash of this spec. Else it gets the next generation after that hash and after
/// `generation`.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::hash`].
pub fn for_cluster(
    template: &ZooKeeperSpec,
    cluster: &str,
    replicas: i32,
    before: Option<&str>,
    generation: i64,
) -> serde_json::Result<ZooKeeperSpec> {
    let source = template.source.as_ref();
    let mut spec = ZooKeeperSpec {
        replicas,
        observers: source.and_then(|s| s.observers.iter().find(|o| o.cluster == cluster)).map(|o| o.count),
        cluster: Some(cluster.to_owned()),
        spec_hash: None,
        source: None,
        preflight: None,
        // Dependencies travel with the template, for all clusters at once.
        dependencies: Vec::new(),
        ensemble: Ensemble::default(),
        ..template.clone()
    };
    if let Some(own) = source.and_then(|s| s.overrides.iter().find(|o| o.cluster == cluster)) {
        merge(&mut spec.template, own);
        spec.revision = revision(&spec.template, spec.render_version, &spec.server_image, &spec.tls)?;
    }
    let value = serde_json::to_value(&spec)?;
    if let Some(before) = before
        && spec_hash_of(&value, generation_of(before))? == before
    {
        spec.spec_hash = Some(before.to_owned());
    } else {
        spec.spec_hash = Some(spec_hash_of(&value, before.map_or(0, generation_of).max(generation).saturating_add(1))?);
    }
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

/// The current spec of a cluster with more replicas. Its generation follows that of the current spec, and `generation`.
///
/// # Errors
/// As [`mczk_api::contract::canonical_json::hash`].
pub(super) fn grown(current: &ZooKeeperSpec, replicas: i32, generation: i64) -> serde_json::Result<ZooKeeperSpec> {
    let mut spec = ZooKeeperSpec { replicas, spec_hash: None, ..current.clone() };
    let generation = current.spec_hash.as_deref().map_or(0, generation_of).max(generation).saturating_add(1);
    spec.spec_hash = Some(spec_hash_of(&serde_json::to_value(&spec)?, generation)?);
    Ok(spec)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::zookeeper_spec;
    use mczk_api::contract::spec_hash::hash_matches;
    use serde_json::Value;

    fn template(image: &str) -> ZooKeeperSpec {
        zookeeper_spec(json!({ "template": { "image": image } }))
    }

    fn hash_of(image: &str, before: Option<&str>, generation: i64) -> String {
        for_cluster(&template(image), "m1", 2, before, generation).unwrap().spec_hash.unwrap()
    }

    #[test]
    fn a_reverted_spec_has_a_new_hash_and_an_unchanged_one_keeps_its_hash() {
        let a = hash_of("a", None, 0);
        assert!(a.starts_with("1-"));
        assert_eq!(hash_of("a", Some(&a), 0), a);
        assert_eq!(hash_of("a", Some(&a), 9), a);
        let b = hash_of("b", Some(&a), 0);
        let again = hash_of("a", Some(&b), 0);
        assert_eq!((generation_of(&b), generation_of(&again)), (2, 3));
        assert_ne!(a, again);
    }

    #[test]
    fn a_lost_generation_is_not_used_twice() {
        assert_eq!(generation_of(&hash_of("a", None, 4)), 5);
        assert_eq!(generation_of(&hash_of("a", Some("no generation"), 4)), 5);
        assert_eq!(generation_of(&hash_of("a", Some("7-other"), 3)), 8);
        assert_eq!(generation_of(&hash_of("a", Some(&format!("{}-other", i64::MAX)), 3)), 4);
    }

    #[test]
    fn a_changed_spec_does_not_match_its_hash() {
        let whole = serde_json::to_value(for_cluster(&template("a"), "m1", 2, None, 0).unwrap()).unwrap();
        assert!(hash_matches(&whole));
        let turned = whole.get("specHash").and_then(Value::as_str).unwrap().replacen("1-", "2-", 1);
        for (pointer, value) in [
            ("/replicas", json!(1)),
            ("/specHash", json!("1-abc")),
            ("/specHash", json!(turned)),
            ("/specHash", Value::Null),
        ] {
            let mut changed = whole.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!hash_matches(&changed), "{pointer}");
        }
        let mut listed = whole;
        *listed.pointer_mut("/ensemble").unwrap() = json!({ "epoch": 3 });
        assert!(hash_matches(&listed), "the server list has a hash of its own");
    }
}
