//! The rules that must hold in every plan, in every write, and at the end.
//!
//! The checks read the true state of the world: which servers run, and ZooKeeper's configuration. Rules about the operator's
//! knowledge read the reports. No check relies on a plan's own account.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::BTreeSet;

use mczk_api::{
    contract::labels::RECORDS,
    karmada::policy::OverridePolicySpec,
    multiclusterzookeeper::{MultiClusterZooKeeperSpec, Record, RecordStatus},
    zookeeper::{Ensemble, Role, ZooKeeperStatus},
};
use mczk_rules::rollout::{
    certificates,
    override_rules::{self, Overrides},
    render,
};

use crate::{
    Says, World, hands, karmada, member,
    operator::{self, Outcome},
    replace,
    state::{MemberCluster, Server, Shared, State, incarnation_number, name},
    writes::Write,
};

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Except in a bootstrap, the pod part of at most one cluster is being changed.
    S1,
    /// A cluster spec has replicas for every voter in ZooKeeper's configuration.
    S2,
    /// No change begins, and no server list changes, unless the reported quorum survives it.
    S3,
    /// Ids are unique and stable, and no other server gets them.
    S4,
    /// All servers of a bootstrap start with one server list.
    S5,
    /// No change of the pod part reaches a cluster before its position in the rollout.
    S6,
    /// The operator writes no object of another owner.
    S7,
    /// An agent deletes no volume but the requested one, and that only while the others are a majority that runs.
    S13,
    /// No list of another incarnation reaches a cluster while servers live that the user has not declared over. An adopted
    /// ensemble restarts no server.
    S14,
    /// No decision relies on a report that is stale, or of another cluster spec.
    S8,
    /// An epoch has one server list.
    OneListAnEpoch,
    /// All clusters get a server list at once.
    OneListForAll,
    /// No decision relies on a schedule that is not settled.
    Settled,
    /// No template exists before every cluster serves the kinds of the operator.
    Kinds,
    /// The template does not change during its record.
    Snapshot,
    /// Records are recovered.
    RecordsKept,
    /// A cluster without a cluster spec has 0 replicas, also while no interpreter is registered.
    ZeroWithoutClusterSpec,
    /// No object is deleted from a member cluster before its servers are decommissioned.
    DecommissionFirst,
    /// The template is deleted only after no Work preserves its object.
    ReleaseFirst,
    /// No voter moves unless the user changes the placement or the number of voters.
    Sticky,
    /// A cluster gets no image that the user has not declared.
    Declared,
    /// No operator changes the OverridePolicy after an operator of a later term has written.
    InTerm,
    /// The operator wakes up when time alone changes its plan.
    Wakes,
    /// The operator writes nothing while nothing happens.
    AtRest,
    /// After the last fault the world becomes as declared.
    Reached,
    /// After the last fault the changes end.
    Rest,
}

/// The quorum by fresh reports.
struct Reported {
    voters: BTreeSet<i32>,
    serving: BTreeSet<i32>,
    /// True if a write was committed.
    committed: bool,
}

fn fresh(member: &MemberCluster) -> Option<&ZooKeeperStatus> {
    member.reported.as_ref().filter(|_| member.ready && member.work.is_some() && member.spec.is_some()).map(Shared::get)
}

fn reported(state: &State) -> Reported {
    let all: Vec<&ZooKeeperStatus> = state.members.iter().filter_map(fresh).collect();
    let best = all
        .iter()
        .filter(|s| s.writable == Some(true) && !s.voting_members.is_empty())
        .max_by_key(|s| s.config_version);
    let voters: BTreeSet<i32> = best.map(|s| s.voting_members.iter().copied().collect()).unwrap_or_default();
    let serving =
        all.iter().flat_map(|s| &s.servers).filter(|s| s.serving && voters.contains(&s.id)).map(|s| s.id).collect();
    Reported { committed: best.is_some(), voters, serving }
}

fn records(state: &State) -> Vec<Record> {
    state.object.as_ref().and_then(|o| o.status.as_ref()).map(|s| s.get().records.clone()).unwrap_or_default()
}

/// The newest server list that an agent has accepted.
fn newest_list(state: &State) -> Option<&Ensemble> {
    state.members.iter().filter_map(MemberCluster::list).max_by_key(|list| list.epoch)
}

