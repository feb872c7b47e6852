//! Everything that the examination looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Secret, Service},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

use super::finding::{DoctorFinding, FindingSeverity};
use crate::register::{NAME, rbac::Identity};
use mczk_api::{
    GROUP, MultiClusterZooKeeper,
    contract::labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
    karmada::{
        cluster::Cluster,
        interpreter::{ResourceInterpreterWebhook, WebhookClientConfig},
    },
    multiclusterzookeeper::{ClusterStatus, MultiClusterZooKeeperStatus},
};

/// The result of a read, or why it failed.
pub(super) type Read<T> = Result<T, String>;

/// What a user does who may not read something.
const READ_AS_ADMINISTRATOR: &str =
    "Use a kubeconfig with an administrator's rights, and check that the server answers";

/// The value of a read. A read that failed becomes a warning.
pub(super) fn readable<'a, T>(read: &'a Read<T>, subject: &str, findings: &mut Vec<DoctorFinding>) -> Option<&'a T> {
    match read {
        Ok(value) => Some(value),
        Err(why) => {
            let message = format!("Cannot be examined: {why}");
            findings.push(DoctorFinding::warning(subject, message, READ_AS_ADMINISTRATOR));
            None
        }
    }
}

/// A finding about a subject whose state another area reports.
pub(super) fn skipped(subject: &str, area: &str) -> DoctorFinding {
    let message = "Not examined: another area names the cause";
    DoctorFinding::new(FindingSeverity::Skipped, subject, message, format!("See the area {area}"))
}

/// The member clusters; the area is skipped if they cannot be read.
pub(super) fn members<'a>(observed: &'a DoctorObserved, findings: &mut Vec<DoctorFinding>) -> &'a [MemberCluster] {
    let Ok(members) = &observed.clusters else {
        findings.push(skipped("clusters", "clusters"));
        return &[];
    };
    members
}

/// The MultiClusterZooKeepers; the area is skipped if they cannot be read.
pub(super) fn ensembles<'a>(observed: &'a DoctorObserved, findings: &mut Vec<DoctorFinding>) -> &'a [DynamicObject] {
    let Ok(ensembles) = &observed.ensembles else {
        findings.push(skipped("ensembles", "ensembles"));
        return &[];
    };
    ensembles
}

/// Those of the ensembles that this version can parse.
pub(super) fn parsed(ensembles: &[DynamicObject]) -> Vec<MultiClusterZooKeeper> {
    let parse = |object: &DynamicObject| serde_json::from_value(serde_json::to_value(object).ok()?).ok();
    ensembles.iter().filter_map(parse).collect()
}

/// Objects of a member cluster; the cluster is skipped if they cannot be read.
pub(super) fn of_member<'a, T>(
    member: &'a MemberCluster,
    read: fn(&MemberObjects) -> &Read<T>,
    findings: &mut Vec<DoctorFinding>,
) -> Option<&'a T> {
    let value = member.objects.as_ref().map(read).and_then(|read| read.as_ref().ok());
    if value.is_none() {
        findings.push(skipped(member.cluster.name(), "clusters"));
    }
    value
}

/// Definitions by name.
pub(super) type Definitions = BTreeMap<String, Read<Option<CustomResourceDefinition>>>;

