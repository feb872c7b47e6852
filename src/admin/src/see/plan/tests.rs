#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::fixtures::multi_cluster_zookeeper;
use mczk_api::{
    contract::{
        labels::OPERATOR_FINALIZER,
        naming::{self, Naming},
        preflight,
    },
    karmada::DELETION_PROTECTION,
    preflight::ServerName,
    zookeeper::Role,
};
use mczk_rules::rollout::{
    override_rules,
    plan::{ObjectWrite, Plan as Planned},
};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A new object without encryption, in a federation of three clusters.
pub(crate) fn observed(more: &Value) -> Observed {
    let cluster = |name: &str| {
        let kinds = [("mczk.io/v1alpha1", "ZooKeeper"), ("multicluster.x-k8s.io/v1alpha1", "ServiceExport")];
        let serves = kinds
            .map(|(version, kind)| json!({ "groupVersion": version, "resources": [{ "name": "x", "kind": kind }] }));
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "apiEnablements": serves },
        }))
        .unwrap()
    };
    let mut object: Value = multi_cluster_zookeeper(json!({
        "metadata": { "generation": 1, "finalizers": [OPERATOR_FINALIZER] }, "spec": { "tls": { "quorum": false } },
    }));
    json_patch::merge(&mut object, more);
    Observed {
        object: serde_json::from_value(object).unwrap(),
        template: None,
        policy: None,
        overrides: None,
        services: BTreeMap::new(),
        binding: None,
        spares: None,
        works: Vec::new(),
        clusters: ["m1", "m2", "m3"].map(cluster).into(),
        certificates: Vec::new(),
        tombstones: BTreeSet::new(),
        server_image: "mczk:1".to_owned(),
        asked: None,
        term: None,
        failure: None,
    }
}

/// What follows once the operator has written a plan, and Karmada has scheduled.
pub(crate) fn written(mut observed: Observed, plan: Planned) -> Observed {
    observed.object.status = Some(plan.status);
    if let ObjectWrite::Apply(overrides) = plan.overrides {
        observed.overrides = Some(overrides.into());
    }
    if let ObjectWrite::Apply(policy) = plan.policy {
        let clusters = ["m1", "m2", "m3"].map(|name| json!({ "name": name, "replicas": 1 }));
        observed.binding = serde_json::from_value(json!({
            "metadata": {
                "name": "zk-zookeeper", "generation": 1, "labels": { DELETION_PROTECTION: "Always" },
                "annotations": { "propagationpolicy.karmada.io/name": policy.metadata.name },
            },
            "spec": {
                "resource": { "kind": "ZooKeeper", "name": "zk", "uid": "t" }, "replicas": 3, "replicaRequirements": {},
                "clusters": clusters, "placement": policy.spec.placement,
            },
            "status": { "schedulerObservedGeneration": 1, "lastScheduledTime": "2026-01-01T00:00:00Z" },
        }))
        .unwrap();
        observed.policy = Some(policy.into());
    }
    if let ObjectWrite::Apply(mut template) = plan.template {
        (template.metadata.uid, template.metadata.generation) = (Some("t".to_owned()), Some(1));
        observed.template = Some(template.into());
    }
    for (key, write) in plan.services {
        if let ObjectWrite::Apply(value) = write {
            observed.services.insert(key, value);
        }
    }
    observed
}

/// The report of a passed network check.
fn passed() -> Value {
    let id = naming::incarnation("u", 0);
    let naming = Naming { name: "zk", namespace: "n", incarnation: &id, names: None };
    let name = |cluster: &str| ServerName {
        cluster: cluster.to_owned(),
        host: naming.host(cluster, Role::Voter, 0),
        ordinal: None,
    };
    let request = preflight::request(&id, ["m1", "m2", "m3"].map(name).into(), None).unwrap();
    json!({ "round": request.round })
}

