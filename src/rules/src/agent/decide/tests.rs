//! Cluster m1 with two of the five servers, from the first reconcile to the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time},
    jiff::SignedDuration,
};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    agent::decide::{
        drain::Drain,
        fixtures::{self, observation, report},
        local_server::LocalServer,
        membership::MembershipStep,
        observation::{Claim, RefusedChange, RefusedDeletion, ServerSet},
        refused::PROBE,
        volume_size::VolumeSize,
    },
    fixtures::{zookeeper, zookeeper_spec},
    rollout::cluster_spec,
};
use mczk_api::{
    contract::{
        cause::Cause,
        conditions::Reason,
        control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
        labels::{AGENT_FINALIZER, KARMADA_MANAGED_LABEL, REPLACE_VOLUME},
        server_list::with_hash,
    },
    mutation::Mutation,
    pod::Reclaim,
    zookeeper::{Ensemble, EnsemblePhase, FirstStart, OtherIncarnation, Role, Server, ZooKeeperStatus},
};

fn servers(ids: &[(i32, &str, i32)]) -> Vec<Server> {
    let server = |(id, cluster, ordinal): &(i32, &str, i32)| Server {
        id: *id,
        cluster: (*cluster).into(),
        ordinal: *ordinal,
        host: format!("zk-abc-{ordinal}.{cluster}"),
        role: Role::Voter,
    };
    ids.iter().map(server).collect()
}

const ALL: &[(i32, &str, i32)] = &[(1, "m1", 0), (2, "m1", 1), (3, "m2", 0), (4, "m3", 0), (5, "m3", 1)];

fn list(epoch: i64, ids: &[(i32, &str, i32)]) -> Ensemble {
    list_in(EnsemblePhase::Running, epoch, ids)
}

fn list_in(phase: EnsemblePhase, epoch: i64, ids: &[(i32, &str, i32)]) -> Ensemble {
    let incarnation = Some("abc".into());
    with_hash(Ensemble { incarnation, epoch: Some(epoch), phase, servers: servers(ids), ..Ensemble::default() })
        .unwrap()
}

struct Cluster {
    observation: Observation,
    now: i64,
}

impl Cluster {
    /// The object as Karmada propagates it: managed, without servers.
    fn new(list: Ensemble) -> Self {
        let metadata = json!({ "generation": 1, "labels": { KARMADA_MANAGED_LABEL: "true" } });
        let object = zookeeper(json!({ "metadata": metadata }));
        let observation = Observation { published: Some(("abc".into(), i64::MAX)), ..observation(object) };
        let mut cluster = Self { observation, now: 0 };
        cluster.list(list);
        cluster
    }

    fn stored(&mut self) {
        self.observation.stored = serde_json::to_value(&self.observation.object.spec).unwrap();
    }

    fn list(&mut self, list: Ensemble) {
        self.observation.object.spec.ensemble = list;
        self.stored();
    }

    fn assign(&mut self, replicas: i32, revision: &str) {
        let spec = &mut self.observation.object.spec;
        spec.revision = revision.into();
        let ensemble = spec.ensemble.clone();
        *spec = cluster_spec::for_cluster(spec, "m1", replicas, spec.spec_hash.as_deref(), 0).unwrap();
        spec.ensemble = ensemble;
        self.stored();
    }

    /// Decides, and stores the status.
    fn reconcile(&mut self) -> Decision {
        self.now += 1;
        let decision = decide(&self.observation, Timestamp::new(self.now, 0).unwrap());
        self.observation.object.status = Some(decision.status.clone());
        if decision.finalizer {
            self.observation.object.metadata.finalizers = Some(vec![AGENT_FINALIZER.into()]);
        }
        decision
    }

    /// Applies the decision as the StatefulSet controller does: it creates running pods of the set's revision.
    fn run(&mut self, decision: &Decision, started: bool, configuration: Option<&Configuration>) {
        if let Some((voters, _)) = decision.replicas {
            let revision = self.observation.object.spec.revision.clone();
            self.observation.remaining.insert("abc".into());
            self.observation.sets = vec![ServerSet {
                name: "zk-abc".into(),
                incarnation: "abc".into(),
                role: Role::Voter,
                replicas: voters,
                revision: Some(revision.clone()),
            }];
            let mut pods: BTreeMap<i32, LocalServer> = self
                .observation
                .servers
                .drain(..)
                .map(|(_, server)| (server.ordinal, server))
                .filter(|(o, _)| *o < voters)
                .collect();
            for ordinal in 0..voters {
                pods.entry(ordinal).or_insert_with(|| server(ordinal, &revision));
            }
            self.observation.servers = pods.into_values().map(|server| ("abc".into(), server)).collect();
        }
        self.views(started, configuration);
    }

    fn views(&mut self, started: bool, configuration: Option<&Configuration>) {
        self.observation.views.clear();
        for (_, server) in &mut self.observation.servers {
            server.view = Some(view(server.ordinal + 1, started, configuration));
            self.observation.views.extend(server.view.clone());
        }
        let others = configuration.into_iter().flat_map(Configuration::voters).filter(|id| *id > 2);
        self.observation.views.extend(others.map(|id| view(id, true, configuration)));
        let followers = i32::try_from(self.observation.views.len()).unwrap() - 1;
        if configuration.is_some()
            && let Some(leader) = self.observation.views.iter_mut().rfind(|view| view.id > Some(2))
        {
            (leader.mode, leader.synced_voters) = (Some(Mode::Leader), Some(followers));
        }
    }

    /// No server and no object of the ensemble is left.
    fn empty(&mut self) {
        self.observation.servers.clear();
        self.observation.sets.clear();
        self.observation.remaining.clear();
        self.observation.views.retain(|view| view.id > Some(2));
    }

    /// The object is being deleted.
    fn delete(&mut self) {
        self.observation.object.metadata.deletion_timestamp = Some(Time(Timestamp::new(self.now, 0).unwrap()));
    }

    /// Requests certificates for clients.
    fn request_client_certificates(&mut self) {
        let spec = &mut self.observation.object.spec;
        spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "users-secret" })).unwrap();
    }

    /// The pod of the first server was lost, and the new one does not start.
    fn fail(&mut self, why: &str) {
        self.runs_in(Phase::Running);
        let server = &mut self.observation.servers[0].1;
        (server.view, server.failure) = (None, Some(why.to_owned()));
    }

    /// The first server does not serve.
    fn runs_in(&mut self, phase: Phase) {
        let server = &mut self.observation.servers[0].1;
        let down = ServerReport { phase, ..view(1, true, None) };
        self.observation.views.retain(|view| view.id != Some(1));
        self.observation.views.push(down.clone());
        server.view = Some(down);
    }

    /// A server serves, and turns away every client with TLS.
    fn turn_away(&mut self, at: usize) {
        let view = self.observation.servers[at].1.view.as_mut().unwrap();
        view.turned_away = Some("it closes each connection".to_owned());
    }

    fn reported(&self) -> &ZooKeeperStatus {
        self.observation.object.status.as_ref().unwrap()
    }

    fn condition(&self, type_: &str) -> Option<(String, String)> {
        let found = self.reported().conditions.iter().find(|c| c.type_ == type_)?;
        Some((found.status.clone(), found.reason.clone()))
    }

    fn complete(&self) -> bool {
        self.reported().completed_spec_hash.is_some()
            && self.reported().completed_spec_hash == self.observation.object.spec.spec_hash
    }
}

fn server(ordinal: i32, revision: &str) -> LocalServer {
    LocalServer {
        drain: None,
        needs_mount: false,
        pod: format!("zk-abc-{ordinal}"),
        uid: format!("{revision}-{ordinal}"),
        role: Role::Voter,
        ordinal,
        id: None,
        revision: revision.into(),
        ready: false,
        runs: false,
        terminating: false,
        orphaned: false,
        overdue: false,
        failure: None,
        view: None,
        unready_for: restart::SILENCE,
    }
}

fn view(id: i32, started: bool, configuration: Option<&Configuration>) -> ServerReport {
    let mode = if configuration.is_some() { Mode::Follower } else { Mode::Looking };
    let phase = if started { Phase::Running } else { Phase::Waiting { reason: "its name does not resolve".into() } };
    ServerReport { phase, configuration: configuration.cloned(), ..report(id, mode, configuration.is_some()) }
}

/// A server that is suspended in its pod.
fn suspended_view(id: i32) -> ServerReport {
    ServerReport { phase: Phase::Suspended, mode: None, ..view(id, false, None) }
}

fn configuration(ids: &[(i32, &str, i32)]) -> Configuration {
    let configured = |s: Server| ConfiguredServer { id: s.id, host: s.host, role: s.role };
    Configuration { version: 7, servers: servers(ids).into_iter().map(configured).collect() }
}

/// A cluster whose two servers have started.
fn started(list: Ensemble, configuration: Option<&Configuration>) -> Cluster {
    let mut cluster = Cluster::new(list);
    cluster.assign(2, "r1");
    let decision = cluster.reconcile();
    cluster.run(&decision, true, configuration);
    cluster
}

/// A cluster that is deployed, serves and is complete.
fn serving() -> Cluster {
    let mut cluster = started(list(1, ALL), Some(&configuration(ALL)));
    cluster.reconcile();
    assert!(cluster.complete(), "{:?}", cluster.reported());
    cluster
}

/// The control plane lost the cluster spec: the membership follows the newest list of the incarnation, and nothing else
/// changes.
#[rstest]
#[case::of_its_incarnation(true, "abc", 2)]
#[case::of_another_incarnation(true, "def", 1)]
#[case::not_from_karmada(false, "abc", 1)]
fn a_list_without_an_accepted_spec(#[case] managed: bool, #[case] incarnation: &str, #[case] expected: i64) {
    let mut cluster = serving();
    let newer = Ensemble { incarnation: Some(incarnation.into()), ..list(2, &ALL[..4]) };
    cluster.list(with_hash(newer).unwrap());
    cluster.observation.object.spec.spec_hash = None;
    cluster.stored();
    if !managed {
        cluster.observation.object.metadata.labels = None;
    }
    let decision = cluster.reconcile();
    assert_eq!(cluster.reported().ensemble.as_ref().and_then(|list| list.epoch), Some(expected));
    assert_eq!(matches!(decision.membership, MembershipStep::Reconfigure(_)), expected == 2);
    assert_eq!((decision.replicas, decision.restart), (None, RestartStep::Nothing));
    assert!(decision.remove.is_empty() && !decision.remove_object);
}

