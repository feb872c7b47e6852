//! The clusters that the operator selects for the ensemble.

use std::collections::BTreeMap;

use crate::rollout::{
    cluster_selection::{ClusterSelection, Survey, divides},
    division::divide,
    failover::decision::FailoverDecision,
    former_incarnations::named,
    known::Known,
    placement,
    served_kinds::{BRING_KINDS, serves_kinds},
    services::{SERVE_BOTH, serves_newer_alone},
    steps::StepReport,
};
use mczk_api::{
    contract::{cause::Cause, conditions::Reason, labels::ABANDON_CLUSTERS},
    karmada::cluster::Cluster,
    mutation::broken,
    zookeeper::Role,
};

/// The clusters, or why there are none or no other ones.
pub(super) struct Choice {
    pub(super) selection: Option<ClusterSelection>,
    /// True if a newer placement waits until the current record is done.
    pub(super) waits: bool,
    /// Whether the placement can be used.
    pub(super) report: StepReport,
}

/// Selects the clusters once for each `spec.placement`, and keeps them. A selected cluster serves the operator's kinds (R).
/// Decides how the voters are divided over them once for each placement and number of voters.
///
/// A new incarnation selects again. A cluster that the user has abandoned gets no voters.
pub(super) fn choose_clusters(
    known: &Known<'_>,
    failover: &FailoverDecision,
    may_change: bool,
) -> serde_json::Result<Choice> {
    let object = known.object;
    let hash = placement::placement_hash(object.spec.placement.as_ref())?;
    let current = known.selection.as_ref().filter(|_| !known.incarnation.is_next);
    let kept = Choice { selection: current.cloned(), waits: false, report: StepReport::Done };
    let again = broken!(SelectAgain) && current.is_some_and(|c| c.homes() != known.matching);
    let is_current = |current: &ClusterSelection| {
        let is_usable = !current.clusters().iter().any(|name| is_given_up(known, name)) && !again;
        let is_usable = is_usable && !current.homes().iter().any(|name| is_free_spare(known, current, name));
        is_usable
            && (current.survey == Survey::Open) == needs_survey(known, current)
            && current.moved == failover.moved
            && current.outdated_request == failover.outdated_request
            && current.is_for(&hash, object, keeps_numbers(known, &current.homes(), &current.moved))
            && divides_as_reported(known, current, failover)
    };
    if current.is_some_and(is_current) {
        return Ok(kept);
    }
    if current.is_some() && !may_change {
        return Ok(Choice { waits: true, ..kept });
    }
    let current = current.filter(|current| current.hash == hash && !again);
    let homes = match select(known, current) {
        Ok(homes) => homes,
        Err(cause) => return Ok(Choice { report: StepReport::Waits(cause), ..kept }),
    };
    let survey = current.map_or(Survey::Pending, |current| current.survey);
    let selection = ClusterSelection { survey, ..divided(known, hash, &homes, failover) };
    let survey = match known.survey(&selection).is_open() {
        true if selection.may_leave_out() => Survey::Open,
        true => Survey::Pending,
        false => Survey::Done,
    };
    Ok(Choice { selection: Some(ClusterSelection { survey, ..selection }), ..kept })
}

/// S14: true if another incarnation may live where the division of a selection gives no voter, and so no object.
fn needs_survey(known: &Known<'_>, selection: &ClusterSelection) -> bool {
    selection.may_leave_out() && known.survey(selection).is_open()
}

/// The selection of these clusters, or of the spares in their place. A new placement may select a home no more, or its spare.
fn divided(known: &Known<'_>, hash: String, homes: &[String], failover: &FailoverDecision) -> ClusterSelection {
    let declared = known.object.spec.placement.as_ref();
    let mut moved = failover.moved.clone();
    moved.retain(|home, spare| homes.contains(home) && !homes.contains(spare));
    let divided = keeps_numbers(known, homes, &moved);
    let placement = placement::for_karmada(declared, &with_voters(known, homes, &moved, &failover.seats), divided);
    let outdated_request = failover.outdated_request.clone();
    ClusterSelection { hash, placement, divided, survey: Survey::default(), moved, outdated_request }
}

