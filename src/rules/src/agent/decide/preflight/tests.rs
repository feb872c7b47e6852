//! The probe of cluster m1, from the request to the first server.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    agent::decide::{
        decide,
        decision::{Decision, Requeue},
        fixtures::{claim, list, observation},
        observation::{RefusedChange, ServerSet},
        refused::PROBE,
    },
    fixtures::zookeeper,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::AGENT_FINALIZER, preflight::request, server_list::with_hash},
    preflight::{NetworkProblem, ProblemKind, RoundTrip, ServerName},
    zookeeper::{EnsemblePhase, Role, ZooKeeperStatus},
};

fn requested() -> Preflight {
    let name =
        |cluster: &str| ServerName { cluster: cluster.into(), host: format!("zk-abc-0.{cluster}"), ordinal: None };
    request("abc", vec![name("m1"), name("m2")], None).unwrap()
}

/// The object as Karmada propagates it, with the request.
fn asked() -> Observation {
    let mut observation =
        observation(zookeeper(json!({ "metadata": { "labels": { KARMADA_MANAGED_LABEL: "true" } } })));
    observation.object.spec.preflight = Some(requested());
    observation
}

fn decided(observation: &Observation) -> Decision {
    decide(observation, Timestamp::UNIX_EPOCH)
}

/// The probe that the agent creates.
fn probe(observation: &Observation) -> Probe {
    let pod = decided(observation).probes.create.expect("a probe is created");
    let hash = pod["metadata"]["annotations"]["mczk.io/applied-hash"].as_str().map(str::to_owned);
    Probe {
        name: "zk-abc-0".into(),
        uid: "u".into(),
        incarnation: "abc".into(),
        hash,
        ends: false,
        failure: None,
        mesh: None,
        problems: None,
        round_trip: None,
    }
}

fn running(problems: Option<Vec<NetworkProblem>>) -> Observation {
    let asked = asked();
    let probe = Probe { problems, ..probe(&asked) };
    Observation { probes: vec![probe], ..asked }
}

fn problem() -> NetworkProblem {
    NetworkProblem {
        to: "m2".into(),
        host: "zk-abc-0.m2".into(),
        port: None,
        problem: ProblemKind::NoSuchName,
        answered: None,
        bytes_per_second: None,
    }
}