#[test]
fn certificates_for_clients_arrive_before_a_server_restarts_for_them() {
    let mut cluster = serving();
    cluster.request_client_certificates();
    cluster.assign(2, "r2");
    let set = &mut cluster.observation.sets[0];
    set.revision = Some("r2".into());
    let decision = cluster.reconcile();
    assert!(matches!(decision.restart, RestartStep::Wait(_)), "{:?}", decision.restart);
    assert_eq!(cluster.condition("Progressing"), Some(("True".into(), "WaitingForCertificates".into())));
    assert!(!cluster.complete());
    // The agent releases the restart lock, since others may need it.
    let held = RestartLock { holder: "m1".into(), server: 1 };
    for view in &mut cluster.observation.views {
        view.restart_lock = Some(held.clone());
    }
    assert_eq!(cluster.reconcile().restart, RestartStep::Release(held));
    for view in &mut cluster.observation.views {
        view.restart_lock = None;
    }
    cluster.observation.client_certificates.copied = true;
    assert!(matches!(cluster.reconcile().restart, RestartStep::RestartServing { .. }));
    cluster.observation.lock_failure = Some("h2 cannot be reached: timeout".into());
    cluster.reconcile();
    assert!(message(&cluster, "Progressing").ends_with("the restart lock: h2 cannot be reached: timeout"));
}

#[test]
fn a_copy_that_is_lost_with_its_secret_is_reported() {
    let mut cluster = Cluster::new(list(1, ALL));
    cluster.request_client_certificates();
    cluster.observation.client_certificates.copied = true;
    cluster.assign(2, "r1");
    let decision = cluster.reconcile();
    cluster.run(&decision, true, Some(&configuration(ALL)));
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("ClientCertificatesKept").is_none());
    cluster.observation.client_certificates.copied = false;
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(cluster.condition("ClientCertificatesKept").unwrap().0, "True");
}

/// A completed spec stays complete, and its servers serve. A change is not complete before its certificates are accepted.
#[test]
fn a_missing_secret_is_reported_and_undoes_nothing() {
    let mut cluster = serving();
    cluster.observation.client_certificates.problem = Some("Secret users-secret does not exist".into());
    let decision = cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(decision.requeue, Requeue::AtRest);
    assert_eq!(cluster.condition("ClientCertificatesKept").unwrap().0, "True");
    cluster.assign(2, "r2");
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked"), Some(("True".into(), "ClientCertificates".into())));
    cluster.observation.client_certificates.problem = None;
    cluster.reconcile();
    assert!(cluster.condition("Blocked").is_none() && cluster.condition("ClientCertificatesKept").is_none());
}

#[test]
fn an_unassigned_object_reports_only_its_generation() {
    let mut cluster = Cluster::new(list(1, ALL));
    let decision = cluster.reconcile();
    let other_incarnations = Some(Vec::new());
    let only = ZooKeeperStatus { observed_generation: Some(1), other_incarnations, ..ZooKeeperStatus::default() };
    assert_eq!(decision.status, only);
    assert!(decision.replicas.is_none() && !decision.finalizer && decision.remove.is_empty());
}

/// The rollout never reached the cluster, and the cluster is no longer selected. An object that a user created stays.
#[rstest]
#[case::released(&["mczk.io/ensemble"], &["mczk.io/applied-hash"], false, 30, true)]
#[case::just_released(&["mczk.io/ensemble"], &["mczk.io/applied-hash"], false, 29, false)]
#[case::managed(&["mczk.io/ensemble", KARMADA_MANAGED_LABEL], &["mczk.io/applied-hash"], false, 30, false)]
#[case::by_hand(&[], &[], false, 30, false)]
#[case::objects_remain(&["mczk.io/ensemble"], &["mczk.io/applied-hash"], true, 30, false)]
fn an_object_that_was_never_accepted_is_removed(
    #[case] labels: &[&str],
    #[case] annotations: &[&str],
    #[case] remains: bool,
    #[case] seconds: i64,
    #[case] removed: bool,
) {
    let mut cluster = Cluster::new(list(1, ALL));
    let now = Timestamp::new(cluster.now + 1, 0).unwrap();
    let written = now - SignedDuration::from_secs(seconds);
    let fields = |time, subresource: Option<&str>| ManagedFieldsEntry {
        time: Some(Time(time)),
        subresource: subresource.map(str::to_owned),
        ..ManagedFieldsEntry::default()
    };
    let fields = vec![fields(written, None), fields(now, Some("status"))];
    cluster.observation.object.metadata.managed_fields = Some(fields);
    let named = |names: &[&str]| Some(names.iter().map(|name| ((*name).to_owned(), String::new())).collect());
    cluster.observation.object.metadata.labels = named(labels);
    cluster.observation.object.metadata.annotations = named(annotations);
    if remains {
        cluster.observation.remaining.insert("abc".into());
    }
    assert_eq!(cluster.reconcile().remove_object, removed);
}

/// The cluster had servers before, was selected again, and was not selected any more after its network check: the objects of the
/// check end with the object, and the volumes stay. Servers need the object.
#[rstest]
#[case::of_the_check(0, &["abc"])]
#[case::servers(1, &[])]
fn objects_beside_former_volumes_do_not_keep_an_object_that_was_never_accepted(
    #[case] replicas: i32,
    #[case] ended: &[&str],
) {
    let mut cluster = Cluster::new(list(1, ALL));
    let named = |name: &str| Some([(name.to_owned(), String::new())].into());
    cluster.observation.object.metadata.labels = named("mczk.io/ensemble");
    cluster.observation.object.metadata.annotations = named("mczk.io/applied-hash");
    cluster.observation.claims = vec![fixtures::claim("data-zk-abc-0", "abc")];
    cluster.observation.remaining = ["abc".to_owned()].into();
    let set =
        ServerSet { name: "zk-abc".into(), incarnation: "abc".into(), role: Role::Voter, replicas, revision: None };
    cluster.observation.sets = vec![set];
    let decision = cluster.reconcile();
    assert!(decision.remove.iter().eq(ended) && decision.reclaim == Reclaim::default(), "{:?}", decision.remove);
    assert!(!decision.remove_object);
    cluster.observation.remaining.clear();
    cluster.observation.sets.retain(|set| set.replicas > 0);
    assert_eq!(cluster.reconcile().remove_object, replicas == 0);
}

#[test]
fn before_a_quorum_forms_a_cluster_is_complete_when_its_servers_have_started() {
    let mut cluster = Cluster::new(list_in(EnsemblePhase::Bootstrapping, 1, ALL));
    cluster.assign(2, "r1");
    let decision = cluster.reconcile();
    assert_eq!(decision.replicas, Some((2, 0)));
    assert!(decision.finalizer && !cluster.complete());
    cluster.run(&decision, false, None);
    cluster.reconcile();
    assert!(!cluster.complete());
    assert_eq!(cluster.condition("Progressing").unwrap().0, "True");
    cluster.views(true, None);
    let decision = cluster.reconcile();
    assert!(cluster.complete());
    let status = &decision.status;
    assert_eq!((status.started_replicas, status.ready_replicas, status.writable), (Some(2), Some(0), Some(false)));
    assert!(status.voting_members.is_empty() && status.config_version.is_none());
    assert_eq!(status.ensemble.as_ref(), Some(&cluster.observation.object.spec.ensemble));
}

/// The Service for clients is never empty because all servers stall together. Other clusters may import it, so servers that are
/// down are not in it.
#[rstest]
#[case::all_are_ready(&[true, true], true, false)]
#[case::one_is_ready(&[false, true], true, false)]
#[case::none_is_ready(&[false, false], true, true)]
#[case::all_are_down(&[false, false], false, false)]
fn the_service_for_clients_names_servers_that_are_not_ready_if_none_is(
    #[case] ready: &[bool],
    #[case] runs: bool,
    #[case] expected: bool,
) {
    let mut cluster = serving();
    for ((_, server), ready) in cluster.observation.servers.iter_mut().zip(ready) {
        server.ready = *ready;
        server.view = server.view.take().filter(|_| runs);
    }
    let list = list(1, ALL);
    let objects = crate::agent::render::render(&cluster.observation.source(&list, (2, 0))).unwrap();
    let services =
        objects.iter().filter(|object| object.kind == crate::agent::render::Kind::Service && object.name == "zk");
    let published: Vec<_> = services.map(|object| object.value.pointer("/spec/publishNotReadyAddresses")).collect();
    assert_eq!(published, [expected.then_some(&json!(true))]);
}

/// A pod whose container runs may serve, also in an ensemble whose servers no longer answer. Nor does an agent that has started
/// again restart it: the status remembers that a quorum formed.
#[rstest]
#[case::runs(true, true)]
#[case::is_down(false, false)]
fn servers_that_run_and_cannot_be_asked_do_not_restart(#[case] runs: bool, #[case] waits: bool) {
    let mut cluster = serving();
    cluster.assign(2, "r2");
    cluster.observation.sets[0].revision = Some("r2".into());
    cluster.observation.views.clear();
    for (_, server) in &mut cluster.observation.servers {
        (server.view, server.ready, server.runs) = (None, false, runs);
    }
    let decision = cluster.reconcile();
    assert_eq!(matches!(decision.restart, RestartStep::Wait(_)), waits, "{:?}", decision.restart);
    let mode = decision.status.servers[0].mode.as_deref();
    assert_eq!(mode, Some(if runs { "unknown" } else { "looking" }));
    if let RestartStep::Wait(why) = &decision.restart {
        assert!(
            why.contains("does not reach its port 8443. If you know that it does not serve, delete its pod"),
            "{why}"
        );
    }
}

