//! Steps of the installation in Karmada's control plane.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Container};
use kube::{Api, Client, api::ListParams};

use super::steps::InstallSteps;
use crate::{
    register::{
        Part, Settings,
        agents::Agents,
        apply, credential,
        interpreter::{DEFAULT_TIMEOUT, Endpoint, Registration},
        rbac::Identity,
    },
    terminal::error::Error,
};
use mczk_api::karmada::cluster::Cluster;
use mczk_reading::read_only;
use mczk_rules::interpreter::wire::Operation;

/// The program of Karmada that calls the webhook.
const CONTROLLER_MANAGER: &str = "karmada-controller-manager";

/// Settings with the service account of the operator, and nothing else.
pub(super) fn settings(namespaces: BTreeSet<String>) -> Settings {
    let operator =
        Identity::ServiceAccount { namespace: credential::NAMESPACE.to_owned(), name: credential::ACCOUNT.to_owned() };
    Settings { operator, namespaces, dashboard: false, interpreter: None, agents: None }
}

/// The operator's account, the definitions, rights and policies; with `dashboard` also the rights for the web page.
///
/// # Errors
/// If karmada-apiserver refuses an object, or does not serve a definition in time.
pub(super) async fn prepare(
    client: &Client,
    namespaces: &[String],
    dashboard: bool,
    steps: &mut InstallSteps,
) -> Result<(), Error> {
    for object in credential::objects()? {
        steps.apply(client, &object).await?;
    }
    let mut all: BTreeSet<String> = namespaces.iter().cloned().collect();
    all.extend(apply::namespaces_of_ensembles(client).await?);
    let settings = Settings { dashboard, ..settings(all) };
    for part in [Part::Crds, Part::Rbac, Part::Propagation] {
        for object in part.objects(&settings)? {
            steps.apply(client, &object).await?;
            if part == Part::Crds && !steps.is_dry_run() {
                apply::served(client, &object).await?;
            }
        }
    }
    Ok(())
}

/// The registration of the webhook. `authority` is the base64 text of the authority that signed its certificate.
///
/// # Errors
/// If karmada-apiserver refuses it.
pub(super) async fn register(
    client: &Client,
    endpoint: Endpoint,
    authority: String,
    steps: &mut InstallSteps,
) -> Result<(), Error> {
    let registration = Registration {
        endpoint,
        ca_bundle: authority,
        timeout_seconds: DEFAULT_TIMEOUT,
        operations: Operation::ALL.to_vec(),
    };
    steps.apply(client, &registration.object()?).await
}

/// The agents of all member clusters.
///
/// # Errors
/// If karmada-apiserver refuses an object.
pub(super) async fn agents(client: &Client, agents: Agents, steps: &mut InstallSteps) -> Result<(), Error> {
    let settings = Settings { agents: Some(agents), ..settings(BTreeSet::new()) };
    for object in Part::Agents.objects(&settings)? {
        steps.apply(client, &object).await?;
    }
    Ok(())
}

/// The member clusters whose own Karmada agent cannot call the webhook: one line each, with the remedy.
///
/// # Errors
/// If the clusters cannot be listed.
pub(super) async fn unreachable_webhook(client: &Client, endpoint: &Endpoint) -> Result<Vec<String>, Error> {
    let clusters = read_only::member_clusters(client).await.map_err(anyhow::Error::from)?;
    Ok(without_webhook(&clusters, endpoint))
}

/// A line for each cluster of mode Pull, if the webhook is registered by the name of a Service of the host.
fn without_webhook(clusters: &[Cluster], endpoint: &Endpoint) -> Vec<String> {
    let Endpoint::Service(service) = endpoint else { return Vec::new() };
    let line = |name: &str| {
        format!(
            "Cluster {name} is of mode Pull: its karmada-agent calls the webhook from that cluster, where the name \
             {}.{}.svc does not resolve. Run the command again with --url",
            service.name, service.namespace
        )
    };
    clusters.iter().filter(|cluster| cluster.is_pull()).map(|cluster| line(cluster.name())).collect()
}

