//! What happens to volumes: old copies, deleted logs, swapped and corrupt volumes, full disks, two users.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mczk::contract::control_api::{Mode, Phase, ServerReport};
use zookeeper_client::{Acls, CreateMode};

use crate::world::{World, list, program};

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
    // In the middle of a transaction: a partial one at the end is no corruption.
    file.write_at(&[0xff; 8], 16 + 12 + 30).unwrap();
    world.start(3);
    let corrupt = |report: &ServerReport| report.corrupt && matches!(report.phase, Phase::Exited { .. });
    world.until("server 3 reports a corrupt volume", || world.report(3).filter(corrupt));
    world.serving(1);

    // A log with a torn head, as after a full disk: a running ZooKeeper tries to read it for ever, and does not exit.
    let (leader, follower) = if world.serving(1).mode == Some(Mode::Leader) { (1, 2) } else { (2, 1) };
    let torn = world.path(follower, "data/active/data/version-2").join("log.7fffffff0");
    fs::write(torn, b"ZZKLG\0\0\0\x02").unwrap();
    let running = world.zookeeper(follower);
    world.signal(leader, "-9");
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
