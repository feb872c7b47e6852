//! Policies of users that select the Secrets of an ensemble with all others.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use mczk_api::{
    contract::labels::{ENSEMBLE_LABEL, REPLACE_AUTHORITY},
    karmada::{CLAIMED_BY, claiming_policy},
};
use serde_json::json;

use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

const NAME: &str = "zoo";
/// The cluster of the only server.
const CLUSTER: &str = "m1";
/// A Secret of the user. It shows that a policy carries Secrets.
const BYSTANDER: &str = "bystander";
const API_VERSION: &str = "policy.karmada.io/v1alpha1";

/// A user with policies of one kind.
struct Policies<'a> {
    scene: &'a Scene<'a>,
    kind: &'static str,
    api: Api<DynamicObject>,
}

pub(super) async fn key_selected(federation: &Federation) -> Result<()> {
    let namespaced = of_kind(federation, "PropagationPolicy", "propagationpolicies");
    let cluster_wide = of_kind(federation, "ClusterPropagationPolicy", "clusterpropagationpolicies");
    futures::try_join!(namespaced, cluster_wide)?;
    Ok(())
}

/// A policy that is older than the Secrets of an ensemble, then one that is younger, then one that carries the key by force.
async fn of_kind(federation: &Federation, name: &'static str, plural: &str) -> Result<()> {
    let scene = Scene::new(federation, &format!("selected-{plural}"), Behaviour::default()).await?;
    let api = if name == "PropagationPolicy" {
        scene.untyped(API_VERSION, name, plural)
    } else {
        Api::all_with(federation.karmada.clone(), &kind(API_VERSION, name, plural))
    };
    let policies = Policies { scene: &scene, kind: name, api };
    let bystander = serde_json::from_value(json!({ "metadata": { "name": BYSTANDER } }))?;
    scene.api::<Secret>().create(&PostParams::default(), &bystander).await?;
    let [older, younger] = ["older", "younger"].map(|age| format!("{}-{age}", scene.namespace));

    policies.create(&older).await?;
    let placement = json!({ "placement": { "clusterAffinity": { "clusterNames": [CLUSTER] } } });
    scene.create(&ensemble(NAME, 1, &placement)).await?;
    scene.settled(NAME).await?;
    policies.carry_no_key().await?;

    let before = scene.generations(NAME).await?;
    policies.delete(&older).await?;
    policies.create(&younger).await?;
    // Karmada reads all Secrets when the policy comes, and the bystander may be the first.
    tokio::time::sleep(Duration::from_secs(2)).await;
    policies.carry_no_key().await?;
    ensure!(scene.generations(NAME).await? == before, "a policy of Secrets changed the spec of servers");

    policies.carry_key(&younger).await?;
    policies.delete(&younger).await?;
    scene.delete(NAME).await
}

impl Policies<'_> {
    /// Creates a policy that brings all Secrets to all clusters, and waits until it has brought the bystander.
    async fn create(&self, name: &str) -> Result<()> {
        let clusters: Vec<&String> = self.scene.federation.members.keys().collect();
        let policy = json!({ "apiVersion": API_VERSION, "kind": self.kind, "metadata": { "name": name }, "spec": {
            "resourceSelectors": [{ "apiVersion": "v1", "kind": "Secret", "namespace": self.scene.namespace }],
            "placement": { "clusterAffinity": { "clusterNames": clusters } },
            // That of the operator's policies is 0.
            "priority": 100,
        }});
        self.api.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        wait_for(&format!("{name} carries the bystander"), PATIENCE, || async {
            let bystander = self.scene.api::<Secret>().get(BYSTANDER).await?;
            let carries = claiming_policy(&bystander.metadata);
            ensure!(carries == Some(name), "it belongs to {carries:?}");
            let secrets = self.in_members().await?;
            let count = secrets.iter().filter(|secret| secret.name_any() == BYSTANDER).count();
            ensure!(count == clusters.len(), "{count} clusters have it");
            Ok(())
        })
        .await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// All Secrets in the namespace, in all member clusters.
    async fn in_members(&self) -> Result<Vec<Secret>> {
        let lists = self.scene.federation.members.values().map(|client| async {
            let api: Api<Secret> = Api::namespaced(client.clone(), &self.scene.namespace);
            anyhow::Ok(api.list(&ListParams::default()).await?.items)
        });
        Ok(try_join_all(lists).await?.concat())
    }

    /// The Secrets with the key of an authority that member clusters have.
    async fn keys(&self) -> Result<BTreeSet<String>> {
        let with_key = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("ca.key"));
        let secrets = self.in_members().await?;
        Ok(secrets.iter().filter(|secret| with_key(secret)).map(ResourceExt::name_any).collect())
    }

    /// Checks that the server runs with its certificates, and that a policy has brought none of them to another cluster. What a
    /// policy brings stays there.
    async fn carry_no_key(&self) -> Result<()> {
        self.scene.members_match(NAME).await?;
        let keys = self.keys().await?;
        ensure!(keys.is_empty(), "member clusters have {keys:?}");
        for cluster in self.scene.federation.members.keys().filter(|cluster| *cluster != CLUSTER) {
            let certificates = self.scene.secrets(cluster, NAME).await?;
            ensure!(certificates.is_empty(), "{cluster} has no server, and {certificates:?}");
        }
        Ok(())
    }

    /// A hand removes the label that protects the key. The status names policy and Secret until servers trust another authority.
    async fn carry_key(&self, policy: &str) -> Result<()> {
        let secrets = self.scene.api::<Secret>();
        let own = ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={NAME}"));
        let mut names = secrets.list(&own).await?.into_iter().map(|secret| secret.name_any());
        let authority = names.find(|name| name.contains("-authority-")).context("there is no authority")?;
        let label = json!({ "metadata": { "labels": { CLAIMED_BY: null } } });
        secrets.patch(&authority, &PatchParams::default(), &Patch::Merge(label)).await?;
        let key = BTreeSet::from([authority.clone()]);
        wait_for("the policy carries the key", PATIENCE, || async {
            let keys = self.keys().await?;
            ensure!(keys == key, "member clusters have {keys:?}");
            Ok(())
        })
        .await?;
        let message = self.scene.condition(NAME, "Degraded", "True", "KeyPropagated").await?;
        ensure!(message.contains(&format!("{authority} by policy {policy}")), "the message is {message}");
        self.scene.annotate(NAME, REPLACE_AUTHORITY, "1").await?;
        self.scene.condition(NAME, "Degraded", "False", "Healthy").await?;
        let keys = self.keys().await?;
        ensure!(keys == key, "member clusters have {keys:?}: the policy carries the key of the new authority too");
        Ok(())
    }
}
