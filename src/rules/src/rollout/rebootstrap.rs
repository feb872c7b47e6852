//! The rebootstrap: a bootstrap that can never form a quorum ends, and the next incarnation of the ensemble starts. This happens
//! only after every server is known to have accepted nothing.
//!
//! The server list of a bootstrap is frozen until a quorum has formed. If the user removes so many of its clusters that the
//! rest hold no majority, no quorum will form. But the control plane does not know that none has formed: a majority may have
//! formed just now, where no report shows it, and may have acknowledged writes.
//!
//! So the operator first suspends every server: its pod runs without `ZooKeeper` and reports the content of its volume. Each
//! cluster that may have servers of the list must report, under the list that suspends them, that all of them are suspended
//! and none has accepted an epoch. A server that began with another volume than it has now proves nothing: it may have accepted
//! one there. Then the operator ends the incarnation and writes its tombstone
//! ([`mczk_api::contract::tombstone`]). The next incarnation has another server list, other names and another authority. A single
//! accepted epoch resumes the first incarnation. A cluster that cannot report blocks all this until the user abandons it.
//!
//! The tombstone makes the end final: the operator writes it before any object of the next incarnation, and reads it before any
//! decision.

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::report::ClusterReport;
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::ABANDON_CLUSTERS, server_list::majority},
    multiclusterzookeeper::ClusterStatus,
    mutation::broken,
    zookeeper::{Ensemble, FirstStart, Role, SUSPENDED, ServerStatus, ZooKeeperSpec, ZooKeeperStatus},
};

/// The inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RebootstrapInputs<'a> {
    /// The server list.
    pub(crate) list: &'a Ensemble,
    /// True if a quorum ever formed, or a server ever accepted an epoch.
    pub(crate) formed: bool,
    /// The cluster specs that clusters have received.
    pub(crate) cluster_specs: &'a BTreeMap<String, ZooKeeperSpec>,
    /// The clusters in the status.
    pub(crate) recorded: &'a [ClusterStatus],
    /// Reports of the member clusters.
    pub(crate) reports: &'a BTreeMap<String, ClusterReport>,
    /// Clusters of the user's placement: the selected ones, or the matching ones if the placement is new.
    pub(crate) wanted: &'a [String],
    /// Clusters that the user abandons.
    pub(crate) abandoned: &'a BTreeSet<&'a str>,
    /// True if the user has paused the rollout: the operator suspends nothing then, and starts no incarnation.
    pub(crate) paused: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The bootstrap continues, or is over.
    Continue,
    /// Suspend the servers of the list.
    Suspend(Cause),
    /// Resume them: a quorum may have formed, or the first list can form one again.
    Resume,
    /// Wait for reports of clusters, or for the user.
    Wait(Cause),
    /// End the incarnation. This is final.
    Abandon(Cause),
    /// Write the tombstone of the incarnation for these clusters, so that the next one starts.
    WriteTombstone(BTreeSet<String>, Cause),
}

/// The next step.
#[must_use]
pub(crate) fn step(inputs: &RebootstrapInputs<'_>) -> Step {
    let list = inputs.list;
    let is_suspended = list.phase.is_suspended();
    let concerned: BTreeSet<&String> = concerned(inputs).collect();
    if is_suspended && list.phase.is_ending() {
        let listed = list.servers.iter().map(|server| &server.cluster);
        let clusters = concerned.into_iter().chain(listed).cloned().collect();
        let message = "No server of the first server list has accepted anything: the operator starts a new incarnation";
        return Step::WriteTombstone(clusters, waits(message));
    }
    let formed = inputs.formed && !broken!(ForgetAccepted);
    if formed || !list.phase.is_bootstrap() || !cannot_form(inputs) {
        return if is_suspended { Step::Resume } else { Step::Continue };
    }
    let wait = |message: &str| if is_suspended { Step::Wait(waits(message)) } else { Step::Continue };
    if inputs.paused {
        return wait("The rollout is paused (rollout.paused): no new incarnation starts");
    }
    if inputs.wanted.iter().all(|name| inputs.abandoned.contains(name.as_str())) {
        return wait(
            "The user has abandoned every cluster of placement: add another cluster to placement, to start a new incarnation there",
        );
    }
    let skips_suspension = broken!(RebootstrapUnsuspended);
    if !is_suspended && !skips_suspension {
        return Step::Suspend(waits(
            "The remaining clusters of the first server list hold no majority: the operator suspends its servers, to start a new incarnation with another list",
        ));
    }
    let asked = concerned.iter().filter(|name| !inputs.abandoned.contains(name.as_str()) && !skips_suspension);
    let unconfirmed: Vec<String> =
        asked.filter_map(|name| confirm_unused(name, inputs).err().map(|cause| format!("{name} ({cause})"))).collect();
    if unconfirmed.is_empty() {
        return Step::Abandon(waits("No server of the first server list has accepted anything: the incarnation ends"));
    }
    Step::Wait(waits(&format!(
        "The servers of the first server list are suspended, to start a new incarnation with another list. Waiting until these clusters report that none of their servers has accepted anything: {}. Abandon a cluster with the annotation {ABANDON_CLUSTERS} only if it is lost for good, with its volumes: the operator does not ask it",
        unconfirmed.join(", ")
    )))
}

