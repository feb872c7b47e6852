//! One cluster of three, m1 with two of the four servers, from the first look to the end.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    agent::decide::membership::Action,
    api::zookeeper::Server,
    contract::{
        control_api::{self, Configuration, ConfiguredServer, Phase},
        server_list::with_hash,
    },
    rollout::cluster_spec,
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
    let list =
        Ensemble { incarnation: Some("abc".into()), epoch: Some(epoch), servers: servers(ids), ..Ensemble::default() };
    with_hash(list).unwrap()
}

struct Cluster {
    observed: Observed,
    now: i64,
}

impl Cluster {
    /// As Karmada brings it: managed, pinned, nothing made yet.
    fn new(list: Ensemble) -> Self {
        let object: ZooKeeper = serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "ZooKeeper",
            "metadata": { "name": "zk", "namespace": "n", "uid": "u", "generation": 1, "labels": { KARMADA_MANAGED_LABEL: "true" } },
            "spec": {
                "replicas": 0, "template": { "image": "zk:1", "storage": { "size": "1Gi" } }, "renderVersion": 1,
                "serverImage": "mczk", "tls": { "quorum": false }, "revision": "r1", "ensemble": {},
            },
        }))
        .unwrap();
        let observed = Observed {
            stored: Value::Null,
            object,
            cluster: Some("m1".into()),
            sets: vec![],
            own: vec![],
            volumes: vec![],
            left: BTreeSet::new(),
            tombstones: BTreeSet::new(),
            views: vec![],
            material: None,
            tls: None,
            mounted: None,
            client: Taken::default(),
            obstacles: vec![],
            published: Some(("abc".into(), i64::MAX)),
            due_for: Duration::ZERO,
            turn_for: Duration::ZERO,
            holder: "m1".into(),
        };
        let mut cluster = Self { observed, now: 0 };
        cluster.list(list);
        cluster
    }

    fn stored(&mut self) {
        self.observed.stored = serde_json::to_value(&self.observed.object.spec).unwrap();
    }

    fn list(&mut self, list: Ensemble) {
        self.observed.object.spec.ensemble = list;
        self.stored();
    }

    fn pin(&mut self, replicas: i32, revision: &str) {
        let spec = &mut self.observed.object.spec;
        spec.revision = revision.into();
        let ensemble = spec.ensemble.clone();
        *spec = cluster_spec::for_cluster(spec, "m1", replicas, spec.spec_hash.as_deref(), 0).unwrap();
        spec.ensemble = ensemble;
        self.stored();
    }

    /// Decides, and remembers what is reported.
    fn look(&mut self) -> Decision {
        self.now += 1;
        let decision = decide(&self.observed, Timestamp::new(self.now, 0).unwrap());
        self.observed.object.status = Some(decision.status.clone());
        if decision.finalizer {
            self.observed.object.metadata.finalizers = Some(vec![AGENT_FINALIZER.into()]);
        }
        decision
    }

    /// What the StatefulSet's controller does with what is decided: pods of the set's revision, that run.
    fn run(&mut self, decision: &Decision, started: bool, configuration: Option<&Configuration>) {
        if let Some((voters, _)) = decision.run {
            let revision = self.observed.object.spec.revision.clone();
            self.observed.left.insert("abc".into());
            self.observed.sets = vec![Set {
                name: "zk-abc".into(),
                incarnation: "abc".into(),
                role: Role::Voter,
                replicas: voters,
                revision: Some(revision.clone()),
            }];
            let mut pods: BTreeMap<i32, LocalServer> =
                self.observed.own.drain(..).map(|(_, own)| (own.ordinal, own)).filter(|(o, _)| *o < voters).collect();
            for ordinal in 0..voters {
                pods.entry(ordinal).or_insert_with(|| own(ordinal, &revision));
            }
            self.observed.own = pods.into_values().map(|own| ("abc".into(), own)).collect();
        }
        self.views(started, configuration);
    }

    fn views(&mut self, started: bool, configuration: Option<&Configuration>) {
        self.observed.views.clear();
        for (_, own) in &mut self.observed.own {
            own.view = Some(view(own.ordinal + 1, started, configuration));
            self.observed.views.extend(own.view.clone());
        }
        let others = configuration.into_iter().flat_map(Configuration::voters).filter(|id| *id > 2);
        self.observed.views.extend(others.map(|id| view(id, true, configuration)));
        if configuration.is_some()
            && let Some(leader) = self.observed.views.iter_mut().rfind(|view| view.id > Some(2))
        {
            leader.mode = Some(Mode::Leader);
        }
    }

    fn reported(&self) -> &ZooKeeperStatus {
        self.observed.object.status.as_ref().unwrap()
    }

    fn condition(&self, type_: &str) -> Option<(String, String)> {
        let found = self.reported().conditions.iter().find(|c| c.type_ == type_)?;
        Some((found.status.clone(), found.reason.clone()))
    }

    fn complete(&self) -> bool {
        self.reported().completed_spec_hash.is_some()
            && self.reported().completed_spec_hash == self.observed.object.spec.spec_hash
    }
}