#[test]
fn a_requested_probe_starts_once_and_its_object_keeps_a_finalizer() {
    let decision = decided(&asked());
    assert!(decision.probes.create.is_some() && decision.finalizer);
    assert_eq!((decision.replicas, decision.requeue, decision.status.preflight), (None, Requeue::Busy, None));
    let kinds: Vec<&str> = decision.probes.objects.iter().map(|object| object.kind.name()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Service", "NetworkPolicy"]);
    let decision = decided(&running(None));
    assert!(decision.probes.create.is_none() && decision.probes.remove.is_empty());
    assert_eq!(decision.status.preflight, None, "it does not know yet");
}

/// The proxy of a mesh may keep the agent away too, or only the probes of other clusters.
#[rstest]
#[case::no_result(Some("the agent does not reach its port 8443: timed out"), None, None)]
#[case::passed(None, Some(vec![]), Some("Linkerd"))]
#[case::broken(None, Some(vec![problem()]), Some("Linkerd"))]
fn a_mesh_is_named_with_the_failure_or_the_result(
    #[case] failure: Option<&str>,
    #[case] problems: Option<Vec<NetworkProblem>>,
    #[case] expected: Option<&str>,
) {
    let mut observation = running(problems);
    observation.probes[0].mesh = Some("Linkerd");
    observation.probes[0].failure = failure.map(str::to_owned);
    let report = decided(&observation).status.preflight.unwrap();
    assert_eq!(report.mesh.as_deref(), expected);
    let named = report
        .failure
        .map(|why| why.contains("timed out. Pods have a proxy of Linkerd") && why.contains("skip-inbound-ports"));
    assert_eq!(named, failure.map(|_| true));
}

#[rstest]
#[case::passed(vec![])]
#[case::broken(vec![problem()])]
fn what_the_probe_finds_is_reported_with_the_round(#[case] problems: Vec<NetworkProblem>) {
    let report = decided(&running(Some(problems.clone()))).status.preflight.unwrap();
    assert_eq!(report, PreflightReport { round: requested().round, problems, ..PreflightReport::default() });
}

#[rstest]
#[case::measured(Some(RoundTrip { to: "m2".into(), milliseconds: 38 }))]
#[case::older_probe(None)]
fn the_longest_round_trip_is_reported(#[case] longest: Option<RoundTrip>) {
    let mut observation = running(Some(vec![]));
    observation.probes[0].round_trip.clone_from(&longest);
    let report = decided(&observation).status.preflight.unwrap();
    assert_eq!(report, PreflightReport { round: requested().round, round_trip: longest, ..PreflightReport::default() });
}

#[test]
fn a_cause_for_which_the_probe_does_not_run_is_no_pass() {
    let mut pending = running(None);
    pending.probes[0].failure = Some("no node fits its pod".into());
    let report = decided(&pending).status.preflight.unwrap();
    assert_eq!(report.failure.as_deref(), Some("Pod zk-abc-0: no node fits its pod"));
    pending.foreign = BTreeSet::from([("Service".to_owned(), "zk-abc".to_owned())]);
    let report = decided(&pending).status.preflight.unwrap();
    assert!(report.failure.unwrap().starts_with("Service zk-abc exists and does not belong to the agent"));
}

/// A cluster that joins in place of a lost one may have such obstacles.
#[rstest]
#[case::a_volume_cannot_grow(|o: &mut Observation| {
    o.obstacles = vec![Cause::new(Reason::VolumeNotResized, "the volume of zk-abc-0 cannot grow")];
})]
#[case::another_object_is_refused(|o: &mut Observation| o.refusals = vec![refused("PodDisruptionBudget", "zk-abc")])]
#[case::another_object_is_foreign(|o: &mut Observation| {
    o.foreign = BTreeSet::from([("StatefulSet".to_owned(), "zk-abc".to_owned())]);
})]
fn what_is_only_in_the_way_of_servers_fails_no_check(#[case] obstacle: fn(&mut Observation)) {
    for problems in [Some(vec![]), None] {
        let mut observation = running(problems.clone());
        obstacle(&mut observation);
        let report = decided(&observation).status.preflight;
        let passed = PreflightReport { round: requested().round, ..PreflightReport::default() };
        assert_eq!(report, problems.map(|_| passed));
    }
}

fn refused(kind: &str, name: &str) -> RefusedChange {
    RefusedChange { kind: kind.into(), name: name.into(), why: "exceeded quota".into(), undone: false }
}

#[rstest]
#[case::not_requested(|o: &mut Observation| o.object.spec.preflight = None)]
#[case::released_by_karmada(|o: &mut Observation| o.object.metadata.labels = None)]
#[case::being_deleted(|o: &mut Observation| o.object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)))]
#[case::assigned(|o: &mut Observation| o.object.spec.cluster = Some("m1".into()))]
#[case::a_list_came(|o: &mut Observation| o.object.spec.ensemble.epoch = Some(1))]
#[case::a_list_was_accepted(|o: &mut Observation| {
    let list = Ensemble { incarnation: Some("abc".into()), epoch: Some(1), ..Ensemble::default() };
    o.object.status = Some(ZooKeeperStatus { ensemble: Some(with_hash(list).unwrap()), ..ZooKeeperStatus::default() });
})]
fn no_probe_runs_unless_the_operator_asks_before_any_server(#[case] change: fn(&mut Observation)) {
    let mut observation = running(Some(vec![]));
    change(&mut observation);
    let probes = decided(&observation).probes;
    assert_eq!(probes.remove, [("zk-abc-0".to_owned(), "u".to_owned())]);
    assert!(probes.create.is_none() && probes.objects.is_empty() && probes.report.is_none());
}

