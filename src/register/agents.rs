//! Agents of all member clusters, which Karmada propagates: the objects of `manifests/agent.yaml`, and a policy for
//! them.
//!
//! Karmada propagates their namespace by itself, as it does with every namespace. A member cluster that has its own
//! agent, from the chart or by hand, keeps it (`Abort`). Agents stay when the policy is deleted: servers depend on
//! them, and they depend on nothing in the control plane.

use kube::core::{ApiResource, GroupVersionKind};
use serde::{Deserialize as _, de::Error as _};
use serde_json::Value;

use super::{object::Object, propagation};
use crate::api::karmada::ResourceSelector;

/// Objects of a member cluster.
const MANIFEST: &str = include_str!("../../manifests/agent.yaml");
/// Name of the policy.
const AGENTS: &str = "mczk-agents";

/// The objects, with this image, and the policy. The policy comes last, so that it is also removed last, and preserves
/// the objects that it selects.
///
/// # Errors
/// Never for the manifest of this crate.
pub(crate) fn objects(image: &str) -> serde_json::Result<Vec<Object>> {
    let (mut objects, mut selectors) = (Vec::new(), Vec::new());
    for document in serde_yaml::Deserializer::from_str(MANIFEST) {
        let mut value = Value::deserialize(document).map_err(serde_json::Error::custom)?;
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        if kind != "Namespace" {
            let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
            selectors.push(ResourceSelector::named(&api_version, &kind, text("/metadata/name"), namespace));
        }
        if let Some(current) = value.pointer_mut("/spec/template/spec/containers/0/image") {
            *current = Value::String(image.to_owned());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        objects.push(Object::new(ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind)), &value)?);
    }
    objects.push(Object::of(&propagation::policy(AGENTS, selectors, "Abort"))?);
    Ok(objects)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn all_objects_of_an_agent_are_propagated_with_the_image() {
        let objects = objects("registry.example/mczk:2").unwrap();
        let names: Vec<String> = objects.iter().map(|o| format!("{} {}", o.resource.kind, o.name())).collect();
        assert_eq!(
            names,
            [
                "Namespace mczk-system",
                "ServiceAccount mczk-system/mczk-agent",
                "ClusterRole mczk-agent",
                "ClusterRoleBinding mczk-agent",
                "Role mczk-system/mczk-agent",
                "RoleBinding mczk-system/mczk-agent",
                "Deployment mczk-system/mczk-agent",
                "ClusterPropagationPolicy mczk-agents",
            ]
        );
        let plurals: Vec<&str> = objects.iter().map(|o| o.resource.plural.as_str()).collect();
        assert_eq!(plurals[5..], ["rolebindings", "deployments", "clusterpropagationpolicies"]);
        let image = objects[6].body.data.pointer("/spec/template/spec/containers/0/image");
        assert_eq!(image.unwrap(), "registry.example/mczk:2");
        let selected = objects[7].body.data.pointer("/spec/resourceSelectors").unwrap().as_array().unwrap();
        let kinds: Vec<&str> = selected.iter().map(|s| s["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"]);
        assert_eq!(selected[5]["namespace"], "mczk-system");
        assert_eq!(objects[7].body.data.pointer("/spec/preserveResourcesOnDeletion").unwrap(), true);
    }
}
