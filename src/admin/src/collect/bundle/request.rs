//! What a bundle asks API servers for. Everything here is pure.

use serde_json::Value;

use crate::register::{agents, host};
use mczk_api::{contract::labels::ENSEMBLE_LABEL, karmada::cluster};

/// Most objects of one list.
pub(super) const MOST: usize = 500;

/// One list of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListRequest {
    /// File in the bundle, without its folder.
    pub(super) file: String,
    /// Path at the API server.
    pub(super) path: String,
    /// Which objects of the list are stored.
    pub(super) keep: Keep,
}

/// Which objects of a list are stored. Those of other programs are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// All: the list holds no objects of other programs.
    All,
    /// Objects that name mczk.
    Named,
    /// Events about the Deployments of a list before, and about their pods.
    OfDeployments,
}

fn request(file: &str, path: &str, label: Option<&str>) -> ListRequest {
    let label = label.map(|label| format!("&labelSelector={}", label.replace('/', "%2F").replace('=', "%3D")));
    ListRequest {
        file: format!("{file}.yaml"),
        path: format!("{path}?limit={MOST}{}", label.unwrap_or_default()),
        keep: Keep::All,
    }
}

fn shared(file: &str, path: &str) -> ListRequest {
    ListRequest { keep: Keep::Named, ..request(file, path, None) }
}

/// Lists of the control plane as a whole.
pub(super) fn of_karmada(clusters: &[String]) -> Vec<ListRequest> {
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let config = "/apis/config.karmada.io/v1alpha1";
    let mut requests = vec![
        request("clusters", &format!("/apis/{}/clusters", cluster::API_VERSION), None),
        request("interpreter-webhooks", &format!("{config}/resourceinterpreterwebhookconfigurations"), None),
        request("interpreter-customizations", &format!("{config}/resourceinterpretercustomizations"), None),
        request("validating-webhooks", &format!("{admission}/validatingwebhookconfigurations"), None),
        request("mutating-webhooks", &format!("{admission}/mutatingwebhookconfigurations"), None),
        shared("cluster-propagation-policies", "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies"),
        shared("cluster-override-policies", "/apis/policy.karmada.io/v1alpha1/clusteroverridepolicies"),
        request("leases", "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases", None),
    ];
    requests.extend(clusters.iter().map(|cluster| {
        shared(
            &format!("works/{cluster}"),
            &format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works"),
        )
    }));
    requests
}

/// Lists of one namespace of ensembles in the control plane.
pub(super) fn of_karmada_namespace(namespace: &str) -> Vec<ListRequest> {
    let list = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{namespace}/{plural}");
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let policy = "policy.karmada.io/v1alpha1";
    let services = "multicluster.x-k8s.io/v1alpha1";
    let lists = [
        request("multiclusterzookeepers", &list("mczk.io/v1alpha1", "multiclusterzookeepers"), None),
        request("zookeepers", &list("mczk.io/v1alpha1", "zookeepers"), None),
        shared("propagation-policies", &list(policy, "propagationpolicies")),
        shared("override-policies", &list(policy, "overridepolicies")),
        shared("resource-bindings", &list("work.karmada.io/v1alpha2", "resourcebindings")),
        shared("service-exports", &list(services, "serviceexports")),
        shared("service-imports", &list(services, "serviceimports")),
        request("events", &core("events"), None),
        request("secrets", &core("secrets"), None),
    ];
    lists.into_iter().map(|request| ListRequest { file: format!("{namespace}/{}", request.file), ..request }).collect()
}

