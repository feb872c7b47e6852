//! What `mczk server` reports of a `ZooKeeper` that it cannot ask as a client does.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mczk_api::{
    contract::control_api::{Mode, Phase, ServerReport},
    pod::ZooCfgEntry,
};

use crate::world::{World, bootstrap};

/// Clients that take each connection of some servers as soon as it is free, until they are dropped.
struct Crowd {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn at(addresses: &[String]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let member = |address: &String| {
            let (over, address) = (Arc::clone(&over), address.clone());
            std::thread::spawn(move || {
                let mut held: Vec<TcpStream> = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    held.retain(is_open);
                    held.extend((held.len()..=20).filter_map(|_| session(&address).ok()));
                    std::thread::sleep(Duration::from_millis(20));
                }
            })
        };
        Self { threads: addresses.iter().map(member).collect(), over }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A connection that asks for a session of 40 s.
fn session(address: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let (version, zxid, timeout, id, password) = ([0; 4], [0; 8], 40_000_i32.to_be_bytes(), [0; 8], [0; 16]);
    let length = |bytes: i32| bytes.to_be_bytes();
    stream.write_all(&[&length(45)[..], &version, &zxid, &timeout, &id, &length(16), &password, &[0]].concat())?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn is_open(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 256]) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn of_three(name: &str, zoo_cfg: &[(&str, &str)]) -> World {
    let mut world = World::new(name, false);
    let entry = |(name, value): &(&str, &str)| ZooCfgEntry { name: (*name).to_owned(), value: (*value).to_owned() };
    world.zoo_cfg = zoo_cfg.iter().map(entry).collect();
    for n in 1..=3 {
        world.assign(n, &bootstrap(3));
        world.start(n);
    }
    (1..=3).for_each(|n| drop(world.serving(n)));
    world
}

fn leader(world: &World) -> i32 {
    world.until("a server leads", || (1..=3).find(|n| world.report(*n).is_some_and(|r| r.mode == Some(Mode::Leader))))
}

/// Clients hold all connections of all servers, and each server starts again among them, so that its parent gets none. A leader
/// stays a leader and a follower a follower, so no agent restarts one without the lock.
#[test]
#[ignore = "needs Java and ZooKeeper"]
fn clients_that_use_up_all_connections_hide_no_mode() {
    let world = of_three("crowd", &[("maxCnxns", "20")]);
    let addresses: Vec<String> = (1..=3).map(|n| format!("{}.{n}:2181", world.net)).collect();
    let crowd = Crowd::at(&addresses);
    let is_crowded = |n: i32| world.report(n).is_some_and(|report| report.takes_part() && !report.serving);
    for n in 1..=3 {
        // The parent may be faster than the clients: then it keeps its session, and the server starts once more.
        world.until(&format!("server {n} takes part without a session"), || {
            world.restart_zookeeper(n);
            world.until(&format!("server {n} takes part"), || world.report(n).filter(ServerReport::takes_part));
            std::thread::sleep(Duration::from_secs(3));
            is_crowded(n).then_some(())
        });
    }
    world.until("all servers take part without a session", || (1..=3).all(is_crowded).then_some(()));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let reports: Vec<ServerReport> = (1..=3).filter_map(|n| world.report(n)).collect();
        assert!(reports.len() == 3 && reports.iter().all(ServerReport::takes_part), "{reports:?}");
        let leaders: Vec<_> = reports.iter().filter(|report| report.mode == Some(Mode::Leader)).collect();
        assert_eq!(leaders.iter().map(|leader| leader.synced_voters).collect::<Vec<_>>(), [Some(2)], "{reports:?}");
    }
    // A four-letter word finds no answer.
    for address in &addresses {
        let mut answer = String::new();
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(b"srvr")?;
            stream.read_to_string(&mut answer)
        });
        assert!(asked.is_err() || answer.is_empty(), "{answer}");
    }
    drop(crowd);
    (1..=3).for_each(|n| drop(world.serving(n)));
}

/// A `ZooKeeper` that hangs is in doubt at first. Its parent ends it after two minutes, and reports that.
#[test]
#[ignore = "needs Java and ZooKeeper"]
fn a_zookeeper_that_hangs_is_ended() {
    let world = of_three("hangs", &[]);
    let n = leader(&world);
    let hung = world.zookeeper(n);
    world.signal(n, "STOP");
    let report = world.until("the parent gets no answer", || world.report(n).filter(|report| report.mode.is_none()));
    assert_eq!((report.phase, report.serving), (Phase::Running, false));
    let ended = |report: &ServerReport| matches!(&report.phase, Phase::Exited { reason } if reason.contains("hangs"));
    world.until("the parent ends it", || world.report(n).filter(ended));
    world.serving(n);
    assert_ne!(world.zookeeper(n), hung);
}

/// With TLS for clients both of its ports open after its data is read, which may take many minutes. This one waits for a debugger.
#[test]
#[ignore = "needs Java and ZooKeeper"]
fn a_zookeeper_that_reads_its_data_is_not_ended() {
    let mut world = World::new("reads", false);
    world.jvm_flags = vec!["-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=127.0.0.1:0".to_owned()];
    world.assign(1, &bootstrap(1));
    world.start(1);
    let started = world.until("ZooKeeper starts", || Some(world.zookeeper(1)).filter(|all| !all.is_empty()));
    // Longer than a port may be closed.
    std::thread::sleep(Duration::from_secs(75));
    assert_eq!(world.zookeeper(1), started);
}

/// At rest, with an agent and a kubelet that ask all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Java and ZooKeeper's jars: make test-zookeeper"]
async fn an_idle_server_logs_at_most_a_line_a_minute() {
    const MINUTES: usize = 2;
    let world = World::of_three("idle");
    let log = |n: i32| std::fs::read_to_string(world.path(n, "log")).unwrap();
    // What a start leaves behind.
    std::thread::sleep(Duration::from_secs(30));
    let before = [1, 2, 3].map(|n| log(n).len());
    for _ in 0..60 * MINUTES {
        std::thread::sleep(Duration::from_secs(1));
        for n in 1..=3 {
            assert_eq!(world.probe(n, "/readyz").0, 200);
        }
    }
    for (n, before) in (1..).zip(before) {
        let text = log(n);
        let logged = text.get(before..).unwrap().lines().count();
        println!("server {n}: {logged} lines in {MINUTES} minutes");
        assert!(logged <= MINUTES, "server {n}: {}", text.get(before..).unwrap());
    }
}
