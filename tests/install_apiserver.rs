//! `mczk register` and `mczk install` on a real API server, which plays Karmada's and that of the host: what it would refuse is
//! known before the first write, and a run of the commands is accepted twice.
//!
//! Starts etcd and kube-apiserver, which the rig builds if they are missing: about 20 s, and about 12 minutes the first time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apiserver;
mod patience;

use std::path::{Path, PathBuf};
use std::process::Command;

use apiserver::{AGENT, ApiServer};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use mczk_admin::{
    install::{Install, register::Register},
    register::{Object, apply},
    terminal::{error::Error, output::Exit},
};
use mczk_api::yaml;
use patience::wait_for;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
enum Line {
    Register(Box<Register>),
    Install(Box<Install>),
}

/// Runs a command. `Exit::Fine` too for one that has no other end.
async fn run(words: &[&str]) -> Result<Exit, String> {
    let line = Line::try_parse_from([&["mczk"][..], words].concat()).unwrap_or_else(|error| panic!("{error}"));
    let run = move || match line {
        Line::Register(register) => register.run().map(|()| Exit::Fine),
        Line::Install(install) => install.run(),
    };
    tokio::task::spawn_blocking(run).await.unwrap().map_err(|error: Error| error.to_string())
}

/// The definitions of Karmada that these commands read and write.
async fn karmada(server: &ApiServer) {
    let tools = rig::tools(None).unwrap();
    let names = [
        "config/config.karmada.io_resourceinterpreterwebhookconfigurations",
        "policy/policy.karmada.io_clusterpropagationpolicies",
    ];
    let names = names.map(|name| format!("crds/bases/{name}.yaml"));
    let output = Command::new("tar").args(["-xzOf"]).arg(tools.join(rig::KARMADA_CRDS)).args(names).output().unwrap();
    let mut definitions = yaml::read(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(definitions.len(), 2);
    // Karmada's other API server has it.
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    definitions.push(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusters.cluster.karmada.io" },
        "spec": {
            "group": "cluster.karmada.io", "scope": "Cluster", "names": { "kind": "Cluster", "plural": "clusters" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": { "openAPIV3Schema": any } }],
        },
    }));
    for definition in definitions {
        let object = Object::new(ApiResource::erase::<CustomResourceDefinition>(&()), &definition).unwrap();
        apply::apply(&server.client, &object).await.unwrap();
        apply::served(&server.client, &object).await.unwrap();
    }
    for name in ["karmada-system", "zookeeper"] {
        create_namespace(server, name).await;
    }
}