/// Lists of one namespace of ensembles in a member cluster. `name` is that of one ensemble, if the bundle is about one.
pub(super) fn of_member_namespace(namespace: &str, name: Option<&str>) -> Vec<ListRequest> {
    let label = name.map_or_else(|| ENSEMBLE_LABEL.to_owned(), |name| format!("{ENSEMBLE_LABEL}={name}"));
    let label = Some(label.as_str());
    let list = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{namespace}/{plural}");
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let services = "multicluster.x-k8s.io/v1alpha1";
    let lists = [
        request("zookeepers", &list("mczk.io/v1alpha1", "zookeepers"), None),
        request("statefulsets", &list("apps/v1", "statefulsets"), label),
        request(PODS, &core("pods"), label),
        request("persistentvolumeclaims", &core("persistentvolumeclaims"), label),
        request("services", &core("services"), label),
        request("secrets", &core("secrets"), label),
        request("poddisruptionbudgets", &list("policy/v1", "poddisruptionbudgets"), label),
        request("networkpolicies", &list("networking.k8s.io/v1", "networkpolicies"), label),
        shared("service-exports", &list(services, "serviceexports")),
        shared("service-imports", &list(services, "serviceimports")),
        request("events", &core("events"), None),
    ];
    lists.into_iter().map(|request| ListRequest { file: format!("{namespace}/{}", request.file), ..request }).collect()
}

/// File of the list of pods, whose logs follow.
pub(super) const PODS: &str = "pods";

/// Lists of the namespace in which operators or agents run. Other programs may run there too. `program` is the label of
/// the pods, `app.kubernetes.io/name`.
pub(super) fn of_program_namespace(namespace: &str, program: &str) -> Vec<ListRequest> {
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let label = format!("app.kubernetes.io/name={program}");
    let label = Some(label.as_str());
    let lists = [
        request(DEPLOYMENTS, &format!("/apis/apps/v1/namespaces/{namespace}/deployments"), label),
        shared("leases", &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")),
        request(PODS, &core("pods"), label),
        ListRequest { keep: Keep::OfDeployments, ..request("events", &core("events"), None) },
    ];
    lists.into_iter().map(|request| ListRequest { file: format!("{namespace}/{}", request.file), ..request }).collect()
}

/// File of the list of Deployments, whose events follow.
pub(super) const DEPLOYMENTS: &str = "deployments";

/// Label of the operators' pods.
pub(super) const OPERATOR: &str = host::DEPLOYMENT;
/// Namespace of the agents.
pub(super) const AGENTS: &str = agents::NAMESPACE;
/// Label of the agents' pods.
pub(super) const AGENT: &str = agents::DEPLOYMENT;

/// A list without the objects of other programs, and without the schemas of definitions, which the version of mczk tells.
/// `deployments` are the names of a list before.
pub(super) fn reduce(list: &mut Value, keep: Keep, deployments: &[String]) {
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|item| match keep {
            Keep::All => true,
            Keep::Named => concerns_mczk(item),
            Keep::OfDeployments => is_about(item, deployments),
        });
        items.iter_mut().for_each(drop_schemas);
    }
}

/// Names of the objects in a list.
pub(super) fn names(list: &Value) -> Vec<String> {
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.pointer("/metadata/name")?.as_str()).map(str::to_owned).collect()
}

/// True for an event about one of the Deployments, or about its `ReplicaSets` and pods, whose names begin with its name.
fn is_about(event: &Value, deployments: &[String]) -> bool {
    let subject = event.pointer("/involvedObject/name").and_then(Value::as_str).unwrap_or_default();
    let rest = |name: &String| subject.strip_prefix(name.as_str());
    deployments.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// True if an object names mczk anywhere, such as the group of its kinds in a Work, a policy or a binding.
fn concerns_mczk(item: &Value) -> bool {
    let name = item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    name.starts_with("mczk") || item.to_string().contains("mczk.io")
}

fn drop_schemas(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("openAPIV3Schema");
            members.values_mut().for_each(drop_schemas);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_schemas),
        _ => {}
    }
}

/// True if the API server has more objects than the list.
pub(super) fn is_cut(list: &Value) -> bool {
    list.pointer("/metadata/continue").and_then(Value::as_str).is_some_and(|token| !token.is_empty())
}

/// The log of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerLog {
    /// Namespace of the pod.
    pub(super) namespace: String,
    /// Name of the pod.
    pub(super) pod: String,
    /// Name of the container.
    pub(super) container: String,
    /// True for the log before the last restart.
    pub(super) previous: bool,
}

impl ContainerLog {
    /// File in the bundle, without its folder.
    pub(super) fn file(&self) -> String {
        let previous = if self.previous { ".previous" } else { "" };
        format!("{}/logs/{}/{}{previous}.log", self.namespace, self.pod, self.container)
    }
}