/// A rollout waits for a server whose clients use up its connections, and says so. If they use up those of all servers, the agent
/// sees no quorum.
#[rstest]
#[case::of_another_cluster("r2", &[4], "server 4 takes part in the quorum and opens no session")]
#[case::of_all("r2", &[1, 2, 3, 4, 5], "the agent sees no quorum: zk-abc-0 takes part in the quorum and opens no session")]
#[case::of_one_that_has_started("r1", &[1], "zk-abc-0 takes part in the quorum and opens no session")]
fn a_server_without_sessions_is_named_as_the_cause(
    #[case] revision: &str,
    #[case] without: &[i32],
    #[case] expected: &str,
) {
    let mut cluster = started(list(1, ALL), Some(&configuration(ALL)));
    cluster.assign(2, revision);
    cluster.observation.sets[0].revision = Some(revision.into());
    let own = cluster.observation.servers.iter_mut().filter_map(|(_, server)| server.view.as_mut());
    for view in cluster.observation.views.iter_mut().chain(own).filter(|view| without.contains(&view.id.unwrap())) {
        (view.serving, view.synced) = (false, false);
    }
    cluster.reconcile();
    let condition = cluster.reported().conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    assert!(condition.message.contains(expected), "{}", condition.message);
}

/// Servers that answer are suspended in their pods. A server that does not answer gets a new pod.
#[test]
fn suspended_servers_report_their_volumes_and_a_silent_one_gets_a_new_pod() {
    let mut cluster = started(list_in(EnsemblePhase::Bootstrapping, 1, ALL), None);
    let suspended = list_in(EnsemblePhase::Suspended, 2, ALL);
    cluster.list(suspended.clone());
    let (_, silent) = &mut cluster.observation.servers[1];
    silent.view = None;
    silent.failure = Some("ImagePullBackOff".into());
    let (_, answering) = &mut cluster.observation.servers[0];
    answering.view = Some(suspended_view(1));
    // The server does not report its list: it may be about to start.
    assert_eq!(cluster.reconcile().status.servers[0].mode.as_deref(), Some("looking"));
    let (_, answering) = &mut cluster.observation.servers[0];
    answering.view.as_mut().unwrap().server_list = Some(suspended);
    let decision = cluster.reconcile();
    assert_eq!(decision.restart, RestartStep::Wait("Waiting for the StatefulSet controller".into()));
    cluster.observation.sets[0].revision = Some("r1.suspended".into());
    let decision = cluster.reconcile();
    assert_eq!(decision.restart, RestartStep::Restart { pod: "zk-abc-1".into(), uid: "r1-1".into() });
    let reported = &decision.status.servers[0];
    assert_eq!((reported.mode.as_deref(), reported.accepted_epoch), (Some("suspended"), Some(0)));
    assert_ne!(decision.status.servers[1].mode.as_deref(), Some("suspended"), "it does not answer");
    // It is back. When the ensemble resumes, its pod is replaced again.
    cluster.observation.servers[1].1 = LocalServer { revision: "r1.suspended".into(), ..server(1, "r1") };
    cluster.observation.servers[1].1.view = Some(suspended_view(2));
    assert_eq!(cluster.reconcile().restart, RestartStep::Nothing);
    assert!(!cluster.complete());
    cluster.list(list_in(EnsemblePhase::Bootstrapping, 3, ALL));
    cluster.observation.sets[0].revision = Some("r1".into());
    cluster.observation.servers[0].1.view = Some(view(1, true, None));
    assert_eq!(cluster.reconcile().restart, RestartStep::Restart { pod: "zk-abc-1".into(), uid: "r1-1".into() });
}

#[test]
fn after_a_quorum_formed_servers_must_serve() {
    let mut cluster = started(list(1, ALL), None);
    cluster.reconcile();
    assert!(!cluster.complete());
    cluster.views(true, Some(&configuration(ALL)));
    let status = cluster.reconcile().status;
    assert!(cluster.complete());
    assert_eq!(status.voting_members, [1, 2, 3, 4, 5]);
    assert_eq!((status.ready_replicas, status.leader, status.config_version), (Some(2), Some(5), Some(7)));
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "Complete".into()));
}

/// All servers move to clusters that have none yet, and Karmada drops the reports of their former clusters.
#[test]
fn a_cluster_without_servers_reports_the_quorum_that_it_sees() {
    let mut cluster = Cluster::new(list(1, &[ALL[2], ALL[3], ALL[4]]));
    cluster.assign(1, "r1");
    assert_eq!(cluster.reconcile().status.writable, None, "no server answers");
    let living = configuration(&[ALL[2], ALL[3], ALL[4]]);
    cluster.observation.views = [3, 4, 5].map(|id| view(id, true, Some(&living))).into();
    let status = cluster.reconcile().status;
    assert_eq!((status.voting_members, status.config_version, status.writable), (vec![3, 4, 5], Some(7), Some(true)));
    assert!(status.servers.is_empty() && status.ready_replicas == Some(0));
}

#[test]
fn a_completed_spec_stays_complete_and_the_status_is_stable() {
    let mut cluster = serving();
    let before = cluster.reported().clone();
    let decision = cluster.reconcile();
    assert_eq!(decision.status, before);
    assert!(
        decision.requeue == Requeue::AtRest
            && decision.restart == RestartStep::Nothing
            && decision.membership == MembershipStep::Done
    );
    cluster.observation.servers.iter_mut().for_each(|(_, server)| server.view = None);
    let status = cluster.reconcile().status;
    assert!(cluster.complete());
    assert_eq!((status.started_replicas, status.ready_replicas), (Some(0), Some(0)));
    assert_eq!(status.servers[0].volume.as_deref(), Some("v1"), "the identity of the volume stays reported");
}

#[test]
fn the_cluster_of_the_leader_reports_the_size_of_the_data_in_steps() {
    let mut cluster = serving();
    let reported = |cluster: &mut Cluster, bytes: Option<i64>| {
        let view = cluster.observation.servers[0].1.view.as_mut().unwrap();
        view.snapshot_bytes = bytes;
        cluster.reconcile().status.snapshot_bytes
    };
    assert_eq!(reported(&mut cluster, None), None);
    assert_eq!(reported(&mut cluster, Some(5000)), Some(1 << 20));
    assert_eq!(reported(&mut cluster, Some((1 << 28) + 1)), Some(1 << 29));
    // Queues grow and shrink around a power of 2.
    assert_eq!(reported(&mut cluster, Some(1 << 28)), Some(1 << 29));
    assert_eq!(reported(&mut cluster, Some(1 << 26)), Some(1 << 26));
}

#[rstest]
#[case::damaged(|c: &mut Cluster| { c.observation.object.spec.replicas = 0; c.stored(); }, true)]
#[case::of_another_cluster(|c: &mut Cluster| c.observation.cluster = Some("m9".into()), true)]
#[case::spec_hash_lost(|c: &mut Cluster| { c.observation.object.spec.spec_hash = None; c.observation.object.spec.replicas = 0; c.stored(); }, false)]
#[case::list_lost(|c: &mut Cluster| { c.observation.object.spec.ensemble = Ensemble::default(); c.stored(); }, false)]
fn a_spec_that_is_not_accepted_changes_nothing(#[case] damage: fn(&mut Cluster), #[case] reported: bool) {
    let mut cluster = serving();
    let before = cluster.reported().clone();
    damage(&mut cluster);
    let decision = cluster.reconcile();
    assert!(decision.replicas.is_none() && decision.remove.is_empty() && !decision.remove_object && decision.finalizer);
    assert_eq!((decision.restart, decision.membership), (RestartStep::Nothing, MembershipStep::Done));
    assert_eq!(cluster.condition("Blocked").is_some(), reported);
    assert_eq!(decision.status.completed_spec_hash, before.completed_spec_hash);
    assert_eq!(decision.status.started_replicas, Some(2));
}

#[test]
fn a_voter_is_not_stopped_while_the_configuration_names_it() {
    let mut cluster = serving();
    cluster.assign(1, "r1");
    let decision = cluster.reconcile();
    assert_eq!(decision.replicas, Some((2, 0)));
    assert_eq!(cluster.condition("Blocked").unwrap().1, "StillVotes");
    assert!(!cluster.complete());
    let fewer = [ALL[0], ALL[2], ALL[3], ALL[4]];
    cluster.list(list(2, &fewer));
    let decision = cluster.reconcile();
    assert_eq!(decision.replicas, Some((2, 0)));
    assert!(cluster.condition("Blocked").is_none());
    assert!(matches!(decision.membership, MembershipStep::Reconfigure(step) if step.remove == Some(2)));
    cluster.views(true, Some(&configuration(&fewer)));
    let decision = cluster.reconcile();
    assert_eq!(decision.replicas, Some((1, 0)));
    cluster.run(&decision, true, Some(&configuration(&fewer)));
    cluster.reconcile();
    assert!(cluster.complete());
}

#[test]
fn a_change_restarts_servers_one_after_the_other() {
    let mut cluster = serving();
    cluster.assign(2, "r2");
    cluster.reconcile();
    cluster.observation.sets[0].revision = Some("r1".into());
    assert!(matches!(cluster.reconcile().restart, RestartStep::Wait(_)), "the StatefulSet still creates old pods");
    cluster.observation.sets[0].revision = Some("r2".into());
    let RestartStep::RestartServing { server: id, held: false, .. } = cluster.reconcile().restart else {
        panic!("{:?}", cluster.reconcile().restart)
    };
    assert_eq!(id, 1);
    assert!(!cluster.complete());
    cluster.observation.servers[0].1 = server(0, "r2");
    cluster.reconcile();
    assert!(!cluster.complete());
    cluster.views(true, Some(&configuration(ALL)));
    assert!(matches!(cluster.reconcile().restart, RestartStep::RestartServing { server: 2, .. }));
    cluster.observation.servers[1].1 = server(1, "r2");
    cluster.views(true, Some(&configuration(ALL)));
    cluster.reconcile();
    assert!(cluster.complete());
}

