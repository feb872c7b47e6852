//! The rules of the record: first the decision alone, then `plan` in a small world.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::too_many_arguments)]

mod decision;
mod division;
mod network_check;
mod nothing_to_do;
mod other_clients;
mod pass_by_pass;
mod quorum_certificates;
mod refusals;
mod spec_rollout;
mod stuck_slow_lost;
mod term;
mod unsettled_schedule;
mod user_secrets;
#[path = "../rules/world.rs"]
mod world;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mczk_api::{
    contract::{certificate_names::Holds, conditions::Reason, labels, server_list},
    karmada::{
        CONFLICT_RESOLUTION,
        resource_binding::{GracefulEvictionTask, ResourceBinding},
    },
    multiclusterzookeeper::{CurrentState, ObservedGenerations, Record, RecordStatus},
    mutation::Mutation,
    zookeeper::{EnsemblePhase, ZooKeeperSpec},
};
use mczk_rules::rollout::{
    certificates::{self, IDENTITY_LIFE},
    override_rules,
    plan::{ObjectWrite, Plan},
    record::{self, Rank, RecordInputs, Start},
    services::{MCS_API_VERSION, NEWER_MCS_API_VERSION},
    steps::PlanStep,
};
use rstest::rstest;
use serde_json::{Value, json};
use world::{World, at, rolling, work_of};

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|n| !n.is_empty()).map(ToOwned::to_owned).collect()
}

/// The generations of an object. Its template has changed twice more: a survey, and no Secrets before the schedule.
fn generation(multiclusterzookeeper: i64) -> ObservedGenerations {
    ObservedGenerations { multiclusterzookeeper, zookeeper: multiclusterzookeeper + 2 }
}

/// The state of the last record after each of some passes.
fn passes(world: &mut World, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            world.pass();
            world.state()
        })
        .collect()
}

/// As [`rolling`], but m1 is complete, and m2 is getting the image.
fn half_way(more: &Value) -> World {
    let mut world = rolling(more);
    world.stopped_agents.insert("m2".to_owned());
    world.run_agents();
    world.wait(10);
    world.pass();
    assert_eq!(world.state(), "Deploying m3|m2|m1");
    world
}

fn binding(world: &mut World) -> &mut ResourceBinding {
    world.observed.binding.as_mut().unwrap()
}
