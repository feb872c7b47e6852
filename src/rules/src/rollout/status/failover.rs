//! The conditions of failovers.

use super::{inputs::StatusInputs, votes};
use mczk_api::contract::{cause::Cause, conditions::Reason};

/// Where voters are that are not at home, which have no vote, and what is awaited.
pub(super) fn failed_over(inputs: &StatusInputs<'_>) -> Cause {
    let failover = &inputs.next.failover;
    let demoted = votes::demoted(inputs);
    let has_voters = |cluster: &String| inputs.next.ensemble.servers.iter().any(|server| server.cluster == *cluster);
    let place = |(home, spare): (&String, &String)| {
        let is_there = has_voters(spare) && !has_voters(home);
        let verb = if is_there { "are in" } else { "move to" };
        format!("The voters of {home} {verb} {spare}")
    };
    let moved: Vec<String> = failover.moved.iter().map(place).collect();
    let without_vote = || {
        format!(
            "Voters that have lost their votes because they do not follow: {}. They get them back once they follow",
            votes::ids(&demoted)
        )
    };
    let lost = || format!("Not Ready in Karmada, and no voter of it follows: {}", failover.lost.join(", "));
    let waits = || format!("Moves that wait: {}", failover.waits.join("; "));
    let reason = if !moved.is_empty() {
        Reason::Moved
    } else if !demoted.is_empty() {
        Reason::Demoted
    } else if !failover.waits.is_empty() {
        Reason::MoveWaits
    } else if !failover.lost.is_empty() {
        Reason::ClusterLost
    } else {
        return Cause::new(Reason::AtHome, "Every voter is at home, and none has lost its vote");
    };
    let parts = moved
        .into_iter()
        .chain((!failover.waits.is_empty()).then(waits))
        .chain((!failover.lost.is_empty()).then(lost))
        .chain((!demoted.is_empty()).then(without_vote));
    Cause::new(reason, parts.collect::<Vec<_>>().join(". "))
}

/// Whether a failover could happen: every spare can take voters, and the annotation can be followed.
pub(super) fn ready(inputs: &StatusInputs<'_>) -> Cause {
    let failover = &inputs.next.failover;
    if let Some(refused) = &failover.refused {
        return Cause::new(Reason::RequestUnclear, refused.clone());
    }
    let declared = inputs.known.object.spec.failover.as_ref().map(|failover| failover.spares.as_slice());
    if declared.unwrap_or_default().is_empty() {
        return Cause::new(Reason::NoSparesDeclared, "failover.spares names no cluster");
    }
    let unusable: Vec<&str> = failover.spares.values().flatten().map(String::as_str).collect();
    if !unusable.is_empty() {
        return Cause::new(Reason::SpareUnusable, format!("Spares that can take no voters: {}", unusable.join("; ")));
    }
    if failover.spares.is_empty() {
        return Cause::new(Reason::NoSpareLeft, "Every spare holds the voters of a cluster");
    }
    let spares: Vec<&str> = failover.spares.keys().map(String::as_str).collect();
    Cause::new(Reason::SparesUsable, format!("Spares that can take voters: {}", spares.join(", ")))
}
