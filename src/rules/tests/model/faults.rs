//! The faults of a world, and the world after them.

use std::collections::BTreeSet;

use mczk_api::multiclusterzookeeper::RecordStatus;

use crate::{
    World, hands, karmada, member, operator,
    state::{MemberCluster, Object, State},
};

/// A fault. Each one uses up one of the world's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operator is slow. It may crash or lose its update between any two writes.
    Slow,
    /// The deadline of a record passes.
    Deadline,
    /// Karmada does not reach a cluster. The agent and the servers there continue.
    Disconnect(usize),
    /// A cluster is lost, and returns later.
    Lose(usize),
    /// A user deletes the status.
    StatusWiped,
    /// A user deletes the OverridePolicy.
    OverridesDeleted,
    /// A user deletes the PropagationPolicy.
    PolicyDeleted,
    /// A user deletes a Work.
    WorkDeleted(usize),
    /// No cluster fits for a while.
    EmptySchedule,
    /// The scheduler moves a cluster's voters to the other clusters.
    Evict(usize),
    /// The registration of the interpreter is missing for a while.
    Unregister,
    /// The volume of a server is lost.
    LoseVolume(usize),
    /// The leader is slow, and loses its term. The next leader goes on between its writes.
    Second,
    /// A former leader does not know that its term is over, and plans again.
    Deposed,
    /// The operator misses every change. It finds them when it reads all objects again, after everything else is at rest.
    Asleep,
    /// A cluster leaves the federation, and joins it again later.
    Unjoin(usize),
    /// A hand excludes a cluster in the PropagationPolicy.
    ClusterExcluded(usize),
    /// A hand lets Karmada delete what the PropagationPolicy propagates.
    Unpreserved,
    /// The control plane is lost. The user builds another one and creates the object again.
    ControlPlaneLost,
    /// The control plane is taken back to the copy from the beginning of the search, with the spec of that time. The operator starts
    /// after Karmada has read the clusters that it reaches.
    OlderCopy,
    /// A hand sets the replicas of a cluster spec to 0.
    SpecEdited(usize),
    /// A hand removes a server from the server list.
    ListEdited,
    /// A hand adds a rule to the OverridePolicy: no replicas in a cluster.
    RuleAdded(usize),
    /// A hand changes the image of the template.
    TemplateEdited,
    /// A hand changes the replicas of the template.
    TemplateScaled,
    /// A hand deletes the template, after it removed its protection.
    TemplateDeleted,
    /// A hand deletes the template, after it removed the protection of template and binding.
    TemplatePurged,
}

/// A fault happens. `false` if it changes nothing.
pub fn fail(world: &World, state: &mut State, fault: Fault) -> bool {
    match fault {
        Fault::Slow => operator::begin(world, state, state.term),
        Fault::Second => {
            state.term += 1;
            operator::begin(world, state, state.term - 1)
        }
        Fault::Deposed => state.term > 1 && operator::begin(world, state, state.term - 1),
        Fault::Deadline => {
            let deploying = state
                .object
                .as_ref()
                .and_then(|o| o.status.as_ref())
                .and_then(|s| s.get().records.last())
                .is_some_and(|r| r.status == RecordStatus::Deploying);
            !std::mem::replace(&mut state.late, true) && deploying
        }
        Fault::Disconnect(cluster) => std::mem::replace(&mut state.members[cluster].ready, false),
        Fault::Lose(cluster) => {
            let member = &mut state.members[cluster];
            member.alive = false;
            std::mem::replace(&mut member.ready, false)
        }
        Fault::StatusWiped => state.object.as_mut().and_then(|o| o.status.take()).is_some(),
        Fault::OverridesDeleted => state.overrides.take().is_some(),
        Fault::PolicyDeleted => state.policy.take().is_some(),
        Fault::WorkDeleted(cluster) => {
            let had = state.members[cluster].work.is_some();
            karmada::remove_work(state, cluster);
            had
        }
        Fault::EmptySchedule => karmada::empty(state),
        Fault::Evict(cluster) => karmada::evict(state, cluster),
        Fault::Unregister => std::mem::replace(&mut state.registered, false),
        Fault::LoseVolume(cluster) => lose_volume(state, cluster),
        Fault::Asleep => !std::mem::replace(&mut state.asleep, true),
        Fault::Unjoin(cluster) => karmada::unjoin(state, cluster),
        Fault::ClusterExcluded(cluster) => hands::exclude(state, cluster),
        Fault::Unpreserved => hands::unpreserve(state),
        Fault::ControlPlaneLost => lose_control_plane(state),
        Fault::OlderCopy => world.copy.get().is_some_and(|copy| restore(state, copy)),
        Fault::SpecEdited(cluster) => hands::empty_cluster_spec(state, cluster),
        Fault::ListEdited => hands::shorten_list(state),
        Fault::RuleAdded(cluster) => hands::add_rule(state, cluster),
        Fault::TemplateEdited => hands::edit_image(state),
        Fault::TemplateScaled => hands::scale_template(state),
        Fault::TemplateDeleted => hands::delete_template(state),
        Fault::TemplatePurged => hands::purge_template(state),
    }
}

