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
    karmada::{CONFLICT_RESOLUTION, resource_binding::ResourceBinding},
    multiclusterzookeeper::{CurrentState, ObservedGenerations, Record, RecordStatus},
    mutation::Mutation,
    zookeeper::{EnsemblePhase, ZooKeeperSpec},
};
use mczk_rules::rollout::{
    certificates::{self, IDENTITY_LIFE},
    override_rules,
    plan::{ObjectWrite, Plan},
    record::{self, Rank, RecordInputs, Start},
    steps::PlanStep,
};
use rstest::rstest;
use serde_json::{Value, json};
use world::{World, at};

fn names(list: &str) -> Vec<String> {
    list.split(',').filter(|n| !n.is_empty()).map(ToOwned::to_owned).collect()
}

fn generation(zookeeper: i64) -> ObservedGenerations {
    ObservedGenerations { multiclusterzookeeper: zookeeper, zookeeper }
}

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

const NEWER_CHANGE: &str = "A newer change of spec waits until the current record is done";

/// The state of the last record after each of some passes.
fn passes(world: &mut World, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            world.pass();
            world.state()
        })
        .collect()
}

/// A new image, which m1 is getting.
fn rolling(more: &Value) -> World {
    let mut world = World::done(more);
    world.image("zoo:2");
    world.pass();
    world.pass();
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    world
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

/// The request to check the network that a plan gives to all clusters.
fn request(plan: &Plan) -> Option<Value> {
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let rules = policy.spec.override_rules.iter().filter(|rule| rule.target_cluster.is_none());
    let mut patches = rules.flat_map(|rule| &rule.overriders.plaintext);
    patches.find(|patch| patch.path == "/spec/preflight")?.value.clone()
}

/// True if a plan gives any cluster a spec or a server list.
fn starts(plan: &Plan) -> bool {
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let content = override_rules::read(&policy.spec);
    !content.cluster_specs.is_empty() || !content.ensemble.servers.is_empty()
}

/// Reason and message of the condition `Progressing`.
fn progressing(plan: &Plan) -> (String, String) {
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    (condition.reason.clone(), condition.message.clone())
}
