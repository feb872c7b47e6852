//! Pods and `ZooKeeper` servers of member clusters, in memory. The real agent runs on top of them, against real API servers.
//!
//! [`kubelet`] plays the kubelets of a cluster: it starts a server for each pod of the agent and reports the pod's status.
//! [`world`] plays the servers: elections, reconfiguration, and the restart lock. [`Simulator::dial`] connects the agent to
//! them. The world also records what agents must never do.

mod kubelet;
mod servers;
pub mod world;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use mczk_agent::control_client::Dial;
use tokio::sync::watch;

pub use world::World;

/// A pod whose image contains this text never starts, and its status names the failure.
pub const BROKEN: &str = "broken";
/// A pod whose image contains this text never starts, and its status stays empty.
pub const SILENT: &str = "silent";

/// Duration of changes in the pods of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Time until a new server runs.
    pub start: Duration,
    /// Time until a restarted server runs.
    pub restart: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { start: Duration::from_millis(300), restart: Duration::from_millis(200) }
    }
}

/// All member clusters. Clones share them.
#[derive(Clone, Debug)]
pub struct Simulator(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    behaviours: Mutex<BTreeMap<String, Behaviour>>,
    default: Behaviour,
    changed: watch::Sender<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulator {
    /// Clusters without servers.
    #[must_use]
    pub fn new(default: Behaviour) -> Self {
        Self(Arc::new(Shared {
            world: Mutex::default(),
            behaviours: Mutex::default(),
            default,
            changed: watch::Sender::new(()),
        }))
    }

    /// Sets the behaviour of the pods in a namespace, in all clusters.
    pub fn behave(&self, namespace: &str, behaviour: Behaviour) {
        lock(&self.0.behaviours).insert(namespace.to_owned(), behaviour);
    }

    fn behaviour(&self, namespace: &str) -> Behaviour {
        lock(&self.0.behaviours).get(namespace).copied().unwrap_or(self.0.default)
    }

    /// Reads the world.
    pub fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&lock(&self.0.world))
    }

    /// Changes the world. Kubelets then update the readiness of pods.
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let result = change(&mut lock(&self.0.world));
        self.0.changed.send_replace(());
        result
    }

    /// The agent's connection to the servers.
    #[must_use]
    pub fn dial(&self) -> Dial {
        servers::dial(self.clone())
    }

    /// Plays the kubelets of a cluster until the future is dropped.
    pub async fn kubelets(self, cluster: String, client: Client) {
        kubelet::run(self, cluster, client).await;
    }
}
