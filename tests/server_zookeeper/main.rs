//! `mczk server` with real `ZooKeeper` 3.9.5 processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod authority;
mod demotion;
mod firewall;
mod health;
mod power_loss;
#[path = "../program/mod.rs"]
mod program;
mod settings;
mod volumes;
mod world;
mod writer;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use authority::Authority;
use mczk_agent::control_client::dial;
use mczk_api::{
    contract::{
        control_api::{
            Configuration, ConfiguredServer, Mode, Phase, Problem, Reconfiguration, RestartLock, ServerReport,
        },
        loaded_certificates::Loaded,
        server_list::{hash_of, with_hash},
    },
    pod::ZooCfgEntry,
    zookeeper::{Ensemble, EnsemblePhase, Role},
};
use mczk_rules::{agent::render::Material, server::start::Peers};
use mczk_server::{peers, quorum_certificates::QuorumCertificates, resolver::Resolver};
use serde_json::{Value, json};
use world::{TIMEOUT, World, bootstrap, joiner, list, processes};
use writer::Writer;
use zookeeper_client::{Acls, CreateMode};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn five_servers_form_with_three_and_lose_no_write() {
    let mut world = World::new("five", false);
    for n in 1..=5 {
        world.assign(n, &bootstrap(5));
    }
    for n in 1..=2 {
        world.start(n);
    }
    for n in 1..=2 {
        world.until(&format!("server {n} searches for a leader"), || {
            world.report(n).filter(|v| v.mode == Some(Mode::Looking))
        });
    }
    std::thread::sleep(Duration::from_secs(5));
    for n in 1..=2 {
        let report = world.report(n).unwrap();
        assert!(!report.serving && report.phase == Phase::Running && report.accepted_epoch == 0, "{report:?}");
        assert_eq!(world.probe(n, "/livez").0, 200);
        assert_eq!(world.probe(n, "/readyz").0, 503);
    }
    world.start(3);
    for n in 1..=3 {
        let report = world.serving(n);
        assert!(report.accepted_epoch > 0 && report.synced, "{report:?}");
    }
    assert_eq!(world.probe(3, "/readyz").0, 200);
    assert!(world.probe(3, "/metrics").1.contains("mczk_server_zookeeper_running 1"));
    // Reports use up no connections of clients: the admin server answers them. Only if it is silent, as on a busy machine, the
    // process asks at the client port whether ZooKeeper hangs: ruok.
    let log = fs::read_to_string(world.path(3, "log")).unwrap();
    let asked: Vec<_> =
        log.lines().filter(|line| line.contains(" command from /") && !line.contains(" ruok ")).collect();
    assert!(log.contains("NIOServerCnxnFactory") && asked.is_empty(), "{asked:?} in {} lines", log.lines().count());
    // A late server may have lost its volume: it does not vote before it holds the data of the others.
    world.start(4);
    world.until("server 4 is seeded", || world.path(4, "data/active/conf/zoo.cfg.dynamic").exists().then_some(()));
    assert!(!world.path(4, "data/active/data/initialize").exists());
    world.serving(4);

    let mut written = Vec::new();
    for n in 1..=4 {
        let name = format!("before-{n}");
        world.write(n, &name).await;
        written.push(name);
        let others: Vec<_> = (1..=4).filter(|other| *other != n).collect();
        world.kill(n);
        for other in &others {
            world.serving(*other);
        }
        let name = format!("without-{n}");
        world.write(others[0], &name).await;
        written.push(name);
        world.start(n);
        world.serving(n);
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
    }
    for n in 1..=4 {
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
    }

    // A voter that lost its volume must not vote under its id again.
    let running = list(2, &(1..=5).map(|n| (n, n)).collect::<Vec<_>>());
    world.kill(2);
    fs::remove_dir_all(world.path(2, "data")).unwrap();
    world.assign(2, &running);
    world.start(2);
    let report = world.waiting(2, "its volume does not hold the data that it voted for");
    assert!(report.lost && report.id == Some(2), "{report:?}");
    assert!(world.zookeeper(2).is_empty());
}

