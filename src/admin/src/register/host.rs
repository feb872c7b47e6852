//! The operator in its cluster, the host: the objects of `manifests/operator.yaml`, which the chart renders.

use std::collections::BTreeMap;

use json_patch::merge;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::api::ObjectMeta;
use serde::de::Error as _;
use serde_json::{Value, json};

use super::{
    object::Object,
    ownership,
    pods::{PodSettings, configure, restricted_labels},
};
use mczk_api::{contract::canonical_json::hash_text, yaml};

/// The objects with the default values of the chart.
const MANIFEST: &str = include_str!("../../../../manifests/operator.yaml");

/// Namespace of the operator, if the user names none.
pub(crate) const NAMESPACE: &str = "mczk-system";
/// Name of the Service of the webhook.
pub(crate) const SERVICE: &str = "mczk";
/// Name of the Deployment.
pub(crate) const DEPLOYMENT: &str = "mczk";
/// Port of the Service of the webhook.
pub(crate) const PORT: u16 = 8443;
/// Port of the web page, of the pods and its Service.
const DASHBOARD_PORT: u16 = 8444;
/// Service of the web page. That of the webhook may be reachable from outside the cluster.
const DASHBOARD_SERVICE: &str = "mczk-dashboard";
/// Secret with the kubeconfig of the operator.
pub(crate) const KUBECONFIG_SECRET: &str = "mczk-karmada-kubeconfig";
/// Secret with the certificate of the webhook.
pub(crate) const CERTIFICATE_SECRET: &str = "mczk-webhook-tls";
/// Secret with the authority that signed it.
pub(crate) const AUTHORITY_SECRET: &str = "mczk-webhook-authority";

/// Annotation of the pods: the hash of [`HostSettings::start`].
const START_HASH: &str = "mczk.io/start-hash";

/// What users choose of the operator's Deployment.
#[derive(Clone, Debug)]
pub(crate) struct HostSettings {
    /// Namespace of all objects.
    pub(crate) namespace: String,
    /// Number of operators.
    pub(crate) replicas: u16,
    /// Image of the servers; that of the operator if the user names none.
    pub(crate) member_image: String,
    /// Secret with the certificate of the webhook.
    pub(crate) certificate_secret: String,
    /// True if the operator serves the web page.
    pub(crate) dashboard: bool,
    /// What the operator reads only at its start, and the address of its webhook. Another text replaces the pods, so that the
    /// new ones have the new kubeconfig and certificate before the webhook is registered.
    pub(crate) start: String,
    /// Image and settings of the pods.
    pub(crate) pods: PodSettings,
}

/// The namespace, which comes before everything in it. Another one than the default may have a user's pods, so its labels
/// stay as they are.
///
/// # Errors
/// Never.
pub(crate) fn namespace(name: &str) -> serde_json::Result<Object> {
    let labels = (name == NAMESPACE).then(restricted_labels);
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
    Object::of(&Namespace { metadata, ..Namespace::default() })
}

/// A Secret in the namespace, with the mark of `mczk install`.
///
/// # Errors
/// Never.
pub(crate) fn secret(
    namespace: &str,
    name: &str,
    type_: &str,
    data: impl IntoIterator<Item = (&'static str, String)>,
) -> serde_json::Result<Object> {
    let data: BTreeMap<_, _> =
        data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect();
    let mut metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    ownership::mark(&mut metadata);
    Object::of(&Secret { metadata, type_: Some(type_.to_owned()), data: Some(data), ..Secret::default() })
}

/// The objects of the operator.
///
/// # Errors
/// Never for the manifest of this crate.
pub(crate) fn objects(settings: &HostSettings) -> serde_json::Result<Vec<Object>> {
    let mut objects = Vec::new();
    for mut value in yaml::read(MANIFEST).map_err(serde_json::Error::custom)? {
        let namespace = json!({ "namespace": settings.namespace });
        merge(&mut value, &json!({ "metadata": namespace }));
        for subject in value.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            merge(subject, &namespace);
        }
        if value.get("kind").and_then(Value::as_str) == Some("Deployment") {
            deployment(&mut value, settings);
        }
        if settings.dashboard {
            dashboard(&mut value);
        }
        objects.push(Object::of_manifest(&value)?);
        if settings.dashboard && value.get("kind").and_then(Value::as_str) == Some("Service") {
            dashboard_service(&mut value);
            objects.push(Object::of_manifest(&value)?);
        }
    }
    Ok(objects)
}

/// Objects that only an installation with other settings has: the Service of a web page that is not served any more.
///
/// # Errors
/// As [`objects`].
pub(crate) fn leftovers(settings: &HostSettings) -> serde_json::Result<Vec<Object>> {
    let mut objects = objects(&HostSettings { dashboard: true, ..settings.clone() })?;
    objects.retain(|object| !settings.dashboard && object.body.metadata.name.as_deref() == Some(DASHBOARD_SERVICE));
    Ok(objects)
}

