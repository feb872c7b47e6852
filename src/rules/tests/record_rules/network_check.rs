//! The network check before the first server.

use super::*;

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

/// The plan for a first deployment that requires the check. Each cluster reports this, for the round of the request unless it
/// names another one.
fn checked(reports: &[(&str, Value)]) -> (World, Plan) {
    let mut world = World::new(&json!({ "network": { "preflight": "Required" } }));
    world.pass();
    world.pass();
    let round = request(&world.plan()).expect("a request")["round"].clone();
    for (cluster, report) in reports {
        let mut report = report.clone();
        if report["round"].is_null() {
            report["round"] = round.clone();
        }
        world.report(cluster)["preflight"] = report;
    }
    let plan = world.plan();
    (world, plan)
}

fn passed(clusters: &[&'static str]) -> Vec<(&'static str, Value)> {
    clusters.iter().map(|cluster| (*cluster, json!({}))).collect()
}

fn problem(to: &str, more: &Value) -> Value {
    let mut problem = json!({ "to": to, "host": format!("zk-0.{to}") });
    problem.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "problems": [problem] })
}

#[rstest]
#[case::no_report(passed(&["m1", "m3"]), "NetworkUnchecked", "clusters: m2. No server starts")]
#[case::name_missing(
    [passed(&["m1", "m2"]), vec![("m3", problem("m1", &json!({ "problem": "NoSuchName" })))]].concat(),
    "NetworkBroken", "m3 to m1: zk-0.m1: NoSuchName. Mend"
)]
#[case::port_blocked(
    [passed(&["m1", "m2"]), vec![("m3", problem("m2", &json!({ "problem": "TimedOut", "port": 3888 })))]].concat(),
    "NetworkBroken", "m3 to m2: zk-0.m2 port 3888: TimedOut. Mend"
)]
#[case::wrong_cluster_id(
    [passed(&["m2", "m3"]), vec![("m1", problem("m2", &json!({ "problem": "WrongServer", "port": 8443, "answered": "m3" })))]].concat(),
    "NetworkBroken", "m1 to m2: zk-0.m2 port 8443: WrongServer (cluster m3 answers). Mend"
)]
#[case::large_packets(
    [passed(&["m1", "m2"]), vec![("m3", problem("m2", &json!({ "problem": "LargePacketsLost", "port": 2888 })))]].concat(),
    "NetworkBroken", "LargePacketsLost. Large packets are lost: lower the MTU of the pods"
)]
#[case::wildcard(
    [passed(&["m1", "m2"]), vec![("m3", problem("m2", &json!({ "problem": "AnyNameResolves" })))]].concat(),
    "NetworkBroken", "zk-0.m2: AnyNameResolves. DNS has an address for a name that no server has"
)]
#[case::mesh_in_another_cluster(
    vec![
        ("m1", json!({ "mesh": "Linkerd" })), ("m2", json!({})),
        ("m3", problem("m1", &json!({ "problem": "TimedOut", "port": 3888 }))),
    ],
    "NetworkBroken", "Pods have a proxy of Linkerd, which may hold connections of servers: in spec.template.metadata, set"
)]
#[case::more_than_a_report_names(
    [passed(&["m1", "m2"]), vec![("m3", {
        let mut report = problem("m1", &json!({ "problem": "NoSuchName" }));
        report["more"] = json!(40);
        report
    })]].concat(),
    "NetworkBroken", "m3 to m1: zk-0.m1: NoSuchName and 38 more. Mend"
)]
#[case::another_round(
    [passed(&["m1", "m2"]), vec![("m3", json!({ "round": "0123456789abcdef" }))]].concat(),
    "NetworkUnchecked", "clusters: m3. No server starts"
)]
#[case::probe_does_not_run(
    [passed(&["m1", "m2"]), vec![("m3", json!({ "failure": "Pod zk-0: no node fits its pod" }))]].concat(),
    "NetworkUnchecked", "m3 (Pod zk-0: no node fits its pod)"
)]
fn no_server_starts_before_every_cluster_has_passed_the_check(
    #[case] reports: Vec<(&str, Value)>,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (mut world, plan) = checked(&reports);
    let progressing = progressing(&plan);
    assert_eq!(progressing.0, reason);
    assert!(progressing.1.contains(message), "{}", progressing.1);
    assert!(!starts(&plan) && plan.status.records.is_empty());
    assert!(request(&plan).is_some());
    world.wait(1_000_000);
    assert!(!starts(&world.plan()), "time alone starts no server");
    assert!(Mutation::with(Some(Mutation::SkipPreflight), || starts(&world.plan())), "the broken rule starts servers");
    world.edit("/network/preflight", &json!("Skip"));
    world.pass();
    assert!(starts(&world.plan()), "the user skips the check");
}