/// Before a rebootstrap: servers that never joined a quorum are suspended and report it. The others continue.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn only_servers_without_an_accepted_epoch_are_suspended() {
    let mut world = World::new("suspended", false);
    let list = |epoch: i64, suspend: bool| {
        with_hash(Ensemble {
            epoch: Some(epoch),
            phase: if suspend { EnsemblePhase::Suspended } else { EnsemblePhase::Bootstrapping },
            ..bootstrap(3)
        })
        .unwrap()
    };
    let is_suspended = |world: &World, n: i32| {
        let suspended = |report: &ServerReport| {
            report.phase == Phase::Suspended && report.accepted_epoch == 0 && report.mode.is_none()
        };
        world.until(&format!("server {n} is suspended"), || world.report(n).filter(suspended));
        assert_eq!(world.zookeeper(n), Vec::<i32>::new());
        assert_eq!(world.probe(n, "/livez").0, 200);
        assert_eq!(world.probe(n, "/readyz").0, 503);
    };
    world.assign(1, &list(1, false));
    world.start(1);
    world.until("server 1 searches for a leader", || world.report(1).filter(|v| v.mode == Some(Mode::Looking)));
    world.assign(1, &list(2, true));
    is_suspended(&world, 1);
    world.assign(2, &list(2, true));
    world.start(2);
    is_suspended(&world, 2);
    // An older list starts no server.
    world.assign(1, &list(1, false));
    std::thread::sleep(Duration::from_secs(5));
    is_suspended(&world, 1);

    for n in 1..=2 {
        world.assign(n, &list(3, false));
    }
    for n in 1..=2 {
        assert!(world.serving(n).accepted_epoch > 0);
    }
    world.write(1, "acknowledged").await;
    for n in 1..=2 {
        world.assign(n, &list(4, true));
    }
    std::thread::sleep(Duration::from_secs(10));
    for n in 1..=2 {
        let report = world.report(n).unwrap();
        assert!(report.serving && report.phase == Phase::Running, "{report:?}");
    }
    world.kill(1);
    world.start(1);
    world.serving(1);
    assert_eq!(world.missing(1, &["acknowledged".to_owned()]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn an_ensemble_grows_and_shrinks_one_server_at_a_time() {
    let mut world = World::of_three("steps");
    world.write(1, "first").await;
    let five = list(2, &[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    unlisted_steps(&world, false);
    publish(&world, &five);
    unlisted_steps(&world, true);
    grow(&mut world, &five).await;
    restart_locks(&mut world);
    secrets(&world);
    shrink(&mut world).await;
    replace_incarnation(&mut world).await;
}

/// Publishing a list is idempotent. Servers then refuse changes that were prepared before.
fn publish(world: &World, five: &Ensemble) {
    let old = world.configuration(1);
    let raised: Configuration = world.ask(2, "POST", "/v1/server-list", five).unwrap();
    assert!(raised.version > old.version && raised.servers == old.servers);
    assert_eq!(
        world.ask::<Configuration>(1, "POST", "/v1/server-list", five).unwrap(),
        raised,
        "a repeated request changes nothing"
    );
    let older: Problem = world.ask::<Configuration>(1, "POST", "/v1/server-list", &bootstrap(3)).unwrap_err();
    assert_eq!(older.reason, "epoch");
    let torn = Ensemble { epoch: Some(9), ..five.clone() };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/server-list", &torn).unwrap_err().reason, "hash");
    assert_eq!(world.serving(3).server_list, Some(five.clone()));
    let change =
        Reconfiguration { epoch: 2, from_version: old.version, add: Some(joiner(4, Role::Voter)), remove: None };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &change).unwrap_err().reason, "version");
    let change = Reconfiguration { epoch: 1, from_version: raised.version, ..change };
    assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &change).unwrap_err().reason, "epoch");
}

/// The control port takes no step that the published list does not ask for.
fn unlisted_steps(world: &World, published: bool) {
    let before = world.configuration(1);
    let ask = |add: Option<ConfiguredServer>, remove: Option<i32>| {
        let change = Reconfiguration { epoch: 2, from_version: before.version, add, remove };
        world.ask::<Configuration>(2, "POST", "/v1/reconfigure", &change).unwrap_err()
    };
    let stranger = ConfiguredServer { host: "s9.test".into(), ..joiner(4, Role::Voter) };
    let named = |problem: Problem, text: &str| {
        let text = if published { text } else { "the ensemble holds no server list" };
        assert!(problem.reason == "list" && problem.message.contains(text), "{problem:?}");
    };
    named(ask(Some(stranger), None), "names no voter 4 at s9.test");
    named(ask(Some(joiner(4, Role::Observer)), None), "names no observer 4 at s4.test");
    named(ask(Some(joiner(9, Role::Voter)), None), "names no voter 9");
    named(ask(None, Some(3)), "names server 3");
    assert_eq!(world.configuration(1), before, "nothing changed");
}