fn own(ordinal: i32, revision: &str) -> LocalServer {
    LocalServer {
        drain_from: None,
        pod: format!("zk-abc-{ordinal}"),
        uid: format!("{revision}-{ordinal}"),
        role: Role::Voter,
        ordinal,
        id: None,
        revision: revision.into(),
        ready: false,
        terminating: false,
        failure: None,
        view: None,
        unready_for: restart::SILENCE,
    }
}

fn view(id: i32, started: bool, configuration: Option<&Configuration>) -> ServerReport {
    let serving = configuration.is_some();
    ServerReport {
        id: Some(id),
        pod: String::new(),
        incarnation: "abc".into(),
        phase: if started { Phase::Running } else { Phase::Waiting { reason: "its name does not resolve".into() } },
        revision: "r1".into(),
        mode: Some(if serving { Mode::Follower } else { Mode::Looking }),
        serving,
        synced: serving,
        settled: serving,
        zxid: None,
        synced_voters: None,
        configuration: configuration.cloned(),
        accepted_epoch: i64::from(serving),
        volume: format!("v{id}"),
        lost: false,
        server_list: None,
        restart_lock: None,
        loaded: None,
    }
}

fn configuration(ids: &[(i32, &str, i32)]) -> Configuration {
    let configured = |s: Server| ConfiguredServer { id: s.id, host: s.host, role: s.role };
    Configuration { version: 7, servers: servers(ids).into_iter().map(configured).collect() }
}

/// Deployed, serving and complete.
fn serving() -> Cluster {
    let mut cluster = Cluster::new(list(1, ALL));
    cluster.pin(2, "r1");
    let decision = cluster.look();
    cluster.run(&decision, true, Some(&configuration(ALL)));
    cluster.look();
    assert!(cluster.complete(), "{:?}", cluster.reported());
    cluster
}

#[test]
fn what_clients_are_to_see_is_here_before_a_server_is_taken_out_for_it() {
    let mut cluster = serving();
    let spec = &mut cluster.observed.object.spec;
    spec.render_version = 2;
    spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "person" })).unwrap();
    cluster.pin(2, "r2");
    let set = &mut cluster.observed.sets[0];
    set.revision = Some("r2".into());
    let decision = cluster.look();
    assert!(matches!(decision.turn, Next::Wait(_)), "{:?}", decision.turn);
    assert_eq!(cluster.condition("Progressing"), Some(("True".into(), "WaitsForCertificates".into())));
    assert!(!cluster.complete());
    // Others may need the turn: what is held is given back.
    let held = control_api::RestartLock { holder: "m1".into(), server: 1 };
    for view in &mut cluster.observed.views {
        view.restart_lock = Some(held.clone());
    }
    assert_eq!(cluster.look().turn, Next::Release(held));
    for view in &mut cluster.observed.views {
        view.restart_lock = None;
    }
    cluster.observed.client.copied = true;
    assert!(matches!(cluster.look().turn, Next::TakeServing { .. }));
}

