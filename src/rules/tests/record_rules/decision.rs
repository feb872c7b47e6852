//! The decision alone.

use super::*;

fn a_record(status: RecordStatus, zookeeper: i64, pending: &str, deploying: &str, completed: &str) -> Record {
    Record {
        observed_generations: generation(zookeeper),
        order: [names(completed), names(deploying), names(pending)].concat(),
        status,
        current_state: CurrentState {
            pending: names(pending),
            deploying: names(deploying),
            completed: names(completed),
        },
        last_transition_time: Time(at(0)),
    }
}

#[rstest]
#[case::ready_and_newer_and_changes(RecordStatus::Ready, 2, true, false, "a,b", Start::NewGeneration)]
#[case::ready_and_newer_without_a_change(RecordStatus::Ready, 2, false, false, "a,b", Start::Unchanged)]
#[case::ready_and_current(RecordStatus::Ready, 1, false, false, "a,b", Start::Continue)]
#[case::ready_and_current_but_rescheduled(RecordStatus::Ready, 1, true, false, "a,b", Start::Rescheduled)]
#[case::deploying_and_current(RecordStatus::Deploying, 1, true, false, "a,b", Start::Continue)]
#[case::deploying_and_newer_and_merely_slow(RecordStatus::Deploying, 2, true, false, "a,b", Start::Continue)]
#[case::deploying_and_newer_and_stuck(RecordStatus::Deploying, 2, true, true, "a,b", Start::Superseded)]
#[case::deploying_and_stuck_with_nothing_newer(RecordStatus::Deploying, 1, true, true, "a,b", Start::Continue)]
#[case::deploying_and_the_deploying_one_is_gone(RecordStatus::Deploying, 1, true, false, "b", Start::ClusterGone)]
#[case::deploying_and_a_pending_one_is_gone(RecordStatus::Deploying, 1, true, false, "a", Start::ClusterGone)]
#[case::superseded_by_none(RecordStatus::Superseded, 1, false, false, "a,b", Start::Superseded)]
fn whether_a_record_starts(
    #[case] status: RecordStatus,
    #[case] template: i64,
    #[case] changes: bool,
    #[case] stuck: bool,
    #[case] scheduled: &str,
    #[case] expected: Start,
) {
    let last = match status {
        RecordStatus::Ready => a_record(status, 1, "", "", "a,b"),
        RecordStatus::Deploying | RecordStatus::Superseded => a_record(status, 1, "b", "a", ""),
    };
    let scheduled = names(scheduled);
    let inputs =
        RecordInputs { generations: generation(template), scheduled: &scheduled, changes, stuck, joins: false };
    assert_eq!(record::start(Some(&last), &inputs), expected);
}

#[test]
fn without_a_record_the_first_one_starts() {
    let inputs =
        RecordInputs { generations: generation(1), scheduled: &[], changes: false, stuck: false, joins: false };
    assert_eq!(record::start(None, &inputs), Start::First);
}

#[test]
fn in_a_new_record_all_clusters_are_pending() {
    let record = record::new(generation(3), names("b,a"), at(7));
    assert_eq!(record.order, names("b,a"));
    assert_eq!(record.current_state, CurrentState { pending: names("b,a"), ..CurrentState::default() });
    assert_eq!((record.status, record.last_transition_time), (RecordStatus::Deploying, Time(at(7))));
}

#[rstest]
#[case::bootstrap_as_scheduled(true, None, "", "c", "a", "", "c,a,b", "c,a,b")]
#[case::healthy_as_scheduled(false, None, "", "", "", "", "c,a,b", "c,a,b")]
#[case::unhealthy_first(false, None, "", "b", "", "", "c,a,b", "b,c,a")]
#[case::leader_last(false, None, "", "", "c", "", "c,a,b", "a,b,c")]
#[case::unhealthy_leader_first(false, None, "", "a", "a", "", "c,a,b", "a,c,b")]
#[case::unreachable_after_the_leader(false, None, "c", "", "a", "", "c,a,b", "b,a,c")]
#[case::stuck_before_all(false, None, "", "b", "", "a", "c,a,b", "a,b,c")]
#[case::listed(false, Some("b,c,a"), "", "a", "b", "", "c,a,b", "b,c,a")]
#[case::listed_without_one(false, Some("b"), "", "", "", "", "c,a,b", "b,c,a")]
#[case::listed_also_at_bootstrap(true, Some("b"), "", "", "", "", "c,a,b", "b,c,a")]
#[case::listed_names_strangers(false, Some("x,a"), "", "", "", "", "c,a,b", "a,c,b")]
#[case::stuck_before_listed(false, Some("b,c,a"), "", "", "", "a", "c,a,b", "a,b,c")]
fn the_order_of_clusters(
    #[case] bootstrap: bool,
    #[case] listed: Option<&str>,
    #[case] unreachable: &str,
    #[case] unhealthy: &str,
    #[case] leader: &str,
    #[case] stuck: &str,
    #[case] scheduled: &str,
    #[case] expected: &str,
) {
    let listed = listed.map(names);
    let order = record::order(&names(scheduled), listed.as_deref(), bootstrap, |cluster| Rank {
        reachable: cluster != unreachable,
        healthy: cluster != unhealthy,
        leader: cluster == leader,
        stuck: cluster == stuck,
    });
    assert_eq!(order, names(expected));
}