/// Checks a plan in the state that it was made from.
pub fn check_plan(state: &mut State, outcome: &Outcome) {
    if outcome.writes.is_empty() || state.object.as_ref().is_none_or(|o| o.deleting) {
        return;
    }
    let (before, after) = (&outcome.policy.0, &outcome.policy.1);
    let (records_before, then) = (&outcome.records.0, &outcome.records.1);
    let mut broken = Vec::new();
    check_records(state, records_before, then, (before, after), &mut broken);
    check_cluster_specs(state, before, after, then, &mut broken);
    // A list of an ended incarnation says nothing about the next one.
    let over = match &before.ensemble.incarnation {
        Some(id) => state.tombstones.contains(id),
        None => !state.tombstones.is_empty(),
    };
    let nothing = Ensemble::default();
    let newest = newest_list(state);
    // Nor does the list of an older copy of the control plane. It stays until every cluster of a newer one has reported.
    let outdated = newest.is_some_and(|newest| newest.epoch > before.ensemble.epoch);
    let gone = over || outdated && before.ensemble != after.ensemble;
    let list_before = if gone { &nothing } else { &before.ensemble };
    check_list(state, list_before, &after.ensemble, &mut broken);
    // A recovered decision is no new decision.
    let restored = list_before.servers.is_empty() && newest.is_some_and(|l| l.servers == after.ensemble.servers);
    let decided = (list_before.servers != after.ensemble.servers && !restored)
        || after.cluster_specs.iter().any(|(c, spec)| {
            before.cluster_specs.get(c).map(|s| &s.spec_hash) != Some(&spec.spec_hash)
                && status_spec_hash(state, c) != spec.spec_hash
        });
    if state.overrides.is_some() && decided && !karmada::settled(state) {
        broken.push(Rule::Settled);
    }
    for write in &outcome.writes {
        if let Write::Template(Some(wanted)) = write {
            match &state.template {
                None if state.members.iter().any(|m| !m.serves) => broken.push(Rule::Kinds),
                Some(live)
                    if live.object.get().spec != wanted.get().spec
                        && !hands::has_edited_template(state)
                        && !over
                        && !outdated
                        && !may_be_stuck(state, records_before) =>
                {
                    broken.push(Rule::Snapshot);
                }
                _ => {}
            }
        }
    }
    if let Some(rule) = broken.first() {
        state.breaks(*rule);
    }
}

/// True if a new record may supersede the last one.
fn may_be_stuck(state: &State, records: &[Record]) -> bool {
    let Some(last) = records.last().filter(|r| r.status == RecordStatus::Deploying) else { return true };
    let of = |cluster: &String| state.members.iter().enumerate().find(|(i, _)| name(*i) == *cluster).map(|(_, m)| m);
    match last.current_state.deploying.first() {
        Some(cluster) => of(cluster).is_none_or(|m| {
            let failed = m.reported.as_ref().is_some_and(|s| s.get().conditions.iter().any(is_stuck));
            state.late || !m.ready || failed
        }),
        None => {
            let pending = || last.current_state.pending.iter().filter_map(of).filter(|m| !m.ready);
            let half_changed = |m: &MemberCluster| {
                m.reported
                    .as_ref()
                    .zip(m.spec.as_ref())
                    .is_none_or(|(status, spec)| status.get().completed_spec_hash != spec.get().spec_hash)
            };
            state.late || pending().count() == last.current_state.pending.len() || pending().any(half_changed)
        }
    }
}

/// True for a condition by which an agent cannot complete its spec. A spec that is complete is none, and a refused one is.
fn is_stuck(condition: &Condition) -> bool {
    let Condition { type_, status, reason, .. } = condition;
    type_ == "Progressing" && status == "False" && reason != "Complete" || type_ == "Blocked" && status == "True"
}

/// Spec hash of a cluster by the operator's status.
fn status_spec_hash(state: &State, cluster: &str) -> Option<String> {
    let status = state.object.as_ref()?.status.as_ref()?.get();
    status.clusters.iter().find(|c| c.name == cluster)?.spec_hash.clone()
}

/// Spec hash that a cluster accepted.
fn accepted_spec_hash(state: &State, cluster: &str) -> Option<String> {
    let (_, member) = state.members.iter().enumerate().find(|(i, _)| name(*i) == cluster)?;
    member.accepted.as_ref()?.get().spec_hash.clone()
}

