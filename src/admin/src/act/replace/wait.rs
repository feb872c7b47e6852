//! Waits until the server serves from an empty volume, and shows what the agent waits for.

use std::time::Duration;

use super::{
    member::{LiveClaim, Member},
    request::Request,
};
use crate::{
    act::wait::{Shown, until_done},
    terminal::error::Error,
};
use mczk_api::{
    contract::conditions::{ConditionStatus, ConditionType, find},
    zookeeper::{ServerStatus, ZooKeeperStatus},
};

/// How far a replacement is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplaceProgress {
    /// The claim is still there.
    Requested(String),
    /// The claim is gone, and the server is coming back.
    Returning(String),
    /// The server serves from a new volume.
    Done(String),
}

/// Waits until the server serves again. False if the time is over before. A failed read is repeated: the agent goes on without
/// this command.
///
/// # Errors
/// If standard output is closed.
pub(super) async fn until_served(member: &Member, request: &Request, limit: Duration) -> Result<bool, Error> {
    until_done(async || look(member, request).await.map(|progress| Ok(shown(progress))), limit).await
}

fn shown(progress: ReplaceProgress) -> Shown {
    let is_done = matches!(progress, ReplaceProgress::Done(_));
    let late = match &progress {
        ReplaceProgress::Requested(_) => "The request stays: see mczk why",
        ReplaceProgress::Returning(_) | ReplaceProgress::Done(_) => {
            "The server goes on without this command: see mczk why"
        }
    };
    let (ReplaceProgress::Requested(text) | ReplaceProgress::Returning(text) | ReplaceProgress::Done(text)) = progress;
    Shown { text: format!("{text}\n"), late: late.to_owned(), is_done }
}

async fn look(member: &Member, request: &Request) -> anyhow::Result<ReplaceProgress> {
    // The claim first: a status from before its end does not count.
    let claim = member.find_claim(&request.server.pod).await?;
    Ok(progress(request, claim.as_ref(), &member.status().await?))
}

fn progress(request: &Request, claim: Option<&LiveClaim>, status: &ZooKeeperStatus) -> ReplaceProgress {
    let server = &request.server;
    if claim.is_some_and(|claim| claim.uid == request.uid) {
        let replacing = find(&status.conditions, ConditionType::Replacing, ConditionStatus::True);
        let waits = || format!("Waiting for the agent of cluster {}", server.cluster);
        return ReplaceProgress::Requested(replacing.map_or_else(waits, |condition| condition.message.clone()));
    }
    let reported = status.servers.iter().find(|reported| reported.pod.as_ref() == Some(&server.pod));
    // A report from before the deletion is of the former volume. A server that never voted may return under the same id.
    let is_new = |reported: &ServerStatus| reported.volume.is_some() && reported.volume != request.volume;
    match reported {
        Some(reported) if claim.is_some() && reported.serving && is_new(reported) => {
            ReplaceProgress::Done(format!("{} serves from an empty volume, as server {}", server.pod, reported.id))
        }
        _ => ReplaceProgress::Returning(format!("The volume is deleted. {} is coming back", server.pod)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::terminal::server_list::ListedServer;
    use mczk_api::zookeeper::Role;

    fn request() -> Request {
        Request {
            server: ListedServer { id: 2, cluster: "m2".to_owned(), role: Role::Voter, pod: "zk-0".to_owned() },
            claim: "data-zk-0".to_owned(),
            uid: "old".to_owned(),
            volume: Some("before".to_owned()),
            patch: json!({}),
            values: (None, "2/old".to_owned()),
        }
    }

    fn condition(message: &str) -> Value {
        json!([{
            "type": "Replacing", "status": "True", "reason": "ReplacementWaits", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    }

    fn reported(id: i32, volume: Option<&str>, serving: bool) -> Value {
        json!({ "servers": [{ "id": id, "pod": "zk-0", "serving": serving, "volume": volume }] })
    }

    #[rstest]
    #[case::unseen(Some("old"), json!({}), "Waiting for the agent of cluster m2")]
    #[case::waits(Some("old"), json!({ "conditions": condition("only 1 of 3 voters serve") }), "only 1 of 3 voters serve")]
    #[case::no_claim(None, reported(2, Some("after"), true), "The volume is deleted. zk-0 is coming back")]
    #[case::an_old_report(Some("new"), reported(2, Some("before"), true), "The volume is deleted. zk-0 is coming back")]
    #[case::starting(Some("new"), reported(4, Some("after"), false), "The volume is deleted. zk-0 is coming back")]
    #[case::an_unknown_volume(Some("new"), reported(4, None, true), "The volume is deleted. zk-0 is coming back")]
    #[case::the_same_id(Some("new"), reported(2, Some("after"), true), "zk-0 serves from an empty volume, as server 2")]
    #[case::done(Some("new"), reported(4, Some("after"), true), "zk-0 serves from an empty volume, as server 4")]
    fn the_progress(#[case] claim: Option<&str>, #[case] status: Value, #[case] expected: &str) {
        let claim = claim.map(|uid| LiveClaim { name: "data-zk-0".to_owned(), uid: uid.to_owned() });
        let progress = progress(&request(), claim.as_ref(), &serde_json::from_value(status).unwrap());
        let (ReplaceProgress::Requested(text) | ReplaceProgress::Returning(text) | ReplaceProgress::Done(text)) =
            &progress;
        assert_eq!(text, expected);
        assert_eq!(matches!(progress, ReplaceProgress::Done(_)), expected.contains("serves from"));
    }
}