#[test]
fn a_copy_that_is_lost_with_its_secret_is_told() {
    let mut cluster = Cluster::new(list(1, ALL));
    let spec = &mut cluster.observed.object.spec;
    spec.render_version = 2;
    spec.tls.client = serde_json::from_value(json!({ "mode": "Optional", "secretName": "person" })).unwrap();
    cluster.observed.client.copied = true;
    cluster.pin(2, "r1");
    let decision = cluster.look();
    cluster.run(&decision, true, Some(&configuration(ALL)));
    cluster.look();
    assert!(cluster.complete() && cluster.condition("ClientCertificatesKept").is_none());
    cluster.observed.client.copied = false;
    cluster.look();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(cluster.condition("ClientCertificatesKept").unwrap().0, "True");
}

/// What is complete stays so, and serves with what it has; a change is not complete before its certificates are taken.
#[test]
fn a_secret_that_is_gone_is_told_and_undoes_nothing() {
    let mut cluster = serving();
    cluster.observed.client.trouble = Some("Secret person is not here".into());
    let decision = cluster.look();
    assert!(cluster.complete() && cluster.condition("Blocked").is_none());
    assert_eq!(decision.pace, Requeue::AtRest);
    assert_eq!(cluster.condition("ClientCertificatesKept").unwrap().0, "True");
    cluster.pin(2, "r2");
    cluster.look();
    assert_eq!(cluster.condition("Blocked"), Some(("True".into(), "ClientCertificates".into())));
    cluster.observed.client.trouble = None;
    cluster.look();
    assert!(cluster.condition("Blocked").is_none() && cluster.condition("ClientCertificatesKept").is_none());
}

#[test]
fn a_held_object_reports_its_generation_alone() {
    let mut cluster = Cluster::new(list(1, ALL));
    let decision = cluster.look();
    let only = ZooKeeperStatus { observed_generation: Some(1), ..ZooKeeperStatus::default() };
    assert_eq!(decision.status, only);
    assert!(decision.run.is_none() && !decision.finalizer && decision.remove.is_empty());
}

/// Its turn never came, and the cluster is no longer chosen. What a person made by hand stays.
#[rstest]
#[case::let_go(&["mczk.io/ensemble"], &["mczk.io/applied-hash"], false, true)]
#[case::kept(&["mczk.io/ensemble", KARMADA_MANAGED_LABEL], &["mczk.io/applied-hash"], false, false)]
#[case::by_hand(&[], &[], false, false)]
#[case::something_is_left(&["mczk.io/ensemble"], &["mczk.io/applied-hash"], true, false)]
fn an_object_that_nothing_came_of_is_not_left_behind(
    #[case] labels: &[&str],
    #[case] annotations: &[&str],
    #[case] left: bool,
    #[case] removed: bool,
) {
    let mut cluster = Cluster::new(list(1, ALL));
    let named = |names: &[&str]| Some(names.iter().map(|name| ((*name).to_owned(), String::new())).collect());
    cluster.observed.object.metadata.labels = named(labels);
    cluster.observed.object.metadata.annotations = named(annotations);
    if left {
        cluster.observed.left.insert("abc".into());
    }
    assert_eq!(cluster.look().remove_object, removed);
}

#[test]
fn before_a_quorum_formed_a_cluster_is_complete_when_its_servers_are_started() {
    let mut cluster =
        Cluster::new(with_hash(Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(1, ALL) }).unwrap());
    cluster.pin(2, "r1");
    let decision = cluster.look();
    assert_eq!(decision.run, Some((2, 0)));
    assert!(decision.finalizer && !cluster.complete());
    cluster.run(&decision, false, None);
    cluster.look();
    assert!(!cluster.complete());
    assert_eq!(cluster.condition("Progressing").unwrap().0, "True");
    cluster.views(true, None);
    let decision = cluster.look();
    assert!(cluster.complete());
    let status = &decision.status;
    assert_eq!((status.started_replicas, status.ready_replicas, status.writable), (Some(2), Some(0), Some(false)));
    assert!(status.voting_members.is_empty() && status.config_version.is_none());
    assert_eq!(status.ensemble.as_ref(), Some(&cluster.observed.object.spec.ensemble));
}

