use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use rstest::rstest;
use serde_json::json;

use super::*;

fn object(ready: bool) -> Object {
    Object { uid: "u".to_owned(), incarnation: Some("abc123".to_owned()), terminating: false, ready }
}

fn pod(ordinal: usize) -> String {
    format!("zk-abc123-{ordinal}")
}

/// An ensemble with one voter in each cluster `m1`, `m2` and so on. All serve.
fn seen(voters: i32) -> Seen {
    let clusters: Vec<_> =
        (1..=voters).map(|id| json!({ "name": format!("m{id}"), "voters": [id], "ready": true })).collect();
    let status = json!({
        "ensemble": { "incarnation": "abc123", "epoch": 1, "formed": true, "voters": (1..=voters).collect::<Vec<_>>() },
        "clusters": clusters,
    });
    let cluster = |id: i32| {
        let mode = if id == 1 { "leader" } else { "follower" };
        let report = json!({ "id": id, "pod": pod(0), "mode": mode, "serving": true, "synced": true });
        ClusterObjects {
            reports: vec![serde_json::from_value(report).unwrap()],
            conditions: Vec::new(),
            pods: [(pod(0), object(true))].into(),
            claims: [(format!("data-{}", pod(0)), object(false))].into(),
        }
    };
    Seen {
        namespace: "n".to_owned(),
        name: "zk".to_owned(),
        terminating: false,
        current: true,
        status: serde_json::from_value(status).unwrap(),
        clusters: (1..=voters).map(|id| (format!("m{id}"), Ok(cluster(id)))).collect(),
    }
}

impl Seen {
    fn cluster(&mut self, id: i32) -> &mut ClusterObjects {
        self.clusters.get_mut(&format!("m{id}")).unwrap().as_mut().unwrap()
    }

    /// A voter that does not serve.
    fn stopped(mut self, id: i32) -> Self {
        let cluster = self.cluster(id);
        cluster.reports[0].serving = false;
        cluster.reports[0].mode = None;
        cluster.pods.get_mut(&pod(0)).unwrap().ready = false;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn replace(seen: &Seen, id: i32) -> Result<Replacement, Refusal> {
    decide(seen, &ServerName::Id(id))
}

#[test]
fn claim_and_pod_are_deleted_by_uid() {
    let replacement = replace(&seen(3).stopped(2), 2).unwrap();
    assert_eq!(replacement.server.cluster, "m2");
    assert_eq!(replacement.claim, Some(("data-zk-abc123-0".to_owned(), "u".to_owned())));
    assert_eq!(replacement.pod, Some(("zk-abc123-0".to_owned(), "u".to_owned())));
    assert_eq!((replacement.serving, replacement.needed), (2, 2));
}

#[test]
fn a_second_run_finishes_what_the_first_began() {
    let claim = format!("data-{}", pod(0));
    let begun = seen(3).stopped(2).with(|seen| seen.cluster(2).claims.get_mut(&claim).unwrap().terminating = true);
    let replacement = replace(&begun, 2).unwrap();
    assert_eq!((replacement.claim.is_some(), replacement.pod.is_some()), (false, true));
    let gone = seen(3).stopped(2).with(|seen| seen.cluster(2).pods.clear());
    assert!(replace(&gone, 2).unwrap().pod.is_none());
}

/// Every subset of voters of every size: a volume goes only if a majority serves without it.
#[test]
fn a_majority_always_remains() {
    for voters in 1..=5_i32 {
        for down in 0..(1_u32 << voters) {
            let is_down = |id: &i32| down & (1_u32 << (id - 1)) != 0;
            let seen = (1..=voters).filter(is_down).fold(seen(voters), Seen::stopped);
            for id in 1..=voters {
                let others = (1..=voters).filter(|other| *other != id && !is_down(other)).count();
                let enough = others >= majority(usize::try_from(voters).unwrap());
                // A server that serves stops only while all others serve.
                let expected = enough && (is_down(&id) || down == 0);
                assert_eq!(replace(&seen, id).is_ok(), expected, "{voters} voters, down {down:b}, server {id}");
            }
        }
    }
}

#[rstest]
#[case::deleted(seen(3).with(|seen| seen.terminating = true), "being deleted")]
#[case::old_status(seen(3).with(|seen| seen.current = false), "newest generation")]
#[case::not_formed(seen(3).with(|seen| seen.status.ensemble.as_mut().unwrap().formed = false), "no quorum has formed")]
#[case::cluster_of_the_server(seen(3).with(|seen| drop(seen.clusters.insert("m2".to_owned(), Err("timeout".to_owned())))), "cluster m2 cannot be read: timeout")]
#[case::cluster_of_another(seen(3).with(|seen| drop(seen.clusters.insert("m3".to_owned(), Err("timeout".to_owned())))), "cluster m3 count as lost: timeout")]
#[case::another_is_lost(seen(5).stopped(3).with(|seen| seen.cluster(3).reports[0].lost = true), "server 3 in cluster m3")]
#[case::another_claim_goes(seen(5).with(|seen| seen.cluster(3).claims.get_mut("data-zk-abc123-0").unwrap().terminating = true), "server 3 in cluster m3")]
#[case::report_of_a_dead_agent(seen(3).with(|seen| seen.cluster(3).pods.clear()), "only 1 of 3 voters")]
#[case::not_synced(seen(3).with(|seen| seen.cluster(3).reports[0].synced = false), "only 1 of 3 voters")]
#[case::voters_about_to_join(seen(3).with(|seen| seen.status.clusters[2].voters.extend([4, 5])), "voters of the server list")]
#[case::foreign_claim(seen(3).with(|seen| seen.cluster(2).claims.get_mut("data-zk-abc123-0").unwrap().incarnation = None), "running incarnation")]
#[case::foreign_pod(seen(3).with(|seen| seen.cluster(2).pods.get_mut("zk-abc123-0").unwrap().incarnation = None), "running incarnation")]
#[case::other_pod(seen(3).with(|seen| seen.cluster(2).reports[0].pod = Some("zk-abc123-1".to_owned())), "in the pod zk-abc123-1")]
#[case::nothing_left(seen(3).stopped(2).with(|seen| { seen.cluster(2).pods.clear(); seen.cluster(2).claims.clear(); }), "neither")]
#[case::rollout(seen(3).with(|seen| seen.status.records = vec![serde_json::from_value(json!({
    "observedGenerations": { "multiclusterzookeeper": 1, "zookeeper": 1 }, "order": [], "status": "Deploying",
    "currentState": {}, "lastTransitionTime": "2026-01-01T00:00:00Z",
})).unwrap()]), "a rollout may restart")]
fn refused(#[case] seen: Seen, #[case] why: &str) {
    let refusal = replace(&seen, 2).unwrap_err();
    assert!(refusal.why.contains(why), "{refusal:?}");
}