/// Its settings would turn away the clients of the next server too, and at last of all clusters.
#[test]
fn a_server_that_turns_clients_away_is_the_last_one_of_its_change() {
    let mut cluster = serving();
    cluster.assign(2, "r2");
    cluster.observation.sets[0].revision = Some("r2".into());
    cluster.observation.servers[0].1 = server(0, "r2");
    cluster.views(true, Some(&configuration(ALL)));
    cluster.turn_away(0);
    let step = cluster.reconcile().restart;
    assert!(matches!(&step, RestartStep::Wait(why) if why.contains("turns away")), "{step:?}");
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "ServerFailed".into()));
    // A drain goes on meanwhile.
    cluster.observation.servers[1].1.drain = Some(Drain { node: "n1".into(), stays: None });
    cluster.observation.servers[1].1.revision = "r2".into();
    let step = cluster.reconcile().restart;
    assert!(matches!(&step, RestartStep::RestartServing { server: 2, .. }), "{step:?}");
    // The correction restarts it, under the lock.
    cluster.assign(2, "r3");
    cluster.observation.sets[0].revision = Some("r3".into());
    let step = cluster.reconcile().restart;
    assert!(matches!(step, RestartStep::RestartServing { .. }), "{step:?}");
}

#[test]
fn a_server_that_does_not_start_is_reported_and_the_next_spec_replaces_it() {
    let mut cluster = serving();
    cluster.assign(2, "broken");
    cluster.observation.sets[0].revision = Some("broken".into());
    let mut broken = server(0, "broken");
    broken.failure = Some("image zk:2 cannot be pulled".into());
    cluster.observation.servers[0].1 = broken;
    let decision = cluster.reconcile();
    assert!(matches!(decision.restart, RestartStep::Wait(_)));
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "ServerFailed".into()));
    cluster.assign(2, "r3");
    cluster.observation.sets[0].revision = Some("r3".into());
    assert!(matches!(cluster.reconcile().restart, RestartStep::Restart { ref pod, .. } if pod == "zk-abc-0"));
}

/// A spec that was complete stays so, and what happens to the servers later is reported as during a change.
#[rstest]
#[case::no_pod_starts(|c: &mut Cluster| c.fail("image zk:1 cannot be pulled"), "False ServerFailed", "zk-abc-0 does not start: image zk:1 cannot be pulled")]
#[case::it_exits(|c: &mut Cluster| c.runs_in(Phase::Exited { reason: "exit code 1".into() }), "False ServerFailed", "zk-abc-0 does not start: exit code 1")]
#[case::it_turns_clients_away(|c: &mut Cluster| c.turn_away(0), "False ServerFailed", "zk-abc-0 serves, but turns away clients with TLS: it closes each connection. Correct the settings ssl.* in template.zooCfg, or the certificate of tls.client")]
#[case::it_waits(|c: &mut Cluster| c.runs_in(Phase::Waiting { reason: "its name does not resolve".into() }), "True Starting", "zk-abc-0 waits: its name does not resolve")]
#[case::it_does_not_serve(|c: &mut Cluster| c.runs_in(Phase::Running), "True Starting", "zk-abc-0 does not serve yet")]
#[case::a_volume_is_too_small(|c: &mut Cluster| c.observation.claims = vec![sized(0, "1Gi", "512Mi", &[])], "True GrowingVolume", "PersistentVolumeClaim data-zk-abc-0 has 512Mi and not template.storage.size 1Gi: the claim does not show yet that its storage class grows it")]
fn what_happens_after_completion_is_reported(
    #[case] happens: fn(&mut Cluster),
    #[case] expected: &str,
    #[case] words: &str,
) {
    let mut cluster = serving();
    let before = cluster.observation.clone();
    happens(&mut cluster);
    cluster.reconcile();
    assert!(cluster.complete(), "the spec stays complete");
    let (status, reason) = cluster.condition("Progressing").unwrap();
    assert_eq!((format!("{status} {reason}").as_str(), message(&cluster, "Progressing").as_str()), (expected, words));
    let stored = cluster.observation.object.clone();
    cluster.observation = Observation { object: stored, ..before };
    cluster.reconcile();
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "Complete".into()));
}

/// The agent follows no spec that it refuses, and a server fails meanwhile.
#[test]
fn a_refused_spec_hides_no_failure() {
    let mut cluster = serving();
    cluster.observation.object.spec.replicas = 0;
    cluster.stored();
    cluster.reconcile();
    assert_eq!(
        (cluster.condition("Blocked").unwrap().1.as_str(), cluster.condition("Progressing")),
        ("SpecRefused", None)
    );
    cluster.fail("image zk:1 cannot be pulled");
    cluster.reconcile();
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "ServerFailed".into()));
}

/// The agent wrote a StatefulSet that its controller has not seen. Its servers serve.
#[test]
fn a_set_that_waits_for_its_controller_is_no_server_that_starts() {
    let mut cluster = serving();
    cluster.observation.sets[0].revision = None;
    cluster.reconcile();
    assert_eq!(cluster.condition("Progressing").unwrap(), ("True".into(), "Waiting".into()));
}

/// The obstacle is reported as such: nothing is left to do with the servers.
#[test]
fn an_obstacle_leaves_servers_as_declared() {
    let mut cluster = serving();
    cluster.observation.obstacles = vec![Cause::new(Reason::NameConflict, "Service zk exists")];
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked").unwrap().1, "NameConflict");
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "Complete".into()));
}

#[test]
fn decommissioning_stops_servers_and_is_reported_with_its_epoch() {
    let mut cluster = serving();
    cluster.list(list_in(EnsemblePhase::Decommissioning, 2, ALL));
    let decision = cluster.reconcile();
    assert!(decision.remove.contains("abc") && decision.replicas.is_none() && decision.finalizer);
    assert!(cluster.condition("Decommissioned").is_none());
    cluster.empty();
    let status = cluster.reconcile().status;
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!((status.epoch(), status.replicas, status.servers.len()), (Some(2), Some(0), 0));
    cluster.delete();
    assert!(!cluster.reconcile().finalizer);
}

#[test]
fn decommissioning_reaches_a_cluster_without_a_spec_hash() {
    let mut cluster = Cluster::new(list_in(EnsemblePhase::Decommissioning, 2, ALL));
    let status = cluster.reconcile().status;
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!(status.epoch(), Some(2));
}

#[test]
fn an_object_that_a_user_deletes_keeps_its_servers_while_they_vote() {
    let mut cluster = serving();
    cluster.delete();
    let decision = cluster.reconcile();
    assert!(!decision.finalizer, "Karmada creates it again");
    assert!(decision.remove.is_empty() && decision.replicas.is_none() && !decision.remove_object);
    // Without a quorum the ensemble may have ended, and Karmada would not create the object again.
    let views = std::mem::take(&mut cluster.observation.views);
    assert!(cluster.reconcile().finalizer);
    cluster.observation.views = views;
    // Without Karmada the object is not created again.
    cluster.observation.object.metadata.labels = None;
    let decision = cluster.reconcile();
    assert!(decision.finalizer && decision.remove.is_empty() && decision.replicas.is_none());
    assert_eq!(cluster.condition("Blocked").unwrap().1, "Deleted");
}

#[test]
fn without_karmada_servers_stay_until_they_have_left_the_ensemble() {
    let mut cluster = serving();
    cluster.observation.object.metadata.labels = None;
    cluster.observation.object.spec.template.storage.reclaim = Some(Reclaim::Delete);
    let decision = cluster.reconcile();
    assert!(decision.finalizer && decision.remove.is_empty() && !decision.remove_object);
    // The servers report a newer list.
    let others = &ALL[2..];
    let newer = list(2, others);
    cluster.observation.views.iter_mut().for_each(|view| view.server_list = Some(newer.clone()));
    let decision = cluster.reconcile();
    assert!(decision.remove.is_empty(), "they still vote");
    assert_eq!(decision.status.epoch(), Some(2));
    cluster.views(true, Some(&configuration(others)));
    cluster.observation.views.iter_mut().for_each(|view| view.server_list = Some(newer.clone()));
    let decision = cluster.reconcile();
    assert!(decision.remove.contains("abc") && !decision.remove_object);
    assert_eq!(decision.reclaim, Reclaim::Retain, "the ensemble runs on");
    cluster.empty();
    assert!(cluster.reconcile().remove_object);
}

#[test]
fn former_incarnations_are_removed_and_the_current_one_never() {
    let mut cluster = serving();
    let former = vec!["old".into(), "abc".into()];
    cluster.list(with_hash(Ensemble { former_incarnations: former, ..list(2, ALL) }).unwrap());
    assert_eq!(cluster.reconcile().remove, BTreeSet::from(["old".to_owned()]));
}

#[test]
fn name_conflicts_are_reported() {
    let mut cluster = serving();
    cluster.observation.foreign = BTreeSet::from([("Service".to_owned(), "zk".to_owned())]);
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked").unwrap().1, "NameConflict");
}

#[test]
fn volumes_that_no_server_mounts_are_listed() {
    let mut cluster = serving();
    cluster.observation.claims = vec![
        fixtures::claim("data-zk-old-0", "old"),
        fixtures::claim("data-zk-abc-0", "abc"),
        fixtures::claim("data-zk-abc-1", "abc"),
        fixtures::claim("data-zk-abc-11", "abc"),
    ];
    assert_eq!(cluster.reconcile().status.volumes, ["data-zk-abc-11", "data-zk-old-0"]);
}

