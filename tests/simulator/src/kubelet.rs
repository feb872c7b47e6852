//! The kubelets of a member cluster: they start a server for each pod of the agent, and report the pod's status.
//!
//! The API server removes a pod at once if it has no node. Otherwise the kubelet removes it when its server has stopped.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::watcher::{self, Event},
};
use mczk_api::{
    ZooKeeper,
    contract::{
        labels::{ENSEMBLE_LABEL, INCARNATION_LABEL, MANAGED_BY_AGENT, MANAGED_BY_LABEL, REVISION_LABEL, ROLE_LABEL},
        pod_layout::SERVER_LIST_FILE,
    },
    zookeeper::{Ensemble as ServerList, Role},
};
use serde_json::{Value, json};

use crate::{
    BROKEN, SILENT, Simulator,
    world::{self, PodKey},
};

/// Time between two attempts after a failure.
const PAUSE: Duration = Duration::from_millis(300);

/// A pod that was not started yet, or runs.
struct Container {
    pod: world::Pod,
    /// Name of the ZooKeeper object.
    ensemble: String,
    /// Name and image of its container.
    name: String,
    image: String,
    /// When the server starts; absent if it never does.
    starts: Option<Instant>,
    address: Option<Ipv4Addr>,
    /// The status that was written last.
    reported: Option<Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// The image cannot be pulled.
    Failed,
    /// The server runs.
    Running { ready: bool },
}

struct Kubelets {
    simulator: Simulator,
    cluster: String,
    client: Client,
    containers: BTreeMap<PodKey, Container>,
    /// Pods of a list that is still being read.
    listed: Vec<PodKey>,
}

pub(crate) async fn run(simulator: Simulator, cluster: String, client: Client) {
    let mut changed = simulator.0.changed.subscribe();
    let config = watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGED_BY_AGENT}")).timeout(60);
    let mut pods = watcher::watcher(Api::<Pod>::all(client.clone()), config.clone()).boxed();
    let mut maps = watcher::watcher(Api::<ConfigMap>::all(client.clone()), config).boxed();
    let mut kubelets = Kubelets { simulator, cluster, client, containers: BTreeMap::new(), listed: Vec::new() };
    let mut wake = None;
    loop {
        let timer = async {
            match wake {
                Some(at) => tokio::time::sleep_until(Instant::into(at)).await,
                None => std::future::pending().await,
            }
        };
        let failed = tokio::select! {
            Some(event) = pods.next() => kubelets.pod_event(event).await,
            Some(event) = maps.next() => kubelets.map_event(event),
            _ = changed.changed() => false,
            () = timer => false,
        };
        if failed {
            tokio::time::sleep(PAUSE).await;
        }
        wake = kubelets.report().await;
    }
}

