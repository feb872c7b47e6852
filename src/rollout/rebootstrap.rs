//! A bootstrap that can never finish, begun again as another life of the ensemble: only when no server can have accepted
//! anything in the first one.
//!
//! The list of a bootstrap is frozen until a quorum formed. If a person takes so many of its clusters away that the rest is no
//! majority of it, none ever will. But nobody knows that none did: a majority may have formed just now, and acknowledged
//! writes, where the control plane does not look. So every server is parked first (its pod runs without `ZooKeeper` and tells
//! what its volume holds). Only when each cluster that may hold servers of the list has reported, under the list that parks
//! them, that all of them are parked and none ever accepted an epoch, that life is noted as over ([`super::ended`]), and the
//! next one begins with a new list, new names and a new authority. A single accepted epoch takes the parking back. A cluster
//! that cannot report blocks this until a person gives it up.
//!
//! The note is what makes it final: it is written before anything of the new life, and read before anything is decided.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{
        multiclusterzookeeper::ClusterStatus,
        zookeeper::{Ensemble, Role, SUSPENDED, ZooKeeperSpec, ZooKeeperStatus},
    },
    contract::{conditions::Reason, labels::ABANDON_CLUSTERS, naming::incarnation, server_list::majority},
    mutation::broken,
    rollout::{blocker::Blocker, report::ClusterReport},
};

/// Lives of one object that are looked for: nobody begins so often.
const MOST_LIVES: u32 = 1000;

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The list of servers.
    pub list: &'a Ensemble,
    /// Whether a quorum ever formed, or any server ever accepted an epoch.
    pub formed: bool,
    /// The cluster_specs that clusters were given.
    pub cluster_specs: &'a BTreeMap<String, ZooKeeperSpec>,
    /// What the status tells of clusters.
    pub told: &'a [ClusterStatus],
    /// What clusters reported.
    pub reports: &'a BTreeMap<String, ClusterReport>,
    /// Clusters that the person's placement means: those that were chosen for it, or, where it is new, would be.
    pub wanted: &'a [String],
    /// Clusters that a person gave up.
    pub abandoned: &'a BTreeSet<&'a str>,
    /// Whether the person paused the rollout: nothing is parked then, and nothing begins anew.
    pub paused: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the bootstrap goes on, or is over.
    GoOn,
    /// The list is to say that servers are parked.
    Park(Blocker),
    /// The list is to say so no more: a quorum may have formed, or the first list can have one after all.
    Unpark,
    /// Clusters have still to report, or a person has to do something.
    Wait(Blocker),
    /// The list is to say that this life is over: that cannot be taken back.
    End(Blocker),
    /// It says so; the life is to be noted as over, for these clusters.
    Begin(BTreeSet<String>, Blocker),
}

/// Decides.
#[must_use]
pub fn step(situation: &Situation<'_>) -> Step {
    let list = situation.list;
    let parked = list.phase.is_suspended();
    let concerned: BTreeSet<&String> = concerned(situation).collect();
    if parked && list.phase.is_ending() {
        let why = "no server of the first list ever accepted anything: the ensemble begins anew with another list";
        let listed = list.servers.iter().map(|server| &server.cluster);
        return Step::Begin(concerned.into_iter().chain(listed).cloned().collect(), wait(why));
    }
    let go_on = if parked { Step::Unpark } else { Step::GoOn };
    let formed = situation.formed && !broken!(ForgetAccepted);
    if formed || !list.phase.is_bootstrap() || !cannot_form(situation) {
        return go_on;
    }
    if situation.paused {
        let why = wait("rollout.paused is set: the ensemble does not begin anew");
        return if parked { Step::Wait(why) } else { Step::GoOn };
    }
    if situation.wanted.iter().all(|name| situation.abandoned.contains(name.as_str())) {
        let why = wait("every cluster that placement names was given up: name another one, to begin anew there");
        return if parked { Step::Wait(why) } else { Step::GoOn };
    }
    let unparked = broken!(BeginUnparked);
    if !parked && !unparked {
        return Step::Park(wait(
            "the clusters that are left of the first list of servers hold no majority of it: its servers are parked, to begin anew with another list",
        ));
    }
    let asked = concerned.iter().filter(|name| !situation.abandoned.contains(name.as_str()) && !unparked);
    let unproven: Vec<String> = asked
        .filter_map(|name| {
            let why = confirm_unused(name, situation).err()?;
            Some(format!("{name} ({why})"))
        })
        .collect();
    if !unproven.is_empty() {
        return Step::Wait(wait(&format!(
            "the servers of the first list are parked, to begin anew with another one; waits until these clusters report that none of theirs ever accepted anything: {}. One that never comes back can be given up by the annotation {ABANDON_CLUSTERS}",
            unproven.join(", ")
        )));
    }
    Step::End(wait("no server of the first list ever accepted anything: that life is over"))
}

