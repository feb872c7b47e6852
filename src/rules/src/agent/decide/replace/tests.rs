//! Server 2 of cluster m2 is to get an empty volume, as the agent of m2 sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rstest::rstest;

use super::*;
use crate::agent::decide::{
    drain::{Drain, Stay},
    fixtures::{claim, observation, report},
    local_server::LocalServer,
    observation::Claim,
    quorum::Quorum,
    restart::{NO_COUNT, RestartInputs, SILENCE},
};
use crate::fixtures::zookeeper;
use mczk_api::{
    contract::{
        control_api::{Configuration, ConfiguredServer, Mode, Phase, RestartLock, ServerReport},
        server_list::majority,
    },
    mutation::Mutation,
    zookeeper::{Role, Server},
};

const POD: &str = "zk-abc-0";
const HOLDER: &str = "m2";

/// Each voter is alone in its cluster `m1`, `m2` and so on.
#[derive(Clone)]
struct Scene {
    request: Option<ReplaceRequest>,
    claims: Vec<Claim>,
    gone: BTreeSet<String>,
    listed: Vec<Server>,
    voters: Vec<i32>,
    views: Vec<ServerReport>,
    server: LocalServer,
    lock: Option<RestartLock>,
    /// The leader says how many voters follow it.
    counts: bool,
}

fn listed(id: i32) -> Server {
    Server { id, cluster: format!("m{id}"), ordinal: 0, host: format!("{POD}.m{id}"), role: Role::Voter }
}

/// All voters serve, and the first one leads.
fn scene(voters: i32) -> Scene {
    let mode = |id: i32| if id == 1 { Mode::Leader } else { Mode::Follower };
    let server = LocalServer {
        pod: POD.into(),
        uid: "pod-uid".into(),
        role: Role::Voter,
        ordinal: 0,
        id: Some(2),
        revision: "r1".into(),
        ready: true,
        runs: true,
        terminating: false,
        orphaned: false,
        overdue: false,
        drain: None,
        needs_mount: false,
        failure: None,
        view: None,
        unready_for: SILENCE,
    };
    let claim = claim(&format!("data-{POD}"), "abc");
    Scene {
        request: Some(ReplaceRequest { server: 2, claim: claim.uid.clone() }),
        claims: vec![claim],
        gone: BTreeSet::new(),
        listed: (1..=voters).map(listed).collect(),
        voters: (1..=voters).collect(),
        views: (1..=voters).map(|id| report(id, mode(id), true)).collect(),
        server,
        lock: None,
        counts: true,
    }
}

impl Scene {
    fn view(&mut self, id: i32) -> &mut ServerReport {
        self.views.iter_mut().find(|view| view.id == Some(id)).unwrap()
    }

    /// A server answers, and does not serve.
    fn stopped(mut self, id: i32) -> Self {
        let view = self.view(id);
        *view = ServerReport { accepted_epoch: 1, ..report(id, Mode::Looking, false) };
        if Some(id) == self.server.id {
            self.server.ready = false;
        }
        self
    }

