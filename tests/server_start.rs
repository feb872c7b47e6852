//! How a server starts: a row for every rule, properties for whatever is observed, and every broken variant found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use mczk::api::zookeeper::EnsemblePhase;
use mczk::mutation::Mutation;
use mczk::{
    api::zookeeper::{Ensemble, Role, Server},
    contract::control_api::{Configuration, ConfiguredServer},
    server::start::{
        Decision, Peers, PodIdentity, Start, StartInputs, StoredServer, configured_servers, decide, is_replaced,
    },
};
use proptest::prelude::*;
use rstest::rstest;

/// Servers 1 to `count`, each in a cluster of its own.
fn list(count: i32) -> Ensemble {
    let servers = (1..=count).map(|id| server(id, Role::Voter)).collect();
    Ensemble { incarnation: Some("life".into()), epoch: Some(5), servers, ..Ensemble::default() }
}

fn server(id: i32, role: Role) -> Server {
    Server { id, cluster: format!("m{id}"), ordinal: 0, host: format!("s{id}"), role }
}

fn bootstrap(count: i32) -> Ensemble {
    Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(count) }
}

fn voters(ids: impl IntoIterator<Item = i32>) -> Vec<ConfiguredServer> {
    ids.into_iter().map(|id| ConfiguredServer { id, host: format!("s{id}"), role: Role::Voter }).collect()
}

fn configuration(version: i64, ids: impl IntoIterator<Item = i32>) -> Configuration {
    Configuration { version, servers: voters(ids) }
}

fn answered(version: i64, ids: impl IntoIterator<Item = i32>) -> Peers {
    Peers { configuration: Some(configuration(version, ids)), list: None, accepted_epoch: 1 }
}

/// A life of server 1 that has served with the voters `ids`.
fn served(ids: impl IntoIterator<Item = i32>) -> StoredServer {
    StoredServer {
        incarnation: "life".into(),
        id: 1,
        myid: Some(1),
        dynamic: Some(configuration(7, ids)),
        accepted_epoch: 1,
        data: true,
        formed: true,
        ..StoredServer::default()
    }
}

/// What server 1 observes on a new volume.
fn first(told: Ensemble) -> StartInputs {
    StartInputs {
        pod: PodIdentity { cluster: "m1".into(), role: Role::Voter, ordinal: 0 },
        assigned: Some(told),
        stored: None,
        suspended: None,
        has_set_aside: false,
        peers: Peers::default(),
    }
}

/// The decision in a word, whether something is set aside, and whether the id is lost.
fn told(start: &Start) -> (&'static str, bool, bool) {
    let word = match &start.decision {
        Decision::KeepOwn => "keep",
        Decision::SeedBootstrap { initialize: true, .. } => "bootstrap",
        Decision::SeedBootstrap { initialize: false, .. } => "bootstrap without a vote",
        Decision::SeedAsObserver { .. } => "join",
        Decision::Wait(_) => "wait",
        Decision::Suspend => "park",
        Decision::Refuse(_) => "refuse",
    };
    (word, start.set_aside, start.lost)
}

