//! Properties of `plan` for every report and every schedule.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[allow(dead_code)] // Other tests use more of it.
#[path = "rules/world.rs"]
mod world;

use std::collections::BTreeMap;

use mczk_rules::rollout::plan::ObjectWrite;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use world::World;

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        60 => (0_i64..8).prop_map(Value::from),
        1 => any::<i32>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => prop_oneof![Just(i64::from(i32::MAX)), Just(i64::from(i32::MIN)), Just(i64::MAX), Just(i64::MIN), Just(-1)]
            .prop_map(Value::from),
        1 => Just(json!("seven")),
    ]
}

fn spec_hash() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("own")), Just(json!("")), "[a-f]{3}".prop_map(Value::from), Just(Value::Null)]
}

/// An object with some of these members.
fn some_of(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| prop::option::weighted(0.8, value).prop_map(move |v| (name, v)))
        .collect();
    members.prop_map(|members| {
        Value::Object(members.into_iter().filter_map(|(n, v)| Some((n.to_owned(), v?))).collect::<Map<String, Value>>())
    })
}

fn server() -> impl Strategy<Value = Value> {
    some_of(vec![
        ("id", number().boxed()),
        (
            "pod",
            prop_oneof!["zk-SERVICE-[0-9]{1,12}", "zk-SERVICE-o-[0-9]", "[a-z-]{0,6}"].prop_map(Value::from).boxed(),
        ),
        ("serving", any::<bool>().prop_map(Value::from).boxed()),
        ("lost", any::<bool>().prop_map(Value::from).boxed()),
        ("acceptedEpoch", number().boxed()),
    ])
}

/// A server list that an agent might report: mostly damaged, sometimes of this ensemble and with its hash.
fn list() -> impl Strategy<Value = Value> {
    let server = (1..6_i32, "m[1-4]", 0..3_i32).prop_map(
        |(id, cluster, ordinal)| json!({ "id": id, "cluster": cluster, "ordinal": ordinal, "host": "h", "role": "voter" }),
    );
    let id = Just(mczk_api::contract::naming::incarnation("u1", 0));
    let parts = (id, any::<i64>(), prop::collection::vec(server, 0..4), any::<bool>(), any::<bool>());
    parts.prop_map(|(id, epoch, servers, bootstrap, hashed)| {
        let phase = if bootstrap { "Bootstrapping" } else { "Running" };
        let list = json!({ "incarnation": id, "epoch": epoch, "servers": servers, "phase": phase });
        let with_hash =
            mczk_api::contract::server_list::with_hash(serde_json::from_value(list.clone()).unwrap()).unwrap();
        if hashed { serde_json::to_value(with_hash).unwrap() } else { list }
    })
}