fn waits(message: &str) -> Cause {
    Cause::new(Reason::BootstrapSuspended, message)
}

/// True if the wanted clusters of the list hold no majority of its voters. If no cluster matches the placement, that is no sign
/// that the user wants other clusters.
fn cannot_form(inputs: &RebootstrapInputs<'_>) -> bool {
    let is_wanted =
        |cluster: &str| inputs.wanted.iter().any(|name| name == cluster) && !inputs.abandoned.contains(cluster);
    let voters = inputs.list.servers.iter().filter(|server| server.role == Role::Voter);
    let left = voters.clone().filter(|server| is_wanted(&server.cluster)).count();
    !inputs.wanted.is_empty() && left < majority(voters.count())
}

/// Clusters that may have servers of this incarnation: those that have received a cluster spec, and those that have reported
/// anything. An agent without a cluster spec accepts no server list, so all others have none.
fn concerned<'a>(inputs: &RebootstrapInputs<'a>) -> impl Iterator<Item = &'a String> {
    let incarnation = inputs.list.incarnation.as_deref().unwrap_or_default();
    let recorded = inputs.recorded.iter().filter(|cluster| cluster.reported || cluster.spec_hash.is_some());
    let may_report = move |report: &ClusterReport| {
        report.unreadable || report.status.as_ref().is_some_and(|status| status.may_be_of(incarnation))
    };
    let reporting = inputs.reports.iter().filter(move |(_, report)| may_report(report));
    inputs.cluster_specs.keys().chain(recorded.map(|cluster| &cluster.name)).chain(reporting.map(|(name, _)| name))
}

/// Whether a cluster reports that no server of the list has accepted anything there, and that none can any more.
fn confirm_unused(name: &str, inputs: &RebootstrapInputs<'_>) -> Result<(), String> {
    if broken!(BelieveUnreported) && inputs.reports.get(name).is_none_or(|report| !report.fresh()) {
        return Ok(());
    }
    let report = inputs.reports.get(name).ok_or("no longer has the object")?;
    if !report.reachable {
        return Err(ClusterReport::absence(Some(report)).message);
    }
    let status = report.fresh_status().ok_or("has not reported")?;
    let list = inputs.list;
    let reported = status.ensemble.as_ref();
    let is_of_incarnation = reported.is_some_and(|reported| reported.incarnation == list.incarnation);
    if !inputs.cluster_specs.contains_key(name)
        && status.servers.is_empty()
        && (status.observed_spec_hash.is_none() || !is_of_incarnation)
    {
        // The rollout never came to this cluster, and an agent without a cluster spec starts no server.
        return Ok(());
    }
    if !is_of_incarnation || reported.is_none_or(|reported| reported.hash != list.hash) {
        return Err("has not accepted the newest server list".to_owned());
    }
    servers_are_unused(name, status, list)
}

/// Whether the agent reports every listed voter of its cluster, and all its servers as suspended with an empty volume, which is
/// that of their first start. It may lack observers: the user may have removed them from the spec since.
fn servers_are_unused(cluster: &str, status: &ZooKeeperStatus, list: &Ensemble) -> Result<(), String> {
    let mut listed = list.servers.iter().filter(|server| server.cluster == cluster && server.role == Role::Voter);
    let is_reported = |id: i32| status.servers.iter().any(|server| server.id == id);
    if let Some(server) = listed.find(|server| !is_reported(server.id)) {
        return Err(format!("does not report server {}", server.id));
    }
    let is_unused =
        |server: &&ServerStatus| server.mode.as_deref() == Some(SUSPENDED) && server.accepted_epoch == Some(0);
    if let Some(server) = status.servers.iter().find(|server| !is_unused(server)) {
        return Err(format!("server {} is not suspended", server.id));
    }
    let mut begun = status.first_starts.iter().filter(|first| !first.is_unused(list));
    match begun.find(|first| !is_where_it_began(first, &status.servers)) {
        Some(first) => Err(format!("server {} may have voted with a volume that it does not have any more", first.id)),
        None => Ok(()),
    }
}

