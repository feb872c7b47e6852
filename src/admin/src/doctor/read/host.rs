//! Objects of the cluster in which the operator runs.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{Api, Client, api::ListParams};

use super::reader::BoundedReader;
use crate::{
    doctor::observed::{Host, Read},
    register::host::{CERTIFICATE_SECRET, KUBECONFIG_SECRET},
};

/// The operator with its Secrets, and Karmada's version if Karmada runs there.
pub(super) async fn host(client: &Client, namespace: String, reader: &BoundedReader) -> Host {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let labelled = ListParams::default().labels("app.kubernetes.io/name=mczk");
    let (deployment, pods, karmada_image) = futures::join!(
        reader.read("the Deployment of the operator", deployments.list(&labelled)),
        reader.read("the pods of the operator", pods.list(&labelled)),
        karmada_image(client, reader),
    );
    let deployment = deployment.map(|list| list.items.into_iter().next());
    let found = deployment.as_ref().ok().and_then(Option::as_ref);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let certificate_name = mounted(found, "tls").unwrap_or_else(|| CERTIFICATE_SECRET.to_owned());
    let credential_name = mounted(found, "karmada").unwrap_or_else(|| KUBECONFIG_SECRET.to_owned());
    let (certificate, credential) = futures::join!(
        reader.read("the certificate of the webhook", secrets.get_opt(&certificate_name)),
        reader.read("the credential of the operator", secrets.get_opt(&credential_name)),
    );
    let pods = pods.map(|list| list.items);
    Host { namespace, deployment, pods, certificate, credential, karmada_image }
}

/// The Secret in a volume of the operator's pods.
fn mounted(deployment: Option<&Deployment>, volume: &str) -> Option<String> {
    let volumes = deployment?.spec.as_ref()?.template.spec.as_ref()?.volumes.as_ref()?;
    volumes.iter().find(|found| found.name == volume)?.secret.as_ref()?.secret_name.clone()
}

/// Image of karmada-controller-manager: Karmada reports its version in no other way.
async fn karmada_image(client: &Client, reader: &BoundedReader) -> Read<Option<String>> {
    let all: Api<Deployment> = Api::all(client.clone());
    let named = ListParams::default().fields("metadata.name=karmada-controller-manager");
    let list = reader.read("the version of Karmada", all.list(&named)).await?;
    let pod = list.items.into_iter().next().and_then(|deployment| deployment.spec?.template.spec);
    Ok(pod.and_then(|pod| pod.containers.into_iter().next()?.image))
}