    /// A server does not answer.
    fn silent(mut self, id: i32) -> Self {
        self.views.retain(|view| view.id != Some(id));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn step(&self) -> ReplaceStep {
        let voter = |id: &i32| ConfiguredServer { id: *id, host: String::new(), role: Role::Voter };
        let configuration = Configuration { version: 1, servers: self.voters.iter().map(voter).collect() };
        let read = |view: &ServerReport| view.serving.then(|| configuration.clone());
        let with_configuration = |view: &ServerReport| ServerReport { configuration: read(view), ..view.clone() };
        let views: Vec<ServerReport> = self.views.iter().map(with_configuration).collect();
        let quorum = Quorum::of(&views);
        let view = views.iter().find(|view| view.id == self.server.id && view.id.is_some()).cloned();
        let servers = [LocalServer { view, ..self.server.clone() }];
        next_step(ReplaceInputs {
            request: self.request.as_ref(),
            claims: &self.claims,
            incarnation: "abc",
            gone: &self.gone,
            cluster: "m2",
            listed: &self.listed,
            views: &views,
            restart: RestartInputs {
                revision: "r1",
                servers: &servers,
                expected_servers: 1,
                listed: &self.listed.iter().map(|server| server.id).collect(),
                quorum: quorum.as_ref(),
                formed: true,
                synced_voters: self
                    .counts
                    .then(|| views.iter().find_map(|view| view.synced_voters).unwrap_or(i32::MAX)),
                pods_that_stay: &BTreeMap::new(),
                election: Duration::ZERO,
                lock: self.lock.as_ref(),
                holder: HOLDER,
            },
        })
    }

    fn deletion(&self) -> VolumeDeletion {
        match self.step() {
            ReplaceStep::Delete(deletion) => deletion,
            other => panic!("{other:?}"),
        }
    }
}

fn lock(holder: &str, server: i32) -> RestartLock {
    RestartLock { holder: holder.into(), server }
}

#[test]
fn the_claim_of_the_request_goes_with_its_pod() {
    let deletion = scene(3).stopped(2).deletion();
    assert_eq!((deletion.claim.name.as_str(), deletion.claim.uid.as_str()), ("data-zk-abc-0", "uid-data-zk-abc-0"));
    assert_eq!((deletion.pod.as_str(), deletion.uid.as_str()), (POD, "pod-uid"));
    assert!(!deletion.force && !deletion.held);
    let held = scene(3).stopped(2).with(|scene| scene.lock = Some(lock(HOLDER, 2))).deletion();
    assert!(held.held);
}

/// Every subset of voters of every size: a volume goes only if a majority serves without it.
#[test]
fn a_majority_always_remains() {
    for voters in 2..=5_i32 {
        for down in 0..(1_u32 << voters) {
            let is_down = |id: i32| down & (1_u32 << (id - 1)) != 0;
            let scene = (1..=voters).filter(|id| is_down(*id)).fold(scene(voters), Scene::stopped);
            // Another one leads if the first one is down.
            let scene = scene.with(|scene| {
                if let Some(first) = scene.views.iter_mut().find(|view| view.serving) {
                    first.mode = Some(Mode::Leader);
                }
            });
            let others = (1..=voters).filter(|id| *id != 2 && !is_down(*id)).count();
            let enough = others >= majority(usize::try_from(voters).unwrap());
            // A server that serves stops only while all others serve.
            let expected = enough && (is_down(2) || down == 0);
            let step = scene.step();
            assert_eq!(matches!(step, ReplaceStep::Delete(_)), expected, "{voters} voters, down {down:b}: {step:?}");
        }
    }
}

/// It follows, and is too slow to serve clients, or the agent cannot reach it.
#[rstest]
#[case::too_slow(scene(3).with(|scene| {
    *scene.view(2) = ServerReport { serving: false, phase: Phase::Running, ..report(2, Mode::Follower, true) };
}))]
#[case::out_of_reach(scene(3).silent(2).with(|scene| scene.view(1).synced_voters = Some(2)))]
fn a_server_that_may_serve_is_no_obstacle_to_itself(#[case] scene: Scene) {
    assert!(matches!(scene.step(), ReplaceStep::Delete(_)), "{:?}", scene.step());
}

/// A request is void once its claim is gone, and no claim of another uid answers to it.
#[rstest]
#[case::gone(scene(3).stopped(2).with(|scene| scene.claims.clear()))]
#[case::another_claim(scene(3).stopped(2).with(|scene| scene.claims[0].uid = "another".into()))]
#[case::another_incarnation(scene(3).stopped(2).with(|scene| scene.claims[0].incarnation = "old".into()))]
fn a_void_request_deletes_nothing(#[case] scene: Scene) {
    assert_eq!(scene.step(), ReplaceStep::Nothing);
}

