//! A namespace of the federation: what scenarios do in it, and what they check.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::{
        labels::{MANAGED_BY_AGENT, MANAGED_BY_LABEL},
        naming::{binding_name, policy_name, spare_check_name},
    },
    karmada::{DELETION_PROTECTION, work::BINDING_NAME},
    multiclusterzookeeper::{MultiClusterZooKeeperSpec, Record, RecordStatus},
    placement::ReplicaSchedulingType,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    agent::{Agents, Behaviour, History, Key},
    federation::Federation,
    patience::wait_for,
};

/// The longest time of a rollout, on a machine that also compiles. Agents make many requests one after the other.
pub const PATIENCE: Duration = Duration::from_secs(240);
/// The first image of scenarios.
pub const IMAGE: &str = "zookeeper:3.9.5";

/// Label of namespaces: the pods that they admit.
pub const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

tokio::task_local! {
    /// The namespaces of all scenes of the task.
    static NAMESPACES: Arc<Mutex<Vec<String>>>;
}

/// Records the namespaces of the scenes that a future creates. The list outlives the future, for a diagnosis.
pub fn noted<F: Future>(run: F) -> (Arc<Mutex<Vec<String>>>, impl Future<Output = F::Output>) {
    let namespaces = Arc::<Mutex<Vec<String>>>::default();
    (Arc::clone(&namespaces), NAMESPACES.scope(namespaces, run))
}

/// Runs a scenario, and fails if agents broke a rule in the namespaces of its scenes.
///
/// # Errors
/// The scenario's own error, or what agents did.
pub async fn checked(federation: &Federation, scenario: impl Future<Output = Result<()>>) -> Result<()> {
    scenario.await?;
    let namespaces = NAMESPACES.try_with(|all| all.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let agents = federation.agents.iter();
    let violations = agents.flat_map(|agents| namespaces.iter().flatten().flat_map(|name| agents.violations(name)));
    let violations: Vec<String> = violations.collect();
    ensure!(violations.is_empty(), "{}", violations.join("; "));
    Ok(())
}

/// A namespace of the federation.
pub struct Scene<'a> {
    /// The federation.
    pub federation: &'a Federation,
    /// The namespace.
    pub namespace: String,
}

/// A MultiClusterZooKeeper with the given voters and further fields of its spec.
#[must_use]
pub fn ensemble(name: &str, replicas: i32, more: &Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "template": { "image": IMAGE, "storage": { "size": "1Gi" } },
        // Simulated pods do not answer a probe.
        "network": { "mode": "MCS", "preflight": "Skip" },
    });
    merge(&mut spec, more);
    json!({ "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": { "name": name }, "spec": spec })
}

/// Adds the fields of an object to another one, at any depth.
pub fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => into.clone_from(more),
    }
}

/// The resource of a kind without a type of its own.
#[must_use]
pub fn kind(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The generation, the rollout and the conditions of an object, for messages.
#[must_use]
pub fn conditions(object: &MultiClusterZooKeeper) -> String {
    let status = object.status.clone().unwrap_or_default();
    let texts: Vec<String> = status
        .conditions
        .iter()
        .filter(|c| ["Ready", "Progressing", "Scheduled"].contains(&c.type_.as_str()))
        .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message))
        .collect();
    let rollout = status.rollout.as_deref().unwrap_or("no record");
    format!(
        "generation {} (observed {}), {rollout}; {}",
        object.metadata.generation.unwrap_or(0),
        status.observed_generation.unwrap_or(0),
        texts.join("; ")
    )
}

impl<'a> Scene<'a> {
    /// A new namespace, whose pods behave so.
    ///
    /// # Errors
    /// If it cannot be created.
    pub async fn new(federation: &'a Federation, name: &str, behaviour: Behaviour) -> Result<Self> {
        let namespace = format!("e2e-{name}");
        // Only scenarios record their namespaces.
        let _ = NAMESPACES.try_with(|all| all.lock().unwrap_or_else(PoisonError::into_inner).push(namespace.clone()));
        if let Some(agents) = &federation.agents {
            agents.behave(&namespace, behaviour);
        }
        let api: Api<Namespace> = Api::all(federation.karmada.clone());
        // Karmada propagates the label. Member clusters then admit no pod that needs more rights.
        let labels = json!({ POD_SECURITY: "restricted" });
        let object = serde_json::from_value(json!({ "metadata": { "name": namespace, "labels": labels } }))?;
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        federation.grant(&namespace).await?;
        Ok(Self { federation, namespace })
    }

