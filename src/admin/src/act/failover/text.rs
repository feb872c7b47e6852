//! The text of `mczk failover`.

use super::decide::MoveDecision;
use crate::terminal::columns::aligned;
use mczk_api::contract::labels::FAILOVER;

/// What is requested, and what the operator then does.
pub(super) fn text(ensemble: &str, decision: &MoveDecision) -> String {
    let (before, after) = &decision.values;
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let change = if decision.changes() {
        format!("Change: metadata.annotations[{FAILOVER}]: {} -> {}\n", value(before), value(after))
    } else {
        format!("No change: metadata.annotations[{FAILOVER}] stays {}\n", value(before))
    };
    format!("{ensemble}: {}\n{}{change}{}", asks(decision), places(decision), effect(decision))
}

/// What is asked, in one line.
fn asks(decision: &MoveDecision) -> String {
    let home = &decision.home;
    match &decision.place {
        Some(place) if place == home => format!("the voters of {home} shall be at home"),
        Some(place) => format!("the voters of {home} shall be in {place}"),
        None => format!(
            "nothing is requested for {home} any more. Its voters stay where they are, until a declared time moves them"
        ),
    }
}

/// A row for each home: where its voters are, and where they would be.
fn places(decision: &MoveDecision) -> String {
    let title = ["  HOME", "NOW", "THEN", "VOTERS"].map(str::to_owned);
    let row = |(home, voters): (&String, &super::homes::HomeVoters)| {
        let waits = *home == decision.home && decision.waits();
        let then = decision.place_of(home) + if waits { " (the request waits)" } else { "" };
        [format!("  {home}"), voters.seat.clone(), then, voters.count.to_string()]
    };
    let rows: Vec<_> = std::iter::once(title).chain(decision.homes.with_voters().map(row)).collect();
    aligned(&rows)
}

/// What the operator would report, or why that is unknown.
fn effect(decision: &MoveDecision) -> String {
    let preview = match &decision.preview {
        Ok(preview) => preview,
        Err(why) => return format!("Whether the operator can follow is unknown: {why}.\n"),
    };
    let rows = preview.conditions.iter().map(|condition| {
        let state = format!("  {}={} {}", condition.type_, condition.status, condition.reason);
        [state, condition.message.clone()]
    });
    let waits = if decision.waits() {
        "The request waits. The operator follows it once nothing stands against it.\n"
    } else {
        ""
    };
    format!("The operator would report:\n{}{waits}", aligned(&rows.collect::<Vec<_>>()))
}