// One table, read from top to bottom.
#[allow(clippy::too_many_lines)]
fn rows() -> Vec<(&'static str, StartInputs, (&'static str, bool, bool))> {
    let with = |observed: StartInputs, life: StoredServer| StartInputs { stored: Some(life), ..observed };
    let hear = |observed: StartInputs, peers: Peers| StartInputs { peers, ..observed };
    let seeded = StoredServer { data: false, accepted_epoch: 0, formed: false, ..served(1..=3) };
    let emptied = StoredServer { data: false, accepted_epoch: 0, ..served(1..=3) };
    let joiner = ConfiguredServer { role: Role::Observer, ..voters([1])[0].clone() };
    let joining = |data| StoredServer {
        dynamic: Some(Configuration { version: 0, servers: [voters(2..=3), vec![joiner.clone()]].concat() }),
        data,
        accepted_epoch: i64::from(data),
        formed: data,
        ..served(2..=3)
    };
    let other_life = StoredServer { incarnation: "former".into(), ..served(1..=3) };
    let other_id = StoredServer { id: 9, myid: Some(9), ..served([2, 3, 9]) };
    let other_myid = StoredServer { myid: Some(9), ..served(1..=3) };
    let observer = |list: Ensemble| Ensemble {
        servers: list
            .servers
            .into_iter()
            .map(|s| Server { role: if s.id == 1 { Role::Observer } else { s.role }, ..s })
            .collect(),
        ..list
    };
    let as_observer = |observed: StartInputs| StartInputs {
        pod: PodIdentity { role: Role::Observer, ..observed.pod.clone() },
        ..observed
    };
    let newer = Ensemble { epoch: Some(9), servers: list(3).servers[1..].to_vec(), ..list(3) };
    let park = |list: Ensemble| Ensemble { phase: EnsemblePhase::Suspended, ..list };
    vec![
        ("told nothing", StartInputs { assigned: None, ..first(list(3)) }, ("wait", false, false)),
        ("a new ensemble, a new volume", first(bootstrap(3)), ("bootstrap", false, false)),
        (
            "a new ensemble, an observer",
            as_observer(first(observer(bootstrap(3)))),
            ("bootstrap without a vote", false, false),
        ),
        (
            "a new ensemble of which it is told that it formed",
            first(Ensemble { phase: EnsemblePhase::Formed, ..bootstrap(3) }),
            ("bootstrap without a vote", false, false),
        ),
        (
            "a new ensemble that formed without it",
            hear(first(bootstrap(3)), answered(3, 1..=3)),
            ("bootstrap without a vote", false, false),
        ),
        (
            "others accepted an epoch",
            hear(first(bootstrap(3)), Peers { accepted_epoch: 1, ..Peers::default() }),
            ("bootstrap without a vote", false, false),
        ),
        ("a new ensemble, begun before", with(first(bootstrap(3)), seeded.clone()), ("keep", false, false)),
        ("begun before with another list", with(first(bootstrap(5)), seeded.clone()), ("refuse", false, false)),
        (
            "begun before, only half written",
            with(first(bootstrap(3)), StoredServer { dynamic: None, ..seeded.clone() }),
            ("bootstrap", false, false),
        ),
        (
            "a new ensemble, a volume of another life",
            with(first(bootstrap(3)), other_life.clone()),
            ("refuse", false, false),
        ),
        (
            "a new ensemble, a volume of another id",
            with(first(bootstrap(3)), other_id.clone()),
            ("refuse", false, false),
        ),
        (
            "a new ensemble, something aside",
            StartInputs { has_set_aside: true, ..first(bootstrap(3)) },
            ("refuse", false, false),
        ),
        ("it formed, and its list stands still", with(first(bootstrap(3)), served(1..=3)), ("keep", false, false)),
        ("it served, and nobody else lives", with(first(list(3)), served(1..=3)), ("keep", false, false)),
        ("it was begun, and formed without it", with(first(list(3)), seeded.clone()), ("keep", false, false)),
        ("its own configuration is not yet the list", with(first(list(5)), served(1..=3)), ("keep", false, false)),
        (
            "the list omits it, its configuration does not",
            with(first(newer.clone()), served(1..=3)),
            ("keep", false, false),
        ),
        ("neither names it", with(first(newer.clone()), served(2..=3)), ("wait", false, false)),
        (
            "neither names it, and others live",
            hear(with(first(newer.clone()), served(2..=3)), answered(9, 2..=3)),
            ("wait", false, false),
        ),
        ("a new volume that no list names", first(newer.clone()), ("wait", false, false)),
        (
            "told an older list than its volume has",
            with(first(list(3)), StoredServer { list: Some(newer.clone()), ..served(2..=3) }),
            ("wait", false, false),
        ),
        (
            "told an older list than others have",
            hear(with(first(list(3)), served(2..=3)), Peers { list: Some(newer), ..answered(9, 2..=3) }),
            ("wait", false, false),
        ),
        ("a joiner, and others live", hear(first(list(3)), answered(9, 2..=3)), ("join", false, false)),
        ("a joiner, and nobody lives", first(list(3)), ("wait", false, false)),
        (
            "a joiner that was seeded and holds nothing",
            hear(with(first(list(3)), joining(false)), answered(9, 2..=3)),
            ("join", false, false),
        ),
        ("a joiner that follows", with(first(list(3)), joining(true)), ("keep", false, false)),
        (
            "a joiner whose configuration omits it",
            hear(with(first(list(3)), served(2..=3)), answered(9, 2..=3)),
            ("join", false, false),
        ),
        (
            "a joiner whose configuration omits it, and nobody lives",
            with(first(list(3)), served(2..=3)),
            ("wait", false, false),
        ),
        (
            "a voter again, with its data and an old configuration",
            hear(with(first(list(3)), served(2..=3)), answered(9, 1..=3)),
            ("join", false, false),
        ),
        (
            "a volume of another life",
            hear(with(first(list(3)), other_life.clone()), answered(9, 2..=3)),
            ("join", true, false),
        ),
        (
            "a volume of another life, and nobody lives",
            with(first(list(3)), other_life.clone()),
            ("wait", false, false),
        ),
        (
            "a volume of another id",
            hear(with(first(list(3)), other_id.clone()), answered(9, 2..=3)),
            ("join", true, false),
        ),
        (
            "a volume of another id that votes",
            hear(with(first(list(3)), other_id.clone()), answered(9, [2, 3, 9])),
            ("keep", false, false),
        ),
        ("a volume of another id, and nobody lives", with(first(list(3)), other_id.clone()), ("keep", false, false)),
        (
            "a volume of another id that only observed, and nobody lives",
            with(first(list(3)), StoredServer { dynamic: Some(configuration(7, 2..=3)), ..other_id.clone() }),
            ("wait", false, false),
        ),
        (
            "a volume of another id without data",
            hear(with(first(list(3)), StoredServer { data: false, ..other_id }), answered(9, [2, 3, 9])),
            ("join", true, false),
        ),
        (
            "a volume with another id's data",
            hear(with(first(list(3)), other_myid), answered(9, 2..=3)),
            ("join", true, false),
        ),
        (
            "data that nobody owns",
            hear(with(first(list(3)), StoredServer { data: true, ..StoredServer::default() }), answered(9, 2..=3)),
            ("join", true, false),
        ),
        ("a voter whose volume is gone", hear(first(list(3)), answered(9, 1..=3)), ("refuse", false, true)),
        (
            "a voter whose volume is another life's",
            hear(with(first(list(3)), other_life), answered(9, 1..=3)),
            ("refuse", false, true),
        ),
        (
            "a voter whose data is gone",
            hear(with(first(list(3)), emptied.clone()), answered(9, 1..=3)),
            ("refuse", false, true),
        ),
        ("a voter whose data is gone, and nobody lives", with(first(list(3)), emptied.clone()), ("wait", false, false)),
        (
            "a voter whose data is gone was removed",
            hear(with(first(list(3)), emptied), answered(9, 2..=3)),
            ("join", false, false),
        ),
        (
            "an observer whose volume is gone",
            hear(
                as_observer(first(observer(list(3)))),
                Peers {
                    configuration: Some(Configuration { version: 9, servers: [voters(2..=3), vec![joiner]].concat() }),
                    ..Peers::default()
                },
            ),
            ("join", false, false),
        ),
        ("parked before it was ever started", first(park(bootstrap(3))), ("park", false, false)),
        (
            "parked, and told an older list for a moment",
            StartInputs { suspended: Some(Ensemble { epoch: Some(9), ..park(bootstrap(3)) }), ..first(bootstrap(3)) },
            ("park", false, false),
        ),
        ("parked before a quorum formed", with(first(park(bootstrap(3))), seeded.clone()), ("park", false, false)),
        (
            "parked, but it took part in a quorum",
            with(first(park(bootstrap(3))), served(1..=3)),
            ("keep", false, false),
        ),
        (
            "the ensemble ends",
            with(first(Ensemble { phase: EnsemblePhase::Decommissioning, ..list(3) }), served(1..=3)),
            ("wait", false, false),
        ),
    ]
}