#[rstest]
#[case::no_quorum((1..=3).fold(scene(3), Scene::stopped), "the agent sees no quorum")]
#[case::no_leader(scene(3).stopped(2).with(|scene| scene.view(1).mode = Some(Mode::Follower)), "the agent sees no leader")]
#[case::majority(scene(3).stopped(2).stopped(3), "only 1 of 3 voters of ZooKeeper's configuration serve, and 2 must")]
#[case::not_synced(scene(3).stopped(2).with(|scene| scene.view(3).synced = false), "only 1 of 3 voters")]
#[case::two_voters(scene(2).stopped(2), "Declare at least three voters first")]
#[case::voters_about_to_join(
    scene(3).stopped(2).with(|scene| scene.listed.extend([4, 5].map(listed))),
    "only 2 of 5 voters of the server list serve"
)]
#[case::a_leader_that_was_cut_off(scene(5).stopped(2).with(|scene| scene.view(1).synced_voters = Some(1)), "no majority follows the leader")]
#[case::a_leader_that_does_not_count(
    scene(5).stopped(2).with(|scene| scene.counts = false),
    NO_COUNT
)]
#[case::another_is_lost(scene(5).stopped(2).stopped(3).with(|scene| scene.view(3).lost = true), "server 3 in cluster m3 has lost its volume")]
#[case::another_has_no_data(
    scene(5).stopped(2).stopped(3).with(|scene| scene.view(3).accepted_epoch = 0),
    "server 3 in cluster m3 has not copied the data yet"
)]
#[case::another_copies_the_data(
    scene(5).stopped(2).stopped(3).with(|scene| scene.voters = vec![1, 2, 4, 5]),
    "server 3 in cluster m3 has not copied the data yet",
)]
#[case::another_is_silent(scene(5).stopped(2).silent(3), "server 3 in cluster m3 does not answer, so its volume is unconfirmed")]
#[case::it_serves_and_another_does_not(scene(5).stopped(3), "server 3 does not serve, or is not synced")]
#[case::it_serves_and_may_not_stop(
    scene(3).with(|scene| scene.server.drain = Some(Drain { node: "n1".into(), stays: Some(Stay::NoOtherNode("full".into())) })),
    "it cannot leave node n1: full"
)]
#[case::it_leads_and_another_is_new(
    scene(3).with(|scene| { scene.view(1).mode = Some(Mode::Follower); scene.view(2).mode = Some(Mode::Leader); scene.view(3).settled = false; }),
    "it leads, and server 3 has just come back"
)]
#[case::ready_and_out_of_reach(scene(5).silent(2).stopped(3), "server 3 does not serve")]
#[case::running_and_out_of_reach(scene(5).silent(2).stopped(3).with(|scene| scene.server.ready = false), "server 3 does not serve")]
#[case::in_an_election(scene(3).stopped(2).with(|scene| scene.server.unready_for = Duration::from_secs(1)), "it does not serve at the moment")]
#[case::other_id(scene(3).stopped(2).with(|scene| scene.server.id = Some(4)), "it is server 4 now, and not server 2")]
#[case::unknown_id(scene(3).silent(2).with(|scene| scene.server.id = None), "the id of its server is unknown")]
#[case::stops_already(scene(3).stopped(2).with(|scene| scene.server.terminating = true), "its pod is being stopped")]
#[case::another_agent_restarts(scene(5).with(|scene| scene.lock = Some(lock("m3", 3))), "m3 holds the restart lock, for server 3")]
#[case::another_agent_replaces_it(scene(5).with(|scene| scene.lock = Some(lock("m3", 2))), "m3 holds the restart lock, for server 2")]
#[case::this_agent_restarts_another(scene(5).with(|scene| scene.lock = Some(lock(HOLDER, 1))), "m2 holds the restart lock, for server 1")]
fn refused(#[case] scene: Scene, #[case] expected: &str) {
    let ReplaceStep::Wait(why) = scene.step() else { panic!("{:?}", scene.step()) };
    assert!(why.contains(expected), "{why}");
}

