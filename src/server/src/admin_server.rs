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

use mczk_rules::server::short_count::FollowerCount;

use mczk_api::contract::{
    control_api::Mode,
    pod_layout::{ADMIN_PORT, CLIENT_PORT},
    zookeeper_versions,
};

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer that is kept, in bytes.
const MAX_ANSWER: u64 = 256 << 10;
/// The most bytes of an answer that is searched, of its parts, and of a name with its number.
const MOST_SEARCHED: u64 = 64 << 20;
const PART: usize = 64 << 10;
const LONGEST_NUMBER: usize = 256;
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
    /// Bytes of a snapshot of all data, by an estimate of this leader. Absent on other servers.
    pub(crate) snapshot_bytes: Option<i64>,
    /// Version of `ZooKeeper`.
    pub(crate) version: Option<String>,
}

impl Answers {
    /// What the server counts, if its configuration has so many voters.
    pub(crate) fn follower_count(&self, voters: usize) -> FollowerCount {
        match (self.mode, self.synced_voters) {
            (Some(Mode::Leader), Some(synced)) => FollowerCount::of(synced, voters),
            (None, _) | (Some(Mode::Leader), None) => FollowerCount::Unknown,
            (Some(Mode::Follower | Mode::Observer | Mode::Looking), _) => FollowerCount::NotLeading,
        }
    }
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

/// The numbers that are read of a leader's answer to `monitor`.
const NUMBERS: [&str; 4] = ["synced_followers", "synced_non_voting_followers", "approximate_data_size", "znode_count"];

/// The numbers of a leader, in the order of [`NUMBERS`].
///
/// `ZooKeeper` adds metrics of each znode at the top, in any order. Clients can create as many of these znodes as they like. So
/// the parent searches the answer while it reads it, and keeps only the numbers.
#[derive(Debug, Default)]
struct Led([Option<f64>; NUMBERS.len()]);

impl Led {
    /// Takes what a part of the answer holds.
    fn search(&mut self, part: &str) {
        for (found, name) in self.0.iter_mut().zip(NUMBERS) {
            *found = found.or_else(|| number(part, name));
        }
    }

    /// Searches the answer of the own server, until it has all numbers.
    async fn read(&mut self, own: IpAddr) -> Result<(), Error> {
        let mut answer = request(own, ADMIN_PORT, &get("monitor")).await?.take(MOST_SEARCHED);
        let mut part = Vec::with_capacity(PART);
        while self.0.contains(&None) && answer.read_buf(&mut part).await? > 0 {
            self.search(&String::from_utf8_lossy(&part));
            part.drain(..part.len().saturating_sub(LONGEST_NUMBER));
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation, reason = "an ensemble has at most 254 servers")]
    fn synced_voters(&self) -> Option<i32> {
        let [followers, observers, _, _] = self.0;
        Some((followers? - observers?) as i32)
    }

    #[allow(clippy::cast_possible_truncation, reason = "no memory holds so much")]
    fn snapshot_bytes(&self) -> Option<i64> {
        let [_, _, bytes, znodes] = self.0;
        Some((bytes? + znodes? * OF_ZNODE) as i64)
    }
}

/// A number, which providers of metrics write as 2 or as 2.0. A quote within a name of a znode has a backslash. `None` if the part
/// ends with it.
fn number(part: &str, name: &str) -> Option<f64> {
    let (_, after) = part.split_once(&format!("\"{name}\""))?;
    let (value, _) = after.split_once([',', '}', '\r', '\n'])?;
    value.trim_matches([' ', ':']).parse().ok()
}

/// Bytes of a znode in a snapshot beside its path and its data: their lengths, the ACL and the stat (`DataNode.serialize`).
const OF_ZNODE: f64 = 84.0;

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
    let mut led = Led::default();
    // What was found in time counts.
    let _ = timeout(ANSWER_TIMEOUT, led.read(own)).await;
    Answers { synced_voters: led.synced_voters(), snapshot_bytes: led.snapshot_bytes(), ..answers }
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
    Answers { mode: Some(mode), zxid: Some(served.last_processed_zxid), version, ..Answers::default() }
}

async fn command<Answer: DeserializeOwned>(own: IpAddr, name: &str) -> Result<Answer, Error> {
    serde_json::from_str(&body(own, name).await?).map_err(Error::from)
}

async fn body(own: IpAddr, name: &str) -> Result<String, Error> {
    let answer = exchange(own, ADMIN_PORT, &get(name)).await?;
    Ok(answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

fn get(command: &str) -> String {
    format!("GET /commands/{command} HTTP/1.0\r\n\r\n")
}

/// The answer of a port to a question.
async fn request(own: IpAddr, port: u16, question: &str) -> Result<TcpStream, Error> {
    let mut stream = TcpStream::connect(SocketAddr::new(own, port)).await?;
    stream.write_all(question.as_bytes()).await?;
    Ok(stream)
}

/// What a port answers until it ends the connection.
async fn exchange(own: IpAddr, port: u16, question: &str) -> Result<String, Error> {
    let exchange = async {
        let stream = request(own, port, question).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        // The end may cut a character.
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::json;
    use tokio::net::TcpListener;

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
            mode: Some(Mode::Follower), zxid: Some(4_294_967_376), version: Some("3.9.5".into()), ..Answers::default()
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

    /// A client chooses the names of znodes.
    #[test]
    fn a_leader_counts_its_synced_voters_and_its_data_whatever_the_names_of_znodes_are() {
        let answer = json!({
            "approximate_data_size": 5000, "synced_followers": 3.0, "synced_non_voting_followers": 1.0, "znode_count": 10,
            "write_per_namespace_\"synced_followers\"": 9,
        });
        for text in [answer.to_string(), serde_json::to_string_pretty(&answer).unwrap()] {
            let mut led = Led::default();
            led.search(&text);
            assert_eq!((led.synced_voters(), led.snapshot_bytes()), (Some(2), Some(5840)), "{text}");
        }
        assert_eq!(number("\"znode_count\" : 12", "znode_count"), None, "more digits may follow");
        assert_eq!(Led::default().synced_voters(), None);
    }

    /// Metrics of znodes come before and after the numbers, and a part of the answer ends anywhere.
    #[rstest]
    #[case::none(0)]
    #[case::many(2_000_000)]
    #[case::in_the_middle_of_a_name(PART - 200)]
    #[case::in_the_middle_of_a_number(PART - 100)]
    #[tokio::test]
    async fn a_leader_with_many_znodes_counts_its_synced_voters(#[case] before: usize) {
        let own = IpAddr::from([127, 81, 1, 3 + u8::try_from(before % 7).unwrap()]);
        let admin = TcpListener::bind((own, ADMIN_PORT)).await.unwrap();
        let stats = json!({ "server_stats": { "server_state": "leader", "last_processed_zxid": 1 } }).to_string();
        let led = json!({
            "aa": "a".repeat(before), "synced_followers": 12, "synced_non_voting_followers": 0, "zz": "ü".repeat(200_000),
        });
        tokio::spawn(async move {
            for answer in [stats, led.to_string()] {
                let (mut stream, _) = admin.accept().await.unwrap();
                let mut question = [0; 256];
                assert!(stream.read(&mut question).await.unwrap() > 0);
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{answer}").as_bytes()).await;
            }
        });
        assert_eq!(ask(own).await.synced_voters, Some(12));
    }
}