#[test]
fn every_row() {
    for (name, observed, expected) in rows() {
        assert_eq!(told(&decide(&observed)), expected, "{name}: {observed:#?}");
    }
}

#[test]
fn every_broken_variant_is_found() {
    for mutation in Mutation::START {
        let found = rows().into_iter().filter(|(_, observed, expected)| {
            let start = Mutation::with(Some(*mutation), || decide(observed));
            told(&start) != *expected || rules(observed, &start).is_err()
        });
        assert!(found.count() > 0, "{mutation:?} is found by no row");
    }
}

#[test]
fn a_joiner_lists_the_living_voters_and_itself() {
    let mut living = answered(9, 2..=3);
    living.configuration.as_mut().unwrap().servers.push(ConfiguredServer {
        id: 8,
        host: "s8".into(),
        role: Role::Observer,
    });
    let start = decide(&StartInputs { peers: living, ..first(list(5)) });
    let own = ConfiguredServer { id: 1, host: "s1".into(), role: Role::Observer };
    assert_eq!(start.decision, Decision::SeedAsObserver { servers: [vec![own], voters(2..=3)].concat() });
}

#[rstest]
#[case::its_own_id(1, 1..=3, false)]
#[case::it_has_a_vote(9, 2..=9, false)]
#[case::it_has_none(9, 2..=3, true)]
fn a_server_whose_place_has_another_id_ends_when_it_has_no_vote(
    #[case] id: i32,
    #[case] living: std::ops::RangeInclusive<i32>,
    #[case] ends: bool,
) {
    let me = first(list(3)).pod;
    assert_eq!(is_replaced(id, &me, &list(3), &configuration(9, living.clone())), ends);
    let unlisted = Ensemble { servers: Vec::new(), ..list(3) };
    assert!(!is_replaced(id, &me, &unlisted, &configuration(9, living)), "who is not listed is ended by its agent");
}