/// Every cluster with a cluster spec reports it as complete; the others have the object without servers.
pub(crate) fn reported(mut observed: Observed) -> Observed {
    let content = observed.overrides.as_ref().map(|policy| override_rules::read(&policy.spec)).unwrap_or_default();
    let list = &content.ensemble;
    let voters: Vec<i32> = list.servers.iter().map(|server| server.id).collect();
    let item = |name: &str| {
        let own = list.servers.iter().filter(|server| server.cluster == name);
        let servers: Vec<Value> = own
            .map(|server| json!({ "id": server.id, "pod": format!("p-{}", server.ordinal), "serving": true, "synced": true, "mode": "follower", "acceptedEpoch": 1 }))
            .collect();
        let status = match content.cluster_specs.get(name) {
            None => json!({ "preflight": passed(), "otherIncarnations": [] }),
            Some(spec) => json!({
                "observedSpecHash": spec.spec_hash, "completedSpecHash": spec.spec_hash, "ensemble": list,
                "publishedEpoch": list.epoch, "replicas": servers.len(), "startedReplicas": servers.len(),
                "readyReplicas": servers.len(), "servers": servers, "votingMembers": voters, "configVersion": 1,
                "leader": 1, "writable": true, "otherIncarnations": [],
            }),
        };
        serde_json::from_value(json!({ "clusterName": name, "applied": true, "status": status })).unwrap()
    };
    if let Some(binding) = &mut observed.binding {
        binding.status.aggregated_status = ["m1", "m2", "m3"].map(item).into();
    }
    observed
}

/// An ensemble after some plans, each with the reports that follow.
pub(crate) fn after(passes: usize) -> Observed {
    (0..passes).fold(observed(&json!({})), |observed, _| {
        let next = plan(&observed, now());
        reported(written(observed, next))
    })
}

/// An ensemble whose first record is rolled out.
pub(crate) fn running() -> Observed {
    let observed = after(8);
    let status = observed.object.status.as_ref().unwrap();
    assert_eq!(status.rollout.as_deref(), Some("Ready"), "{status:#?}");
    observed
}

fn text_of(observed: &Observed) -> (String, bool) {
    let view = view(observed, &plan(observed, now())).unwrap();
    (text(&view, false), view.is_open())
}