fn check_records(
    state: &State,
    earlier: &[Record],
    then: &[Record],
    (before, after): (&Overrides, &Overrides),
    broken: &mut Vec<Rule>,
) {
    let Some(last) = then.last() else { return };
    if earlier.is_empty() {
        let mirror: Vec<Record> = state
            .overrides
            .as_ref()
            .and_then(|o| o.get().metadata.annotations.as_ref())
            .and_then(|a| a.get(RECORDS))
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let kept =
            mirror.iter().zip(then).all(|(m, t)| m.observed_generations.zookeeper <= t.observed_generations.zookeeper);
        if !mirror.is_empty() && (then.len() < mirror.len() || !kept) {
            broken.push(Rule::RecordsKept);
        }
    }
    let before_is_edited = hands::has_edited_overrides(state);
    for cluster in &last.current_state.completed {
        let hash = |overrides: &Overrides| overrides.cluster_specs.get(cluster).and_then(|s| s.spec_hash.clone());
        let known = earlier.last().is_some_and(|t| t.current_state.completed.contains(cluster));
        // Its cluster spec may be recovered, or removed after the cluster left the schedule. It must not change.
        let missing = before.cluster_specs.is_empty() || before_is_edited && hash(before).is_none();
        let found = missing
            && (status_spec_hash(state, cluster) == hash(after) || accepted_spec_hash(state, cluster) == hash(after));
        if (known && (hash(after).is_none() || hash(before) == hash(after) || found)) || earlier.is_empty() {
            continue;
        }
        let report = state.members.iter().enumerate().find(|(i, _)| name(*i) == *cluster).and_then(|(_, m)| fresh(m));
        let hash = hash(after);
        if hash.is_none() || report.is_none_or(|s| s.completed_spec_hash != hash || s.observed_spec_hash != hash) {
            broken.push(Rule::S8);
        }
    }
}

/// The clusters whose pod part a write begins to change, and those that are being changed.
fn begun_and_changing(state: &State, before: &Overrides, after: &Overrides) -> (Vec<usize>, Vec<usize>) {
    let mut begun = Vec::new();
    let mut changing = Vec::new();
    for (cluster, member) in state.members.iter().enumerate() {
        if member.servers.is_empty() {
            continue;
        }
        let wanted = after.cluster_specs.get(&name(cluster)).map(|s| &s.revision);
        let accepted = member.accepted.as_ref().map(|s| &s.get().revision);
        let earlier = before.cluster_specs.get(&name(cluster)).map(|s| &s.revision);
        if wanted.is_some() && accepted != wanted && earlier != wanted {
            begun.push(cluster);
        }
        // A server that restarts has the new revision already. A cluster without a cluster spec keeps the accepted revision.
        let restarts = |s: &Server| !s.up && s.image_works && !s.lost;
        if member.servers.iter().any(|s| Some(&s.revision) != wanted.or(accepted) || restarts(s)) {
            changing.push(cluster);
        }
    }
    (begun, changing)
}

/// S1: true if a write begins a cluster while another one is being changed.
fn begins_another(state: &State, before: &Overrides, after: &Overrides) -> bool {
    // After a supersede, a cluster that left the schedule may be unreachable or have no Work. No report of it arrives.
    let scheduled = |c: &usize| state.binding.as_ref().is_some_and(|b| b.clusters.iter().any(|(s, _)| s == c));
    let reports = |c: &usize| {
        state.members.get(*c).is_some_and(|m| m.work.is_some() && (m.ready || scheduled(c)))
            && (after.cluster_specs.contains_key(&name(*c)) || before.cluster_specs.contains_key(&name(*c)))
    };
    let (begun, changing) = begun_and_changing(state, before, after);
    state.truth.formed && begun.iter().any(|cluster| changing.iter().any(|c| c != cluster && reports(c)))
}