/// What must hold of every start, whatever was observed.
fn rules(observed: &StartInputs, start: &Start) -> Result<(), String> {
    let told = observed.assigned.as_ref();
    let own_life =
        observed.stored.as_ref().filter(|l| told.and_then(|t| t.incarnation.as_deref()) == Some(&l.incarnation));
    let check =
        |holds: bool, rule: &str| if holds { Ok(()) } else { Err(format!("{rule}: {start:#?} of {observed:#?}")) };
    match &start.decision {
        Decision::KeepOwn => {
            check(
                own_life.is_some_and(|l| Some(l.id) == start.id && l.myid.is_none_or(|id| id == l.id)),
                "only its own life is kept",
            )?;
            let named = own_life
                .and_then(|l| l.dynamic.as_ref())
                .is_some_and(|d| d.servers.iter().any(|s| Some(s.id) == start.id));
            check(named, "only a configuration that names it is kept")?;
        }
        Decision::SeedBootstrap { servers, initialize } => {
            let kept = observed.stored.as_ref().and_then(|l| l.list.as_ref());
            let lists = [told, kept, observed.suspended.as_ref(), observed.peers.list.as_ref()];
            let says_so = |list: &Ensemble| list.phase.is_bootstrap() && configured_servers(list) == *servers;
            check(lists.into_iter().flatten().any(says_so), "a new ensemble needs a list that says so")?;
            check(
                !observed.has_set_aside
                    && observed.stored.as_ref().is_none_or(|l| !l.data && l.accepted_epoch == 0 && !l.formed),
                "on a new volume",
            )?;
            check(!start.set_aside, "on a new volume")?;
            check(
                !*initialize || (observed.peers.accepted_epoch == 0 && observed.peers.configuration.is_none()),
                "votes empty",
            )?;
        }
        Decision::SeedAsObserver { servers } => {
            let living = observed.peers.configuration.as_ref().ok_or("a joiner needs a living configuration")?;
            let (own, others): (Vec<_>, Vec<_>) = servers.iter().partition(|s| Some(s.id) == start.id);
            check(own.len() == 1 && own[0].role == Role::Observer, "a joiner is one observer")?;
            check(
                others.iter().all(|s| s.role == Role::Voter && living.servers.contains(s)),
                "others are living voters",
            )?;
            check(living.voters().filter(|v| Some(*v) != start.id).count() == others.len(), "all of them")?;
            let holds = own_life.is_some_and(|l| l.data && Some(l.id) == start.id);
            check(holds || !living.voters().any(|v| Some(v) == start.id), "a voter without its data does not start")?;
        }
        Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => {
            check(!start.set_aside, "what does not start moves nothing")?;
        }
    }
    let foreign = observed.stored.is_some()
        && own_life.is_none_or(|l| Some(l.id) != start.id || l.myid.is_some_and(|id| id != l.id));
    if matches!(start.decision, Decision::KeepOwn | Decision::SeedBootstrap { .. } | Decision::SeedAsObserver { .. }) {
        check(start.set_aside == foreign, "what is another's is set aside, and nothing else")?;
        check(!start.lost, "what is lost does not start")?;
        let voter = |c: &Configuration, id: i32| c.voters().any(|voter| voter == id);
        let counted_on = own_life.filter(|l| l.data && l.myid.is_none_or(|id| id == l.id)).is_some_and(|l| {
            observed.peers.configuration.as_ref().is_some_and(|c| voter(c, l.id))
                && l.dynamic.as_ref().is_some_and(|c| voter(c, l.id))
        });
        check(!(counted_on && start.set_aside), "nobody gives up what it still votes with")?;
        let kept = observed.stored.as_ref().and_then(|l| l.list.as_ref());
        let known = [kept, observed.suspended.as_ref(), observed.peers.list.as_ref(), told];
        let known =
            known.into_iter().flatten().filter(|list| Some(&list.incarnation) == told.map(|told| &told.incarnation));
        let newest = known.max_by_key(|list| list.epoch);
        let took_part = observed.stored.as_ref().is_some_and(|l| l.accepted_epoch > 0 || l.formed);
        check(
            newest.is_some_and(|l| !l.phase.is_ending() && (!l.phase.is_suspended() || took_part)),
            "nothing starts that is to end",
        )?;
    }
    Ok(())
}

