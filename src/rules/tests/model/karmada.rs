//! Karmada, as the operator observes it: detector, scheduler, Works, and the reports of member clusters.
//!
//! Karmada 1.18.2 behaves like this. While no interpreter is registered, every count is 0 and every cluster is selected. An
//! empty schedule and an eviction delete Works. A deleted Work deletes its object unless it preserves it.

use mczk_api::{placement::Placement, zookeeper::ZooKeeperSpec};
use mczk_rules::rollout::override_rules;
use serde_json::{Value, json};

use crate::{
    World, hands, member,
    properties::Rule,
    replace,
    state::{Binding, Shared, State, name},
};

/// The detector updates the binding to the template and its policy. `false` if the binding is current.
pub fn detect(state: &mut State) -> bool {
    let (Some(template), policy) = (&state.template, &state.policy) else { return false };
    if template.foreign {
        return false;
    }
    let spec = &template.object.get().spec;
    // A survey is no workload.
    let counts = state.registered && !spec.surveys();
    let counted = if counts { spec.replicas } else { 0 };
    let Some(policy) = policy else {
        // Without its policy a binding stays, and no policy claims it.
        return match &mut state.binding {
            Some(binding) if binding.claimed => {
                binding.claimed = false;
                true
            }
            _ => false,
        };
    };
    if is_orphan(state) {
        // Karmada updates no binding of another owner. It waits until the garbage collector has removed that.
        return false;
    }
    let number = template.number;
    let placement = &policy.get().spec.placement;
    let wanted =
        |b: &Binding| b.replicas == counted && b.requirements == counts && b.placement.get() == placement && b.claimed;
    match &mut state.binding {
        Some(binding) if wanted(binding) => false,
        Some(binding) => {
            binding.replicas = counted;
            binding.requirements = counts;
            binding.placement = Shared::new(placement.clone());
            binding.claimed = true;
            binding.scheduled = false;
            true
        }
        none => {
            *none = Some(Binding {
                template: number,
                replicas: counted,
                requirements: counts,
                placement: Shared::new(placement.clone()),
                claimed: true,
                clusters: Vec::new(),
                scheduled: false,
                fits: true,
                protected: false,
            });
            true
        }
    }
}

/// True if the binding is that of a template that exists no more.
fn is_orphan(state: &State) -> bool {
    state.binding.as_ref().is_some_and(|b| state.template.as_ref().is_none_or(|t| t.number != b.template))
}

/// The scheduler. `false` if it has nothing to schedule.
pub fn schedule(state: &mut State) -> bool {
    let members = &state.members;
    let Some(binding) = &mut state.binding else { return false };
    if binding.scheduled {
        return false;
    }
    let held: Vec<usize> = binding.clusters.iter().map(|c| c.0).collect();
    // A cluster that is not Ready has a taint, which keeps it out unless it is scheduled already.
    let fits = |c: &usize| members.get(*c).is_some_and(|m| m.joined && m.serves && (m.ready || held.contains(c)));
    let placement = binding.placement.get();
    let candidates: Vec<usize> = named(placement, members.len()).into_iter().filter(fits).collect();
    binding.fits = !candidates.is_empty();
    binding.clusters = divide(binding.replicas, &candidates, placement);
    binding.scheduled = true;
    true
}

/// Clusters of a placement. The operator's policy names each of them.
fn named(placement: &Placement, count: usize) -> Vec<usize> {
    let affinity = placement.cluster_affinity.clone().unwrap_or_default();
    let is_named = |c: &usize| affinity.cluster_names.contains(&name(*c));
    (0..count).filter(is_named).filter(|c| !affinity.exclude_clusters.contains(&name(*c))).collect()
}

