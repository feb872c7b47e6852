#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use kube::api::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::multi_cluster_zookeeper;
use mczk_api::karmada::{cluster::Cluster, resource_binding::ResourceBinding};
use mczk_rules::view::status as view;

const PLAIN: Style = Style { wide: false, namespaces: false, coloured: false };

fn condition(type_: &str, status: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// Three clusters: the rollout changes m2, and m3 is not Ready in Karmada.
fn object() -> DynamicObject {
    let cluster = |name: &str, voters: &[i32], serving: usize, ready: bool, message: Option<&str>| {
        json!({
            "name": name, "desired": voters.len(), "started": voters.len(), "serving": serving, "revision": "5f2c",
            "voters": voters, "ready": ready, "message": message,
        })
    };
    let mut observer = cluster("m2", &[3, 4], 1, false, Some("Server 4 has not started"));
    observer["observers"] = json!([6]);
    multi_cluster_zookeeper(json!({
        "metadata": { "name": "orders", "generation": 4, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "replicas": 5 },
        "status": {
            "observedGeneration": 4, "rollout": "Deploying m2 (1/3)", "readyReplicas": 3,
            "conditions": [
                condition("Ready", "False", "Deploying m2 (1/3)"),
                condition("Progressing", "True", "Cluster m2: server 4 has not started"),
                condition("QuorumSafe", "True", ""),
            ],
            "records": [{
                "observedGenerations": { "multiclusterzookeeper": 4, "zookeeper": 2 }, "order": ["m1", "m2", "m3"],
                "status": "Deploying", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "currentState": { "pending": ["m3"], "deploying": ["m2"], "completed": ["m1"] },
            }],
            "ensemble": { "incarnation": "abc123", "epoch": 3, "formed": true, "leader": { "id": 1, "cluster": "m1" } },
            "clusters": [
                cluster("m1", &[1, 2], 2, true, None),
                observer,
                cluster("m3", &[5], 0, false, Some("Waiting for earlier clusters in the rollout")),
            ],
        },
    }))
}

fn binding() -> ResourceBinding {
    let server = |id: i32, mode: &str| json!({ "id": id, "mode": mode, "serving": true, "synced": true, "pod": format!("p-{id}"), "version": "3.9.4" });
    serde_json::from_value(json!({ "status": { "aggregatedStatus": [
        { "clusterName": "m1", "applied": true, "status": { "servers": [server(1, "leader"), server(2, "follower")] } },
        { "clusterName": "m2", "applied": true, "status": { "servers": [
            server(3, "follower"), { "id": 6, "mode": "observer", "serving": true }, { "id": 7, "lost": true },
        ] } },
        { "clusterName": "m3", "status": { "servers": "of another version" } },
    ] } }))
    .unwrap()
}

fn known() -> Vec<Cluster> {
    let cluster = |name: &str, ready: &str| {
        serde_json::from_value(
            json!({ "metadata": { "name": name }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } }),
        )
        .unwrap()
    };
    vec![cluster("m1", "True"), cluster("m2", "True"), cluster("m3", "Unknown")]
}

fn whole() -> EnsembleView {
    let mut ensemble = view::ensemble(&object());
    ensemble.clusters = view::clusters(&object(), Some(&binding()), Some(&known()));
    ensemble
}

