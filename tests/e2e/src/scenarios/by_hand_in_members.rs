//! Edits and deletions by hand in a member cluster. Karmada reverts those of the object that it propagates, and the agent those
//! of the objects that it made of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy},
};
use serde_json::{Value, json};

use crate::{
    agent::Behaviour,
    federation::Federation,
    patience::wait_for,
    scene::{PATIENCE, Scene, ensemble, kind},
};

/// The cluster in which a hand edits.
const CLUSTER: &str = "m1";
/// The field manager of the hand.
const HAND: &str = "kubectl-edit";
const AGENT: &str = "mczk-agent";

struct Member<'a> {
    scene: &'a Scene<'a>,
    client: Client,
}

pub(super) async fn member_edited(federation: &Federation) -> Result<()> {
    let scene = Scene::new(federation, "members", Behaviour::default()).await?;
    scene.create(&ensemble("zoo", 3, &json!({}))).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let client = federation.members.get(CLUSTER).cloned().context("the cluster has no client")?;
    let member = Member { scene: &scene, client };
    let (pods, generations) = (member.pods().await?, scene.generations("zoo").await?);

    // The webhook of no API server knows that this spec is not the operator's.
    let foreign = json!({ "spec": { "replicas": 0, "template": { "image": "zookeeper:foreign" } } });
    let object = member.api("ZooKeeper");
    let managers = member.reverted(&object, "zoo", foreign).await?;
    ensure!(!managers.contains(AGENT), "the agent has written the spec: {managers:?}");

    // The agent owns these fields. What it does not declare may come from other controllers, and stays.
    let service = json!({ "spec": { "selector": { "app": "foreign" } } });
    let disruption = json!({ "spec": { "maxUnavailable": 2 } });
    let set = json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 1 } } } });
    let set_name = member.names("StatefulSet").await?.into_iter().next().context("there is no StatefulSet")?;
    for (kind, patch) in [("Service", service), ("PodDisruptionBudget", disruption), ("StatefulSet", set)] {
        let api = member.api(kind);
        let name = if kind == "Service" { "zoo" } else { set_name.as_str() };
        let managers = member.reverted(&api, name, patch).await?;
        ensure!(managers.contains(AGENT), "{kind} {name} is reverted by {managers:?}");
    }
    for kind in ["ConfigMap", "Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"] {
        for name in member.names(kind).await? {
            // A StatefulSet owns its pods. No other object owns anything.
            let policy = (kind == "StatefulSet").then_some(PropagationPolicy::Orphan);
            member.returned(&member.api(kind), &name, policy).await?;
        }
    }
    // Servers run on without the object, and Karmada creates another one.
    let gone = member.returned(&object, "zoo", None).await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    let now = member.pods().await?;
    ensure!(now == pods, "servers restarted: {pods:?} became {now:?}");
    for (cluster, before) in generations {
        let after = scene.generations("zoo").await?.remove(&cluster);
        let expected = if cluster == CLUSTER {
            after.as_ref().is_some_and(|(uid, _)| *uid != gone)
        } else {
            after.as_ref() == Some(&before)
        };
        ensure!(expected, "{cluster} had {before:?}, and has {after:?}");
    }
    let records = scene.get("zoo").await?.status.unwrap_or_default().records.len();
    ensure!(records == 1, "an edit in a member began a record");
    // The agent follows the new object.
    scene.image("zoo", "zookeeper:3.9.6").await?;
    scene.settled("zoo").await?;
    scene.members_match("zoo").await?;
    scene.delete("zoo").await
}

impl Member<'_> {
    fn api(&self, name: &str) -> Api<DynamicObject> {
        let (api_version, plural) = match name {
            "ZooKeeper" => ("mczk.io/v1alpha1", "zookeepers"),
            "StatefulSet" => ("apps/v1", "statefulsets"),
            "PodDisruptionBudget" => ("policy/v1", "poddisruptionbudgets"),
            "NetworkPolicy" => ("networking.k8s.io/v1", "networkpolicies"),
            "ConfigMap" => ("v1", "configmaps"),
            "Service" => ("v1", "services"),
            _ => ("v1", "pods"),
        };
        Api::namespaced_with(self.client.clone(), &self.scene.namespace, &kind(api_version, name, plural))
    }

    /// The names of the agent's objects of a kind.
    async fn names(&self, kind: &str) -> Result<BTreeSet<String>> {
        let own = ListParams::default().labels("app.kubernetes.io/managed-by=mczk-agent");
        let names: BTreeSet<String> = self.api(kind).list(&own).await?.iter().map(ResourceExt::name_any).collect();
        ensure!(!names.is_empty(), "the agent has made no {kind}");
        Ok(names)
    }

    /// Uids of the pods of all clusters.
    async fn pods(&self) -> Result<BTreeMap<String, String>> {
        let mut pods = BTreeMap::new();
        for (cluster, client) in &self.scene.federation.members {
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &self.scene.namespace, &kind("v1", "Pod", "pods"));
            for pod in api.list(&ListParams::default()).await? {
                pods.insert(format!("{} of {cluster}", pod.name_any()), pod.uid().unwrap_or_default());
            }
        }
        Ok(pods)
    }

    /// Edits an object, and waits until that is reverted. Returns the field managers of the edited fields.
    async fn reverted(&self, api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<BTreeSet<String>> {
        let whole = api.get(name).await?;
        let edited = api
            .patch(
                name,
                &PatchParams { field_manager: Some(HAND.to_owned()), ..PatchParams::default() },
                &Patch::Merge(&patch),
            )
            .await?;
        ensure!(edited.data.get("spec") != whole.data.get("spec"), "{patch} changes nothing of {name}");
        let now = wait_for(&format!("{patch} is reverted in {name}"), PATIENCE, || async {
            let now = api.get(name).await?;
            ensure!(now.data.get("spec") == whole.data.get("spec"), "it is still there");
            Ok(now)
        })
        .await?;
        self.serves().await?;
        let fields = now.metadata.managed_fields.unwrap_or_default();
        let of_spec = fields.into_iter().filter(|entry| {
            entry.subresource.is_none()
                && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some())
        });
        Ok(of_spec.filter_map(|entry| entry.manager).collect())
    }

    /// Deletes an object, and waits until there is another one. Returns the uid of the first.
    async fn returned(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        propagation_policy: Option<PropagationPolicy>,
    ) -> Result<String> {
        let gone = api.get(name).await?.uid().unwrap_or_default();
        api.delete(name, &DeleteParams { propagation_policy, ..DeleteParams::default() }).await?;
        wait_for(&format!("{name} exists again"), PATIENCE, || async {
            let now = api.get_opt(name).await?.with_context(|| format!("{name} does not exist"))?;
            ensure!(now.uid().as_deref() != Some(&gone), "it is being deleted");
            Ok(())
        })
        .await?;
        self.serves().await?;
        Ok(gone)
    }

    /// Checks that the agents report every server ready, and that no agent has deleted a pod.
    async fn serves(&self) -> Result<()> {
        wait_for("all servers are ready", Duration::from_secs(30), || async {
            for (cluster, object) in self.scene.in_members("zoo").await? {
                let ready = object.status.unwrap_or_default().ready_replicas;
                ensure!(ready == Some(1), "{cluster} has {ready:?} ready servers");
            }
            Ok(())
        })
        .await
    }
}