fn check_cluster_specs(state: &State, before: &Overrides, after: &Overrides, then: &[Record], broken: &mut Vec<Rule>) {
    if begins_another(state, before, after) {
        broken.push(Rule::S1);
    }
    let (begun, _) = begun_and_changing(state, before, after);
    let known = reported(state);
    for cluster in &begun {
        let in_order = then.last().is_some_and(|r| {
            let own = name(*cluster);
            r.current_state.deploying.contains(&own) || r.current_state.completed.contains(&own)
        });
        if !in_order {
            broken.push(Rule::S6);
        }
        let own: Vec<i32> =
            state.members.get(*cluster).map(|m| m.servers.iter().map(|s| s.id).collect()).unwrap_or_default();
        let all_serve = !own.is_empty() && own.iter().all(|id| known.serving.contains(id));
        // An ensemble of one or two voters changes them anyway.
        let has_spare = known.voters.len() > 2;
        if state.truth.formed && all_serve && has_spare && known.serving.len() - 1 <= known.voters.len() / 2 {
            broken.push(Rule::S3);
        }
    }
}

fn check_list(state: &State, before: &Ensemble, after: &Ensemble, broken: &mut Vec<Rule>) {
    if after.servers.is_empty() {
        if !before.servers.is_empty() {
            broken.push(Rule::S4);
        }
        return;
    }
    let of_incarnation = |list: &&Ensemble| list.incarnation == after.incarnation;
    let lists = || state.members.iter().filter_map(MemberCluster::list).filter(of_incarnation);
    let current = incarnation_number(after.incarnation.as_ref());
    let in_truth = current == state.truth.incarnation;
    if lists().chain([before]).any(|l| l.epoch == after.epoch && !l.servers.is_empty() && l != after) {
        broken.push(Rule::OneListAnEpoch);
    }
    let newest = lists().max_by_key(|l| l.epoch);
    let effective = if before.servers.is_empty() { newest.unwrap_or(before) } else { before };
    let ids: BTreeSet<i32> = after.servers.iter().map(|s| s.id).collect();
    let voting = reported(state).voters;
    let leaves = |id: i32| voting.contains(&id) && effective.leaving.iter().any(|s| s.id == id);
    let mut wrong = ids.len() != after.servers.len() || ids.iter().any(|id| !(1..=254).contains(id));
    for server in &after.servers {
        let place = |s: &mczk_api::zookeeper::Server| {
            (s.cluster.clone(), s.role, s.ordinal) == (server.cluster.clone(), server.role, server.ordinal)
        };
        let running = state
            .members
            .iter()
            .enumerate()
            .filter(|_| server.role == Role::Voter)
            .find(|(i, _)| name(*i) == server.cluster)
            .and_then(|(_, m)| m.servers.get(usize::try_from(server.ordinal).ok()?))
            .filter(|running| running.incarnation == current);
        match effective.servers.iter().find(|s| place(s)) {
            Some(was) if was.id == server.id => {}
            // Only a server with a lost volume gets another id.
            Some(was) if running.is_some_and(|r| r.id == was.id && !r.lost) => wrong = true,
            // So does a server that leaves the list and still votes.
            None if running.is_some_and(|r| r.id != server.id && !r.lost && leaves(r.id)) => wrong = true,
            _ => {
                let servers = || state.members.iter().flat_map(|m| &m.servers).filter(|s| s.incarnation == current);
                let known = in_truth && state.truth.voters.contains(&server.id)
                    || servers().any(|s| s.id == server.id)
                    || effective.servers.iter().any(|s| s.id == server.id)
                    || effective.highest_id >= Some(server.id);
                wrong |= known && running.is_none_or(|r| r.id != server.id);
            }
        }
    }
    if wrong {
        broken.push(Rule::S4);
    }
    if before.servers.is_empty() {
        if let Some(first) = state.truth.bootstrap.as_ref().filter(|_| in_truth)
            && after.servers.iter().map(|s| (s.id, s.host.clone())).ne(first.iter().cloned())
        {
            broken.push(Rule::S5);
        }
    } else if before.servers != after.servers {
        let known = reported(state);
        if state.truth.formed {
            if !known.committed && known.serving.len() <= known.voters.len() / 2 {
                broken.push(Rule::S3);
            }
        } else if state.truth.bootstrap.is_some() {
            broken.push(Rule::S5);
        }
    }
}

