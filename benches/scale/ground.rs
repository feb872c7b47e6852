//! karmada-apiserver with etcd and the aggregated API server, and member clusters that exist only as objects.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use anyhow::{Context, Result};
use e2e::{
    federation::{Federation, Options},
    scene::kind,
};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Namespace,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use mczk_api::contract::labels::ENSEMBLE_LABEL;
use serde_json::{Value, json};

/// Components that stay: the API server and what it needs.
const KEPT: [&str; 3] = ["etcd", "karmada-apiserver", "karmada-aggregated-apiserver"];
/// Kinds of the objects that the operator creates.
const OWNED: [(&str, &str, &str); 6] = [
    ("mczk.io/v1alpha1", "ZooKeeper", "zookeepers"),
    ("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
    ("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serviceexports"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceImport", "serviceimports"),
    ("v1", "Secret", "secrets"),
];
/// Number of member clusters.
pub(crate) const CLUSTERS: usize = 20;
/// Ensembles of one namespace.
const PER_NAMESPACE: usize = 100;

/// The control plane, without Karmada's controllers.
pub(crate) struct Ground {
    /// The federation, whose rig runs only an API server.
    pub(crate) federation: Federation,
    begun: Instant,
}

/// Namespace and name of an ensemble, by its number.
pub(crate) fn key(number: usize) -> (String, String) {
    (format!("scale-{}", number / PER_NAMESPACE), format!("zoo-{number}"))
}

/// Name of a member cluster, by its number.
pub(crate) fn cluster_name(number: usize) -> String {
    format!("c{:02}", number % CLUSTERS)
}

impl Ground {
    /// Starts it, or uses a running one.
    ///
    /// # Errors
    /// If Karmada does not start.
    pub(crate) async fn start(dir: Option<PathBuf>, keep: bool) -> Result<Self> {
        let federation = Federation::up(Options { dir, keep, members: 1, ..Options::default() }).await?;
        let ground = Self { federation, begun: Instant::now() };
        let running = ground.controllers().await?;
        if !running.is_empty() {
            ground.federation.register().await?;
            for component in running {
                ground.federation.rig.stop(&component).await?;
            }
            ground.remove_webhooks().await?;
        }
        for number in 0..CLUSTERS {
            ground.create_cluster(&cluster_name(number)).await?;
        }
        ground.report("the control plane is up, without controllers");
        Ok(ground)
    }

    /// The client of the administrator.
    pub(crate) fn client(&self) -> Client {
        self.federation.karmada.clone()
    }

    /// Reports progress.
    pub(crate) fn report(&self, text: &str) {
        eprintln!("[{:6.1} s] {text}", self.begun.elapsed().as_secs_f64());
    }

    /// Ends everything, or leaves it running.
    ///
    /// # Errors
    /// If a part does not end.
    pub(crate) async fn end(self, keep: bool) -> Result<()> {
        if keep { self.federation.leave().await.map(drop) } else { self.federation.down(false).await }
    }

    /// The components that run, and that an API server does not need.
    async fn controllers(&self) -> Result<Vec<String>> {
        let all = self.federation.rig.status().await?.components.into_iter();
        let running = all.filter(|component| component.pid.is_some() && !KEPT.contains(&component.name.as_str()));
        Ok(running.map(|component| component.name).collect())
    }

    /// Karmada's webhooks have stopped, and the API server would wait for them at each write.
    async fn remove_webhooks(&self) -> Result<()> {
        let (list, delete) = (ListParams::default(), DeleteParams::default());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client());
        mutating.delete_collection(&delete, &list).await?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client());
        validating.delete_collection(&delete, &list).await?;
        Ok(())
    }

    /// Creates the namespaces of this number of ensembles, and grants the operator its rights there.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(crate) async fn grant(&self, ensembles: usize) -> Result<()> {
        let namespaces: Vec<String> = (0..ensembles).step_by(PER_NAMESPACE).map(|number| key(number).0).collect();
        let api: Api<Namespace> = Api::all(self.client());
        for name in &namespaces {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            accept_existing(api.create(&PostParams::default(), &serde_json::from_value(namespace)?).await)?;
        }
        self.federation.grant(&namespaces.join(",")).await.map(drop)
    }

    /// Removes everything that the operator has created for an ensemble.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(crate) async fn remove_objects_of(&self, namespace: &str, name: &str) -> Result<()> {
        let (list, delete) =
            (ListParams::default().labels(&format!("{ENSEMBLE_LABEL}={name}")), DeleteParams::default());
        for (version, name, plural) in OWNED {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client(), namespace, &kind(version, name, plural));
            api.delete_collection(&delete, &list).await?;
        }
        Ok(())
    }

    /// The member clusters.
    pub(crate) fn clusters(&self) -> Api<DynamicObject> {
        Api::all_with(self.client(), &kind("cluster.karmada.io/v1alpha1", "Cluster", "clusters"))
    }

    async fn create_cluster(&self, name: &str) -> Result<()> {
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
            "spec": { "syncMode": "Push", "id": name, "apiEndpoint": format!("https://{name}.example:6443") },
        });
        accept_existing(self.clusters().create(&PostParams::default(), &serde_json::from_value(cluster)?).await)?;
        self.set_cluster_status(name, true).await
    }

    /// Makes a member cluster Ready or not.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(crate) async fn set_cluster_status(&self, name: &str, ready: bool) -> Result<()> {
        let status = Patch::Merge(json!({ "status": cluster_status(ready) }));
        self.clusters().patch_status(name, &PatchParams::default(), &status).await.context("status of a Cluster")?;
        Ok(())
    }

    /// Labels a member cluster.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(crate) async fn label_cluster(&self, name: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "bench": value } } }));
        self.clusters().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// As long as that of a real cluster: most of it are the kinds that the cluster serves.
fn cluster_status(ready: bool) -> Value {
    let kinds = |group: usize| -> Vec<Value> {
        (0..6).map(|i| json!({ "name": format!("kind{group}x{i}s"), "kind": format!("Kind{group}x{i}") })).collect()
    };
    let mut served: BTreeMap<String, Vec<Value>> =
        (0..40).map(|group| (format!("group{group}.example.com/v1"), kinds(group))).collect();
    served.insert("mczk.io/v1alpha1".to_owned(), vec![json!({ "name": "zookeepers", "kind": "ZooKeeper" })]);
    served.insert(
        "multicluster.x-k8s.io/v1alpha1".to_owned(),
        vec![json!({ "name": "serviceexports", "kind": "ServiceExport" })],
    );
    let enablements: Vec<Value> =
        served.iter().map(|(version, kinds)| json!({ "groupVersion": version, "resources": kinds })).collect();
    json!({
        "kubernetesVersion": "v1.35.0",
        "apiEnablements": enablements,
        "conditions": [{
            "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "ClusterReady",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "nodeSummary": { "totalNum": 3, "readyNum": 3 },
    })
}

/// An object that exists is no error.
///
/// # Errors
/// Every other refusal.
pub(crate) fn accept_existing<T>(result: kube::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error.into()),
    }
}