/// True if the operator decides the voters of each cluster. After a move it goes on to until every home is Ready and has its
/// voters: Karmada would give those of the others to them, and move nothing back.
fn keeps_numbers(known: &Known<'_>, homes: &[String], moved: &BTreeMap<String, String>) -> bool {
    let declared = known.object.spec.placement.as_ref();
    let decided = known.selection.as_ref().and_then(ClusterSelection::voters);
    let placed = known.binding.iter().flat_map(|binding| &binding.spec.clusters);
    let placed: BTreeMap<&str, i32> = placed.map(|target| (target.name.as_str(), target.replicas)).collect();
    let is_away = decided.is_some_and(|decided| decided != placed) || !homes.iter().all(|home| known.is_ready(home));
    let divided = known.selection.as_ref().is_some_and(|selection| selection.divided);
    divided && is_away && !placement::duplicated(declared) || divides(declared, moved)
}

/// False if the operator takes a reported server list over, and divided the voters before it knew where they are.
fn divides_as_reported(known: &Known<'_>, current: &ClusterSelection, failover: &FailoverDecision) -> bool {
    let reported = known.reported_list.as_ref().filter(|_| known.takes_over_list());
    let divided = with_voters(known, &current.homes(), &current.moved, &failover.seats);
    reported.is_none()
        || current
            .voters()
            .is_none_or(|voters| divided.iter().all(|(name, count)| voters.get(name.as_str()) == Some(count)))
}

/// The homes of the current selection, or else the clusters that match `spec.placement`, or why none can be selected.
fn select(known: &Known<'_>, current: Option<&ClusterSelection>) -> Result<Vec<String>, Cause> {
    let mut matching = current.map_or_else(|| known.matching.clone(), ClusterSelection::homes);
    matching.retain(|name| !is_given_up(known, name));
    if let Some(current) = current {
        matching.retain(|name| !is_free_spare(known, current, name));
    }
    if matching.is_empty() {
        let all = format!("{ABANDON_CLUSTERS} names all selected clusters. Remove one there, or change spec.placement");
        let none = "No cluster matches spec.placement; the operator leaves what runs as it is. Change spec.placement, or label or join a cluster";
        let message = if current.is_some() { all } else { none.to_owned() };
        return Err(Cause { reason: Reason::NoClusterMatches, message });
    }
    if current.is_some() {
        return Ok(matching);
    }
    if let Some(cause) = not_joined(known) {
        return Err(cause);
    }
    let lacking = clusters_without_kinds(known, &matching);
    if !lacking.is_empty() && !broken!(IgnoreEnablements) {
        let is_newer = |cluster: &&Cluster| lacking.iter().any(|name| name == cluster.name());
        let newer =
            known.clusters.iter().filter(is_newer).filter(|cluster| serves_newer_alone(cluster, "ServiceExport"));
        let newer: Vec<&str> = newer.map(Cluster::name).collect();
        let advice = if newer.is_empty() {
            format!("Run {BRING_KINDS}")
        } else {
            format!("In {} {SERVE_BOTH}. For others run {BRING_KINDS}", newer.join(", "))
        };
        let message = format!(
            "Waiting until these clusters serve ZooKeeper and ServiceExport: {}. Without the kinds Karmada's scheduler leaves a cluster out for good. {advice}, or exclude them by spec.placement.clusterAffinity.exclude",
            lacking.join(", ")
        );
        return Err(Cause { reason: Reason::KindsNotServed, message });
    }
    Ok(matching)
}