/// An abandoned cluster is back: Karmada deletes its object, and the rest of the ensemble is gone.
#[rstest]
#[case::deleted(true)]
#[case::released(false)]
fn a_tombstone_ends_an_incarnation_as_decommissioning_does(#[case] by_karmada: bool) {
    let mut cluster = serving();
    cluster.views(true, None);
    if by_karmada {
        cluster.delete();
    } else {
        cluster.observation.object.metadata.labels = None;
    }
    cluster.observation.object.spec.template.storage.reclaim = Some(Reclaim::Delete);
    let decision = cluster.reconcile();
    assert!(decision.finalizer && decision.remove.is_empty(), "without a tombstone its servers may be needed");
    cluster.observation.tombstones.insert("abc".into());
    let decision = cluster.reconcile();
    assert_eq!((decision.remove, decision.reclaim), (BTreeSet::from(["abc".to_owned()]), Reclaim::Delete));
    assert!(decision.finalizer && decision.replicas.is_none() && !decision.remove_object);
    cluster.empty();
    cluster.observation.views.clear();
    let decision = cluster.reconcile();
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!((decision.finalizer, decision.remove_object), (!by_karmada, !by_karmada));
}

/// An older copy of the control plane declares an incarnation that is over.
#[test]
fn an_incarnation_that_is_over_starts_no_server() {
    let mut cluster = Cluster::new(list(1, ALL));
    cluster.assign(2, "r1");
    assert_eq!(cluster.reconcile().replicas, Some((2, 0)));
    cluster.observation.tombstones.insert("abc".into());
    assert_eq!(cluster.reconcile().replicas, None);
    assert_eq!(cluster.condition("Blocked").unwrap(), ("True".into(), "DeclaredOver".into()));
    cluster.delete();
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked"), None, "the object ends too");
}

/// Its node does not answer. The operator shows these words while it waits for the end of the ensemble.
#[test]
fn a_pod_that_does_not_end_is_named() {
    let mut cluster = serving();
    cluster.list(list_in(EnsemblePhase::Running.ended(), 2, ALL));
    cluster.observation.servers[0].1.terminating = true;
    // It had not served for long when its pod was deleted.
    cluster.observation.servers[0].1.unready_for = Duration::from_secs(3600);
    for named in [false, true] {
        cluster.observation.servers[0].1.overdue = named;
        cluster.reconcile();
        let said = cluster.reported().conditions.iter().find(|condition| condition.type_ == "Progressing");
        assert_eq!(said.is_some_and(|said| said.message.starts_with("zk-abc-0 is being stopped")), named, "{said:?}");
    }
}

/// It is the object of another incarnation, which waited beside this one. Its user deleted it, so nothing creates it again.
#[test]
fn servers_keep_the_object_of_another_incarnation_that_is_deleted() {
    let mut cluster = serving();
    cluster.list(Ensemble::default());
    cluster.reconcile();
    cluster.delete();
    cluster.now += 200;
    assert!(cluster.reconcile().finalizer);
    let blocked = cluster.reported().conditions.iter().find(|condition| condition.type_ == "Blocked").unwrap();
    assert_eq!(blocked.reason, "Deleted");
    assert!(blocked.message.contains("then run mczk adopt"), "{}", blocked.message);
}

/// The quorum is in this cluster alone. Without a tombstone the agent does not know if the ensemble has ended elsewhere.
#[test]
fn a_cluster_with_the_whole_quorum_waits_for_a_tombstone() {
    let mut cluster = started(list(1, &ALL[..2]), Some(&configuration(&ALL[..2])));
    cluster.reconcile();
    cluster.delete();
    assert!(cluster.reconcile().finalizer);
    cluster.now += 200;
    assert!(!cluster.reconcile().finalizer, "a user deleted it, and Karmada creates it again");
}

/// Without its status a server that lost its volume would begin again, and with a server that never ran it would be a majority.
#[rstest]
#[case::first_starts_are_needed(EnsemblePhase::Bootstrapping, None, true)]
#[case::formed(EnsemblePhase::Formed, None, false)]
#[case::broken(EnsemblePhase::Bootstrapping, Some(Mutation::ForgetFirstStarts), false)]
fn a_deleted_object_stays_until_its_first_starts_are_not_needed(
    #[case] phase: EnsemblePhase,
    #[case] mutation: Option<Mutation>,
    #[case] stays: bool,
) {
    let _active = mutation.map(Mutation::activate);
    let mut cluster = started(list_in(EnsemblePhase::Bootstrapping, 1, ALL), Some(&configuration(ALL)));
    let volume = "n".to_owned();
    cluster.observation.servers[0].1.view.as_mut().unwrap().first_start = Some(volume.clone());
    cluster.reconcile();
    assert_eq!(
        cluster.reported().first_starts,
        [FirstStart { id: 1, volume }, FirstStart { id: 2, volume: "unused-abc".into() }]
    );
    cluster.list(list_in(phase, 2, ALL));
    cluster.reconcile();
    cluster.delete();
    assert_eq!(cluster.reconcile().finalizer, stays);
}

/// The same name was declared again while this cluster was unreachable: the deleted object holds the new spec already.
#[test]
fn servers_of_a_former_incarnation_do_not_stay_without_an_owner() {
    let mut cluster = serving();
    cluster.delete();
    let other = |epoch: i64, former: &[&str]| {
        let former = former.iter().map(|id| (*id).to_owned()).collect();
        with_hash(Ensemble {
            incarnation: Some("new".into()),
            former_incarnations: former,
            phase: EnsemblePhase::Bootstrapping,
            ..list(epoch, ALL)
        })
        .unwrap()
    };
    cluster.list(other(1, &[]));
    cluster.assign(2, "r1");
    cluster.observation.views.clear();
    let decision = cluster.reconcile();
    assert!(decision.finalizer && decision.remove.is_empty() && decision.replicas.is_none());
    assert_eq!(cluster.condition("Blocked").unwrap().1, "FormerIncarnation");
    assert_eq!(cluster.condition("FormerIncarnation").unwrap().0, "True");
    cluster.list(other(2, &["abc"]));
    let decision = cluster.reconcile();
    assert_eq!(decision.remove, BTreeSet::from(["abc".to_owned()]));
    assert!(
        decision.finalizer && decision.requeue == Requeue::Busy && cluster.condition("FormerIncarnation").is_none()
    );
    cluster.empty();
    cluster.observation.views.clear();
    assert!(!cluster.reconcile().finalizer, "Karmada creates the new object");
    cluster.observation.object.metadata.deletion_timestamp = None;
    cluster.observation.object.metadata.finalizers = None;
    cluster.observation.object.status = None;
    let decision = cluster.reconcile();
    assert_eq!((decision.replicas, decision.finalizer), (Some((2, 0)), true));
}

/// Karmada takes a few seconds to propagate a Secret: only later is one reported as missing.
#[test]
fn a_secret_that_does_not_arrive_is_reported() {
    let mut cluster = started(list(1, ALL), Some(&configuration(ALL)));
    cluster.observation.missing_secrets = vec!["zk-abc-trust-2".to_owned()];
    for (seconds, reported) in [(29, 0), (30, 1)] {
        cluster.observation.missing_for = Duration::from_secs(seconds);
        assert_eq!(
            decide(&cluster.observation, Timestamp::UNIX_EPOCH).status.missing_secrets.len(),
            reported,
            "after {seconds} s"
        );
    }
}

/// A server of m1 that is to go: its volume, if a request names that, or else its pod for another revision.
fn going(with_volume: bool, held: bool) -> Cluster {
    let mut cluster = started(list(1, ALL), Some(&configuration(ALL)));
    cluster.observation.claims = vec![fixtures::claim("data-zk-abc-1", "abc")];
    let annotations = &mut cluster.observation.object.metadata.annotations;
    if with_volume {
        let request = (REPLACE_VOLUME.to_owned(), "2/uid-data-zk-abc-1".to_owned());
        annotations.get_or_insert_default().extend([request]);
    } else {
        cluster.observation.servers[1].1.revision = "r0".into();
    }
    let lock = RestartLock { holder: "m1".into(), server: 2 };
    cluster.observation.views.iter_mut().for_each(|view| view.restart_lock = held.then(|| lock.clone()));
    cluster
}

/// An admission policy or a missing right keeps the claim or the pod. Others do not wait for the lock meanwhile.
#[rstest]
#[case::claim(true, "uid-data-zk-abc-1")]
#[case::pod_after_its_claim(true, "r1-1")]
#[case::pod(false, "r1-1")]
fn a_refused_deletion_is_reported_and_frees_the_lock(#[case] with_volume: bool, #[case] uid: &str) {
    let deletes = |decision: &Decision| match &decision.replace {
        ReplaceStep::Delete(_) => true,
        _ => matches!(decision.restart, RestartStep::RestartServing { .. }),
    };
    for held in [true, false] {
        let mut cluster = going(with_volume, held);
        assert!(deletes(&cluster.reconcile()));
        let refused = |ago| RefusedDeletion { uid: uid.to_owned(), why: "no policy allows it".to_owned(), ago };
        cluster.observation.refused_deletions = vec![refused(Duration::ZERO)];
        let decision = cluster.reconcile();
        assert!(!deletes(&decision), "{decision:?}");
        assert_eq!(matches!(decision.restart, RestartStep::Release(_)), held, "{:?}", decision.restart);
        let conditions = serde_json::to_string(&decision.status.conditions).unwrap();
        assert_eq!(conditions.contains("no policy allows it"), with_volume || !held, "{conditions}");
        cluster.observation.refused_deletions = vec![refused(Duration::from_secs(30))];
        let decision = cluster.reconcile();
        assert!(deletes(&decision), "the agent tries again");
        let conditions = serde_json::to_string(&decision.status.conditions).unwrap();
        assert_eq!(conditions.contains("no policy allows it"), with_volume, "the cause stays until a try succeeds");
    }
}

