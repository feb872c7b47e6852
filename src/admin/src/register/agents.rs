//! Agents of all member clusters, which Karmada propagates: the objects of `manifests/agent.yaml`, and a policy for
//! them.
//!
//! Karmada propagates their namespace by itself, as it does with every namespace. A member cluster that has its own
//! agent, from the chart or by hand, keeps it (`Abort`). Agents stay when the policy is deleted: servers depend on
//! them, and they depend on nothing in the control plane.

use kube::ResourceExt as _;
use serde::de::Error as _;
use serde_json::Value;

use super::{
    object::Object,
    pods::{PodSettings, configure},
    propagation,
};
use mczk_api::{karmada::ResourceSelector, yaml};

/// Objects of a member cluster.
const MANIFEST: &str = include_str!("../../../../manifests/agent.yaml");
/// Name of the policy.
pub(crate) const POLICY: &str = "mczk-agents";
/// Namespace of the agents.
pub(crate) const NAMESPACE: &str = "mczk-system";
/// Name of the Deployment of the agents.
pub(crate) const DEPLOYMENT: &str = "mczk-agent";

/// What users choose of the agents.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// Image and settings of the pods.
    pub pods: PodSettings,
    /// Secrets that the pods need, in [`NAMESPACE`].
    pub secrets: Vec<Object>,
}

impl Agents {
    /// Agents with this image, and otherwise as in the manifest.
    #[must_use]
    pub(crate) fn of_image(image: String) -> Self {
        Self { pods: PodSettings { image, ..PodSettings::default() }, ..Self::default() }
    }
}

/// The objects, with these settings, and the policy. The policy comes last, so that it is also removed last, and preserves
/// the objects that it selects.
///
/// # Errors
/// Never for the manifest of this crate.
pub(crate) fn objects(agents: &Agents) -> serde_json::Result<Vec<Object>> {
    let (mut objects, mut selectors) = (Vec::new(), Vec::new());
    for mut value in yaml::read(MANIFEST).map_err(serde_json::Error::custom)? {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        if kind != "Namespace" {
            let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
            selectors.push(ResourceSelector::named(&api_version, &kind, text("/metadata/name"), namespace));
        }
        configure(&mut value, &agents.pods);
        objects.push(Object::of_manifest(&value)?);
    }
    for secret in &agents.secrets {
        let namespace = secret.body.metadata.namespace.clone();
        selectors.push(ResourceSelector::named("v1", "Secret", secret.body.name_any(), namespace));
        objects.push(secret.clone());
    }
    objects.push(Object::of(&propagation::policy(POLICY, selectors, "Abort"))?);
    Ok(objects)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn all_objects_of_an_agent_are_propagated_with_the_image() {
        let objects = objects(&Agents::of_image("registry.example/mczk:2".to_owned())).unwrap();
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