/// S14: why an ensemble without servers selects none. Karmada does not know a cluster that `spec.placement` names. After a lost
/// control plane it may be one that still has the servers of a former incarnation, and joins minutes later.
fn not_joined(known: &Known<'_>) -> Option<Cause> {
    let affinity = known.object.spec.placement.as_ref()?.cluster_affinity.as_ref()?;
    let is_joined = |name: &str| known.clusters.iter().any(|cluster| cluster.name() == name);
    let is_out = |name: &String| affinity.exclude_clusters.contains(name) || known.abandoned.contains(name.as_str());
    let missing: Vec<String> =
        affinity.cluster_names.iter().filter(|name| !is_joined(name) && !is_out(name)).cloned().collect();
    let may_begin = missing.is_empty() || !known.is_without_list() || known.incarnation.is_next;
    (!may_begin && !broken!(BeginBesideOther)).then(|| Cause {
        reason: Reason::ClusterNotJoined,
        message: format!(
            "Waiting until these clusters, which spec.placement.clusterAffinity.clusterNames names, join Karmada: {}. Servers of \
             this name may live there, so none starts before. Join them, or correct the names. If one is lost for good, name it in \
             the annotation {ABANDON_CLUSTERS}",
            named(&missing)
        ),
    })
}

/// True if the user has abandoned a cluster before a quorum formed, and no voter is listed there: it gets none.
fn is_given_up(known: &Known<'_>, name: &str) -> bool {
    let formed = known.incarnation.formed && !known.incarnation.is_next;
    !formed && known.abandoned.contains(name) && !current_voters(known).contains_key(name)
}

/// True if a cluster was selected before it was declared as a spare, and holds no voters.
fn is_free_spare(known: &Known<'_>, current: &ClusterSelection, name: &str) -> bool {
    let holds_voters = current_voters(known).contains_key(name) || current.moved.contains_key(name);
    known.incarnation.formed && known.spares().iter().any(|spare| spare == name) && !holds_voters
}

/// The voters that each home gets, in its place, from those that it has. While a spare holds some, every number stays, unless
/// `spec.replicas` is another one.
fn with_voters(
    known: &Known<'_>,
    homes: &[String],
    moved: &BTreeMap<String, String>,
    seats: &BTreeMap<String, String>,
) -> Vec<(String, i32)> {
    let current = current_voters(known);
    // A cluster that is a home itself holds its own voters.
    let seat = |home: &String| seats.get(home).filter(|seat| !homes.contains(seat)).unwrap_or(home).clone();
    let counts: Vec<i32> = homes.iter().map(|home| current.get(seat(home).as_str()).copied().unwrap_or(0)).collect();
    let replicas = known.object.spec.replicas;
    let stays = keeps_numbers(known, homes, moved)
        && !placement::operator_divides(known.object.spec.placement.as_ref())
        || !moved.is_empty();
    let stays = stays && counts.iter().sum::<i32>() == replicas && !broken!(DivideAgain);
    let voters = if stays { counts } else { divide(replicas, &counts) };
    let place = |home: &String| moved.get(home).unwrap_or(home).clone();
    homes.iter().map(place).zip(voters).collect()
}

/// The voters that the newest known server list names in each cluster.
fn current_voters<'a>(known: &'a Known<'_>) -> BTreeMap<&'a str, i32> {
    let mut voters = BTreeMap::new();
    if known.incarnation.is_next {
        return voters;
    }
    for server in known.list_or_reported().servers.iter().filter(|server| server.role == Role::Voter) {
        *voters.entry(server.cluster.as_str()).or_default() += 1;
    }
    voters
}

/// New clusters that do not serve the operator's kinds.
fn clusters_without_kinds(known: &Known<'_>, matching: &[String]) -> Vec<String> {
    let selected = known.selection.as_ref().map(ClusterSelection::clusters).unwrap_or_default();
    let serves = |name: &&String| known.clusters.iter().any(|c| c.name() == name.as_str() && serves_kinds(c));
    matching.iter().filter(|name| !selected.contains(name)).filter(|name| !serves(name)).cloned().collect()
}