#[test]
fn a_tree_of_clusters_and_servers() {
    insta::assert_snapshot!(tree(&whole(), PLAIN), @r"
    NAME              READY    SERVING  STATE               MESSAGE
    n/orders          False    3/5      Deploying m2 (1/3)  Cluster m2: server 4 has not started
    ├─ m1             True     2/2      completed
    │  ├─ voter 1     True     1/1      leader
    │  └─ voter 2     True     1/1      follower
    ├─ m2             False    1/2      deploying           Server 4 has not started
    │  ├─ voter 3     True     1/1      follower
    │  ├─ voter 4     Unknown  -        -                   The agent does not report this server
    │  ├─ observer 6  True     1/1      observer            Not in sync with the leader
    │  └─ leaving 7   False    0/1      -                   The volume of this server is lost or an old copy
    └─ m3             False    0/1      unreachable         Waiting for earlier clusters in the rollout
       └─ voter 5     Unknown  -        -                   The agent does not report this server
    ");
}

#[test]
fn a_wide_tree() {
    insta::assert_snapshot!(tree(&whole(), Style { wide: true, ..PLAIN }), @r"
    NAME              READY    SERVING  STATE               POD  VERSION          VOLUME  REVISION  MESSAGE
    n/orders          False    3/5      Deploying m2 (1/3)  -    zookeeper:3.9.4  -       abc123    Cluster m2: server 4 has not started
    ├─ m1             True     2/2      completed           -    -                -       5f2c
    │  ├─ voter 1     True     1/1      leader              p-1  3.9.4            -       -
    │  └─ voter 2     True     1/1      follower            p-2  3.9.4            -       -
    ├─ m2             False    1/2      deploying           -    -                -       5f2c      Server 4 has not started
    │  ├─ voter 3     True     1/1      follower            p-3  3.9.4            -       -
    │  ├─ voter 4     Unknown  -        -                   -    -                -       -         The agent does not report this server
    │  ├─ observer 6  True     1/1      observer            -    -                -       -         Not in sync with the leader
    │  └─ leaving 7   False    0/1      -                   -    -                -       -         The volume of this server is lost or an old copy
    └─ m3             False    0/1      unreachable         -    -                -       5f2c      Waiting for earlier clusters in the rollout
       └─ voter 5     Unknown  -        -                   -    -                -       -         The agent does not report this server
    ");
}

#[test]
fn without_reports_and_rights_the_tree_has_the_status_alone() {
    let mut ensemble = view::ensemble(&object());
    ensemble.clusters = view::clusters(&object(), None, None);
    insta::assert_snapshot!(tree(&ensemble, PLAIN), @r"
    NAME              READY    SERVING  STATE               MESSAGE
    n/orders          False    3/5      Deploying m2 (1/3)  Cluster m2: server 4 has not started
    ├─ m1             True     2/2      completed
    │  ├─ voter 1     Unknown  -        -                   The agent does not report this server
    │  └─ voter 2     Unknown  -        -                   The agent does not report this server
    ├─ m2             False    1/2      deploying           Server 4 has not started
    │  ├─ voter 3     Unknown  -        -                   The agent does not report this server
    │  ├─ voter 4     Unknown  -        -                   The agent does not report this server
    │  └─ observer 6  Unknown  -        -                   The agent does not report this server
    └─ m3             False    0/1      pending             Waiting for earlier clusters in the rollout
       └─ voter 5     Unknown  -        -                   The agent does not report this server
    ");
}

#[test]
fn tables_of_ensembles() {
    let new: DynamicObject =
        multi_cluster_zookeeper(json!({ "metadata": { "name": "new", "namespace": "other", "generation": 1 } }));
    let invalid: DynamicObject =
        multi_cluster_zookeeper(json!({ "metadata": { "name": "x" }, "spec": { "replicas": "three" } }));
    let all = [object(), new, invalid].map(|object| view::ensemble(&object));
    let now: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
    insta::assert_snapshot!(list(&all, Style { namespaces: true, ..PLAIN }, now), @r"
    NAMESPACE  NAME    READY    SERVING  ROLLOUT             AGE
    n          orders  False    3/5      Deploying m2 (1/3)  2d
    other      new     Unknown  0/3      -                   -
    n          x       Unknown  0/0      -                   -
    ");
    insta::assert_snapshot!(list(&all, Style { wide: true, ..PLAIN }, now), @r#"
    NAME    READY    SERVING  ROLLOUT             AGE  QUORUM SAFE  LEADER  IMAGE            MESSAGE
    orders  False    3/5      Deploying m2 (1/3)  2d   True         m1      zookeeper:3.9.4  Cluster m2: server 4 has not started
    new     Unknown  0/3      -                   -    Unknown      -       zookeeper:3.9.4  -
    x       Unknown  0/0      -                   -    Unknown      -       -                This version of mczk cannot parse the object: invalid type: string "three", expected i32
    "#);
    assert_eq!(all.map(|ensemble| ensemble.is_ready()), [false; 3]);
}

#[test]
fn the_view_as_yaml() {
    let mut ensemble = whole();
    ensemble.clusters.truncate(1);
    insta::assert_yaml_snapshot!(ensemble, @r#"
    namespace: n
    name: orders
    replicas: 5
    voters: 5
    votes: 5
    serving: 3
    rollout: Deploying m2 (1/3)
    conditions:
      Progressing: "True"
      QuorumSafe: "True"
      Ready: "False"
    message: "Cluster m2: server 4 has not started"
    image: "zookeeper:3.9.4"
    leader: m1
    incarnation: abc123
    created: "2026-01-01T00:00:00Z"
    current: true
    clusters:
      - name: m1
        reachable: true
        ready: true
        position: completed
        desired: 2
        serving: 2
        revision: 5f2c
        servers:
          - id: 1
            role: voter
            state: leader
            report:
              id: 1
              pod: p-1
              mode: leader
              version: 3.9.4
              serving: true
              synced: true
              lost: false
          - id: 2
            role: voter
            state: follower
            report:
              id: 2
              pod: p-2
              mode: follower
              version: 3.9.4
              serving: true
              synced: true
              lost: false
    "#);
}

#[test]
fn a_status_of_an_older_generation_is_not_ready() {
    let with = |generation: i64| {
        let ready = json!({ "observedGeneration": 3, "conditions": [condition("Ready", "True", "")] });
        view::ensemble(&multi_cluster_zookeeper(json!({ "metadata": { "generation": generation }, "status": ready })))
    };
    assert!(with(3).is_ready());
    assert!(!with(4).is_ready());
}

#[rstest]
#[case(0, "0s")]
#[case(119, "119s")]
#[case(120, "2m")]
#[case(7200, "2h")]
#[case(200_000, "2d")]
fn ages(#[case] seconds: i64, #[case] expected: &str) {
    let created: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let now = Timestamp::from_second(created.as_second() + seconds).unwrap();
    assert_eq!(age(Some(created), now), expected);
}

#[rstest]
#[case::moved("m1", Some(true), &[], "moved to m4")]
#[case::lost("m1", Some(false), &[], "unreachable, moved to m4")]
#[case::on_the_way("m1", None, &[1], "moves to m4")]
#[case::at_home("m2", Some(true), &[2], "-")]
fn a_home_says_where_its_voters_are(
    #[case] name: &str,
    #[case] reachable: Option<bool>,
    #[case] voters: &[i32],
    #[case] expected: &str,
) {
    let moved = (name == "m1").then_some("m4");
    let object = multi_cluster_zookeeper(json!({
        "status": { "clusters": [{ "name": name, "movedTo": moved, "voters": voters }] },
    }));
    let mut clusters = view::clusters(&object, None, None);
    clusters[0].reachable = reachable;
    let cell = cluster_state(&clusters[0]);
    assert!([Tone::Plain, Tone::Unsure, Tone::Bad].map(|tone| Cell::new(expected, tone)).contains(&cell), "{cell:?}");
}