impl Kubelets {
    /// Follows a pod; returns true if the watch failed.
    async fn pod_event(&mut self, event: watcher::Result<Event<Pod>>) -> bool {
        match event {
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(pod)) => {
                self.listed.push(self.key(&pod));
                self.apply(&pod).await;
            }
            Ok(Event::InitDone) => {
                let gone: Vec<PodKey> =
                    self.containers.keys().filter(|key| !self.listed.contains(key)).cloned().collect();
                for key in gone {
                    self.stop(&key).await;
                }
            }
            Ok(Event::Apply(pod)) => self.apply(&pod).await,
            Ok(Event::Delete(pod)) => self.stop(&self.key(&pod)).await,
            Err(_) => return true,
        }
        false
    }

    /// Follows the ConfigMaps with server lists; returns true if the watch failed.
    fn map_event(&mut self, event: watcher::Result<Event<ConfigMap>>) -> bool {
        let map = match event {
            Ok(Event::InitApply(map) | Event::Apply(map)) => map,
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => return false,
            Err(_) => return true,
        };
        let text = map.data.as_ref().and_then(|data| data.get(SERVER_LIST_FILE));
        if let Some(list) = text.and_then(|text| serde_json::from_str::<ServerList>(text).ok()) {
            self.simulator.change(|world| world.mount(&self.cluster, list));
        }
        false
    }

    fn key(&self, pod: &Pod) -> PodKey {
        let namespace = pod.namespace().unwrap_or_default();
        PodKey { cluster: self.cluster.clone(), namespace, name: pod.name_any() }
    }

    async fn stop(&mut self, key: &PodKey) {
        let Some(container) = self.containers.remove(key) else { return };
        let is_ending = self.is_ending(&container).await;
        self.simulator.change(|world| {
            if is_ending {
                world.end(&container.pod.incarnation);
            }
            world.stop(key);
        });
    }

    /// True if the ensemble of a pod is decommissioned, or its incarnation is over. Pods mount no such server list.
    async fn is_ending(&self, container: &Container) -> bool {
        let objects: Api<ZooKeeper> = Api::namespaced(self.client.clone(), &container.pod.key.namespace);
        match objects.get_opt(&container.ensemble).await {
            Ok(None) => true,
            Ok(Some(object)) => {
                let list = object.spec.ensemble;
                list.phase.is_ending() || list.incarnation.is_some_and(|of| of != container.pod.incarnation)
            }
            Err(_) => false,
        }
    }

    async fn apply(&mut self, pod: &Pod) {
        let key = self.key(pod);
        if pod.metadata.deletion_timestamp.is_some() {
            self.stop(&key).await;
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let at_once = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
            // If it fails, the next event or the next list repeats it.
            let _ = pods.delete(&key.name, &at_once).await;
            return;
        }
        let uid = pod.uid().unwrap_or_default();
        if self.containers.get(&key).is_some_and(|container| container.pod.uid == uid) {
            return;
        }
        self.stop(&key).await;
        let label = |name: &str| pod.labels().get(name).cloned().unwrap_or_default();
        let container = pod.spec.iter().flat_map(|spec| &spec.containers).next().cloned().unwrap_or_default();
        let image = container.image.unwrap_or_default();
        let behaviour = self.simulator.behaviour(&key.namespace);
        let is_restart = self.simulator.read(|world| world.has_volume(&key));
        let delay = if is_restart { behaviour.restart } else { behaviour.start };
        let starts = !image.contains(BROKEN) && !image.contains(SILENT);
        let server = world::Pod {
            ordinal: key.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0),
            incarnation: label(INCARNATION_LABEL),
            revision: label(REVISION_LABEL),
            role: if label(ROLE_LABEL) == "observer" { Role::Observer } else { Role::Voter },
            key: key.clone(),
            uid,
        };
        let starts = starts.then(|| Instant::now() + delay);
        self.containers.insert(
            key,
            Container {
                pod: server,
                ensemble: label(ENSEMBLE_LABEL),
                name: container.name,
                image,
                starts,
                address: None,
                reported: None,
            },
        );
    }

    /// Starts the servers whose time has come, and writes the status of pods. Returns the time of the next change.
    async fn report(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut wake: Option<Instant> = None;
        let mut earlier = |at: Instant| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        for (key, container) in &mut self.containers {
            match container.starts {
                Some(at) if at > now => {
                    earlier(at);
                    continue;
                }
                Some(_) if container.address.is_none() => {
                    container.address = Some(self.simulator.change(|world| world.start(container.pod.clone())));
                }
                None if container.image.contains(SILENT) => continue,
                _ => {}
            }
            let status = match container.address {
                None => Status::Failed,
                Some(_) => Status::Running { ready: self.simulator.read(|world| world.serves(key)) },
            };
            if container.reported == Some(status) {
                continue;
            }
            let patch =
                Patch::Merge(json!({ "metadata": { "uid": container.pod.uid }, "status": container.status(status) }));
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
            match pods.patch_status(&key.name, &PatchParams::default(), &patch).await {
                Ok(_) => container.reported = Some(status),
                // The pod is gone, and the watch reports it soon.
                Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => {}
                Err(_) => earlier(now + PAUSE),
            }
        }
        wake
    }
}

impl Container {
    fn status(&self, status: Status) -> Value {
        let ready = status == Status::Running { ready: true };
        let conditions = json!([{ "type": "Ready", "status": if ready { "True" } else { "False" } }]);
        match status {
            Status::Running { .. } => json!({ "phase": "Running", "podIP": self.address, "conditions": conditions }),
            Status::Failed => json!({ "phase": "Pending", "conditions": conditions, "containerStatuses": [{
                "name": self.name, "image": self.image, "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "ImagePullBackOff" } },
            }] }),
        }
    }
}
