//! What happens to volumes: old copies, deleted logs, swapped and corrupt volumes, full disks, two users.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mczk_api::{
    contract::control_api::{Mode, Phase, ServerReport},
    pod::ZooCfgEntry,
};
use mczk_rules::server::volume_age::Generations;
use mczk_runtime::atomic_file::read_json;
use zookeeper_client::{Acls, CreateMode};

use crate::world::{World, bootstrap, list, program};

/// More than the server's interval of generations.
const TWO_GENERATIONS: Duration = Duration::from_secs(35);

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn files(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).collect();
    files.sort();
    files
}

/// Both voters of a cluster get the storage of yesterday back. Together with servers that lag they are a majority, but one
/// that lacks an acknowledged write.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn two_of_five_old_copies_do_not_vote() {
    let mut world = World::of(5, "copies");
    let saved = |world: &World, n: i32| world.path(n, "saved");
    for n in 1..=2 {
        world.stop(n);
        copy(&world.path(n, "data"), &saved(&world, n));
        world.start(n);
        world.serving(n);
    }
    std::thread::sleep(TWO_GENERATIONS);
    for n in 4..=5 {
        world.kill(n);
    }
    world.serving(3);
    world.write(1, "acknowledged").await;
    for n in 1..=3 {
        world.kill(n);
    }
    for n in 1..=2 {
        copy(&saved(&world, n), &world.path(n, "data"));
    }
    for n in [1, 2, 4, 5] {
        world.start(n);
    }
    for n in 1..=2 {
        let report = world.waiting(n, "the volume went back in time");
        assert!(report.lost && report.id == Some(n), "{report:?}");
    }
    for n in 4..=5 {
        let looks = |report: &ServerReport| report.mode == Some(Mode::Looking);
        world.until(&format!("server {n} looks for a leader"), || world.report(n).filter(looks));
    }
    world.start(3);
    for n in 3..=5 {
        world.serving(n);
    }
    assert_eq!(world.missing(4, &["acknowledged".to_owned()]).await, Vec::<String>::new());
    assert!(world.zookeeper(1).is_empty() && world.zookeeper(2).is_empty());
    // The list gives the place a new id: the old copy is set aside, and the server copies the data of the others.
    world.assign(1, &list(2, &[(6, 1), (2, 2), (3, 3), (4, 4), (5, 5)]));
    world.until("server 6 follows", || world.report(1).filter(|report| report.id == Some(6) && report.serving));
    assert_eq!(world.report(1).unwrap().disk.unwrap().set_aside.len(), 1);
}

/// Every server restarts at once. None of them can ask a quorum.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn intact_volumes_vote_after_a_power_loss_of_all() {
    let mut world = World::of_three("power");
    world.write(1, "acknowledged").await;
    for round in 0..2 {
        for n in 1..=3 {
            world.kill(n);
        }
        world.start(1);
        world.waiting(1, "1 of 3 voters have answered");
        // The second time, one server comes back later than the others.
        let back: &[i32] = if round == 0 { &[2, 3] } else { &[2] };
        for n in back {
            world.start(*n);
        }
        for n in back {
            world.serving(*n);
        }
        assert_eq!(world.missing(1, &["acknowledged".to_owned()]).await, Vec::<String>::new());
    }
}