/// Without a report the operator would wait, and no user would know why.
#[rstest]
#[case::damaged(|o: &mut Observation| o.object.spec.preflight.as_mut().unwrap().names.clear(), "is damaged")]
#[case::unnamed_cluster(|o: &mut Observation| o.cluster = None, "is unknown to its agent, so no probe listens on the ports 2888, 3888 and 8443")]
#[case::of_another_cluster(|o: &mut Observation| o.cluster = Some("m9".into()), "calls this cluster m9, and the network check is of other clusters: m1, m2")]
#[case::under_a_name_that_the_object_keeps(|o: &mut Observation| {
    o.cluster = Some("m9".into());
    o.object.metadata.annotations = Some([("mczk.io/cluster".to_owned(), "m9".to_owned())].into());
}, "then remove the annotation")]
#[case::over(|o: &mut Observation| o.tombstones = BTreeSet::from(["abc".into()]), "incarnation abc is over")]
#[case::a_volume_is_here(
    |o: &mut Observation| o.claims.push(claim("data-zk-abc-0", "abc")),
    "Servers of incarnation abc have run here"
)]
#[case::a_set_is_here(|o: &mut Observation| o.sets.push(ServerSet {
    name: "zk-abc".into(), incarnation: "abc".into(), role: Role::Voter, replicas: 0, revision: None,
}), "Do not skip the network check")]
fn an_agent_that_runs_no_probe_reports_why(#[case] change: fn(&mut Observation), #[case] why: &str) {
    let mut observation = running(Some(vec![]));
    change(&mut observation);
    let decision = decided(&observation);
    assert_eq!(decision.probes.remove, [("zk-abc-0".to_owned(), "u".to_owned())]);
    assert!(decision.probes.create.is_none() && decision.probes.objects.is_empty());
    let report = decision.status.preflight.unwrap();
    assert_eq!(report.round, requested().round);
    assert!(report.failure.as_ref().is_some_and(|failure| failure.contains(why)), "{report:?}");
}

/// Other clusters start first. Their servers look for the names of this one, and a name that stops to resolve may be
/// cached.
#[rstest]
#[case::first_incarnation(None)]
#[case::next_incarnation(Some("former"))]
fn what_the_check_made_stays_until_servers_need_it(#[case] accepted: Option<&str>) {
    let mut observation = running(Some(vec![]));
    observation.object.spec.preflight = None;
    observation.object.spec.ensemble = list(1, &[1, 11]);
    observation.remaining.insert("abc".into());
    if let Some(former) = accepted {
        let former = with_hash(Ensemble { incarnation: Some(former.into()), ..list(1, &[1, 11]) }).unwrap();
        observation.object.status = Some(ZooKeeperStatus { ensemble: Some(former), ..ZooKeeperStatus::default() });
    }
    let decision = decided(&observation);
    assert_eq!(decision.probes.remove.len(), 1, "the server gets the name of the probe");
    assert!(decision.remove.is_empty(), "{:?}", decision.remove);
    assert!(decision.status.conditions.iter().all(|condition| condition.type_ != "FormerIncarnation"));
}

#[rstest]
#[case::released_by_karmada(|o: &mut Observation| o.object.metadata.labels = None)]
#[case::being_deleted(|o: &mut Observation| o.object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH)))]
#[case::over(|o: &mut Observation| o.tombstones = BTreeSet::from(["abc".into()]))]
#[case::of_other_clusters(|o: &mut Observation| o.object.spec.ensemble = list(1, &[11, 12]))]
#[case::no_list(|o: &mut Observation| o.object.spec.ensemble = Ensemble::default())]
fn what_the_check_made_goes_if_no_server_comes(#[case] change: fn(&mut Observation)) {
    let mut observation = running(None);
    observation.object.spec.preflight = None;
    observation.object.spec.ensemble = list(1, &[1, 11]);
    observation.remaining.insert("abc".into());
    change(&mut observation);
    assert!(decided(&observation).remove.contains("abc"));
}

/// The new pod has the name of the former one.
#[rstest]
#[case::for_another_request(|p: &mut Probe| p.hash = Some("former".into()))]
#[case::ended(|p: &mut Probe| p.ends = true)]
fn a_former_probe_goes_before_the_next_one_comes(#[case] change: fn(&mut Probe)) {
    let mut observation = running(Some(vec![]));
    change(&mut observation.probes[0]);
    let decision = decided(&observation);
    assert_eq!((decision.probes.remove.len(), &decision.probes.create), (1, &None));
    assert_eq!(decision.status.preflight, None, "its result is of another request");
}

