//! How a server starts: a row for every rule, properties for arbitrary inputs, and a failing row for every broken variant.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use mczk_api::{
    contract::control_api::{Configuration, ConfiguredServer},
    mutation::Mutation,
    zookeeper::{Ensemble, EnsemblePhase, Role, Server},
};
use mczk_rules::server::{
    files::Held,
    start::{
        Decision, Peers, PodIdentity, Recorded, Start, StartInputs, StoredServer, configured_servers, decide,
        is_replaced, needs_no_answer, newest_list,
    },
    volume_age::{Generations, VolumeAge, VolumeMark, is_confirmed},
};
use proptest::prelude::*;
use rstest::rstest;

/// Servers 1 to `count`, each in its own cluster.
fn list(count: i32) -> Ensemble {
    let servers = (1..=count).map(|id| server(id, Role::Voter)).collect();
    Ensemble { incarnation: Some("current".into()), epoch: Some(5), servers, ..Ensemble::default() }
}

fn server(id: i32, role: Role) -> Server {
    Server { id, cluster: format!("m{id}"), ordinal: 0, host: format!("s{id}"), role }
}

fn bootstrap(count: i32) -> Ensemble {
    Ensemble { phase: EnsemblePhase::Bootstrapping, ..list(count) }
}

fn voters(ids: impl IntoIterator<Item = i32>) -> Vec<ConfiguredServer> {
    ids.into_iter().map(|id| ConfiguredServer { id, host: host(id), role: Role::Voter }).collect()
}

/// Host of a server. Server 9 has the place of server 1.
fn host(id: i32) -> String {
    format!("s{}", if id == 9 { 1 } else { id })
}

fn configuration(version: i64, ids: impl IntoIterator<Item = i32>) -> Configuration {
    Configuration { version, servers: voters(ids) }
}

fn reported(version: i64, ids: impl IntoIterator<Item = i32>) -> Peers {
    Peers { configuration: Some(configuration(version, ids)), accepted_epoch: 1, ..Peers::default() }
}

/// The volume of server 1, which has served with the voters `ids`.
fn served(ids: impl IntoIterator<Item = i32>) -> StoredServer {
    StoredServer {
        incarnation: "current".into(),
        id: 1,
        myid: Some(1),
        dynamic: Some(configuration(7, ids)),
        accepted_epoch: 1,
        data: true,
        formed: true,
        ..StoredServer::default()
    }
}

/// Inputs of server 1 on a new volume.
fn new_volume(assigned: Ensemble) -> StartInputs {
    StartInputs {
        pod: PodIdentity { cluster: "m1".into(), role: Role::Voter, ordinal: 0 },
        assigned: Some(assigned),
        stored: None,
        age: VolumeAge { confirmed: true, ..VolumeAge::default() },
        suspended: None,
        set_aside: Vec::new(),
        available: 1 << 30,
        recorded: Recorded::This,
        peers: Peers::default(),
    }
}

