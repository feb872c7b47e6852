//! The scenarios: each does one thing to a federation and tells what went wrong.

mod by_hand;
mod changes;
mod deployments;
mod ends;
mod faults;
mod rest;

use std::{pin::Pin, time::Duration};

use anyhow::Result;

use crate::{federation::Federation, scene};

/// What a scenario is while it runs.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, in one word.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub shows: &'static str,
    /// Whether others may run beside it.
    pub place: Place,
    /// It.
    pub run: for<'a> fn(&'a Federation) -> Run<'a>,
}

/// When a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before all others, on a federation in which nothing is registered.
    First,
    /// Beside others.
    Beside,
    /// Alone: it stops or changes what all share.
    Alone,
}

/// No scenario takes longer than this, the time of rest included.
#[must_use]
pub fn limit() -> Duration {
    Duration::from_secs(180) + rest::rest()
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

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    scenario!(
        First,
        deployments::right_after_registration,
        "an object applied right after the CRDs uses every cluster"
    ),
    scenario!(
        Beside,
        deployments::in_order,
        "a first deployment goes cluster by cluster, the later ones at 0 replicas"
    ),
    scenario!(Beside, deployments::two_at_once, "two objects of one namespace do not mix"),
    scenario!(Beside, deployments::refused, "an invalid spec is refused by the API server, with a message"),
    scenario!(Beside, deployments::foreign_template, "a foreign object of our name is named and left alone"),
    scenario!(Beside, changes::cluster_by_cluster, "a template change rolls while later clusters hold the old spec"),
    scenario!(Beside, changes::second_change, "a change during a rollout waits for its end"),
    scenario!(Beside, changes::superseded, "a cluster that fails stops the rollout until a newer change supersedes it"),
    scenario!(Beside, changes::silent, "a cluster that says nothing is stuck after the deadline, and superseded"),
    scenario!(Beside, changes::scaled, "voters are added and removed, through the scale subresource too"),
    scenario!(Beside, changes::no_cluster_matches, "a placement that matches nothing leaves everything as it is"),
    scenario!(Beside, changes::observers, "observers come and go without a change of the quorum"),
    scenario!(
        Beside,
        changes::cluster_leaves,
        "a cluster leaves the placement: its servers leave first; it comes back"
    ),
    scenario!(Beside, changes::one_cluster_differs, "an override of one cluster touches no other"),
    scenario!(Beside, changes::paused_and_ordered, "paused, in the listed order, with a hold between clusters"),
    scenario!(
        Beside,
        by_hand::policies_and_work_deleted,
        "policies and a Work deleted by hand come back, servers run on"
    ),
    scenario!(Beside, by_hand::policy_deleted_while_rolling, "the OverridePolicy deleted during a rollout"),
    scenario!(Beside, by_hand::pin_edited, "pins edited by hand are put right, and no agent accepts them"),
    scenario!(Beside, by_hand::status_wiped, "a status wiped by hand is found again, and nothing is rolled"),
    scenario!(Beside, ends::deleted, "a deletion leaves nothing in members and control plane"),
    scenario!(Beside, ends::deleted_while_rolling, "a deletion during a rollout leaves nothing either"),
    scenario!(Alone, faults::registration_lost, "without the registration nothing starts and nothing is scaled"),
    scenario!(Alone, faults::api_server_restarts, "a restart of Karmada's API server during a rollout"),
    scenario!(Alone, faults::operator_killed, "the operator killed at ten random moments: no cluster is skipped"),
    scenario!(Alone, faults::two_operators, "two operators at once keep the order"),
    scenario!(Alone, faults::not_understood, "an object that this version does not understand stalls no other"),
    scenario!(Alone, faults::everything_lost, "policy and status lost: the ensemble is found again in the members"),
    scenario!(
        Alone,
        faults::cluster_lost,
        "a cluster that cannot be reached is left for the end and named, or left out if asked"
    ),
    scenario!(Alone, rest::no_writes, "at rest the operator's user writes nothing for 60 s, or E2E_REST_SECONDS"),
];
