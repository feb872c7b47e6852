//! Server lists and reports for tests.
#![allow(clippy::unwrap_used)]

use crate::{
    api::zookeeper::{Ensemble, Role, Server},
    contract::{
        control_api::{Mode, Phase, ServerReport},
        server_list::with_hash,
    },
};

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
        version: None,
        configuration: None,
        accepted_epoch: i64::from(serving),
        volume: format!("v{id}"),
        generations: std::collections::BTreeMap::new(),
        disk: None,
        corrupt: false,
        lost: false,
        server_list: None,
        restart_lock: None,
        loaded: None,
    }
}
