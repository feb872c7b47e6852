//! The scenarios. Each makes one change or fault in a federation, and checks the result.

mod by_hand;
mod by_hand_in_members;
mod changes;
mod control_plane;
mod deletions;
mod deployments;
mod divisions;
mod elections;
mod evictions;
mod failovers;
mod faults;
mod growth;
mod leaders;
mod namespaces;
mod policies;
mod refusals;
mod rest;
mod schedules;

use std::{pin::Pin, time::Duration};

use anyhow::Result;

use crate::{federation::Federation, scene};

/// A scenario that runs.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it checks, as --list prints it.
    pub shows: &'static str,
    /// When it runs.
    pub place: Place,
    /// Runs it.
    pub run: for<'a> fn(&'a Federation) -> Run<'a>,
}

/// When a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before all others, in a federation without mczk.
    First,
    /// At the same time as others.
    Beside,
    /// Alone, because it stops or changes what all share.
    Alone,
}

/// The longest time of a scenario, with the time of rest, and of more elections, leaders and ensembles. Beside all other tests one takes
/// up to four times as long as alone, and a wait has a limit of its own.
#[must_use]
pub fn limit() -> Duration {
    Duration::from_secs(900) + rest::rest() + elections::time() + leaders::time() + failovers::time()
}

macro_rules! scenario {
    ($place:ident, $module:ident :: $name:ident, $shows:literal) => {
        Scenario {
            name: stringify!($name),
            shows: $shows,
            place: Place::$place,
            run: |federation| Box::pin(scene::checked(federation, $module::$name(federation))),
        }
    };
}