/// A second server of the same cluster: the agent sees its claim itself.
#[rstest]
#[case::it_serves(None, |_: &mut Claim, _: &mut LocalServer| {}, None)]
#[case::it_does_not_answer(Some(3), |_: &mut Claim, _: &mut LocalServer| {}, None)]
#[case::it_serves_until_its_pod_ends(None, |claim: &mut Claim, _: &mut LocalServer| claim.ending = true, None)]
#[case::it_loses_its_volume(Some(3), |claim: &mut Claim, _: &mut LocalServer| claim.ending = true, Some("server 3 in cluster m2 loses its volume"))]
#[case::its_claim_has_no_volume(Some(3), |claim: &mut Claim, _: &mut LocalServer| claim.bound = false, Some("server 3 in cluster m2 has no volume"))]
#[case::it_stops(Some(3), |_: &mut Claim, server: &mut LocalServer| server.terminating = true, Some("server 3 in cluster m2 is being stopped"))]
#[case::it_has_no_claim(Some(3), |claim: &mut Claim, _: &mut LocalServer| claim.name = "other".into(), Some("server 3 in cluster m2 has no volume"))]
fn a_server_of_the_same_cluster(
    #[case] silent: Option<i32>,
    #[case] change: fn(&mut Claim, &mut LocalServer),
    #[case] expected: Option<&str>,
) {
    let mut scene = silent.into_iter().fold(scene(5).stopped(2), Scene::silent);
    scene.listed[2].cluster = "m2".into();
    let mut second = claim("data-zk-abc-1", "abc");
    let views = scene.views.clone();
    let view = |id: i32| views.iter().find(|view| view.id == Some(id)).cloned();
    let mut servers = [
        LocalServer { view: view(2), ..scene.server.clone() },
        LocalServer { pod: "zk-abc-1".into(), id: Some(3), ready: false, view: view(3), ..scene.server.clone() },
    ];
    change(&mut second, &mut servers[1]);
    scene.claims.push(second);
    let inputs = |restart| ReplaceInputs {
        request: scene.request.as_ref(),
        claims: &scene.claims,
        incarnation: "abc",
        gone: &scene.gone,
        cluster: "m2",
        listed: &scene.listed,
        views: &views,
        restart,
    };
    let why = others::check(
        inputs(RestartInputs {
            revision: "r1",
            servers: &servers,
            expected_servers: 2,
            listed: &(1..=5).collect(),
            quorum: None,
            formed: true,
            synced_voters: Some(i32::MAX),
            pods_that_stay: &BTreeMap::new(),
            election: Duration::ZERO,
            lock: None,
            holder: HOLDER,
        }),
        2,
    );
    match expected {
        None => assert_eq!(why, Ok(())),
        Some(expected) => assert!(why.clone().unwrap_err().contains(expected), "{why:?}"),
    }
}

/// The node is deleted, and its volume with it.
#[rstest]
#[case::pending_elsewhere(|scene: &mut Scene| scene.server.failure = Some("no node fits its pod".into()), false)]
#[case::stuck(|scene: &mut Scene| { scene.gone.insert("pod-uid".into()); }, true)]
#[case::stuck_and_deleted(|scene: &mut Scene| { scene.gone.insert("pod-uid".into()); scene.server.terminating = true; }, true)]
fn a_pod_whose_node_is_gone(#[case] change: fn(&mut Scene), #[case] force: bool) {
    let scene = scene(3).silent(2).with(|scene| (scene.server.ready, scene.server.runs) = (false, false)).with(change);
    assert_eq!(scene.deletion().force, force);
}

/// The claim goes first. If the agent ends before the pod goes too, the next one continues under the same rules, even if the
/// user took the request back, or made another one.
#[rstest]
#[case::still_requested(|_: &mut Scene| {})]
#[case::taken_back(|scene: &mut Scene| scene.request = None)]
#[case::of_another_server(|scene: &mut Scene| scene.request = Some(ReplaceRequest { server: 3, claim: "another".into() }))]
#[case::under_another_id(|scene: &mut Scene| scene.request = scene.request.take().map(|request| ReplaceRequest { server: 9, ..request }))]
fn a_replacement_that_was_interrupted_continues(#[case] change: fn(&mut Scene)) {
    let begun = scene(3).stopped(2).with(|scene| scene.claims[0].ending = true).with(change);
    assert!(begun.deletion().claim.ending);
    let stops = begun.clone().with(|scene| scene.server.terminating = true);
    assert!(!matches!(stops.step(), ReplaceStep::Delete(_)));
    assert!(matches!(begun.stopped(3).step(), ReplaceStep::Wait(_)));
}