/// A joiner follows first. If it is killed before it is added, it joins again.
async fn grow(world: &mut World, five: &Ensemble) {
    for n in 1..=5 {
        world.assign(n, five);
    }
    world.start(4);
    world.serving(4);
    world.kill(4);
    world.start(4);
    world.start(5);
    for n in 4..=5 {
        let report = world.serving(n);
        assert!(!report.configuration.unwrap().voters().any(|id| id == n));
        let from_version = world.configuration(1).version;
        let change = Reconfiguration { epoch: 2, from_version, add: Some(joiner(n, Role::Voter)), remove: None };
        let after: Configuration = world.ask(n % 3 + 1, "POST", "/v1/reconfigure", &change).unwrap();
        assert!(after.version > from_version && after.voters().any(|id| id == n), "{after:?}");
        assert_eq!(world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &change).unwrap_err().reason, "version");
        assert_eq!(world.missing(n, &["first".into()]).await, Vec::<String>::new());
    }
    assert_eq!(world.configuration(5).voters().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let leader = (1..=5).map(|n| world.serving(n)).find(|report| report.mode == Some(Mode::Leader)).unwrap();
    assert_eq!((leader.synced_voters, leader.version.as_deref()), (Some(4), Some("3.9.5")));
    assert!(leader.snapshot_bytes.is_some_and(|bytes| (1000..1 << 20).contains(&bytes)), "{leader:?}");
}

/// Servers outside the list are removed one by one and do not start again.
async fn shrink(world: &mut World) {
    let three = list(3, &[(1, 1), (2, 2), (3, 3)]);
    let mut at: Configuration = world.ask(1, "POST", "/v1/server-list", &three).unwrap();
    world.write(5, "second").await;
    for n in [5, 4] {
        let change = Reconfiguration { epoch: 3, from_version: at.version, add: None, remove: Some(n) };
        at = world.ask(1, "POST", "/v1/reconfigure", &change).unwrap();
        assert!(!at.voters().any(|id| id == n), "{at:?}");
    }
    for n in 1..=5 {
        world.assign(n, &three);
    }
    world.stop(5);
    world.start(5);
    world.waiting(5, "neither the newest server list");
    // A restart in place: only ZooKeeper exits, and its parent decides again.
    world.signal(4, "KILL");
    world.waiting(4, "neither the newest server list");
    world.restart_zookeeper(3);
    world.serving(3);
    assert_eq!(world.missing(3, &["first".into(), "second".into()]).await, Vec::<String>::new());
    for n in 4..=5 {
        assert!(world.zookeeper(n).is_empty());
        assert_eq!(world.probe(n, "/livez").0, 200, "a waiting server is alive");
    }
}

/// A server with a volume of another incarnation sets it aside and joins as a new server, whatever list the volume holds.
async fn replace_incarnation(world: &mut World) {
    world.stop(4);
    let owner = world.path(4, "data/active/owner.json");
    let text = fs::read_to_string(&owner).unwrap();
    fs::write(&owner, text.replace("\"current\"", "\"former\"")).unwrap();
    let former = Ensemble { incarnation: Some("former".into()), epoch: Some(9), ..bootstrap(3) };
    let stored = world.path(4, "data/active/server-list.json");
    fs::write(stored, serde_json::to_vec(&with_hash(former).unwrap()).unwrap()).unwrap();
    let four = list(4, &[(1, 1), (2, 2), (3, 3), (6, 4)]);
    let _: Configuration = world.ask(2, "POST", "/v1/server-list", &four).unwrap();
    world.assign(4, &four);
    world.start(4);
    let report = world.serving(4);
    assert_eq!((report.id, report.mode, report.lost), (Some(6), Some(Mode::Follower), false));
    let aside = world.path(4, "data/aside-former-4-0");
    assert!(aside.join("data/version-2/acceptedEpoch").exists(), "data is never removed");
    assert_eq!(world.missing(4, &["first".into(), "second".into()]).await, Vec::<String>::new());
}