/// Scenarios whose changes and faults the searches over all states and the rows of `src/rules` play too. `make test` leaves them out:
/// what remains for them to show is Karmada's part, which the others show as well.
pub const SEARCHED: &[&str] = &[
    "in_order",
    "two_at_once",
    "foreign_template",
    "second_change",
    "no_progress",
    "no_cluster_matches",
    "observers",
    "one_cluster_differs",
    "paused_and_ordered",
    "policy_deleted_while_rolling",
    "cluster_spec_edited",
    "fields_added",
    "contested",
    "deleted",
    "api_server_restarts",
    "two_operators",
    "stale_writes",
    "unsupported",
    "no_writes",
    "adopted_elsewhere",
    "moved_when_lost",
];

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    scenario!(
        First,
        deployments::right_after_registration,
        "objects applied right after the CRDs use every cluster, and are read together"
    ),
    scenario!(
        Beside,
        deployments::in_order,
        "a first deployment goes cluster by cluster; later clusters have 0 replicas"
    ),
    scenario!(Beside, deployments::two_at_once, "two objects in one namespace do not affect each other"),
    scenario!(Beside, deployments::refused, "the API server refuses an invalid spec, with a message"),
    scenario!(
        Beside,
        deployments::foreign_template,
        "the status names a foreign object with the same name, and the operator does not touch it"
    ),
    scenario!(
        Beside,
        changes::cluster_by_cluster,
        "a template change is rolled out while later clusters keep the old spec"
    ),
    scenario!(Beside, changes::second_change, "a change during a rollout waits for its end"),
    scenario!(Beside, changes::superseded, "a cluster that fails stops the rollout until a newer change supersedes it"),
    scenario!(Beside, changes::no_progress, "a cluster without progress is stuck after the deadline, and superseded"),
    scenario!(Beside, changes::scaled, "voters are added and removed, through the scale subresource too"),
    scenario!(
        Beside,
        schedules::scaled_by_schedule,
        "Karmada scales by the clock: one more rollout; a number that the schema refuses changes nothing, and no load does"
    ),
    scenario!(Beside, changes::no_cluster_matches, "a placement that matches no cluster changes nothing"),
    scenario!(Beside, changes::observers, "observers join and leave without a change of the voters"),
    scenario!(
        Beside,
        changes::cluster_leaves,
        "a cluster leaves the placement after its servers left the ensemble, and returns"
    ),
    scenario!(
        Beside,
        failovers::moved_by_command,
        "voters move to a spare and home again by command, and a rehearsal does both"
    ),
    scenario!(
        Beside,
        failovers::unusable_spare,
        "a spare without a storage class and with a full quota is named, and no voter moves there"
    ),
    scenario!(
        Beside,
        failovers::moved_there_and_back,
        "voters move to a spare and home again before either move is complete, and later moves work"
    ),
    scenario!(Beside, changes::imported, "a cluster without servers imports the ensemble's Service, and no longer"),
    scenario!(Beside, changes::one_cluster_differs, "an override of one cluster affects no other"),
    scenario!(
        Beside,
        changes::paused_and_ordered,
        "a paused rollout changes nothing; a listed order and a hold between clusters"
    ),
    scenario!(
        Beside,
        by_hand::policies_and_work_deleted,
        "policies and a Work that are deleted by hand return, and servers are unaffected"
    ),
    scenario!(Beside, by_hand::policy_deleted_while_rolling, "the OverridePolicy is deleted during a rollout"),
    scenario!(
        Beside,
        by_hand::cluster_spec_edited,
        "the operator reverts cluster specs that are edited by hand, and no agent accepts them"
    ),
    scenario!(
        Beside,
        by_hand::fields_added,
        "the operator removes fields that are added to its objects by hand, and nothing else changes"
    ),
    scenario!(
        Beside,
        by_hand::contested,
        "another controller changes an object of the operator again and again: writes are bounded, and it is named"
    ),
    scenario!(
        Beside,
        by_hand::template_deleted,
        "a template that is deleted by hand returns, and servers are unaffected"
    ),
    scenario!(
        Beside,
        by_hand::status_wiped,
        "the operator recovers a status that is removed by hand, and no record begins"
    ),
    scenario!(
        Beside,
        by_hand_in_members::member_edited,
        "Karmada and the agent revert edits and deletions in a member, and no server restarts"
    ),
    scenario!(
        Beside,
        evictions::tainted,
        "a taint evicts nothing of an ensemble, and an eviction by force moves no voter"
    ),
    scenario!(
        Beside,
        divisions::by_karmada,
        "Karmada divides the voters: Duplicated, Aggregated and by room, which must exist; later nothing moves"
    ),
    scenario!(Beside, growth::volumes_grow, "volumes grow one after another, in use, and so do those of new servers"),
    scenario!(
        Beside,
        refusals::refused_at_first,
        "an admission policy refuses what the operator creates: the status names it, and its end is enough"
    ),
    scenario!(
        Beside,
        refusals::refused_later,
        "an admission policy refuses what a change needs: all servers run on, and the change continues"
    ),
    scenario!(
        Beside,
        refusals::refused_in_member,
        "an admission policy refuses in a member cluster what Karmada brings: the status names the cluster and the reason"
    ),
    scenario!(
        Beside,
        policies::key_selected,
        "policies of a user that select all Secrets carry no key of an ensemble; without its label they do, and are named"
    ),
    scenario!(Beside, deletions::deleted, "a deletion leaves nothing in member clusters and control plane"),
    scenario!(Beside, deletions::deleted_while_rolling, "a deletion during a rollout leaves nothing"),
    scenario!(
        Beside,
        namespaces::namespace_deleted,
        "a namespace is deleted: servers stop as with their object and not before, and volumes go if Karmada brought it"
    ),
    scenario!(
        Alone,
        faults::registration_lost,
        "without the registration no rollout starts, nothing is scaled, and check-webhook says so"
    ),
    scenario!(Alone, faults::api_server_restarts, "Karmada's API server restarts during a rollout"),
    scenario!(Alone, faults::operator_killed, "the operator is killed at ten random moments: no cluster is skipped"),
    scenario!(Alone, faults::two_operators, "two operators at once keep the order"),
    scenario!(
        Alone,
        leaders::leaders_change,
        "of two operators one acts, whatever happens to it: 6 changes, or E2E_LEADERS"
    ),
    scenario!(
        Alone,
        elections::stale_writes,
        "leaders stop between a check and its write: no stale write is accepted, in 4 elections, or E2E_ELECTIONS"
    ),
    scenario!(Alone, faults::unsupported, "an object with an unsupported spec delays no other"),
    scenario!(
        Alone,
        faults::everything_lost,
        "policy and status are lost: the operator recovers the ensemble from member clusters"
    ),
    scenario!(
        Alone,
        faults::cluster_lost,
        "a cluster that is down is named, and is the last of the order, or left out; its voters go to no other cluster"
    ),
    scenario!(
        Alone,
        failovers::moved_when_lost,
        "a cluster loses power: its voter moves to the spare by itself, its server ends when it returns, and the voter goes home"
    ),
    scenario!(Alone, rest::no_writes, "at rest an operator starts, and writes nothing for 60 s, or E2E_REST_SECONDS"),
    scenario!(
        Alone,
        control_plane::restored,
        "Karmada's data come back from a copy before a growth, a move and a new authority: the newest lists stay, and no id returns"
    ),
    scenario!(
        Alone,
        control_plane::adopted,
        "Karmada's data are lost: the ensemble that is created again waits, and continues the servers that live"
    ),
    scenario!(
        Alone,
        control_plane::adopted_elsewhere,
        "Karmada's data are lost: an ensemble that gets no voter where the former server lives finds it"
    ),
    scenario!(
        Alone,
        control_plane::declared_over,
        "Karmada's data are lost, and the former incarnation is declared over: another one begins, all volumes stay"
    ),
];