fn deployment(value: &mut Value, settings: &HostSettings) {
    let digest = hash_text(&settings.start);
    let template = json!({ "metadata": { "annotations": { START_HASH: digest } } });
    merge(value, &json!({ "spec": { "replicas": settings.replicas, "template": template } }));
    let arguments = value.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut);
    for argument in arguments.into_iter().flatten() {
        let flag = argument.as_str().and_then(|text| text.split_once('=')).map(|(flag, _)| flag.to_owned());
        match flag.as_deref() {
            Some("--server-image") => *argument = json!(format!("--server-image={}", settings.member_image)),
            Some("--kubeconfig-secret") => {
                *argument = json!(format!("--kubeconfig-secret={}/{KUBECONFIG_SECRET}", settings.namespace));
            }
            _ => {}
        }
    }
    let volumes = value.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten().filter(|volume| volume.get("name") == Some(&json!("tls"))) {
        merge(volume, &json!({ "secret": { "secretName": settings.certificate_secret } }));
    }
    configure(value, &settings.pods);
}

/// Adds the web page to the Deployment.
fn dashboard(value: &mut Value) {
    let mut push = |list: &str, item: Value| {
        value.pointer_mut(list).and_then(Value::as_array_mut).into_iter().for_each(|list| list.push(item.clone()));
    };
    push("/spec/template/spec/containers/0/args", json!(format!("--dashboard-address=[::]:{DASHBOARD_PORT}")));
    push("/spec/template/spec/containers/0/ports", json!({ "name": "dashboard", "containerPort": DASHBOARD_PORT }));
}

/// Makes the Service of the web page of that of the webhook.
fn dashboard_service(value: &mut Value) {
    let metadata = json!({ "name": DASHBOARD_SERVICE, "labels": { "app.kubernetes.io/component": "dashboard" } });
    let ports = json!([{ "name": "dashboard", "port": DASHBOARD_PORT, "targetPort": "dashboard" }]);
    merge(value, &json!({ "metadata": metadata, "spec": { "type": "ClusterIP", "ports": ports } }));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn every_object_lies_in_the_namespace_and_the_deployment_has_the_settings() {
        let settings = HostSettings {
            namespace: "own".to_owned(),
            replicas: 3,
            member_image: "mirror/mczk:2".to_owned(),
            certificate_secret: "webhook".to_owned(),
            dashboard: true,
            start: "a".to_owned(),
            pods: PodSettings { image: "registry/mczk:2".to_owned(), ..PodSettings::default() },
        };
        let objects = objects(&settings).unwrap();
        let kinds: Vec<&str> = objects.iter().map(|object| object.resource.kind.as_str()).collect();
        assert_eq!(
            kinds,
            ["PodDisruptionBudget", "ServiceAccount", "Role", "RoleBinding", "Service", "Service", "Deployment"]
        );
        assert!(objects.iter().all(|object| object.body.metadata.namespace.as_deref() == Some("own")));
        assert_eq!(objects[3].body.data["subjects"][0]["namespace"], "own");
        let spec = &objects[6].body.data["spec"];
        assert_eq!(spec["replicas"], 3);
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "registry/mczk:2");
        let arguments = container["args"].to_string();
        assert!(arguments.contains("--server-image=mirror/mczk:2"), "{arguments}");
        assert!(arguments.contains("--kubeconfig-secret=own/mczk-karmada-kubeconfig"), "{arguments}");
        assert!(arguments.contains("--dashboard-address=[::]:8444"), "{arguments}");
        let (webhook, page) = (&objects[4], &objects[5]);
        assert_eq!(webhook.body.data["spec"]["ports"].as_array().map(Vec::len), Some(1));
        assert_eq!(page.body.metadata.name.as_deref(), Some("mczk-dashboard"));
        assert_eq!(page.body.data["spec"]["selector"], webhook.body.data["spec"]["selector"]);
        assert_eq!(page.body.data["spec"]["ports"].as_array().map(Vec::len), Some(1));
        assert_eq!(container["ports"][2]["name"], page.body.data["spec"]["ports"][0]["targetPort"]);
        let hash = |start: &str| {
            let settings = HostSettings { start: start.to_owned(), ..settings.clone() };
            super::objects(&settings).unwrap()[6].body.data["spec"]["template"]["metadata"]["annotations"].clone()
        };
        assert!(hash("a") == hash("a") && hash("a") != hash("b"), "{}", hash("a"));
        assert_eq!(leftovers(&settings).unwrap().len(), 0);
        let left = leftovers(&HostSettings { dashboard: false, ..settings }).unwrap();
        assert_eq!(left.iter().map(Object::name).collect::<Vec<_>>(), ["own/mczk-dashboard"]);
        assert!(spec["template"]["spec"]["volumes"].to_string().contains("\"secretName\":\"webhook\""));
    }
    #[test]
    fn only_the_namespace_of_mczk_alone_admits_restricted_pods_only() {
        for (name, label) in [(NAMESPACE, Some("restricted")), ("shared", None)] {
            let labels = namespace(name).unwrap().body.metadata.labels.unwrap_or_default();
            assert_eq!(labels.get("pod-security.kubernetes.io/enforce").map(String::as_str), label, "{name}");
        }
    }

    /// The same field manager writes both, so a label of one alone would be removed again.
    #[test]
    fn credential_and_agents_have_the_same_namespace() {
        let agents = crate::register::agents::objects(&crate::register::agents::Agents::of_image("mczk".to_owned()));
        let of = |objects: Vec<Object>| objects.into_iter().find(|object| object.resource.kind == "Namespace").unwrap();
        let (agents, credential) = (of(agents.unwrap()), of(crate::register::credential::objects().unwrap()));
        assert_eq!(agents.body.metadata.labels, credential.body.metadata.labels);
        assert!(credential.body.metadata.labels.is_some());
    }
}
