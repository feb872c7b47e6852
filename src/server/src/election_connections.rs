//! Looks for connections to election ports that the network has forgotten.

use std::{net::IpAddr, time::Duration};

use futures::future::join_all;
use tokio::{fs, net::TcpStream, time::timeout};

use mczk_api::contract::pod_layout::CONTROL_PORT;
use mczk_rules::server::election_connections::unanswered;

/// The kernel's tables of connections.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Time limit of a connection.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A server to which this one sends in vain over an election connection, although its pod answers a new connection.
pub(super) async fn forgotten() -> Option<IpAddr> {
    let tables = join_all(TABLES.map(fs::read_to_string)).await;
    let servers = tables.into_iter().flatten().flat_map(|table| unanswered(&table));
    let answers = servers.map(|server| async move {
        let answer = timeout(TIMEOUT, TcpStream::connect((server, CONTROL_PORT))).await;
        matches!(answer, Ok(Ok(_))).then_some(server)
    });
    join_all(answers).await.into_iter().flatten().next()
}