/// The leader drops a follower whose answer takes longer. An older probe measures nothing.
#[rstest]
#[case::at_the_limit(Some(500), false)]
#[case::beyond_it(Some(501), true)]
#[case::older_probe(None, false)]
fn no_server_starts_if_a_round_trip_takes_too_long(#[case] measured: Option<i64>, #[case] is_too_long: bool) {
    let mut world = World::new(&json!({ "network": { "preflight": "Required" } }));
    world.pass();
    world.pass();
    let far = measured.map_or(json!({}), |ms| json!({ "roundTrip": { "to": "m1", "milliseconds": ms } }));
    answer(&mut world, &[passed(&["m1", "m2"]), vec![("m3", far)]].concat());
    let plan = world.plan();
    assert_eq!(starts(&plan), !is_too_long);
    if !is_too_long {
        return;
    }
    let (reason, message) = progressing(&plan);
    assert_eq!(reason, "NetworkBroken");
    let expected =
        "No server starts. Round trips between clusters take too long: m3 to m1: 501 ms. mczk allows 500 ms: ";
    assert!(message.contains(expected), "{message}");
    assert!(request(&plan).is_some(), "the check repeats");
    assert!(Mutation::with(Some(Mutation::SkipPreflight), || starts(&world.plan())), "the broken rule starts servers");
}

/// The ensemble existed before, and its server list is lost. With a new list it could form without its data.
#[rstest]
#[case::checked("Required")]
#[case::skipped("Skip")]
fn no_first_server_starts_where_volumes_of_the_incarnation_are_left(#[case] mode: &str) {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    let id = override_rules::read(&policy.spec).ensemble.incarnation.unwrap();
    let volume = format!("data-zk-{id}-0");
    world.report("m2")["volumes"] = json!([volume, "data-zk-0000000-0"]);
    world.edit("/network/preflight", &json!(mode));
    world.pass();
    let plan = world.plan();
    let (reason, message) = progressing(&plan);
    assert!(!starts(&plan) && plan.status.records.is_empty());
    assert_eq!(reason, "ServerListUnknown");
    assert!(message.contains(&format!("are left: {volume} in cluster m2. No server starts")), "{message}");
    assert!(message.contains("Restore status.ensemble") && !message.contains("to Skip"), "{message}");
    world.report("m2")["volumes"] = json!([]);
    world.edit("/network/preflight", &json!("Skip"));
    world.pass();
    assert!(starts(&world.plan()), "the user removed what was left");
}

#[test]
fn servers_start_with_the_end_of_the_check_and_it_never_returns() {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    assert!(starts(&plan));
    assert_eq!(request(&plan), None);
    world.write(&plan);
    world.settle();
    // Reports of agents that run no probe.
    assert!(world.report("m1")["preflight"].is_null());
    world.edit("/replicas", &json!(7));
    world.settle();
    assert_eq!(request(&world.plan()), None);
}

/// S8: Karmada keeps the last report of a cluster that it does not reach.
#[test]
fn a_check_of_an_unreachable_cluster_does_not_count() {
    let (mut world, plan) = checked(&passed(&["m1", "m2", "m3"]));
    assert!(starts(&plan));
    world.unreachable(&["m2"]);
    assert!(!starts(&world.plan()));
}

/// The agent of each cluster finds its own name in the request.
#[test]
fn the_request_names_the_first_server_of_each_cluster() {
    let mut world = World::new(
        &json!({ "network": { "preflight": "Required", "clusterIds": [{ "cluster": "m2", "id": "zwei" }] } }),
    );
    world.pass();
    world.pass();
    let request = request(&world.plan()).unwrap();
    let id = request["incarnation"].as_str().unwrap().to_owned();
    let host = |cluster: &str| format!("zk-{id}-0.{cluster}.zk-{id}.ns.svc.clusterset.local");
    let names = [("m1", "m1"), ("m2", "zwei"), ("m3", "m3")];
    let names: Vec<Value> = names.map(|(cluster, id)| json!({ "cluster": cluster, "host": host(id) })).into();
    assert_eq!(request["names"], json!(names));
}

/// A running ensemble of m1, m2 and m3, when a server moves from m2 to m4, which joins.
fn joining() -> World {
    let mut world = World::done(&json!({}));
    world.edit("/network/preflight", &json!("Required"));
    world.settle();
    assert_eq!(request(&world.plan()), None, "no cluster joins");
    world.place(&[("m1", 2), ("m2", 1), ("m3", 1), ("m4", 1)]);
    world.pass();
    world
}

