//! Which membership steps the ensemble permits: those that its own server list asks for. Pure.
//!
//! A listed voter loses its vote only if the list declares after how long, and only through the server that leads: it has missed
//! voters for as long by its own measure, misses one still, and gains a smaller majority.
//!
//! A holder of the quorum's identity can reach the control port. Without this check one request could give a vote to any host,
//! or take the vote of any server, and no list would show it.
//!
//! An agent may also have decided on a step before another one acquired the restart lock. The server with the lock may be about
//! to stop, even to lose its volume, so no step may make it needed.

use std::{collections::BTreeSet, time::Duration};

use mczk_api::{
    contract::{
        control_api::{DEMOTION, NOT_LISTED, Problem, Reconfiguration},
        server_list::{demotion_guard, majority},
    },
    mutation::broken,
    zookeeper::{Ensemble, Role},
};

/// What the ensemble has committed.
#[derive(Clone, Copy, Debug)]
pub struct Committed<'a> {
    /// Its server list.
    pub list: Option<&'a Ensemble>,
    /// Ids of its voters.
    pub voters: &'a BTreeSet<i32>,
    /// Id of the server with the restart lock.
    pub locked: Option<i32>,
    /// What this server knows as the leader. `None` if it does not lead.
    pub leads: Option<Leading>,
}

/// What a server knows of its followers while it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leading {
    /// Synced voters that follow, without the leader.
    pub synced: usize,
    /// For how long it has missed voters.
    pub short_for: Duration,
    /// True if the server that would lose its vote answers that it takes part in a quorum.
    pub answers: bool,
}

/// Checks a step against what the ensemble has committed.
///
/// # Errors
/// If the ensemble holds no list or a newer one than the step assumes, if the list does not name an added server with this id,
/// host and role, or if it names a removed one that may not lose its vote. If a vote ends, and without the server with the restart lock no majority of the
/// other votes would be left.
pub fn check(step: &Reconfiguration, committed: Committed<'_>) -> Result<(), Problem> {
    let Some(list) = committed.list else {
        return refuse(NOT_LISTED, "the ensemble holds no server list: publish the list before any step".to_owned());
    };
    let epoch = list.epoch.unwrap_or_default();
    if epoch > step.epoch {
        let message =
            format!("the change assumes the server list of epoch {}, but the ensemble holds {epoch}", step.epoch);
        return refuse("epoch", message);
    }
    if broken!(PermitAnyStep) {
        return Ok(());
    }
    if let Some(added) = &step.add
        && !list.servers.iter().any(|s| (s.id, &s.host, s.role) == (added.id, &added.host, added.role))
    {
        let role = if added.role == Role::Voter { "voter" } else { "observer" };
        let message = format!(
            "the ensemble's server list (epoch {epoch}) names no {role} {} at {}: publish a list that names it before it \
             is added",
            added.id, added.host
        );
        return refuse(NOT_LISTED, message);
    }
    if let Some(listed) = step.remove.and_then(|id| list.servers.iter().find(|server| server.id == id)) {
        let id = listed.id;
        let guard = demotion_guard(list).filter(|_| listed.role == Role::Voter);
        let Some(guard) = guard else {
            let message = format!(
                "the ensemble's server list (epoch {epoch}) names server {id}: publish a list without it before it is \
                 removed"
            );
            return refuse(NOT_LISTED, message);
        };
        check_demotion(id, guard, committed)?;
    }
    check_lock(step, committed)
}

/// Checks that a listed voter may lose its vote.
fn check_demotion(id: i32, guard: Duration, committed: Committed<'_>) -> Result<(), Problem> {
    let refuse = |why: String| refuse(DEMOTION, format!("server {id} keeps its vote: {why}"));
    let Some(Leading { synced, short_for, answers }) = committed.leads else {
        return refuse("only the server that leads takes it".to_owned());
    };
    if !is_measured(short_for, guard) {
        let (short, needed) = (short_for.as_secs(), guard.as_secs());
        return refuse(format!("the leader has missed voters for {short} of {needed} s"));
    }
    if answers && !broken!(PermitFollower) {
        return refuse("it answers that it takes part in a quorum".to_owned());
    }
    if is_restarting(id, committed) {
        return refuse("it has the restart lock, so it is down on purpose".to_owned());
    }
    let voters = committed.voters.len();
    let missing = voters.saturating_sub(synced + 1);
    if !gains(voters, missing) {
        return refuse(format!(
            "of {voters} voters the leader misses {missing}, and without them no fewer make a majority"
        ));
    }
    Ok(())
}

/// S15: true if the leader itself has missed voters for long enough.
fn is_measured(short_for: Duration, guard: Duration) -> bool {
    short_for >= guard || broken!(PermitUnmeasured)
}

