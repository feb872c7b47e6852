//! A world of one ensemble that drives `plan` step by step. Karmada applies each write at once; agents act when a test says so.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube_core::ResourceExt as _;
use mczk_api::{
    MultiClusterZooKeeper, ZooKeeper,
    contract::{
        certificate_names::Holds, control_api::ServerReport, labels::OPERATOR_FINALIZER, naming::binding_name,
        server_list::majority,
    },
    karmada::{DELETION_PROTECTION, resource_binding::AggregatedStatusItem, work::Work},
    multiclusterzookeeper::{MultiClusterZooKeeperStatus, Record},
    placement::StaticClusterWeight,
    zookeeper::{Ensemble, Role, ZooKeeperSpec, ZooKeeperStatus},
};
use mczk_rules::{
    agent::decide::{
        membership::{self, MembershipStep},
        status::{self, AgentStatusInputs},
    },
    rollout::{
        certificates::{AUTHORITY_LIFE, IDENTITY_LIFE, Make},
        override_rules::{self, Overrides},
        plan::{ObjectWrite, Observed, Plan, plan},
    },
};
use serde_json::{Value, json};

#[path = "../agent_inputs/mod.rs"]
mod agent_inputs;

use agent_inputs::{configuration, local_server, looking, serving, status_inputs};

/// All clusters of the federation.
pub(crate) const CLUSTERS: [&str; 4] = ["m1", "m2", "m3", "m4"];

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) observed: Observed,
    pub(crate) now: Timestamp,
    /// The voters that Karmada's scheduler gives each cluster.
    pub(crate) placed: Vec<(String, i32)>,
    /// Clusters whose agent does not run.
    pub(crate) stopped_agents: BTreeSet<String>,
    /// True if ZooKeeper's own configuration does not follow the server list.
    pub(crate) configuration_frozen: bool,
    /// The epoch that agents report as published, if it does not follow the server list.
    pub(crate) frozen_epoch: Option<i64>,
    /// The newest server list that agents have accepted.
    pub(crate) accepted: Ensemble,
    /// The leader that agents report.
    pub(crate) leader: Option<i32>,
    pub(crate) voters: BTreeSet<i32>,
    /// The number of changes of ZooKeeper's own configuration.
    version: i64,
    pub(crate) running: BTreeMap<(String, i32), i32>,
    /// What the agents of spares answer that do not accept servers.
    pub(crate) spares: BTreeMap<&'static str, SpareAnswer>,
}