/// By static weights: whole shares first, then the remainder by weight. A cluster without replicas drops out, unless there are
/// no replicas.
fn divide(replicas: i32, candidates: &[usize], placement: &Placement) -> Vec<(usize, i32)> {
    let preference = placement.replica_scheduling.as_ref().and_then(|s| s.weight_preference.as_ref());
    let weight = |cluster: usize| {
        let rules = preference.map_or(&[][..], |preference| &preference.static_weight_list);
        let rule = rules.iter().find(|rule| rule.target_cluster.cluster_names.contains(&name(cluster)));
        rule.map_or(0, |rule| i32::try_from(rule.weight).expect("small weights"))
    };
    let mut weighted: Vec<(usize, i32)> = candidates.iter().map(|cluster| (*cluster, weight(*cluster))).collect();
    if replicas == 0 {
        return weighted.into_iter().map(|(cluster, _)| (cluster, 0)).collect();
    }
    weighted.retain(|(_, weight)| *weight > 0);
    let sum = weighted.iter().map(|(_, weight)| weight).sum::<i32>().max(1);
    let mut shares: Vec<(usize, i32)> = weighted.iter().map(|(c, weight)| (*c, replicas * weight / sum)).collect();
    let mut left = replicas - shares.iter().map(|(_, share)| share).sum::<i32>();
    for (_, share) in &mut shares {
        *share += i32::from(left > 0);
        left -= 1;
    }
    shares.retain(|(_, share)| *share > 0);
    shares
}

/// True if the schedule is current, by the true state of the world.
pub fn settled(state: &State) -> bool {
    let (Some(binding), Some(template), Some(policy)) = (&state.binding, &state.template, &state.policy) else {
        return false;
    };
    binding.scheduled
        && binding.template == template.number
        && binding.fits
        && binding.claimed
        && binding.requirements
        && binding.replicas == template.object.get().spec.replicas
        && *binding.placement.get() == policy.get().spec.placement
        && binding.clusters.iter().map(|c| c.1).sum::<i32>() == binding.replicas
}

/// Renders one cluster's Work and applies it there, if Karmada reaches the cluster. `false` if nothing changes.
pub fn sync(world: &World, state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get(cluster) else { return false };
    if member.ready && member.terminating {
        remove_work(state, cluster);
        return true;
    }
    let protected = state.binding.as_ref().is_some_and(|b| b.protected);
    let orphan = is_orphan(state);
    let bound = state.binding.as_ref().filter(|_| !orphan || protected);
    let bound = bound.filter(|b| b.clusters.iter().any(|c| c.0 == cluster));
    let wanted = state.template.as_ref().filter(|t| !t.foreign && bound.is_some());
    let Some(template) = wanted else {
        let keeps = state.template.is_none() && protected;
        return (member.work.is_some() && !member.terminating && !keeps) && end_work(state, cluster);
    };
    if !member.ready {
        return false;
    }
    let revised = bound.is_some_and(|b| b.replicas > 0 || b.requirements) && state.registered;
    let key = (template.object.clone(), state.overrides.clone(), cluster, revised);
    let mut rendered = world.rendered.lock().expect("no panic while held");
    let spec = rendered
        .entry(key)
        .or_insert_with_key(|(template, overrides, cluster, revised)| {
            let mut value = json!(template.get());
            if *revised {
                value["spec"]["replicas"] = json!(0);
            }
            for rule in overrides.iter().flat_map(|o| &o.get().spec.override_rules) {
                let names = rule.target_cluster.as_ref().map(|t| &t.cluster_names);
                if names.is_none_or(|n| n.is_empty() || n.contains(&name(*cluster))) {
                    for patch in &rule.overriders.plaintext {
                        // A patch of a path that does not exist fails the sync of the whole cluster. The operator patches no such path.
                        *value.pointer_mut(&patch.path).expect("the path of an override exists") =
                            patch.value.clone().unwrap_or(Value::Null);
                    }
                }
            }
            Shared::new(serde_json::from_value::<ZooKeeperSpec>(value["spec"].clone()).expect("a rendered spec is one"))
        })
        .clone();
    drop(rendered);
    let preserve = state
        .policy
        .as_ref()
        .map_or(member.work.unwrap_or(true), |p| p.get().spec.preserve_resources_on_deletion == Some(true));
    let request = replace::propagated(state);
    if member.work == Some(preserve) && member.spec.as_ref() == Some(&spec) && member.request == request {
        return false;
    }
    if let Some(policy) = state.overrides.as_ref().filter(|_| !hands::has_edited_overrides(state)) {
        let known = override_rules::read(&policy.get().spec);
        if !known.cluster_specs.contains_key(&name(cluster)) && spec.get().replicas > 0 {
            state.broken.get_or_insert(Rule::ZeroWithoutClusterSpec);
        }
        if known.ensemble != spec.get().ensemble {
            state.broken.get_or_insert(Rule::OneListForAll);
        }
    }
    if let Some(member) = state.members.get_mut(cluster) {
        member.work = Some(preserve);
        member.spec = Some(spec);
        member.request = request;
    }
    true
}