/// Those that can be asked are parked in the pods that they have; one that cannot gets a pod that can start.
#[test]
fn parked_servers_tell_what_they_hold_and_a_silent_one_gets_another_pod() {
    let bootstrap = Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(1, ALL) };
    let mut cluster = Cluster::new(with_hash(bootstrap.clone()).unwrap());
    cluster.pin(2, "r1");
    let decision = cluster.look();
    cluster.run(&decision, true, None);
    let parked = with_hash(Ensemble { phase: EnsemblePhase::Suspended, epoch: Some(2), ..bootstrap.clone() }).unwrap();
    cluster.list(parked.clone());
    let (_, silent) = &mut cluster.observed.own[1];
    silent.view = None;
    silent.failure = Some("ImagePullBackOff".into());
    let (_, asked) = &mut cluster.observed.own[0];
    asked.view = Some(ServerReport { phase: Phase::Suspended, mode: None, ..view(1, false, None) });
    // Under which list is not known: it may be about to start.
    assert_eq!(cluster.look().status.servers[0].mode.as_deref(), Some("looking"));
    let (_, asked) = &mut cluster.observed.own[0];
    asked.view.as_mut().unwrap().server_list = Some(parked);
    let decision = cluster.look();
    assert_eq!(decision.turn, Next::Wait("the StatefulSet is being changed".into()));
    cluster.observed.sets[0].revision = Some("r1.parked".into());
    let decision = cluster.look();
    assert_eq!(decision.turn, Next::Take { pod: "zk-abc-1".into(), uid: "r1-1".into() });
    let told = &decision.status.servers[0];
    assert_eq!((told.mode.as_deref(), told.accepted_epoch), (Some("suspended"), Some(0)));
    assert_ne!(decision.status.servers[1].mode.as_deref(), Some("suspended"), "nobody knows of it");
    // It came back; and when the parking is taken back, its pod is to be another one again.
    cluster.observed.own[1].1 = LocalServer { revision: "r1.parked".into(), ..own(1, "r1") };
    cluster.observed.own[1].1.view = Some(ServerReport { phase: Phase::Suspended, mode: None, ..view(2, false, None) });
    assert_eq!(cluster.look().turn, Next::Nothing);
    assert!(!cluster.complete());
    cluster.list(with_hash(Ensemble { epoch: Some(3), ..bootstrap }).unwrap());
    cluster.observed.sets[0].revision = Some("r1".into());
    cluster.observed.own[0].1.view = Some(view(1, true, None));
    assert_eq!(cluster.look().turn, Next::Take { pod: "zk-abc-1".into(), uid: "r1-1".into() });
}

#[test]
fn afterwards_they_must_serve() {
    let mut cluster = Cluster::new(list(1, ALL));
    cluster.pin(2, "r1");
    let decision = cluster.look();
    cluster.run(&decision, true, None);
    cluster.look();
    assert!(!cluster.complete());
    cluster.views(true, Some(&configuration(ALL)));
    let status = cluster.look().status;
    assert!(cluster.complete());
    assert_eq!(status.voting_members, [1, 2, 3, 4, 5]);
    assert_eq!((status.ready_replicas, status.leader, status.config_version), (Some(2), Some(5), Some(7)));
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "Complete".into()));
}

/// All servers move to clusters that have none yet, and Karmada forgets the reports of those that have.
#[test]
fn a_cluster_that_has_no_server_yet_tells_of_the_quorum_that_it_sees() {
    let mut cluster = Cluster::new(list(1, &[ALL[2], ALL[3], ALL[4]]));
    cluster.pin(1, "r1");
    assert_eq!(cluster.look().status.writable, None, "nobody can be asked");
    let living = configuration(&[ALL[2], ALL[3], ALL[4]]);
    cluster.observed.views = [3, 4, 5].map(|id| view(id, true, Some(&living))).into();
    let status = cluster.look().status;
    assert_eq!((status.voting_members, status.config_version, status.writable), (vec![3, 4, 5], Some(7), Some(true)));
    assert!(status.servers.is_empty() && status.ready_replicas == Some(0));
}

#[test]
fn what_is_done_stays_done_and_steady_is_steady() {
    let mut cluster = serving();
    let before = cluster.reported().clone();
    let decision = cluster.look();
    assert_eq!(decision.status, before);
    assert!(decision.pace == Requeue::AtRest && decision.turn == Next::Nothing && decision.membership == Action::Done);
    cluster.observed.own.iter_mut().for_each(|(_, own)| own.view = None);
    let status = cluster.look().status;
    assert!(cluster.complete());
    assert_eq!((status.started_replicas, status.ready_replicas), (Some(0), Some(0)));
    assert_eq!(status.servers[0].volume.as_deref(), Some("v1"), "what a volume holds stays known");
}

