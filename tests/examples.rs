//! Every object of the folder examples, on a real API server: a server-side apply accepts it, and refuses broken copies.
//!
//! Starts etcd and kube-apiserver, which the rig builds if they are missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apiserver;
mod patience;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use apiserver::ApiServer;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use mczk_admin::register::{Object, Part, Settings, apply, rbac::Identity};
use mczk_api::yaml;
use serde_json::{Value, json};

/// Objects whose definitions no package registry has. `make test-gitops` reads the Kustomization with Flux's own type. A
/// ServiceExport has a name alone.
const NOT_SERVED: [&str; 2] = ["Kustomization", "ServiceExport"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All files below a folder with this extension, relative to the root of the repository.
fn files(folder: &Path, extension: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let relative = path.strip_prefix(root()).unwrap().to_owned();
        if path.is_dir() {
            found.extend(files(&relative, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.insert(relative);
        }
    }
    found
}

fn documents(text: &str) -> Vec<Value> {
    yaml::read(text).unwrap()
}

/// Every object, with its file.
fn objects() -> Vec<(PathBuf, Value)> {
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        documents(&text).into_iter().map(move |object| (path.clone(), object))
    };
    files(Path::new("examples"), "yaml").into_iter().flat_map(read).collect()
}

/// The resource of an object, in the namespace `default` unless the object names one.
fn api(server: &ApiServer, object: &Value) -> Api<DynamicObject> {
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Api::namespaced_with(server.client.clone(), namespace, &resource)
}

/// Applies as `kubectl apply --server-side` does: an unknown field is an error.
async fn apply(server: &ApiServer, object: &Value, dry_run: bool) -> Result<DynamicObject, String> {
    let mut parameters = PatchParams::apply("examples").validation_strict();
    parameters.dry_run = dry_run;
    let name = object["metadata"]["name"].as_str().unwrap();
    let result = api(server, object).patch(name, &parameters, &Patch::Apply(object)).await;
    result.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => panic!("{name}: {other}"),
    })
}

async fn start() -> ApiServer {
    let server = ApiServer::start("examples").await;
    let operator = Identity::User("mczk-operator".into());
    let settings =
        Settings { operator, namespaces: BTreeSet::new(), interpreter: None, agents: None, dashboard: false };
    for object in Part::Crds.objects(&settings).unwrap() {
        apply::apply(&server.client, &object).await.unwrap();
        apply::served(&server.client, &object).await.unwrap();
    }
    // Karmada's own definition of its CronFederatedHPA, as the rig applies it.
    let karmada = fs::read_to_string(rig::tools(None).unwrap().join("karmada-resources.yaml")).unwrap();
    let schedules = karmada.split("\n---\n").find(|text| text.contains("\n  name: cronfederatedhpas.")).unwrap();
    let definition =
        Object::new(ApiResource::erase::<CustomResourceDefinition>(&()), &documents(schedules)[0]).unwrap();
    apply::apply(&server.client, &definition).await.unwrap();
    apply::served(&server.client, &definition).await.unwrap();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "argocd" } });
    let namespaces: Api<DynamicObject> =
        Api::all_with(server.client.clone(), &ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&()));
    namespaces.patch("argocd", &PatchParams::apply("examples"), &Patch::Apply(namespace)).await.unwrap();
    server
}

/// One server for everything: its start takes longer than all checks.
#[tokio::test]
async fn a_real_api_server_accepts_every_example() {
    let server = start().await;
    let mut ensembles = 0;
    for (path, object) in objects() {
        let kind = object["kind"].as_str().unwrap();
        if NOT_SERVED.contains(&kind) {
            continue;
        }
        apply(&server, &object, true).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if kind == "MultiClusterZooKeeper" {
            ensembles += 1;
            let stored = apply(&server, &object, false).await.unwrap();
            assert_eq!(contained(&object["spec"], &stored.data["spec"]), Ok(()), "{}", path.display());
        }
    }
    assert_eq!(ensembles, files(Path::new("examples"), "yaml").iter().filter(|path| is_ensemble(path)).count());
    broken_copies_are_refused(&server).await;
}

fn is_ensemble(path: &Path) -> bool {
    path.parent() == Some(Path::new("examples"))
}

/// Whether the API server has stored all that was written. It may add defaults.
fn contained(written: &Value, stored: &Value) -> Result<(), String> {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            written.iter().try_for_each(|(key, value)| contained(value, stored.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(written), Value::Array(stored)) if written.len() == stored.len() => {
            written.iter().zip(stored).try_for_each(|(written, stored)| contained(written, stored))
        }
        _ if written == stored => Ok(()),
        _ => Err(format!("{written} became {stored}")),
    }
}

async fn broken_copies_are_refused(server: &ApiServer) {
    for (path, object) in objects() {
        let breaks: &[(&str, Value)] = match object["kind"].as_str().unwrap() {
            "MultiClusterZooKeeper" => &[
                ("/spec/replica", json!(5)),
                ("/spec/replicas", json!("five")),
                ("/spec/template/storage/size", json!("ten")),
            ],
            "CronFederatedHPA" => &[("/spec/rule", json!([])), ("/spec/rules/0/targetReplicas", json!("five"))],
            "ConfigMap" => &[("/dat", json!({})), ("/data", json!({ "key": { "a": 1 } }))],
            "Service" => &[("/spec/port", json!([])), ("/spec/ports", json!([{ "name": "quorum", "port": "2888x" }]))],
            "StatefulSet" => &[("/spec/replica", json!(1)), ("/spec/serviceName", json!(5))],
            _ => &[],
        };
        for (pointer, value) in breaks {
            let mut broken = object.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            broken.pointer_mut(parent).unwrap()[field] = value.clone();
            // Another name: a field may be immutable, and the copy must be refused for itself.
            broken["metadata"]["name"] = json!("broken");
            let refusal = apply(server, &broken, true).await.expect_err(&format!("{}: {pointer}", path.display()));
            assert!(refusal.contains(field), "{}: {pointer}: {refusal}", path.display());
        }
    }
}

/// The API server of this test does not serve them, so their names are compared.
#[test]
fn objects_that_are_not_served_name_their_kind() {
    let of = |kind: &str| objects().into_iter().find(|(_, object)| object["kind"] == kind).unwrap().1;
    let export = of("ServiceExport");
    assert_eq!(export["apiVersion"], "multicluster.x-k8s.io/v1alpha1");
    let service = of("Service");
    assert_eq!(export["metadata"]["name"], service["metadata"]["name"], "an export has the name of its Service");
    assert_eq!(of("Kustomization")["apiVersion"], "kustomize.toolkit.fluxcd.io/v1");
}

/// A user finds every example from its guide, and from the table of the folder.
#[test]
fn every_example_is_on_a_page() {
    let pages = files(Path::new("docs"), "md");
    let text: String = pages.iter().map(|page| fs::read_to_string(root().join(page)).unwrap()).collect();
    let table = fs::read_to_string(root().join("examples/README.md")).unwrap();
    for file in files(Path::new("examples"), "yaml") {
        let (path, below) = (file.display().to_string(), file.strip_prefix("examples").unwrap());
        let entry = below.iter().next().unwrap().to_str().unwrap();
        assert!(table.contains(&format!("({entry})")), "examples/README.md does not name {entry}");
        // A guide may use a folder as a whole.
        let is_used = !is_ensemble(&file) && text.contains(&format!("`examples/{entry}/`"));
        assert!(is_used || text.contains(&format!("`{path}`")), "no page of docs names {path}");
    }
}
