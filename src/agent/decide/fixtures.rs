//! A server list of two clusters, for tests.
#![allow(clippy::unwrap_used)]

use crate::{
    api::zookeeper::{Ensemble, Role, Server},
    contract::server_list::with_hash,
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