#[rstest]
#[case::damaged(|c: &mut Cluster| { c.observed.object.spec.replicas = 0; c.stored(); }, true)]
#[case::of_another_cluster(|c: &mut Cluster| c.observed.cluster = Some("m9".into()), true)]
#[case::pin_lost(|c: &mut Cluster| { c.observed.object.spec.spec_hash = None; c.observed.object.spec.replicas = 0; c.stored(); }, false)]
#[case::list_lost(|c: &mut Cluster| { c.observed.object.spec.ensemble = Ensemble::default(); c.stored(); }, false)]
fn what_is_not_obeyed_changes_nothing(#[case] damage: fn(&mut Cluster), #[case] told: bool) {
    let mut cluster = serving();
    let before = cluster.reported().clone();
    damage(&mut cluster);
    let decision = cluster.look();
    assert!(decision.run.is_none() && decision.remove.is_empty() && !decision.remove_object && decision.finalizer);
    assert_eq!((decision.turn, decision.membership), (Next::Nothing, Action::Done));
    assert_eq!(cluster.condition("Blocked").is_some(), told);
    assert_eq!(decision.status.completed_spec_hash, before.completed_spec_hash);
    assert_eq!(decision.status.started_replicas, Some(2));
}

#[test]
fn a_voter_is_not_stopped_while_the_configuration_names_it() {
    let mut cluster = serving();
    cluster.pin(1, "r1");
    let decision = cluster.look();
    assert_eq!(decision.run, Some((2, 0)));
    assert_eq!(cluster.condition("Blocked").unwrap().1, "StillVotes");
    assert!(!cluster.complete());
    let fewer = [ALL[0], ALL[2], ALL[3], ALL[4]];
    cluster.list(list(2, &fewer));
    let decision = cluster.look();
    assert_eq!(decision.run, Some((2, 0)));
    assert!(cluster.condition("Blocked").is_none());
    assert!(matches!(decision.membership, Action::Reconfigure(step) if step.remove == Some(2)));
    cluster.views(true, Some(&configuration(&fewer)));
    let decision = cluster.look();
    assert_eq!(decision.run, Some((1, 0)));
    cluster.run(&decision, true, Some(&configuration(&fewer)));
    cluster.look();
    assert!(cluster.complete());
}

#[test]
fn a_change_takes_servers_out_one_after_the_other() {
    let mut cluster = serving();
    cluster.pin(2, "r2");
    cluster.look();
    cluster.observed.sets[0].revision = Some("r1".into());
    assert!(matches!(cluster.look().turn, Next::Wait(_)), "the set still makes old pods");
    cluster.observed.sets[0].revision = Some("r2".into());
    let Next::TakeServing { server, held: false, .. } = cluster.look().turn else {
        panic!("{:?}", cluster.look().turn)
    };
    assert_eq!(server, 1);
    assert!(!cluster.complete());
    cluster.observed.own[0].1 = own(0, "r2");
    cluster.look();
    assert!(!cluster.complete());
    cluster.views(true, Some(&configuration(ALL)));
    assert!(matches!(cluster.look().turn, Next::TakeServing { server: 2, .. }));
    cluster.observed.own[1].1 = own(1, "r2");
    cluster.views(true, Some(&configuration(ALL)));
    cluster.look();
    assert!(cluster.complete());
}

#[test]
fn a_server_that_does_not_start_is_said_to_the_control_plane_and_the_next_spec_replaces_it() {
    let mut cluster = serving();
    cluster.pin(2, "broken");
    cluster.observed.sets[0].revision = Some("broken".into());
    let mut broken = own(0, "broken");
    broken.failure = Some("its image cannot be pulled".into());
    cluster.observed.own[0].1 = broken;
    let decision = cluster.look();
    assert!(matches!(decision.turn, Next::Wait(_)));
    assert_eq!(cluster.condition("Progressing").unwrap(), ("False".into(), "ServerFailed".into()));
    cluster.pin(2, "r3");
    cluster.observed.sets[0].revision = Some("r3".into());
    assert!(matches!(cluster.look().turn, Next::Take { ref pod, .. } if pod == "zk-abc-0"));
}

