//! Conditions and their reasons.

use mczk_api::contract::conditions::{ConditionOwner, ConditionType, Reason, Remedy};

use crate::table::{code, head, table};

const INTRODUCTION: &str = "\
`kubectl describe` prints the conditions of an object. The message of a condition states what is wrong, why, and in most
cases what to do. The tables have the action for every reason. A reason can belong to several conditions, or to one that
you do not expect: search the page for the reason. See also [Troubleshooting](../how-to/troubleshoot.md).";

const OWNERS: [(ConditionOwner, &str, &str); 3] = [
    (ConditionOwner::MultiClusterZooKeeper, "MultiClusterZooKeeper", "The operator writes these conditions."),
    (ConditionOwner::ZooKeeper, "ZooKeeper in a member cluster", "The agent of the cluster writes these conditions."),
    (
        ConditionOwner::Template,
        "ZooKeeper template in the control plane",
        "The webhook of the operator writes this condition.",
    ),
];

pub fn page() -> String {
    let mut page = head("Conditions", INTRODUCTION);
    for (owner, title, introduction) in OWNERS {
        page += &format!("\n## {title}\n\n{introduction}\n");
        for type_ in ConditionType::ALL.iter().filter(|type_| type_.owner() == owner) {
            page += &format!("\n### `{type_}`\n\n`True`: {}\n", decapitalise(type_.meaning()));
            page += &table(["reason", "status", "meaning", "action"], &rows(*type_));
        }
    }
    page
}

/// The reasons of one type: failures last.
fn rows(type_: ConditionType) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for reason in Reason::ALL {
        let Some(status) = reason.status_in(type_) else { continue };
        let remedy: Remedy = reason.remedy();
        let row = [code(reason.as_str()), code(status.as_str()), sentence(reason.meaning()), remedy.to_string()];
        rows.push((status, row));
    }
    rows.sort_by_key(|(status, _)| *status);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Without the full stop: cells have none.
fn sentence(text: &str) -> String {
    text.trim_end_matches('.').to_owned()
}

fn decapitalise(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}
