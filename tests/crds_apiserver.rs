//! The CustomResourceDefinitions on a real API server. Only an API server shows whether it accepts them (it estimates the
//! cost of each rule), and what it then does with objects.
//!
//! Starts etcd and kube-apiserver, which the rig builds if they are missing: about 10 s, and about 12 minutes the first time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apiserver;
mod crd_cases;
mod patience;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use apiserver::ApiServer;
use crd_cases::{CASES, Outcome, base};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use mczk_admin::register::{
    Part, Settings,
    apply::{self, Change},
    rbac::Identity,
};
use mczk_api::{MultiClusterZooKeeper, ZooKeeper};
use serde_json::{Value, json};

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn refusal<T>(result: kube::Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message),
        Err(other) => panic!("{other}"),
    }
}

/// One server for everything: its start takes longer than all checks.
#[tokio::test]
async fn a_real_api_server_accepts_and_enforces_the_definitions() {
    let server = ApiServer::start("crds").await;
    apply_twice(&server).await;
    every_case(&server).await;
    an_unknown_member_of_the_affinity_is_refused(&server).await;
    a_size_goes_back_to_the_smallest_volume_and_no_further(&server).await;
    a_template_comes_back_as_it_was_written(&server).await;
    status_and_scale(&server).await;
}

async fn apply_twice(server: &ApiServer) {
    // The namespace of Karmada, for the operator's Lease.
    let namespace = json!({ "metadata": { "name": "karmada-system" } });
    let namespaces: Api<Namespace> = Api::all(server.client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let operator = Identity::User("mczk-operator".into());
    let namespaces = BTreeSet::from(["default".to_owned()]);
    let settings = Settings { operator, namespaces, dashboard: false, interpreter: None, agents: None };
    for expected in [Change::Created, Change::Unchanged] {
        for part in [Part::Crds, Part::Rbac] {
            for object in part.objects(&settings).unwrap() {
                assert_eq!(apply::apply(&server.client, &object).await.unwrap(), expected, "{}", object.name());
                if part == Part::Crds {
                    apply::served(&server.client, &object).await.unwrap();
                }
            }
        }
    }
    // This is not Karmada, and `mczk register` reports it.
    let error = apply::ensure_karmada(&server.client, "https://here").await.unwrap_err().to_string();
    assert!(error.starts_with("https://here does not serve policy.karmada.io: it is not karmada-apiserver"), "{error}");
}

async fn every_case(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    let mut wrong = String::new();
    for case in CASES {
        let (before, written) = case.objects();
        let name = written["metadata"]["name"].as_str().unwrap();
        let refused = match before {
            None => refusal(api.create(&PostParams::default(), &object(&written)).await),
            Some(before) => {
                let stored = api.create(&PostParams::default(), &object(&before)).await.unwrap();
                let mut written = object(&written);
                written.metadata.resource_version = stored.metadata.resource_version;
                refusal(api.replace(name, &PostParams::default(), &written).await)
            }
        };
        let fine = match (case.outcome, &refused) {
            (Outcome::Accepted, refused) => refused.is_none(),
            (Outcome::Rule(text) | Outcome::Schema(text), Some(message)) => message.contains(text),
            (_, None) => false,
        };
        if !fine {
            let _ = writeln!(wrong, "{}: {:?}, but {refused:?}", case.name, case.outcome);
        }
        let not_deleted = refusal(api.delete(name, &DeleteParams::default()).await);
        assert_eq!(not_deleted.is_some(), refused.is_some() && case.before.is_none(), "{}: {not_deleted:?}", case.name);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// `kubectl apply` and `GitOps` tools ask for it, as server-side apply always does. A member with a typo changed no pod before.
async fn an_unknown_member_of_the_affinity_is_refused(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    let mut written = base();
    written["spec"]["template"]["scheduling"] = json!({ "affinity": { "podRepulsion": {} } });
    let applied = api.patch("ensemble", &PatchParams::apply("user"), &Patch::Apply(&written)).await;
    assert!(refusal(applied).unwrap().contains("podRepulsion: field not declared in schema"));
}

/// Storage may refuse the size that all volumes but some already have.
async fn a_size_goes_back_to_the_smallest_volume_and_no_further(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    api.create(&PostParams::default(), &object(&base())).await.unwrap();
    let status = json!({ "status": { "smallestVolume": "8Gi" } });
    api.patch_status("ensemble", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    for (size, expected) in [("7Gi", Some("status.smallestVolume")), ("8192Mi", None), ("8Gi", None), ("9Gi", None)] {
        let spec = json!({ "spec": { "template": { "storage": { "size": size } } } });
        let refused = refusal(api.patch("ensemble", &PatchParams::default(), &Patch::Merge(&spec)).await);
        assert_eq!(refused.is_some(), expected.is_some(), "{size}: {refused:?}");
        assert!(expected.is_none_or(|text| refused.unwrap().contains(text)), "{size}");
    }
    api.delete("ensemble", &DeleteParams::default()).await.unwrap();
}

/// A member cluster may have a newer or older definition than the control plane. It must not add to a hashed spec.
async fn a_template_comes_back_as_it_was_written(server: &ApiServer) {
    let api = server.api(&ApiResource::erase::<ZooKeeper>(&()));
    let hash = "0123456789abcdef".repeat(4);
    for spec in [
        json!({
            "replicas": 0,
            "template": {"image": "zookeeper:3.9.4", "storage": {"size": "1Gi"}},
            "renderVersion": 1,
            "serverImage": "mczk:0.1.0",
            "tls": {"quorum": true},
            "revision": "r1",
            "ensemble": {},
        }),
        json!({
            "replicas": 3,
            "observers": 1,
            "cluster": "m1",
            "template": {
                "image": "zookeeper:3.9.4",
                "imagePullPolicy": "IfNotPresent",
                "imagePullSecrets": ["registry"],
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                "storage": {"size": "10Gi", "storageClassName": "fast", "reclaim": "Retain"},
                "zooCfg": [{"name": "tickTime", "value": "2000"}],
                "jvmFlags": ["-Xlog:gc"],
                "scheduling": {
                    "nodeSelector": {"disk": "nvme"},
                    "tolerations": [{"key": "zk", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}},
                    ]}},
                    "priorityClassName": "high",
                },
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            },
            "renderVersion": 1,
            "serverImage": "mczk:0.1.0",
            "tls": {"quorum": true, "client": {"mode": "Required", "secretName": "zk-tls"}},
            "revision": "r1",
            "peerCIDRs": ["10.0.0.0/8"],
            "specHash": format!("1-{hash}"),
            "dependencies": [{"kind": "Secret", "name": "registry"}],
            "ensemble": {
                "hash": hash,
                "incarnation": "abcde",
                "epoch": 7,
                "phase": "Bootstrapping",
                "formerIncarnations": ["zzzzz"],
                "tls": {"identity": "identity-1", "trust": ["ca-1"]},
                "servers": [{"id": 1, "cluster": "m1", "ordinal": 0, "host": "a.m1", "role": "voter"}],
            },
        }),
    ] {
        let written = json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper", "metadata": {"name": "zk"}, "spec": spec,
        });
        let stored = api.create(&PostParams::default(), &object(&written)).await.unwrap();
        assert_eq!(stored.data["spec"], spec);
        let typed: ZooKeeper = serde_json::from_value(written).unwrap();
        assert_eq!(serde_json::to_value(typed.spec).unwrap(), spec, "the type drops or adds something");
        api.delete("zk", &DeleteParams::default()).await.unwrap();
    }
}

