//! `InterpretDependency`: the Secrets and ConfigMaps that Karmada must propagate with the object.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{object::read, refusal::Refusal};
use mczk_api::zookeeper::{Dependency, DependencyKind};

/// An object that Karmada propagates too, as Karmada names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DependentObjectReference {
    /// `v1`.
    api_version: &'static str,
    kind: DependencyKind,
    /// Namespace of the ZooKeeper object.
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct DependencyView {
    #[serde(default)]
    metadata: Option<Metadata>,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct Metadata {
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct Spec {
    #[serde(default)]
    dependencies: Option<Vec<Dependency>>,
    #[serde(default)]
    template: Option<Template>,
    #[serde(default)]
    tls: Option<TlsView>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
struct Template {
    #[serde(default)]
    image_pull_secrets: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(expecting = "a map")]
struct TlsView {
    #[serde(default)]
    client: Option<ClientTlsView>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "a map")]
struct ClientTlsView {
    secret_name: String,
}

/// The objects that the spec names in `dependencies`, `template.imagePullSecrets` and `tls.client.secretName`: each
/// once, ConfigMaps first, by name. `namespace` is used if the object has none.
///
/// # Errors
/// If a field that is read has another type, or there is no namespace. Also if a name is empty: Karmada would refuse
/// the whole answer.
pub(crate) fn interpret(object: &RawValue, namespace: &str) -> Result<Vec<DependentObjectReference>, Refusal> {
    let DependencyView { metadata, spec } = read("object", object)?;
    let namespace = metadata.and_then(|metadata| metadata.namespace).unwrap_or_else(|| namespace.to_owned());
    if namespace.is_empty() {
        return Err(Refusal::unreadable("object.metadata.namespace is missing"));
    }
    let secret = |name| Dependency { kind: DependencyKind::Secret, name };
    let pull_secrets = spec.template.and_then(|template| template.image_pull_secrets).unwrap_or_default();
    let client = spec.tls.and_then(|tls| tls.client).map(|client| client.secret_name);
    let named: BTreeSet<Dependency> = spec
        .dependencies
        .unwrap_or_default()
        .into_iter()
        .chain(pull_secrets.into_iter().map(secret))
        .chain(client.map(secret))
        .collect();
    if let Some(Dependency { kind, .. }) = named.iter().find(|dependency| dependency.name.is_empty()) {
        return Err(Refusal::unreadable(format!("object.spec: a {kind:?} has no name")));
    }
    let reference = |Dependency { kind, name }| DependentObjectReference {
        api_version: "v1",
        kind,
        namespace: namespace.clone(),
        name,
    };
    Ok(named.into_iter().map(reference).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn answer(object: &Value) -> Result<Value, Refusal> {
        let object = serde_json::value::to_raw_value(object).unwrap();
        interpret(&object, "").map(|references| serde_json::to_value(references).unwrap())
    }

    #[test]
    fn each_dependency_appears_once_and_sorted() {
        let object = json!({
            "metadata": {"namespace": "prod"},
            "spec": {
                "dependencies": [
                    {"kind": "Secret", "name": "zk-quorum"},
                    {"kind": "ConfigMap", "name": "zz"},
                    {"kind": "Secret", "name": "client"},
                    {"kind": "Secret", "name": "zk-quorum"}
                ],
                "template": {"imagePullSecrets": ["registry", "client"]},
                "tls": {"quorum": true, "client": {"mode": "Required", "secretName": "client"}}
            }
        });
        assert_eq!(
            answer(&object),
            Ok(json!([
                {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "prod", "name": "zz"},
                {"apiVersion": "v1", "kind": "Secret", "namespace": "prod", "name": "client"},
                {"apiVersion": "v1", "kind": "Secret", "namespace": "prod", "name": "registry"},
                {"apiVersion": "v1", "kind": "Secret", "namespace": "prod", "name": "zk-quorum"}
            ]))
        );
    }

    #[rstest]
    #[case(json!({"metadata": {"namespace": "n"}, "spec": {}}))]
    #[case(json!({"metadata": {"namespace": "n"}, "spec": {"dependencies": null, "template": null, "tls": {"client": null}}}))]
    fn no_dependency_is_an_empty_list(#[case] object: Value) {
        assert_eq!(answer(&object), Ok(json!([])));
    }

    #[rstest]
    #[case(json!({"spec": {}}), "object.metadata.namespace is missing")]
    #[case(json!({"metadata": {"namespace": "n"}, "spec": {"template": {"imagePullSecrets": [""]}}}), "object.spec: a Secret has no name")]
    #[case(
        json!({"metadata": {"namespace": "n"}, "spec": {"dependencies": [{"kind": "Pod", "name": "p"}]}}),
        "object.spec.dependencies[0].kind: unknown variant `Pod`, expected `ConfigMap` or `Secret`"
    )]
    fn an_unreadable_field_is_named(#[case] object: Value, #[case] message: &str) {
        assert_eq!(answer(&object).unwrap_err(), Refusal::unreadable(message));
    }
}
