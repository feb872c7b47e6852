//! What must hold: in every plan, in every write, and in the end.
//!
//! The checks look at the true state of the world where they can (what servers run, what ZooKeeper's configuration is) and,
//! where a rule is about what may be known, at what was reported: never at what the plan says of itself.

use std::collections::BTreeSet;

use mczk::{
    api::{
        karmada::policy::OverridePolicySpec,
        multiclusterzookeeper::{Record, RecordStatus},
        zookeeper::{Ensemble, Role, ZooKeeperStatus},
    },
    contract::labels::RECORDS,
    rollout::{
        certificates,
        override_rules::{self, Overrides},
        render,
    },
};

use crate::{
    World, karmada, member,
    operator::{self, Outcome, Write},
    state::{ClusterReport, Server, Shared, State, life, name},
};

/// A rule of the design that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Outside bootstrap at most one cluster's pod part is being changed.
    S1,
    /// Replicas never go below the voters that ZooKeeper's configuration still has.
    S2,
    /// Nothing begins, and no list changes, unless a quorum is seen that stays.
    S3,
    /// Ids are unique, stable and never another server's.
    S4,
    /// All servers of a bootstrap have one list.
    S5,
    /// No change of the pod part reaches a cluster before its turn.
    S6,
    /// Nothing foreign is written.
    S7,
    /// Nothing is decided on a stale, unreachable or other report.
    S8,
    /// An epoch names one list.
    OneListAnEpoch,
    /// The list goes to all clusters at once.
    OneListForAll,
    /// Nothing is decided on a schedule that is not settled.
    Settled,
    /// No template before every cluster serves our kinds.
    Kinds,
    /// The template is a snapshot: it does not change while its record goes on.
    Snapshot,
    /// Records are found again.
    RecordsKept,
    /// A cluster without a pin is held at 0, also with the interpreter gone.
    NothingWithoutPin,
    /// Nothing is deleted from reports before it is dissolved.
    DissolveFirst,
    /// The template goes only when every Work lets its object go.
    ReleaseFirst,
    /// At rest not one write is made.
    AtRest,
    /// When faults stop, the desired state is reached.
    Reached,
    /// When faults stop, everything comes to rest.
    Rest,
}

/// What fresh reports tell of the quorum.
struct Reported {
    voters: BTreeSet<i32>,
    serving: BTreeSet<i32>,
    /// Whether a write was committed.
    committed: bool,
}

fn fresh(member: &ClusterReport) -> Option<&ZooKeeperStatus> {
    member.reported.as_ref().filter(|_| member.ready && member.work.is_some() && member.spec.is_some()).map(Shared::get)
}

