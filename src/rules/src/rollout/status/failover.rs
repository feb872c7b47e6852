//! The conditions of failovers.

use super::{inputs::StatusInputs, votes};
use crate::rollout::services::names_of_spares;
use mczk_api::contract::{cause::Cause, conditions::Reason, labels::FAILOVER};

/// Where voters are that are not at home, which have no vote, and when others move.
pub(super) fn failed_over(inputs: &StatusInputs<'_>) -> Cause {
    let failover = &inputs.next.failover;
    let demoted = votes::demoted(inputs);
    let has_voters = |cluster: &str| inputs.next.ensemble.servers.iter().any(|server| server.cluster == cluster);
    let place = |(home, seat): (&String, &String)| match failover.moved.get(home) {
        Some(spare) if has_voters(spare) && !has_voters(home) => Some(format!("The voters of {home} are in {spare}")),
        Some(spare) => Some(format!("The voters of {home} move to {spare}")),
        None if seat != home && has_voters(seat) => Some(format!("The voters of {home} move home from {seat}")),
        None => None,
    };
    let moved: Vec<String> = failover.seats.iter().filter_map(place).collect();
    let without_vote = || {
        format!(
            "Voters that have lost their votes because they do not follow: {}. They get them back once they follow",
            votes::ids(&demoted)
        )
    };
    let declared = inputs.known.object.spec.failover.as_ref();
    let has_times =
        declared.is_some_and(|all| all.move_after_seconds.is_some() || all.move_back_after_seconds.is_some());
    let pinned = || {
        let homes: Vec<&str> = failover.requested.iter().map(String::as_str).collect();
        format!("No declared time moves the voters of {}: the annotation {FAILOVER} names it", homes.join(", "))
    };
    let lost = || format!("Not Ready in Karmada, and no voter of it follows: {}", failover.lost.join(", "));
    let reason = if !moved.is_empty() {
        Reason::Moved
    } else if !demoted.is_empty() {
        Reason::Demoted
    } else if !failover.lost.is_empty() {
        Reason::ClusterLost
    } else {
        Reason::AtHome
    };
    let at_home = || "Every voter is at home, and none has lost its vote".to_owned();
    let parts = moved
        .into_iter()
        .chain((!failover.lost.is_empty()).then(lost))
        .chain((!demoted.is_empty()).then(without_vote))
        .chain((reason == Reason::AtHome).then(at_home))
        .chain((!failover.requested.is_empty() && has_times).then(pinned));
    Cause::new(reason, parts.collect::<Vec<_>>().join(". "))
}

/// Whether moves can happen: none waits, every spare can take voters, and the annotation can be followed.
pub(super) fn ready(inputs: &StatusInputs<'_>) -> Cause {
    let failover = &inputs.next.failover;
    if let Some(refused) = &failover.refused {
        return Cause::new(Reason::RequestUnclear, refused.clone());
    }
    if !failover.waits.is_empty() {
        return Cause::new(Reason::MoveWaits, format!("Moves that wait: {}", failover.waits.join("; ")));
    }
    let declared = inputs.known.object.spec.failover.as_ref().map(|failover| failover.spares.as_slice());
    if declared.unwrap_or_default().is_empty() {
        // While what asked the spares is left, another reason: by it the next pass reads it again, and deletes it.
        let asks = names_of_spares(&inputs.known.name).into_iter();
        let mut asks = asks.map(|(_, kind, name)| format!("{kind}/{name}"));
        let is_left = asks.any(|key| inputs.known.services.contains_key(&key));
        let reason = if is_left { Reason::NotEvaluated } else { Reason::NoSparesDeclared };
        return Cause::new(reason, "failover.spares names no cluster");
    }
    let because = |reason: Reason| -> Vec<&str> {
        let causes = failover.spares.values().flatten().filter(|cause| cause.reason == reason);
        causes.map(|cause| cause.message.as_str()).collect()
    };
    let (unusable, unanswered) = (because(Reason::SpareUnusable), because(Reason::SpareUnanswered));
    if !unusable.is_empty() {
        let more = unanswered.iter().map(|why| format!(". Without an answer: {why}")).collect::<Vec<_>>().concat();
        let message = format!("Spares that can take no voters: {}{more}", unusable.join("; "));
        return Cause::new(Reason::SpareUnusable, message);
    }
    if !unanswered.is_empty() {
        return Cause::new(Reason::SpareUnanswered, format!("Spares without an answer: {}", unanswered.join("; ")));
    }
    if failover.spares.is_empty() {
        return Cause::new(Reason::NoSpareLeft, "Every spare holds the voters of a cluster");
    }
    let spares: Vec<&str> = failover.spares.keys().map(String::as_str).collect();
    Cause::new(Reason::SparesUsable, format!("Spares that can take voters: {}", spares.join(", ")))
}
