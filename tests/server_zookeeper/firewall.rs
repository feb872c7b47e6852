//! Elections behind a firewall that forgets idle connections to election ports, and then drops their packets.
//!
//! Loopback of a network namespace is the network: `make test-firewall` makes one.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use mczk_api::contract::{control_api::Mode, pod_layout::KEEPALIVE};

use crate::world::World;

/// Time after which the firewall forgets an idle connection.
const IDLE: Duration = Duration::from_secs(12);
/// What conntrack takes for a packet that opens no connection and belongs to none, unless it is loose.
const RULES: &str = "table inet firewall {
chain input { type filter hook input priority 1; tcp sport 3888 ct state invalid drop; tcp dport 3888 ct state invalid drop; }
}\n";

fn run(program: &str, arguments: &[&str], input: &str) {
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program} {arguments:?}");
}

/// Starts the firewall, with these parameters of the servers' kernel.
fn start_firewall(parameters: &[(&str, &str)]) {
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    assert!(devices.lines().skip(2).all(|line| line.trim().starts_with("lo:")), "run `make test-firewall`: {devices}");
    run("ip", &["link", "set", "lo", "up"], "");
    run("nft", &["-f", "-"], &format!("flush ruleset\n{RULES}"));
    let idle = IDLE.as_secs().to_string();
    let conntrack = [("loose", "0"), ("timeout_established", &idle)];
    for (name, value) in conntrack {
        fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_tcp_{name}"), value).unwrap();
    }
    for (name, value) in parameters {
        fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value).unwrap();
    }
}

/// Kills the leader once the connections have been idle, and returns the time until the other two serve.
fn elect(world: &mut World, idle: Duration) -> Duration {
    std::thread::sleep(idle);
    let leader = (1..=3).find(|n| world.serving(*n).mode == Some(Mode::Leader)).unwrap();
    let began = Instant::now();
    world.kill(leader);
    for n in (1..=3).filter(|n| *n != leader) {
        world.until(&format!("server {n} serves"), || {
            world.report(n).filter(|report| report.serving && report.mode != Some(Mode::Looking))
        });
    }
    began.elapsed()
}

/// Without a packet in the meantime, the survivors would send votes to each other in vain.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, nft, Java and ZooKeeper's jars: make test-firewall"]
async fn firewall_forgets_no_connection_that_is_kept_alive() {
    start_firewall(&KEEPALIVE);
    let took = elect(&mut World::of_three("kept-alive"), IDLE * 2);
    println!("an election behind a firewall that forgets idle connections: {:.1} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// The kernel's defaults keep nothing alive, as if the firewall forgot a connection just before the election.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, nft, Java and ZooKeeper's jars: make test-firewall"]
async fn firewall_that_has_forgotten_costs_a_restart_of_servers_without_a_leader() {
    start_firewall(&[("net.ipv4.tcp_keepalive_time", "7200")]);
    let mut world = World::of_three("forgotten");
    let took = elect(&mut world, Duration::from_secs(70));
    println!("an election over connections that a firewall has forgotten: {:.1} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(30), "{took:?}");
    let logs: String = (1..=3).map(|n| fs::read_to_string(world.path(n, "log")).unwrap()).collect();
    assert!(logs.contains("a firewall may have forgotten an idle connection"), "the watch mended it");
}