fn status() -> impl Strategy<Value = Value> {
    let condition = (prop_oneof!["Progressing", "Blocked", "Decommissioned", "X"], prop_oneof!["True", "False", "Perhaps"]).prop_map(
        |(kind, status)| {
            json!([{ "type": kind, "status": status, "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }])
        },
    );
    some_of(vec![
        ("observedSpecHash", spec_hash().boxed()),
        ("completedSpecHash", spec_hash().boxed()),
        ("ensemble", list().boxed()),
        ("replicas", number().boxed()),
        ("startedReplicas", number().boxed()),
        ("readyReplicas", number().boxed()),
        ("servers", prop::collection::vec(server(), 0..4).prop_map(Value::from).boxed()),
        ("writable", any::<bool>().prop_map(Value::from).boxed()),
        ("configVersion", number().boxed()),
        ("leader", number().boxed()),
        ("votingMembers", prop::collection::vec(number(), 0..6).prop_map(Value::from).boxed()),
        ("conditions", condition.boxed()),
        ("ofTheFuture", Just(json!({ "a": [1] })).boxed()),
    ])
}

/// The voters that the scheduler gives each cluster.
fn placed() -> impl Strategy<Value = BTreeMap<String, i32>> {
    let count = prop_oneof![12 => 0..4_i32, 1 => any::<i32>(), 1 => Just(i32::MAX)];
    prop::collection::btree_map("(m[1-5]|x)", count, 0..5)
}

/// A moment of an ensemble.
fn moment(number: usize) -> World {
    let mut world = match number {
        0 => World::new(&json!({})),
        1 => World::new(&json!({ "observers": [{ "cluster": "m1", "count": 2 }] })),
        _ => World::done(&json!({ "rollout": { "onFailure": "Continue", "progressDeadlineSeconds": 5 } })),
    };
    match number {
        0 | 1 => {
            world.pass();
            world.pass();
        }
        3 => {
            world.image("zoo:2");
            world.pass();
            world.pass();
        }
        4 => world.observed.overrides = None,
        5 => world.observed.object.status = None,
        6 => (world.observed.overrides, world.observed.object.status) = (None, None),
        _ => {}
    }
    world
}

fn objects(world: &World) -> String {
    format!(
        "{:?} {:?} {:?} {:?}",
        world.observed.object.status,
        world.observed.template.as_ref().map(|t| (&t.spec, &t.metadata.annotations)),
        world.observed.policy.as_ref().map(|p| (&p.spec, &p.metadata.annotations)),
        world.observed.overrides.as_ref().map(|o| (&o.spec, &o.metadata.annotations))
    )
}

fn ids_are_unique(world: &World) -> bool {
    let mut ids: Vec<i32> = world.ids().into_iter().map(|(id, ..)| id).collect();
    ids.sort_unstable();
    ids.windows(2).all(|pair| pair[0] != pair[1]) && ids.iter().all(|id| (1..=254).contains(id))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// For every report and schedule `plan` does not panic, gives one answer, and soon writes nothing more.
    #[test]
    fn plan_is_total_and_deterministic_and_converges(
        number in 0..7_usize,
        statuses in prop::collection::vec((status(), any::<bool>()), 5),
        placed in placed(),
        settled in prop::bool::weighted(0.8),
        lost in prop::sample::subsequence(world::CLUSTERS.to_vec(), 0..3),
    ) {
        let mut world = moment(number);
        world.unreachable(&lost);
        let cluster_specs = world.overrides().cluster_specs;
        let sum: i64 = placed.values().map(|c| i64::from(*c)).sum();
        if settled && (1..=99).contains(&sum) {
            world.edit("/replicas", &json!(sum));
        }
        let placed: Vec<(&str, i32)> = placed.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        world.place(&placed);
        let service = world.status().ensemble.map(|e| e.incarnation).unwrap_or_default();
        let items = &mut world.observed.binding.as_mut().unwrap().status.aggregated_status;
        for (item, (status, applied)) in items.iter_mut().zip(&statuses) {
            let own = cluster_specs.get(&item.cluster_name).and_then(|p| p.spec_hash.clone()).unwrap_or_default();
            let text = status.to_string().replace("\"own\"", &format!("\"{own}\"")).replace("SERVICE", &service);
            item.status = Some(serde_json::from_str(&text).unwrap());
            item.applied = *applied;
        }
        prop_assert_eq!(format!("{:?}", world.plan()), format!("{:?}", world.plan()));
        let mut steps = 0;
        loop {
            let before = objects(&world);
            world.pass();
            prop_assert!(ids_are_unique(&world), "{:?}", world.ids());
            if objects(&world) == before {
                break;
            }
            steps += 1;
            prop_assert!(steps < 12, "{}\n{before}\n{}", world.state(), objects(&world));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// No server id depends on the order in which Karmada lists clusters.
    #[test]
    fn the_order_of_clusters_changes_no_id(
        first in prop::collection::vec(0..3_i32, 4),
        second in prop::collection::vec(0..3_i32, 4),
        shuffled in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
        other in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
    ) {
        prop_assume!(first.iter().sum::<i32>() > 0 && second.iter().sum::<i32>() > 0);
        let ids = |order: &[usize], then: &[usize]| {
            let place = |world: &mut World, counts: &[i32], order: &[usize]| {
                world.edit("/replicas", &json!(counts.iter().sum::<i32>()));
                let placed: Vec<_> = order.iter().map(|i| (world::CLUSTERS[*i], counts[*i])).collect();
                world.place(&placed);
            };
            let mut world = World::new(&json!({}));
            place(&mut world, &first, order);
            world.settle();
            let before = world.ids();
            place(&mut world, &second, then);
            world.pass();
            world.pass();
            let binding = world.observed.binding.as_mut().unwrap();
            binding.status.aggregated_status.reverse();
            world.settle();
            (before, world.ids())
        };
        let straight = [0, 1, 2, 3];
        prop_assert_eq!(ids(&straight, &straight), ids(&shuffled, &other));
    }

    /// After any faults, the rollout is done once all clusters are back, and the operator writes nothing more.
    #[test]
    fn after_faults_the_rollout_is_done_and_nothing_more_is_written(
        events in prop::collection::vec((0..7_usize, 0..4_usize, 0..4_usize), 1..8),
    ) {
        let mut world = World::done(&json!({ "rollout": { "progressDeadlineSeconds": 30 } }));
        for (number, (event, which, ticks)) in events.iter().enumerate() {
            let name = world::CLUSTERS[*which];
            match event {
                0 => world.image(&format!("zoo:{number}")),
                1 => world.unreachable(&[name]),
                2 => {
                    world.stopped_agents.insert(name.to_owned());
                }
                3 => world.observed.object.status = None,
                4 => world.observed.overrides = None,
                5 => {
                    let counts = [[2, 2, 1], [1, 2, 2], [2, 1, 2], [1, 3, 1]][*which];
                    world.place(&[("m1", counts[0]), ("m2", counts[1]), ("m3", counts[2])]);
                }
                _ => world.wait(40),
            }
            for _ in 0..*ticks {
                world.tick();
                prop_assert!(ids_are_unique(&world));
            }
        }
        world.unreachable(&[]);
        world.stopped_agents.clear();
        world.settle();
        prop_assert!(world.overrides().cluster_specs.values().all(|p| p.template.image == world.observed.object.spec.template.image));
        let plan = world.plan();
        prop_assert_eq!(Some(&plan.status), world.observed.object.status.as_ref());
        prop_assert_eq!(Some(plan.overrides), world.observed.overrides.as_deref().cloned().map(ObjectWrite::Apply));
        prop_assert_eq!(Some(plan.policy), world.observed.policy.as_deref().cloned().map(ObjectWrite::Apply));
    }
}
