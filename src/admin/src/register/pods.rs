//! Settings of the pods of operator and agents.

use std::{collections::BTreeMap, str::FromStr};

use json_patch::merge;
use serde_json::{Value, json};

use mczk_api::pod::Toleration;
use mczk_runtime::election::rule::Timing;

/// What users choose of a Deployment's pods. Empty fields leave the manifest as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSettings {
    /// Image of mczk.
    pub image: String,
    /// Secrets with the credentials of a registry, in the namespace of the pods.
    pub(crate) pull_secrets: Vec<String>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Requested resources.
    pub requests: BTreeMap<String, String>,
    /// Limits of resources.
    pub limits: BTreeMap<String, String>,
    /// Times of the election.
    pub(crate) lease: Option<Timing>,
}

/// Labels of the namespace of mczk: a cluster admits no pod there that needs more rights than the pods of mczk.
pub(super) fn restricted_labels() -> BTreeMap<String, String> {
    BTreeMap::from([("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())])
}

/// Gives the settings to a Deployment.
pub(super) fn configure(deployment: &mut Value, settings: &PodSettings) {
    let Some(pod) = deployment.pointer_mut("/spec/template/spec") else { return };
    if !settings.pull_secrets.is_empty() {
        let names: Vec<Value> = settings.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        merge(pod, &json!({ "imagePullSecrets": names }));
    }
    if !settings.tolerations.is_empty() {
        merge(pod, &json!({ "tolerations": settings.tolerations }));
    }
    let Some(container) = pod.pointer_mut("/containers/0") else { return };
    merge(container, &json!({ "image": settings.image }));
    let arguments = container.get_mut("args").and_then(Value::as_array_mut);
    for (arguments, timing) in arguments.into_iter().zip(settings.lease) {
        let flags = [
            ("duration", timing.duration),
            ("renew-deadline", timing.renew_deadline),
            ("retry-period", timing.retry_period),
        ];
        arguments.extend(flags.map(|(name, time)| json!(format!("--lease-{name}-seconds={}", time.as_secs()))));
    }
    for (field, quantities) in [("requests", &settings.requests), ("limits", &settings.limits)] {
        if !quantities.is_empty() {
            merge(container, &json!({ "resources": { field: quantities } }));
        }
    }
}

/// A toleration as users write it: `KEY[=VALUE][:EFFECT]`, or `:EFFECT` and an empty text for every key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TolerationText(pub(crate) Toleration);

impl FromStr for TolerationText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (taint, effect) = text.split_once(':').map_or((text, None), |(taint, effect)| (taint, Some(effect)));
        let (key, value) = taint.split_once('=').map_or((taint, None), |(key, value)| (key, Some(value)));
        if let Some(effect) = effect
            && !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect)
        {
            return Err(format!("{effect:?} is no effect: use NoSchedule, PreferNoSchedule or NoExecute"));
        }
        if key.is_empty() && value.is_some() {
            return Err("a value needs a key: write KEY=VALUE".to_owned());
        }
        let operator = if value.is_some() { "Equal" } else { "Exists" };
        let key = (!key.is_empty()).then_some(key);
        let toleration = json!({ "key": key, "operator": operator, "value": value, "effect": effect });
        serde_json::from_value(toleration).map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("dedicated", json!({ "key": "dedicated", "operator": "Exists" }))]
    #[case("dedicated=zk:NoSchedule", json!({ "key": "dedicated", "operator": "Equal", "value": "zk", "effect": "NoSchedule" }))]
    #[case(":NoExecute", json!({ "operator": "Exists", "effect": "NoExecute" }))]
    fn a_toleration(#[case] text: &str, #[case] expected: Value) {
        assert_eq!(json!(text.parse::<TolerationText>().unwrap().0), expected);
    }

    #[rstest]
    #[case("a:Never", "is no effect")]
    #[case("=b", "needs a key")]
    fn no_toleration(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<TolerationText>().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    /// The restricted Pod Security Standard, which [`restricted_labels`] enforce.
    #[rstest]
    #[case(include_str!("../../../../manifests/agent.yaml"))]
    #[case(include_str!("../../../../manifests/operator.yaml"))]
    fn pods_of_mczk_are_restricted(#[case] manifest: &str) {
        let objects = mczk_api::yaml::read(manifest).unwrap();
        let deployment = objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"], json!({ "type": "RuntimeDefault" }));
        for container in pod["containers"].as_array().unwrap() {
            assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
            assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
        }
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            assert!(volume.get("secret").is_some(), "{volume}");
        }
        for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert!(pod.get(field).is_none(), "{field}");
        }
    }

    /// The manifests pass no times, because a program refuses a flag that it gets twice.
    #[rstest]
    #[case(include_str!("../../../../manifests/agent.yaml"))]
    #[case(include_str!("../../../../manifests/operator.yaml"))]
    fn the_times_of_the_election_reach_the_program(#[case] manifest: &str) {
        let objects = mczk_api::yaml::read(manifest).unwrap();
        let mut deployment = objects.into_iter().find(|object| object["kind"] == "Deployment").unwrap();
        configure(&mut deployment, &PodSettings { lease: Some(Timing::default()), ..PodSettings::default() });
        let arguments = deployment.pointer("/spec/template/spec/containers/0/args").unwrap().as_array().unwrap();
        let times: Vec<&str> =
            arguments.iter().filter_map(Value::as_str).filter(|flag| flag.starts_with("--lease-")).collect();
        let expected =
            ["--lease-duration-seconds=15", "--lease-renew-deadline-seconds=10", "--lease-retry-period-seconds=2"];
        assert_eq!(times, expected);
    }

    #[test]
    fn empty_settings_change_the_image_alone() {
        let before = json!({ "spec": { "template": { "spec": {
            "containers": [{ "image": "a", "resources": { "requests": { "cpu": "1" } } }],
        } } } });
        let mut after = before.clone();
        configure(&mut after, &PodSettings { image: "a".to_owned(), ..PodSettings::default() });
        assert_eq!(after, before);
        let requests = BTreeMap::from([("memory".to_owned(), "1Gi".to_owned())]);
        let pull_secrets = vec!["pull".to_owned()];
        configure(&mut after, &PodSettings { image: "b".to_owned(), requests, pull_secrets, ..PodSettings::default() });
        let pod = &after["spec"]["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "pull" }]));
        assert_eq!(
            pod["containers"][0],
            json!({ "image": "b", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } })
        );
    }
}