/// A line if the webhook is registered by the name of a Service, and no Karmada runs in the host, where that name resolves.
///
/// # Errors
/// If the host does not answer.
pub(super) async fn outside_of_host(host: &Client, endpoint: &Endpoint) -> Result<Option<String>, Error> {
    let deployments: Api<Deployment> = Api::all(host.clone());
    match deployments.list(&ListParams::default()).await {
        // Then the user has to know.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        other => {
            let list = other.context("cannot list the Deployments of the host")?;
            Ok(without_karmada(&list.items, endpoint))
        }
    }
}

fn without_karmada(deployments: &[Deployment], endpoint: &Endpoint) -> Option<String> {
    let Endpoint::Service(service) = endpoint else { return None };
    let is_karmada = |container: &Container| {
        let words = [&container.command, &container.args].into_iter().flatten().flatten();
        words.chain(&container.image).any(|word| word.contains(CONTROLLER_MANAGER))
    };
    let pods = deployments.iter().filter_map(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
    if pods.flat_map(|pod| &pod.containers).any(is_karmada) {
        return None;
    }
    Some(format!(
        "No {CONTROLLER_MANAGER} runs in the host. If Karmada runs elsewhere, it does not resolve {}.{}.svc and cannot call \
         the webhook: run the command again with --url. See docs/how-to/install-layouts.md#karmada-outside-of-the-host",
        service.name, service.namespace
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn karmada_outside_of_the_host_needs_a_url() {
        let service = Endpoint::service("mczk-system/mczk:8443", None).unwrap();
        let deployment = |container: serde_json::Value| {
            let spec = json!({ "selector": {}, "template": { "spec": { "containers": [container] } } });
            vec![serde_json::from_value::<Deployment>(json!({ "spec": spec })).unwrap()]
        };
        let other = deployment(json!({ "name": "a", "image": "nginx:1" }));
        let line = without_karmada(&other, &service).unwrap();
        assert!(line.contains("does not resolve mczk.mczk-system.svc") && line.contains("--url"), "{line}");
        let image = "docker.io/karmada/karmada-controller-manager:v1.18.2";
        assert_eq!(without_karmada(&deployment(json!({ "name": "a", "image": image })), &service), None);
        let command = ["/bin/karmada-controller-manager", "--v=2"];
        assert_eq!(without_karmada(&deployment(json!({ "name": "a", "command": command })), &service), None);
        assert_eq!(without_karmada(&other, &Endpoint::Url("https://mczk.example.org:8443".to_owned())), None);
    }

    fn clusters() -> Vec<Cluster> {
        let clusters = json!([
            { "metadata": { "name": "m1" }, "spec": { "syncMode": "Push" } },
            { "metadata": { "name": "m2" }, "spec": { "syncMode": "Pull" } },
            { "metadata": { "name": "m3" }, "spec": { "syncMode": "Pull" } },
        ]);
        serde_json::from_value(clusters).unwrap()
    }

    #[test]
    fn each_cluster_of_mode_pull_is_named_with_the_name_that_it_does_not_resolve() {
        let lines = without_webhook(&clusters(), &Endpoint::service("mczk-system/mczk:8443", None).unwrap());
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, name) in lines.iter().zip(["m2", "m3"]) {
            assert!(line.starts_with(&format!("Cluster {name} is of mode Pull")), "{line}");
            assert!(line.contains("mczk.mczk-system.svc does not resolve") && line.ends_with("with --url"), "{line}");
        }
    }

    #[test]
    fn clusters_of_both_modes_call_a_url() {
        let url = Endpoint::url("https://mczk.example.org:8443", None).unwrap();
        assert_eq!(without_webhook(&clusters(), &url), Vec::<String>::new());
    }
}