fn is_restarting(id: i32, committed: Committed<'_>) -> bool {
    committed.locked == Some(id) && !broken!(DemoteLocked)
}

/// S16: true if voters are missing, and fewer make a majority without all of them.
fn gains(voters: usize, missing: usize) -> bool {
    let is_smaller = majority(voters.saturating_sub(missing)) < majority(voters);
    missing > 0 && (is_smaller || broken!(DemoteWithoutGain)) || broken!(PermitMore)
}

fn check_lock(step: &Reconfiguration, committed: Committed<'_>) -> Result<(), Problem> {
    let observer = step.add.as_ref().filter(|added| added.role == Role::Observer).map(|added| added.id);
    let leaves = |id: &i32| step.remove == Some(*id) || observer == Some(*id);
    let after: BTreeSet<i32> = committed.voters.iter().copied().filter(|id| !leaves(id)).collect();
    let Some(locked) = committed.locked.filter(|locked| after.contains(locked)) else { return Ok(()) };
    let remain = after.len().saturating_sub(1);
    if after.len() == committed.voters.len() || remain >= majority(after.len()) || broken!(StepBesideLock) {
        return Ok(());
    }
    let message = format!(
        "server {locked} has the restart lock and may be about to stop, and without it {remain} of {} voters are no majority",
        after.len()
    );
    refuse("restartLock", message)
}

