//! Edits and deletions by hand, in the control plane.

use anyhow::{Context, Result};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use mczk_api::{MultiClusterZooKeeper, contract::naming::policy_name};
use serde_json::{Value, json};

use super::{
    operations::{Kind, Operation},
    world::{NAME, World},
};
use crate::scene::kind;

impl World<'_> {
    fn overrides(&self) -> Api<DynamicObject> {
        self.scene.untyped("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies")
    }

    fn propagations(&self) -> Api<DynamicObject> {
        self.scene.untyped("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies")
    }

    fn templates(&self) -> Api<DynamicObject> {
        self.scene.untyped("mczk.io/v1alpha1", "ZooKeeper", "zookeepers")
    }

    /// Adds or changes fields of an owned object; says which.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn edit(&self, operation: &Operation) -> Result<String> {
        let policy = policy_name(NAME);
        let label = json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "example.com/x": "y" } } });
        let cluster = operation.of(&self.clusters).context("there are no clusters")?;
        let (api, name, variants) = match operation.kind {
            Kind::EditPropagation => {
                let placement = |more: Value| json!({ "spec": { "placement": more } });
                let exclude = placement(json!({ "clusterAffinity": { "exclude": [cluster] } }));
                let spread =
                    placement(json!({ "spreadConstraints": [{ "spreadByField": "cluster", "maxGroups": 2 }] }));
                (self.propagations(), policy.as_str(), vec![exclude, spread, label])
            }
            Kind::EditOverride => {
                let [image, replicas] = self.foreign_rules(&policy).await?;
                (self.overrides(), policy.as_str(), vec![image, replicas, label])
            }
            _ => {
                let setting = json!({ "zooCfg": [{ "name": "maxClientCnxns", "value": "7" }] });
                let spec = |more: Value| json!({ "spec": more });
                let variants = vec![spec(json!({ "template": setting })), spec(json!({ "replicas": 1 })), label];
                (self.templates(), NAME, variants)
            }
        };
        let patch = operation.of(&variants).context("there are no variants")?;
        api.patch(name, &PatchParams::apply("kubectl-edit"), &Patch::Merge(patch)).await?;
        let text = patch.to_string();
        Ok(format!("{name}: {}", text.chars().take(100).collect::<String>()))
    }

    /// Two patches of the OverridePolicy: an image overrider, and no replicas in every cluster spec.
    async fn foreign_rules(&self, policy: &str) -> Result<[Value; 2]> {
        let whole = self.overrides().get(policy).await?;
        let rules = whole.data.pointer("/spec/overrideRules").cloned().context("the OverridePolicy has no rules")?;
        let mut image = rules.clone();
        if let Some(first) = image.pointer_mut("/0/overriders").and_then(Value::as_object_mut) {
            let registry = json!([{ "component": "Registry", "operator": "replace", "value": "example.com" }]);
            first.insert("imageOverrider".to_owned(), registry);
        }
        let mut none = rules;
        for rule in none.as_array_mut().into_iter().flatten() {
            let patches = rule.pointer_mut("/overriders/plaintext").and_then(Value::as_array_mut);
            for replicas in patches.into_iter().flatten().filter_map(|patch| patch.pointer_mut("/value/replicas")) {
                *replicas = json!(0);
            }
        }
        Ok([image, none].map(|rules| json!({ "spec": { "overrideRules": rules } })))
    }

    /// Deletes an owned object, also if it is protected; says which.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn delete_owned(&self, operation: &Operation) -> Result<String> {
        let (api, name) = match operation.kind {
            Kind::DeletePropagation => (self.propagations(), policy_name(NAME)),
            Kind::DeleteOverride => (self.overrides(), policy_name(NAME)),
            Kind::DeleteTemplate => (self.templates(), NAME.to_owned()),
            _ => {
                let works = self.scene.works(NAME).await?;
                let (namespace, work) = operation.of(&works).context("there is no Work")?.clone();
                let resource = kind("work.karmada.io/v1alpha1", "Work", "works");
                (Api::namespaced_with(self.members.federation.karmada.clone(), &namespace, &resource), work)
            }
        };
        self.scene.delete_by_force(&api, &name).await?;
        Ok(name)
    }

    /// Removes the status of the MultiClusterZooKeeper.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn wipe_status(&self) -> Result<()> {
        let wipe: Patch<()> = Patch::Json(serde_json::from_value(json!([{ "op": "remove", "path": "/status" }]))?);
        let api = self.scene.api::<MultiClusterZooKeeper>();
        api.patch_status(NAME, &PatchParams::default(), &wipe).await.map(drop).context("the status cannot be removed")
    }
}