/// Server 1 serves, and its volume ends with its pod. It may not stop while server 2 is down, and server 2 does not wait for it.
#[rstest]
#[case::requested(true)]
#[case::begun_too(false)]
fn a_deletion_that_has_to_wait_holds_up_no_other_one(#[case] requested: bool) {
    let mut cluster = going(requested, false);
    let down = ServerReport { accepted_epoch: 1, ..report(2, Mode::Looking, false) };
    cluster.observation.servers[1].1 = LocalServer { view: Some(down.clone()), ..server(1, "r1") };
    cluster.observation.views.retain(|view| view.id != Some(2));
    cluster.observation.views.push(down);
    cluster.observation.claims[0].ending = !requested;
    cluster.observation.claims.insert(0, Claim { ending: true, ..fixtures::claim("data-zk-abc-0", "abc") });
    let decision = cluster.reconcile();
    assert!(
        matches!(&decision.replace, ReplaceStep::Delete(deletion) if deletion.server == 2),
        "{:?}",
        decision.replace
    );
}

/// The user takes a request back by hand, after the claim was deleted.
#[test]
fn a_request_that_is_none_stops_no_deletion_that_has_begun() {
    let mut cluster = going(true, false);
    cluster.observation.claims[0].ending = true;
    let annotations = cluster.observation.object.metadata.annotations.get_or_insert_default();
    annotations.insert(REPLACE_VOLUME.to_owned(), String::new());
    assert!(matches!(cluster.reconcile().replace, ReplaceStep::Delete(_)));
}

/// What the API server refuses of one server holds up no other one.
#[test]
fn a_refused_deletion_holds_up_neither_the_pod_of_a_refused_claim_nor_other_pods() {
    let refused =
        |uid: &str| RefusedDeletion { uid: uid.to_owned(), why: "no policy allows it".to_owned(), ago: Duration::ZERO };
    let restarts = |cluster: &mut Cluster| match cluster.reconcile().restart {
        RestartStep::RestartServing { pod, .. } => pod,
        other => panic!("{other:?}"),
    };
    let mut cluster = going(true, false);
    cluster.observation.servers[1].1.revision = "r0".into();
    cluster.observation.refused_deletions = vec![refused("uid-data-zk-abc-1")];
    assert_eq!(restarts(&mut cluster), "zk-abc-1");
    let mut cluster = going(false, false);
    cluster.observation.servers[0].1.revision = "r0".into();
    assert_eq!(restarts(&mut cluster), "zk-abc-0");
    cluster.observation.refused_deletions = vec![refused("r1-0")];
    assert_eq!(restarts(&mut cluster), "zk-abc-1");
}

/// The claim went at the second attempt, and the pod is refused now.
#[test]
fn the_newest_refusal_counts() {
    let mut cluster = going(true, false);
    cluster.observation.claims[0].ending = true;
    let refused = |uid: &str, why: &str, seconds| RefusedDeletion {
        uid: uid.to_owned(),
        why: why.to_owned(),
        ago: Duration::from_secs(seconds),
    };
    cluster.observation.refused_deletions =
        vec![refused("uid-data-zk-abc-1", "claims stay", 40), refused("r1-1", "pods stay", 1)];
    let replace = cluster.reconcile().replace;
    assert!(matches!(&replace, ReplaceStep::Wait(why) if why.contains("pods stay")), "{replace:?}");
}

/// The lock is for all clusters: it ends although the deletion fails again and again, for whatever cause.
#[test]
fn a_replacement_releases_the_lock_after_its_limit() {
    let mut cluster = going(true, true);
    assert!(matches!(cluster.reconcile().replace, ReplaceStep::Delete(_)));
    cluster.observation.locked_for = restart::LOCK_LIMIT;
    let decision = cluster.reconcile();
    assert!(matches!((decision.replace, decision.restart), (ReplaceStep::Wait(_), RestartStep::Release(_))));
}

/// The StatefulSet controller of this cluster does not run, or confirmations of the lock come too late.
#[rstest]
fn a_restart_that_does_not_begin_releases_the_lock_after_its_limit(#[values(true, false)] is_current: bool) {
    let mut cluster = going(false, true);
    if !is_current {
        cluster.observation.sets[0].revision = None;
    }
    let lock = RestartLock { holder: "m1".into(), server: 2 };
    assert!(!matches!(cluster.reconcile().restart, RestartStep::Release(_)));
    cluster.observation.locked_for = restart::LOCK_LIMIT;
    assert_eq!(cluster.reconcile().restart, RestartStep::Release(lock));
}

/// An agent holds the lock, and its spec is not accepted any more. Other clusters go on once its server is back.
#[test]
fn an_agent_that_does_not_act_hands_the_lock_back() {
    let mut cluster = serving();
    let lock = RestartLock { holder: "m1".into(), server: 1 };
    cluster.observation.views.iter_mut().for_each(|view| view.restart_lock = Some(lock.clone()));
    cluster.observation.object.spec.spec_hash = None;
    cluster.stored();
    assert_eq!(cluster.reconcile().restart, RestartStep::Release(lock.clone()));
    cluster.observation.servers[0].1.view = None;
    assert!(matches!(cluster.reconcile().restart, RestartStep::Wait(_)), "it may be on its way back");
    cluster.observation.locked_for = restart::LOCK_LIMIT;
    assert_eq!(cluster.reconcile().restart, RestartStep::Release(lock));
}

#[test]
fn a_request_that_is_none_is_reported() {
    let mut cluster = going(true, false);
    cluster
        .observation
        .object
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(REPLACE_VOLUME.to_owned(), "the second one".to_owned());
    let decision = cluster.reconcile();
    assert!(matches!(&decision.replace, ReplaceStep::Wait(why) if why.contains("Remove it, and use mczk replace")));
    assert_eq!(cluster.condition("Replacing").unwrap().1, "ReplacementWaits");
}

/// A volume that is being deleted ends with its pod. While all servers are being suspended, each volume may be the last copy.
#[test]
fn a_suspended_server_with_an_ending_volume_keeps_its_pod() {
    let mut cluster = started(list_in(EnsemblePhase::Bootstrapping, 1, ALL), None);
    cluster.list(list_in(EnsemblePhase::Suspended, 2, ALL));
    cluster.observation.sets[0].revision = Some("r1.suspended".into());
    cluster.observation.servers[1].1.view = None;
    assert!(matches!(cluster.reconcile().restart, RestartStep::Restart { .. }));
    cluster.observation.claims = vec![Claim { ending: true, ..fixtures::claim("data-zk-abc-1", "abc") }];
    assert!(matches!(cluster.reconcile().restart, RestartStep::Wait(_)));
    // Another one that does not answer gets a new pod meanwhile.
    cluster.observation.servers[0].1.view = None;
    let restarts = cluster.reconcile().restart;
    assert!(matches!(&restarts, RestartStep::Restart { pod, .. } if pod == "zk-abc-0"), "{restarts:?}");
}

/// The new object of a lost control plane: Karmada overwrites the spec, and the status stays.
fn created_again(cluster: &mut Cluster) {
    let replicas = cluster.observation.object.spec.replicas;
    cluster.observation.object.spec = zookeeper_spec(json!({ "replicas": replicas }));
    cluster.stored();
}

/// A list of the new object. `former` are the incarnations that its user declares over.
fn of_new_object(former: &[&str]) -> Ensemble {
    let former_incarnations = former.iter().map(|id| (*id).to_owned()).collect();
    let phase = EnsemblePhase::Bootstrapping;
    with_hash(Ensemble { incarnation: Some("new".into()), former_incarnations, phase, ..list(1, ALL) }).unwrap()
}

#[test]
fn servers_whose_object_lost_its_list_run_on() {
    let mut cluster = serving();
    cluster.observation.claims = vec![fixtures::claim("data-zk-abc-0", "abc")];
    cluster.reconcile();
    created_again(&mut cluster);
    let decision = cluster.reconcile();
    assert!(decision.replicas.is_none() && decision.remove.is_empty() && decision.restart == RestartStep::Nothing);
    assert_eq!(cluster.reported().ensemble.as_ref().unwrap().incarnation.as_deref(), Some("abc"));
    assert_eq!(cluster.reported().other_incarnations.as_deref(), Some(&[][..]));
    // The object is deleted and created too.
    cluster.observation.object.status = None;
    let decision = cluster.reconcile();
    assert!(decision.replicas.is_none() && decision.remove.is_empty() && decision.keeps_clients);
    let other = OtherIncarnation { incarnation: "abc".into(), servers: 2, volumes: 1 };
    assert_eq!(cluster.reported().other_incarnations.as_deref(), Some(&[other][..]));
}

/// Whether an empty ensemble takes the Service from servers that nothing declares over.
fn takes_service(former: &[&str]) -> bool {
    let mut cluster = serving();
    cluster.reconcile();
    cluster.list(of_new_object(former));
    cluster.assign(2, "r1");
    let decision = cluster.reconcile();
    assert_eq!(decision.replicas, Some((2, 0)));
    !decision.keeps_clients
}

#[test]
fn living_servers_keep_the_service_until_they_are_declared_over() {
    assert!(!takes_service(&[]) && takes_service(&["abc"]));
    assert!(Mutation::with(Some(Mutation::EmptyTakesService), || takes_service(&[])));
}

/// What becomes of the volumes of an incarnation that the new object declares over, and deletes its own.
fn reclaims_declared() -> Reclaim {
    let mut cluster = serving();
    cluster.list(of_new_object(&["abc"]));
    cluster.observation.object.spec.template.storage.reclaim = Some(Reclaim::Delete);
    cluster.assign(2, "r1");
    let decision = cluster.reconcile();
    assert!(decision.remove.contains("abc"));
    assert_eq!(decision.reclaim_of("new"), Reclaim::Delete);
    decision.reclaim_of("abc")
}

#[test]
fn declaring_an_incarnation_over_deletes_no_volume() {
    assert_eq!(reclaims_declared(), Reclaim::Retain);
    assert_eq!(Mutation::with(Some(Mutation::ReclaimDeclared), reclaims_declared), Reclaim::Delete);
}

/// The tombstone of an incarnation arrives after the object of another one: its volumes are none of that object's.
#[test]
fn an_object_deletes_only_volumes_that_its_own_servers_made() {
    let mut cluster = serving();
    cluster.reconcile();
    created_again(&mut cluster);
    cluster.observation.object.spec.template.storage.reclaim = Some(Reclaim::Delete);
    cluster.observation.tombstones.insert("abc".into());
    let decision = cluster.reconcile();
    assert_eq!((decision.remove.contains("abc"), decision.reclaim_of("abc")), (true, Reclaim::Retain));
}