fn refuse(reason: &str, message: String) -> Result<(), Problem> {
    Err(Problem { reason: reason.to_owned(), message })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;
    use mczk_api::{
        contract::control_api::ConfiguredServer,
        mutation::Mutation,
        zookeeper::{EnsemblePhase, Server},
    };

    const VOTER: Role = Role::Voter;
    const OBSERVER: Role = Role::Observer;

    /// Epoch 5: voter 1, observer 2.
    fn list() -> Ensemble {
        let server = |id: i32, role| Server { id, cluster: "m1".into(), ordinal: 0, host: format!("s{id}"), role };
        Ensemble { epoch: Some(5), servers: vec![server(1, VOTER), server(2, OBSERVER)], ..Ensemble::default() }
    }

    fn add(epoch: i64, id: i32, host: &str, role: Role) -> Reconfiguration {
        let add = Some(ConfiguredServer { id, host: host.into(), role });
        Reconfiguration { epoch, from_version: 7, add, remove: None }
    }

    fn remove(epoch: i64, id: i32) -> Reconfiguration {
        Reconfiguration { epoch, from_version: 7, add: None, remove: Some(id) }
    }

    #[rstest]
    #[case::listed_voter(add(5, 1, "s1", VOTER), None)]
    #[case::listed_observer(add(5, 2, "s2", OBSERVER), None)]
    #[case::unlisted_server_leaves(remove(5, 3), None)]
    #[case::epoch_of_a_list_that_was_lost(add(6, 1, "s1", VOTER), None)]
    #[case::unknown_id(add(5, 3, "s3", VOTER), Some("list"))]
    #[case::other_host(add(5, 1, "stranger", VOTER), Some("list"))]
    #[case::other_id_at_a_listed_host(add(5, 3, "s1", VOTER), Some("list"))]
    #[case::vote_for_an_observer(add(5, 2, "s2", VOTER), Some("list"))]
    #[case::no_vote_for_a_voter(add(5, 1, "s1", OBSERVER), Some("list"))]
    #[case::listed_voter_leaves(remove(5, 1), Some("list"))]
    #[case::listed_observer_leaves(remove(5, 2), Some("list"))]
    #[case::of_a_list_that_is_not_published(add(6, 3, "s3", VOTER), Some("list"))]
    #[case::of_an_older_list(remove(4, 3), Some("epoch"))]
    fn the_published_list_permits_steps(#[case] step: Reconfiguration, #[case] refused: Option<&str>) {
        let problem = check(&step, committed(Some(&list()))).err();
        assert_eq!(problem.as_ref().map(|problem| problem.reason.as_str()), refused, "{problem:?}");
        assert_eq!(check(&step, committed(None)).unwrap_err().reason, "list", "without a list no step is permitted");
    }

    const fn committed(list: Option<&Ensemble>) -> Committed<'_> {
        const NO_VOTERS: &BTreeSet<i32> = &BTreeSet::new();
        Committed { list, voters: NO_VOTERS, locked: None, leads: None }
    }

    /// The server with the lock may lose its volume. Of two voters, both are needed.
    #[rstest]
    #[case::of_three(&[1, 2, 3], Some(2), remove(5, 3), false)]
    #[case::itself(&[1, 2, 3], Some(3), remove(5, 3), true)]
    #[case::of_four(&[1, 2, 3, 4], Some(2), remove(5, 3), true)]
    #[case::no_lock(&[1, 2, 3], None, remove(5, 3), true)]
    #[case::no_voter(&[1, 2], Some(2), remove(5, 3), true)]
    #[case::becomes_an_observer(&[1, 2, 3], Some(1), add(5, 2, "s2", OBSERVER), false)]
    #[case::joins(&[2, 3], Some(3), add(5, 1, "s1", VOTER), true)]
    fn no_step_makes_the_server_with_the_lock_needed(
        #[case] voters: &[i32],
        #[case] locked: Option<i32>,
        #[case] step: Reconfiguration,
        #[case] permitted: bool,
    ) {
        let list = list();
        let committed = Committed { list: Some(&list), voters: &voters.iter().copied().collect(), locked, leads: None };
        assert_eq!(
            check(&step, committed).map_err(|problem| problem.reason),
            if permitted { Ok(()) } else { Err("restartLock".into()) }
        );
        assert!(Mutation::with(Some(Mutation::StepBesideLock), || check(&step, committed)).is_ok());
    }

    /// Five voters, which lose their votes after these seconds.
    fn five(seconds: Option<i32>) -> Ensemble {
        let server = |id| Server { id, cluster: "m1".into(), ordinal: id, host: format!("s{id}"), role: VOTER };
        let servers = (1..=5).map(server).collect();
        Ensemble { epoch: Some(5), demote_after_seconds: seconds, servers, ..Ensemble::default() }
    }

    const LEADS: Leading = Leading { synced: 2, short_for: Duration::from_secs(40), answers: false };

    /// Of five listed voters, 4 and 5 are missing. The list takes votes after a minute.
    #[rstest]
    #[case::missing(&[1, 2, 3, 4, 5], Some(LEADS), None, true)]
    #[case::the_second_one(&[1, 2, 3, 5], Some(LEADS), None, true)]
    #[case::another_server_leads(&[1, 2, 3, 4, 5], None, None, false)]
    #[case::not_for_long(&[1, 2, 3, 4, 5], Some(Leading { short_for: Duration::from_secs(39), ..LEADS }), None, false)]
    #[case::it_answers(&[1, 2, 3, 4, 5], Some(Leading { answers: true, ..LEADS }), None, false)]
    #[case::it_restarts(&[1, 2, 3, 4, 5], Some(LEADS), Some(5), false)]
    #[case::no_voter_is_missing(&[1, 2, 5], Some(LEADS), None, false)]
    #[case::no_gain(&[1, 2, 3, 4, 5], Some(Leading { synced: 3, ..LEADS }), None, false)]
    fn a_missing_voter_loses_its_vote(
        #[case] voters: &[i32],
        #[case] leads: Option<Leading>,
        #[case] locked: Option<i32>,
        #[case] permitted: bool,
    ) {
        let reason = |list: &Ensemble| {
            let committed = Committed { list: Some(list), voters: &voters.iter().copied().collect(), locked, leads };
            check(&remove(5, 5), committed).err().map(|problem| problem.reason)
        };
        assert_eq!(reason(&five(Some(60))), (!permitted).then(|| DEMOTION.to_owned()));
        assert_eq!(reason(&five(None)), Some(NOT_LISTED.to_owned()), "nothing is declared");
        let suspended = Ensemble { phase: EnsemblePhase::Suspended, ..five(Some(60)) };
        assert_eq!(reason(&suspended), Some(NOT_LISTED.to_owned()));
    }

    #[rstest]
    #[case(Mutation::PermitUnmeasured, Leading { short_for: Duration::ZERO, ..LEADS }, None)]
    #[case(Mutation::PermitFollower, Leading { answers: true, ..LEADS }, None)]
    #[case(Mutation::PermitMore, Leading { synced: 3, ..LEADS }, None)]
    #[case(Mutation::DemoteWithoutGain, Leading { synced: 3, ..LEADS }, None)]
    #[case(Mutation::DemoteLocked, LEADS, Some(5))]
    fn a_broken_rule_takes_more_votes(#[case] mutation: Mutation, #[case] leads: Leading, #[case] locked: Option<i32>) {
        let list = five(Some(60));
        let voters = (1..=5).collect();
        let committed = Committed { list: Some(&list), voters: &voters, locked, leads: Some(leads) };
        assert!(check(&remove(5, 5), committed).is_err());
        let _active = mutation.activate();
        assert!(check(&remove(5, 5), committed).is_ok());
    }

    /// The control port is the last line: the search of `src/rules/tests/ensemble` finds this variant by a stranger's requests.
    #[test]
    fn the_broken_variant_permits_what_no_list_asks_for() {
        let _active = Mutation::PermitAnyStep.activate();
        assert!(check(&remove(5, 1), committed(Some(&list()))).is_ok());
    }
}
