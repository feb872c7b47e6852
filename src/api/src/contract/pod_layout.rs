//! Ports, folders, files and znodes of a server's pod, which both the agent's rendering and `mczk server` use.

use crate::{
    tls::{ClientTls, ClientTlsMode},
    zookeeper::Server,
};

/// Name of the container of a server, in which `mczk server` runs `ZooKeeper`.
pub const SERVER_CONTAINER: &str = "zookeeper";

/// Port of clients, in plain text.
pub const CLIENT_PORT: u16 = 2181;
/// Port of clients over TLS. While TLS is optional, the port also accepts plain text.
pub const SECURE_CLIENT_PORT: u16 = 2281;
/// Names and ports of a server for clients, the preferred one first. While TLS is optional there are both, so that clients can
/// move before and after the servers change.
#[must_use]
pub fn client_ports(tls: Option<&ClientTls>) -> &'static [(&'static str, u16)] {
    match tls.map(|tls| tls.mode) {
        None => &[("client", CLIENT_PORT)],
        Some(ClientTlsMode::Optional) => &[("client", CLIENT_PORT), ("secure-client", SECURE_CLIENT_PORT)],
        Some(ClientTlsMode::Required) => &[("secure-client", SECURE_CLIENT_PORT)],
    }
}

/// The preferred port for clients.
#[must_use]
pub fn client_port(tls: Option<&ClientTls>) -> u16 {
    client_ports(tls).first().map_or(CLIENT_PORT, |(_, port)| *port)
}

/// Endpoints for clients, as HOST:PORT, by the names that servers use for each other. They include servers that have not
/// started yet, since a client tries the next one.
#[must_use]
pub fn endpoints(servers: &[Server], tls: Option<&ClientTls>) -> Vec<String> {
    let port = client_port(tls);
    servers.iter().map(|server| format!("{}:{port}", server.host)).collect()
}

/// Port of the leader for its followers.
pub const QUORUM_PORT: u16 = 2888;
/// Port of leader elections.
pub const ELECTION_PORT: u16 = 3888;
/// Port of `ZooKeeper`'s own Prometheus metrics.
pub const METRICS_PORT: u16 = 7000;
/// Port of `ZooKeeper`'s admin server, which answers its parent process alone. Clients reach the client port, and can use up its
/// connections.
pub const ADMIN_PORT: u16 = 7001;
/// Port of `/livez`, `/readyz` and `/metrics` of `mczk server`, in plain text.
pub const PROBE_PORT: u16 = 8080;
/// Port of [`super::control_api`].
pub const CONTROL_PORT: u16 = 8443;

/// Parameters of the kernel in a server's pod: a connection to an election port carries a packet every 5 s while it is idle, and
/// ends after 10 s without an answer. Kubernetes calls them safe since 1.29.
pub const KEEPALIVE: [(&str, &str); 3] = [
    ("net.ipv4.tcp_keepalive_time", "5"),
    ("net.ipv4.tcp_keepalive_intvl", "1"),
    ("net.ipv4.tcp_keepalive_probes", "5"),
];

/// The data volume.
pub const DATA: &str = "/data";
/// Folder below [`DATA`] of the incarnation and id that the volume serves. Older data is set aside next to it.
pub const ACTIVE_DATA: &str = "/data/active";
/// Folder of the program `mczk`. The init container fills it.
pub const PROGRAM: &str = "/mczk";
/// Folder of the ConfigMap with the server's configuration.
pub const CONFIG_DIR: &str = "/etc/mczk";
/// File in [`CONFIG_DIR`]: the server list, as JSON of [`crate::zookeeper::Ensemble`].
pub const SERVER_LIST_FILE: &str = "server-list.json";
/// File in [`CONFIG_DIR`]: JSON of [`super::control_api::ServerConfig`].
pub const SERVER_CONFIG_FILE: &str = "server-config.json";
/// Folder of the Secret with the quorum's certificates: `tls.crt`, `tls.key` and `ca.crt` in PEM.
pub const QUORUM_TLS: &str = "/etc/mczk-quorum";
/// Folder of the Secret with the certificates for clients: `tls.crt`, `tls.key` and `ca.crt` in PEM.
pub const CLIENT_TLS: &str = "/etc/mczk-client";
/// Folder for files that need not outlive the container.
pub const SCRATCH: &str = "/tmp";
/// Folder for private keys and the superuser's digest, in memory. Before render version 3 they are in [`SCRATCH`].
pub const KEYS: &str = "/run/mczk";
/// User and group of every container.
pub const USER: i64 = 1000;

/// The znode that holds what agents share through the ensemble.
pub const ZNODE: &str = "/mczk";
/// The znode of the newest server list, as JSON of [`crate::zookeeper::Ensemble`].
pub const SERVER_LIST_ZNODE: &str = "/mczk/server-list";
/// The znode above the generations of volumes, one znode for each server's id.
pub const GENERATIONS_ZNODE: &str = "/mczk/generations";
/// The ephemeral znode of the restart lock: its session may restart a serving voter.
pub const RESTART_LOCK_ZNODE: &str = "/mczk/restart-lock";