#[test]
fn the_end_stops_servers_and_is_reported_with_its_epoch() {
    let mut cluster = serving();
    let end = with_hash(Ensemble { phase: EnsemblePhase::Decommissioning, ..list(2, ALL) }).unwrap();
    cluster.list(end);
    let decision = cluster.look();
    assert!(decision.remove.contains("abc") && decision.run.is_none() && decision.finalizer);
    assert!(cluster.condition("Decommissioned").is_none());
    cluster.observed.own.clear();
    cluster.observed.sets.clear();
    cluster.observed.left.clear();
    let status = cluster.look().status;
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!((status.epoch(), status.replicas, status.servers.len()), (Some(2), Some(0), 0));
    cluster.observed.object.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert!(!cluster.look().finalizer);
}

#[test]
fn the_end_reaches_a_cluster_without_a_pin_too() {
    let mut cluster =
        Cluster::new(with_hash(Ensemble { phase: EnsemblePhase::Decommissioning, ..list(2, ALL) }).unwrap());
    let status = cluster.look().status;
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!(status.epoch(), Some(2));
}

#[test]
fn an_object_that_is_deleted_by_hand_keeps_its_servers_while_they_vote() {
    let mut cluster = serving();
    cluster.observed.object.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    let decision = cluster.look();
    assert!(!decision.finalizer, "Karmada makes it anew");
    assert!(decision.remove.is_empty() && decision.run.is_none() && !decision.remove_object);
    // Where no quorum is seen the ensemble may have ended, and nobody would make it anew.
    let views = std::mem::take(&mut cluster.observed.views);
    assert!(cluster.look().finalizer);
    cluster.observed.views = views;
    // Nobody would make it anew.
    cluster.observed.object.metadata.labels = None;
    let decision = cluster.look();
    assert!(decision.finalizer && decision.remove.is_empty() && decision.run.is_none());
    assert_eq!(cluster.condition("Blocked").unwrap().1, "Deleted");
}

#[test]
fn without_karmada_servers_stay_until_the_ensemble_lets_them_go() {
    let mut cluster = serving();
    cluster.observed.object.metadata.labels = None;
    let decision = cluster.look();
    assert!(decision.finalizer && decision.remove.is_empty() && !decision.remove_object);
    // The ensemble itself tells of a newer list.
    let others = &ALL[2..];
    let newer = list(2, others);
    cluster.observed.views.iter_mut().for_each(|view| view.server_list = Some(newer.clone()));
    let decision = cluster.look();
    assert!(decision.remove.is_empty(), "they still vote");
    assert_eq!(decision.status.epoch(), Some(2));
    cluster.views(true, Some(&configuration(others)));
    cluster.observed.views.iter_mut().for_each(|view| view.server_list = Some(newer.clone()));
    let decision = cluster.look();
    assert!(decision.remove.contains("abc") && !decision.remove_object);
    cluster.observed.own.clear();
    cluster.observed.sets.clear();
    cluster.observed.left.clear();
    cluster.observed.views.retain(|view| view.id > Some(2));
    let decision = cluster.look();
    assert!(decision.remove_object);
}

#[test]
fn former_lives_are_removed_and_this_one_never() {
    let mut cluster = serving();
    let former = vec!["old".into(), "abc".into()];
    cluster.list(with_hash(Ensemble { former_incarnations: former, ..list(2, ALL) }).unwrap());
    assert_eq!(cluster.look().remove, BTreeSet::from(["old".to_owned()]));
}

#[test]
fn foreign_objects_are_named() {
    let mut cluster = serving();
    cluster.observed.obstacles = vec![("Foreign", "Service zk is not ours".into())];
    cluster.look();
    assert_eq!(cluster.condition("Blocked").unwrap().1, "Foreign");
}