/// What Kubernetes deletes in the course of its own does not concern anybody.
#[rstest]
#[case::of_a_former_incarnation(|scene: &mut Scene| scene.claims[0].incarnation = "old".into())]
#[case::without_a_pod(|scene: &mut Scene| scene.server.pod = "zk-abc-1".into())]
#[case::its_pod_stops(|scene: &mut Scene| scene.server.terminating = true)]
fn a_deletion_without_a_request_and_a_running_pod_is_none_of_ours(#[case] change: fn(&mut Scene)) {
    let ending = |scene: &mut Scene| (scene.request, scene.claims[0].ending) = (None, true);
    assert_eq!(scene(3).stopped(2).with(ending).with(change).step(), ReplaceStep::Nothing);
}

#[rstest]
#[case::as_decided(true, true, true)]
#[case::unconfirmed(true, false, false)]
#[case::decided_without_the_lock(false, true, false)]
fn the_lock_must_be_held_before_the_decision(#[case] held: bool, #[case] confirmed: bool, #[case] expected: bool) {
    let scene = scene(3).stopped(2).with(|scene| scene.lock = held.then(|| lock(HOLDER, 2)));
    assert_eq!(may_delete(&scene.deletion(), &scene.step(), confirmed), expected);
    let changed = scene.clone().stopped(3);
    assert!(!may_delete(&scene.deletion(), &changed.step(), confirmed), "another voter went down meanwhile");
}

/// Rows that a broken variant passes. The search over all states finds each of them too.
#[rstest]
#[case(Mutation::ReplaceOtherClaim, scene(3).stopped(2).with(|scene| scene.claims[0].uid = "another".into()))]
#[case(Mutation::ReplaceWithoutLock, scene(5).with(|scene| scene.lock = Some(lock("m3", 3))))]
#[case(Mutation::ReplaceLastCopy, scene(3).stopped(2).stopped(3))]
fn a_broken_variant_deletes_what_the_rule_keeps(#[case] mutation: Mutation, #[case] scene: Scene) {
    assert!(Mutation::REPLACE.contains(&mutation));
    assert!(!matches!(scene.step(), ReplaceStep::Delete(_)));
    let broken = Mutation::with(Some(mutation), || scene.step());
    assert!(matches!(broken, ReplaceStep::Delete(_)), "{broken:?}");
}

#[test]
fn a_claim_without_a_pod_waits() {
    let scene = scene(3).stopped(2).with(|scene| scene.server.pod = "zk-abc-1".into());
    assert_eq!(scene.step(), ReplaceStep::Wait("No pod uses data-zk-abc-0 at the moment".into()));
    let ReplaceStep::Wait(why) = scene.with(|scene| scene.claims[0].ending = true).step() else { panic!() };
    assert!(why.ends_with("Kubernetes is deleting it: a finalizer may hold it"), "{why}");
}

#[test]
fn users_see_what_the_agent_waits_for() {
    let nothing = observation(zookeeper(serde_json::json!({})));
    assert_eq!(describe(&nothing, &ReplaceStep::Nothing), None);
    let waits = describe(&nothing, &scene(3).stopped(2).stopped(3).step()).unwrap();
    assert_eq!(waits.reason, Reason::ReplacementWaits);
    assert!(waits.message.starts_with("The volume of zk-abc-0 is not replaced: without server 2"), "{waits:?}");
    let begins = describe(&nothing, &scene(3).stopped(2).step()).unwrap();
    assert_eq!(begins.reason, Reason::ReplacingVolume);
}

/// A corrupt volume: the server answers, and its ZooKeeper does not run.
#[test]
fn a_server_that_is_known_not_to_run_is_replaced_at_once() {
    let scene = scene(3).stopped(2).with(|scene| {
        scene.server.unready_for = Duration::ZERO;
        scene.view(2).phase = Phase::Exited { reason: "its files are corrupt".into() };
    });
    assert!(matches!(scene.step(), ReplaceStep::Delete(_)));
}