fn reported(state: &State) -> Reported {
    let all: Vec<&ZooKeeperStatus> = state.reports.iter().filter_map(fresh).collect();
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

/// Checks a plan on the state that it was made on.
pub fn check_plan(state: &mut State, outcome: &Outcome) {
    if outcome.writes.is_empty() || state.object.as_ref().is_none_or(|o| o.deleting) {
        return;
    }
    let (before, after) = (&outcome.policy.0, &outcome.policy.1);
    let (records_before, then) = (&outcome.records.0, &outcome.records.1);
    let mut broken = Vec::new();
    check_records(state, records_before, then, (before, after), &mut broken);
    check_pins(state, before, after, then, &mut broken);
    // What is said of a life that is over says nothing of the next one.
    let over = match &before.ensemble.incarnation {
        Some(id) => state.ended.contains(id),
        None => !state.ended.is_empty(),
    };
    let nothing = Ensemble::default();
    let list_before = if over { &nothing } else { &before.ensemble };
    check_list(state, list_before, &after.ensemble, &mut broken);
    // What is found again was decided before.
    let obeyed = state.reports.iter().filter_map(|m| m.list.as_ref()).map(Shared::get).max_by_key(|l| l.epoch);
    let restored = list_before.servers.is_empty() && obeyed.is_some_and(|l| l.servers == after.ensemble.servers);
    let decided = (list_before.servers != after.ensemble.servers && !restored)
        || after.cluster_specs.iter().any(|(c, pin)| {
            before.cluster_specs.get(c).map(|p| &p.spec_hash) != Some(&pin.spec_hash)
                && pin_told(state, c) != pin.spec_hash
        });
    if state.overrides.is_some() && decided && !karmada::settled(state) {
        broken.push(Rule::Settled);
    }
    for write in &outcome.writes {
        if let Write::Template(Some(wanted)) = write {
            match &state.template {
                None if state.reports.iter().any(|m| !m.serves) => broken.push(Rule::Kinds),
                Some(live)
                    if live.object.get().spec != wanted.get().spec && !over && !may_be_stuck(state, records_before) =>
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

/// Whether a record that is not done may be superseded.
fn may_be_stuck(state: &State, told: &[Record]) -> bool {
    let Some(last) = told.last().filter(|r| r.status == RecordStatus::Deploying) else { return true };
    let of = |cluster: &String| state.reports.iter().enumerate().find(|(i, _)| name(*i) == *cluster).map(|(_, m)| m);
    match last.current_state.deploying.first() {
        Some(cluster) => of(cluster).is_none_or(|m| {
            let failed = m
                .reported
                .as_ref()
                .is_some_and(|s| s.get().conditions.iter().any(|c| c.type_ == "Progressing" && c.status == "False"));
            state.late || !m.ready || failed
        }),
        None => state.late || last.current_state.pending.iter().all(|c| of(c).is_none_or(|m| !m.ready)),
    }
}

/// The pin that the status tells of a cluster.
fn pin_told(state: &State, cluster: &str) -> Option<String> {
    let status = state.object.as_ref()?.status.as_ref()?.get();
    status.clusters.iter().find(|c| c.name == cluster)?.spec_hash.clone()
}

/// The pin that a cluster accepts.
fn obeyed(state: &State, cluster: &str) -> Option<String> {
    let (_, member) = state.reports.iter().enumerate().find(|(i, _)| name(*i) == cluster)?;
    member.obeyed.as_ref()?.get().spec_hash.clone()
}

fn check_records(
    state: &State,
    told: &[Record],
    then: &[Record],
    (before, after): (&Overrides, &Overrides),
    broken: &mut Vec<Rule>,
) {
    let Some(last) = then.last() else { return };
    if told.is_empty() {
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
    for cluster in &last.current_state.completed {
        let pin =
            |cluster_specs: &Overrides| cluster_specs.cluster_specs.get(cluster).and_then(|p| p.spec_hash.clone());
        let known = told.last().is_some_and(|t| t.current_state.completed.contains(cluster));
        // Its pin may go, with a cluster that the schedule left, or be found again; another one would be a claim.
        let found = before.cluster_specs.is_empty()
            && (pin_told(state, cluster) == pin(after) || obeyed(state, cluster) == pin(after));
        if (known && (pin(after).is_none() || pin(before) == pin(after) || found)) || told.is_empty() {
            continue;
        }
        let report = state.reports.iter().enumerate().find(|(i, _)| name(*i) == *cluster).and_then(|(_, m)| fresh(m));
        let pin = pin(after);
        if pin.is_none() || report.is_none_or(|s| s.completed_spec_hash != pin || s.observed_spec_hash != pin) {
            broken.push(Rule::S8);
        }
    }
}

fn check_pins(state: &State, before: &Overrides, after: &Overrides, then: &[Record], broken: &mut Vec<Rule>) {
    let mut begun = Vec::new();
    let mut changing = Vec::new();
    for (cluster, member) in state.reports.iter().enumerate() {
        if member.servers.is_empty() {
            continue;
        }
        let pin = after.cluster_specs.get(&name(cluster)).map(member::revision);
        let obeyed = member.obeyed.as_ref().map(|s| member::revision(s.get()));
        let pinned = before.cluster_specs.get(&name(cluster)).map(member::revision);
        if pin.is_some() && obeyed != pin && pinned != pin {
            begun.push(cluster);
        }
        // One that restarts has the new revision already; one without a pin goes on with what it accepts.
        let restarts = |s: &Server| !s.up && s.sound && !s.lost;
        if member.servers.iter().any(|s| Some(s.revision) != pin.or(obeyed) || restarts(s)) {
            changing.push(cluster);
        }
    }
    let known = reported(state);
    for cluster in &begun {
        // What was left by the schedule and cannot be reached, or has no Work any more, is what superseding leaves behind:
        // nobody hears of it.
        let scheduled = |c: &usize| state.binding.as_ref().is_some_and(|b| b.clusters.iter().any(|(s, _)| s == c));
        let heard = |c: &usize| {
            state.reports.get(*c).is_some_and(|m| m.work.is_some() && (m.ready || scheduled(c)))
                && (after.cluster_specs.contains_key(&name(*c)) || before.cluster_specs.contains_key(&name(*c)))
        };
        if state.truth.formed && changing.iter().any(|c| c != cluster && heard(c)) {
            broken.push(Rule::S1);
        }
        let turn = then.last().is_some_and(|r| {
            let own = name(*cluster);
            r.current_state.deploying.contains(&own) || r.current_state.completed.contains(&own)
        });
        if !turn {
            broken.push(Rule::S6);
        }
        let own: Vec<i32> =
            state.reports.get(*cluster).map(|m| m.servers.iter().map(|s| s.id).collect()).unwrap_or_default();
        let all_serve = !own.is_empty() && own.iter().all(|id| known.serving.contains(id));
        // Of one voter, or two, none can be spared ever: they are changed all the same.
        let spared = known.voters.len() > 2;
        if state.truth.formed && all_serve && spared && known.serving.len() - 1 <= known.voters.len() / 2 {
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
    let of_this_life = |list: &&Ensemble| list.incarnation == after.incarnation;
    let lists = || state.reports.iter().filter_map(|m| m.list.as_ref()).map(Shared::get).filter(of_this_life);
    let current = life(after.incarnation.as_ref());
    let in_truth = current == state.truth.life;
    if lists().chain([before]).any(|l| l.epoch == after.epoch && !l.servers.is_empty() && l != after) {
        broken.push(Rule::OneListAnEpoch);
    }
    let newest = lists().max_by_key(|l| l.epoch);
    let effective = if before.servers.is_empty() { newest.unwrap_or(before) } else { before };
    let ids: BTreeSet<i32> = after.servers.iter().map(|s| s.id).collect();
    let mut wrong = ids.len() != after.servers.len() || ids.iter().any(|id| !(1..=254).contains(id));
    for server in &after.servers {
        let place = |s: &mczk::api::zookeeper::Server| {
            (s.cluster.clone(), s.role, s.ordinal) == (server.cluster.clone(), server.role, server.ordinal)
        };
        let running = state
            .reports
            .iter()
            .enumerate()
            .filter(|_| server.role == Role::Voter)
            .find(|(i, _)| name(*i) == server.cluster)
            .and_then(|(_, m)| m.servers.get(usize::try_from(server.ordinal).ok()?))
            .filter(|running| running.life == current);
        match effective.servers.iter().find(|s| place(s)) {
            Some(was) if was.id == server.id => {}
            // Only a server that lost its volume gets another id.
            Some(was) if running.is_some_and(|r| r.id == was.id && !r.lost) => wrong = true,
            _ => {
                let servers = || state.reports.iter().flat_map(|m| &m.servers).filter(|s| s.life == current);
                let known = in_truth && state.truth.voters.contains(&server.id)
                    || servers().any(|s| s.id == server.id)
                    || effective.servers.iter().any(|s| s.id == server.id);
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

/// Checks one write at the time when it is made.
pub fn before_write(world: &World, state: &mut State, write: &Write) {
    match write {
        // Of two lives at most one ever acknowledges anything.
        Write::Tombstone(life) if state.truth.formed || may_form(world, state, life) => state.breaks(Rule::S5),
        Write::Overrides(Some(wanted)) if ends(state, &wanted.get().spec) => {
            let id = override_rules::read(&wanted.get().spec).ensemble.incarnation.unwrap_or_default();
            if state.truth.formed || may_form(world, state, &id) {
                state.breaks(Rule::S5);
            }
        }
        Write::Overrides(Some(wanted)) => {
            let after = override_rules::read(&wanted.get().spec);
            if after.ensemble.phase.is_ending() || !state.truth.formed {
                return;
            }
            if short(state, &after) {
                state.breaks(Rule::S2);
            }
        }
        Write::Template(wanted) => {
            if state.template.as_ref().is_some_and(|t| t.foreign) {
                state.breaks(Rule::S7);
            }
            if wanted.is_none() {
                if state.reports.iter().any(|m| !m.servers.is_empty() && !m.dissolved) {
                    state.breaks(Rule::DissolveFirst);
                }
                if state.reports.iter().any(|m| m.work == Some(true)) {
                    state.breaks(Rule::ReleaseFirst);
                }
            }
        }
        _ => {}
    }
}

/// Whether a policy ends a life although the ensemble is not deleted.
fn ends(state: &State, policy: &OverridePolicySpec) -> bool {
    state.object.as_ref().is_some_and(|o| !o.deleting) && override_rules::read(policy).ensemble.phase.is_ending()
}

/// Whether a server of this life runs that was never part of a quorum, or may be started by what its cluster was told: but not
/// where a person gave the cluster up.
fn may_form(world: &World, state: &State, life: &str) -> bool {
    let unparked = |list: &Ensemble| list.incarnation.as_deref() == Some(life) && !list.phase.is_suspended();
    state.reports.iter().enumerate().filter(|(cluster, _)| !world.setup.abandoned.contains(cluster)).any(|(_, m)| {
        let told = m.spec.as_ref().is_some_and(|spec| spec.get().spec_hash.is_some() && unparked(&spec.get().ensemble));
        let accepts = m.obeyed.is_some() && m.list.as_ref().is_some_and(|list| unparked(list.get()));
        told || accepts || m.servers.iter().any(|s| s.up)
    })
}

/// Checks what must hold in every state: S2, also for a voter that joins later.
pub fn check_state(state: &mut State) {
    let Some(overrides) = state.overrides.as_ref().filter(|_| state.truth.formed) else { return };
    let told = override_rules::read(&overrides.get().spec);
    if !told.ensemble.phase.is_ending() && short(state, &told) {
        state.breaks(Rule::S2);
    }
}

/// Whether a cluster is told to run fewer servers than it has voters.
fn short(state: &State, told: &Overrides) -> bool {
    state.reports.iter().enumerate().any(|(cluster, m)| {
        told.cluster_specs.get(&name(cluster)).is_some_and(|pin| {
            let replicas = usize::try_from(pin.replicas).unwrap_or(0);
            m.servers.iter().skip(replicas).any(|s| state.votes(s))
        })
    })
}

/// Whether a world in which nothing moves any more is as it was asked for.
pub fn reached(world: &World, state: &State) -> bool {
    let foreign = state.template.as_ref().is_some_and(|t| t.foreign);
    let Some(object) = &state.object else {
        return state.overrides.is_none()
            && state.policy.is_none()
            && state.services.is_empty()
            && (state.template.is_none() || foreign)
            && state.binding.is_none()
            && state.reports.iter().all(|m| m.spec.is_none() && m.servers.is_empty() && m.work.is_none());
    };
    if object.deleting {
        return false;
    }
    if foreign {
        return state.overrides.is_none() && state.policy.is_none();
    }
    // Its majority is gone for good, and what it acknowledged is not given up by itself.
    if !world.setup.abandoned.is_empty() && state.truth.formed && !state.quorum() && state.ended.is_empty() {
        return true;
    }
    let spec = &world.setup.specs[object.spec];
    if spec.template.image == member::BAD_IMAGE {
        return !state.truth.formed || state.quorum();
    }
    let Some(observed) = operator::observe(world, state) else { return false };
    let known = observed.overrides.as_ref().map(|o| override_rules::read(&o.spec)).unwrap_or_default();
    let travels = certificates::dependencies(known.ensemble.tls.as_ref(), None);
    let wanted = render::template(&observed.object, &observed.server_image, travels, &known.cluster_specs);
    let wanted = wanted.expect("a template has JSON");
    let (Some(template), Some(binding)) = (&state.template, &state.binding) else { return false };
    let revision = u64::from_str_radix(&wanted.revision, 16).expect("a revision is hexadecimal");
    let servers = |cluster: usize| {
        binding.clusters.iter().find(|c| c.0 == cluster).map_or(0, |c| usize::try_from(c.1).unwrap_or(0))
    };
    records(state).last().is_some_and(|r| r.status == RecordStatus::Ready)
        && template.object.get().spec == wanted
        && karmada::settled(state)
        && state.quorum()
        && state.truth.voters.len() == binding.clusters.iter().map(|c| usize::try_from(c.1).unwrap_or(0)).sum::<usize>()
        && state.reports.iter().enumerate().filter(|(_, m)| m.alive).all(|(cluster, m)| {
            m.servers.len() == servers(cluster)
                && m.servers.iter().all(|s| s.up && s.revision == revision && state.votes(s))
        })
}
