//! Server lists and reports for tests.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::agent::decide::{
    client_certificates::AcceptedCertificates,
    lifetimes::Lifetimes,
    missing::MissingVoters,
    observation::{Claim, Observation},
    volume_size::VolumeSize,
};
use mczk_api::{
    ZooKeeper,
    contract::{
        control_api::{Mode, Phase, ServerReport},
        server_list::with_hash,
    },
    zookeeper::{Ensemble, Role, Server},
};

/// What the agent of m1 observes before anything is there.
pub(super) fn observation(object: ZooKeeper) -> Observation {
    Observation {
        stored: Value::Null,
        object,
        cluster: Some("m1".into()),
        cluster_id: None,
        configurations: vec![],
        sets: vec![],
        servers: vec![],
        probes: vec![],
        refusals: vec![],
        claims: vec![],
        refused_deletions: vec![],
        gone: BTreeSet::new(),
        unread_nodes: None,
        remaining: BTreeSet::new(),
        tombstones: BTreeSet::new(),
        views: vec![],
        quorum_certificates: None,
        missing_secrets: vec![],
        missing_for: Duration::ZERO,
        tls: None,
        mounted_certificates: None,
        lifetimes: Lifetimes::default(),
        client_certificates: AcceptedCertificates::default(),
        foreign: BTreeSet::new(),
        obstacles: vec![],
        published: None,
        due_for: Duration::ZERO,
        missing_voters: MissingVoters::default(),
        locked_for: Duration::ZERO,
        lock_failure: None,
        spare: None,
        holder: "m1".into(),
    }
}

/// A claim of this incarnation.
pub(super) fn claim(name: &str, incarnation: &str) -> Claim {
    Claim {
        name: name.into(),
        incarnation: incarnation.into(),
        uid: format!("uid-{name}"),
        version: Some("1".into()),
        bound: true,
        size: VolumeSize::default(),
        ending: false,
        servers_removed: false,
    }
}

/// Ids below 10 are of cluster m1, the others of m2.
pub(super) fn list(epoch: i64, ids: &[i32]) -> Ensemble {
    let servers = ids.iter().map(|id| Server {
        id: *id,
        cluster: if *id < 10 { "m1".into() } else { "m2".into() },
        ordinal: (id - 1) % 10,
        host: format!("zk-abc-{}.{}", (id - 1) % 10, if *id < 10 { "m1" } else { "m2" }),
        role: Role::Voter,
    });
    let servers = servers.collect();
    with_hash(Ensemble { incarnation: Some("abc".into()), epoch: Some(epoch), servers, ..Ensemble::default() }).unwrap()
}

/// The report of a running server of incarnation `abc`.
pub(super) fn report(id: i32, mode: Mode, serving: bool) -> ServerReport {
    ServerReport {
        id: Some(id),
        pod: format!("zk-{id}"),
        incarnation: "abc".into(),
        phase: Phase::Running,
        revision: "r1".into(),
        mode: Some(mode),
        serving,
        synced: serving,
        settled: serving,
        zxid: None,
        synced_voters: None,
        snapshot_bytes: None,
        short_seconds: None,
        version: None,
        configuration: None,
        accepted_epoch: i64::from(serving),
        volume: format!("v{id}"),
        first_start: None,
        acknowledged_nothing: false,
        stored_configuration: None,
        generations: std::collections::BTreeMap::new(),
        unraised: None,
        turned_away: None,
        disk: None,
        corrupt: false,
        lost: false,
        server_list: None,
        restart_lock: None,
        loaded: None,
    }
}