/// What the agent of a spare answers.
#[allow(dead_code)] // Only the tests of moves use it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpareAnswer {
    /// The API server would refuse servers, in these words.
    Refuses(&'static str),
    /// The agent cannot go on.
    Blocked(&'static str),
    /// Nothing yet.
    Silent,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A spec of five voters, with more fields. Karmada divides them, unless `placement` is given: [`World::place`] says how.
pub(crate) fn spec(more: &Value) -> Value {
    let mut spec = json!({
        "replicas": 5, "template": { "image": "zoo:1", "storage": { "size": "1Gi" } },
        "placement": { "replicaScheduling": { "weightPreference": { "dynamicWeight": "AvailableReplicas" } } },
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    // The tests of the check itself require it.
    for (key, value) in [("mode", "MCS"), ("preflight", "Skip")] {
        if spec["network"][key].is_null() {
            spec["network"][key] = json!(value);
        }
    }
    spec
}

/// A new image, which m1 is getting.
pub(crate) fn rolling(more: &Value) -> World {
    let mut world = World::done(more);
    world.image("zoo:2");
    world.pass();
    world.pass();
    assert_eq!(world.state(), "Deploying m2,m3|m1|");
    world
}

impl World {
    /// Every cluster has reported which incarnations live there, and the operator has not settled the schedule yet.
    pub(crate) fn new(more: &Value) -> Self {
        let mut world = Self::declared(more);
        world.pass();
        // Not all clusters get voters, and Secrets.
        if world.observed.object.spec.tls.quorum {
            world.pass();
        }
        world
    }

    /// The operator has written nothing yet. The scheduler places the five voters 2, 2, 1 over m1, m2, m3.
    pub(crate) fn declared(more: &Value) -> Self {
        let object: MultiClusterZooKeeper = serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zk", "namespace": "ns", "uid": "u1", "generation": 1, "finalizers": [OPERATOR_FINALIZER] },
            "spec": spec(more)
        }))
        .unwrap();
        let mut world = Self::of(object, "mczk:1", at(0));
        world.place(&[("m1", 2), ("m2", 2), ("m3", 1)]);
        world.unreachable(&[]);
        while let Some(make) = world.make_certificate() {
            world.observed.certificates.push(make.made(Timestamp::MAX));
        }
        world
    }

    /// An object of the API server, around which the operator has written nothing yet. There are no clusters.
    pub(crate) fn of(object: MultiClusterZooKeeper, server_image: &str, now: Timestamp) -> Self {
        Self {
            observed: Observed {
                object,
                template: None,
                policy: None,
                overrides: None,
                services: BTreeMap::new(),
                binding: None,
                spares: None,
                works: Vec::new(),
                clusters: Vec::new(),
                certificates: Vec::new(),
                tombstones: BTreeSet::new(),
                server_image: server_image.to_owned(),
                asked: None,
                term: None,
                failure: None,
            },
            now,
            placed: Vec::new(),
            stopped_agents: BTreeSet::new(),
            configuration_frozen: false,
            frozen_epoch: None,
            accepted: Ensemble::default(),
            leader: None,
            voters: BTreeSet::new(),
            version: 0,
            running: BTreeMap::new(),
            spares: BTreeMap::new(),
        }
    }

    /// The first record is done, and nothing changes any more.
    pub(crate) fn done(more: &Value) -> Self {
        let mut world = Self::new(more);
        world.settle();
        world
    }

    /// The static weights of the policy.
    pub(crate) fn weights(&self) -> Vec<(String, i32)> {
        let placement = &self.observed.policy.as_ref().unwrap().spec.placement;
        let scheduling = placement.replica_scheduling.clone().unwrap_or_default();
        let weights = scheduling.weight_preference.unwrap_or_default().static_weight_list.into_iter();
        let weight = |rule: StaticClusterWeight| {
            (rule.target_cluster.cluster_names[0].clone(), i32::try_from(rule.weight).unwrap())
        };
        weights.map(weight).collect()
    }

    /// Karmada divides the voters by the static weights of the policy, over these clusters alone.
    pub(crate) fn place_by_weight(&mut self, reached: &[&str]) {
        let weights = self.weights().into_iter();
        let mut placed: Vec<(String, i32)> = weights.filter(|(name, _)| reached.contains(&name.as_str())).collect();
        let missing = self.observed.object.spec.replicas - placed.iter().map(|(_, count)| count).sum::<i32>();
        placed[0].1 += missing;
        self.placed = placed;
        self.schedule();
    }

    /// Changes the schedule.
    pub(crate) fn place(&mut self, placed: &[(&str, i32)]) {
        self.placed = placed.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        self.schedule();
    }

    /// Makes Karmada lose these clusters, and reach every other one.
    pub(crate) fn unreachable(&mut self, lost: &[&str]) {
        self.observed.clusters = CLUSTERS
            .iter()
            .map(|name| {
                serde_json::from_value(json!({
                    "metadata": { "name": name, "labels": { "tier": "one", "other": "x" } },
                    "spec": { "region": "eu", "provider": "p", "zones": ["z"] },
                    "status": {
                        "conditions": [{ "type": "Ready", "status": if lost.contains(name) { "Unknown" } else { "True" } }],
                        "apiEnablements": [
                            { "groupVersion": "mczk.io/v1alpha1", "resources": [{ "name": "zookeepers", "kind": "ZooKeeper" }] },
                            { "groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": [
                                { "name": "serviceexports", "kind": "ServiceExport" }, { "name": "serviceimports", "kind": "ServiceImport" }
                            ] }
                        ]
                    }
                }))
                .unwrap()
            })
            .collect();
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now += std::time::Duration::from_secs(seconds);
    }

    /// A user changes the spec.
    pub(crate) fn edit(&mut self, pointer: &str, value: &Value) {
        let mut spec = serde_json::to_value(&self.observed.object.spec).unwrap();
        let mut place = &mut spec;
        for part in pointer.trim_start_matches('/').split('/') {
            place = &mut place[part];
        }
        place.clone_from(value);
        self.observed.object.spec = serde_json::from_value(spec).unwrap();
        self.observed.object.metadata.generation = self.observed.object.metadata.generation.map(|g| g + 1);
    }

    /// Another client changes the live template.
    pub(crate) fn edit_template(&mut self, edit: impl Fn(&mut ZooKeeper)) {
        let mut template = self.observed.template.as_deref().unwrap().clone();
        edit(&mut template);
        self.observed.template = Some(template.into());
    }

    pub(crate) fn image(&mut self, image: &str) {
        self.edit("/template/image", &json!(image));
    }

    pub(crate) fn plan(&self) -> Plan {
        plan(&self.observed, self.now)
    }

    /// One pass: the operator plans and writes everything. Agents do not act.
    pub(crate) fn pass(&mut self) -> Plan {
        let plan = self.plan();
        self.write(&plan);
        plan
    }

    /// The certificate that a first plan would create.
    fn make_certificate(&self) -> Option<Make> {
        if self.observed.object.spec.tls.quorum { self.plan().certificate } else { None }
    }

    /// Writes a plan.
    pub(crate) fn write(&mut self, plan: &Plan) {
        if let Some(claim) = &plan.claim {
            self.observed.overrides = Some(claim.clone().into());
            return;
        }
        self.observed.object.status = Some(plan.status.clone());
        let validity = |make: &Make| if make.holds == Holds::Identity { IDENTITY_LIFE } else { AUTHORITY_LIFE };
        self.observed.tombstones.extend(plan.tombstone.iter().map(|tombstone| tombstone.incarnation.clone()));
        let made = plan.certificate.as_ref().map(|make| make.made(self.now + validity(make)));
        self.observed.certificates.extend(made);
        if let ObjectWrite::Apply(wanted) = &plan.overrides {
            self.observed.overrides = Some(wanted.clone().into());
        }
        if let ObjectWrite::Apply(wanted) = &plan.policy {
            self.observed.policy = Some(wanted.clone().into());
        }
        if let ObjectWrite::Apply(wanted) = &plan.template {
            self.write_template(wanted.clone());
        }
        for (key, desired) in &plan.services {
            match desired {
                ObjectWrite::Apply(value) => {
                    self.observed.services.insert(key.clone(), value.clone());
                }
                ObjectWrite::Delete => {
                    self.observed.services.remove(key);
                }
                ObjectWrite::Leave => {}
            }
        }
        self.ask_spares();
        self.schedule();
    }

    fn write_template(&mut self, mut wanted: ZooKeeper) {
        let before = self.observed.template.as_ref();
        let generation = before.and_then(|t| t.metadata.generation).unwrap_or(0);
        let changed = before.is_none_or(|t| t.spec != wanted.spec);
        wanted.metadata.generation = Some(generation + i64::from(changed));
        wanted.metadata.uid = Some("t1".to_owned());
        self.observed.template = Some(wanted.into());
    }

    /// Karmada brings the spares the object that asks them, and their agents answer.
    fn ask_spares(&mut self) {
        let policy = self.observed.services.get("PropagationPolicy/mczk-zk.spares");
        let names = policy.map(|policy| policy["spec"]["placement"]["clusterAffinity"]["clusterNames"].clone());
        let asked = names.as_ref().and_then(Value::as_array).into_iter().flatten();
        let answer = |name: &Value| {
            let (type_, status, message) = match self.spares.get(name.as_str().unwrap()) {
                None => ("SpareFit", "True", ""),
                Some(SpareAnswer::Refuses(why)) => ("SpareFit", "False", *why),
                Some(SpareAnswer::Blocked(why)) => ("Blocked", "True", *why),
                Some(SpareAnswer::Silent) => return json!({ "clusterName": name, "applied": true }),
            };
            let condition = json!({
                "type": type_, "status": status, "reason": "r", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({ "clusterName": name, "applied": true, "status": { "conditions": [condition] } })
        };
        let answers: Vec<Value> = asked.map(answer).collect();
        let binding = json!({
            "metadata": {}, "spec": { "resource": { "kind": "ZooKeeper" } }, "status": { "aggregatedStatus": answers },
        });
        self.observed.spares = names.is_some().then(|| serde_json::from_value(binding).unwrap());
    }

    /// Karmada binds the template and creates a Work for each cluster that has replicas.
    fn schedule(&mut self) {
        let (Some(template), Some(policy)) = (&self.observed.template, &self.observed.policy) else { return };
        let name = self.observed.object.name_any();
        // A survey is no workload: every selected cluster gets it.
        let surveys = template.spec.surveys();
        let selected = policy.spec.placement.cluster_affinity.iter().flat_map(|affinity| &affinity.cluster_names);
        let placed: Vec<(String, i32)> =
            if surveys { selected.map(|name| (name.clone(), 0)).collect() } else { self.placed.clone() };
        let before = self.observed.binding.take().map(|b| b.status.aggregated_status).unwrap_or_default();
        let mut binding: mczk_api::karmada::resource_binding::ResourceBinding = serde_json::from_value(json!({
            "metadata": { "name": binding_name(&name), "generation": 1, "labels": { DELETION_PROTECTION: "Always" }, "annotations": { "propagationpolicy.karmada.io/name": policy.metadata.name } },
            "spec": {
                "resource": { "kind": "ZooKeeper", "name": name, "uid": template.metadata.uid },
                "replicas": template.spec.replicas, "replicaRequirements": (!surveys).then(|| json!({})),
                "clusters": placed.iter().map(|(name, count)| json!({ "name": name, "replicas": count })).collect::<Vec<_>>(),
                "placement": policy.spec.placement
            },
            "status": { "schedulerObservedGeneration": 1, "lastScheduledTime": "2026-01-01T00:00:00Z" }
        }))
        .unwrap();
        binding.status.aggregated_status = placed
            .iter()
            .filter(|(_, count)| *count > 0 || surveys)
            .map(|(name, _)| {
                before.iter().find(|item| item.cluster_name == *name).cloned().unwrap_or_else(|| {
                    serde_json::from_value(
                        json!({ "clusterName": name, "applied": true, "status": { "otherIncarnations": [] } }),
                    )
                    .unwrap()
                })
            })
            .collect();
        self.observed.binding = Some(binding);
    }

    /// The content of the OverridePolicy.
    pub(crate) fn overrides(&self) -> Overrides {
        self.observed.overrides.as_ref().map(|o| override_rules::read(&o.spec)).unwrap_or_default()
    }

    /// Every running agent that Karmada reaches applies the OverridePolicy and reports, all at once.
    pub(crate) fn run_agents(&mut self) {
        let overrides = self.overrides();
        // An agent never goes back to an older list of its incarnation.
        let is_older = overrides.ensemble.incarnation.is_some()
            && overrides.ensemble.incarnation == self.accepted.incarnation
            && overrides.ensemble.epoch < self.accepted.epoch;
        if !is_older {
            self.accepted = overrides.ensemble.clone();
        }
        let list = &self.accepted.clone();
        let ready = self.observed.clusters.iter().filter(|c| c.ready()).map(|c| c.name().to_owned());
        let reached: BTreeSet<String> = ready.filter(|name| !self.stopped_agents.contains(name)).collect();
        for (cluster, spec) in overrides.cluster_specs.iter().filter(|(name, _)| reached.contains(*name)) {
            self.running.retain(|(name, ordinal), _| name != cluster || *ordinal < spec.replicas);
            let own = list.servers.iter().filter(|s| s.cluster == *cluster && s.role == Role::Voter);
            let started = own.filter(|s| s.ordinal < spec.replicas).map(|s| ((cluster.clone(), s.ordinal), s.id));
            self.running.extend(started);
        }
        let before = self.voters.clone();
        self.form(list);
        while let MembershipStep::Reconfigure(step) =
            membership::step(list, &self.views(list), list.epoch, &BTreeSet::new())
            && !self.configuration_frozen
        {
            self.voters.retain(|id| Some(*id) != step.remove);
            self.voters.extend(step.add.map(|server| server.id));
        }
        self.version += i64::from(self.voters != before);
        let views = self.views(list);
        let specs = overrides.cluster_specs.iter().filter(|(name, _)| reached.contains(*name));
        let mut statuses: BTreeMap<_, _> =
            specs.map(|(name, spec)| (name, self.report_of(name, spec, list, &views))).collect();
        for item in self.observed.binding.iter_mut().flat_map(|b| &mut b.status.aggregated_status) {
            item.status = statuses.remove(&item.cluster_name).map(|status| json!(status)).or(item.status.take());
        }
    }

    /// The first voters form the quorum.
    fn form(&mut self, list: &Ensemble) {
        let voters: BTreeSet<i32> = list.servers.iter().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
        let running = self.running.values().filter(|id| voters.contains(id)).count();
        if self.voters.is_empty() && running >= majority(voters.len()) {
            self.voters = voters;
        }
    }

    fn has_quorum(&self) -> bool {
        self.running.values().filter(|id| self.voters.contains(id)).count() >= majority(self.voters.len())
    }

    /// Reports of all voters that run.
    fn views(&self, list: &Ensemble) -> Vec<ServerReport> {
        self.running.iter().map(|((_, ordinal), id)| self.server(list, *id, &ordinal.to_string())).collect()
    }

    fn server(&self, list: &Ensemble, id: i32, pod: &str) -> ServerReport {
        let incarnation = list.incarnation.as_deref().unwrap_or_default();
        let report = looking(id, format!("{}-{incarnation}-{pod}", self.observed.object.name_any()), incarnation);
        if !self.has_quorum() {
            return report;
        }
        let host = |id| list.all_servers().find(|s| s.id == id).map(|s| s.host.clone()).unwrap_or_default();
        serving(report, &configuration(self.version, &self.voters, host), self.leader)
    }

    /// The report of an agent whose servers are as declared.
    fn report_of(
        &self,
        cluster: &str,
        spec: &ZooKeeperSpec,
        list: &Ensemble,
        views: &[ServerReport],
    ) -> ZooKeeperStatus {
        let voters = self.running.iter().zip(views).filter(|(((name, _), _), _)| name == cluster);
        let voters = voters.map(|(((_, ordinal), _), view)| local_server(view.clone(), Role::Voter, *ordinal));
        let observers = list.servers.iter().filter(|s| s.cluster == cluster && s.role == Role::Observer);
        let observers = observers.map(|s| (self.server(list, s.id, &format!("o-{}", s.ordinal)), s.ordinal));
        let observers = observers.map(|(view, ordinal)| local_server(view, Role::Observer, ordinal));
        let servers: Vec<_> = voters.chain(observers).collect();
        status::report(&AgentStatusInputs {
            spec_hash: spec.spec_hash.as_deref(),
            completed: true,
            published: self.frozen_epoch.or(list.epoch).filter(|_| self.has_quorum()),
            loaded: list.tls.clone(),
            ..status_inputs(&ZooKeeperStatus::default(), list, &servers, views)
        })
    }

    /// Karmada's view of the Work of one cluster, to change it.
    pub(crate) fn work(&mut self, cluster: &str) -> &mut AggregatedStatusItem {
        let items = &mut self.observed.binding.as_mut().unwrap().status.aggregated_status;
        items.iter_mut().find(|item| item.cluster_name == cluster).unwrap()
    }

    /// The report of one cluster, to change it.
    pub(crate) fn report(&mut self, cluster: &str) -> &mut Value {
        self.work(cluster).status.get_or_insert_with(|| json!({}))
    }

    /// One pass; then agents act; then 10 seconds pass.
    pub(crate) fn tick(&mut self) -> Plan {
        let plan = self.pass();
        self.run_agents();
        self.wait(10);
        plan
    }

    /// Ticks until nothing changes any more. Fails after 60 ticks.
    pub(crate) fn run(&mut self) {
        let objects = |world: &Self| {
            format!(
                "{:?} {:?} {:?} {:?} {:?}",
                world.observed.object.status,
                world.observed.template,
                world.observed.policy,
                world.observed.overrides,
                world.observed.binding
            )
        };
        for _ in 0..60 {
            let before = objects(self);
            let plan = self.tick();
            if objects(self) != before {
                continue;
            }
            match plan.requeue_after.filter(|_| self.condition("Progressing") == "True Holding") {
                Some(hold) => self.now += hold,
                None => return,
            }
        }
        panic!("changes without end: {}\n{:?}", self.state(), self.condition("Progressing"));
    }

    /// Ticks until the last record is done.
    pub(crate) fn settle(&mut self) {
        self.run();
        assert!(self.state().starts_with("Ready"), "{} {:#?}", self.state(), self.status().conditions);
    }

    pub(crate) fn status(&self) -> MultiClusterZooKeeperStatus {
        self.observed.object.status.clone().unwrap_or_default()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.status().records
    }

    /// The last record: status, pending, deploying, completed.
    pub(crate) fn state(&self) -> String {
        let records = self.records();
        let Some(last) = records.last() else { return "none".to_owned() };
        let lists = [&last.current_state.pending, &last.current_state.deploying, &last.current_state.completed];
        format!("{:?} {}", last.status, lists.map(|list| list.join(",")).join("|"))
    }

    /// The image in each cluster spec.
    pub(crate) fn images(&self) -> String {
        self.overrides()
            .cluster_specs
            .iter()
            .map(|(name, spec)| format!("{name}={}", spec.template.image))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The servers: id, cluster and ordinal.
    pub(crate) fn ids(&self) -> Vec<(i32, String, i32)> {
        self.overrides().ensemble.servers.iter().map(|s| (s.id, s.cluster.clone(), s.ordinal)).collect()
    }

    /// Message of a condition.
    pub(crate) fn message(&self, type_: &str) -> String {
        let conditions = self.status().conditions;
        conditions.into_iter().find(|c| c.type_ == type_).map(|c| c.message).unwrap_or_default()
    }

    /// Reason of a condition, with its status.
    pub(crate) fn condition(&self, type_: &str) -> String {
        let conditions = self.status().conditions;
        conditions.iter().find(|c| c.type_ == type_).map(|c| format!("{} {}", c.status, c.reason)).unwrap_or_default()
    }
}

/// The Work of a cluster, which Karmada deletes since this time.
pub(crate) fn work_of(cluster: &str, deleted: Option<Timestamp>) -> Work {
    let mut work = Work::default();
    work.metadata.namespace = Some(format!("karmada-es-{cluster}"));
    work.metadata.deletion_timestamp = deleted.map(Time);
    work
}