/// Checks a write in the state in which it is made.
pub fn before_write(world: &World, state: &mut State, write: &Write) {
    let is_ending = state.object.as_ref().is_some_and(|object| object.deleting);
    match write {
        Write::Tombstone(_) if is_ending => {}
        // At most one of two incarnations ever acknowledges a transaction.
        Write::Tombstone(id) if state.truth.formed || may_form(world, state, id) => state.breaks(Rule::S5),
        Write::Overrides(Some(wanted)) if ends(state, &wanted.get().spec) => {
            let id = override_rules::read(&wanted.get().spec).ensemble.incarnation.unwrap_or_default();
            if state.truth.formed || may_form(world, state, &id) {
                state.breaks(Rule::S5);
            }
        }
        Write::Overrides(Some(wanted)) => {
            let after = override_rules::read(&wanted.get().spec);
            if begins_beside_living(world, state, &after.ensemble) {
                state.breaks(Rule::S14);
            }
            if after.ensemble.phase.is_ending() || !state.truth.formed {
                return;
            }
            if short(state, &after) {
                state.breaks(Rule::S2);
            }
            if moves_undeclared_voters(world, state, &after.ensemble) {
                state.breaks(Rule::Sticky);
            }
            let is_declared = |image: &String| world.setup.specs.iter().any(|spec| spec.template.image == *image);
            if !after.cluster_specs.values().all(|spec| is_declared(&spec.template.image)) {
                state.breaks(Rule::Declared);
            }
        }
        Write::Template(wanted) => {
            if state.template.as_ref().is_some_and(|t| t.foreign) {
                state.breaks(Rule::S7);
            }
            if wanted.is_none() {
                // A tombstone ends the servers of a cluster that left without power.
                let has_left = |m: &MemberCluster| m.terminating || m.work.is_none();
                let awaited = |m: &&MemberCluster| !has_left(m) || state.tombstones.is_empty();
                let serves = state.members.iter().filter(awaited).any(|m| !m.servers.is_empty());
                let preserves = state.members.iter().filter(awaited).any(|m| m.work == Some(true));
                if serves {
                    state.breaks(Rule::DecommissionFirst);
                }
                if preserves {
                    state.breaks(Rule::ReleaseFirst);
                }
            }
        }
        _ => {}
    }
}

/// True if a server list is of another incarnation than the servers that live, and the user has not declared these over.
fn begins_beside_living(world: &World, state: &State, list: &Ensemble) -> bool {
    let Some(object) = state.object.as_ref().filter(|object| object.is_second) else { return false };
    let is_over = object.has_said && world.setup.says == Some(Says::Over);
    let is_other = incarnation_number(list.incarnation.as_ref()) != state.truth.incarnation;
    !list.servers.is_empty() && is_other && state.truth.formed && !is_over
}

/// Checks a late write in the state in which it is made: the world may have changed since the plan.
pub fn before_late_write(state: &mut State, write: &Write) {
    let Write::Overrides(Some(wanted)) = write else { return };
    let before = state.overrides.as_ref().map(|live| override_rules::read(&live.get().spec)).unwrap_or_default();
    if begins_another(state, &before, &override_rules::read(&wanted.get().spec)) {
        state.breaks(Rule::S1);
    }
}

/// True if a server list moves voters although every declared spec places them in the same way.
fn moves_undeclared_voters(world: &World, state: &State, list: &Ensemble) -> bool {
    let Some((first, others)) = world.setup.specs.split_first().filter(|_| world.setup.running) else { return false };
    let is_same =
        |other: &MultiClusterZooKeeperSpec| (other.replicas, &other.placement) == (first.replicas, &first.placement);
    let places = |list: &Ensemble| {
        let mut clusters: Vec<String> = list.servers.iter().map(|server| server.cluster.clone()).collect();
        clusters.sort_unstable();
        clusters
    };
    let newest = state.truth.newest.as_ref().map(Shared::get);
    // Without a list the operator waits for reports of one.
    !list.servers.is_empty()
        && others.iter().all(is_same)
        && newest.is_some_and(|newest| places(newest) != places(list))
}

/// True if an OverridePolicy ends an incarnation although the object is not being deleted.
fn ends(state: &State, policy: &OverridePolicySpec) -> bool {
    state.object.as_ref().is_some_and(|o| !o.deleting) && override_rules::read(policy).ensemble.phase.is_ending()
}