/// Karmada deletes a Work, and drops the report of its cluster at once.
fn end_work(state: &mut State, cluster: usize) -> bool {
    match state.members.get_mut(cluster) {
        Some(member) if !member.ready => (member.terminating, member.reported) = (true, None),
        _ => remove_work(state, cluster),
    }
    true
}

/// A Work is deleted. The member cluster keeps its object if the Work preserves it.
pub fn remove_work(state: &mut State, cluster: usize) {
    let in_use = member::votes(state, cluster);
    let Some(member) = state.members.get_mut(cluster) else { return };
    let preserved = member.work.take() == Some(true);
    (member.terminating, member.reported) = (false, None);
    if !preserved && member.spec.is_some() {
        member.forget();
        if in_use || !member.servers.is_empty() {
            state.breaks(Rule::DecommissionFirst);
        }
        if let Some(member) = state.members.get_mut(cluster) {
            member.servers.clear();
        }
    }
}

/// Karmada deletes the binding after its template, and after it has deleted every Work. Those of clusters that it does not reach
/// remain.
pub fn collect(state: &mut State) -> bool {
    let over = is_orphan(state)
        && state.binding.as_ref().is_some_and(|b| !b.protected)
        && state.members.iter().all(|m| m.work.is_none() || m.terminating);
    if over {
        state.binding = None;
    }
    over
}

/// Copies an agent's report to the control plane. `false` if the copy is current.
pub fn report(state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get(cluster) else { return false };
    if !member.ready || !member.alive || member.work.is_none() || member.terminating {
        return false;
    }
    let status = member.status.clone();
    state
        .members
        .get_mut(cluster)
        .is_some_and(|member| std::mem::replace(&mut member.reported, status.clone()) != status)
}

/// A failover: a cluster leaves the schedule, and the other clusters get its voters.
pub fn evict(state: &mut State, cluster: usize) -> bool {
    let Some(binding) = &mut state.binding else { return false };
    let left: Vec<usize> = binding.clusters.iter().map(|c| c.0).filter(|c| *c != cluster).collect();
    if left.is_empty() || left.len() == binding.clusters.len() || binding.replicas == 0 {
        return false;
    }
    binding.clusters = divide(binding.replicas, &left, binding.placement.get());
    true
}

/// A cluster leaves the federation: its Work goes, and the scheduler schedules again. Its servers continue.
pub fn unjoin(state: &mut State, cluster: usize) -> bool {
    let Some(member) = state.members.get_mut(cluster) else { return false };
    if !std::mem::replace(&mut member.joined, false) {
        return false;
    }
    member.ready = false;
    if member.work.is_some() {
        remove_work(state, cluster);
    }
    if let Some(binding) = state.binding.as_mut().filter(|b| b.clusters.iter().any(|c| c.0 == cluster)) {
        binding.clusters.retain(|c| c.0 != cluster);
        binding.scheduled = false;
    }
    true
}

/// No cluster fits for a while.
pub fn empty(state: &mut State) -> bool {
    match &mut state.binding {
        Some(binding) if !binding.clusters.is_empty() => {
            binding.clusters.clear();
            binding.scheduled = false;
            binding.fits = false;
            true
        }
        _ => false,
    }
}