#[test]
fn volumes_whose_servers_the_agent_removed_are_no_life() {
    let mut cluster = serving();
    let removed = |name: &str| Claim { servers_removed: true, ..fixtures::claim(name, "old") };
    cluster.observation.claims = vec![removed("data-zk-old-0"), removed("data-zk-old-1")];
    cluster.reconcile();
    assert_eq!(cluster.reported().other_incarnations.as_deref(), Some(&[][..]));
    cluster.observation.claims.push(fixtures::claim("data-zk-older-0", "older"));
    cluster.reconcile();
    let older = OtherIncarnation { incarnation: "older".into(), servers: 0, volumes: 1 };
    assert_eq!(cluster.reported().other_incarnations.as_deref(), Some(&[older][..]));
    assert!(cluster.condition("FormerIncarnation").is_some());
}

/// A cluster that has left and come back mounts the same claims.
#[test]
fn a_marked_volume_that_a_server_uses_lives_again() {
    let mut cluster = serving();
    let pod = cluster.observation.servers[0].1.pod.clone();
    let marked = |name: String, id: &str| Claim { servers_removed: true, ..fixtures::claim(&name, id) };
    cluster.observation.claims = vec![
        marked(format!("data-{pod}"), "abc"),
        marked("data-zk-abc-7".into(), "abc"),
        marked("data-zk-old-0".into(), "old"),
    ];
    let again = unused_claims::used_again(&cluster.observation, "abc");
    assert_eq!(again.map(|claim| claim.name.clone()).collect::<Vec<_>>(), [format!("data-{pod}")]);
}

/// Each kind of object, at the bootstrap and later. The rest of the decision is as before.
#[rstest]
#[case::first_server("StatefulSet", false)]
#[case::later("StatefulSet", true)]
#[case::of_clients("Service", true)]
#[case::pod("Pod", false)]
#[case::finalizer("ZooKeeper", true)]
fn a_refused_object_is_reported_in_the_words_of_the_api_server(#[case] kind: &str, #[case] later: bool) {
    let mut cluster = if later { serving() } else { started(list_in(EnsemblePhase::Bootstrapping, 1, ALL), None) };
    cluster.assign(2, "r2");
    let before = cluster.reconcile();
    let (name, why) = ("zk-abc".to_owned(), "exceeded quota: compute".to_owned());
    cluster.observation.refusals = vec![RefusedChange { kind: kind.to_owned(), name, why, undone: false }];
    let after = cluster.reconcile();
    let message = cluster.reported().conditions.iter().find(|c| c.type_ == "Blocked").map(|c| c.message.clone());
    assert_eq!(cluster.condition("Blocked").unwrap().1, "ObjectRefused");
    assert_eq!(message.unwrap(), format!("{kind} zk-abc is refused: exceeded quota: compute"));
    assert!(!cluster.complete());
    assert_eq!((after.membership, after.restart), (before.membership, before.restart));
}

#[test]
fn refusals_are_reported_at_the_end_too_and_their_number_is_bounded() {
    let mut cluster = serving();
    cluster.list(list_in(EnsemblePhase::Decommissioning, 9, ALL));
    let refusal =
        |n: i32| RefusedChange { kind: "Service".into(), name: format!("s{n}"), why: "no".into(), undone: false };
    cluster.observation.refusals = (0..9).map(refusal).collect();
    cluster.reconcile();
    let blocked = cluster.reported().conditions.iter().find(|c| c.type_ == "Blocked").unwrap();
    assert!(blocked.message.ends_with("Service s2 is refused: no; and 6 more"), "{}", blocked.message);
}

/// Servers need neither the pod of the network check nor its name.
#[test]
fn a_probe_that_is_refused_blocks_no_spec() {
    let mut cluster = serving();
    let (kind, name, why) = (PROBE.to_owned(), "zk-abc-2".to_owned(), "exceeded quota".to_owned());
    cluster.observation.foreign.insert(("Pod".to_owned(), name.clone()));
    cluster.observation.refusals = vec![RefusedChange { kind, name, why, undone: false }];
    cluster.assign(2, "r1");
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
}

/// Its servers are as the spec declares, so the rollout goes on.
#[test]
fn what_another_writer_undoes_is_reported_and_blocks_nothing() {
    let mut cluster = serving();
    let why = "tuner changes spec.template.spec.tolerations".to_owned();
    cluster.observation.refusals =
        vec![RefusedChange { kind: "StatefulSet".into(), name: "zk-abc".into(), why, undone: true }];
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(cluster.condition("Contested").unwrap(), ("True".into(), "ChangedByOthers".into()));
}

/// Every server is as declared, so the change goes on to the next cluster.
#[rstest]
#[case::of_a_former_revision("The deletion of ConfigMap", "zk-abc-r0")]
#[case::of_former_certificates("The deletion of Secret", "zk-abc-client")]
#[case::of_applications("ConfigMap", "zk-client")]
fn a_refusal_of_what_no_server_needs_blocks_nothing(#[case] kind: &str, #[case] name: &str) {
    let mut cluster = serving();
    let refusal =
        RefusedChange { kind: kind.to_owned(), name: name.to_owned(), why: "not today".into(), undone: false };
    cluster.observation.refusals = vec![refusal];
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(cluster.condition("Contested").unwrap(), ("True".into(), "ObjectRefused".into()));
    let said = cluster.reported().conditions.iter().find(|condition| condition.type_ == "Contested").unwrap();
    assert_eq!(said.message, format!("{kind} {name} is refused: not today"));
    cluster.list(list_in(EnsemblePhase::Running.ended(), 2, ALL));
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked").unwrap(), ("True".into(), "ObjectRefused".into()), "the end waits for it");
}

/// Another tool has taken the labels off the StatefulSet: its pods come back as they were, and would restart for ever. Not so if it
/// deleted the StatefulSet without its pods.
#[rstest]
#[case::of_voters(Role::Voter, false, true)]
#[case::of_observers(Role::Observer, false, true)]
#[case::of_observers_that_is_gone(Role::Observer, true, false)]
fn no_server_restarts_whose_stateful_set_the_agent_does_not_see(
    #[case] role: Role,
    #[case] orphaned: bool,
    #[case] waits: bool,
) {
    let mut cluster = serving();
    cluster.assign(2, "r2");
    cluster.reconcile();
    if role == Role::Voter {
        cluster.observation.sets.clear();
    } else {
        cluster.observation.sets[0].revision = Some("r2".into());
        let observer = LocalServer { pod: "zk-abc-o-0".into(), uid: "o".into(), role, orphaned, ..server(0, "r1") };
        cluster.observation.servers.push(("abc".into(), observer));
    }
    let restart = cluster.reconcile().restart;
    let for_sets = RestartStep::Wait("Waiting for the StatefulSet controller".to_owned());
    assert_eq!(restart == for_sets, waits, "{restart:?}");
}

/// A dry run accepts a pod that could not start: the agent would stop a server for nothing.
#[rstest]
#[case::mounted("ConfigMap", true)]
#[case::account("ServiceAccount", true)]
#[case::certificates("Secret", true)]
#[case::of_others("Service", false)]
#[case::surplus("The deletion of ConfigMap", false)]
fn a_server_stays_while_an_object_is_refused_that_its_next_pod_mounts(
    #[case] kind: &str,
    #[case] stays: bool,
    #[values(true, false)] held: bool,
    #[values(true, false)] with_volume: bool,
) {
    let mut cluster = going(with_volume, held);
    let (name, why) = ("zk-abc-r1".to_owned(), "no more of these".to_owned());
    cluster.observation.refusals = vec![RefusedChange { kind: kind.to_owned(), name, why, undone: false }];
    let decision = cluster.reconcile();
    let goes = matches!(decision.replace, ReplaceStep::Delete(_))
        || matches!(decision.restart, RestartStep::RestartServing { .. });
    assert_eq!(goes, !stays, "{decision:?}");
    if stays && held && !with_volume {
        assert!(matches!(decision.restart, RestartStep::Release(_)), "{decision:?}");
    }
    let waits = |why: &str| why.contains(&format!("{kind} zk-abc-r1"));
    match (&decision.replace, &decision.restart) {
        (ReplaceStep::Wait(why), _) | (ReplaceStep::Nothing, RestartStep::Wait(why)) => assert!(waits(why), "{why}"),
        _ => {}
    }
}

/// The claim of a server of m1. `words` are how its growth stands.
fn sized(ordinal: i32, requested: &str, capacity: &str, words: &[&str]) -> Claim {
    let growth: Vec<String> = words.iter().map(|words| (*words).to_owned()).collect();
    let size = VolumeSize {
        requested: requested.into(),
        capacity: Some(capacity.into()),
        class: Some("fast".into()),
        failed: words.iter().any(|words| words.contains("Error")),
        growth,
        file_system_pending: None,
    };
    Claim { size, ..fixtures::claim(&format!("data-zk-abc-{ordinal}"), "abc") }
}

/// A cluster that serves, and for which 2Gi are declared now.
fn larger(claims: Vec<Claim>) -> Cluster {
    let mut cluster = serving();
    cluster.observation.claims = claims;
    cluster.observation.object.spec.template.storage.size.0 = "2Gi".into();
    cluster.assign(2, "r1");
    cluster
}

fn message(cluster: &Cluster, type_: &str) -> String {
    let found = cluster.reported().conditions.iter().find(|condition| condition.type_ == type_);
    found.map(|condition| condition.message.clone()).unwrap_or_default()
}