/// The restart lock is exclusive and renewable. It ends by a release, with its server process, or without renewal.
fn restart_locks(world: &mut World) {
    let one = RestartLock { holder: "m1/one".into(), server: 2 };
    let two = RestartLock { holder: "m2/two".into(), server: 1 };
    let through_itself: Problem = world.ask::<RestartLock>(2, "POST", "/v1/restart-lock", &one).unwrap_err();
    assert_eq!(through_itself.reason, "server");
    assert_eq!(world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).unwrap(), one);
    assert_eq!(world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).unwrap(), one, "renewed");
    for through in [3, 4] {
        let refused = world.ask::<RestartLock>(through, "POST", "/v1/restart-lock", &two).unwrap_err();
        assert_eq!(
            refused,
            Problem { reason: "restartLock".into(), message: "m1/one holds the restart lock for server 2".into() }
        );
    }
    assert_eq!(world.serving(5).restart_lock, Some(one.clone()));
    assert_eq!(world.ask::<()>(3, "DELETE", "/v1/restart-lock", &two).unwrap_err().reason, "restartLock");
    world.ask::<()>(3, "DELETE", "/v1/restart-lock", &one).unwrap();
    assert_eq!(world.ask::<RestartLock>(4, "POST", "/v1/restart-lock", &two).unwrap(), two);
    world.kill(4);
    let began = Instant::now();
    world.until("the lock of a killed process ends", || {
        world.ask::<RestartLock>(3, "POST", "/v1/restart-lock", &one).ok()
    });
    assert!(began.elapsed() < Duration::from_secs(60));
    world.start(4);
    world.serving(4);
    // A holder that does not renew the lock loses it.
    world.until("an expired lock ends", || world.ask::<RestartLock>(5, "POST", "/v1/restart-lock", &two).ok());
    world.ask::<()>(5, "DELETE", "/v1/restart-lock", &two).unwrap();
}

/// The superuser's digest is in no log and in no process list.
fn secrets(world: &World) {
    for n in 1..=5 {
        let path = world.path(n, "scratch/java.flags");
        let flags = fs::read_to_string(&path).unwrap();
        let digest = flags.trim().split_once("superDigest=").unwrap().1.to_owned();
        assert!(digest.starts_with("super:") && digest.len() > 20);
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0);
        assert!(!fs::read_to_string(world.path(n, "log")).unwrap().contains(&digest));
        assert!(processes(|line| line.contains(&digest)).is_empty());
    }
}

/// M4: operator and agents are newer than the servers. The servers start again with a list that has unknown fields, and with
/// a list that they cannot read.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn servers_start_again_with_a_list_of_a_newer_version() {
    let mut world = World::of_three("newer");
    world.write(1, "first").await;
    let hashed = |mut list: Value| {
        list["hash"] = hash_of(&list).unwrap().into();
        list
    };
    let mut newer = serde_json::to_value(list(2, &[(1, 1), (2, 2), (3, 3)])).unwrap();
    newer["witness"] = json!({ "cluster": "m9" });
    newer["servers"][0]["zone"] = json!("a");
    let newer = hashed(newer);
    restart_under(&mut world, &newer).await;
    let mut unread = newer;
    unread["epoch"] = json!(3);
    unread["phase"] = json!("Moving");
    unread["servers"][1]["role"] = json!("witness");
    restart_under(&mut world, &hashed(unread)).await;
}

/// Publishes and assigns the list, kills a `ZooKeeper` and a whole server, and checks that the list stays as it is.
async fn restart_under(world: &mut World, list: &Value) {
    let _: Configuration = world.ask(2, "POST", "/v1/server-list", list).unwrap();
    for n in 1..=3 {
        world.assign(n, list);
        let kept = || world.report(n).filter(|v| v.serving && serde_json::to_value(&v.server_list).unwrap() == *list);
        world.until(&format!("server {n} reports the list as it is"), kept);
        assert_eq!(world.probe(n, "/readyz").0, 200);
    }
    world.restart_zookeeper(3);
    world.kill(1);
    world.start(1);
    for n in [1, 3] {
        world.serving(n);
        assert_eq!(world.missing(n, &["first".to_owned()]).await, Vec::<String>::new());
        world.until("the list is on the volume", || {
            let stored = fs::read(world.path(n, "data/active/server-list.json")).ok()?;
            (serde_json::from_slice::<Value>(&stored).unwrap() == *list).then_some(())
        });
    }
}