#[test]
fn volumes_that_no_server_mounts_are_listed() {
    let mut cluster = serving();
    let claim = |name: &str, id: &str| Volume { name: name.into(), incarnation: id.into() };
    cluster.observed.volumes = vec![
        claim("data-zk-old-0", "old"),
        claim("data-zk-abc-0", "abc"),
        claim("data-zk-abc-1", "abc"),
        claim("data-zk-abc-11", "abc"),
    ];
    assert_eq!(cluster.look().status.volumes, ["data-zk-abc-11", "data-zk-old-0"]);
}

fn deleted(cluster: &mut Cluster) {
    let now = Timestamp::new(cluster.now, 0).unwrap();
    cluster.observed.object.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
}

fn emptied(cluster: &mut Cluster) {
    cluster.observed.own.clear();
    cluster.observed.sets.clear();
    cluster.observed.left.clear();
    cluster.observed.views.clear();
}

/// A cluster that was given up and is back: Karmada deletes its object, and the rest of the ensemble is gone.
#[rstest]
#[case::deleted(true)]
#[case::let_go(false)]
fn a_life_that_is_noted_as_over_ends_as_on_dissolve(#[case] by_karmada: bool) {
    let mut cluster = serving();
    cluster.views(true, None);
    if by_karmada {
        deleted(&mut cluster);
    } else {
        cluster.observed.object.metadata.labels = None;
    }
    let decision = cluster.look();
    assert!(decision.finalizer && decision.remove.is_empty(), "as long as nobody says so, they may be needed");
    cluster.observed.tombstones.insert("abc".into());
    let decision = cluster.look();
    assert_eq!(decision.remove, BTreeSet::from(["abc".to_owned()]));
    assert!(decision.finalizer && decision.run.is_none() && !decision.remove_object);
    emptied(&mut cluster);
    let decision = cluster.look();
    assert_eq!(cluster.condition("Decommissioned").unwrap().0, "True");
    assert_eq!((decision.finalizer, decision.remove_object), (!by_karmada, !by_karmada));
}

/// It sees a quorum of its own: without a note it cannot be told whether others count on it.
#[test]
fn a_cluster_that_holds_the_quorum_alone_waits_for_a_note_before_its_object_goes() {
    let mut cluster = Cluster::new(list(1, &ALL[..2]));
    cluster.pin(2, "r1");
    let decision = cluster.look();
    cluster.run(&decision, true, Some(&configuration(&ALL[..2])));
    cluster.look();
    deleted(&mut cluster);
    assert!(cluster.look().finalizer);
    cluster.now += 200;
    assert!(!cluster.look().finalizer, "it was deleted by hand, and Karmada makes it anew");
}

/// The same name was declared again while this cluster was away: its object goes, and already says what the new one says.
#[test]
fn servers_of_a_former_life_do_not_stay_without_an_owner() {
    let mut cluster = serving();
    deleted(&mut cluster);
    let other = |former: &[&str]| {
        let former = former.iter().map(|id| (*id).to_owned()).collect();
        with_hash(Ensemble {
            incarnation: Some("new".into()),
            former_incarnations: former,
            phase: EnsemblePhase::Bootstrapping,
            ..list(1, ALL)
        })
        .unwrap()
    };
    cluster.list(other(&[]));
    cluster.pin(2, "r1");
    cluster.observed.views.clear();
    let decision = cluster.look();
    assert!(decision.finalizer && decision.remove.is_empty() && decision.run.is_none());
    assert_eq!(cluster.condition("Blocked").unwrap().1, "FormerIncarnation");
    assert_eq!(cluster.condition("FormerIncarnation").unwrap().0, "True");
    cluster.list(other(&["abc"]));
    let decision = cluster.look();
    assert_eq!(decision.remove, BTreeSet::from(["abc".to_owned()]));
    assert!(decision.finalizer && decision.pace == Requeue::Busy && cluster.condition("FormerIncarnation").is_none());
    emptied(&mut cluster);
    assert!(!cluster.look().finalizer, "Karmada makes the new one");
    cluster.observed.object.metadata.deletion_timestamp = None;
    cluster.observed.object.metadata.finalizers = None;
    cluster.observed.object.status = None;
    let decision = cluster.look();
    assert_eq!((decision.run, decision.finalizer), (Some((2, 0)), true));
}
