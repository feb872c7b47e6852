//! Tests of a rig without nodes, through the library: `cargo test -p rig -- --ignored`. The tools are built the first time,
//! for some minutes.
#![allow(clippy::expect_used, reason = "a test fails by a panic")]

use std::path::PathBuf;
use std::time::Duration;

use rig::{Options, Rig};

fn options(name: &str) -> Options {
    Options {
        dir: Some(std::env::temp_dir().join(format!("rig-{name}-{}", std::process::id()))),
        members: 1,
        ..Options::default()
    }
}

/// The numbers of all processes with this folder in their command line.
fn processes(folder: &str) -> Vec<PathBuf> {
    let this = std::process::id().to_string();
    std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !path.ends_with(&this))
        .filter(|path| {
            std::fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(folder))
        })
        .collect()
}

#[tokio::test]
#[ignore = "starts a federation"]
async fn from_up_to_down() {
    let options = options("whole");
    let folder = options.dir.clone().expect("set above");
    let rig = Rig::up(options.clone()).await.expect("up");
    assert_eq!(rig.members(), ["m1"]);
    assert_eq!(rig.pull_members(), ["m1"]);
    let status = rig.status().await.expect("status");
    assert!(status.healthy(), "{status}");
    assert!(rig.audit_log().exists() && rig.tool("kubectl").exists() && rig.kubeconfig("mczk-operator").exists());

    // A second caller uses the same rig without owning it.
    drop(Rig::up(options).await.expect("up again"));
    let other = Rig::attach(Some(&folder)).expect("attach");
    let ports = [rig.free_port().expect("a port"), other.free_port().expect("a port")];
    assert!(ports[0] != ports[1] && ports.iter().all(|port| *port < 30_000), "{ports:?}");
    drop(other);

    let refused = rig.stop("m1-apiserver").await.expect_err("not a name");
    assert!(refused.to_string().contains("m1/apiserver"), "{refused}");
    rig.stop("m1/apiserver").await.expect("stop");
    let mut noticed = false;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        noticed = rig.status().await.expect("status").members.iter().any(|member| !member.ready);
        if noticed {
            break;
        }
    }
    assert!(noticed, "Karmada does not notice that m1 is gone");
    rig.start("m1/apiserver").await.expect("start");
    rig.ready("m1").await.expect("ready");
    rig.restart("karmada-scheduler").await.expect("restart");
    rig.kill("karmada-controller-manager").await.expect("kill");

    assert!(!processes(&folder.to_string_lossy()).is_empty());
    rig.down().await.expect("down");
    assert_eq!(processes(&folder.to_string_lossy()), Vec::<PathBuf>::new());
    assert!(!folder.exists());
}

#[tokio::test]
#[ignore = "starts a federation"]
async fn a_start_that_is_given_up_leaves_nothing() {
    let options = options("given-up");
    let folder = options.dir.clone().expect("set above");
    let early = tokio::time::timeout(Duration::from_secs(3), Rig::up(options)).await;
    assert!(early.is_err(), "a federation started in 3 s");
    assert_eq!(processes(&folder.to_string_lossy()), Vec::<PathBuf>::new());
    assert!(!folder.exists());
}

/// At this moment the supervisor has not said yet that it runs.
#[tokio::test]
#[ignore = "starts a federation"]
async fn a_start_that_is_given_up_when_its_supervisor_begins_leaves_nothing() {
    let options = options("begun");
    let folder = options.dir.clone().expect("set above");
    let begun = async {
        while processes(&folder.to_string_lossy()).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        started = Rig::up(options) => assert!(started.is_err(), "a federation started before its supervisor"),
        () = begun => {}
    }
    assert_eq!(processes(&folder.to_string_lossy()), Vec::<PathBuf>::new());
    assert!(!folder.exists());
}
