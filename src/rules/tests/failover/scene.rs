//! A world with a spare: Karmada divides by the weights of the policy, and clusters lose power and return.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mczk_api::{contract::labels::FAILOVER, zookeeper::Role};
use mczk_rules::rollout::plan::Plan;
use serde_json::{Value, json};

use crate::world::{CLUSTERS, World, at};

/// Seconds between two passes.
pub(crate) const PASS: u64 = 10;

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    /// Clusters without power.
    pub(crate) dark: BTreeSet<&'static str>,
    /// Clusters that Karmada does not reach, although their servers run.
    pub(crate) unseen: BTreeSet<&'static str>,
    /// Clusters whose servers never start, because no agent runs there.
    pub(crate) stalled: BTreeSet<&'static str>,
    /// The servers that ran in clusters that have lost power.
    stopped: BTreeMap<(String, i32), i32>,
    /// Clusters that Karmada gives no voters, although they are Ready.
    pub(crate) refused: BTreeSet<&'static str>,
}

/// Takes out the servers of a cluster.
fn take(servers: &mut BTreeMap<(String, i32), i32>, name: &str) -> BTreeMap<(String, i32), i32> {
    let (of_cluster, others) = std::mem::take(servers).into_iter().partition(|((cluster, _), _)| cluster == name);
    *servers = others;
    of_cluster
}

impl Scene {
    /// Five voters in m1, m2 and m3, which are complete. m4 is a spare.
    pub(crate) fn new(failover: &Value) -> Self {
        Self::of(&json!({ "failover": failover }))
    }

    /// The same with more of a spec.
    pub(crate) fn of(more: &Value) -> Self {
        let mut spec = json!({
            "placement": { "clusterAffinity": { "clusterNames": ["m1", "m2", "m3"] } },
            "failover": { "spares": ["m4"] },
        });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let mut scene = Self {
            world: World::declared(&spec),
            dark: BTreeSet::new(),
            unseen: BTreeSet::new(),
            stalled: BTreeSet::new(),
            stopped: BTreeMap::new(),
            refused: BTreeSet::new(),
        };
        for name in CLUSTERS {
            scene.set_ready(name, true, at(-100_000));
        }
        scene.settle();
        scene
    }

    fn set_ready(&mut self, name: &str, ready: bool, since: Timestamp) {
        let cluster = self.world.observed.clusters.iter_mut().find(|cluster| cluster.name() == name).unwrap();
        let condition = &mut cluster.status.conditions[0];
        let status = if ready { "True" } else { "Unknown" };
        if condition.status != status || condition.last_transition_time.is_none() {
            status.clone_into(&mut condition.status);
            condition.last_transition_time = Some(Time(since));
        }
    }

    pub(crate) fn lose(&mut self, name: &'static str) {
        self.dark.insert(name);
        self.stopped.extend(take(&mut self.world.running, name));
        self.set_ready(name, false, self.world.now);
    }

    /// The spares that refuse servers, as the operator sees it.
    pub(crate) fn refused_by_spares(&self) -> Vec<String> {
        let observed = &self.world.observed;
        let items = observed.spares.iter().flat_map(|binding| &binding.status.aggregated_status);
        let ready = |name: &str| observed.clusters.iter().any(|cluster| cluster.name() == name && cluster.ready());
        let refuses = |status: &Value| {
            let condition = &status["conditions"][0];
            condition["type"] == "Blocked" || condition["status"] == "False"
        };
        let named = items.filter(|item| ready(&item.cluster_name) && item.status.as_ref().is_some_and(refuses));
        named.map(|item| item.cluster_name.clone()).collect()
    }

    /// True if both signals show the loss of a cluster, as the operator can see it.
    pub(crate) fn is_lost(&self, name: &str) -> bool {
        let runs = self.world.running.keys().any(|(cluster, _)| cluster == name);
        !runs && (self.dark.contains(name) || self.unseen.contains(name))
    }

    /// True if Karmada does not reach a cluster.
    pub(crate) fn some_are_away(&self) -> bool {
        !self.dark.is_empty() || !self.unseen.is_empty()
    }

    /// Power, and with it Karmada's sight, return.
    pub(crate) fn restore(&mut self, name: &'static str) {
        self.return_unseen(name);
        self.unseen.remove(name);
        self.set_ready(name, true, self.world.now);
    }

    /// Power returns, and with it servers that have a vote. Karmada's sight does not.
    pub(crate) fn return_unseen(&mut self, name: &'static str) {
        self.dark.remove(name);
        self.unseen.insert(name);
        let voters = self.world.voters.clone();
        let returning = take(&mut self.stopped, name).into_iter();
        self.world.running.extend(returning.filter(|(_, id)| voters.contains(id)));
    }