fn any_list() -> impl Strategy<Value = Ensemble> {
    let server = (1..5_i32, 1..4_i32, any::<bool>()).prop_map(|(id, at, voter)| Server {
        id,
        cluster: format!("m{at}"),
        ordinal: 0,
        host: format!("s{id}"),
        role: if voter { Role::Voter } else { Role::Observer },
    });
    let id = prop_oneof![4 => Just("life"), 1 => Just("former")];
    (id, 1..4_i64, any::<bool>(), any::<[bool; 3]>(), prop::collection::vec(server, 0..4)).prop_map(
        |(id, epoch, bootstrap, rare, servers)| Ensemble {
            incarnation: Some(id.into()),
            epoch: Some(epoch),
            phase: match (bootstrap, rare) {
                (true, [true, true, true]) => EnsemblePhase::Suspended,
                (true, [false, false, false]) => EnsemblePhase::Abandoned,
                (false, [false, false, false]) => EnsemblePhase::Decommissioning,
                (true, _) => EnsemblePhase::Bootstrapping,
                (false, _) => EnsemblePhase::Running,
            },
            servers,
            ..Ensemble::default()
        },
    )
}

fn any_configuration() -> impl Strategy<Value = Configuration> {
    (0..4_i64, prop::collection::btree_map(1..5_i32, any::<bool>(), 1..4)).prop_map(|(version, servers)| {
        Configuration {
            version,
            servers: servers
                .into_iter()
                .map(|(id, voter)| ConfiguredServer {
                    id,
                    host: format!("s{id}"),
                    role: if voter { Role::Voter } else { Role::Observer },
                })
                .collect(),
        }
    })
}

fn any_life() -> impl Strategy<Value = StoredServer> {
    let incarnation = prop_oneof![4 => Just("life"), 1 => Just("former"), 1 => Just("")];
    (
        incarnation,
        1..5_i32,
        prop::option::weighted(0.8, prop_oneof![4 => Just(None), 1 => (1..5_i32).prop_map(Some)]),
        prop::option::of(any_list()),
        prop::option::weighted(0.8, any_configuration()),
        0..2_i64,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(incarnation, id, myid, list, dynamic, accepted_epoch, data, formed)| StoredServer {
            incarnation: incarnation.into(),
            id,
            myid: myid.map(|other| other.unwrap_or(id)),
            list,
            dynamic,
            accepted_epoch,
            data,
            formed,
        })
}

prop_compose! {
    fn any_observed()(
        told in prop::option::weighted(0.95, any_list()),
        life in prop::option::of(any_life()),
        aside in prop::bool::weighted(0.1),
        voter in any::<bool>(),
        configuration in prop::option::of(any_configuration()),
        list in prop::option::of(any_list()),
        parked in prop::option::weighted(0.1, any_list().prop_map(|list| Ensemble { phase: EnsemblePhase::Suspended, ..list })),
        accepted_epoch in 0..2_i64,
    ) -> StartInputs {
        StartInputs {
            pod: PodIdentity { cluster: "m1".into(), role: if voter { Role::Voter } else { Role::Observer }, ordinal: 0 },
            assigned: told,
            stored: life,
            suspended: parked,
            has_set_aside: aside,
            peers: Peers { configuration, list, accepted_epoch },
        }
    }
}

proptest! {
    // Nothing is written beside the tests: what fails is shown, and becomes a row.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn whatever_is_observed(observed in any_observed()) {
        prop_assert_eq!(rules(&observed, &decide(&observed)), Ok(()));
    }
}