    fn agents(&self) -> Result<&Agents> {
        self.federation.agents.as_ref().context("the agents do not run in this process")
    }

    /// Changes how pods behave here.
    ///
    /// # Errors
    /// If the agents run in another process.
    pub fn behave(&self, behaviour: Behaviour) -> Result<()> {
        self.agents()?.behave(&self.namespace, behaviour);
        Ok(())
    }

    /// Changes in the member clusters so far.
    ///
    /// # Errors
    /// If the agents run in another process.
    pub fn history(&self) -> Result<History> {
        Ok(self.agents()?.history())
    }

    /// The key of an object.
    #[must_use]
    pub fn key(&self, name: &str) -> Key {
        Key { namespace: self.namespace.clone(), name: name.to_owned() }
    }

    /// Checks that one cluster at a time received a new spec: see [`History::one_after_the_other`].
    ///
    /// # Errors
    /// What broke the rule.
    pub fn one_after_the_other(&self, name: &str) -> Result<()> {
        self.history()?.one_after_the_other(&self.key(name)).map_err(anyhow::Error::msg)
    }

    /// Objects of a kind in the control plane.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.federation.karmada.clone(), &self.namespace)
    }

    /// Objects of a kind without its type, in the control plane.
    #[must_use]
    pub fn untyped(&self, api_version: &str, name: &str, plural: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.federation.karmada.clone(), &self.namespace, &kind(api_version, name, plural))
    }

    fn client_of(&self, cluster: &str) -> Result<Client> {
        self.federation.members.get(cluster).cloned().with_context(|| format!("there is no cluster {cluster}"))
    }

    /// Creates a MultiClusterZooKeeper.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn create(&self, object: &Value) -> Result<MultiClusterZooKeeper> {
        let api = self.untyped("mczk.io/v1alpha1", "MultiClusterZooKeeper", "multiclusterzookeepers");
        let created = api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
        Ok(serde_json::from_value(serde_json::to_value(created)?)?)
    }

    /// Changes the spec of a MultiClusterZooKeeper.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn change(&self, name: &str, spec: Value) -> Result<MultiClusterZooKeeper> {
        let api = self.api::<MultiClusterZooKeeper>();
        Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?)
    }

    /// Annotates a MultiClusterZooKeeper.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn annotate(&self, name: &str, annotation: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: value } } }));
        self.api::<MultiClusterZooKeeper>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Runs a command of `mczk` about an ensemble here: its arguments are the command, the ensemble, and more.
    ///
    /// # Errors
    /// If it fails.
    pub async fn command(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.federation.rig.kubeconfig("karmada").display().to_string();
        let place = ["--namespace", &self.namespace, "--kubeconfig", &kubeconfig];
        self.federation.run(&[arguments, &place].concat()).await
    }

    /// Changes the image.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn image(&self, name: &str, image: &str) -> Result<()> {
        self.change(name, json!({ "template": { "image": image } })).await.map(drop)
    }

    /// The MultiClusterZooKeeper.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn get(&self, name: &str) -> Result<MultiClusterZooKeeper> {
        Ok(self.api::<MultiClusterZooKeeper>().get(name).await?)
    }

    /// The last record, if there is one.
    ///
    /// # Errors
    /// If the object cannot be read or has no record.
    pub async fn record(&self, name: &str) -> Result<Record> {
        let object = self.get(name).await?;
        let last = object.status.as_ref().and_then(|s| s.records.last()).cloned();
        last.with_context(|| conditions(&object))
    }

    /// The object in a member cluster.
    ///
    /// # Errors
    /// If it cannot be read or does not exist.
    pub async fn member(&self, cluster: &str, name: &str) -> Result<ZooKeeper> {
        let api: Api<ZooKeeper> = Api::namespaced(self.client_of(cluster)?, &self.namespace);
        api.get_opt(name).await?.with_context(|| format!("{cluster} has no object {name}"))
    }

    /// The objects in all member clusters that have one.
    ///
    /// # Errors
    /// If an API server does not answer.
    pub async fn in_members(&self, name: &str) -> Result<BTreeMap<String, ZooKeeper>> {
        let mut all = BTreeMap::new();
        for (cluster, client) in &self.federation.members {
            let api: Api<ZooKeeper> = Api::namespaced(client.clone(), &self.namespace);
            if let Some(object) = api.get_opt(name).await? {
                all.insert(cluster.clone(), object);
            }
        }
        Ok(all)
    }

    /// Uids and generations in all member clusters: they stay the same if no spec changes.
    ///
    /// # Errors
    /// If an API server does not answer.
    pub async fn generations(&self, name: &str) -> Result<BTreeMap<String, (String, i64)>> {
        let objects = self.in_members(name).await?;
        Ok(objects
            .into_iter()
            .map(|(cluster, o)| (cluster, (o.uid().unwrap_or_default(), o.metadata.generation.unwrap_or(0))))
            .collect())
    }

    /// Waits until a condition of the MultiClusterZooKeeper has a status and a reason; returns its message.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> Result<String> {
        wait_for(&format!("condition {type_}={status} {reason} of {name}"), PATIENCE, || async {
            let object = self.get(name).await?;
            let found = object.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            let found = found.iter().find(|c| c.type_ == type_ && c.status == status && c.reason == reason);
            found.map(|c| c.message.clone()).with_context(|| conditions(&object))
        })
        .await
    }

    /// Waits until the newest generation is rolled out: see [`is_settled`].
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn settled(&self, name: &str) -> Result<MultiClusterZooKeeper> {
        wait_for(&format!("{name} is rolled out"), PATIENCE, || async {
            let object = self.get(name).await?;
            if is_settled(&object) { Ok(object) } else { bail!(conditions(&object)) }
        })
        .await
    }

    /// Waits until the last record deploys its first cluster, while others are pending.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn first_deploying(&self, name: &str, records: usize) -> Result<Record> {
        wait_for(&format!("record {records} of {name} deploys its first cluster"), PATIENCE, || async {
            let object = self.get(name).await?;
            let all = object.status.as_ref().map(|s| s.records.as_slice()).unwrap_or_default();
            let last = all.last().filter(|_| all.len() == records).with_context(|| conditions(&object))?;
            ensure!(last.current_state.completed.is_empty(), "the first cluster is complete already");
            ensure!(
                !last.current_state.deploying.is_empty() && !last.current_state.pending.is_empty(),
                conditions(&object)
            );
            Ok(last.clone())
        })
        .await
    }

    /// Waits until the object in a member cluster has a cluster spec with this image.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn has_image(&self, cluster: &str, name: &str, image: &str) -> Result<ZooKeeper> {
        wait_for(&format!("{name} in {cluster} has the image {image}"), PATIENCE, || async {
            let object = self.member(cluster, name).await?;
            let found = &object.spec.template.image;
            let hash = &object.spec.spec_hash;
            ensure!(hash.is_some() && found == image, "image {found}, spec hash {hash:?}");
            Ok(object)
        })
        .await
    }

    /// Checks that the member clusters of a settled object run its spec: the voters, the image, one server list with unique ids,
    /// and everything completed. Returns their objects.
    ///
    /// # Errors
    /// The difference.
    pub async fn members_match(&self, name: &str) -> Result<BTreeMap<String, ZooKeeper>> {
        wait_for(&format!("the member clusters match {name}"), PATIENCE, || async {
            let declared = self.get(name).await?.spec;
            let observers: i32 = declared.observers.iter().map(|of| of.count).sum();
            let objects = self.in_members(name).await?;
            let running: BTreeMap<String, ZooKeeper> =
                objects.into_iter().filter(|(_, o)| o.spec.spec_hash.is_some() && o.spec.replicas > 0).collect();
            let total: i32 = running.values().map(|o| o.spec.replicas).sum();
            let expected = if is_duplicated(&declared) {
                declared.replicas * i32::try_from(running.len())?
            } else {
                declared.replicas
            };
            ensure!(total == expected, "{total} replicas in all member clusters");
            let hashes: Vec<_> = running.values().map(|o| o.spec.ensemble.hash.clone()).collect();
            ensure!(
                hashes.windows(2).all(|pair| pair.first() == pair.last()),
                "member clusters have different server lists"
            );
            for (cluster, object) in &running {
                let spec = &object.spec;
                let status = object.status.clone().unwrap_or_default();
                let secrets = self.secrets(cluster, name).await?;
                if declared.tls.quorum {
                    let tls = spec.ensemble.tls.as_ref().with_context(|| format!("{cluster} has no certificates"))?;
                    let fields = |secret: &String| secrets.get(secret).map(|of| of.join(",")).unwrap_or_default();
                    ensure!(fields(&tls.identity) == "tls.crt,tls.key", "{cluster} has {secrets:?}");
                    ensure!(tls.trust.iter().all(|trust| fields(trust) == "ca.crt"), "{cluster} has {secrets:?}");
                }
                // Client certificates may stay after they are removed from the spec: Karmada leaves the Secret there.
                let of_quorum = secrets.keys().filter(|name| name.contains("-identity-") || name.contains("-trust-"));
                let expected = if declared.tls.quorum { 2 } else { 0 };
                let key = secrets.values().flatten().any(|field| field == "ca.key");
                ensure!(
                    of_quorum.count() == expected && !key,
                    "{cluster} has {secrets:?}, but the key of an authority must stay in the control plane"
                );
                ensure!(spec.template.image == declared.template.image, "{cluster} has image {}", spec.template.image);
                ensure!(spec.cluster.as_deref() == Some(cluster), "{cluster} has the spec of {:?}", spec.cluster);
                ensure!(status.completed_spec_hash == spec.spec_hash, "{cluster} has not completed its spec");
                ensure!(
                    status.ready_replicas == Some(spec.replicas),
                    "{cluster} has {:?} ready servers",
                    status.ready_replicas
                );
                let voting = i32::try_from(status.voting_members.len())?;
                ensure!(voting == total, "{cluster} reports {voting} voters");
                let mut ids: Vec<i32> = spec.ensemble.servers.iter().map(|s| s.id).collect();
                ids.sort_unstable();
                ids.dedup();
                ensure!(ids.len() == spec.ensemble.servers.len(), "two servers have one id");
                ensure!(i32::try_from(ids.len())? == total + observers, "the server list has {} servers", ids.len());
            }
            Ok(running)
        })
        .await
    }

    /// Removes the deletion protection of an object in the control plane, and deletes it.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn delete_by_force(&self, api: &Api<DynamicObject>, name: &str) -> Result<()> {
        let unprotect = json!({ "metadata": { "labels": { DELETION_PROTECTION: null } } });
        // The operator restores the label, and may be faster than the deletion.
        for _ in 0..20 {
            api.patch(name, &PatchParams::default(), &Patch::Merge(&unprotect)).await?;
            match api.delete(name, &kube::api::DeleteParams::default()).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        bail!("{name} cannot be deleted")
    }

    /// The Works of an object's template: namespace and name.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn works(&self, name: &str) -> Result<Vec<(String, String)>> {
        let api: Api<DynamicObject> =
            Api::all_with(self.federation.karmada.clone(), &kind("work.karmada.io/v1alpha1", "Work", "works"));
        let list = api.list(&ListParams::default()).await?;
        Ok(list
            .items
            .into_iter()
            .filter(|w| w.annotations().get(BINDING_NAME) == Some(&binding_name(name)))
            .filter(|w| w.annotations().get(mczk_api::karmada::work::BINDING_NAMESPACE) == Some(&self.namespace))
            .map(|w| (w.namespace().unwrap_or_default(), w.name_any()))
            .collect())
    }

    /// The Secrets of an ensemble that Karmada propagated to a member cluster, with their keys.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn secrets(&self, cluster: &str, name: &str) -> Result<BTreeMap<String, Vec<String>>> {
        let api: Api<Secret> = Api::namespaced(self.client_of(cluster)?, &self.namespace);
        // The agent creates its own Secret from them.
        let propagated = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}!={MANAGED_BY_AGENT}"));
        let own = api.list(&propagated).await?.items.into_iter().filter(|s| belongs(&s.name_any(), name));
        Ok(own.map(|s| (s.name_any(), s.data.unwrap_or_default().into_keys().collect())).collect())
    }

    /// Everything that exists of an ensemble, in the control plane and in member clusters.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub async fn left(&self, name: &str) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (api_version, kind, plural) in [
            ("mczk.io/v1alpha1", "MultiClusterZooKeeper", "multiclusterzookeepers"),
            ("mczk.io/v1alpha1", "ZooKeeper", "zookeepers"),
            ("policy.karmada.io/v1alpha1", "PropagationPolicy", "propagationpolicies"),
            ("policy.karmada.io/v1alpha1", "OverridePolicy", "overridepolicies"),
            ("work.karmada.io/v1alpha2", "ResourceBinding", "resourcebindings"),
            ("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serviceexports"),
            ("v1", "Secret", "secrets"),
        ] {
            let list = self.untyped(api_version, kind, plural).list(&ListParams::default()).await?;
            left.extend(
                list.items.iter().filter(|o| belongs(&o.name_any(), name)).map(|o| format!("{kind} {}", o.name_any())),
            );
        }
        left.extend(self.works(name).await?.into_iter().map(|(namespace, work)| format!("Work {namespace}/{work}")));
        left.extend(self.in_members(name).await?.into_keys().map(|cluster| format!("ZooKeeper in {cluster}")));
        for cluster in self.federation.members.keys() {
            let secrets = self.secrets(cluster, name).await?;
            left.extend(secrets.into_keys().map(|secret| format!("Secret {secret} in {cluster}")));
        }
        Ok(left)
    }

    /// Deletes a MultiClusterZooKeeper and waits until nothing of it is left.
    ///
    /// # Errors
    /// What is left.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.api::<MultiClusterZooKeeper>().delete(name, &kube::api::DeleteParams::default()).await?;
        wait_for(&format!("nothing is left of {name}"), PATIENCE, || async {
            let left = self.left(name).await?;
            if left.is_empty() {
                return Ok(());
            }
            let object = self.get(name).await.map(|o| conditions(&o)).unwrap_or_default();
            bail!("{}; {object}", left.join(", "))
        })
        .await
    }
}