/// The list gives a pod another id while the ensemble still counts on the former id's vote. The server continues with its
/// data, even if the quorum needs it to form again. It starts under the new id once the former one has no vote.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_pod_with_another_id_keeps_its_vote() {
    let mut world = World::of_three("place");
    world.write(1, "first").await;
    let replaced = list(2, &[(1, 1), (2, 2), (7, 3)]);
    let _: Configuration = world.ask(1, "POST", "/v1/server-list", &replaced).unwrap();
    for n in 1..=3 {
        world.assign(n, &replaced);
    }
    // Without server 3 there is no quorum, so no other server can report if server 3 has a vote.
    world.stop(2);
    world.stop(3);
    world.start(3);
    assert_eq!(world.serving(3).id, Some(3));
    world.write(3, "second").await;
    world.start(2);
    world.serving(2);
    // With reports of the others.
    world.kill(3);
    world.start(3);
    assert_eq!(world.serving(3).id, Some(3));
    assert!(!world.path(3, "data/aside-current-3-0").exists());

    let from_version = world.configuration(1).version;
    let change = Reconfiguration { epoch: 2, from_version, add: None, remove: Some(3) };
    let after: Configuration = world.ask(1, "POST", "/v1/reconfigure", &change).unwrap();
    let is_seven = || world.report(3).filter(|report| report.serving && report.id == Some(7));
    world.until("server 7 starts in the place of server 3", is_seven);
    assert!(world.path(3, "data/aside-current-3-0").exists(), "data is never removed");
    let joiner = ConfiguredServer { id: 7, host: "s3.test".into(), role: Role::Voter };
    let change = Reconfiguration { epoch: 2, from_version: after.version, add: Some(joiner), remove: None };
    // The leader may not know yet that the server follows.
    let add = || world.ask::<Configuration>(1, "POST", "/v1/reconfigure", &change).ok();
    let after = world.until("server 7 gets a vote", add);
    assert_eq!(after.voters().collect::<Vec<_>>(), [1, 2, 7]);
    assert_eq!(world.missing(3, &["first".into(), "second".into()]).await, Vec::<String>::new());
}

/// A leader that is cut off from its followers confirms no restart lock: a majority must have committed the confirmation.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_leader_that_is_cut_off_confirms_no_lock() {
    let world = World::of_three("cut-off");
    let leader = (1..=3).find(|n| world.serving(*n).mode == Some(Mode::Leader)).unwrap();
    let followers: Vec<i32> = (1..=3).filter(|n| *n != leader).collect();
    let lock = RestartLock { holder: "m1/one".into(), server: followers[0] };
    let renew = || world.ask::<RestartLock>(leader, "POST", "/v1/restart-lock", &lock);
    assert_eq!(renew().unwrap(), lock);
    assert_eq!(renew().unwrap(), lock, "renewed");
    for n in &followers {
        world.signal(*n, "STOP");
    }
    let cut_off = renew();
    for n in &followers {
        world.signal(*n, "CONT");
    }
    assert_eq!(cut_off.unwrap_err().reason, "unavailable");
    world.until("the lock is held again", || renew().ok());
}

/// Three servers speak TLS under one authority. They refuse a certificate of another authority.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn servers_speak_tls_under_one_authority() {
    let mut world = World::new("tls", true);
    let authority = Authority::new();
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        authority.write_identity(&world.path(n, "quorum"));
        world.start(n);
    }
    for n in 1..=3 {
        world.until(&format!("server {n} is ready"), || (world.probe(n, "/readyz").0 == 200).then_some(()));
        assert!(world.report(n).is_none(), "the control port answers nothing in plain text");
    }
    world.write(1, "one").await;
    assert_eq!(world.missing(3, &["one".into()]).await, Vec::<String>::new());
    let resolver = Resolver::File(world.folder.join("hosts"));
    let hosts: BTreeSet<String> = (1..=3).map(|n| format!("s{n}.test")).collect();
    let trusted = |authority: &Authority, name: &str| {
        let folder = world.folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        authority.write_identity(&folder);
        QuorumCertificates::new(folder.clone(), folder.join("joined.pem"), folder.join("trust.pem"))
    };
    let agent = trusted(&authority, "agent");
    agent.reload().await.unwrap();
    let answers = peers::ask(hosts.clone(), "current", &resolver, agent.client_config(), |_| false).await;
    assert_eq!(answers.configuration.unwrap().voters().collect::<Vec<_>>(), [1, 2, 3]);
    let stranger = trusted(&Authority::new(), "stranger");
    stranger.reload().await.unwrap();
    assert_eq!(
        peers::ask(hosts.clone(), "current", &resolver, stranger.client_config(), |_| false).await,
        Peers::default()
    );
    // New certificates of the same authority need no restart.
    let before = world.zookeeper(1);
    for n in 1..=3 {
        authority.write_identity(&world.path(n, "quorum"));
    }
    let old = fs::read(world.path(1, "scratch/quorum.pem")).unwrap();
    world.until("the server writes the new certificate", || {
        (fs::read(world.path(1, "scratch/quorum.pem")).unwrap() != old).then_some(())
    });
    assert_eq!(world.zookeeper(1), before);
    let answers = peers::ask(hosts, "current", &resolver, agent.client_config(), |_| false).await;
    assert!(answers.configuration.is_some() && answers.accepted_epoch > 0);
}