fn wait(message: &str) -> Blocker {
    Blocker { reason: Reason::BootstrapSuspended, message: message.to_owned() }
}

/// Whether those clusters of the list that are still wanted hold no majority of its voters.
fn cannot_form(situation: &Situation<'_>) -> bool {
    let voters: Vec<&str> = situation
        .list
        .servers
        .iter()
        .filter(|server| server.role == Role::Voter)
        .map(|server| server.cluster.as_str())
        .collect();
    // Where nothing matches, nothing is known to be wanted instead.
    let wanted = |cluster: &&&str| {
        situation.wanted.iter().any(|name| name == **cluster) && !situation.abandoned.contains(**cluster)
    };
    !situation.wanted.is_empty() && voters.iter().filter(wanted).count() < majority(voters.len())
}

/// Clusters that may hold servers of this life: those that were given a pin, and those that ever reported anything. One that
/// never did either, of which an agent accepts nothing, holds none.
fn concerned<'a>(situation: &Situation<'a>) -> impl Iterator<Item = &'a String> {
    let life = situation.list.incarnation.as_deref().unwrap_or_default();
    let reported =
        situation.told.iter().filter(|told| told.reported || told.spec_hash.is_some()).map(|told| &told.name);
    let tells = move |status: &ZooKeeperStatus| status.may_be_of(life);
    let heard = situation
        .reports
        .iter()
        .filter(move |(_, member)| member.unreadable || member.status.as_ref().is_some_and(tells))
        .map(|(name, _)| name);
    situation.cluster_specs.keys().chain(reported).chain(heard)
}

/// Whether a cluster has reported that no server of the list accepted anything there, or will before it is told so.
fn confirm_unused(name: &str, situation: &Situation<'_>) -> Result<(), String> {
    let list = situation.list;
    if broken!(BelieveTheSilent) && situation.reports.get(name).is_none_or(|m| !m.fresh()) {
        return Ok(());
    }
    let Some(member) = situation.reports.get(name) else { return Err("no longer has the object".to_owned()) };
    if !member.reachable {
        return Err("not Ready in Karmada".to_owned());
    }
    let Some(status) = member.status.as_ref().filter(|_| member.fresh()) else {
        return Err("has not reported".to_owned());
    };
    let own = status.servers.as_slice();
    let told = status.ensemble.as_ref();
    let of_this_life = told.is_some_and(|told| told.incarnation == list.incarnation);
    if !situation.cluster_specs.contains_key(name)
        && own.is_empty()
        && (status.observed_spec_hash.is_none() || !of_this_life)
    {
        // Its turn never came in this life, and without a pin an agent starts nothing.
        return Ok(());
    }
    if told.is_none_or(|told| told.incarnation != list.incarnation || told.hash != list.hash) {
        return Err("has not seen the newest list".to_owned());
    }
    // An observer may have been taken out of the spec since.
    let listed = list.servers.iter().filter(|server| server.cluster == name && server.role == Role::Voter);
    let missing = listed.into_iter().find(|server| !own.iter().any(|told| told.id == server.id));
    if let Some(server) = missing {
        return Err(format!("does not tell of server {}", server.id));
    }
    let running = own.iter().find(|told| told.mode.as_deref() != Some(SUSPENDED) || told.accepted_epoch != Some(0));
    match running {
        Some(server) => Err(format!("server {} is not parked", server.id)),
        None => Ok(()),
    }
}

/// Clusters that obeyed a list of this life and whose pin is lost: without one they obey no other list, also not one that parks.
#[must_use]
pub fn unpinned<'a>(situation: &Situation<'a>) -> Vec<&'a str> {
    let life = situation.list.incarnation.as_deref();
    let accepts = |name: &str| {
        let status = situation.reports.get(name).and_then(|member| member.status.as_ref());
        status.and_then(|status| status.ensemble.as_ref()).is_some_and(|told| told.incarnation.as_deref() == life)
    };
    let listed: BTreeSet<&str> = situation.list.servers.iter().map(|server| server.cluster.as_str()).collect();
    listed.into_iter().filter(|name| !situation.cluster_specs.contains_key(*name) && accepts(name)).collect()
}