#[test]
fn first_the_finalizer_alone() {
    let (text, is_open) = text_of(&observed(&json!({ "metadata": { "finalizers": null } })));
    assert!(is_open);
    insta::assert_snapshot!(text, @r#"
    n/zk, generation 1: the operator would write, in this order:

    update MultiClusterZooKeeper zk
      ~ metadata.finalizers: [] -> ["mczk.io/operator"]

    Nothing waits.
    "#);
}

#[test]
fn then_every_object() {
    let view = view(&after(0), &plan(&after(0), now())).unwrap();
    let writes: Vec<String> =
        view.writes.iter().map(|write| format!("{:?} {} {}", write.verb, write.kind, write.name)).collect();
    insta::assert_snapshot!(writes.join("\n"), @r"
    Create OverridePolicy mczk-zk
    Create PropagationPolicy mczk-zk
    Create ZooKeeper zk
    ");
}

#[test]
#[allow(clippy::too_many_lines, reason = "most of it is what the command prints")]
fn then_a_cluster_starts() {
    let text = text_of(&after(1)).0;
    // Hashes change with every version of the rendering. The lines of one cluster suffice.
    let left_out = [
        "ash",
        "revision",
        "serverImage",
        "renderVersion",
        "clusters[m",
        "servers[2]",
        "servers[3]",
        "ownerReferences",
    ];
    let is_stable = |line: &&str| !left_out.iter().any(|word| line.contains(word));
    insta::assert_snapshot!(text.lines().filter(is_stable).collect::<Vec<_>>().join("\n"), @r#"
    n/zk, generation 1: the operator would write, in this order:

    update the status of MultiClusterZooKeeper zk
      ~ conditions[Degraded].message: "No ensemble exists yet" -> "The first quorum has not formed yet"
      ~ conditions[Degraded].reason: "NoEnsemble" -> "Bootstrapping"
      ~ conditions[Progressing].message: "Waiting for a schedule: The operator writes the template and its policy" -> "Cluster m1: waiting for the agent to observe the new spec"
      ~ conditions[Progressing].reason: "WaitingForSchedule" -> "Deploying"
      ~ conditions[Progressing].status: "False" -> "True"
      ~ conditions[QuorumSafe].message: "No ensemble exists yet" -> "With the voters that serve now, the loss of cluster m1 would lose the quorum"
      ~ conditions[QuorumSafe].reason: "NoEnsemble" -> "VotersDown"
      ~ conditions[QuorumSafe].status: "Unknown" -> "False"
      ~ conditions[Ready].message: "The rollout starts" -> "Deploying m1 (0/3)"
      ~ conditions[Scheduled].message: "The operator writes the template and its policy" -> "Voters by cluster: m1 1, m2 1, m3 1"
      ~ conditions[Scheduled].reason: "Rescheduling" -> "Placed"
      ~ conditions[Scheduled].status: "False" -> "True"
      + ensemble.endpoints: ["zk-620b78-0.m1.zk-620b78.n.svc.clusterset.local:2181","zk-620b78-0.m2.zk-620b78.n.svc.clusterset.local:2181","zk-620b7...
      + ensemble.epoch: 1
      + ensemble.formed: false
      + ensemble.highestId: 3
      + ensemble.incarnation: "620b78"
      + records[0].currentState.completed: []
      + records[0].currentState.deploying: ["m1"]
      + records[0].currentState.pending: ["m2","m3"]
      + records[0].observedGenerations.multiclusterzookeeper: 1
      + records[0].observedGenerations.zookeeper: 1
      + records[0].order: ["m1","m2","m3"]
      + records[0].status: "Deploying"
      + rollout: "Deploying m1 (0/3)"

    update OverridePolicy mczk-zk
      + spec.clusterSpecs.m1.cluster: "m1"
      + spec.clusterSpecs.m1.ensemble: {}
      + spec.clusterSpecs.m1.replicas: 1
      + spec.clusterSpecs.m1.template.image: "zookeeper:3.9.4"
      + spec.clusterSpecs.m1.template.storage.size: "1Gi"
      + spec.clusterSpecs.m1.tls.quorum: false
      + spec.ensemble.epoch: 1
      + spec.ensemble.highestId: 3
      + spec.ensemble.incarnation: "620b78"
      + spec.ensemble.phase: "Bootstrapping"
      + spec.ensemble.servers[1].cluster: "m1"
      + spec.ensemble.servers[1].host: "zk-620b78-0.m1.zk-620b78.n.svc.clusterset.local"
      + spec.ensemble.servers[1].id: 1
      + spec.ensemble.servers[1].ordinal: 0
      + spec.ensemble.servers[1].role: "voter"
      ~ spec.owned: [] -> ["m1","m2","m3"]

    create OverridePolicy mczk-zk.exports
      + apiVersion: "policy.karmada.io/v1alpha1"
      + kind: "OverridePolicy"
      + metadata.annotations: {}
      + metadata.labels[mczk.io/ensemble]: "zk"
      + metadata.name: "mczk-zk.exports"
      + metadata.namespace: "n"
      + spec.clusterSpecs: {}
      + spec.ensemble: {}
      + spec.lost: []
      + spec.owned: ["m1","m2","m3"]

    create ServiceExport zk
      + apiVersion: "multicluster.x-k8s.io/v1alpha1"
      + kind: "ServiceExport"
      + metadata.annotations[work.karmada.io/conflict-resolution]: "abort"
      + metadata.labels[mczk.io/ensemble]: "zk"
      + metadata.labels[resourcetemplate.karmada.io/deletion-protected]: "Always"
      + metadata.name: "zk"
      + metadata.namespace: "n"

    create ServiceExport zk-620b78
      + apiVersion: "multicluster.x-k8s.io/v1alpha1"
      + kind: "ServiceExport"
      + metadata.annotations[work.karmada.io/conflict-resolution]: "abort"
      + metadata.labels[mczk.io/ensemble]: "zk"
      + metadata.labels[resourcetemplate.karmada.io/deletion-protected]: "Always"
      + metadata.name: "zk-620b78"
      + metadata.namespace: "n"

    publish events
      RolloutStarted: Rolling out generation 1 over m1, m2, m3
      ClusterDeploying: Cluster m1 starts

    After that:
    ensemble  Progressing=True Deploying   Cluster m1: waiting for the agent to observe the new spec
                                           -> Wait. If it lasts, check the agent and the pods of the cluster that the message names
    ensemble  QuorumSafe=False VotersDown  With the voters that serve now, the loss of cluster m1 would lose the quorum
                                           -> Check the servers named, and restore them. `status.clusters` shows their clusters

    The operator's steps:
    apply             done
    namespace         done
    names             done
    selection         done
    authority         done
    certificates      done
    template          done
    failover          done
    bootstrap         done
    schedule          done
    recovery          done
    observers         done
    server ids        done
    lost server list  done
    incarnation       done
    network           done
    server list       done
    clusters          waits  Deploying  Cluster m1: waiting for the agent to observe the new spec
    size              done
    record            waits  Deploying  Deploying m1 (0/3)

    Without a change the operator decides again in 600 s.
    "#);
}

#[test]
fn the_rollout_waits_for_an_agent() {
    let observed = after(1);
    let reports = observed.binding.clone();
    let next = plan(&observed, now());
    let observed = Observed { binding: reports, ..written(observed, next) };
    let (text, is_open) = text_of(&observed);
    assert!(is_open);
    insta::assert_snapshot!(text, @r"
    n/zk, generation 1: the operator would write nothing.

    After that:
    ensemble  Progressing=True Deploying   Cluster m1: waiting for the agent to observe the new spec
                                           -> Wait. If it lasts, check the agent and the pods of the cluster that the message names
    ensemble  QuorumSafe=False VotersDown  With the voters that serve now, the loss of cluster m1 would lose the quorum
                                           -> Check the servers named, and restore them. `status.clusters` shows their clusters

    The operator's steps:
    apply         done
    namespace     done
    names         done
    incarnation   done
    selection     done
    authority     done
    certificates  done
    template      done
    failover      done
    bootstrap     done
    schedule      done
    recovery      done
    observers     done
    server ids    done
    server list   done
    clusters      waits  Deploying  Cluster m1: waiting for the agent to observe the new spec
    size          done
    record        waits  Deploying  Deploying m1 (0/3)

    Without a change the operator decides again in 600 s.
    ");
}

#[test]
fn a_lost_work_is_named() {
    let observed = running();
    let next = plan(&observed, now());
    let (text, _) = text_of(&written(observed, next));
    assert!(text.contains("~ spec.lost: [] -> [\"m1\",\"m2\",\"m3\"]"), "{text}");
}

#[test]
fn in_the_end_nothing_is_left() {
    let (text, is_open) = text_of(&running());
    assert!(!is_open, "{text}");
    insta::assert_snapshot!(text, @r"
    n/zk, generation 1: the operator would write nothing.

    Nothing waits.

    The operator's steps:
    apply         done
    namespace     done
    names         done
    incarnation   done
    selection     done
    authority     done
    certificates  done
    template      done
    failover      done
    bootstrap     done
    schedule      done
    recovery      done
    observers     done
    server ids    done
    server list   done
    clusters      done
    size          done
    record        done
    ");
}

#[test]
fn an_edited_object_is_restored() {
    let mut observed = running();
    let mut policy = serde_json::to_value(observed.policy.as_deref().unwrap()).unwrap();
    policy["spec"]["placement"]["clusterAffinity"]["exclude"] = json!(["m1"]);
    observed.policy = serde_json::from_value(policy).unwrap();
    let (text, _) = text_of(&observed);
    assert!(text.contains("- spec.placement.clusterAffinity.exclude: [\"m1\"]"), "{text}");
}