    /// Karmada alone loses sight of a cluster.
    pub(crate) fn hide(&mut self, name: &'static str) {
        self.unseen.insert(name);
        self.set_ready(name, false, self.world.now);
    }

    /// The annotation, or none.
    pub(crate) fn request(&mut self, value: Option<&str>) {
        let annotations = self.world.observed.object.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(FAILOVER.to_owned(), value.to_owned()),
            None => annotations.remove(FAILOVER),
        };
    }

    /// The operator passes, Karmada schedules, agents act and report, and time passes.
    pub(crate) fn tick(&mut self) -> Plan {
        let plan = self.world.pass();
        self.schedule();
        self.act();
        self.world.wait(PASS);
        plan
    }

    /// Karmada divides by weight. It leaves out a cluster that is not Ready, unless that has replicas already.
    pub(crate) fn schedule(&mut self) {
        let world = &mut self.world;
        if world.observed.policy.is_none() {
            return;
        }
        let (weights, each) = (world.weights(), world.observed.object.spec.replicas);
        let selected = world.observed.policy.as_ref().unwrap().spec.placement.cluster_affinity.clone().unwrap();
        // Without weights each selected cluster gets all.
        let wanted: Vec<(String, i32)> = if weights.is_empty() {
            selected.cluster_names.into_iter().map(|name| (name, each)).collect()
        } else {
            weights
        };
        if world.placed == wanted {
            return;
        }
        let is_ready = |name: &str| world.observed.clusters.iter().any(|c| c.name() == name && c.ready());
        let was_placed = |name: &str| world.placed.iter().any(|(placed, _)| placed == name);
        let (reached, missing): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|(name, _)| (is_ready(name) || was_placed(name)) && !self.refused.contains(name.as_str()));
        let mut placed = reached;
        if let Some(first) = placed.first_mut() {
            first.1 += missing.iter().map(|(_, count)| count).sum::<i32>();
        }
        let placed: Vec<(&str, i32)> = placed.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        world.place(&placed);
    }

    /// Agents act and report. Those of the leader's cluster name the voters that do not follow.
    pub(crate) fn act(&mut self) {
        let world = &mut self.world;
        world.stopped_agents = self.dark.union(&self.stalled).map(|name| (*name).to_owned()).collect();
        // Servers of a cluster that has left end once a quorum serves without them.
        let running: BTreeSet<i32> = world.running.values().copied().collect();
        world.leader = world.voters.iter().rev().find(|id| running.contains(id)).copied();
        world.run_agents();
        let running: BTreeSet<i32> = world.running.values().copied().collect();
        world.leader = world.voters.iter().rev().find(|id| running.contains(id)).copied();
        let listed: Vec<i32> = self.listed().into_iter().map(|(id, _)| id).collect();
        let missing: Vec<i32> = listed.into_iter().filter(|id| !running.contains(id)).collect();
        let leader = self.world.leader;
        let world = &mut self.world;
        let placed: Vec<String> = world.placed.iter().map(|(name, _)| name.clone()).collect();
        for name in
            placed.iter().filter(|name| !self.dark.contains(name.as_str()) && !self.unseen.contains(name.as_str()))
        {
            if let Some(status) = world.work(name).status.as_mut().filter(|status| status["votingMembers"].is_array()) {
                status["missingVoters"] = json!(missing);
                status["leader"] = json!(leader);
            }
        }
    }

    /// Ids and clusters of the listed voters.
    pub(crate) fn listed(&self) -> Vec<(i32, String)> {
        let list = self.world.overrides().ensemble;
        let voters = list.servers.into_iter().filter(|server| server.role == Role::Voter);
        voters.map(|server| (server.id, server.cluster)).collect()
    }

    /// Passes until nothing is under way any more.
    pub(crate) fn settle(&mut self) {
        self.ticks(12);
        assert!(
            self.world.state().starts_with("Ready"),
            "{} {:#?}",
            self.world.state(),
            self.world.status().conditions
        );
    }

    pub(crate) fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.tick();
        }
    }

    /// The listed voters of each cluster.
    pub(crate) fn seats(&self) -> String {
        let mut seats = BTreeMap::<String, usize>::new();
        for (_, cluster) in self.listed() {
            *seats.entry(cluster).or_default() += 1;
        }
        seats.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// The pairs of the status.
    pub(crate) fn moved(&self) -> String {
        let clusters = self.world.status().clusters;
        let pairs =
            clusters.iter().filter_map(|cluster| Some(format!("{}={}", cluster.name, cluster.moved_to.as_ref()?)));
        pairs.collect::<Vec<_>>().join(",")
    }
}
