//! `ZooKeeper`'s four-letter words: state of a server without a session.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use mczk_api::contract::{control_api::Mode, zookeeper_versions};

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 256 << 10;

/// Answers of a server. Empty if the server does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordAnswers {
    /// Role in the quorum.
    pub(crate) mode: Option<Mode>,
    /// Id of the last transaction that the server received.
    pub(crate) zxid: Option<i64>,
    /// Number of synced voters that follow this leader, without the leader. Absent on other servers.
    pub(crate) synced_voters: Option<i32>,
    /// Version of `ZooKeeper`.
    pub(crate) version: Option<String>,
}

/// Asks the server at `address`.
pub(crate) async fn ask(address: SocketAddr) -> WordAnswers {
    let (mntr, srvr) = tokio::join!(word(address, "mntr"), word(address, "srvr"));
    parse(mntr.as_deref(), srvr.as_deref())
}

async fn word(address: SocketAddr, word: &str) -> Option<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(ANSWER_TIMEOUT, exchange).await.ok()?.ok()?;
    String::from_utf8(answer).ok().filter(|text| !text.is_empty())
}

fn parse(mntr: Option<&str>, srvr: Option<&str>) -> WordAnswers {
    let value = |key: &str| {
        mntr.into_iter().flat_map(str::lines).find_map(|line| {
            let (name, value) = line.split_once('\t')?;
            (name == key).then(|| value.trim())
        })
    };
    // The metrics provider of Prometheus writes numbers as 2.0.
    let number = |key| value(key).and_then(|text| text.split('.').next()?.parse::<i32>().ok());
    let mode = match value("zk_server_state") {
        Some("leader") => Some(Mode::Leader),
        Some("follower") => Some(Mode::Follower),
        Some("observer") => Some(Mode::Observer),
        // A server that answers without a state has no part in a quorum.
        _ => mntr.map(|_| Mode::Looking),
    };
    let zxid = srvr.into_iter().flat_map(str::lines).find_map(|line| {
        let text = line.strip_prefix("Zxid: ")?.trim();
        i64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    });
    let synced_voters = (mode == Some(Mode::Leader))
        .then(|| Some(number("zk_synced_followers")? - number("zk_synced_non_voting_followers")?))
        .flatten();
    let version = value("zk_version").map(zookeeper_versions::number).filter(|number| !number.is_empty());
    WordAnswers { mode, zxid, synced_voters, version }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_reports_its_synced_voters() {
        let mntr = "zk_version\t3.9.4-7246445, built on 2025-08-19\nzk_server_state\tleader\nzk_synced_followers\t3.0\nzk_synced_non_voting_followers\t1.0\n";
        let answers = parse(Some(mntr), Some("Zookeeper version: 3.9.4\nZxid: 0x100000003\nMode: leader\n"));
        assert_eq!(
            answers,
            WordAnswers {
                mode: Some(Mode::Leader),
                zxid: Some(0x1_0000_0003),
                synced_voters: Some(2),
                version: Some("3.9.4".to_owned()),
            }
        );
    }

    #[test]
    fn a_server_without_a_quorum_is_looking() {
        let refusal = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(
            parse(Some(refusal), Some(refusal)),
            WordAnswers { mode: Some(Mode::Looking), ..WordAnswers::default() }
        );
        assert_eq!(parse(None, None), WordAnswers::default());
    }
}