/// The logs of the containers in a list of pods that have started.
pub(super) fn logs(pods: &Value) -> Vec<ContainerLog> {
    let text =
        |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut logs = Vec::new();
    for pod in pods.get("items").and_then(Value::as_array).into_iter().flatten() {
        let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
        for status in statuses.iter().filter_map(|pointer| pod.pointer(pointer)?.as_array()).flatten() {
            let restarts = status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
            let has_run =
                status.get("state").and_then(Value::as_object).is_some_and(|state| !state.contains_key("waiting"));
            let log = |previous| ContainerLog {
                namespace: text(pod, "/metadata/namespace"),
                pod: text(pod, "/metadata/name"),
                container: text(status, "/name"),
                previous,
            };
            logs.extend((has_run || restarts > 0).then(|| log(false)));
            logs.extend((restarts > 0).then(|| log(true)));
        }
    }
    logs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_is_encoded() {
        let requests = of_member_namespace("n", Some("zk"));
        let pods = requests.iter().find(|request| request.file == "n/pods.yaml").unwrap();
        assert_eq!(pods.path, "/api/v1/namespaces/n/pods?limit=500&labelSelector=mczk.io%2Fensemble%3Dzk");
    }

    #[test]
    fn objects_of_other_programs_are_left_out() {
        let work = |kind: &str, version: &str| json!({ "spec": { "workload": { "manifests": [{ "kind": kind, "apiVersion": version }] } } });
        let named = json!({ "metadata": { "name": "mczk-agents" } });
        let mut list =
            json!({ "items": [work("ZooKeeper", "mczk.io/v1alpha1"), work("Deployment", "apps/v1"), named] });
        let all = list.clone();
        reduce(&mut list, Keep::Named, &[]);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
        let mut unshared = all.clone();
        reduce(&mut unshared, Keep::All, &[]);
        assert_eq!(unshared, all);
    }

    /// The user may run the operator in a namespace with other programs.
    #[test]
    fn the_namespace_of_a_program_may_hold_others() {
        let requests = of_program_namespace("shared", OPERATOR);
        for request in requests.iter().filter(|request| request.keep == Keep::All) {
            assert!(request.path.ends_with("&labelSelector=app.kubernetes.io%2Fname%3Dmczk"), "{request:?}");
        }
        let kept: Vec<Keep> = requests.iter().map(|request| request.keep).collect();
        assert_eq!(kept, [Keep::All, Keep::Named, Keep::All, Keep::OfDeployments]);

        let event = |name: &str| json!({ "metadata": { "name": "e" }, "involvedObject": { "name": name } });
        let mut events =
            json!({ "items": [event("mczk"), event("mczk-5d8-x2"), event("mczkother-1"), event("shop-1")] });
        let deployments = json!({ "items": [{ "metadata": { "name": "mczk" } }] });
        reduce(&mut events, Keep::OfDeployments, &names(&deployments));
        assert_eq!(events["items"], json!([event("mczk"), event("mczk-5d8-x2")]));
    }

    #[test]
    fn definitions_have_no_schemas() {
        let mut list =
            json!({ "items": [{ "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": { "a": 1 } } }] }] });
        reduce(&mut list, Keep::All, &[]);
        assert_eq!(list, json!({ "items": [{ "versions": [{ "name": "v1", "schema": {} }] }] }));
    }

    #[test]
    fn logs_of_containers_that_have_run() {
        let status = |name: &str, restarts: i64, state: &str| json!({ "name": name, "restartCount": restarts, "state": { state: {} } });
        let pods = json!({ "items": [{
            "metadata": { "namespace": "n", "name": "zk-0" },
            "status": {
                "initContainerStatuses": [status("program", 0, "terminated")],
                "containerStatuses": [status("zookeeper", 2, "waiting"), status("late", 0, "waiting")],
            },
        }]});
        let files: Vec<String> = logs(&pods).iter().map(ContainerLog::file).collect();
        assert_eq!(
            files,
            ["n/logs/zk-0/program.log", "n/logs/zk-0/zookeeper.log", "n/logs/zk-0/zookeeper.previous.log"]
        );
    }
}
