//! The events of a cluster, from the difference between two statuses. A repeated reconcile has no difference, so it repeats
//! no event. Warnings have a rule of their own: `warnings`.

use mczk_api::{
    contract::event_reasons::event_reasons,
    preflight::{PreflightReport, RoundTrip},
    zookeeper::{ServerStatus, ZooKeeperStatus},
};

event_reasons! {
    /// Reason of an event about a ZooKeeper object in a member cluster.
    AgentEventReason;

    /// The cluster reaches every other one in the network check; the message has the longest round trip.
    NetworkChecked, Normal; "Nothing";
    /// The agent accepts a spec.
    SpecAccepted, Normal; "Nothing";
    /// The agent accepts a server list.
    ServerListAccepted, Normal; "Nothing";
    /// A server serves.
    ServerStarted, Normal; "Nothing";
    /// The agent deletes the pod of a server to restart it.
    ServerRestarting, Normal; "Nothing";
    /// The agent deletes the volume of a server, as a user wants.
    VolumeReplaced, Normal; "Nothing";
    /// A pod runs another server than before: its volume was lost, or its id left the server list.
    ServerReplaced, Normal; "Nothing";
    /// A server has left the cluster.
    ServerRemoved, Normal; "Nothing";
    /// Every server of the cluster has loaded other certificates of the quorum.
    CertificateRenewed, Normal; "Nothing";
    /// The agent refuses the spec or cannot apply it.
    Blocked, Warning; "See the condition `Blocked`: the message starts with its reason";
    /// Another writer changes an object of the agent again and again.
    ObjectContested, Warning; "See the condition `Contested`: the message starts with its reason";
    /// A server cannot start from its volume.
    VolumeUnusable, Warning; "See the condition `VolumeUnusable`: the message starts with its reason";
    /// The volume of a server fills up.
    DiskPressure, Warning; "See the condition `DiskPressure`: the message starts with its reason";
    /// A server has to leave a node that is being drained, and stays.
    DrainBlocked, Warning; "See the condition `Draining`: the message starts with its reason";
    /// The agent refuses the newest certificates for clients.
    ClientCertificatesRefused, Warning; "See the condition `ClientCertificatesKept`: the message starts with its reason";
    /// A certificate expires soon, although its renewal is due.
    CertificatesExpire, Warning; "See the condition `CertificatesExpire`: the message starts with its reason";
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEvent {
    /// Its reason.
    pub reason: AgentEventReason,
    /// One sentence.
    pub message: String,
}

/// The events between two statuses, without the warnings.
#[must_use]
pub fn events(old: &ZooKeeperStatus, new: &ZooKeeperStatus) -> Vec<AgentEvent> {
    let checked = network_check(old, new).into_iter();
    let accepted = checked.chain(spec(old, new)).chain(server_list(old, new)).chain(certificates(old, new));
    accepted.chain(servers(&old.servers, &new.servers)).collect()
}

fn event(reason: AgentEventReason, message: String) -> AgentEvent {
    AgentEvent { reason, message }
}

/// The report of the check ends with the check, so the event keeps the round trip.
fn network_check(old: &ZooKeeperStatus, new: &ZooKeeperStatus) -> Option<AgentEvent> {
    let report = passed(new).filter(|report| passed(old).is_none_or(|before| before.round != report.round))?;
    let name =
        |RoundTrip { to, milliseconds }: &RoundTrip| format!(". The longest round trip is {milliseconds} ms, to {to}");
    let longest = report.round_trip.as_ref().map(name).unwrap_or_default();
    let message = format!("This cluster reaches every cluster of the ensemble{longest}");
    Some(event(AgentEventReason::NetworkChecked, message))
}

fn passed(status: &ZooKeeperStatus) -> Option<&PreflightReport> {
    let is_passed =
        |report: &&PreflightReport| report.failure.is_none() && report.problems.is_empty() && report.more.is_none();
    status.preflight.as_ref().filter(is_passed)
}

fn spec(old: &ZooKeeperStatus, new: &ZooKeeperStatus) -> Option<AgentEvent> {
    let hash = new.observed_spec_hash.as_ref().filter(|_| new.observed_spec_hash != old.observed_spec_hash)?;
    Some(event(AgentEventReason::SpecAccepted, format!("The agent accepts the spec with the hash {hash}")))
}

fn server_list(old: &ZooKeeperStatus, new: &ZooKeeperStatus) -> Option<AgentEvent> {
    let of = |status: &ZooKeeperStatus| {
        let list = status.ensemble.as_ref()?;
        Some((list.incarnation.clone()?, list.epoch?))
    };
    let (incarnation, epoch) = of(new).filter(|list| Some(list) != of(old).as_ref())?;
    let message = format!("The agent accepts the server list of epoch {epoch} of incarnation {incarnation}");
    Some(event(AgentEventReason::ServerListAccepted, message))
}

fn certificates(old: &ZooKeeperStatus, new: &ZooKeeperStatus) -> Option<AgentEvent> {
    let (before, after) = (old.ensemble_tls.as_ref()?, new.ensemble_tls.as_ref()?);
    (before != after).then(|| {
        let secrets: Vec<&str> = after.secrets().map(String::as_str).collect();
        let message = format!("Every server has loaded the certificates of the Secrets {}", secrets.join(", "));
        event(AgentEventReason::CertificateRenewed, message)
    })
}

fn servers(old: &[ServerStatus], new: &[ServerStatus]) -> Vec<AgentEvent> {
    let before = |id: i32| old.iter().find(|server| server.id == id);
    let pod = |server: &ServerStatus| server.pod.clone().unwrap_or_default();
    let replaces = |server: &ServerStatus| {
        let same_pod = |former: &&ServerStatus| former.pod.is_some() && former.pod == server.pod;
        old.iter().filter(same_pod).find(|former| former.id != server.id).filter(|_| before(server.id).is_none())
    };
    let mut events = Vec::new();
    for server in new {
        let (id, pod) = (server.id, pod(server));
        if let Some(former) = replaces(server) {
            let message = format!("Server {id} replaces server {} in pod {pod}", former.id);
            events.push(event(AgentEventReason::ServerReplaced, message));
        }
        if server.serving && !before(id).is_some_and(|before| before.serving) {
            events.push(event(AgentEventReason::ServerStarted, format!("Server {id} serves in pod {pod}")));
        }
    }
    let remains = |former: &ServerStatus| {
        new.iter().any(|server| server.id == former.id || (server.pod.is_some() && server.pod == former.pod))
    };
    for former in old.iter().filter(|former| !remains(former)) {
        let message = format!("Server {} of pod {} is removed", former.id, pod(former));
        events.push(event(AgentEventReason::ServerRemoved, message));
    }
    events
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn status(value: Value) -> ZooKeeperStatus {
        serde_json::from_value(value).unwrap()
    }

    fn reasons(old: &Value, new: &Value) -> Vec<&'static str> {
        events(&status(old.clone()), &status(new.clone())).iter().map(|event| event.reason.as_str()).collect()
    }

    fn server(id: i32, pod: &str, serving: bool) -> Value {
        json!({ "id": id, "pod": pod, "serving": serving })
    }

    #[rstest]
    #[case::first(json!({}), json!({"servers": [server(1, "a", true)]}), &["ServerStarted"])]
    #[case::not_yet(json!({}), json!({"servers": [server(1, "a", false)]}), &[])]
    #[case::again(json!({"servers": [server(1, "a", false)]}), json!({"servers": [server(1, "a", true)]}), &["ServerStarted"])]
    #[case::replaced(json!({"servers": [server(1, "a", false)]}), json!({"servers": [server(4, "a", false)]}), &["ServerReplaced"])]
    #[case::removed(json!({"servers": [server(1, "a", true), server(2, "b", true)]}), json!({"servers": [server(1, "a", true)]}), &["ServerRemoved"])]
    #[case::spec(json!({"observedSpecHash": "a"}), json!({"observedSpecHash": "b"}), &["SpecAccepted"])]
    #[case::list(
        json!({"ensemble": {"incarnation": "abc", "epoch": 1}}), json!({"ensemble": {"incarnation": "abc", "epoch": 2}}), &["ServerListAccepted"]
    )]
    #[case::certificate(
        json!({"ensembleTls": {"identity": "i-1", "trust": ["t-1"]}}), json!({"ensembleTls": {"identity": "i-2", "trust": ["t-1"]}}), &["CertificateRenewed"]
    )]
    #[case::network(json!({}), json!({"preflight": {"round": "r"}}), &["NetworkChecked"])]
    #[case::network_of_another_round(
        json!({"preflight": {"round": "q"}}), json!({"preflight": {"round": "r"}}), &["NetworkChecked"]
    )]
    #[case::shorter_round_trip(
        json!({"preflight": {"round": "r", "roundTrip": {"to": "m2", "milliseconds": 9}}}),
        json!({"preflight": {"round": "r", "roundTrip": {"to": "m2", "milliseconds": 8}}}), &[]
    )]
    #[case::unchecked_network(json!({}), json!({"preflight": {"round": "r", "failure": "no node"}}), &[])]
    #[case::broken_network(
        json!({}), json!({"preflight": {"round": "r", "problems": [{"to": "m2", "host": "h", "problem": "Refused"}]}}), &[]
    )]
    #[case::end_of_the_check(json!({"preflight": {"round": "r"}}), json!({}), &[])]
    #[case::first_certificate(json!({}), json!({"ensembleTls": {"identity": "i-1", "trust": ["t-1"]}}), &[])]
    fn a_change_is_one_event_and_its_repetition_none(
        #[case] old: Value,
        #[case] new: Value,
        #[case] expected: &[&str],
    ) {
        assert_eq!(reasons(&old, &new), expected);
        assert_eq!(reasons(&new, &new), [""; 0]);
    }

    #[rstest]
    #[case::measured(json!({"to": "m2", "milliseconds": 38}), "ensemble. The longest round trip is 38 ms, to m2")]
    #[case::older_probe(Value::Null, "This cluster reaches every cluster of the ensemble")]
    fn the_end_of_the_check_names_the_round_trip(#[case] longest: Value, #[case] expected: &str) {
        let new = status(json!({"preflight": {"round": "r", "roundTrip": longest}}));
        let events = events(&status(json!({})), &new);
        assert!(events.iter().all(|event| event.message.ends_with(expected)) && events.len() == 1, "{events:?}");
    }
}
