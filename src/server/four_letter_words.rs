//! `ZooKeeper`'s four-letter words, as far as they are needed: what a server says of itself without a session.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::contract::control_api::Mode;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many bytes of an answer are read.
const LONGEST: u64 = 256 << 10;

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// What it does in the quorum.
    pub mode: Option<Mode>,
    /// Last transaction that it has seen.
    pub zxid: Option<i64>,
    /// Of a leader: voters that follow it and are synced, itself not counted.
    pub synced_voters: Option<i32>,
}

/// Asks the server at `address`. A server that does not answer says nothing.
pub async fn ask(address: SocketAddr) -> Said {
    let (mntr, srvr) = tokio::join!(word(address, "mntr"), word(address, "srvr"));
    read(mntr.as_deref(), srvr.as_deref())
}

async fn word(address: SocketAddr, word: &str) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(PATIENCE, asked).await.ok()?.ok()?;
    String::from_utf8(answer).ok().filter(|text| !text.is_empty())
}

fn read(mntr: Option<&str>, srvr: Option<&str>) -> Said {
    let value = |key: &str| {
        mntr.into_iter().flat_map(str::lines).find_map(|line| {
            let (name, value) = line.split_once('\t')?;
            (name == key).then(|| value.trim())
        })
    };
    // Prometheus' provider writes numbers as 2.0.
    let number = |key| value(key).and_then(|text| text.split('.').next()?.parse::<i32>().ok());
    let mode = match value("zk_server_state") {
        Some("leader") => Some(Mode::Leader),
        Some("follower") => Some(Mode::Follower),
        Some("observer") => Some(Mode::Observer),
        // It answers, and has no part in a quorum.
        _ => mntr.map(|_| Mode::Looking),
    };
    let zxid = srvr.into_iter().flat_map(str::lines).find_map(|line| {
        let text = line.strip_prefix("Zxid: ")?.trim();
        i64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    });
    let synced_voters = (mode == Some(Mode::Leader))
        .then(|| Some(number("zk_synced_followers")? - number("zk_synced_non_voting_followers")?))
        .flatten();
    Said { mode, zxid, synced_voters }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_says_how_many_voters_follow() {
        let mntr = "zk_version\t3.9.4\nzk_server_state\tleader\nzk_synced_followers\t3.0\nzk_synced_non_voting_followers\t1.0\n";
        let said = read(Some(mntr), Some("Zookeeper version: 3.9.4\nZxid: 0x100000003\nMode: leader\n"));
        assert_eq!(said, Said { mode: Some(Mode::Leader), zxid: Some(0x1_0000_0003), synced_voters: Some(2) });
    }

    #[test]
    fn a_server_without_a_quorum_is_looking() {
        let refusal = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(read(Some(refusal), Some(refusal)), Said { mode: Some(Mode::Looking), ..Said::default() });
        assert_eq!(read(None, None), Said::default());
    }
}