/// The life that an object's ensemble is in: the one that is known, else the last one that a member tells of, else the first;
/// the next one if that was noted as over before a quorum formed in it. A life in which one formed is not left so: such a note
/// is somebody else's.
#[must_use]
pub fn life<'a>(
    uid: &str,
    known: Option<&str>,
    formed: bool,
    ended: &BTreeSet<String>,
    reports: impl IntoIterator<Item = &'a ClusterReport>,
) -> String {
    let lives = || (0..MOST_LIVES).map(|number| incarnation(uid, number));
    let told =
        reports.into_iter().filter_map(|member| member.status.as_ref()?.ensemble.as_ref()?.incarnation.as_deref());
    let told: BTreeSet<&str> = if known.is_some() { BTreeSet::new() } else { told.collect() };
    let last = if told.is_empty() { None } else { lives().rfind(|life| told.contains(life.as_str())) };
    let id = known.map(str::to_owned).or(last).unwrap_or_else(|| incarnation(uid, 0));
    if formed || !ended.contains(&id) {
        return id;
    }
    let after = lives().position(|life| life == id).map_or(0, |number| number + 1);
    lives().skip(after).find(|life| !ended.contains(life)).unwrap_or(id)
}

/// Lives next to this one, whose objects may have to be made or removed: the one before it, and the one after.
#[must_use]
pub fn neighbours(uid: &str, id: &str) -> Vec<String> {
    let Some(number) = (0..MOST_LIVES).find(|number| incarnation(uid, *number) == id) else { return Vec::new() };
    number.checked_sub(1).into_iter().chain([number + 1]).map(|number| incarnation(uid, number)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::zookeeper::EnsemblePhase;
    use crate::contract::server_list::with_hash;

    const UID: &str = "u1";

    /// One server in each of three clusters.
    fn list(park: bool) -> Ensemble {
        let servers: Vec<Value> = (1..=3)
            .map(|id| json!({ "id": id, "cluster": format!("m{id}"), "ordinal": 0, "host": format!("h{id}"), "role": "voter" }))
            .collect();
        let phase = if park { "Suspended" } else { "Bootstrapping" };
        let list = json!({ "incarnation": incarnation(UID, 0), "epoch": 4, "phase": phase, "servers": servers });
        with_hash(serde_json::from_value(list).unwrap()).unwrap()
    }

    fn member(id: i32, reachable: bool, mut status: Value) -> (String, ClusterReport) {
        let name = format!("m{id}");
        if status.get("servers").is_some() && status.get("ensemble").is_none() {
            status["ensemble"] = json!(list(true));
        }
        let status = serde_json::from_value(status).unwrap();
        (name.clone(), ClusterReport { cluster: name, reachable, applied: true, status, ..ClusterReport::default() })
    }

    fn server(id: i32, mode: &str, epoch: i64) -> Value {
        json!({ "observedSpecHash": "p", "servers": [{ "id": id, "mode": mode, "acceptedEpoch": epoch }] })
    }

    fn parked(id: i32) -> (String, ClusterReport) {
        member(id, true, server(id, "suspended", 0))
    }

    fn decided(list: &Ensemble, wanted: &[&str], abandoned: &[&str], reports: Vec<(String, ClusterReport)>) -> Step {
        let pin: ZooKeeperSpec = serde_json::from_value(json!({
            "replicas": 1, "renderVersion": 1, "serverImage": "mczk:1", "tls": { "quorum": false }, "revision": "r",
            "template": { "image": "zk", "storage": { "size": "1Gi" } }, "ensemble": {}
        }))
        .unwrap();
        let cluster_specs: BTreeMap<String, ZooKeeperSpec> = [1, 2].map(|id| (format!("m{id}"), pin.clone())).into();
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let reports = reports.into_iter().collect();
        let abandoned = abandoned.iter().copied().collect();
        let situation = Situation {
            list,
            formed: false,
            cluster_specs: &cluster_specs,
            told: &[],
            reports: &reports,
            wanted: &wanted,
            abandoned: &abandoned,
            paused: false,
        };
        step(&situation)
    }

    #[rstest]
    #[case::all_wanted(&["m1", "m2", "m3"], &[], true)]
    #[case::a_majority_wanted(&["m1", "m2", "m4"], &[], true)]
    #[case::nothing_matches(&[], &[], true)]
    #[case::one_wanted(&["m1", "m4"], &[], false)]
    #[case::two_given_up(&["m1", "m2", "m3"], &["m2", "m3"], false)]
    #[case::one_of_each(&["m1", "m2"], &["m2"], false)]
    fn parked_where_no_majority_is_left(#[case] wanted: &[&str], #[case] abandoned: &[&str], #[case] goes_on: bool) {
        let step = decided(&list(false), wanted, abandoned, vec![]);
        assert_eq!(step == Step::GoOn, goes_on, "{step:?}");
        assert_eq!(matches!(step, Step::Park(_)), !goes_on, "{step:?}");
    }

    #[test]
    fn taken_back_where_the_first_list_can_form_after_all() {
        assert_eq!(decided(&list(true), &["m1", "m2"], &[], vec![parked(1), parked(2)]), Step::Unpark);
    }

    #[rstest]
    #[case::all_parked(vec![parked(1), parked(2)], None)]
    #[case::one_without_a_pin_that_tells_of_nothing(vec![parked(1), parked(2), member(3, true, json!({ "observedGeneration": 1 }))], None)]
    #[case::one_without_a_pin_that_tells_of_a_server(vec![parked(1), parked(2), member(3, true, server(3, "looking", 0))], Some("m3 (server 3 is not parked)"))]
    #[case::one_runs(vec![parked(1), member(2, true, server(2, "looking", 0))], Some("m2 (server 2 is not parked)"))]
    #[case::one_accepted(vec![parked(1), member(2, true, server(2, "suspended", 1))], Some("m2 (server 2 is not parked)"))]
    #[case::one_out_of_reach(vec![parked(1), member(2, false, server(2, "suspended", 0))], Some("m2 (not Ready in Karmada)"))]
    #[case::one_without_a_report(vec![parked(1), member(2, true, Value::Null)], Some("m2 (has not reported)"))]
    #[case::one_that_is_gone(vec![parked(1)], Some("m2 (no longer has the object)"))]
    #[case::one_with_no_server_yet(vec![parked(1), member(2, true, json!({ "observedSpecHash": "p", "servers": [] }))], Some("m2 (does not tell of server 2)"))]
    #[case::one_with_an_older_list(
        vec![parked(1), member(2, true, json!({ "observedSpecHash": "p", "ensemble": list(false), "servers": [{ "id": 2, "mode": "suspended", "acceptedEpoch": 0 }] }))],
        Some("m2 (has not seen the newest list)")
    )]
    fn begun_when_all_have_reported(#[case] reports: Vec<(String, ClusterReport)>, #[case] waits_for: Option<&str>) {
        match (decided(&list(true), &["m1", "m4"], &[], reports), waits_for) {
            (Step::End(_), None) => {}
            (Step::Wait(wait), Some(cluster)) => assert!(wait.message.contains(cluster), "{}", wait.message),
            (step, _) => assert!(waits_for.is_none(), "{step:?} instead of waiting for {waits_for:?}"),
        }
    }

    #[test]
    fn who_was_given_up_is_not_waited_for_and_is_told() {
        let wanted = ["m1", "m2", "m3"];
        let step = decided(&list(true), &wanted, &["m2", "m3"], vec![parked(1)]);
        assert!(matches!(step, Step::End(_)), "{step:?}");
        let over = with_hash(Ensemble { phase: EnsemblePhase::Abandoned, ..list(true) }).unwrap();
        // That is not taken back, whatever the person does then.
        for abandoned in [&["m2", "m3"][..], &[]] {
            let Step::Begin(clusters, _) = decided(&over, &wanted, abandoned, vec![parked(1)]) else { unreachable!() };
            assert!(["m1", "m2", "m3"].iter().all(|name| clusters.contains(*name)));
        }
    }

    #[test]
    fn where_all_were_given_up_nothing_begins() {
        assert_eq!(decided(&list(false), &["m1"], &["m1", "m2", "m3"], vec![]), Step::GoOn);
        assert!(matches!(decided(&list(true), &["m1"], &["m1", "m2", "m3"], vec![]), Step::Wait(_)));
    }

    #[test]
    fn a_life_that_is_noted_as_over_is_followed_by_the_next_one() {
        let [first, second, third] = [0, 1, 2].map(|number| incarnation(UID, number));
        let decided = |known: Option<&str>, formed: bool, ended: &[&str], told: Option<&str>| {
            let ended = ended.iter().map(|life| (*life).to_owned()).collect();
            let (_, member) = member(1, true, json!({ "ensemble": { "incarnation": told } }));
            life(UID, known, formed, &ended, [&member])
        };
        let (first, second) = (first.as_str(), second.as_str());
        assert_eq!(decided(None, false, &[], None), first);
        assert_eq!(decided(None, false, &[first], None), second);
        assert_eq!(decided(None, false, &[first, second], None), third);
        assert_eq!(decided(Some(first), false, &[first], None), second);
        assert_eq!(decided(Some(second), false, &[first], None), second);
        assert_eq!(decided(Some(first), true, &[first], None), first, "a quorum formed in it");
        assert_eq!(decided(Some("foreign"), false, &["foreign"], None), first);
        assert_eq!(decided(None, false, &[], Some(second)), second, "all was forgotten, and the note is gone");
        assert_eq!(decided(None, false, &[], Some("foreign")), first);
        assert_eq!(neighbours(UID, second), [first.to_owned(), third]);
    }
}
