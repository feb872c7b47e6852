//! Where things lie in a server's pod: ports, folders and files that the rendering and `mczk server` both name.

use crate::api::{
    tls::{ClientTls, ClientTlsMode},
    zookeeper::Server,
};

/// Port of clients, in plain text.
pub const CLIENT_PORT: u16 = 2181;
/// Port of clients, over TLS, and, while that is an option, in plain text too.
pub const SECURE_CLIENT_PORT: u16 = 2281;
/// Ports on which clients find a server, by name, the one that they should use first. While TLS is an option there are both, so
/// that clients move from one to the other before and after servers are changed.
#[must_use]
pub fn client_ports(tls: Option<&ClientTls>) -> &'static [(&'static str, u16)] {
    match tls.map(|tls| tls.mode) {
        None => &[("client", CLIENT_PORT)],
        Some(ClientTlsMode::Optional) => &[("client", CLIENT_PORT), ("secure-client", SECURE_CLIENT_PORT)],
        Some(ClientTlsMode::Required) => &[("secure-client", SECURE_CLIENT_PORT)],
    }
}

/// The port that clients should use.
#[must_use]
pub fn client_port(tls: Option<&ClientTls>) -> u16 {
    client_ports(tls).first().map_or(CLIENT_PORT, |(_, port)| *port)
}

/// Where clients find servers, as HOST:PORT, by the names that servers have for each other; also those that have still to
/// start: a client tries the next one.
#[must_use]
pub fn endpoints(servers: &[Server], tls: Option<&ClientTls>) -> Vec<String> {
    let port = client_port(tls);
    servers.iter().map(|server| format!("{}:{port}", server.host)).collect()
}

/// Port on which followers find their leader.
pub const QUORUM_PORT: u16 = 2888;
/// Port of leader elections.
pub const ELECTION_PORT: u16 = 3888;
/// Port of `ZooKeeper`'s own Prometheus metrics.
pub const METRICS_PORT: u16 = 7000;
/// Port of the probes: `/livez`, `/readyz`, `/metrics` of `mczk server`, in plain text.
pub const PROBE_PORT: u16 = 8080;
/// Port on which agents look at a server and act on it, over mutual TLS under the incarnation's authority.
pub const CONTROL_PORT: u16 = 8443;

/// The data volume.
pub const DATA: &str = "/data";
/// Folder of the one ensemble and id that the volume serves now, below [`DATA`]; what it held before is set aside beside it.
pub const ACTIVE_DATA: &str = "/data/active";
/// Folder of the program `mczk`, filled by the init container.
pub const PROGRAM: &str = "/mczk";
/// Folder of the ConfigMap: what the server is told.
pub const CONFIG_DIR: &str = "/etc/mczk";
/// File in [`CONFIG_DIR`]: the list of servers, as JSON of [`crate::api::zookeeper::Ensemble`].
pub const SERVER_LIST_FILE: &str = "server-list.json";
/// File in [`CONFIG_DIR`]: JSON of [`super::wire::ServerConfig`].
pub const SERVER_CONFIG_FILE: &str = "server-config.json";
/// Folder of the Secret with the quorum's certificates: `tls.crt`, `tls.key` and `ca.crt` in PEM.
pub const QUORUM_TLS: &str = "/etc/mczk-quorum";
/// Folder of the Secret with the clients' certificates: `tls.crt`, `tls.key` and `ca.crt` in PEM.
pub const CLIENT_TLS: &str = "/etc/mczk-client";
/// Folder for what need not outlive the container.
pub const SCRATCH: &str = "/tmp";
/// User and group of every container.
pub const USER: i64 = 1000;

/// The znode below which the ensemble keeps what agents need to share.
pub const ZNODE: &str = "/mczk";
/// The znode that holds the newest list of servers, as JSON of [`crate::api::zookeeper::Ensemble`].
pub const SERVER_LIST_ZNODE: &str = "/mczk/server-list";
/// The ephemeral znode whose session may take a serving voter out.
pub const RESTART_LOCK_ZNODE: &str = "/mczk/restart-lock";