async fn status_and_scale(server: &ApiServer) {
    let api: Api<MultiClusterZooKeeper> = Api::namespaced(server.client.clone(), "default");
    let created = api.create(&PostParams::default(), &serde_json::from_value(base()).unwrap()).await.unwrap();
    let time = "2026-01-02T03:04:05Z";
    let status = json!({
        "observedGeneration": 1,
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Waiting", "message": "waits", "lastTransitionTime": time,
            "observedGeneration": 1,
        }],
        "records": [{
            "observedGenerations": {"multiclusterzookeeper": 1, "zookeeper": 1},
            "order": ["m1", "m2"],
            "status": "Deploying",
            "currentState": {"pending": ["m2"], "deploying": ["m1"], "completed": []},
            "lastTransitionTime": time,
        }],
        "rollout": "Deploying m1 (0/2)",
        "replicas": 3,
        "readyReplicas": 0,
        "selector": "a=b",
    });
    let parameters = PatchParams::default();
    let stored = api.patch_status("ensemble", &parameters, &Patch::Merge(json!({"status": status}))).await.unwrap();
    assert_eq!(serde_json::to_value(stored.status).unwrap(), status);
    assert_eq!(stored.metadata.generation, created.metadata.generation, "a status makes no generation");

    let scaled =
        api.patch_scale("ensemble", &parameters, &Patch::Merge(json!({"spec": {"replicas": 7}}))).await.unwrap();
    assert_eq!(scaled.status.unwrap().selector.as_deref(), Some("a=b"));
    let read = api.get("ensemble").await.unwrap();
    assert_eq!(read.spec.replicas, 7);
    assert!(read.spec.tls.quorum);
    for replicas in [0, 100] {
        let refused =
            api.patch_scale("ensemble", &parameters, &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await;
        assert!(refusal(refused).unwrap().contains("spec.replicas"), "{replicas}");
    }
    // Rules over several fields hold for `scale` too, so a controller that scales meets them.
    let observers = json!({"spec": {"observers": [{"cluster": "m1", "count": 99}, {"cluster": "m2", "count": 99}]}});
    api.patch("ensemble", &parameters, &Patch::Merge(observers)).await.unwrap();
    let too_many = api.patch_scale("ensemble", &parameters, &Patch::Merge(json!({"spec": {"replicas": 57}}))).await;
    assert!(refusal(too_many).unwrap().contains("replicas and observers together can be at most 254"));
    // Null is not a value: the API server drops it.
    let patched = json!({"apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": {"name": "null"},
        "spec": {"replicas": 1, "template": {"image": "z", "storage": {"size": "1Gi", "reclaim": null}}, "rollout": null}});
    let raw = server.api(&ApiResource::erase::<MultiClusterZooKeeper>(&()));
    let stored = raw.create(&PostParams::default(), &object(&patched)).await.unwrap();
    assert_eq!(stored.data["spec"]["template"], json!({"image": "z", "storage": {"size": "1Gi"}}));
    assert!(stored.data["spec"].get("rollout").is_none());
}