/// What the API servers hold.
#[derive(Clone, Debug)]
pub(super) struct DoctorObserved {
    /// Definitions of both kinds in karmada-apiserver.
    pub(super) definitions: Definitions,
    pub(super) rights: Read<Rights>,
    /// All registrations of interpreter webhooks.
    pub(super) registrations: Read<Vec<DynamicObject>>,
    /// All objects of the kind ResourceInterpreterCustomization.
    pub(super) customizations: Read<Vec<DynamicObject>>,
    /// The Service of karmada-apiserver that the registration names. Karmada prefers it to the name in DNS.
    pub(super) service: Read<Option<Service>>,
    /// The newest event of Karmada about a call of the webhook that failed.
    pub(super) failed_call: Read<Option<FailedCall>>,
    /// The certificates that the webhook shows to this program, in DER. `None` without a registration.
    pub(super) webhook: Option<Read<Vec<Vec<u8>>>>,
    /// All policies of Karmada: of propagation and of overrides, of a namespace and of the cluster.
    pub(super) policies: Read<Vec<DynamicObject>>,
    /// All objects that scale others by load.
    pub(super) autoscalers: Read<Vec<DynamicObject>>,
    pub(super) lease: Read<Option<LeaseState>>,
    pub(super) clusters: Read<Vec<MemberCluster>>,
    /// Metadata of the Works of ZooKeeper objects that are being deleted.
    pub(super) ending_works: Read<Vec<ObjectMeta>>,
    /// Image of the agents that Karmada propagates.
    pub(super) agent_image: Read<Option<String>>,
    /// All MultiClusterZooKeepers.
    pub(super) ensembles: Read<Vec<DynamicObject>>,
    /// Metadata of the Secrets with the certificates of the quorum, by namespace.
    pub(super) certificates: BTreeMap<String, Read<Vec<ObjectMeta>>>,
    /// The cluster of the operator, if the user names it.
    pub(super) host: Option<Host>,
}

/// Rights of the operator in karmada-apiserver.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    /// Identity to which the role is bound.
    pub(super) operator: Option<Identity>,
    /// Rights that the API server denies to it.
    pub(super) denied: BTreeSet<Right>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    /// Namespace; all if absent.
    pub(super) namespace: Option<String>,
    pub(super) group: String,
    /// Resource, with a subresource after a slash.
    pub(super) resource: String,
    /// Name of the one object; all if absent.
    pub(super) name: Option<String>,
    pub(super) verb: String,
}

/// The Lease of the operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseState {
    /// Identity of the operator that acts.
    pub(super) holder: Option<String>,
    /// True if the Lease changed between two reads.
    pub(super) renewed: bool,
    /// Time between the two reads.
    pub(super) waited: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct MemberCluster {
    pub(super) cluster: Cluster,
    /// Message of the condition `Ready`.
    pub(super) ready_message: String,
    /// Objects of the cluster, through Karmada's proxy. `None` if Karmada does not reach it.
    pub(super) objects: Option<MemberObjects>,
}

/// Objects of a member cluster.
#[derive(Clone, Debug)]
pub(super) struct MemberObjects {
    pub(super) definition: Read<Option<CustomResourceDefinition>>,
    /// Deployments of agents.
    pub(super) agents: Read<Vec<Deployment>>,
    pub(super) storage_classes: Read<Vec<StorageClass>>,
    pub(super) incarnations: Read<Incarnations>,
}

/// What a member cluster has of each incarnation.
pub(super) type Incarnations = BTreeMap<IncarnationKey, IncarnationObjects>;

/// An incarnation, as the labels of its objects name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IncarnationKey {
    pub(super) namespace: String,
    /// Name of the MultiClusterZooKeeper.
    pub(super) ensemble: String,
    pub(super) id: String,
}

impl IncarnationKey {
    /// The incarnation of an object; `None` without its labels.
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let namespace = meta.namespace.clone()?;
        Some(Self { namespace, ensemble: label(ENSEMBLE_LABEL)?, id: label(INCARNATION_LABEL)? })
    }

    /// Namespace and name of the ensemble, for users.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.ensemble)
    }
}

/// Servers and volumes of an incarnation in a member cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IncarnationObjects {
    /// Replicas of its StatefulSets.
    pub(super) servers: usize,
    /// Claims, except those whose servers an agent removed: these are kept on purpose.
    pub(super) volumes: usize,
}

/// Objects of the host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// Namespace of the operator.
    pub(super) namespace: String,
    pub(super) deployment: Read<Option<Deployment>>,
    /// Pods of operators.
    pub(super) pods: Read<Vec<Pod>>,
    /// Secret with the certificate of the webhook.
    pub(super) certificate: Read<Option<Secret>>,
    /// Secret with the credential of the operator.
    pub(super) credential: Read<Option<Secret>>,
    /// Image of karmada-controller-manager, if it runs in the host.
    pub(super) karmada_image: Read<Option<String>>,
}

/// A call of the webhook that failed, as Karmada reports it.
#[derive(Clone, Debug)]
pub(super) struct FailedCall {
    pub(super) at: Timestamp,
    pub(super) message: String,
}