/// True for the name of an object that belongs to an ensemble.
fn belongs(object: &str, ensemble: &str) -> bool {
    object == ensemble
        || object == policy_name(ensemble)
        || [spare_check_name(ensemble), policy_name(&spare_check_name(ensemble))].iter().any(|name| object == name)
        || object.strip_prefix(ensemble).is_some_and(|rest| rest.starts_with('-'))
}

/// True if each cluster gets the whole number of voters.
fn is_duplicated(spec: &MultiClusterZooKeeperSpec) -> bool {
    let scheduling = spec.placement.as_ref().and_then(|placement| placement.replica_scheduling.as_ref());
    scheduling.and_then(|scheduling| scheduling.replica_scheduling_type) == Some(ReplicaSchedulingType::Duplicated)
}

/// True if the last record is Ready, for the newest generation, and the operator waits for nothing.
#[must_use]
pub fn is_settled(object: &MultiClusterZooKeeper) -> bool {
    let Some(status) = &object.status else { return false };
    let has = |type_: &str, state: &str, reason: Option<&str>| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == type_ && c.status == state && reason.is_none_or(|reason| c.reason == reason))
    };
    status.observed_generation == object.metadata.generation
        && status.records.last().is_some_and(|r| r.status == RecordStatus::Ready)
        && has("Ready", "True", None)
        && has("Progressing", "False", Some("Done"))
        && has("Scheduled", "True", None)
}
