//! Moments in the life of one ensemble, in each of which a changed field may show.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use mczk::{
    api::{MultiClusterZooKeeper, zookeeper::Role},
    rollout::{
        mutation::Mutation,
        objects::FINALIZER,
        override_rules,
        plan::{Desired, Observed, plan},
    },
};
use serde_json::{Value, json};

/// One moment.
pub(crate) struct World {
    observed: Observed,
    now: Timestamp,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn clusters(unreachable: &[&str]) -> Vec<Value> {
    ["m1", "m2", "m3", "m4"]
        .iter()
        .map(|name| {
            json!({
                "metadata": { "name": name, "labels": { "tier": "one", "other": "x" } },
                "spec": { "region": "eu", "provider": "p", "zones": ["z"] },
                "status": {
                    "conditions": [{ "type": "Ready", "status": if unreachable.contains(name) { "False" } else { "True" } }],
                    "apiEnablements": [
                        { "groupVersion": "mczk.io/v1alpha1", "resources": [{ "name": "zookeepers", "kind": "ZooKeeper" }] },
                        { "groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": [{ "name": "serviceexports", "kind": "ServiceExport" }] }
                    ]
                }
            })
        })
        .collect()
}

impl World {
    fn new(spec: &Value) -> Self {
        let object: MultiClusterZooKeeper = serde_json::from_value(json!({
            "apiVersion": "mczk.io/v1alpha1", "kind": "MultiClusterZooKeeper",
            "metadata": { "name": "zk", "namespace": "ns", "uid": "u1", "generation": 1, "finalizers": [FINALIZER] },
            "spec": spec
        }))
        .unwrap();
        let clusters = clusters(&[]).into_iter().map(|c| serde_json::from_value(c).unwrap()).collect();
        Self {
            observed: Observed {
                object,
                template: None,
                policy: None,
                overrides: None,
                services: BTreeMap::new(),
                binding: None,
                works: Vec::new(),
                clusters,
                server_image: "mczk:1".to_owned(),
                failure: None,
            },
            now: at(0),
        }
    }

    /// What the operator would write, tell and wait for, with another spec at this moment.
    pub(crate) fn outcome(&self, spec: &Value) -> String {
        let mut observed = self.observed.clone();
        observed.object.spec = serde_json::from_value(spec.clone()).unwrap();
        format!("{:?}", plan(&observed, self.now, Mutation::None))
    }

    /// Plans and writes once; members do nothing.
    fn step(&mut self) {
        let plan = plan(&self.observed, self.now, Mutation::None);
        self.observed.object.status = Some(plan.status);
        if let Desired::Apply(wanted) = plan.overrides {
            self.observed.overrides = Some(wanted);
        }
        if let Desired::Apply(wanted) = plan.policy {
            self.observed.policy = Some(wanted);
        }
        if let Desired::Apply(mut wanted) = plan.template {
            let before = self.observed.template.as_ref();
            let generation = before.and_then(|t| t.metadata.generation).unwrap_or(0);
            let changed = before.is_none_or(|t| t.spec != wanted.spec);
            wanted.metadata.generation = Some(generation + i64::from(changed));
            wanted.metadata.uid = Some("t1".to_owned());
            self.observed.template = Some(wanted);
        }
        for (key, desired) in plan.services {
            if let Desired::Apply(value) = desired {
                self.observed.services.insert(key, value);
            }
        }
        self.schedule();
    }

    /// Karmada: places what the policy asks for.
    fn schedule(&mut self) {
        let (Some(template), Some(policy)) = (&self.observed.template, &self.observed.policy) else { return };
        let items = self.observed.binding.take().map(|b| b.status.aggregated_status).unwrap_or_default();
        let mut binding: mczk::api::karmada::resource_binding::ResourceBinding = serde_json::from_value(json!({
            "metadata": { "name": "zk-zookeeper", "generation": 1, "annotations": { "propagationpolicy.karmada.io/name": policy.metadata.name } },
            "spec": {
                "resource": { "kind": "ZooKeeper", "name": "zk", "uid": template.metadata.uid },
                "replicas": template.spec.replicas, "replicaRequirements": {},
                "clusters": [{ "name": "m1", "replicas": template.spec.replicas - 3 }, { "name": "m2", "replicas": 2 }, { "name": "m3", "replicas": 1 }],
                "placement": policy.spec.placement
            },
            "status": { "schedulerObservedGeneration": 1, "lastScheduledTime": "2026-01-01T00:00:00Z" }
        }))
        .unwrap();
        binding.status.aggregated_status = items;
        if binding.status.aggregated_status.is_empty() {
            binding.status.aggregated_status = ["m1", "m2", "m3"]
                .iter()
                .map(|name| {
                    serde_json::from_value(json!({ "clusterName": name, "applied": true, "status": {} })).unwrap()
                })
                .collect();
        }
        self.observed.binding = Some(binding);
    }