/// Lets clusters report the round that is requested.
fn answer(world: &mut World, reports: &[(&str, Value)]) {
    let round = request(&world.plan()).expect("a request")["round"].clone();
    for (cluster, report) in reports {
        let mut report = report.clone();
        report["round"] = round.clone();
        world.report(cluster)["preflight"] = report;
    }
}

fn has_joined(plan: &Plan) -> bool {
    let ObjectWrite::Apply(policy) = &plan.overrides else { panic!("an OverridePolicy") };
    override_rules::read(&policy.spec).ensemble.servers.iter().any(|server| server.cluster == "m4")
}

#[rstest]
#[case::no_report(passed(&["m1", "m2", "m3"]), "NetworkUnchecked", "clusters: m4. No cluster joins, and no server moves before it")]
#[case::port_blocked(
    [passed(&["m1", "m2", "m4"]), vec![("m3", problem("m4", &json!({ "problem": "LargePacketsLost", "port": 2888 })))]].concat(),
    "NetworkBroken", "No cluster joins, and no server moves. Clusters do not reach each other: m3 to m4"
)]
#[case::too_far(
    [passed(&["m1", "m2", "m4"]), vec![("m3", json!({ "roundTrip": { "to": "m4", "milliseconds": 10_001 } }))]].concat(),
    "NetworkBroken", "No cluster joins, and no server moves. Round trips between clusters take too long: m3 to m4: 10001 ms"
)]
fn no_cluster_joins_before_every_cluster_has_passed_the_check(
    #[case] reports: Vec<(&str, Value)>,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let mut world = joining();
    answer(&mut world, &reports);
    let before = world.ids();
    let plan = world.plan();
    let progressing = progressing(&plan);
    assert_eq!(progressing.0, reason);
    assert!(progressing.1.contains(message), "{}", progressing.1);
    assert!(
        Mutation::with(Some(Mutation::SkipPreflight), || has_joined(&world.plan())),
        "the broken rule lets it join"
    );
    // What concerns no new cluster goes on.
    world.image("zoo:2");
    for _ in 0..20 {
        world.tick();
    }
    assert_eq!(world.ids(), before, "no server moves, and no time alone lets one join");
    assert!(world.images().contains("zoo:2"), "{}", world.images());
    world.edit("/network/preflight", &json!("Skip"));
    world.settle();
    assert!(has_joined(&world.plan()), "the user skips the check");
}

#[test]
fn a_cluster_joins_with_the_end_of_its_check() {
    let mut world = joining();
    let names = request(&world.plan()).unwrap()["names"].clone();
    let place = |name: &Value| (name["cluster"].as_str().unwrap().to_owned(), name["ordinal"].clone());
    let expected = [("m1", json!(2)), ("m2", json!(2)), ("m3", json!(1)), ("m4", Value::Null)];
    assert_eq!(
        names.as_array().unwrap().iter().map(place).collect::<Vec<_>>(),
        expected.map(|(name, ordinal)| (name.to_owned(), ordinal)),
        "names that no server has"
    );
    answer(&mut world, &passed(&["m1", "m2", "m3", "m4"]));
    let plan = world.plan();
    assert!(has_joined(&plan));
    assert_eq!(request(&plan), None);
    world.write(&plan);
    world.settle();
    assert_eq!(world.ids().len(), 5);
    assert_eq!(request(&world.plan()), None);
}

/// Servers that have left the list stay until the rollout reaches their cluster.
#[test]
fn the_check_takes_no_name_of_a_server_that_the_list_no_longer_has() {
    let mut world = joining();
    let incarnation = world.overrides().ensemble.incarnation.unwrap();
    let servers = world.report("m1")["servers"].as_array_mut().unwrap();
    servers.push(json!({ "id": 9, "pod": format!("zk-{incarnation}-4") }));
    let names = request(&world.plan()).unwrap()["names"].clone();
    let host = names[0]["host"].as_str().unwrap();
    assert_eq!((names[0]["ordinal"].as_i64(), host.starts_with(&format!("zk-{incarnation}-5."))), (Some(5), true));
}