/// A cluster was away for longer than its certificate was valid. Its server starts with the expired one, and Karmada brings
/// the renewed Secret later.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_server_whose_certificate_has_expired_joins_once_its_secret_is_renewed() {
    let mut world = World::new("expired", true);
    let authority = Authority::new();
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        let folder = world.path(n, "quorum");
        if n == 3 {
            authority.write_expired_identity(&folder);
        } else {
            authority.write_identity(&folder);
        }
        world.start(n);
    }
    for n in 1..=2 {
        world.until(&format!("server {n} is ready"), || (world.probe(n, "/readyz").0 == 200).then_some(()));
    }
    world.write(1, "without server 3").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_ne!(world.probe(3, "/readyz").0, 200, "no server accepts an expired certificate");
    authority.write_identity(&world.path(3, "quorum"));
    world.until("server 3 is ready", || (world.probe(3, "/readyz").0 == 200).then_some(()));
    assert_eq!(world.missing(3, &["without server 3".into()]).await, Vec::<String>::new());
}

/// A new authority replaces the quorum's in three steps, while a client writes. No server restarts, and every server reports
/// its loaded certificates.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn an_authority_is_replaced_while_a_client_writes() {
    let mut world = World::new("authority", true);
    // ZooKeeper identifies authorities by their subjects: of two with one subject it trusts only one.
    let (former, next) = (Authority::named("quorum 1"), Authority::named("quorum 2"));
    let (old, new) = (former.issue(), next.issue());
    let both = former.0.pem() + &next.0.pem();
    let steps = [
        ("the former authority", &old, former.0.pem()),
        ("trust both", &old, both.clone()),
        ("the new identity", &new, both.clone()),
        ("trust the new one only", &new, next.0.pem()),
    ];
    let put = |world: &World, n: i32, (certificate, key): &(String, String), trust: &str| {
        let folder = world.path(n, "quorum");
        for (name, text) in [("tls.key", key.as_str()), ("tls.crt", certificate), ("ca.crt", trust)] {
            // By rename, like a kubelet.
            fs::write(folder.join("new"), text).unwrap();
            fs::rename(folder.join("new"), folder.join(name)).unwrap();
        }
    };
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        put(&world, n, steps[0].1, &steps[0].2);
        world.start(n);
    }
    for n in 1..=3 {
        world.until(&format!("server {n} is ready"), || (world.probe(n, "/readyz").0 == 200).then_some(()));
        let log = fs::read_to_string(world.path(n, "log")).unwrap();
        assert!(!log.contains("ZooKeeper will be started again"), "a start failed: {log}");
    }
    let ends = r#"mczk_server_certificate_not_after_timestamp_seconds{certificate="quorum"}"#;
    world
        .until("a metric has the end of the certificate", || world.probe(1, "/metrics").1.contains(ends).then_some(()));
    let before: Vec<_> = (1..=3).map(|n| world.zookeeper(n)).collect();
    let writer = Writer::start(&world, &[1, 2, 3]);
    let agent = |identity: &(String, String), trust: &str| {
        let (certificate, key) = identity.clone();
        dial(8443)(Some(&Material { certificate, key, authorities: trust.to_owned() })).unwrap()
    };
    for (what, identity, trust) in &steps {
        let began = Instant::now();
        let wanted = Loaded::of(identity.0.as_bytes(), trust.as_bytes());
        let servers = agent(identity, &both);
        // One server after the other, to cover every mixture.
        for n in 1..=3 {
            put(&world, n, identity, trust);
            let host = format!("{}.{n}", world.net);
            let deadline = Instant::now() + TIMEOUT;
            loop {
                let report = servers.view(&host).await;
                if report.as_ref().is_ok_and(|report| report.loaded == wanted && report.serving) {
                    break;
                }
                assert!(Instant::now() < deadline, "server {n} does not reach {what}: {report:?}");
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        let epoch = servers.view(&format!("{}.1", world.net)).await.unwrap().accepted_epoch;
        println!("{what}: {:.0} s, epoch {epoch}", began.elapsed().as_secs_f64());
    }
    let after: Vec<_> = (1..=3).map(|n| world.zookeeper(n)).collect();
    assert_eq!(after, before, "no server restarted");
    // ZooKeeper itself has loaded them: a restarted server finds the others, and servers refuse the former identity.
    world.kill(2);
    world.start(2);
    world.until("server 2 is back", || (world.probe(2, "/readyz").0 == 200).then_some(()));
    let (written, pause) = writer.stop().await;
    println!("{} writes, the longest pause {:.1} s", written.len(), pause.as_secs_f64());
    assert!(written.len() > 100, "{}", written.len());
    for n in 1..=3 {
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new());
        let host = format!("{}.{n}", world.net);
        assert!(agent(&old, &both).view(&host).await.is_err(), "servers refuse the former identity");
        assert!(agent(&new, &both).view(&host).await.is_ok());
    }
}