async fn create_namespace(server: &ApiServer, name: &str) {
    let namespaces: Api<Namespace> = Api::all(server.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

/// Kinds and names of everything that is written, with its resource version.
async fn written(server: &ApiServer) -> Vec<String> {
    let mut all = Vec::new();
    for (group, version, kind) in [
        ("", "v1", "Namespace"),
        ("", "v1", "Secret"),
        ("", "v1", "ServiceAccount"),
        ("", "v1", "Service"),
        ("apps", "v1", "Deployment"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "v1", "Role"),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        ("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy"),
        ("config.karmada.io", "v1alpha1", "ResourceInterpreterWebhookConfiguration"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &resource);
        // The storage of a new definition is not ready at once.
        wait_for(&format!("{kind} is listed"), async || api.list_metadata(&ListParams::default()).await.is_ok()).await;
        let items = api.list_metadata(&ListParams::default()).await.unwrap().items;
        all.extend(items.into_iter().map(|item| {
            let text = |text: Option<String>| text.unwrap_or_default();
            let metadata = item.metadata;
            let (namespace, name) = (text(metadata.namespace), text(metadata.name));
            format!("{kind} {namespace}/{name} {}", text(metadata.resource_version))
        }));
    }
    all
}

/// One server for everything: its start takes longer than all checks.
#[tokio::test]
async fn what_a_real_api_server_would_refuse_is_known_before_the_first_write() {
    let server = ApiServer::start("install").await;
    karmada(&server).await;
    register(&server).await;
    install(&server).await;
}

async fn register(server: &ApiServer) {
    let authority = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-{}.crt", std::process::id()));
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert;
    std::fs::write(&authority, certificate.pem()).unwrap();
    let (admin, other) = (server.kubeconfig("admin", "admin"), server.kubeconfig("other", "agent"));
    let words = |kubeconfig: &Path, more: &[&str]| -> Vec<String> {
        let fixed = ["register", "--url", "https://localhost:1", "--agent-image", "mczk", "--dashboard", "--ca-file"];
        let files = [&authority, Path::new("--kubeconfig"), kubeconfig].map(|path| path.display().to_string());
        fixed.map(str::to_owned).into_iter().chain(files).chain(more.iter().map(|word| (*word).to_owned())).collect()
    };
    let register = async |kubeconfig: &Path, more: &[&str]| {
        let words = words(kubeconfig, more);
        run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };

    let before = written(server).await;
    let why = register(&admin, &["--namespaces", "zookeeper,absent"]).await.unwrap_err();
    assert!(why.contains("RoleBinding absent/mczk-operator: the namespace absent does not exist: create it"), "{why}");
    assert_eq!(written(server).await, before);

    // All rights but for the registration of webhooks, which comes late.
    let rules = ["apiextensions.k8s.io", "rbac.authorization.k8s.io", "policy.karmada.io", "mczk.io", "apps", ""]
        .map(|group| json!({ "apiGroups": [group], "resources": ["*"], "verbs": ["*"] }));
    let metadata = json!({ "metadata": { "name": "other" } });
    let subject = json!({ "kind": "User", "name": AGENT, "apiGroup": "rbac.authorization.k8s.io" });
    let role_ref = json!({ "kind": "ClusterRole", "name": "other", "apiGroup": "rbac.authorization.k8s.io" });
    for (kind, content) in [
        ("ClusterRole", json!({ "rules": rules })),
        ("ClusterRoleBinding", json!({ "subjects": [subject], "roleRef": role_ref })),
    ] {
        let mut body = metadata.clone();
        json_patch::merge(&mut body, &content);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &resource);
        api.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    }
    let before = written(server).await;
    let why = register(&other, &["--namespaces", "zookeeper"]).await.unwrap_err();
    assert!(why.starts_with("not allowed: ") && why.contains("resourceinterpreterwebhookconfigurations"), "{why}");
    assert_eq!(written(server).await, before);

    assert_eq!(register(&admin, &["--namespaces", "zookeeper"]).await, Ok(Exit::Fine));
    let after = written(server).await;
    assert_ne!(after, before);
    assert_eq!(register(&admin, &["--namespaces", "zookeeper"]).await, Ok(Exit::Fine));
    assert_eq!(written(server).await, after);
    std::fs::remove_file(authority).unwrap();
}

/// The administrator's kubeconfig, with the authority that the server made for itself.
fn verified(server: &ApiServer) -> PathBuf {
    let path = server.kubeconfig("admin", "admin");
    let authority = std::fs::read(path.parent().unwrap().join("certificates/apiserver.crt")).unwrap();
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster.as_object_mut().unwrap().remove("insecure-skip-tls-verify");
    cluster["certificate-authority-data"] = json!(STANDARD.encode(authority));
    let verified = path.with_file_name("verified.kubeconfig");
    std::fs::write(&verified, kubeconfig.to_string()).unwrap();
    verified
}

/// The same server by another name.
fn host(server: &ApiServer) -> PathBuf {
    let path = server.kubeconfig("admin", "admin");
    let text = std::fs::read_to_string(&path).unwrap().replace("127.0.0.1", "localhost");
    let host = path.with_file_name("host.kubeconfig");
    std::fs::write(&host, text).unwrap();
    host
}

async fn install(server: &ApiServer) {
    let paths = [verified(server), host(server)].map(|path| path.display().to_string());
    let [karmada, host] = &paths;
    let install = async |more: &[&str]| {
        let fixed = ["install", "--image", "mczk", "--url", "https://mczk.example.org", "--wait-seconds", "0"];
        let connections = ["--host-kubeconfig", host, "--karmada-server", "https://karmada.example.org"];
        run(&[&fixed[..], &connections, &["--kubeconfig", karmada], more].concat()).await
    };
    let before = written(server).await;
    for (flags, expected) in [
        (
            &["--namespaces", "absent"][..],
            "RoleBinding absent/mczk-operator: the namespace absent does not exist: create it",
        ),
        (&["--host-namespace", "other", "--without-operator"], "the namespace other does not exist"),
        (&["--pull-secret", "absent"], "--pull-secret: the host has no Secret mczk-system/absent"),
        (&["--agent-limits", "memory=much"], "quantities must match the regular expression"),
    ] {
        let why = install(flags).await.unwrap_err();
        assert!(why.contains(expected), "{why}");
        assert_eq!(written(server).await, before);
    }
    assert_eq!(install(&["--dry-run"]).await, Ok(Exit::Waits));
    assert_eq!(written(server).await, before);
    assert_eq!(install(&["--namespaces", "zookeeper"]).await, Ok(Exit::Fine));
    let after = written(server).await;
    assert_ne!(after, before);
    assert_eq!(install(&["--namespaces", "zookeeper"]).await, Ok(Exit::Fine));
    assert_eq!(written(server).await, after);

    // The former authority stays, since no one knows yet what operators serve.
    let registered = async || {
        let gvk = GroupVersionKind::gvk("config.karmada.io", "v1alpha1", "ResourceInterpreterWebhookConfiguration");
        let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &ApiResource::from_gvk(&gvk));
        let found = api.get("mczk").await.unwrap();
        let bundle = found.data["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap().to_owned();
        String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap().replace('\r', "")
    };
    let former = registered().await;
    let secrets: Api<Secret> = Api::namespaced(server.client.clone(), "mczk-system");
    secrets.delete("mczk-webhook-authority", &DeleteParams::default()).await.unwrap();
    assert_eq!(install(&["--namespaces", "zookeeper"]).await, Ok(Exit::Fine));
    let all = registered().await;
    let count = |bundle: &str| bundle.matches("BEGIN CERTIFICATE").count();
    assert_eq!(count(&all), count(&former) + 1, "{all}");
    assert!(all.ends_with(&former), "{all}");
}