/// A quorum has formed, and the first record is not done.
#[test]
fn no_cluster_joins_unchecked_before_the_end_of_the_bootstrap() {
    let mut world = World::new(&json!({}));
    world.stopped_agents.insert("m3".to_owned());
    (0..20).for_each(|_| drop(world.tick()));
    assert_eq!(world.overrides().ensemble.phase, EnsemblePhase::Formed);
    world.edit("/network/preflight", &json!("Required"));
    world.place(&[("m1", 2), ("m2", 1), ("m3", 1), ("m4", 1)]);
    let plan = world.pass();
    assert!(request(&plan).is_some() && !has_joined(&plan), "{:?}", progressing(&plan));
}

/// The loss of a cluster must not hold up the one that takes its place.
#[test]
fn a_cluster_of_the_ensemble_that_is_unreachable_takes_no_part() {
    let mut world = joining();
    world.report("m3")["snapshotBytes"] = json!(1 << 30);
    assert!(request(&world.plan()).unwrap()["bytesPerSecond"].is_i64());
    world.unreachable(&["m3"]);
    let request = request(&world.plan()).unwrap();
    assert!(request["bytesPerSecond"].is_null(), "nor does the size that it reported");
    let names = request["names"].clone();
    assert_eq!(names.as_array().unwrap().iter().map(|name| &name["cluster"]).collect::<Vec<_>>(), ["m1", "m2", "m4"]);
    answer(&mut world, &passed(&["m1", "m2", "m4"]));
    assert_ne!(progressing(&world.plan()).0, "NetworkUnchecked");
    world.unreachable(&[]);
    answer(&mut world, &passed(&["m1", "m2", "m3", "m4"]));
    world.unreachable(&["m4"]);
    let (reason, message) = progressing(&world.plan());
    assert_eq!(reason, "NetworkUnchecked");
    assert!(message.contains("m4 (") && !has_joined(&world.plan()), "{message}");
}

/// A follower has `initLimit` ticks to copy a snapshot.
#[rstest]
#[case::unknown_size(None, "30", None)]
#[case::small(Some(1 << 20), "30", Some(17_477))]
#[case::large(Some(256 << 20), "30", Some(4_473_925))]
#[case::more_ticks(Some(256 << 20), "300", Some(447_393))]
#[case::more_than_a_probe_measures(Some(1 << 40), "30", Some(16 << 20))]
fn a_cluster_that_joins_must_copy_a_snapshot_in_time(
    #[case] bytes: Option<i64>,
    #[case] init_limit: &str,
    #[case] rate: Option<i64>,
) {
    let mut world = joining();
    world.edit("/template/zooCfg", &json!([{ "name": "initLimit", "value": init_limit }]));
    world.settle();
    world.report("m1")["snapshotBytes"] = json!(bytes);
    let request = request(&world.plan()).unwrap();
    assert_eq!(request["bytesPerSecond"].as_i64(), rate);
    let slow = problem("m1", &json!({ "problem": "TooSlow", "port": 2888, "bytesPerSecond": 4096 }));
    answer(&mut world, &[passed(&["m1", "m2", "m3"]), vec![("m4", slow)]].concat());
    let (reason, message) = progressing(&world.plan());
    assert_eq!(reason, "NetworkBroken");
    let needs = rate.map_or(String::new(), |rate| format!(" (4 KiB/s, and it needs {} KiB/s)", (rate >> 10) + 1));
    assert!(
        message.contains(&format!("zk-0.m1 port 2888: TooSlow{needs}. A server there could not copy")),
        "{message}"
    );
}

/// Seen in chaos: the record began without the cluster that joins, and its first restart waited for the voter that leaves, whose
/// cluster reports no more.
#[test]
fn a_move_and_a_change_at_once_do_not_wait_for_each_other() {
    let mut world = World::declared(&json!({ "replicas": 3 }));
    world.place(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    world.settle();
    world.edit("/network/preflight", &json!("Required"));
    world.settle();
    world.image("zoo:2");
    world.edit("/placement", &json!({ "clusterAffinity": { "clusterNames": ["m1", "m2", "m4"] } }));
    world.place(&[("m1", 1), ("m2", 1), ("m4", 1)]);
    for _ in 0..6 {
        world.tick();
        world.observed.binding.as_mut().unwrap().status.aggregated_status.retain(|item| item.cluster_name != "m3");
    }
    answer(&mut world, &passed(&["m1", "m2", "m4"]));
    for _ in 0..40 {
        world.tick();
        world.observed.binding.as_mut().unwrap().status.aggregated_status.retain(|item| item.cluster_name != "m3");
    }
    assert!(has_joined(&world.plan()), "{}", world.message("Progressing"));
    assert_eq!(world.condition("Ready"), "True Serving", "{}", world.message("Progressing"));
}