/// True if a server has the volume of its first start. Otherwise that volume may hold what the server acknowledged: an empty one
/// proves nothing.
fn is_where_it_began(first: &FirstStart, servers: &[ServerStatus]) -> bool {
    let began = |server: &ServerStatus| server.id == first.id && server.volume.as_ref() == Some(&first.volume);
    servers.iter().any(began) || broken!(BelieveWiped)
}

/// Clusters that have accepted a server list of this incarnation and whose cluster spec is lost. Without one their
/// agents suspend no server.
#[must_use]
pub(crate) fn without_spec<'a>(inputs: &RebootstrapInputs<'a>) -> Vec<&'a str> {
    let incarnation = inputs.list.incarnation.as_deref();
    let accepts = |name: &str| {
        let status = inputs.reports.get(name).and_then(|report| report.status.as_ref());
        let reported = status.and_then(|status| status.ensemble.as_ref());
        reported.is_some_and(|reported| reported.incarnation.as_deref() == incarnation)
    };
    let listed: BTreeSet<&str> = inputs.list.servers.iter().map(|server| server.cluster.as_str()).collect();
    listed.into_iter().filter(|name| !inputs.cluster_specs.contains_key(*name) && accepts(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::zookeeper_spec;
    use mczk_api::{
        contract::{naming::incarnation, server_list::with_hash},
        mutation::Mutation,
        zookeeper::EnsemblePhase,
    };

    const UID: &str = "u1";

    /// One server in each of three clusters.
    fn list(suspended: bool) -> Ensemble {
        let servers: Vec<Value> = (1..=3)
            .map(|id| json!({ "id": id, "cluster": format!("m{id}"), "ordinal": 0, "host": format!("h{id}"), "role": "voter" }))
            .collect();
        let phase = if suspended { "Suspended" } else { "Bootstrapping" };
        let list = json!({ "incarnation": incarnation(UID, 0), "epoch": 4, "phase": phase, "servers": servers });
        with_hash(serde_json::from_value(list).unwrap()).unwrap()
    }

    fn report(id: i32, reachable: bool, mut status: Value) -> (String, ClusterReport) {
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

    fn suspended(id: i32) -> (String, ClusterReport) {
        report(id, true, server(id, "suspended", 0))
    }

    /// A suspended server of m2 that has accepted nothing, and the recorded first start, if there is one.
    fn began(first: Option<(i32, &str)>, id: i32, volume: &str) -> (String, ClusterReport) {
        let mut status = server(id, "suspended", 0);
        status["servers"][0]["volume"] = volume.into();
        status["firstStarts"] = first.into_iter().map(|(id, volume)| json!({ "id": id, "volume": volume })).collect();
        report(2, true, status)
    }

    fn decided(list: &Ensemble, wanted: &[&str], abandoned: &[&str], reports: Vec<(String, ClusterReport)>) -> Step {
        let spec = |id| (format!("m{id}"), zookeeper_spec(json!({ "replicas": 1 })));
        let cluster_specs: BTreeMap<String, ZooKeeperSpec> = [1, 2].map(spec).into();
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let reports = reports.into_iter().collect();
        let abandoned = abandoned.iter().copied().collect();
        let inputs = RebootstrapInputs {
            list,
            formed: false,
            cluster_specs: &cluster_specs,
            recorded: &[],
            reports: &reports,
            wanted: &wanted,
            abandoned: &abandoned,
            paused: false,
        };
        step(&inputs)
    }

    #[rstest]
    #[case::all_wanted(&["m1", "m2", "m3"], &[], true)]
    #[case::a_majority_wanted(&["m1", "m2", "m4"], &[], true)]
    #[case::nothing_matches(&[], &[], true)]
    #[case::one_wanted(&["m1", "m4"], &[], false)]
    #[case::two_abandoned(&["m1", "m2", "m3"], &["m2", "m3"], false)]
    #[case::one_removed_and_one_abandoned(&["m1", "m2"], &["m2"], false)]
    fn servers_are_suspended_if_no_majority_is_left(
        #[case] wanted: &[&str],
        #[case] abandoned: &[&str],
        #[case] continues: bool,
    ) {
        let step = decided(&list(false), wanted, abandoned, vec![]);
        assert_eq!(step == Step::Continue, continues, "{step:?}");
        assert_eq!(matches!(step, Step::Suspend(_)), !continues, "{step:?}");
    }

    #[test]
    fn the_first_incarnation_resumes_if_it_can_form_a_quorum_again() {
        assert_eq!(decided(&list(true), &["m1", "m2"], &[], vec![suspended(1), suspended(2)]), Step::Resume);
    }

    #[rstest]
    #[case::all_suspended(vec![suspended(1), suspended(2)], None)]
    #[case::one_without_a_spec_and_without_servers(vec![suspended(1), suspended(2), report(3, true, json!({ "observedGeneration": 1 }))], None)]
    #[case::one_without_a_spec_but_with_a_server(vec![suspended(1), suspended(2), report(3, true, server(3, "looking", 0))], Some("m3 (server 3 is not suspended)"))]
    #[case::one_runs(vec![suspended(1), report(2, true, server(2, "looking", 0))], Some("m2 (server 2 is not suspended)"))]
    #[case::one_accepted(vec![suspended(1), report(2, true, server(2, "suspended", 1))], Some("m2 (server 2 is not suspended)"))]
    #[case::one_unreachable(vec![suspended(1), report(2, false, server(2, "suspended", 0))], Some("m2 (not Ready in Karmada, or without a Ready node)"))]
    #[case::one_without_a_report(vec![suspended(1), report(2, true, Value::Null)], Some("m2 (has not reported)"))]
    #[case::one_that_is_gone(vec![suspended(1)], Some("m2 (no longer has the object)"))]
    #[case::one_with_no_server_yet(vec![suspended(1), report(2, true, json!({ "observedSpecHash": "p", "servers": [] }))], Some("m2 (does not report server 2)"))]
    #[case::one_on_its_first_volume(vec![suspended(1), began(Some((2, "n")), 2, "n")], None)]
    #[case::one_whose_volume_is_lost(vec![suspended(1), began(Some((2, "n")), 2, "o")], Some("m2 (server 2 may have voted with a volume"))]
    #[case::one_whose_volume_cannot_be_read(vec![suspended(1), began(Some((2, "n")), 2, "")], Some("m2 (server 2 may have voted with a volume"))]
    #[case::one_that_never_began(vec![suspended(1), began(None, 2, "o")], None)]
    #[case::one_that_began_and_is_gone(vec![suspended(1), began(Some((5, "n")), 2, "n")], Some("m2 (server 5 may have voted with a volume"))]
    #[case::one_with_an_older_server_list(
        vec![suspended(1), report(2, true, json!({ "observedSpecHash": "p", "ensemble": list(false), "servers": [{ "id": 2, "mode": "suspended", "acceptedEpoch": 0 }] }))],
        Some("m2 (has not accepted the newest server list)")
    )]
    fn the_incarnation_ends_when_all_clusters_have_reported(
        #[case] reports: Vec<(String, ClusterReport)>,
        #[case] waits_for: Option<&str>,
    ) {
        match (decided(&list(true), &["m1", "m4"], &[], reports), waits_for) {
            (Step::Abandon(_), None) => {}
            (Step::Wait(wait), Some(cluster)) => assert!(wait.message.contains(cluster), "{}", wait.message),
            (step, _) => panic!("{step:?} instead of waiting for {waits_for:?}"),
        }
    }

    #[test]
    fn the_broken_variant_ends_an_incarnation_whose_volume_is_lost() {
        let _active = Mutation::BelieveWiped.activate();
        let reports = vec![suspended(1), began(Some((2, "n")), 2, "o")];
        assert!(matches!(decided(&list(true), &["m1", "m4"], &[], reports), Step::Abandon(_)));
    }

    #[test]
    fn an_abandoned_cluster_is_not_awaited_and_receives_the_tombstone() {
        let wanted = ["m1", "m2", "m3"];
        let step = decided(&list(true), &wanted, &["m2", "m3"], vec![suspended(1)]);
        assert!(matches!(step, Step::Abandon(_)), "{step:?}");
        let ended = with_hash(Ensemble { phase: EnsemblePhase::Abandoned, ..list(true) }).unwrap();
        // The end is final, whatever the user changes then.
        for abandoned in [&["m2", "m3"][..], &[]] {
            let Step::WriteTombstone(clusters, _) = decided(&ended, &wanted, abandoned, vec![suspended(1)]) else {
                unreachable!()
            };
            assert!(["m1", "m2", "m3"].iter().all(|name| clusters.contains(*name)));
        }
    }

    #[test]
    fn nothing_starts_if_every_cluster_is_abandoned() {
        assert_eq!(decided(&list(false), &["m1"], &["m1", "m2", "m3"], vec![]), Step::Continue);
        assert!(matches!(decided(&list(true), &["m1"], &["m1", "m2", "m3"], vec![]), Step::Wait(_)));
    }
}
