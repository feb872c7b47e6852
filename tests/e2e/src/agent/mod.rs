//! The agents of all member clusters, in this process: the real agent on simulated pods and servers. Member clusters have real
//! API servers and a real StatefulSet controller.

mod history;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::watcher::{self, Event},
};
use mczk_agent::Metrics;
use mczk_api::ZooKeeper;
use prometheus_client::registry::Registry;
use simulator::Simulator;
use tokio::task::JoinHandle;

pub use history::{Entry, History, What};
pub use simulator::{BROKEN, Behaviour, SILENT, world::Condition};

/// Time between two attempts after a failure.
const PAUSE: Duration = Duration::from_millis(300);
/// Time between two reconciles of an object at rest. Pods and specs trigger a reconcile at once.
const AT_REST: Duration = Duration::from_secs(24);
/// Time between two reconciles of an object that changes.
const WHILE_BUSY: Duration = Duration::from_secs(1);

/// Name and namespace of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn of(object: &ZooKeeper) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The agents of all member clusters. They stop when this value is dropped.
#[derive(Debug)]
pub struct Agents {
    simulator: Simulator,
    history: Arc<Mutex<History>>,
    tasks: Vec<JoinHandle<()>>,
    /// The agents that run, by cluster.
    running: Mutex<BTreeMap<String, JoinHandle<()>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agents {
    /// Starts an agent in each member cluster.
    #[must_use]
    pub fn start(members: &BTreeMap<String, Client>, default: Behaviour) -> Self {
        let simulator = Simulator::new(default);
        let history = Arc::<Mutex<History>>::default();
        let mut tasks = Vec::new();
        let mut agents = BTreeMap::new();
        for (cluster, client) in members {
            tasks.push(tokio::spawn(simulator.clone().kubelets(cluster.clone(), client.clone())));
            tasks.push(tokio::spawn(record(cluster.clone(), client.clone(), Arc::clone(&history))));
            agents.insert(cluster.clone(), tokio::spawn(run(client.clone(), simulator.clone())));
        }
        Self { simulator, history, tasks, running: Mutex::new(agents) }
    }

    /// Ends the agent of a cluster, as a crash would. Its pods and servers run on.
    pub fn kill(&self, cluster: &str) {
        if let Some(agent) = lock(&self.running).remove(cluster) {
            agent.abort();
        }
    }

    /// Starts the agent of a cluster again, with a client of its API server.
    pub fn restart(&self, cluster: &str, client: Client) {
        self.kill(cluster);
        let agent = tokio::spawn(run(client, self.simulator.clone()));
        lock(&self.running).insert(cluster.to_owned(), agent);
    }

    /// Cuts the power of a cluster: its agent ends, and its servers neither answer nor follow. Its API server is the caller's.
    pub fn cut_power(&self, cluster: &str) {
        self.kill(cluster);
        self.simulator.change(|world| world.set_power(cluster, false));
    }

    /// Returns the power of a cluster, with a client of its API server.
    pub fn return_power(&self, cluster: &str, client: Client) {
        self.simulator.change(|world| world.set_power(cluster, true));
        self.restart(cluster, client);
    }

    /// The servers of a namespace in a cluster report this condition from now on.
    pub fn set_condition(&self, cluster: &str, namespace: &str, condition: Condition) {
        self.simulator.change(|world| world.set_condition(cluster, namespace, condition));
    }

    /// Sets the behaviour of the pods in a namespace, in all clusters.
    pub fn behave(&self, namespace: &str, behaviour: Behaviour) {
        self.simulator.behave(namespace, behaviour);
    }

    /// Changes in the member clusters so far.
    #[must_use]
    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }

    /// What agents did in a namespace and must never do.
    #[must_use]
    pub fn violations(&self, namespace: &str) -> Vec<String> {
        self.simulator.read(|world| world.violations(namespace).map(str::to_owned).collect())
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for task in self.tasks.iter().chain(lock(&self.running).values()) {
            task.abort();
        }
    }
}

/// Runs the agent of a cluster, once the cluster serves ZooKeeper objects.
async fn run(client: Client, simulator: Simulator) {
    let objects: Api<ZooKeeper> = Api::all(client.clone());
    while objects.list(&ListParams::default().limit(1)).await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    let options = mczk_agent::AgentOptions {
        dial: simulator.dial(),
        at_rest: AT_REST,
        while_busy: WHILE_BUSY,
        ..mczk_agent::AgentOptions::default()
    };
    let metrics = Metrics::new(&mut Registry::default());
    mczk_agent::run(client, options, metrics, || {}, std::future::pending()).await;
}

/// Records the changes of ZooKeeper objects in a cluster.
async fn record(cluster: String, client: Client, history: Arc<Mutex<History>>) {
    let mut listed = BTreeSet::new();
    let config = watcher::Config::default().timeout(60);
    let mut events = watcher::watcher(Api::<ZooKeeper>::all(client), config).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(Key::of(&object));
                lock(&history).observe(&cluster, &object);
            }
            Ok(Event::InitDone) => lock(&history).retain(&cluster, &listed),
            Ok(Event::Apply(object)) => lock(&history).observe(&cluster, &object),
            Ok(Event::Delete(object)) => lock(&history).remove(&cluster, &Key::of(&object)),
            // The cluster does not serve the kind yet, or its API server is down.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