/// A user removes the newest logs, or gives a pod the volume of another one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn deleted_logs_and_swapped_volumes_do_not_vote() {
    let mut world = World::of(5, "logs");
    world.write(1, "acknowledged").await;
    // A transaction certainly is in the files after a minute.
    std::thread::sleep(Duration::from_secs(60) + TWO_GENERATIONS);
    world.stop(1);
    let transactions = world.path(1, "data/active/data/version-2");
    for log in files(&transactions, "log.") {
        fs::remove_file(log).unwrap();
    }
    world.start(1);
    let report = world.waiting(1, "transactions are missing on the volume");
    assert!(report.lost && world.zookeeper(1).is_empty(), "{report:?}");

    for n in 4..=5 {
        world.stop(n);
    }
    copy(&world.path(4, "data"), &world.path(4, "saved"));
    copy(&world.path(5, "data"), &world.path(4, "data"));
    copy(&world.path(4, "saved"), &world.path(5, "data"));
    world.start(4);
    world.start(5);
    std::thread::sleep(Duration::from_secs(10));
    for n in 4..=5 {
        let report = world.report(n).unwrap();
        assert!(report.phase != Phase::Running && world.zookeeper(n).is_empty(), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_corrupt_volume_is_reported_and_one_process_uses_a_volume() {
    let mut world = World::of_three("corrupt");
    for number in 0..20 {
        world.write(1, &format!("before-{number}")).await;
    }
    // A second pod with the same volume waits.
    let mut second = Command::new(program());
    second.args(["server", "--pod", "zk-current-0", "--address", &format!("{}.9", world.net)]);
    for (flag, name) in
        [("--config-dir", "config"), ("--data", "data"), ("--scratch", "scratch"), ("--quorum-tls", "quorum")]
    {
        second.arg(flag).arg(world.path(2, name));
    }
    let mut second = second.args(["--zookeeper-home", "/"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    world.waiting(9, "another process uses the volume");
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(world.zookeeper(2).len(), 1);

    world.stop(3);
    let log = files(&world.path(3, "data/active/data/version-2"), "log.").pop().unwrap();
    let file = fs::File::options().write(true).open(&log).unwrap();
    // In the middle of a transaction, whose length stays: a shorter log would lack transactions.
    let content = fs::read(&log).unwrap();
    let at = content.windows(9).position(|bytes| bytes == b"before-10").unwrap();
    file.write_at(b"x", at as u64).unwrap();
    world.start(3);
    let corrupt = |report: &ServerReport| report.corrupt && matches!(report.phase, Phase::Exited { .. });
    world.until("server 3 reports a corrupt volume", || world.report(3).filter(corrupt));
    world.serving(1);

    // A log with a torn head, as after a full disk: a running ZooKeeper tries to read it for ever, and does not exit.
    let (leader, follower) = if world.serving(1).mode == Some(Mode::Leader) { (1, 2) } else { (2, 1) };
    let torn = world.path(follower, "data/active/data/version-2").join("log.7fffffff0");
    fs::write(torn, b"ZZKLG\0\0\0\x02").unwrap();
    let running = world.zookeeper(follower);
    world.signal(leader, "KILL");
    world.until("the follower reports a corrupt volume", || world.report(follower).filter(|report| report.corrupt));
    assert_eq!(world.zookeeper(follower), running);
}

/// The volume of one server is a small file system, which fills up and gets room again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_full_disk_recovers_when_there_is_room() {
    let mut world = World::of_three("full");
    world.stop(3);
    copy(&world.path(3, "data"), &world.path(3, "saved"));
    let script = r#"mount -t tmpfs -o size=96m tmpfs "$0" && cp -a "$1/." "$0" && shift && exec "$@""#;
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    inside.args([world.path(3, "data"), world.path(3, "saved"), program()]);
    world.start_by(3, inside);
    let report = world.serving(3);
    let disk = report.disk.unwrap();
    assert!(disk.size < 100 << 20 && disk.used_percent() < 80, "{disk:?}");
    let volume = world.root_of(3).join(world.path(3, "data").strip_prefix("/").unwrap());
    let filler = volume.join("filler");
    // `ZooKeeper` reserves 64 MiB for a log, so it fails at once.
    let _ = fs::write(&filler, vec![1; 96 << 20]);
    let full = |report: &ServerReport| report.disk.as_ref().is_some_and(|disk| disk.used_percent() > 95);
    world.until("the disk is full", || world.report(3).filter(full));
    let pid = world.zookeeper(3);
    for id in &pid {
        assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
    }
    let fails = |report: &ServerReport| !report.serving && matches!(report.phase, Phase::Exited { .. });
    world.until("server 3 fails", || world.report(3).filter(fails));
    world.write(1, "meanwhile").await;
    fs::remove_file(&filler).unwrap();
    world.serving(3);
    assert_eq!(world.missing(3, &["meanwhile".to_owned()]).await, Vec::<String>::new());
    assert!(world.probe(3, "/metrics").1.contains("mczk_server_volume_available_bytes"));
}

/// `ZooKeeper` commits transactions in memory that it cannot write, because others have written them. If it continued with
/// that memory once there is room, its logs would lack them for ever, and yet it would acknowledge what follows
/// (ZOOKEEPER-4882).
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_server_that_could_not_write_keeps_what_it_acknowledges_later() {
    let mut world = World::of_three("hole");
    let (other, full) = if world.serving(1).mode == Some(Mode::Leader) { (1, 2) } else { (2, 1) };
    let client = world.client(other).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let failing = world.zookeeper(full);
    let limit = |bytes: &str| {
        for id in &failing {
            let arguments = ["--pid", &id.to_string(), &format!("--fsize={bytes}:")];
            // The process may have ended.
            let _ = Command::new("prlimit").args(arguments).stderr(std::process::Stdio::null()).status();
        }
    };
    let mut written = Vec::new();
    limit("0");
    for number in 0..50 {
        let name = format!("full-{number}");
        client.create(&format!("/{name}"), &[1; 1000], &options).await.unwrap();
        written.push(name);
    }
    limit("unlimited");
    world.serving(full);
    // Now only two servers acknowledge writes, and then one of these is gone.
    world.kill(3);
    for number in 0..5 {
        let name = format!("after-{number}");
        world.write(other, &name).await;
        written.push(name);
    }
    world.kill(other);
    world.kill(full);
    world.start(full);
    world.start(3);
    for n in [full, 3] {
        world.serving(n);
        assert_eq!(world.missing(n, &written).await, Vec::<String>::new(), "server {n}");
    }
}

/// The last transaction that the volume remembers. A generation is a transaction itself, and may be the last one of a snapshot.
fn remembered(world: &World, n: i32) -> Option<i64> {
    let stored: Generations = read_json(&world.path(n, "data/active/generations.json")).unwrap()?;
    stored.held.logs.iter().map(|(_, last)| *last).max()
}

fn newest_snapshot(world: &World, n: i32) -> Option<i64> {
    let all = files(&world.path(n, "data/active/data/version-2"), "snapshot.");
    let zxid = |path: &PathBuf| i64::from_str_radix(path.extension()?.to_str()?, 16).ok();
    all.iter().filter_map(zxid).max()
}

/// Snapshots without their end.
fn partial_snapshots(world: &World, n: i32) -> Vec<PathBuf> {
    let mut all = files(&world.path(n, "data/active/data/version-2"), "snapshot.");
    all.retain(|path| !fs::read(path).unwrap_or_default().ends_with(&[0, 0, 0, 1, b'/']));
    all
}

/// These servers form no quorum, and the last one brings back every write.
async fn serve_only_with(world: &mut World, last: i32, written: &[String]) {
    std::thread::sleep(Duration::from_secs(15));
    for n in (1..=3).filter(|n| *n != last) {
        assert!(!world.report(n).unwrap().serving, "server {n} serves without the writes");
    }
    world.start(last);
    world.serving(last);
    world.serving(3);
    for n in [last, 3] {
        assert_eq!(world.missing(n, written).await, Vec::<String>::new(), "server {n}");
    }
}

/// Three servers with a writer, of which the first one has a disk that fills up until `ZooKeeper` leaves a part of a snapshot
/// there. The third one lacks the last writes.
async fn with_a_partial_snapshot(name: &str) -> (World, Vec<String>) {
    let mut world = World::new(name, false);
    // Small logs, and many snapshots.
    let entry = |(name, value): (&str, &str)| ZooCfgEntry { name: name.into(), value: value.into() };
    world.zoo_cfg = [("preAllocSize", "64"), ("snapCount", "60")].map(entry).to_vec();
    world.assign(1, &bootstrap(3));
    world.insert_disk(1, &disk::Tree::default(), None);
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        world.start(n);
    }
    (1..=3).for_each(|n| drop(world.serving(n)));
    let client = world.client(2).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut written = Vec::new();
    for number in 0..200 {
        client.create(&format!("/w{number}"), &[1; 4000], &options).await.unwrap();
        written.push(format!("w{number}"));
    }
    world.kill(3);
    world.serving(1);
    world.write(2, "without-3").await;
    written.push("without-3".to_owned());
    std::thread::sleep(TWO_GENERATIONS);
    world.until("server 1 remembers a later transaction than its newest snapshot", || {
        (remembered(&world, 1) > newest_snapshot(&world, 1)).then_some(())
    });
    // After the failed write, the parent would start ZooKeeper again, and a start removes the part.
    world.widen_log(1);
    world.signal_parent(1, "STOP");
    // A snapshot has 800 KB, a log 64 KiB.
    world.disk(1).leave(Some(400 << 10));
    let client = world.client(2).await;
    for number in 200..600 {
        let (path, options) = (format!("/w{number}"), options.clone());
        let write = client.create(&path, b"", &options);
        if !partial_snapshots(&world, 1).is_empty() {
            break;
        }
        match tokio::time::timeout(Duration::from_secs(5), write).await {
            Ok(Ok(_)) => written.push(format!("w{number}")),
            _ => break,
        }
    }
    world.until("a part of a snapshot is left", || (!partial_snapshots(&world, 1).is_empty()).then_some(()));
    (world, written)
}

/// A full disk leaves a part of a snapshot, whose name is that of the last transaction. A user then removes the logs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn a_partial_snapshot_does_not_replace_deleted_logs() {
    let (mut world, written) = with_a_partial_snapshot("partial").await;
    world.kill(1);
    world.kill(2);
    for log in files(&world.path(1, "data/active/data/version-2"), "log.") {
        fs::remove_file(log).unwrap();
    }
    let partial = partial_snapshots(&world, 1);
    assert!(!partial.is_empty());
    world.disk(1).leave(None);
    world.start(1);
    world.start(3);
    let report = world.waiting(1, "transactions are missing on the volume");
    assert!(report.lost && world.zookeeper(1).is_empty(), "{report:?}");
    assert_eq!(partial_snapshots(&world, 1), partial, "a server that does not start removes nothing");
    serve_only_with(&mut world, 2, &written).await;
}

/// Partial snapshots would fill the disk for ever.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java, ZooKeeper's jars and FUSE: make test-zookeeper"]
async fn a_start_removes_partial_snapshots() {
    let (mut world, written) = with_a_partial_snapshot("useless").await;
    world.kill(1);
    let partial = partial_snapshots(&world, 1);
    assert!(!partial.is_empty());
    world.disk(1).leave(None);
    world.start(1);
    world.serving(1);
    let left = partial_snapshots(&world, 1);
    assert!(partial.iter().all(|gone| !left.contains(gone)), "{left:?}");
    assert_eq!(world.missing(1, &written).await, Vec::<String>::new());
}

/// The storage copies a volume while the bootstrap waits, and returns it much later.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_copy_from_before_the_first_quorum_does_not_vote() {
    for running in [false, true] {
        let mut world = World::new("before", false);
        world.assign(1, &bootstrap(3));
        world.start(1);
        world.until("server 1 searches for a leader", || world.report(1).filter(|v| v.mode == Some(Mode::Looking)));
        world.stop(1);
        copy(&world.path(1, "data"), &world.path(1, "saved"));
        world.start(1);
        for n in 2..=3 {
            world.assign(n, &bootstrap(3));
            world.start(n);
        }
        (1..=3).for_each(|n| drop(world.serving(n)));
        if running {
            (1..=3).for_each(|n| world.assign(n, &list(2, &[(1, 1), (2, 2), (3, 3)])));
        }
        std::thread::sleep(TWO_GENERATIONS);
        world.kill(3);
        let mut written = Vec::new();
        for number in 0..5 {
            let name = format!("w{number}");
            world.write(1, &name).await;
            written.push(name);
        }
        world.kill(1);
        world.kill(2);
        copy(&world.path(1, "saved"), &world.path(1, "data"));
        world.start(1);
        world.start(3);
        serve_only_with(&mut world, 2, &written).await;
    }
}

/// Two servers formed an ensemble, and the third one never started. One of the two loses its volume.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn a_wiped_voter_of_a_bootstrap_does_not_vote_again() {
    let mut world = World::new("wiped", false);
    (1..=3).for_each(|n| world.assign(n, &bootstrap(3)));
    for n in 1..=2 {
        world.start(n);
    }
    (1..=2).for_each(|n| drop(world.serving(n)));
    let written = vec!["acknowledged".to_owned()];
    world.write(1, &written[0]).await;
    world.kill(1);
    world.kill(2);
    fs::remove_dir_all(world.path(1, "data")).unwrap();
    world.assign(1, &bootstrap(3));
    world.start(1);
    world.start(3);
    world.waiting(1, "the agent has recorded another volume of server 1");
    serve_only_with(&mut world, 2, &written).await;
    world.serving(1);
}
