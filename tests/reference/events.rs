//! Events about a MultiClusterZooKeeper, and about a ZooKeeper object in a member cluster.

use mczk_api::contract::event_reasons::Severity;
use mczk_rules::{agent::decide::events::AgentEventReason, rollout::events::EventReason};

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
The operator publishes events about a MultiClusterZooKeeper, and an agent about the ZooKeeper object of its cluster.
`kubectl describe` prints them.";

const WEBHOOK: &str = "
## Credentials of the operator

The operator that leads publishes the warning `CertificateExpires` once a day. It is about the
ResourceInterpreterWebhookConfiguration `mczk` if the certificate of the webhook expires soon. It is about the service
account `mczk-operator` if the operator cannot renew its token. The message names the date and the action.

## Elections

Each operator or agent that begins to lead publishes the event `LeaderElection` about its Lease: `IDENTITY became leader`.
The identity begins with the name of the pod.
";

pub fn page() -> String {
    let operator = EventReason::ALL.iter().map(|r| row(r.as_str(), r.severity(), r.meaning(), r.help()));
    let agent = AgentEventReason::ALL.iter().map(|r| row(r.as_str(), r.severity(), r.meaning(), r.help()));
    let section = |title: &str, rows: Vec<[String; 4]>| {
        format!("\n## {title}\n") + &table(["reason", "type", "meaning", "action"], &rows)
    };
    head("Events", INTRODUCTION)
        + &section("MultiClusterZooKeeper", operator.collect())
        + &section("ZooKeeper in a member cluster", agent.collect())
        + WEBHOOK
}

fn row(reason: &str, severity: Severity, meaning: &str, help: &str) -> [String; 4] {
    [code(reason), format!("{severity:?}"), meaning.trim_end_matches('.').to_owned(), help.to_owned()]
}
