//! Events about a MultiClusterZooKeeper.

use mczk::rollout::events::EventReason;

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
The operator publishes events about a MultiClusterZooKeeper. `kubectl describe` prints them.";

pub fn page() -> String {
    let rows: Vec<_> = EventReason::ALL
        .iter()
        .map(|reason| {
            let severity = format!("{:?}", reason.severity());
            let meaning = reason.meaning().trim_end_matches('.').to_owned();
            [code(reason.as_str()), severity, meaning, reason.help().to_owned()]
        })
        .collect();
    head("Events", INTRODUCTION) + &table(["reason", "type", "meaning", "action"], &rows)
}
