//! Objects of a control plane: what the operator and the agents would have written.

use serde_json::{Value, json};

const TIME: &str = "2026-01-02T03:04:05Z";

/// A text of a user or a cluster that would be markup.
pub const MARKUP: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

/// A definition that accepts everything, for a kind of Karmada.
pub fn definition(group: &str, version: &str, kind: &str, scope: &str) -> Value {
    let singular = kind.to_lowercase();
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{singular}s.{group}") },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// A member cluster that Karmada reaches, or not.
pub fn cluster(name: &str, reachable: bool) -> Value {
    let ready = if reachable { "True" } else { "False" };
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

/// An ensemble as a user declares it.
pub fn ensemble(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper", "metadata": { "name": name },
        "spec": { "replicas": replicas, "template": { "image": "zookeeper:3.9.4", "storage": { "size": "10Gi" } } },
    })
}

/// Voters of each cluster, by name.
type Voters<'a> = [(&'a str, &'a [i32])];

/// A rollout over `clusters`. It has completed the first `completed`, and changes the next one. `off` does not serve.
pub fn status(clusters: &Voters, completed: usize, off: Option<i32>, message: &str) -> Value {
    let names: Vec<&str> = clusters.iter().map(|(name, _)| *name).collect();
    let all = names.len();
    let done = completed == all;
    let rollout = if done { "Ready".to_owned() } else { format!("Deploying {} ({completed}/{all})", names[completed]) };
    let serving = |ids: &[i32]| ids.iter().filter(|id| Some(**id) != off).count();
    let truth = |value: bool| if value { "True" } else { "False" };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": TIME });
    let progressing = if done { "Done" } else { "Deploying" };
    let (degraded, safe) = if off.is_some() { ("VotersDown", "VotersDown") } else { ("Healthy", "Spread") };
    let down = off.map(|id| format!("Server {id} does not serve")).unwrap_or_default();
    json!({
        "observedGeneration": 1,
        "rollout": rollout,
        "readyReplicas": clusters.iter().map(|(_, ids)| serving(ids)).sum::<usize>(),
        "conditions": [
            condition("Ready", truth(done), if done { "Serving" } else { "RollingOut" }, &rollout),
            condition("Progressing", truth(!done), progressing, message),
            condition("Degraded", truth(off.is_some()), degraded, &down),
            condition("QuorumSafe", truth(off.is_none()), safe, &down),
            condition("Paused", "False", "NotPaused", ""),
        ],
        "records": [{
            "observedGenerations": { "multiclusterzookeeper": 1, "zookeeper": 1 },
            "order": names,
            "status": if done { "Ready" } else { "Deploying" },
            "currentState": {
                "completed": names[..completed],
                "deploying": names[completed..(completed + 1).min(all)],
                "pending": names[(completed + 1).min(all)..],
            },
            "lastTransitionTime": TIME,
        }],
        "clusters": clusters.iter().enumerate().map(|(at, (name, ids))| json!({
            "name": name, "desired": ids.len(), "started": ids.len(), "serving": serving(ids), "voters": ids,
            "ready": at < completed,
        })).collect::<Vec<_>>(),
        "ensemble": { "incarnation": "abcde", "epoch": 1, "formed": true, "leader": { "id": 1, "cluster": names[0] } },
    })
}

/// Changes of a status: the voters of a lost home are at a spare.
pub fn moved(home: &str, spare: &str) -> Value {
    let message = format!("The voters of {home} are in {spare}");
    json!([
        { "op": "add", "path": "/status/clusters/-", "value": { "name": home, "voters": [], "movedTo": spare, "movedSince": TIME } },
        { "op": "add", "path": "/status/conditions/-", "value": {
            "type": "FailedOver", "status": "True", "reason": "Moved", "message": message, "lastTransitionTime": TIME,
        } },
    ])
}

/// The reports of the agents: server 1 leads.
pub fn binding(name: &str, clusters: &Voters, off: Option<i32>) -> Value {
    let server = |id: i32| {
        let serving = Some(id) != off;
        let mode = if id == 1 { "leader" } else { "follower" };
        let mut server = json!({ "id": id, "version": "3.9.4", "serving": serving, "synced": serving });
        if serving {
            server["mode"] = json!(mode);
        }
        server
    };
    let item = |(cluster, ids): &(&str, &[i32])| {
        let servers: Vec<Value> = ids.iter().map(|id| server(*id)).collect();
        json!({ "clusterName": cluster, "applied": true, "status": { "servers": servers } })
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": { "name": format!("{name}-zookeeper") },
        "status": { "aggregatedStatus": clusters.iter().map(item).collect::<Vec<_>>() },
    })
}
