//! Which membership steps the ensemble permits: those that its own server list asks for. Pure.
//!
//! A holder of the quorum's identity can reach the control port. Without this check one request could give a vote to any host,
//! or take the vote of any server, and no list would show it.
//!
//! An agent may also have decided on a step before another one acquired the restart lock. The server with the lock may be about
//! to stop, even to lose its volume, so no step may make it needed.

use std::collections::BTreeSet;

use mczk_api::{
    contract::{
        control_api::{NOT_LISTED, Problem, Reconfiguration},
        server_list::majority,
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
}

/// Checks a step against what the ensemble has committed.
///
/// # Errors
/// If the ensemble holds no list or a newer one than the step assumes, if the list does not name an added server with this id,
/// host and role, or if it names a removed one. If a vote ends, and without the server with the restart lock no majority of the
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
    if let Some(id) = step.remove
        && list.servers.iter().any(|server| server.id == id)
    {
        let message = format!(
            "the ensemble's server list (epoch {epoch}) names server {id}: publish a list without it before it is removed"
        );
        return refuse(NOT_LISTED, message);
    }
    check_lock(step, committed)
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
    use mczk_api::{contract::control_api::ConfiguredServer, mutation::Mutation, zookeeper::Server};

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
        Committed { list, voters: NO_VOTERS, locked: None }
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
        let committed = Committed { list: Some(&list), voters: &voters.iter().copied().collect(), locked };
        assert_eq!(
            check(&step, committed).map_err(|problem| problem.reason),
            if permitted { Ok(()) } else { Err("restartLock".into()) }
        );
        assert!(Mutation::with(Some(Mutation::StepBesideLock), || check(&step, committed)).is_ok());
    }

    /// The control port is the last line: the search of `src/rules/tests/ensemble` finds this variant by a stranger's requests.
    #[test]
    fn the_broken_variant_permits_what_no_list_asks_for() {
        let _active = Mutation::PermitAnyStep.activate();
        assert!(check(&remove(5, 1), committed(Some(&list()))).is_ok());
    }
}
