//! What may not happen at once: what ends a quorum for good, and what has no effect.

use std::time::Duration;

use super::operations::{Kind, Operation, Scope};

/// Faults that last at the same time at most. More of them leave nothing that runs.
const AT_ONCE: usize = 4;
/// The time that a start of the operator takes.
const OPERATOR_STARTS: Duration = Duration::from_secs(5);

/// What a person does not do while the control plane is lost: other clusters, a second operator, another program. A policy
/// would return with the copy.
const NEED_CONTROL_PLANE: [Kind; 4] = [Kind::Unjoin, Kind::SecondOperator, Kind::ChangeVersion, Kind::RefuseAll];

/// Why an operation may not join others of its round; none if it may. All is healed after a round: so no rule needs
/// operations of former rounds.
#[must_use]
pub fn refusal(others: &[Operation], new: &Operation, clusters: usize) -> Option<&'static str> {
    let same = |kind: Kind| others.iter().filter(move |other| other.kind == kind);
    // Each acknowledged write is on a majority of volumes: of three voters, two may have it. After one loss at least one volume
    // still has it. Power, network and processes come back with their data: those of a majority may be lost.
    if new.kind.loses_volumes() && others.iter().any(|other| other.kind.loses_volumes()) {
        return Some("a second volume would be lost before the first one is replaced");
    }
    if new.kind == Kind::ReplaceAuthority && same(Kind::ReplaceAuthority).next().is_some() {
        return Some("the authority is replaced in this round already");
    }
    if new.kind == Kind::KillOperator && same(Kind::KillOperator).any(|o| o.at.abs_diff(new.at) < OPERATOR_STARTS) {
        return Some("the operator starts at that time");
    }
    let loss = |operation: &Operation| operation.kind.loses_control_plane();
    let of_control_plane = |operation: &Operation| loss(operation) || NEED_CONTROL_PLANE.contains(&operation.kind);
    if others.iter().any(|other| loss(other) && of_control_plane(new) || of_control_plane(other) && loss(new)) {
        return Some("the control plane is built again in this round");
    }
    let met = |other: &&Operation| conflict(other, new, clusters) || conflict(new, other, clusters);
    if others.iter().filter(|other| overlap(other, new)).any(|other| met(&other)) {
        return Some("another fault of the same part lasts at that time");
    }
    // The most faults last when one of them begins.
    let lasting = || others.iter().chain([new]).filter(|other| !other.lasts.is_zero());
    let at = |moment: Duration| lasting().filter(|other| other.at <= moment && moment <= other.end()).count();
    lasting().any(|one| at(one.at) > AT_ONCE).then_some("too many faults last at that time")
}

/// True if both last at some moment. An operation without an undo is a moment.
fn overlap(a: &Operation, b: &Operation) -> bool {
    let lasts = a.lasts > Duration::ZERO || b.lasts > Duration::ZERO;
    lasts && a.at <= b.end() && b.at <= a.end()
}

/// True if `second` cannot happen while `first` lasts.
fn conflict(first: &Operation, second: &Operation, clusters: usize) -> bool {
    if first.lasts.is_zero() {
        return false;
    }
    let of_cluster = second.kind.nature().scope == Scope::Cluster;
    let place = |operation: &Operation| usize::from(operation.pick).checked_rem(clusters);
    let same_cluster = of_cluster && place(first) == place(second);
    match (first.kind, second.kind) {
        // These need no answer of the cluster.
        (first, Kind::CutServers | Kind::CutKarmada | Kind::ChangePlacement) if first.stops_cluster() => false,
        (first, _) if first.stops_cluster() => same_cluster,
        (Kind::PowerOffNode, second) if second.stops_cluster() => same_cluster,
        // No process ends while it waits for a disk. The server can be in any cluster.
        (Kind::StallDisk, second) if second.stops_cluster() || second == Kind::PowerOffNode => true,
        // The end of one would end the other, and no operator starts without Karmada.
        (Kind::PauseAll, Kind::PauseServer) | (Kind::LoseControlPlane, Kind::KillOperator | Kind::WrongClock) => true,
        (a, b) if a == b => match a.nature().scope {
            Scope::Cluster => same_cluster,
            // Two picks can be one server.
            Scope::Server | Scope::Whole => true,
        },
        _ => false,
    }
}

