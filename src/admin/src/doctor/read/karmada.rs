//! Objects of karmada-apiserver.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Event, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
    core::{ApiResource, DynamicObject, TypeMeta},
};

use super::reader::BoundedReader;
use crate::{
    doctor::observed::{Definitions, DoctorObserved, FailedCall, Read},
    register::{agents, interpreter},
};
use mczk_api::{
    MultiClusterZooKeeper,
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL},
        naming::template_of_binding,
    },
    crd,
    karmada::{
        interpreter::{API_VERSION, WebhookClientConfig},
        policy, work,
    },
};
use mczk_reading::kinds::resource;

const NOT_READ: &str = "not read";
/// Most events that are read.
const MAX_EVENTS: u32 = 500;
/// Most Works of one answer.
const WORKS_PER_PAGE: u32 = 500;
/// What an event about a failed call contains (`pkg/resourceinterpreter/customized/webhook` in Karmada).
const FAILED_CALL: &str = "failed calling webhook \"mczk/";

const POLICIES: &[(&str, &str)] = &[
    (policy::API_VERSION, "PropagationPolicy"),
    (policy::API_VERSION, "ClusterPropagationPolicy"),
    (policy::API_VERSION, "OverridePolicy"),
    (policy::API_VERSION, "ClusterOverridePolicy"),
];
const AUTOSCALERS: &[(&str, &str)] =
    &[("autoscaling.karmada.io/v1alpha1", "FederatedHPA"), ("autoscaling/v2", "HorizontalPodAutoscaler")];

/// All MultiClusterZooKeepers.
pub(super) async fn ensembles(client: &Client, reader: &BoundedReader) -> Read<Vec<DynamicObject>> {
    list(client, &ApiResource::erase::<MultiClusterZooKeeper>(&()), reader).await
}

/// All registrations of interpreter webhooks.
pub(super) async fn registrations(client: &Client, reader: &BoundedReader) -> Read<Vec<DynamicObject>> {
    list(client, &interpreter::resource(), reader).await
}

/// Definitions, policies, autoscalers, customizations and the template of the agents. Other reads fill in the rest.
pub(super) async fn objects(
    client: &Client,
    reader: &BoundedReader,
    ensembles: Read<Vec<DynamicObject>>,
    registrations: Read<Vec<DynamicObject>>,
) -> DoctorObserved {
    let customization = resource(API_VERSION, "ResourceInterpreterCustomization");
    let (definitions, policies, autoscalers, customizations, agent_image) = futures::join!(
        definitions(client, reader),
        of_kinds(client, reader, POLICIES),
        of_kinds(client, reader, AUTOSCALERS),
        list(client, &customization, reader),
        agent_image(client, reader),
    );
    let not_read = || NOT_READ.to_owned();
    DoctorObserved {
        definitions,
        rights: Err(not_read()),
        registrations,
        customizations,
        service: Err(not_read()),
        failed_call: Err(not_read()),
        webhook: None,
        policies,
        autoscalers,
        lease: Err(not_read()),
        clusters: Err(not_read()),
        ending_works: Err(not_read()),
        agent_image,
        ensembles,
        certificates: BTreeMap::new(),
        host: None,
    }
}

/// All objects of a kind. An API server that does not know the kind has none.
pub(super) async fn list(client: &Client, resource: &ApiResource, reader: &BoundedReader) -> Read<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let request = async {
        match api.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            other => other.map(|list| list.items),
        }
    };
    let mut items = reader.read(&resource.plural, request).await?;
    // Items of a list have no kind of their own.
    let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
    for item in &mut items {
        item.types = Some(types.clone());
    }
    Ok(items)
}

async fn definitions(client: &Client, reader: &BoundedReader) -> Definitions {
    let mut all = Definitions::new();
    for wanted in crd::definitions().unwrap_or_default() {
        let name = wanted.metadata.name.unwrap_or_default();
        let read = definition(client, &name, &format!("definition {name}"), reader).await;
        all.insert(name, read);
    }
    all
}

/// A definition of any cluster.
pub(super) async fn definition(
    client: &Client,
    name: &str,
    what: &str,
    reader: &BoundedReader,
) -> Read<Option<CustomResourceDefinition>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    reader.read(what, api.get_opt(name)).await
}

async fn of_kinds(client: &Client, reader: &BoundedReader, kinds: &[(&str, &str)]) -> Read<Vec<DynamicObject>> {
    let mut all = Vec::new();
    for (api_version, kind) in kinds {
        all.extend(list(client, &resource(api_version, kind), reader).await?);
    }
    Ok(all)
}

/// Image of the agents that Karmada propagates.
async fn agent_image(client: &Client, reader: &BoundedReader) -> Read<Option<String>> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), agents::NAMESPACE);
    let found = reader.read("the template of the agents", api.get_opt(agents::DEPLOYMENT)).await?;
    let pod = found.and_then(|deployment| deployment.spec?.template.spec);
    Ok(pod.and_then(|pod| pod.containers.into_iter().next()?.image))
}

/// The Service of karmada-apiserver that a registration names.
pub(super) async fn service(
    client: &Client,
    config: Option<&WebhookClientConfig>,
    reader: &BoundedReader,
) -> Read<Option<Service>> {
    let Some(reference) = config.and_then(|config| config.service.as_ref()) else { return Ok(None) };
    let api: Api<Service> = Api::namespaced(client.clone(), &reference.namespace);
    reader.read("the Service of the webhook", api.get_opt(&reference.name)).await
}

/// The newest event of Karmada about a failed call of the webhook. Only Karmada knows whether it reaches the webhook.
pub(super) async fn failed_call(client: &Client, reader: &BoundedReader) -> Read<Option<FailedCall>> {
    let api: Api<Event> = Api::all(client.clone());
    let of_templates = ListParams::default().fields("type=Warning,involvedObject.kind=ZooKeeper").limit(MAX_EVENTS);
    let events = reader.read("events of ZooKeeper objects", api.list(&of_templates)).await?;
    let failed = events.items.into_iter().filter_map(|event| {
        let at = last_time(&event)?;
        let message = event.message.filter(|message| message.contains(FAILED_CALL))?;
        Some(FailedCall { at, message })
    });
    Ok(failed.max_by_key(|call| call.at))
}

fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    [series, last, created].into_iter().flatten().max()
}

/// Metadata of the Works of ZooKeeper objects that are being deleted.
pub(super) async fn ending_works(client: &Client, reader: &BoundedReader) -> Read<Vec<ObjectMeta>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(work::API_VERSION, "Work"));
    let is_ending = |meta: &ObjectMeta| {
        let binding = meta.annotations.as_ref().and_then(|annotations| annotations.get(work::BINDING_NAME));
        meta.deletion_timestamp.is_some() && binding.is_some_and(|binding| template_of_binding(binding).is_some())
    };
    let (mut works, mut page) = (Vec::new(), ListParams::default().limit(WORKS_PER_PAGE));
    loop {
        let list = reader.read("works", api.list_metadata(&page)).await?;
        works.extend(list.items.into_iter().map(|item| item.metadata).filter(is_ending));
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok(works),
        }
    }
}

/// Metadata of the Secrets with the certificates of the quorum.
pub(super) async fn certificates(client: &Client, namespace: &str, reader: &BoundedReader) -> Read<Vec<ObjectMeta>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels(&format!("{ENSEMBLE_LABEL},{INCARNATION_LABEL}"));
    let list = reader.read(&format!("Secrets of {namespace}"), api.list_metadata(&ours)).await?;
    Ok(list.items.into_iter().map(|item| item.metadata).collect())
}