#[rstest]
#[case::both_have_it(vec![sized(0, "2Gi", "2Gi", &[]), sized(1, "2Gi", "3Gi", &[])], true)]
#[case::one_only_requests_it(vec![sized(0, "2Gi", "2Gi", &[]), sized(1, "2Gi", "1Gi", &[])], false)]
#[case::its_file_system_is_left(vec![sized(0, "2Gi", "1Gi", &["FileSystemResizePending: start a pod"])], false)]
#[case::it_failed(vec![sized(0, "2Gi", "1Gi", &["NodeResizeError: full"])], false)]
#[case::of_no_server(vec![sized(7, "1Gi", "1Gi", &[])], true)]
#[case::of_another_incarnation(vec![Claim { incarnation: "old".into(), ..sized(0, "1Gi", "1Gi", &[]) }], true)]
fn a_cluster_is_complete_once_its_volumes_have_the_declared_size(#[case] claims: Vec<Claim>, #[case] expected: bool) {
    let mut cluster = larger(claims);
    cluster.reconcile();
    assert_eq!(cluster.complete(), expected, "{:?}", cluster.reported().conditions);
}

#[test]
fn a_volume_that_grows_is_reported_in_kubernetes_words() {
    let mut cluster =
        larger(vec![sized(0, "1Gi", "1Gi", &[]), sized(1, "2Gi", "1Gi", &["Resizing", "NodeResizePending"])]);
    cluster.reconcile();
    assert_eq!(cluster.condition("Progressing"), Some(("True".into(), "GrowingVolume".into())));
    let expected =
        "PersistentVolumeClaim data-zk-abc-1 has 1Gi and not template.storage.size 2Gi: Resizing; NodeResizePending";
    assert_eq!(message(&cluster, "Progressing"), expected);
    assert_eq!(cluster.condition("Blocked"), None);
    cluster.observation.claims = vec![sized(0, "2Gi", "1Gi", &["ControllerResizeError: no room"])];
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked"), Some(("True".into(), "VolumeNotResized".into())));
    let blocked = message(&cluster, "Blocked");
    assert!(blocked.contains("ControllerResizeError: no room") && blocked.contains("class fast"), "{blocked}");
    // It tries again, and succeeds.
    cluster.observation.claims = vec![sized(0, "2Gi", "2Gi", &[])];
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
}

/// The API server refuses a size. No other volume is asked for meanwhile, and only the volume's own words are reported.
#[test]
fn a_refused_size_is_reported_with_its_class() {
    let mut cluster = larger(vec![sized(0, "1Gi", "1Gi", &[]), sized(1, "1Gi", "1Gi", &[])]);
    let refusal = |kind: &str| RefusedChange {
        kind: kind.into(),
        name: "data-zk-abc-1".into(),
        why: "only dynamically provisioned pvc can be resized".into(),
        undone: false,
    };
    cluster.observation.refusals = vec![refusal(growth::SIZE)];
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked").unwrap().1, "VolumeNotResized");
    let blocked = message(&cluster, "Blocked");
    assert!(
        blocked.starts_with(
            "PersistentVolumeClaim data-zk-abc-1 cannot grow to template.storage.size 2Gi: only dynamically"
        ),
        "{blocked}"
    );
    assert!(blocked.contains("class fast"), "{blocked}");
    // The size was lowered again. The refusal is forgotten a moment later.
    cluster.observation.object.spec.template.storage.size.0 = "1Gi".into();
    cluster.assign(2, "r1");
    cluster.reconcile();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none(), "{:?}", cluster.reported().conditions);
    // A claim that cannot be created is another matter.
    cluster.observation.refusals = vec![refusal("PersistentVolumeClaim")];
    cluster.reconcile();
    assert_eq!(cluster.condition("Blocked").unwrap().1, "ObjectRefused");
}

/// The kubelet grows the file system when it mounts the volume.
#[test]
fn a_server_whose_file_system_waits_for_a_mount_restarts_under_the_lock() {
    let mut cluster = larger(vec![sized(0, "2Gi", "1Gi", &["FileSystemResizePending: start a pod"])]);
    assert_eq!(cluster.reconcile().restart, RestartStep::Nothing, "the kubelet may grow it in use");
    cluster.observation.servers[0].1.needs_mount = true;
    let restart = cluster.reconcile().restart;
    assert!(matches!(&restart, RestartStep::RestartServing { server: 1, held: false, .. }), "{restart:?}");
    // Another voter is down: the server stays, and both words are reported.
    cluster.observation.views.retain(|view| view.id != Some(5));
    assert!(matches!(cluster.reconcile().restart, RestartStep::Wait(_)));
    let waits = message(&cluster, "Progressing");
    assert!(waits.contains("FileSystemResizePending: start a pod. zk-abc-0 is not restarted: server 5"), "{waits}");
}

#[rstest]
#[case::lowered_to_the_declared_size(&[("1Gi", "1Gi"), ("4Gi", "1Gi")], true, &["data-zk-abc-1", "data-zk-abc-0"])]
#[case::not_while_storage_may_still_give_it(&[("1Gi", "1Gi"), ("4Gi", "1Gi")], false, &[])]
#[case::nothing_is_left_to_lower(&[("1Gi", "1Gi"), ("4Gi", "2Gi")], true, &["data-zk-abc-0"])]
#[case::the_declared_size_is_refused_too(&[("1Gi", "1Gi"), ("2Gi", "1Gi")], true, &[])]
fn a_refused_request_is_lowered_before_another_volume_grows(
    #[case] sizes: &[(&str, &str)],
    #[case] refused: bool,
    #[case] expected: &[&str],
) {
    let words: &[&str] = if refused { &["ControllerResizeError: no room"] } else { &[] };
    let mut claims: Vec<Claim> =
        (0..).zip(sizes).map(|(ordinal, (requested, capacity))| sized(ordinal, requested, capacity, &[])).collect();
    claims[1] = sized(1, sizes[1].0, sizes[1].1, words);
    let Cluster { observation, .. } = larger(claims);
    let due = growth::due(&observation.claims, &observation.servers, "abc", "2Gi");
    assert_eq!(due.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn the_smallest_volume_of_a_server_is_reported() {
    let mut cluster = larger(vec![
        sized(0, "2Gi", "2Gi", &[]),
        sized(1, "2Gi", "1536Mi", &[]),
        sized(7, "1Gi", "1Gi", &[]),
        Claim { incarnation: "old".into(), ..sized(0, "1Gi", "1Gi", &[]) },
    ]);
    cluster.reconcile();
    assert_eq!(cluster.reported().smallest_volume.as_ref().map(|size| size.0.as_str()), Some("1536Mi"));
}

#[rstest]
#[case::the_first(&[("1Gi", "1Gi"), ("1Gi", "1Gi")], &["data-zk-abc-0", "data-zk-abc-1"])]
#[case::none_while_one_grows(&[("2Gi", "1Gi"), ("1Gi", "1Gi")], &[])]
#[case::the_next(&[("2Gi", "2Gi"), ("1Gi", "1Gi")], &["data-zk-abc-1"])]
#[case::a_volume_may_be_larger_than_requested(&[("1Gi", "5Gi"), ("1Gi", "1Gi")], &["data-zk-abc-1"])]
#[case::none_is_left(&[("2Gi", "2Gi"), ("2Gi", "2Gi")], &[])]
fn volumes_grow_one_after_another(#[case] sizes: &[(&str, &str)], #[case] expected: &[&str]) {
    let claims = (0..).zip(sizes).map(|(ordinal, (requested, capacity))| sized(ordinal, requested, capacity, &[]));
    let Cluster { observation, .. } = larger(claims.collect());
    let due = growth::due(&observation.claims, &observation.servers, "abc", "2Gi");
    assert_eq!(due.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(), expected);
    let ending = [Claim { ending: true, ..sized(0, "1Gi", "1Gi", &[]) }];
    assert!(growth::due(&ending, &observation.servers, "abc", "2Gi").is_empty(), "it ends with its pod");
}

/// It keeps no change from being complete, and nothing restarts for it.
#[test]
fn an_agent_that_may_not_read_nodes_says_so() {
    let mut cluster = serving();
    cluster.observation.unread_nodes = Some("nodes are forbidden".into());
    let decision = cluster.reconcile();
    assert_eq!(cluster.condition("Draining"), Some(("Unknown".into(), "NodesUnread".into())));
    assert!(message(&cluster, "Draining").starts_with("The agent may not read nodes: nodes are forbidden. So"));
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!((decision.requeue, decision.restart), (Requeue::AtRest, RestartStep::Nothing));
    let before = cluster.reported().clone();
    cluster.reconcile();
    assert_eq!(*cluster.reported(), before, "it is written once");
    cluster.observation.unread_nodes = None;
    cluster.reconcile();
    assert!(cluster.condition("Draining").is_none());
}

/// The last report of an agent that cannot continue must not count for ever.
#[test]
fn a_halted_agent_reports_that_it_sees_no_server() {
    let mut cluster = serving();
    let before = cluster.reported().clone();
    let why = Cause::new(Reason::RequestRefused, "It is refused reading claims");
    let halted = status::halted(&before, why.clone(), Timestamp::new(9, 0).unwrap());
    assert_eq!(halted.conditions.iter().map(|c| c.reason.as_str()).collect::<Vec<_>>(), ["RequestRefused"]);
    assert_eq!(status::halted(&halted, why.clone(), Timestamp::new(10, 0).unwrap()), halted, "it is written once");
    let mut newer = serde_json::to_value(&before).unwrap();
    newer["later"] = json!(1);
    newer["servers"][0]["later"] = json!(2);
    let newer = status::halted_as_written(&newer, why, Timestamp::new(9, 0).unwrap()).unwrap();
    assert_eq!(
        (&newer["later"], &newer["servers"][0]["later"]),
        (&json!(1), &json!(2)),
        "fields of a newer version stay"
    );
    assert_eq!(serde_json::from_value::<ZooKeeperStatus>(newer).unwrap(), halted);
    // As if the agent reached no server, and nothing else had changed.
    for (_, server) in &mut cluster.observation.servers {
        (server.view, server.runs) = (None, true);
    }
    cluster.observation.views.clear();
    cluster.reconcile();
    let conditions = halted.conditions.clone();
    assert_eq!(ZooKeeperStatus { conditions, ..cluster.reported().clone() }, halted);
}