/// An object that is deleted while the check waits leaves nothing behind.
#[test]
fn everything_of_the_check_is_removed_before_the_object() {
    let mut observation = running(None);
    observation.object.metadata.finalizers = Some(vec![AGENT_FINALIZER.into()]);
    observation.object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    observation.remaining.insert("abc".into());
    let decision = decided(&observation);
    assert!(decision.remove.contains("abc") && decision.finalizer);
    (observation.probes, observation.remaining) = (vec![], BTreeSet::new());
    assert!(!decided(&observation).finalizer);
}

/// The objects of an incarnation with a volume are not those of a probe alone.
#[test]
fn objects_of_servers_are_no_leftovers() {
    let mut observation = running(None);
    observation.object.spec.preflight = None;
    observation.remaining.insert("old".into());
    observation.claims.push(claim("data-zk-old-0", "old"));
    assert!(decided(&observation).remove.is_empty());
}

#[rstest]
#[case::pod(PROBE, "zk-abc-0")]
#[case::account("ServiceAccount", "zk-abc")]
#[case::service("Service", "zk-abc")]
#[case::policy("NetworkPolicy", "zk-abc")]
fn a_refused_object_of_the_probe_is_reported_and_tried_again(#[case] kind: &str, #[case] name: &str) {
    let mut observation = asked();
    observation.refusals = vec![refused(kind, name)];
    let probes = decided(&observation).probes;
    assert!(probes.create.is_some());
    let failure = probes.report.unwrap().failure;
    assert_eq!(failure, Some(format!("{kind} {name} is refused: exceeded quota")));
}

/// m2 joins m1, where two servers of the list run.
fn join(ordinal: i32) -> Observation {
    let name = |cluster: &str, ordinal: Option<i32>| ServerName {
        cluster: cluster.into(),
        host: format!("zk-abc-{}.{cluster}", ordinal.unwrap_or(0)),
        ordinal,
    };
    let mut observation = asked();
    let running = Ensemble { phase: EnsemblePhase::Running, ..list(1, &[1, 2]) };
    observation.object.spec.ensemble = with_hash(running).unwrap();
    observation.object.spec.preflight =
        Some(request("abc", vec![name("m1", Some(ordinal)), name("m2", None)], None).unwrap());
    let set =
        ServerSet { name: "zk-abc".into(), incarnation: "abc".into(), role: Role::Voter, replicas: 2, revision: None };
    observation.sets.push(set);
    observation
}

/// The probe has a name beside those of the servers, whose objects it shares.
#[rstest]
#[case::the_next_name(2, Some("zk-abc-2"))]
#[case::the_name_of_a_server(1, None)]
fn a_probe_runs_beside_servers(#[case] ordinal: i32, #[case] expected: Option<&str>) {
    let plan = plan(&join(ordinal));
    let pod = plan.create;
    assert_eq!(pod.as_ref().and_then(|pod| pod["metadata"]["name"].as_str()), expected);
    assert_eq!((plan.objects.len(), plan.remove.len(), plan.report), (0, 0, None));
    let target = json!("--target=m1=zk-abc-2.m1/2");
    assert!(pod.is_none_or(|pod| pod["spec"]["containers"][0]["args"].as_array().unwrap().contains(&target)));
}

/// No list names the cluster that joins, so its probe brings what names it. Volumes of an earlier stay are no obstacle.
#[rstest]
fn a_probe_runs_where_a_cluster_joins(#[values(EnsemblePhase::Formed, EnsemblePhase::Running)] phase: EnsemblePhase) {
    let mut observation = join(2);
    observation.object.spec.ensemble.phase = phase;
    observation.sets.clear();
    observation.cluster = Some("m2".into());
    observation.claims.push(claim("data-zk-abc-0", "abc"));
    let decision = decided(&observation);
    let pod = decision.probes.create.expect("a probe");
    assert_eq!(pod["metadata"]["name"], "zk-abc-0");
    assert_eq!((decision.probes.objects.len(), decision.finalizer, decision.replicas), (3, true, None));
    assert!(decision.remove.is_empty());
    observation.object.spec.ensemble.phase = EnsemblePhase::Decommissioning;
    assert_eq!(plan(&observation), ProbePlan::default());
}