/// The objects and Works of the first control plane are gone. Objects in member clusters stay.
fn lose_control_plane(state: &mut State) -> bool {
    let Some(spec) = state.object.as_ref().filter(|object| !object.is_second && !object.deleting).map(|o| o.spec)
    else {
        return false;
    };
    state.object = Some(Object { is_second: true, spec, ..Object::default() });
    (state.overrides, state.policy, state.template, state.binding) = (None, None, None, None);
    state.services.clear();
    state.tombstones.clear();
    state.operators.clear();
    for member in &mut state.members {
        (member.work, member.terminating, member.reported) = (None, false, None);
    }
    true
}

/// Objects in member clusters stay, and Karmada reads them.
fn restore(state: &mut State, copy: &State) -> bool {
    if state.object.as_ref().is_none_or(|object| object.deleting) || state.object == copy.object {
        return false;
    }
    state.object.clone_from(&copy.object);
    (state.overrides, state.policy) = (copy.overrides.clone(), copy.policy.clone());
    (state.template, state.binding) = (copy.template.clone(), copy.binding.clone());
    state.services.clone_from(&copy.services);
    state.tombstones.clone_from(&copy.tombstones);
    state.operators.clear();
    for (member, then) in state.members.iter_mut().zip(&copy.members) {
        (member.work, member.terminating) = (then.work, then.terminating);
        let is_read = member.ready && member.alive && member.work.is_some();
        member.reported = if is_read { member.status.clone() } else { then.reported.clone() };
    }
    true
}

fn lose_volume(state: &mut State, cluster: usize) -> bool {
    let truth = state.truth.clone();
    // Two volumes of three at once are more than an ensemble can lose.
    let mut servers = state.members.iter().flat_map(|member| &member.servers);
    let ids: BTreeSet<i32> = servers.clone().map(|server| server.id).collect();
    let whole = servers.clone().all(|server| server.stores == Some(server.id)) && truth.voters.iter().copied().eq(ids);
    if servers.any(|server| server.replaced > 0) && !whole {
        return false;
    }
    match state.members[cluster].servers.first_mut() {
        Some(server) if !server.lost && truth.has_vote(server) => {
            (server.stores, server.joined_quorum, server.up) = (None, false, false);
        }
        _ => return false,
    }
    // A server of a lost cluster starts when the cluster is back.
    !state.members[cluster].alive || member::start_servers(state, cluster)
}

/// The world after all faults. A user who declared a spec that cannot run declares the next one.
pub fn healed(world: &World, state: &State) -> State {
    let mut state = state.clone();
    state.operators.clear();
    state.faults = 0;
    state.registered = true;
    state.late = false;
    state.to_delete = false;
    let gone = |cluster: usize, member: &MemberCluster| world.setup.gone.contains(&cluster) && !member.alive;
    if state.members.iter().enumerate().any(|(cluster, member)| gone(cluster, member))
        && let Some(object) = &mut state.object
    {
        object.declare(world.setup.specs.len() - 1 - object.spec);
    }
    for (cluster, member) in state.members.iter_mut().enumerate() {
        if !gone(cluster, member) {
            (member.joined, member.ready, member.alive) = (true, true, true);
        }
        member.serves = true;
        member.lacks_secret = false;
    }
    if let Some(object) = &mut state.object {
        object.has_said = object.is_second;
        while world.setup.specs[object.spec].template.image == member::BAD_IMAGE
            && object.spec + 1 < world.setup.specs.len()
        {
            object.declare(1);
        }
    }
    state
}