/// A client that creates the znode of mczk first, open to itself, owns neither the list nor the lock.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_client_cannot_take_over_the_shared_znodes() {
    let mut world = World::new("takeover", false);
    world.zoo_cfg = vec![ZooCfgEntry { name: "enforceQuota".into(), value: "true".into() }];
    // The parent processes stand still until the client is done.
    for n in 1..=2 {
        world.assign(n, &bootstrap(3));
        world.start(n);
        world.until(&format!("ZooKeeper {n} runs"), || (world.zookeeper(n).len() == 1).then_some(()));
        world.widen_log(n);
        world.signal_parent(n, "STOP");
    }
    let client = world.client(1).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/mczk", b"", &open).await.unwrap();
    client.create("/mczk/restart-lock", br#"{"holder":"client","server":1}"#, &open).await.unwrap();
    client.create("/mczk/server-list", b"no list", &open).await.unwrap();
    client.create("/mczk/server-list/below", b"", &open).await.unwrap();
    // ZooKeeper would refuse to note anything there.
    client.create("/zookeeper/quota/mczk", b"", &open).await.unwrap();
    client.create("/zookeeper/quota/mczk/zookeeper_limits", b"byteHardLimit=1", &open).await.unwrap();
    for n in 1..=2 {
        world.signal_parent(n, "CONT");
    }
    let report = world.serving(1);
    assert!(report.restart_lock.is_none(), "{report:?}");
    world.serving(2);
    let list = list(2, &[(1, 1), (2, 2), (3, 3)]);
    let published: Configuration = world.ask(1, "POST", "/v1/server-list", &list).unwrap();
    assert_eq!(published.voters().count(), 3);
    let refused = client.create("/zookeeper/quota/mczk/zookeeper_limits", b"byteHardLimit=1", &open).await;
    assert!(matches!(refused, Err(zookeeper_client::Error::NoAuth)), "{refused:?}");
    let refused = client.create("/mczk/restart-lock", b"", &open).await;
    assert!(matches!(refused, Err(zookeeper_client::Error::NoAuth)), "{refused:?}");
    let refused = client.set_acl("/mczk", &Acls::anyone_all(), None).await;
    assert!(matches!(refused, Err(zookeeper_client::Error::NoAuth)), "{refused:?}");
}

/// Connections to the election port that say nothing must not stop an election.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn silent_connections_do_not_block_an_election() {
    let mut world = World::of_three("silent");
    let leader = (1..=3).find(|n| world.report(*n).is_some_and(|r| r.mode == Some(Mode::Leader))).unwrap();
    let silent: Vec<_> = (1..=3)
        .flat_map(|n| [n, n])
        .map(|n| std::net::TcpStream::connect((format!("{}.{n}", world.net), 3888)).unwrap())
        .collect();
    let began = Instant::now();
    world.kill(leader);
    for n in (1..=3).filter(|n| *n != leader) {
        world.serving(n);
    }
    let took = began.elapsed();
    drop(silent);
    println!("an election beside silent connections: {:.1} s", took.as_secs_f64());
    // By default each connection would block for 20 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
