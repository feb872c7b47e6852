//! Waiting until operator and agents run, with what they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod},
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
};
use serde_json::Value;

use super::{flags::InstallTargets, host::read};
use crate::{
    register::{agents, host},
    terminal::{error::Error, output::print},
};
use mczk_api::{contract::last_write::last_write, karmada::resource_binding::ResourceBinding};
use mczk_reading::read_only;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// Time in which an operator that runs serves a new content of its Secret: a kubelet copies it within two minutes, and the
/// operator reads the files every ten seconds.
const RELOAD: SignedDuration = SignedDuration::from_mins(3);

/// What is missing, by its name; empty once all run.
pub(super) type Missing = BTreeMap<String, String>;

/// Looks until nothing is missing, and prints what is missing on standard error when it changes. True if nothing is missing
/// in time.
pub(super) async fn until_complete(
    what: &str,
    limit: Duration,
    look: impl AsyncFn() -> Result<Missing, Error>,
) -> Result<bool, Error> {
    let begin = Instant::now();
    let mut shown = Missing::new();
    loop {
        let missing = look().await?;
        if missing.is_empty() {
            print(&format!("  {what}: ready after {} s\n", begin.elapsed().as_secs()))?;
            return Ok(true);
        }
        let lines = missing.iter().filter(|(name, why)| shown.get(*name) != Some(why));
        for (name, why) in lines {
            // Standard error may be closed. The exit code remains.
            let _ = writeln!(io::stderr(), "  {:>4} s  {name}: {why}", begin.elapsed().as_secs());
        }
        if begin.elapsed() > limit {
            for (name, why) in &missing {
                print(&format!("  {what}: not ready after {} s: {name}: {why}\n", limit.as_secs()))?;
            }
            return Ok(false);
        }
        shown = missing;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Label of the operator's Deployment and pods. Another tool may choose their names.
const OPERATOR: &str = "app.kubernetes.io/name=mczk";

/// The Deployments of operators in the host: those of `mczk install` and of the chart.
///
/// # Errors
/// If the host does not answer.
pub(super) async fn deployments(place: &InstallTargets) -> Result<Vec<Deployment>, Error> {
    let api: Api<Deployment> = Api::namespaced(place.host.clone(), &place.namespace);
    let list = api.list(&ListParams::default().labels(OPERATOR)).await;
    Ok(list.context("cannot list the operator's Deployment")?.items)
}

/// Waits until all operators of the newest Deployment are available.
///
/// # Errors
/// If the host does not answer.
pub(super) async fn operator(place: &InstallTargets, limit: Duration) -> Result<bool, Error> {
    let pods: Api<Pod> = Api::namespaced(place.host.clone(), &place.namespace);
    until_complete("operator", limit, async || {
        let incomplete = incomplete(&place.namespace, &deployments(place).await?);
        if incomplete.is_empty() {
            return Ok(Missing::new());
        }
        let list = pods.list(&ListParams::default().labels(OPERATOR)).await;
        let list = list.context("cannot list the operator's pods")?;
        let of_pods: Missing = list.items.iter().filter_map(waiting).collect();
        Ok(if of_pods.is_empty() { incomplete } else { of_pods })
    })
    .await
}

/// True once each operator serves the present content of the certificate's Secret.
///
/// # Errors
/// If the host does not answer.
pub(super) async fn certificate(place: &InstallTargets, secret: &str, limit: Duration) -> Result<bool, Error> {
    let pods: Api<Pod> = Api::namespaced(place.host.clone(), &place.namespace);
    let look = async || {
        let found = read(&place.host, &place.namespace, secret).await?.unwrap_or_default();
        let list = pods.list_metadata(&ListParams::default().labels(OPERATOR)).await;
        let list = list.context("cannot list the operator's pods")?;
        Ok(unread(&found.metadata, list.items.into_iter().map(|pod| pod.metadata).collect(), Timestamp::now()))
    };
    if limit.is_zero() { Ok(look().await?.is_empty()) } else { until_complete("certificate", limit, look).await }
}

/// The operators that may serve a former content of a Secret: for a while, those that are older than the present one. Without
/// pods, operators may run elsewhere.
fn unread(secret: &ObjectMeta, mut pods: Vec<ObjectMeta>, now: Timestamp) -> Missing {
    let created = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|time| time.0);
    let writes = last_write(secret).into_iter().chain(created(secret));
    let Some(written) = writes.max().filter(|written| now < *written + RELOAD) else {
        return Missing::new();
    };
    if pods.is_empty() {
        pods.push(ObjectMeta { name: Some("of the operator".to_owned()), ..ObjectMeta::default() });
    }
    let older = pods.into_iter().filter(|pod| created(pod).is_none_or(|created| created < written));
    let why = "it may not have read the new certificate yet";
    older.map(|pod| (format!("Pod {}", pod.name.unwrap_or_default()), why.to_owned())).collect()
}

/// The Deployments whose pods are not all available, or that there is none.
fn incomplete(namespace: &str, found: &[Deployment]) -> Missing {
    if found.is_empty() {
        let why = "does not exist".to_owned();
        return Missing::from([(format!("Deployment {namespace}/{}", host::DEPLOYMENT), why)]);
    }
    let states = found.iter().map(|deployment| (deployment.metadata.name.as_deref(), available(deployment)));
    let waits = states.filter(|(_, state)| !state.complete);
    waits.map(|(name, state)| (format!("Deployment {namespace}/{}", name.unwrap_or_default()), state.text)).collect()
}

/// How many pods of a Deployment are available.
pub(crate) struct Available {
    /// True if all of the newest version are, and no others are left.
    pub(crate) complete: bool,
    pub(crate) text: String,
}

/// How many pods of a Deployment are available.
pub(crate) fn available(deployment: &Deployment) -> Available {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let (updated, ready) = (status.updated_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    let is_seen = status.observed_generation >= deployment.metadata.generation;
    Available {
        complete: is_seen && updated >= wanted && ready >= wanted && status.replicas.unwrap_or(0) <= wanted,
        text: format!("{ready} of {wanted} pods are available, {updated} are new"),
    }
}

/// Why the containers of a pod do not run.
pub(crate) fn waiting(pod: &Pod) -> Option<(String, String)> {
    let statuses = pod.status.as_ref()?.container_statuses.clone().unwrap_or_default();
    let why = |status: &ContainerStatus| {
        let state = status.state.clone().unwrap_or_default();
        let waiting = state.waiting.map(|waiting| (waiting.reason, waiting.message));
        let (reason, message) = waiting?;
        Some([reason, message].into_iter().flatten().collect::<Vec<_>>().join(": "))
    };
    let name = pod.metadata.name.clone().unwrap_or_default();
    statuses.iter().find_map(why).map(|why| (format!("Pod {name}"), why))
}

/// Waits until each member cluster that Karmada reaches has an agent.
///
/// # Errors
/// If karmada-apiserver does not answer.
pub(super) async fn agents(client: &Client, limit: Duration) -> Result<bool, Error> {
    until_complete("agents", limit, async || {
        let clusters = read_only::member_clusters(client).await.map_err(anyhow::Error::from)?;
        let reached =
            clusters.iter().filter(|cluster| cluster.ready()).map(|cluster| cluster.name().to_owned()).collect();
        let binding =
            read_only::binding_of(client, agents::NAMESPACE, &format!("{}-deployment", agents::DEPLOYMENT)).await;
        Ok(without_agent(&reached, binding.map_err(anyhow::Error::from)?.as_ref()))
    })
    .await
}

/// The clusters without a ready agent.
fn without_agent(clusters: &BTreeSet<String>, binding: Option<&ResourceBinding>) -> Missing {
    let items = binding.map(|binding| binding.status.aggregated_status.as_slice()).unwrap_or_default();
    let why = |name: &String| {
        let Some(item) = items.iter().find(|item| item.cluster_name == *name) else {
            return Some("Karmada has not brought the agent there yet".to_owned());
        };
        let number = |field: &str| item.status.as_ref().and_then(|status| status.get(field)).and_then(Value::as_i64);
        let number = |field: &str| number(field).unwrap_or(0);
        // Pods of the former agent stay ready while those of the new one start.
        let is_updated = number("updatedReplicas") >= number("replicas");
        match (item.applied, if is_updated { number("readyReplicas") } else { 0 }) {
            (false, _) => Some(
                item.applied_message.as_ref().map_or("not applied yet".to_owned(), |why| format!("not applied: {why}")),
            ),
            (true, 0) => Some("no agent is ready yet".to_owned()),
            (true, _) => None,
        }
    };
    clusters.iter().filter_map(|name| Some((format!("Cluster {name}"), why(name)?))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::new(1, json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 }), true)]
    #[case::unseen(2, json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 }), false)]
    #[case::old_pod_left(1, json!({ "observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3 }), false)]
    #[case::not_available(1, json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1 }), false)]
    fn a_deployment_is_complete(#[case] generation: i64, #[case] status: Value, #[case] expected: bool) {
        let deployment = json!({
            "metadata": { "generation": generation }, "status": status,
            "spec": { "replicas": 2, "selector": {}, "template": {} },
        });
        assert_eq!(available(&serde_json::from_value(deployment).unwrap()).complete, expected);
    }

    #[test]
    fn an_operator_without_a_deployment_is_missing() {
        let missing = incomplete("sys", &[]);
        assert_eq!(missing, Missing::from([("Deployment sys/mczk".to_owned(), "does not exist".to_owned())]));
        let deployment = |available: i32| {
            serde_json::from_value::<Deployment>(json!({
                "metadata": { "name": "own-mczk", "generation": 1 },
                "spec": { "replicas": 1, "selector": {}, "template": {} },
                "status": { "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available },
            }))
            .unwrap()
        };
        assert_eq!(incomplete("sys", &[deployment(1)]), Missing::new());
        assert_eq!(incomplete("sys", &[deployment(0)]).keys().collect::<Vec<_>>(), ["Deployment sys/own-mczk"]);
    }

    #[rstest]
    #[case::younger_pods(&[10, 11], 20, 0)]
    #[case::an_older_pod(&[9, 11], 20, 1)]
    #[case::an_older_pod_until_the_last_moment(&[9, 11], 189, 1)]
    #[case::an_older_pod_later(&[9, 11], 190, 0)]
    #[case::elsewhere(&[], 20, 1)]
    #[case::elsewhere_later(&[], 190, 0)]
    fn an_operator_serves_the_present_certificate(#[case] pods: &[i64], #[case] now: i64, #[case] expected: usize) {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let metadata = |value: Value| serde_json::from_value::<ObjectMeta>(value).unwrap();
        let writes = [5, 10].map(|second| json!({ "manager": second.to_string(), "time": at(second) }));
        let pod = |second: &i64| metadata(json!({ "name": second.to_string(), "creationTimestamp": at(*second) }));
        for secret in
            [json!({ "creationTimestamp": at(5), "managedFields": writes }), json!({ "creationTimestamp": at(10) })]
        {
            assert_eq!(unread(&metadata(secret), pods.iter().map(pod).collect(), at(now)).len(), expected);
        }
    }

    #[test]
    fn each_cluster_without_an_agent_says_why() {
        let binding = serde_json::from_value(json!({ "status": { "aggregatedStatus": [
            { "clusterName": "m1", "applied": true, "status": { "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2 } },
            { "clusterName": "m2", "applied": true, "status": { "replicas": 2 } },
            { "clusterName": "m5", "applied": true, "status": { "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2 } },
            { "clusterName": "m3", "applied": false, "appliedMessage": "forbidden" },
        ] } }))
        .unwrap();
        let clusters = ["m1", "m2", "m3", "m4", "m5"].map(str::to_owned).into();
        let lines: Vec<String> =
            without_agent(&clusters, Some(&binding)).iter().map(|(name, why)| format!("{name}: {why}")).collect();
        assert_eq!(
            lines,
            [
                "Cluster m2: no agent is ready yet",
                "Cluster m3: not applied: forbidden",
                "Cluster m4: Karmada has not brought the agent there yet",
                "Cluster m5: no agent is ready yet",
            ]
        );
    }
}