impl DoctorObserved {
    /// The webhook of our registration.
    pub(super) fn webhook_of_ours(&self) -> Option<ResourceInterpreterWebhook> {
        webhooks(self.registration_of_ours()?).into_iter().next()
    }

    /// Our registration.
    pub(super) fn registration_of_ours(&self) -> Option<&DynamicObject> {
        self.registrations.as_ref().ok()?.iter().find(|object| object.metadata.name.as_deref() == Some(NAME))
    }
}

/// The webhooks of a registration. Fields that are missing count as empty: each one is a finding, and no reason to read nothing.
pub(super) fn webhooks(registration: &DynamicObject) -> Vec<ResourceInterpreterWebhook> {
    let all = registration.data.get("webhooks").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(|webhook| webhook_of(webhook.clone())).collect()
}

fn webhook_of(mut webhook: Value) -> Option<ResourceInterpreterWebhook> {
    let defaults = serde_json::json!({
        "name": "", "rules": [], "timeoutSeconds": 0, "interpreterContextVersions": [], "clientConfig": {},
    });
    fill(&mut webhook, &defaults);
    fill(webhook.get_mut("clientConfig")?, &serde_json::json!({ "caBundle": "" }));
    if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
        fill(service, &serde_json::json!({ "path": "", "port": 443 }));
    }
    ResourceInterpreterWebhook::deserialize(webhook).ok()
}

fn fill(value: &mut Value, defaults: &Value) {
    let (Some(members), Some(defaults)) = (value.as_object_mut(), defaults.as_object()) else { return };
    for (key, default) in defaults {
        members.entry(key).or_insert_with(|| default.clone());
    }
}

/// Host and port by which Karmada calls a webhook, if no Service of karmada-apiserver says otherwise.
pub(super) fn address(config: &WebhookClientConfig) -> Option<(String, u16)> {
    if let Some(service) = &config.service {
        return Some((format!("{}.{}.svc", service.name, service.namespace), u16::try_from(service.port).ok()?));
    }
    let uri: http::Uri = config.url.as_ref()?.parse().ok()?;
    Some((uri.host()?.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(443)))
}

/// Namespace and name of an object, for users.
pub(super) fn full_name(meta: &ObjectMeta) -> String {
    let name = meta.name.clone().unwrap_or_default();
    meta.namespace.as_ref().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Kind, and namespace and name of an object, for users.
pub(super) fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("object", |types| types.kind.as_str());
    format!("{kind} {}", full_name(&object.metadata))
}

/// True for a kind of this project.
pub(super) fn is_our_group(api_version: &str) -> bool {
    api_version.split('/').next() == Some(GROUP)
}

/// The clusters that may get the voters of another one.
pub(super) fn spares(ensemble: &MultiClusterZooKeeper) -> impl Iterator<Item = &String> {
    ensemble.spec.failover.iter().flat_map(|failover| &failover.spares)
}

/// The clusters of `all` in which an ensemble has servers, or may get some: spares too.
pub(super) fn clusters_of(ensemble: &MultiClusterZooKeeper, all: &[MemberCluster]) -> BTreeSet<String> {
    let has_servers = |cluster: &&ClusterStatus| !(cluster.voters.is_empty() && cluster.observers.is_empty());
    let status: Option<&MultiClusterZooKeeperStatus> = ensemble.status.as_ref();
    let serving =
        status.into_iter().flat_map(|status| &status.clusters).filter(has_servers).map(|cluster| &cluster.name);
    let affinity = ensemble.spec.placement.iter().filter_map(|placement| placement.cluster_affinity.as_ref());
    let named = affinity.flat_map(|affinity| &affinity.cluster_names);
    let observers = ensemble.spec.observers.iter().map(|observers| &observers.cluster);
    let mut found: BTreeSet<String> = serving.chain(named).chain(observers).cloned().collect();
    let is_open = ensemble.spec.placement.as_ref().is_none_or(|placement| placement.cluster_affinity.is_none());
    if found.is_empty() && is_open {
        return all.iter().map(|member| member.cluster.name().to_owned()).collect();
    }
    found.extend(spares(ensemble).cloned());
    found
}