    /// Every member does what its pin says, all at once, except those named.
    fn members(&mut self, except: &[&str]) {
        let Some(policy) = &self.observed.overrides else { return };
        let told = override_rules::read(&policy.spec);
        let voters: Vec<_> = told.ensemble.servers.iter().filter(|s| s.role == Role::Voter).collect();
        let started: i32 = told.pins.values().map(|p| p.replicas).sum();
        let quorum = usize::try_from(started).unwrap() > voters.len() / 2;
        let Some(binding) = &mut self.observed.binding else { return };
        for item in &mut binding.status.aggregated_status {
            let Some(pin) = told.pins.get(&item.cluster_name).filter(|_| !except.contains(&item.cluster_name.as_str()))
            else {
                continue;
            };
            let servers: Vec<_> = told
                .ensemble
                .servers
                .iter()
                .filter(|s| s.cluster == item.cluster_name)
                .map(|s| json!({ "id": s.id, "pod": s.host.split('.').next(), "serving": quorum }))
                .collect();
            item.status = Some(json!({
                "observedPin": pin.pin, "completedPin": pin.pin, "ensemble": told.ensemble,
                "replicas": pin.replicas, "startedReplicas": pin.replicas, "readyReplicas": if quorum { pin.replicas } else { 0 },
                "servers": servers, "writable": quorum, "configVersion": told.ensemble.epoch,
                "votingMembers": if quorum { voters.iter().map(|s| s.id).collect() } else { Vec::new() }
            }));
        }
    }

    /// Goes on until everything is done, holds included.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.step();
            self.members(&[]);
            self.now += std::time::Duration::from_secs(40);
        }
        let record = self.observed.object.status.as_ref().unwrap().records.last().cloned();
        assert_eq!(
            record.map(|r| format!("{:?}", r.status)).as_deref(),
            Some("Ready"),
            "{:?}",
            self.observed.object.status
        );
    }

    fn image(&mut self, image: &str) {
        image.clone_into(&mut self.observed.object.spec.template.image);
        self.observed.object.metadata.generation = self.observed.object.metadata.generation.map(|g| g + 1);
    }

    fn copy(&self) -> Self {
        Self { observed: self.observed.clone(), now: self.now }
    }

    /// The moments.
    pub(crate) fn scenes(spec: &Value) -> Vec<Self> {
        let mut scenes = vec![Self::new(spec)];
        // Everything is written, nothing scheduled yet; then scheduled: the first record is about to begin.
        let mut world = Self::new(spec);
        world.step();
        scenes.push(world.copy());
        // All clusters are being waited for.
        world.step();
        scenes.push(world.copy());
        // The first cluster has just completed: hold.
        world.members(&[]);
        scenes.push(world.copy());
        // Longer ago, and nothing was heard of it: deadline.
        let mut late = world.copy();
        late.now = at(300);
        scenes.push(late);
        let mut done = Self::new(spec);
        done.settle();
        scenes.push(done.copy());
        // Some records later: history.
        for image in ["a", "b", "c"] {
            done.image(image);
            done.settle();
        }
        scenes.push(done.copy());
        // The next cluster of a record cannot be reached.
        let mut lost = Self::new(spec);
        lost.step();
        lost.observed.clusters =
            clusters(&["m1", "m2", "m3"]).into_iter().map(|c| serde_json::from_value(c).unwrap()).collect();
        let mut waiting = lost.copy();
        waiting.step();
        scenes.push(lost);
        scenes.push(waiting);
        // A record of which a part is done, and the rest cannot be reached.
        let mut part = Self::new(spec);
        for _ in 0..8 {
            part.step();
            part.members(&[]);
            part.now += std::time::Duration::from_secs(40);
            let state =
                part.observed.object.status.as_ref().and_then(|s| s.records.last()).map(|r| r.current_state.clone());
            if state.is_some_and(|s| s.completed.len() == 1 && s.pending.len() == 1) {
                break;
            }
        }
        part.observed.clusters = clusters(&["m1"]).into_iter().map(|c| serde_json::from_value(c).unwrap()).collect();
        scenes.push(part.copy());
        for _ in 0..4 {
            part.step();
            part.members(&["m1"]);
            part.now += std::time::Duration::from_secs(40);
            scenes.push(part.copy());
        }
        scenes
    }
}