fn condition(type_: &str, reason: &str, message: &str) -> Condition {
    let condition = json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    serde_json::from_value(condition).unwrap()
}

/// A majority serves without the server in each of these cases. Server 2 does not serve, or it does.
#[rstest]
#[case::claim_is_absent(seen(5).stopped(2).with(|seen| seen.cluster(3).claims.clear()), "server 3 in cluster m3 has no volume")]
#[case::claim_of_another_incarnation(
    seen(5).stopped(2).with(|seen| seen.cluster(3).claims.get_mut("data-zk-abc123-0").unwrap().incarnation = None),
    "the volume of server 3 in cluster m3 is unconfirmed"
)]
#[case::cluster_unread(
    seen(5).stopped(2).with(|seen| drop(seen.clusters.insert("m3".to_owned(), Err("timeout".to_owned())))),
    "the volume of server 3 in cluster m3 is unconfirmed: timeout"
)]
#[case::pod_restarts(
    seen(5).stopped(2).with(|seen| seen.cluster(3).pods.get_mut("zk-abc123-0").unwrap().terminating = true),
    "the pod of server 3 in cluster m3 is being restarted"
)]
#[case::pod_is_absent(seen(5).stopped(2).with(|seen| seen.cluster(3).pods.clear()), "the pod of server 3 in cluster m3")]
#[case::agent_holds_the_restart_lock(
    seen(5).with(|seen| seen.cluster(3).conditions.push(condition("Progressing", "Restarting", "zk-abc123-0 is being restarted"))),
    "the agent of cluster m3 restarts a server: zk-abc123-0 is being restarted"
)]
#[case::agent_drains(
    seen(5).with(|seen| seen.cluster(3).conditions.push(condition("Draining", "NodeDrained", "zk-abc123-0 has to leave node n"))),
    "the agent of cluster m3 restarts a server: zk-abc123-0 has to leave node n"
)]
fn another_server_is_on_its_way(#[case] seen: Seen, #[case] why: &str) {
    let refusal = replace(&seen, 2).unwrap_err();
    assert!(refusal.why.contains(why), "{refusal:?}");
}

/// The restart of the server itself, and a drain that waits for it, must not keep it from its new volume.
#[rstest]
#[case::itself(2, condition("Progressing", "Restarting", "zk-abc123-0 is being restarted"))]
#[case::drain_that_waits(3, condition("Draining", "NodeDrained", "zk-abc123-0 has to leave node n"))]
#[case::waits(3, condition("Progressing", "Waiting", "m2 holds the restart lock, for server 2"))]
fn what_waits_for_the_server_is_no_obstacle(#[case] cluster: i32, #[case] condition: Condition) {
    let seen = seen(5).stopped(2).with(|seen| seen.cluster(cluster).conditions.push(condition));
    assert!(replace(&seen, 2).is_ok());
}

#[test]
fn a_name_must_be_of_one_server() {
    let pod = |cluster: Option<&str>| ServerName::Pod { cluster: cluster.map(str::to_owned), pod: pod(0) };
    assert!(decide(&seen(3), &pod(None)).unwrap_err().why.contains("several clusters"));
    assert_eq!(decide(&seen(3), &pod(Some("m3"))).unwrap().server.id, 3);
    assert!(replace(&seen(3), 9).unwrap_err().why.contains("2 (m2/zk-abc123-0)"));
}
