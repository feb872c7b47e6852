//! `ZooKeeper`'s admin server: the state of a server without a session.
//!
//! It answers on an address that only the parent process reaches, and has threads of its own. Clients can use up the connections
//! of the client port (`maxCnxns`), and then a four-letter word finds no answer there.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use mczk_api::contract::{
    control_api::Mode,
    pod_layout::{ADMIN_PORT, CLIENT_PORT},
    zookeeper_versions,
};

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 256 << 10;
/// What a server answers that has no part in a quorum.
const NO_PART: &str = "not currently serving requests";

/// Answers of a server. Empty if the server does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Role in the quorum.
    pub(crate) mode: Option<Mode>,
    /// Id of the last transaction that the server received.
    pub(crate) zxid: Option<i64>,
    /// Number of synced voters that follow this leader, without the leader. Absent on other servers.
    pub(crate) synced_voters: Option<i32>,
    /// Version of `ZooKeeper`.
    pub(crate) version: Option<String>,
}

/// The answer to `server_stats`.
#[derive(Debug, Deserialize)]
struct StatsAnswer {
    error: Option<String>,
    version: Option<String>,
    server_stats: Option<ServerStats>,
}

#[derive(Debug, Deserialize)]
struct ServerStats {
    server_state: String,
    last_processed_zxid: i64,
}

/// The answer of a leader to `monitor`. Providers of metrics write numbers as 2 or as 2.0.
#[derive(Debug, Deserialize)]
struct Followers {
    synced_followers: f64,
    synced_non_voting_followers: f64,
}

/// Asks the own server at `own`.
pub(crate) async fn ask(own: IpAddr) -> Answers {
    let state = match command(own, "server_stats").await {
        Ok(state) => state,
        // `ZooKeeper` opens both ports before it looks for a leader. A server that reads a large volume has neither.
        Err(error) if is_refused(&error) && exchange(own, CLIENT_PORT, "").await.is_err_and(|e| is_refused(&e)) => {
            return Answers { mode: Some(Mode::Looking), ..Answers::default() };
        }
        Err(_) => return Answers::default(),
    };
    let answers = of(state);
    if answers.mode != Some(Mode::Leader) {
        return answers;
    }
    let followers = command(own, "monitor").await.ok();
    Answers { synced_voters: followers.map(|followers| synced_voters(&followers)), ..answers }
}

/// True if neither port gives an answer or an end to a connection in time. A living `ZooKeeper` that refuses a client closes its
/// connection.
pub(crate) async fn is_silent(own: IpAddr) -> bool {
    let (admin, client) =
        tokio::join!(exchange(own, ADMIN_PORT, "GET / HTTP/1.0\r\n\r\n"), exchange(own, CLIENT_PORT, "ruok"));
    [admin, client].iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut))
}

fn is_refused(error: &Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

fn of(state: StatsAnswer) -> Answers {
    let version = state.version.map(|text| zookeeper_versions::number(&text));
    let version = version.filter(|number| !number.is_empty());
    let Some(served) = state.server_stats else {
        let has_no_part = state.error.is_some_and(|error| error.contains(NO_PART));
        return Answers { mode: has_no_part.then_some(Mode::Looking), ..Answers::default() };
    };
    let mode = match served.server_state.as_str() {
        "leader" => Mode::Leader,
        "follower" => Mode::Follower,
        "observer" => Mode::Observer,
        _ => Mode::Looking,
    };
    Answers { mode: Some(mode), zxid: Some(served.last_processed_zxid), version, synced_voters: None }
}

#[allow(clippy::cast_possible_truncation, reason = "an ensemble has at most 254 servers")]
fn synced_voters(followers: &Followers) -> i32 {
    (followers.synced_followers - followers.synced_non_voting_followers) as i32
}

async fn command<Answer: DeserializeOwned>(own: IpAddr, name: &str) -> Result<Answer, Error> {
    let answer = exchange(own, ADMIN_PORT, &format!("GET /commands/{name} HTTP/1.0\r\n\r\n")).await?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(Error::from)
}

/// What a port answers until it ends the connection.
async fn exchange(own: IpAddr, port: u16, question: &str) -> Result<String, Error> {
    let exchange = async {
        let mut stream = TcpStream::connect(SocketAddr::new(own, port)).await?;
        stream.write_all(question.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(MAX_ANSWER).read_to_string(&mut answer).await?;
        Ok(answer)
    };
    timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Answers of `ZooKeeper` 3.9.5.
    #[rstest]
    #[case::follows(
        json!({
            "version": "3.9.5-293c895a8d966a3ecb92872be4a1daf87d725da2, built on 2026-01-19", "read_only": false,
            "server_stats": { "server_state": "follower", "last_processed_zxid": 4_294_967_376_i64 },
            "command": "server_stats", "error": null,
        }),
        Answers {
            mode: Some(Mode::Follower), zxid: Some(4_294_967_376), version: Some("3.9.5".into()), synced_voters: None,
        }
    )]
    #[case::without_a_quorum(
        json!({ "command": "srvr", "error": "This ZooKeeper instance is not currently serving requests" }),
        Answers { mode: Some(Mode::Looking), ..Answers::default() }
    )]
    #[case::another_error(json!({ "command": "srvr", "error": "out of memory" }), Answers::default())]
    fn states(#[case] answer: serde_json::Value, #[case] expected: Answers) {
        assert_eq!(of(serde_json::from_value(answer).unwrap()), expected);
    }

    #[test]
    fn a_leader_counts_its_synced_voters() {
        let answer = json!({ "synced_followers": 3.0, "synced_non_voting_followers": 1.0, "command": "monitor" });
        assert_eq!(synced_voters(&serde_json::from_value(answer).unwrap()), 2);
    }
}
