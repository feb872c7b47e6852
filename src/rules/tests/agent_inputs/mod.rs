//! What the rules of the agent read, for clusters in memory. Fields that these clusters do not have get natural values.
#![allow(dead_code)] // no test uses everything

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::Timestamp;
use mczk_api::{
    ZooKeeper,
    contract::control_api::{Configuration, ConfiguredServer, Mode, Phase, ServerReport},
    zookeeper::{Ensemble, Role, ZooKeeperStatus},
};
use mczk_rules::agent::decide::{
    client_certificates::AcceptedCertificates, lifetimes::Lifetimes, local_server::LocalServer, missing::MissingVoters,
    observation::Observation, restart::SILENCE, status::AgentStatusInputs,
};

/// The report of a server that runs `ZooKeeper` without a quorum.
pub fn looking(id: impl Into<Option<i32>>, pod: impl Into<String>, incarnation: &str) -> ServerReport {
    ServerReport {
        id: id.into(),
        pod: pod.into(),
        incarnation: incarnation.to_owned(),
        phase: Phase::Running,
        revision: String::new(),
        mode: Some(Mode::Looking),
        serving: false,
        synced: false,
        settled: false,
        zxid: None,
        synced_voters: None,
        snapshot_bytes: None,
        short_seconds: None,
        version: None,
        configuration: None,
        accepted_epoch: 0,
        volume: String::new(),
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

/// The report of the same server in a quorum.
pub fn serving(report: ServerReport, configuration: &Configuration, leader: Option<i32>) -> ServerReport {
    let mode = match report.id {
        Some(id) if Some(id) == leader => Mode::Leader,
        Some(id) if configuration.voters().any(|voter| voter == id) => Mode::Follower,
        _ => Mode::Observer,
    };
    ServerReport {
        mode: Some(mode),
        serving: true,
        synced: true,
        settled: true,
        configuration: Some(configuration.clone()),
        ..report
    }
}

/// `ZooKeeper`'s configuration of these voters.
pub fn configuration<'a>(
    version: i64,
    voters: impl IntoIterator<Item = &'a i32>,
    host: impl Fn(i32) -> String,
) -> Configuration {
    let servers = voters.into_iter().map(|id| ConfiguredServer { id: *id, host: host(*id), role: Role::Voter });
    Configuration { version, servers: servers.collect() }
}

/// A server of an agent's cluster, which the agent reaches. Time passes between any two steps.
pub fn local_server(view: ServerReport, role: Role, ordinal: i32) -> LocalServer {
    LocalServer {
        pod: view.pod.clone(),
        uid: "u".to_owned(),
        role,
        ordinal,
        id: view.id,
        revision: view.revision.clone(),
        ready: view.serving,
        runs: true,
        terminating: false,
        orphaned: false,
        overdue: false,
        drain: None,
        needs_mount: false,
        failure: None,
        unready_for: SILENCE,
        view: Some(view),
    }
}

/// A status of these servers under an accepted server list, without anything unusual.
pub fn status_inputs<'a>(
    before: &'a ZooKeeperStatus,
    list: &'a Ensemble,
    servers: &'a [LocalServer],
    views: &'a [ServerReport],
) -> AgentStatusInputs<'a> {
    AgentStatusInputs {
        cluster_id: None,
        generation: None,
        before,
        spec_hash: None,
        completed: false,
        as_declared: false,
        list: Some(list),
        servers,
        views,
        decommissioned: false,
        progress: None,
        obstacle: None,
        draining: None,
        replacing: None,
        undone: None,
        others: (Vec::new(), None),
        certificates: None,
        expiry: None,
        published: None,
        loaded: None,
        missing_secrets: Vec::new(),
        preflight: None,
        first_starts: Vec::new(),
        unused_claims: Vec::new(),
        smallest_volume: None,
        missing_voters: BTreeSet::new(),
        spare: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// What the agent of a cluster observes: no servers, and nothing unusual.
pub fn observation(object: ZooKeeper, cluster: &str) -> Observation {
    Observation {
        stored: serde_json::to_value(&object.spec).expect("a spec has JSON"),
        object,
        cluster: Some(cluster.to_owned()),
        cluster_id: None,
        configurations: Vec::new(),
        sets: Vec::new(),
        servers: Vec::new(),
        probes: Vec::new(),
        refusals: Vec::new(),
        claims: Vec::new(),
        refused_deletions: Vec::new(),
        gone: BTreeSet::new(),
        unread_nodes: None,
        remaining: BTreeSet::new(),
        tombstones: BTreeSet::new(),
        views: Vec::new(),
        quorum_certificates: None,
        missing_secrets: Vec::new(),
        missing_for: Duration::ZERO,
        tls: None,
        mounted_certificates: None,
        lifetimes: Lifetimes::default(),
        client_certificates: AcceptedCertificates::default(),
        foreign: BTreeSet::new(),
        obstacles: Vec::new(),
        published: None,
        due_for: Duration::ZERO,
        missing_voters: MissingVoters::default(),
        locked_for: Duration::ZERO,
        lock_failure: None,
        spare: None,
        holder: cluster.to_owned(),
    }
}