/// The decision in a word, if data is set aside, and if the id is lost.
type Summary = (&'static str, bool, bool);

const KEEP: Summary = ("keep", false, false);
const KEEP_COPY: Summary = ("keep and copy first", false, false);
const ASK: Summary = ("ask the agent", false, false);
const BOOTSTRAP: Summary = ("bootstrap", false, false);
const NO_VOTE: Summary = ("bootstrap without a vote", false, false);
const JOIN: Summary = ("join", false, false);
const JOIN_EMPTY: Summary = ("join", true, false);
const WAIT: Summary = ("wait", false, false);
const SUSPEND: Summary = ("suspend", false, false);
const REFUSE: Summary = ("refuse", false, false);
const LOST: Summary = ("refuse", false, true);

fn summary(start: &Start) -> Summary {
    let (word, ..) = match &start.decision {
        Decision::KeepOwn if start.copies_first => KEEP_COPY,
        Decision::KeepOwn => KEEP,
        Decision::SeedBootstrap { initialize: true, .. } => BOOTSTRAP,
        Decision::SeedBootstrap { initialize: false, .. } => NO_VOTE,
        Decision::SeedAsObserver { .. } => JOIN,
        Decision::AskAgent(_) => ASK,
        Decision::Wait(_) => WAIT,
        Decision::Suspend => SUSPEND,
        Decision::Refuse(_) => REFUSE,
    };
    (word, start.set_aside, start.lost)
}

/// Name, inputs and expected summary.
type Row = (&'static str, StartInputs, Summary);

/// Inputs of server 1 on a volume that was used before.
fn used_volume(assigned: Ensemble, stored: StoredServer) -> StartInputs {
    StartInputs { stored: Some(stored), ..new_volume(assigned) }
}

/// The other servers are alive, with these voters.
fn alive(inputs: StartInputs, voters: impl IntoIterator<Item = i32>) -> StartInputs {
    with_peers(inputs, reported(9, voters))
}

fn with_peers(inputs: StartInputs, peers: Peers) -> StartInputs {
    StartInputs { peers, ..inputs }
}

/// A volume that was seeded and never used.
fn seeded() -> StoredServer {
    StoredServer { data: false, accepted_epoch: 0, formed: false, ..served(1..=3) }
}

/// A volume that lost its data.
fn emptied() -> StoredServer {
    StoredServer { data: false, accepted_epoch: 0, ..served(1..=3) }
}

fn joiner() -> ConfiguredServer {
    ConfiguredServer { role: Role::Observer, ..voters([1])[0].clone() }
}

/// A volume of a server that was seeded as an observer.
fn joining(data: bool) -> StoredServer {
    StoredServer {
        dynamic: Some(Configuration { version: 0, servers: [voters(2..=3), vec![joiner()]].concat() }),
        data,
        accepted_epoch: i64::from(data),
        formed: data,
        ..served(2..=3)
    }
}

fn other_incarnation() -> StoredServer {
    StoredServer { incarnation: "former".into(), ..served(1..=3) }
}

fn other_id() -> StoredServer {
    StoredServer { id: 9, myid: Some(9), ..served([2, 3, 9]) }
}

fn other_myid() -> StoredServer {
    StoredServer { myid: Some(9), ..served(1..=3) }
}

/// Makes server 1 an observer.
fn observer(list: Ensemble) -> Ensemble {
    let role = |s: &Server| if s.id == 1 { Role::Observer } else { s.role };
    Ensemble { servers: list.servers.into_iter().map(|s| Server { role: role(&s), ..s }).collect(), ..list }
}

fn as_observer(inputs: StartInputs) -> StartInputs {
    StartInputs { pod: PodIdentity { role: Role::Observer, ..inputs.pod.clone() }, ..inputs }
}

/// A newer list without server 1.
fn without_server_1() -> Ensemble {
    Ensemble { epoch: Some(9), servers: list(3).servers[1..].to_vec(), ..list(3) }
}

fn suspend(list: Ensemble) -> Ensemble {
    Ensemble { phase: EnsemblePhase::Suspended, ..list }
}

fn formed(count: i32) -> Ensemble {
    Ensemble { phase: EnsemblePhase::Formed, ..bootstrap(count) }
}

/// A new volume in a bootstrap, of which the agent has recorded this. Servers of these ids answer, and never joined a quorum.
fn first_start(recorded: Recorded, answers: &[i32]) -> StartInputs {
    let peers = Peers { answered: answers.iter().copied().collect(), ..Peers::default() };
    StartInputs { recorded, age: VolumeAge::default(), ..with_peers(new_volume(bootstrap(3)), peers) }
}

/// A volume that was seeded and never used, in a new process. Servers of these ids answer.
fn unconfirmed(list: Ensemble, answers: &[i32]) -> StartInputs {
    let peers = Peers { answered: answers.iter().copied().collect(), ..Peers::default() };
    StartInputs { age: VolumeAge::default(), ..with_peers(used_volume(list, seeded()), peers) }
}

/// The same in an ensemble of so many voters. Of those that answer, these acknowledged nothing.
fn wiped(voters: i32, answers: &[i32], prove: &[i32]) -> StartInputs {
    let mut inputs = first_start(Recorded::Other, answers);
    inputs.assigned = Some(bootstrap(voters));
    inputs.peers.acknowledged_nothing = prove.iter().copied().collect();
    inputs
}

fn recorded_as(recorded: Recorded, inputs: StartInputs) -> StartInputs {
    StartInputs { recorded, ..inputs }
}

/// A new volume of a server whose ensemble formed without it. A server that formed it answers, and knows a generation.
fn late(recorded: Recorded, known: i64) -> StartInputs {
    let peers = Peers { accepted_epoch: 1, answered: [2].into(), generations: [(1, known)].into(), ..Peers::default() };
    with_peers(first_start(recorded, &[]), peers)
}

/// A bootstrap list.
fn bootstrap_rows() -> Vec<Row> {
    vec![
        ("no assigned server list", StartInputs { assigned: None, ..new_volume(list(3)) }, WAIT),
        ("a new ensemble, a new volume", new_volume(bootstrap(3)), BOOTSTRAP),
        ("a new ensemble, an observer", as_observer(new_volume(observer(bootstrap(3)))), NO_VOTE),
        ("a volume that the agent has not recorded", first_start(Recorded::Unknown, &[]), ASK),
        ("a volume that the agent has not recorded, and all answer", first_start(Recorded::Unknown, &[2, 3]), ASK),
        ("the agent has recorded another volume", first_start(Recorded::Other, &[]), ASK),
        ("the agent has recorded another volume, and one answers", first_start(Recorded::Other, &[3]), ASK),
        ("the agent has recorded another volume, and all answer", first_start(Recorded::Other, &[2, 3]), BOOTSTRAP),
        ("one of the others may have lost its volume too", wiped(5, &[2, 4, 5], &[4, 5]), ASK),
        ("a majority with it has one that acknowledged nothing", wiped(5, &[2, 4, 5], &[2, 4, 5]), BOOTSTRAP),
        ("any of the others may have lost its volume, and all answer", wiped(5, &[2, 3, 4, 5], &[]), BOOTSTRAP),
        ("no other voter can tell", wiped(1, &[], &[]), ASK),
        (
            "the same process ran before",
            StartInputs {
                age: VolumeAge { confirmed: true, generation: Some(0), ..VolumeAge::default() },
                ..first_start(Recorded::Unknown, &[])
            },
            BOOTSTRAP,
        ),
        (
            "the same process ran before, to copy first",
            StartInputs {
                age: VolumeAge { confirmed: true, ..VolumeAge::default() },
                ..first_start(Recorded::Unknown, &[])
            },
            ASK,
        ),
        (
            "a volume from before the first quorum, and one answers",
            StartInputs { stored: Some(seeded()), ..first_start(Recorded::Other, &[3]) },
            ASK,
        ),
        (
            "the agent has recorded another volume, and a quorum formed",
            with_peers(first_start(Recorded::Other, &[]), reported(3, 1..=3)),
            NO_VOTE,
        ),
        (
            "a volume that the agent has not recorded, and a quorum formed",
            with_peers(first_start(Recorded::Unknown, &[]), reported(3, 1..=3)),
            ASK,
        ),
        (
            "an observer that the agent has not recorded",
            StartInputs {
                age: VolumeAge::default(),
                recorded: Recorded::Unknown,
                ..as_observer(new_volume(observer(bootstrap(3))))
            },
            NO_VOTE,
        ),
        ("a new ensemble, seeded before", used_volume(bootstrap(3), seeded()), BOOTSTRAP),
        ("seeded before with another list", used_volume(bootstrap(5), seeded()), REFUSE),
        (
            "seeded before, but only partly written",
            used_volume(bootstrap(3), StoredServer { dynamic: None, ..seeded() }),
            BOOTSTRAP,
        ),
        ("a new ensemble, a volume of another incarnation", used_volume(bootstrap(3), other_incarnation()), REFUSE),
        ("a new ensemble, a volume of another id", used_volume(bootstrap(3), other_id()), REFUSE),
        (
            "a new ensemble, a volume with data that was set aside",
            StartInputs { set_aside: vec!["aside-former-1-0".into()], ..new_volume(bootstrap(3)) },
            REFUSE,
        ),
    ]
}

/// A first start after the first quorum.
fn late_rows() -> Vec<Row> {
    vec![
        ("a new ensemble that formed by its list", recorded_as(Recorded::Other, new_volume(formed(3))), NO_VOTE),
        ("a first start after the first quorum, by the list", new_volume(formed(3)), BOOTSTRAP),
        ("a first start after the first quorum, by the others", late(Recorded::This, 0), BOOTSTRAP),
        ("no first start: others know a generation of its volume", late(Recorded::This, 4), NO_VOTE),
        ("a start after the first quorum that is not recorded", late(Recorded::Unknown, 0), ASK),
        (
            "a start after the first quorum that is not recorded, by the list",
            StartInputs { age: VolumeAge::default(), ..recorded_as(Recorded::Unknown, new_volume(formed(3))) },
            ASK,
        ),
        (
            "a new ensemble that formed without the server",
            recorded_as(Recorded::Other, with_peers(new_volume(bootstrap(3)), reported(3, 1..=3))),
            NO_VOTE,
        ),
        (
            "others accepted an epoch",
            recorded_as(
                Recorded::Other,
                with_peers(new_volume(bootstrap(3)), Peers { accepted_epoch: 1, ..Peers::default() }),
            ),
            NO_VOTE,
        ),
        ("a first start, and a quorum serves", with_peers(new_volume(bootstrap(3)), reported(3, 1..=3)), NO_VOTE),
    ]
}

/// A volume that was used before.
fn restart_rows() -> Vec<Row> {
    vec![
        ("it formed, and the list is still a bootstrap list", used_volume(bootstrap(3), served(1..=3)), KEEP),
        ("it served, and no other server is alive", used_volume(list(3), served(1..=3)), KEEP),
        ("it was seeded, and the ensemble formed without it", used_volume(list(3), seeded()), KEEP_COPY),
        ("it was seeded, and no other server answers", unconfirmed(list(3), &[]), WAIT),
        ("it was seeded, and a majority answers", unconfirmed(list(3), &[3]), KEEP_COPY),
        (
            "it was seeded, the ensemble formed, and no other server answers",
            recorded_as(Recorded::Other, unconfirmed(formed(3), &[])),
            NO_VOTE,
        ),
        ("it was seeded in a start that failed, and the ensemble formed", unconfirmed(formed(3), &[]), BOOTSTRAP),
        ("its accepted epoch is gone, and no other server answers", restarted_without_epoch(&[]), WAIT),
        ("its accepted epoch is gone, and a majority answers", restarted_without_epoch(&[2, 3]), KEEP),
        ("its own configuration differs from the list", used_volume(list(5), served(1..=3)), KEEP),
        ("the list omits it, its configuration does not", used_volume(without_server_1(), served(1..=3)), KEEP),
        ("neither names it", used_volume(without_server_1(), served(2..=3)), WAIT),
        ("neither names it, and others are alive", alive(used_volume(without_server_1(), served(2..=3)), 2..=3), WAIT),
        ("a new volume that no list names", new_volume(without_server_1()), WAIT),
        (
            "the assigned list is older than the stored one",
            used_volume(list(3), StoredServer { list: Some(without_server_1()), ..served(2..=3) }),
            WAIT,
        ),
        (
            "the assigned list is older than that of others",
            with_peers(
                used_volume(list(3), served(2..=3)),
                Peers { list: Some(without_server_1()), ..reported(9, 2..=3) },
            ),
            WAIT,
        ),
    ]
}

/// A server that joins a living ensemble.
fn join_rows() -> Vec<Row> {
    vec![
        ("a joiner, and others are alive", alive(new_volume(list(3)), 2..=3), JOIN),
        ("a joiner, and no other server is alive", new_volume(list(3)), WAIT),
        ("a joiner that was seeded and has no data", alive(used_volume(list(3), joining(false)), 2..=3), JOIN),
        ("a joiner that follows", used_volume(list(3), joining(true)), KEEP),
        ("a joiner whose configuration omits it", alive(used_volume(list(3), served(2..=3)), 2..=3), JOIN),
        (
            "a joiner whose configuration omits it, and no other server is alive",
            used_volume(list(3), served(2..=3)),
            WAIT,
        ),
        (
            "a voter again, with its data and an old configuration",
            alive(used_volume(list(3), served(2..=3)), 1..=3),
            JOIN,
        ),
    ]
}

/// A volume with foreign data.
fn foreign_rows() -> Vec<Row> {
    vec![
        ("a volume of another incarnation", alive(used_volume(list(3), other_incarnation()), 2..=3), JOIN_EMPTY),
        (
            "a volume of another incarnation, and no other server is alive",
            used_volume(list(3), other_incarnation()),
            WAIT,
        ),
        ("a volume of another id", alive(used_volume(list(3), other_id()), 2..=3), JOIN_EMPTY),
        ("a volume of another id that votes", alive(used_volume(list(3), other_id()), [2, 3, 9]), KEEP),
        ("a volume of another id, and no other server is alive", used_volume(list(3), other_id()), KEEP),
        (
            "a volume of another id that only observed, and no other server is alive",
            used_volume(list(3), StoredServer { dynamic: Some(configuration(7, 2..=3)), ..other_id() }),
            WAIT,
        ),
        (
            "a volume of another id without data",
            alive(used_volume(list(3), StoredServer { data: false, ..other_id() }), [2, 3, 9]),
            JOIN_EMPTY,
        ),
        ("a volume with the data of another id", alive(used_volume(list(3), other_myid()), 2..=3), JOIN_EMPTY),
        (
            "data without an owner",
            alive(used_volume(list(3), StoredServer { data: true, ..StoredServer::default() }), 2..=3),
            JOIN_EMPTY,
        ),
    ]
}

/// A server that lost its volume or data.
fn lost_rows() -> Vec<Row> {
    vec![
        ("a voter whose volume is lost", alive(new_volume(list(3)), 1..=3), LOST),
        (
            "a voter whose volume is of another incarnation",
            alive(used_volume(list(3), other_incarnation()), 1..=3),
            LOST,
        ),
        ("a voter whose data is lost", alive(used_volume(list(3), emptied()), 1..=3), LOST),
        ("a voter whose data is lost, and no other server is alive", used_volume(list(3), emptied()), WAIT),
        ("a voter whose data is lost was removed", alive(used_volume(list(3), emptied()), 2..=3), JOIN),
        ("an id that voted comes back without its volume", remembered(new_volume(list(3))), LOST),
        ("an id that voted comes back with its volume", remembered(used_volume(list(3), without_listed_id())), JOIN),
        (
            "an id that voted, after every id was given",
            remembered(new_volume(Ensemble { highest_id: Some(254), ..list(3) })),
            JOIN,
        ),
        ("an observer comes back without its volume", remembered(as_observer(new_volume(observer(list(3))))), JOIN),
        (
            "an observer whose volume is lost",
            with_peers(
                as_observer(new_volume(observer(list(3)))),
                Peers {
                    configuration: Some(Configuration {
                        version: 9,
                        servers: [voters(2..=3), vec![joiner()]].concat(),
                    }),
                    ..Peers::default()
                },
            ),
            JOIN,
        ),
    ]
}

/// Server 1 has no vote, and others know a generation of its volume.
fn remembered(inputs: StartInputs) -> StartInputs {
    with_peers(inputs, Peers { generations: [(1, 3)].into(), ..reported(9, 2..=3) })
}

/// A suspended or ending ensemble.
fn stop_rows() -> Vec<Row> {
    vec![
        ("suspended before the first start", new_volume(suspend(bootstrap(3))), SUSPEND),
        (
            "suspended, and an older list arrives for a moment",
            StartInputs {
                suspended: Some(Ensemble { epoch: Some(9), ..suspend(bootstrap(3)) }),
                ..new_volume(bootstrap(3))
            },
            SUSPEND,
        ),
        ("suspended before a quorum formed", used_volume(suspend(bootstrap(3)), seeded()), SUSPEND),
        ("suspended, but it joined a quorum", used_volume(suspend(bootstrap(3)), served(1..=3)), KEEP),
        (
            "the ensemble is decommissioned",
            used_volume(Ensemble { phase: EnsemblePhase::Decommissioning, ..list(3) }, served(1..=3)),
            WAIT,
        ),
        ("a list that it cannot read, after a quorum formed", used_volume(unread(), served(1..=3)), KEEP),
        ("a list that it cannot read, before a quorum formed", used_volume(unread(), seeded()), WAIT),
        ("a list that it cannot read, on a new volume", alive(new_volume(unread()), 2..=3), WAIT),
    ]
}

/// A voter that restarts in a new process, on a volume of generation 4. Servers of these ids answer, and know a generation.
fn restarted(answers: &[i32], known: i64) -> StartInputs {
    let peers = Peers {
        answered: answers.iter().copied().collect(),
        generations: [(1, known)].into(),
        accepted_epoch: 1,
        ..Peers::default()
    };
    let age = VolumeAge { generation: Some(4), ..VolumeAge::default() };
    StartInputs { age, peers, ..used_volume(list(5), served(1..=5)) }
}

fn restarted_without_epoch(answers: &[i32]) -> StartInputs {
    let stored = StoredServer { accepted_epoch: 0, formed: false, ..served(1..=5) };
    StartInputs { stored: Some(stored), ..restarted(answers, 4) }
}

/// A voter that was away while the voters changed: one that answers has stored this configuration.
fn moved(answers: &[i32], version: i64, voters: &[i32]) -> StartInputs {
    let inputs = restarted(answers, 4);
    let stored = Some(configuration(version, voters.iter().copied()));
    StartInputs { peers: Peers { stored, ..inputs.peers.clone() }, ..inputs }
}

/// A volume that its server copied, or that a server with an empty one confirms.
fn copy_rows() -> Vec<Row> {
    let with_age = |inputs: &StartInputs, age: VolumeAge| StartInputs { age, ..inputs.clone() };
    let (old, quorum) = (restarted(&[2, 3], 5), restarted(&[2, 3], 4));
    vec![
        (
            "a seeded volume",
            with_age(&restarted(&[2, 3], 0), VolumeAge { generation: None, ..quorum.age.clone() }),
            KEEP,
        ),
        ("a copy from the time of its join", with_age(&old, VolumeAge { generation: None, ..old.age.clone() }), WAIT),
        (
            "a copy from the time of its join, beside a living ensemble",
            StartInputs {
                peers: reported(9, 1..=5),
                ..with_age(&old, VolumeAge { generation: None, ..old.age.clone() })
            },
            KEEP,
        ),
        (
            "a server with an empty volume completes the majority",
            StartInputs { peers: Peers { forgetful: [2].into(), ..quorum.peers.clone() }, ..quorum.clone() },
            WAIT,
        ),
    ]
}

/// A volume that may have gone back in time.
fn age_rows() -> Vec<Row> {
    let with_age = |inputs: &StartInputs, age: VolumeAge| StartInputs { age, ..inputs.clone() };
    let (old, quorum) = (restarted(&[2, 3], 5), restarted(&[2, 3], 4));
    let short = VolumeAge { lost: Some(100), ..quorum.age.clone() };
    let held = Held { applied: 100, ..Held::default() };
    let generations = Generations { own: 4, held, ..Generations::default() };
    let swapped = StoredServer { id: 2, myid: Some(2), ..served(1..=5) };
    let with_new_id = |inputs: &StartInputs| {
        let mut renewed = list(5);
        renewed.servers[0].id = 9;
        let peers = Peers { configuration: Some(configuration(9, 1..=5)), ..inputs.peers.clone() };
        StartInputs { assigned: Some(renewed), peers, ..inputs.clone() }
    };
    vec![
        ("no other server answers", restarted(&[], 0), WAIT),
        ("a minority answers", restarted(&[2], 4), WAIT),
        ("a minority answers, and knows a newer generation", restarted(&[2], 5), LOST),
        ("a majority answers", quorum.clone(), KEEP),
        ("a majority answers, which never heard of the volume", restarted(&[2, 3], 0), KEEP),
        ("servers that have no vote answer", restarted(&[7, 8, 9], 0), WAIT),
        ("two voters have left, and a majority of the new ones answers", moved(&[6, 7], 9, &[1, 3, 4, 6, 7]), KEEP),
        ("two voters have left, and a minority of the new ones answers", moved(&[6], 9, &[1, 3, 4, 6, 7]), WAIT),
        ("two voters have left, and a majority of the old ones answers", moved(&[2, 3], 9, &[1, 6, 7, 8, 3]), WAIT),
        ("voters were added, and a majority of the old ones answers", moved(&[2, 3], 9, &[1, 2, 3, 4, 5, 6, 7]), WAIT),
        ("it has no vote any more, and a majority answers", moved(&[6, 7], 9, &[6, 7, 8]), KEEP),
        ("it has no vote any more, and a minority answers", moved(&[6], 9, &[6, 7, 8]), WAIT),
        ("another server has an older configuration", moved(&[6, 7], 5, &[1, 3, 4, 6, 7]), WAIT),
        ("another server was only seeded", moved(&[6], 0, &[1, 6]), WAIT),
        ("an ensemble of one", StartInputs { stored: Some(served([1])), ..restarted(&[], 0) }, KEEP),
        ("a living ensemble", StartInputs { peers: reported(9, 1..=5), ..restarted(&[], 0) }, KEEP),
        (
            "the same process ran before",
            with_age(&restarted(&[], 0), VolumeAge { confirmed: true, ..quorum.age.clone() }),
            KEEP,
        ),
        ("a snapshot was restored", old.clone(), LOST),
        (
            "a snapshot was restored under the process",
            with_age(&old, VolumeAge { confirmed: true, ..old.age.clone() }),
            LOST,
        ),
        ("a log was deleted", with_age(&quorum, short.clone()), LOST),
        ("the logs skip transactions", with_age(&quorum, VolumeAge { gap: Some((7, 9)), ..quorum.age.clone() }), LOST),
        (
            "the log cannot be read",
            with_age(&quorum, VolumeAge::of(&generations, Err("log.1: EIO".into()), false)),
            WAIT,
        ),
        (
            "the log cannot be read, in the same process",
            with_age(&quorum, VolumeAge::of(&generations, Err("log.1: EIO".into()), true)),
            WAIT,
        ),
        ("a restored snapshot, and the pod has a new id", with_new_id(&old), JOIN_EMPTY),
        ("an intact volume, and the pod has a new id", with_new_id(&quorum), KEEP),
        (
            "the volume of another pod",
            StartInputs { stored: Some(swapped.clone()), peers: reported(9, 1..=5), ..quorum.clone() },
            LOST,
        ),
        (
            "the volume of another pod, and the pod has a new id",
            StartInputs { stored: Some(swapped), ..with_new_id(&quorum) },
            JOIN_EMPTY,
        ),
        ("a suspended server that joined a quorum", StartInputs { assigned: Some(suspend(bootstrap(5))), ..old }, LOST),
        (
            "a server that never joined a quorum",
            StartInputs {
                stored: Some(seeded()),
                assigned: Some(bootstrap(3)),
                ..recorded_as(Recorded::Other, restarted(&[], 0))
            },
            NO_VOTE,
        ),
    ]
}

/// A list that a newer version wrote, and that this version cannot read.
fn unread() -> Ensemble {
    let servers = serde_json::json!({ "m1": 1 });
    let list = serde_json::json!({ "incarnation": "current", "epoch": 6, "phase": "Moving", "servers": servers });
    serde_json::from_value(list).unwrap()
}

fn rows() -> Vec<Row> {
    [
        bootstrap_rows(),
        late_rows(),
        restart_rows(),
        join_rows(),
        foreign_rows(),
        lost_rows(),
        stop_rows(),
        age_rows(),
        copy_rows(),
    ]
    .concat()
}

#[test]
fn every_row_has_its_decision() {
    for (name, inputs, expected) in rows() {
        assert_eq!(summary(&decide(&inputs)), expected, "{name}: {inputs:#?}");
    }
}

#[test]
fn every_broken_variant_fails_a_row() {
    for mutation in Mutation::START {
        let failing = rows().into_iter().filter(|(_, inputs, expected)| {
            let start = Mutation::with(Some(*mutation), || decide(inputs));
            summary(&start) != *expected || rules(inputs, &start).is_err()
        });
        assert!(failing.count() > 0, "{mutation:?} fails no row");
    }
}

/// An ensemble of one voter would wait for ever.
#[test]
fn a_server_without_other_voters_says_what_helps() {
    let Decision::AskAgent(why) = decide(&wiped(1, &[], &[])).decision else { panic!("it starts") };
    assert!(why.contains("declare the ensemble again"), "{why}");
}

#[rstest]
#[case::no_answer(restarted(&[], 0), false)]
#[case::a_majority(restarted(&[2, 3], 4), false)]
#[case::a_quorum(alive(restarted(&[2], 4), 1..=5), true)]
#[case::a_quorum_and_an_old_copy(with_peers(restarted(&[], 0), Peers { generations: [(1, 5)].into(), ..reported(9, 1..=5) }), false)]
fn only_a_quorum_makes_further_answers_needless(#[case] inputs: StartInputs, #[case] expected: bool) {
    assert_eq!(needs_no_answer(&inputs), expected);
}

#[rstest]
#[case::unchanged("a", 4, true, true)]
#[case::another_volume("b", 4, true, false)]
#[case::an_older_copy("a", 3, true, false)]
#[case::from_before_the_first_quorum("a", 4, false, false)]
fn a_process_knows_the_volume_that_it_left(
    #[case] identity: &str,
    #[case] generation: i64,
    #[case] formed: bool,
    #[case] expected: bool,
) {
    let mark = |identity: &str, generation, formed| VolumeMark { identity: identity.into(), generation, formed };
    let (written, found) = (mark("a", 4, true), mark(identity, generation, formed));
    assert_eq!(is_confirmed(Some(&written), Some(&found)), expected);
    assert!(!is_confirmed(Some(&written), None) && !is_confirmed(None, Some(&found)) && !is_confirmed(None, None));
}

#[test]
fn a_joiner_starts_with_the_living_voters_and_itself() {
    let mut living = reported(9, 2..=3);
    living.configuration.as_mut().unwrap().servers.push(ConfiguredServer {
        id: 8,
        host: "s8".into(),
        role: Role::Observer,
    });
    let start = decide(&StartInputs { peers: living, ..new_volume(list(5)) });
    let own = ConfiguredServer { id: 1, host: "s1".into(), role: Role::Observer };
    assert_eq!(start.decision, Decision::SeedAsObserver { servers: [vec![own], voters(2..=3)].concat() });
}

/// The volume of a server that has left the ensemble and joins it again under its id.
fn without_listed_id() -> StoredServer {
    StoredServer { dynamic: Some(configuration(7, 2..=3)), ..served(2..=3) }
}

/// `ZooKeeper` would copy the leader's data to the end of the volume, again and again.
#[test]
fn a_server_joins_only_with_room_for_the_data() {
    let peers = |bytes| Peers { snapshot_bytes: bytes, ..reported(9, 2..=3) };
    let start = |bytes, set_aside: &[&str]| {
        let set_aside = set_aside.iter().map(|folder| (*folder).to_owned()).collect();
        decide(&StartInputs { set_aside, ..with_peers(new_volume(list(3)), peers(bytes)) }).decision
    };
    for bytes in [None, Some(0), Some(7 << 27)] {
        assert!(matches!(start(bytes, &[]), Decision::SeedAsObserver { .. }), "{bytes:?}");
    }
    // An eighth more is for the log.
    let Decision::Wait(why) = start(Some(1 << 30), &["aside-former-1-0"]) else { panic!("it starts") };
    for part in ["1024 MiB free", "needs 1152 MiB", "template.storage.size", "aside-former-1-0"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // A server that sets its data aside removes the oldest of three folders. One with data copies what it lacks of them.
    let three = ["0", "1", "2"].map(|number| format!("aside-former-1-{number}")).to_vec();
    for (stored, set_aside) in [(other_id(), three), (without_listed_id(), Vec::new())] {
        let inputs = with_peers(used_volume(list(3), stored), peers(Some(1 << 40)));
        let start = decide(&StartInputs { set_aside, ..inputs });
        assert!(matches!(start.decision, Decision::SeedAsObserver { .. }), "{start:?}");
    }
    assert!(matches!(start(Some(1 << 31), &[]), Decision::Wait(why) if !why.contains("aside")));
}

/// A quorum of the same incarnation holds all that a copy of a former server holds, unless that server still has a vote.
#[rstest]
#[case::of_a_former_server(&["aside-current-9-0", "aside-current-8-0"], Some("aside-current-9-0"))]
#[case::of_a_voter(&["aside-current-2-0", "aside-current-9-1"], Some("aside-current-9-1"))]
#[case::of_another_incarnation(&["aside-former-9-0", "aside-unknown-0-0", "aside-9"], None)]
fn a_copy_that_holds_nothing_of_its_own_makes_room(#[case] set_aside: &[&str], #[case] removed: Option<&str>) {
    let set_aside = set_aside.iter().map(|folder| (*folder).to_owned()).collect();
    let peers = Peers { snapshot_bytes: Some(1 << 31), ..reported(9, 2..=3) };
    let start = decide(&StartInputs { set_aside, ..with_peers(new_volume(list(3)), peers) });
    assert!(matches!(start.decision, Decision::Wait(_)), "{start:?}");
    assert_eq!(start.removes.as_deref(), removed);
}

#[rstest]
#[case::its_own_id(1, 1..=3, false)]
#[case::it_has_a_vote(9, 2..=9, false)]
#[case::it_has_none(9, 2..=3, true)]
fn a_server_whose_pod_has_another_id_stops_when_it_has_no_vote(
    #[case] id: i32,
    #[case] living: std::ops::RangeInclusive<i32>,
    #[case] stops: bool,
) {
    let pod = new_volume(list(3)).pod;
    assert_eq!(is_replaced(id, &pod, &list(3), &configuration(9, living.clone())), stops);
    let without = Ensemble { servers: Vec::new(), ..list(3) };
    let unlisted = is_replaced(id, &pod, &without, &configuration(9, living));
    assert!(!unlisted, "the agent stops a server that is not in the list");
}

#[test]
fn a_stored_list_of_another_incarnation_is_ignored() {
    let former = Ensemble { incarnation: Some("former".into()), epoch: Some(9), ..list(5) };
    let inputs = used_volume(list(3), StoredServer { list: Some(former), ..other_incarnation() });
    assert_eq!(newest_list(&inputs), Some(&list(3)));
}

/// True if others know a generation of a server's volume.
fn is_known(inputs: &StartInputs, id: i32) -> bool {
    inputs.peers.generations.get(&id).is_some_and(|known| *known > 0)
}

/// True if the age of a volume is confirmed: in the same process, by a quorum, or by a majority of the newest voters.
fn age_is_confirmed(inputs: &StartInputs, stored: &StoredServer) -> bool {
    let own = stored.dynamic.as_ref();
    let shown = inputs.peers.stored.as_ref().filter(|shown| own.is_none_or(|own| shown.version > own.version));
    let voters: Vec<i32> = shown.or(own).into_iter().flat_map(Configuration::voters).collect();
    let remembers = |id: &i32| inputs.peers.answered.contains(id) && !inputs.peers.forgetful.contains(id);
    let answered = voters.iter().filter(|id| **id == stored.id || remembers(id)).count();
    let may_be_of_a_join = inputs.age.generation.is_none() && stored.data && is_known(inputs, stored.id);
    inputs.age.confirmed || inputs.peers.configuration.is_some() || answered > voters.len() / 2 && !may_be_of_a_join
}

fn is_old(inputs: &StartInputs, stored: &StoredServer) -> bool {
    let known = inputs.peers.generations.get(&stored.id).copied().unwrap_or(0);
    inputs.age.generation.is_some_and(|own| known > own)
}

/// True if a volume is of this place and holds all that its server acknowledged.
fn is_complete(inputs: &StartInputs, start: &Start, stored: &StoredServer) -> bool {
    let lists = inputs.assigned.iter().chain(inputs.peers.list.as_ref());
    let mut listed = lists.flat_map(|list| &list.servers).filter(|server| Some(server.id) == start.id);
    let host = listed.next().map(|server| &server.host);
    let servers = stored.dynamic.iter().flat_map(|dynamic| &dynamic.servers);
    let is_here = servers.filter(|server| server.id == stored.id).all(|server| Some(&server.host) == host);
    let is_whole = inputs.age.gap.is_none() && inputs.age.lost.is_none();
    is_here && !is_old(inputs, stored) && is_whole
}

/// Rules that every start in a bootstrap follows.
fn bootstrap_rules(
    inputs: &StartInputs,
    start: &Start,
    servers: &[ConfiguredServer],
    initialize: bool,
) -> Result<(), String> {
    let assigned = inputs.assigned.as_ref();
    let check =
        |holds: bool, rule: &str| if holds { Ok(()) } else { Err(format!("{rule}: {start:#?} of {inputs:#?}")) };
    let kept = inputs.stored.as_ref().and_then(|l| l.list.as_ref());
    let lists = [assigned, kept, inputs.suspended.as_ref(), inputs.peers.list.as_ref()];
    let is_source = |list: &Ensemble| list.phase.is_bootstrap() && configured_servers(list) == *servers;
    check(lists.into_iter().flatten().any(is_source), "a new ensemble starts by a bootstrap list")?;
    check(
        inputs.set_aside.is_empty()
            && inputs.stored.as_ref().is_none_or(|l| !l.data && l.accepted_epoch == 0 && !l.formed),
        "on a new volume",
    )?;
    check(!start.set_aside, "on a new volume")?;
    check(
        !initialize
            || inputs.recorded == Recorded::This
            || (inputs.peers.accepted_epoch == 0 && inputs.peers.configuration.is_none()),
        "an empty server that may have voted votes only before a quorum formed",
    )?;
    check(
        !initialize || inputs.peers.accepted_epoch == 0 || !start.id.is_some_and(|id| is_known(inputs, id)),
        "an empty server that served before does not vote",
    )?;
    let voters = servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id);
    let others: BTreeSet<i32> = voters.filter(|id| Some(*id) != start.id).collect();
    let among = |ids: &BTreeSet<i32>| others.intersection(ids).count();
    let none_formed = among(&inputs.peers.acknowledged_nothing) > others.len() / 2
        || !others.is_empty() && among(&inputs.peers.answered) == others.len();
    check(
        !initialize
            || inputs.recorded == Recorded::This
            || inputs.age.confirmed && inputs.age.generation.is_some()
            || inputs.recorded == Recorded::Other && none_formed,
        "an empty server votes only if it never voted, or if no quorum can have formed with it",
    )?;
    check(start.copies_first != initialize, "any other empty server copies first")
}

/// Rules that every start follows, for any inputs.
fn rules(inputs: &StartInputs, start: &Start) -> Result<(), String> {
    let assigned = inputs.assigned.as_ref();
    let own_data = inputs
        .stored
        .as_ref()
        .filter(|l| assigned.and_then(|list| list.incarnation.as_deref()) == Some(&l.incarnation));
    let check =
        |holds: bool, rule: &str| if holds { Ok(()) } else { Err(format!("{rule}: {start:#?} of {inputs:#?}")) };
    match &start.decision {
        Decision::KeepOwn => {
            check(
                own_data.is_some_and(|l| Some(l.id) == start.id && l.myid.is_none_or(|id| id == l.id)),
                "only its own data is kept",
            )?;
            let mut stored = own_data.iter().filter_map(|l| l.dynamic.as_ref()).flat_map(|d| &d.servers);
            let named = stored.any(|s| Some(s.id) == start.id);
            check(named, "only a configuration that names it is kept")?;
            check(!own_data.is_some_and(|l| is_old(inputs, l)), "an old copy of a volume is not kept")?;
            check(own_data.is_some_and(|l| age_is_confirmed(inputs, l)), "a volume of unknown age is not kept")?;
            let never_joined = own_data.is_some_and(|l| !l.data && l.accepted_epoch == 0 && !l.formed);
            check(start.copies_first == never_joined, "a server that never joined a quorum copies first")?;
        }
        Decision::SeedBootstrap { servers, initialize } => bootstrap_rules(inputs, start, servers, *initialize)?,
        Decision::SeedAsObserver { servers } => {
            let living = inputs.peers.configuration.as_ref().ok_or("a joiner needs a living configuration")?;
            let (own, others): (Vec<_>, Vec<_>) = servers.iter().partition(|s| Some(s.id) == start.id);
            check(own.len() == 1 && own[0].role == Role::Observer, "a joiner is one observer")?;
            check(
                others.iter().all(|s| s.role == Role::Voter && living.servers.contains(s)),
                "others are living voters",
            )?;
            check(living.voters().filter(|v| Some(*v) != start.id).count() == others.len(), "all of them")?;
            let holds = own_data.is_some_and(|l| l.data && Some(l.id) == start.id);
            check(holds || !living.voters().any(|v| Some(v) == start.id), "a voter without its data does not start")?;
        }
        Decision::AskAgent(_) | Decision::Wait(_) | Decision::Suspend | Decision::Refuse(_) => {
            check(!start.set_aside, "a server that does not start leaves its volume alone")?;
        }
    }
    let foreign = inputs.stored.is_some()
        && own_data.is_none_or(|l| Some(l.id) != start.id || l.myid.is_some_and(|id| id != l.id));
    if matches!(start.decision, Decision::KeepOwn | Decision::SeedBootstrap { .. } | Decision::SeedAsObserver { .. }) {
        check(start.set_aside == foreign, "only foreign data is set aside")?;
        check(!start.lost, "a lost id does not start")?;
        check(inputs.age.unreadable.is_none(), "files that cannot be read are not used")?;
        let voter = |c: &Configuration, id: i32| c.voters().any(|voter| voter == id);
        let counted_on = own_data
            .filter(|l| l.data && l.myid.is_none_or(|id| id == l.id))
            .filter(|l| is_complete(inputs, start, l))
            .is_some_and(|l| {
                inputs.peers.configuration.as_ref().is_some_and(|c| voter(c, l.id))
                    && l.dynamic.as_ref().is_some_and(|c| voter(c, l.id))
            });
        check(!(counted_on && start.set_aside), "a server keeps data that it votes with")?;
        let kept = inputs.stored.as_ref().and_then(|l| l.list.as_ref());
        let lists = [kept, inputs.suspended.as_ref(), inputs.peers.list.as_ref(), assigned];
        let lists = lists
            .into_iter()
            .flatten()
            .filter(|list| Some(&list.incarnation) == assigned.map(|list| &list.incarnation));
        let newest = lists.max_by_key(|list| list.epoch);
        let joined_quorum = inputs.stored.as_ref().is_some_and(|l| l.accepted_epoch > 0 || l.formed);
        check(
            newest.is_some_and(|l| !l.phase.is_ending() && (!l.phase.is_suspended() || joined_quorum)),
            "a suspended or ending server does not start",
        )?;
        let unread = newest.is_some_and(|l| l.phase == EnsemblePhase::Unreadable);
        check(!unread || joined_quorum, "a server without a quorum starts by a list that it can read")?;
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
    let id = prop_oneof![4 => Just("current"), 1 => Just("former")];
    (id, 1..4_i64, any::<bool>(), any::<[bool; 3]>(), prop::collection::vec(server, 0..4)).prop_map(
        |(id, epoch, bootstrap, rare, servers)| Ensemble {
            incarnation: Some(id.into()),
            epoch: Some(epoch),
            phase: match (bootstrap, rare) {
                (true, [true, true, true]) => EnsemblePhase::Suspended,
                (true, [false, false, false]) => EnsemblePhase::Abandoned,
                (false, [false, false, false]) => EnsemblePhase::Decommissioning,
                (false, [true, true, true]) => EnsemblePhase::Unreadable,
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

fn any_stored() -> impl Strategy<Value = StoredServer> {
    let incarnation = prop_oneof![4 => Just("current"), 1 => Just("former"), 1 => Just("")];
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
    fn any_inputs()(
        assigned in prop::option::weighted(0.95, any_list()),
        stored in prop::option::of(any_stored()),
        set_aside in prop::option::weighted(0.1, Just("aside-former-1-0".to_owned())),
        voter in any::<bool>(),
        (configuration, shown) in (prop::option::of(any_configuration()), prop::option::of(any_configuration())),
        list in prop::option::of(any_list()),
        suspended in prop::option::weighted(0.1, any_list().prop_map(|list| Ensemble { phase: EnsemblePhase::Suspended, ..list })),
        accepted_epoch in 0..2_i64,
        (answered, forgetful, acknowledged_nothing) in (
            prop::collection::btree_set(1..5_i32, 0..4),
            prop::collection::btree_set(1..5_i32, 0..2),
            prop::collection::btree_set(1..5_i32, 0..4),
        ),
        generations in prop::collection::btree_map(1..5_i32, 0..3_i64, 0..4),
        (generation, lost, confirmed) in (prop::option::weighted(0.9, 0..3_i64), prop::option::weighted(0.2, 1..3_i64), any::<bool>()),
        recorded in prop_oneof![Just(Recorded::Unknown), Just(Recorded::This), Just(Recorded::Other)],
        gap in prop::option::weighted(0.1, Just((1_i64, 3_i64))),
        unreadable in prop::option::weighted(0.1, Just("log.1: EIO".to_owned())),
    ) -> StartInputs {
        StartInputs {
            pod: PodIdentity { cluster: "m1".into(), role: if voter { Role::Voter } else { Role::Observer }, ordinal: 0 },
            assigned,
            stored,
            age: VolumeAge { generation, lost, gap, unreadable, confirmed },
            suspended,
            set_aside: set_aside.into_iter().collect(),
            available: 1 << 30,
            recorded,
            peers: Peers { configuration, stored: shown, list, accepted_epoch, answered, forgetful, acknowledged_nothing, generations, snapshot_bytes: None },
        }
    }
}

proptest! {
    // No failure files beside the tests: a failing input is printed and becomes a row.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn every_start_follows_the_rules(inputs in any_inputs()) {
        prop_assert_eq!(rules(&inputs, &decide(&inputs)), Ok(()));
    }
}
