//! A hand: another client that edits or deletes the operator's objects in the control plane.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mczk_api::{
    contract::labels::{APPLIED_HASH, TERM},
    karmada::policy::{OverrideRule, OverrideTarget, Overriders, PlaintextOverrider},
};
use mczk_rules::rollout::objects;
use serde::Serialize;
use serde_json::{Value, json};

use crate::state::{Shared, State, Template, name};

/// The image of an edited template. No user declares it.
pub const HAND_IMAGE: &str = "zookeeper:hand";

/// True if an object is not as the operator wrote it. The hash in its annotation covers metadata and spec, but not the term.
pub fn is_edited<S: Serialize>(meta: &ObjectMeta, spec: &S) -> bool {
    let mut own = meta.clone();
    let applied = own.annotations.as_mut().and_then(|annotations| {
        annotations.remove(TERM);
        annotations.remove(APPLIED_HASH)
    });
    let written = objects::with_applied_hash(own, spec).expect("objects have JSON");
    written.annotations.as_ref().and_then(|annotations| annotations.get(APPLIED_HASH)) != applied.as_ref()
}

/// True if the live template is edited.
pub fn has_edited_template(state: &State) -> bool {
    state.template.as_ref().is_some_and(|t| is_edited(&t.object.get().metadata, &t.object.get().spec))
}

/// True if the live OverridePolicy is edited.
pub fn has_edited_overrides(state: &State) -> bool {
    state.overrides.as_ref().is_some_and(|p| is_edited(&p.get().metadata, &p.get().spec))
}

/// True if the live PropagationPolicy is edited.
pub fn has_edited_policy(state: &State) -> bool {
    state.policy.as_ref().is_some_and(|p| is_edited(&p.get().metadata, &p.get().spec))
}

/// The PropagationPolicy excludes a cluster.
pub fn exclude(state: &mut State, cluster: usize) -> bool {
    let Some(mut policy) = state.policy.as_ref().map(|p| p.get().clone()) else { return false };
    let Some(affinity) = &mut policy.spec.placement.cluster_affinity else { return false };
    if affinity.exclude_clusters.contains(&name(cluster)) {
        return false;
    }
    affinity.exclude_clusters.push(name(cluster));
    state.policy = Some(Shared::new(policy));
    true
}

/// The PropagationPolicy preserves nothing when the template is deleted.
pub fn unpreserve(state: &mut State) -> bool {
    let Some(mut policy) = state.policy.as_ref().map(|p| p.get().clone()) else { return false };
    let did_preserve = policy.spec.preserve_resources_on_deletion.replace(false) == Some(true);
    state.policy = Some(Shared::new(policy));
    did_preserve
}

fn edit_rules(state: &mut State, edit: impl FnOnce(&mut Vec<OverrideRule>) -> bool) -> bool {
    let Some(mut policy) = state.overrides.as_ref().map(|p| p.get().clone()) else { return false };
    let edited = edit(&mut policy.spec.override_rules);
    state.overrides = Some(Shared::new(policy));
    edited
}

/// The value that the OverridePolicy gives a path, for one cluster or for all.
fn value<'a>(rules: &'a mut [OverrideRule], cluster: Option<&str>, path: &str) -> Option<&'a mut Value> {
    let is_for = |rule: &&mut OverrideRule| {
        rule.target_cluster.as_ref().and_then(|target| target.cluster_names.first()).map(String::as_str) == cluster
    };
    let mut patches = rules.iter_mut().filter(is_for).flat_map(|rule| &mut rule.overriders.plaintext);
    patches.find(|patch| patch.path == path)?.value.as_mut()
}

/// The cluster spec of a cluster has no replicas.
pub fn empty_cluster_spec(state: &mut State, cluster: usize) -> bool {
    edit_rules(state, |rules| match value(rules, Some(&name(cluster)), "/spec") {
        Some(spec) => std::mem::replace(&mut spec["replicas"], json!(0)) != 0,
        None => false,
    })
}

/// The server list lacks its last server.
pub fn shorten_list(state: &mut State) -> bool {
    edit_rules(state, |rules| {
        let list = value(rules, None, "/spec/ensemble");
        list.and_then(|list| list["servers"].as_array_mut()?.pop()).is_some()
    })
}

/// The OverridePolicy has one more rule: a cluster has no replicas.
pub fn add_rule(state: &mut State, cluster: usize) -> bool {
    let patch =
        PlaintextOverrider { path: "/spec/replicas".to_owned(), operator: "replace".to_owned(), value: Some(json!(0)) };
    let rule = OverrideRule {
        target_cluster: Some(OverrideTarget { cluster_names: vec![name(cluster)] }),
        overriders: Overriders { plaintext: vec![patch] },
    };
    edit_rules(state, |rules| {
        let is_new = rules.last() != Some(&rule);
        rules.push(rule);
        is_new
    })
}

/// The template has another image.
pub fn edit_image(state: &mut State) -> bool {
    edit_template(state, |spec| std::mem::replace(&mut spec.template.image, HAND_IMAGE.to_owned()) != HAND_IMAGE)
}

/// The template has two replicas more.
pub fn scale_template(state: &mut State) -> bool {
    edit_template(state, |spec| {
        spec.replicas += 2;
        true
    })
}

fn edit_template(state: &mut State, edit: impl FnOnce(&mut mczk_api::zookeeper::ZooKeeperSpec) -> bool) -> bool {
    let Some(live) = state.template.as_ref().filter(|template| !template.foreign) else { return false };
    let mut object = live.object.get().clone();
    let edited = edit(&mut object.spec);
    state.template = Some(Template { object: Shared::new(object), generation: live.generation + 1, ..live.clone() });
    edited
}

/// The template is deleted, after its protection was removed. The binding stays as long as it is protected.
pub fn delete_template(state: &mut State) -> bool {
    let is_own = state.template.as_ref().is_some_and(|template| !template.foreign);
    if is_own {
        state.template = None;
    }
    is_own
}

/// The template is deleted, and the binding has no protection any more.
pub fn purge_template(state: &mut State) -> bool {
    let is_own = delete_template(state);
    if let Some(binding) = state.binding.as_mut().filter(|_| is_own) {
        binding.protected = false;
    }
    is_own
}