/// True if servers of an incarnation run, or if a cluster may start some, and the user has not abandoned that cluster.
fn may_form(world: &World, state: &State, incarnation: &str) -> bool {
    let not_suspended =
        |list: &Ensemble| list.incarnation.as_deref() == Some(incarnation) && !list.phase.is_suspended();
    state.members.iter().enumerate().filter(|(cluster, _)| !world.setup.abandoned.contains(cluster)).any(|(_, m)| {
        let assigned =
            m.spec.as_ref().is_some_and(|spec| spec.get().spec_hash.is_some() && not_suspended(&spec.get().ensemble));
        let accepts = m.accepted.is_some() && m.list().is_some_and(not_suspended);
        assigned || accepts || m.servers.iter().any(|s| s.up)
    })
}

/// Checks every state for S2, also for voters that join later.
pub fn check_state(state: &mut State) {
    let Some(overrides) = state.overrides.as_ref().filter(|_| state.truth.formed) else { return };
    let overrides = override_rules::read(&overrides.get().spec);
    let is_older_copy = newest_list(state).is_some_and(|newest| newest.epoch > overrides.ensemble.epoch);
    if !overrides.ensemble.phase.is_ending() && !is_older_copy && short(state, &overrides) {
        state.breaks(Rule::S2);
    }
}

/// True if a cluster spec has fewer replicas than the cluster has voters.
fn short(state: &State, overrides: &Overrides) -> bool {
    state.members.iter().enumerate().any(|(cluster, m)| {
        overrides.cluster_specs.get(&name(cluster)).is_some_and(|spec| {
            let replicas = usize::try_from(spec.replicas).unwrap_or(0);
            m.servers.iter().skip(replicas).any(|s| state.votes(s))
        })
    })
}

/// True if the world is as declared.
pub fn reached(world: &World, state: &State) -> bool {
    let foreign = state.template.as_ref().is_some_and(|t| t.foreign);
    let Some(object) = &state.object else {
        return state.overrides.is_none()
            && state.policy.is_none()
            && state.services.is_empty()
            && (state.template.is_none() || foreign)
            && state.binding.is_none()
            && state.members.iter().all(|m| m.spec.is_none() && m.servers.is_empty() && m.work.is_none());
    };
    if object.deleting {
        return false;
    }
    if foreign {
        return state.overrides.is_none() && state.policy.is_none();
    }
    // The majority is lost for ever. The operator never gives up acknowledged data by itself.
    if !world.setup.abandoned.is_empty() && state.truth.formed && !state.quorum() && state.tombstones.is_empty() {
        return true;
    }
    let spec = &world.setup.specs[object.spec];
    if spec.template.image == member::BAD_IMAGE {
        return !state.truth.formed || state.quorum();
    }
    let Some(observed) = operator::observe(world, state, state.term) else { return false };
    let known = observed.overrides.as_ref().map(|o| override_rules::read(&o.spec)).unwrap_or_default();
    let dependencies = certificates::dependencies(known.ensemble.tls.as_ref(), None);
    let wanted = render::template(&observed.object, &observed.server_image, dependencies, &known.cluster_specs);
    let wanted = wanted.expect("a template has JSON");
    let (Some(template), Some(binding)) = (&state.template, &state.binding) else { return false };
    let replicas = |count: i32| usize::try_from(count).unwrap_or(0);
    let servers =
        |cluster: usize| binding.clusters.iter().find(|c| c.0 == cluster).map_or(0, |placed| replicas(placed.1));
    records(state).last().is_some_and(|r| r.status == RecordStatus::Ready)
        && template.object.get().spec == wanted
        && !(hands::has_edited_template(state) || hands::has_edited_policy(state) || hands::has_edited_overrides(state))
        && karmada::settled(state)
        && state.quorum()
        && replace::is_done(world, state)
        && state.truth.voters.len() == binding.clusters.iter().map(|c| usize::try_from(c.1).unwrap_or(0)).sum::<usize>()
        && state.members.iter().enumerate().filter(|(_, m)| m.alive).all(|(cluster, m)| {
            m.servers.len() == servers(cluster)
                && (servers(cluster) == 0
                    || m.spec.as_ref().is_some_and(|s| replicas(s.get().replicas) == servers(cluster)))
                && m.servers.iter().all(|s| s.up && s.revision == wanted.revision && state.votes(s))
        })
}