/// Checks the operations of a round, which a person may have written.
///
/// # Errors
/// The first one that may not join those before it.
pub fn check(round: &[Operation], clusters: usize) -> anyhow::Result<()> {
    for (nth, operation) in round.iter().enumerate() {
        if let Some(why) = refusal(round.get(..nth).unwrap_or_default(), operation, clusters) {
            anyhow::bail!("{operation}: {why}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(at: u64, lasts: u64, kind: Kind, pick: u8) -> Operation {
        Operation { at: Duration::from_secs(at), lasts: Duration::from_secs(lasts), kind, pick }
    }

    fn refused(others: &[(u64, u64, Kind, u8)], new: (u64, u64, Kind, u8)) -> bool {
        let others: Vec<Operation> = others.iter().map(|o| operation(o.0, o.1, o.2, o.3)).collect();
        refusal(&others, &operation(new.0, new.1, new.2, new.3), 4).is_some()
    }

    #[test]
    fn one_volume_may_be_lost_in_a_round() {
        assert!(refused(&[(1, 0, Kind::LoseVolume, 1)], (59, 0, Kind::LoseVolume, 2)));
        assert!(refused(&[(1, 20, Kind::OldVolume, 1)], (59, 0, Kind::LoseVolume, 2)));
        assert!(refused(&[(1, 0, Kind::ReplaceVolume, 1)], (59, 0, Kind::LoseVolume, 2)));
        assert!(refused(&[(1, 20, Kind::Unjoin, 1)], (30, 20, Kind::Unjoin, 2)));
        assert!(!refused(&[(1, 30, Kind::PowerOff, 1)], (2, 0, Kind::LoseVolume, 2)));
    }

    #[test]
    fn power_of_a_majority_may_be_lost() {
        let off = [(1, 30, Kind::PowerOff, 1), (2, 30, Kind::PowerOff, 2)];
        assert!(!refused(&off, (3, 30, Kind::PowerOff, 3)));
    }

    #[test]
    fn a_fault_does_not_meet_itself() {
        let off = [(10, 30, Kind::PowerOff, 1)];
        for (kind, pick, met) in [
            (Kind::PowerOff, 5, true),
            (Kind::PowerOffNode, 1, true),
            (Kind::KillAgent, 1, true),
            (Kind::KillAgent, 2, false),
            (Kind::CutServers, 1, false),
            (Kind::KillServer, 1, false),
        ] {
            assert_eq!(refused(&off, (20, 0, kind, pick)), met, "{kind:?} {pick}");
            assert!(!refused(&off, (41, 0, kind, pick)), "{kind:?} {pick} after the end");
        }
        assert!(refused(&[(10, 30, Kind::PowerOffNode, 1)], (20, 30, Kind::PowerOff, 1)));
        assert!(refused(&[(20, 30, Kind::PowerOff, 1)], (10, 30, Kind::PowerOffNode, 1)));
        assert!(refused(&[(10, 30, Kind::Delay, 1)], (20, 30, Kind::Delay, 2)));
        assert!(refused(&[(10, 30, Kind::PauseAll, 1)], (20, 30, Kind::PauseServer, 2)));
        assert!(refused(&[(20, 30, Kind::PauseServer, 1)], (10, 30, Kind::PauseAll, 2)));
        assert!(refused(&[(10, 30, Kind::StallDisk, 1)], (20, 30, Kind::StallDisk, 2)));
        assert!(!refused(&[(10, 30, Kind::StallDisk, 1)], (20, 30, Kind::PauseServer, 2)));
        for off in [Kind::PowerOff, Kind::LongPowerOff, Kind::PowerOffNode] {
            assert!(refused(&[(18, 26, Kind::StallDisk, 221)], (22, 30, off, 87)));
            assert!(refused(&[(10, 30, off, 87)], (18, 26, Kind::StallDisk, 221)));
        }
        assert!(refused(&[(10, 0, Kind::KillOperator, 0)], (12, 0, Kind::KillOperator, 0)));
        assert!(refused(&[(10, 0, Kind::ReplaceAuthority, 0)], (50, 0, Kind::ReplaceAuthority, 0)));
    }

    #[test]
    fn the_control_plane_is_lost_once_in_a_round() {
        let lost = [(1, 20, Kind::LoseControlPlane, 0)];
        for kind in
            [Kind::RestoreControlPlane, Kind::LoseControlPlane, Kind::Unjoin, Kind::SecondOperator, Kind::RefuseAll]
        {
            assert!(refused(&lost, (40, 20, kind, 1)), "{kind:?}");
            assert!(refused(&[(40, 20, kind, 1)], (1, 20, Kind::LoseControlPlane, 0)), "{kind:?}");
        }
        assert!(!refused(&lost, (10, 20, Kind::PowerOff, 1)));
        assert!(refused(&lost, (10, 0, Kind::KillOperator, 1)));
        assert!(!refused(&lost, (30, 0, Kind::KillOperator, 1)));
    }

    #[test]
    fn four_faults_last_at_once() {
        let four: Vec<_> = (0..4).map(|n| (10, 30, Kind::CutServers, n)).collect();
        assert!(refused(&four, (20, 10, Kind::CutKarmada, 1)));
        assert!(!refused(&four, (20, 0, Kind::KillLeader, 1)));
        assert!(!refused(&four, (41, 10, Kind::CutKarmada, 1)));
    }
}
